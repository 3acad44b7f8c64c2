#!/bin/sh
# A format of one's own: --format-file tries a layout without another build; files that describe
# themselves wrongly are refused when they are read; and what was written so is read without the
# file, by its descriptors, as every file is whose format is not known by its name.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"

cat >"$work/own.json" <<'EOF'
{
  "name": "fp8-own",
  "version": 1,
  "title": "FP8 e4m3 in tiles of 8x16, one fp32 scale to a row",
  "about": "A test: each warp reads 128 bytes that follow each other.",
  "source": "a test",
  "codec": "fp8",
  "block": [1, 0],
  "set": {"rule": "div", "scale_rule": "fp32"},
  "needs": [
    {"dim": "N", "multiple": 8, "why": "a tile is 8 output features"},
    {"dim": "K", "multiple": 16, "why": "a tile is 16 input features"}
  ],
  "experts": "stack",
  "outputs": [
    {"role": "codes", "suffix": "weight_tiles", "dtype": "F8_E4M3", "shape": ["E", "N/8", "K/16", "128"],
     "element": "e4m3", "layout": "(E,(8,N/8),(16,K/16)):(N*K,(16,8*K),(1,128))"},
    {"role": "scale", "suffix": "weight_scale", "dtype": "F32", "shape": ["E", "N"],
     "element": "f32", "per": [1, 0], "layout": "(E,N,1):(N,1,1)"}
  ]
}
EOF
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet || exit 1

# The example of formats/README.md, and what dump shows of it, as the page has them.
"$PYTHON" - "$TESTS/../formats/README.md" "$work" <<'EOF' || exit 1
import sys
page, work = sys.argv[1:]
parts = open(page, encoding="utf-8").read().split("```")
for name, start in (("acme.json", 'json\n{\n  "name": "fp8-acme"'),
                    ("shown", "\nmodel.layers.0.mlp.down_proj  e=0 ")):
    text, = (part for part in parts if part.startswith(start))
    open(f"{work}/{name}", "w").write(text.split("\n", 1)[1])
EOF
format=fp8-acme
check "the page's example" convert acme --format-file "$work/acme.json" -q
"$TILEPACK" dump "$work/acme" layers.0.mlp.down_proj --at 3,53 -q >"$work/dumped" 2>&1
check "the page's dump" diff -u "$work/shown" "$work/dumped"
own=$work/own.json
format=fp8-own

# Every command that takes the option.
check "formats lists it" sh -c "'$TILEPACK' formats --format-file '$own' | grep -q '^fp8-own '"
check "formats shows it" sh -c "'$TILEPACK' formats fp8-own --format-file '$own' | grep -q 8x16"
answers "plan" 0 fp8-own "$TILEPACK" plan "$work/model" --to fp8-own --format-file "$own"
answers "compare" 0 fp8-own "$TILEPACK" compare "$work/model" --to fp8-own --format-file "$own"
answers "bench" 0 fp8-own "$TILEPACK" bench --format fp8-own --shape 1,64,256 --device cpu \
    --format-file "$own"
check "convert" convert packed --format-file "$own" -q
check "verify --against" "$TILEPACK" verify "$work/packed" --against "$work/model" --format-file "$own"
check "the card has the option" grep -q -- "--format-file FILE" "$work/packed/README.md"
answers "the same again is done already" 0 "complete already" \
    convert packed --format-file "$own"
fails "without the file it is no format" 2 "there is no format 'fp8-own'" convert other

# What was made in it is made again with the same file alone.
fails "against, without the file" 4 "the format 'fp8-own' is not known here" \
    "$TILEPACK" verify "$work/packed" --against "$work/model"
sed 's/"rule": "div"/"rule": "ct-fp32"/' "$own" >"$work/changed.json"
fails "against, with another file" 4 "is another one than that which it was made with" \
    "$TILEPACK" verify "$work/packed" --against "$work/model" --format-file "$work/changed.json"

# It is read by its descriptors.
answers "verify says that it is not known" 0 "format 'fp8-own', version 1, is not known here" \
    "$TILEPACK" verify "$work/packed"
answers "dump" 0 "code * scale" "$TILEPACK" dump "$work/packed" model.layers.0.mlp.down_proj --at 3,5
check "unpack" "$TILEPACK" unpack "$work/packed" -o "$work/plain" -q
check "what it is, is what the oracle decodes" \
    "$PYTHON" "$TESTS/bytes/roundtrip.py" unpack "$work/packed" "$work/plain" "$work/model" bf16
check "diff" "$TILEPACK" diff "$work/packed" "$work/packed"
fails "convert does not take it" 4 "is not known here" \
    "$TILEPACK" convert "$work/packed" -o "$work/other" --to fp8-ct

# Parts are merged with the file that they were made with. Without it, and of a source whose format
# is not known, nothing is made.
for part in 1 2; do
    check "part $part" convert parted --part $part/2 --format-file "$own" -q
done
fails "merge, without the file" 4 "the format 'fp8-own' is not known here" \
    "$TILEPACK" merge "$work/parted"
fails "merge, with another file" 4 "is another one than that which it was made with" \
    "$TILEPACK" merge "$work/parted" --format-file "$work/changed.json"
check "merge" "$TILEPACK" merge "$work/parted" --format-file "$own"
check "it is what one process makes" \
    cmp "$work/parted/model.safetensors" "$work/packed/model.safetensors"
check "a part of known weights" "$TILEPACK" convert "$work/model" -o "$work/known" --to fp8-ct \
    --part 1/1 -q
fails "merge, of a source that is not known" 4 "format 'fp8-own', version 1, is not known here" \
    "$TILEPACK" merge "$work/known" --source "$work/packed"

# Files that are refused.
refuse() { # name, sed expression, text
    sed "$2" "$own" >"$work/bad.json"
    fails "$1" 3 "$3" "$TILEPACK" plan "$work/model" --to fp8-own --format-file "$work/bad.json"
}
refuse "a scale for more than its block" 's/"block": \[1, 0\]/"block": [1, 64]/' \
    '"per" [1,0] of "weight_scale" stores one for more than the "block" [1,64]'
refuse "an unknown key" 's/"needs"/"need"/' '"need" is no known key'
refuse "an unknown key of an output" 's/"suffix": "weight_scale"/&, "colour": 1/' \
    '"colour" of "outputs" is no known key'
refuse "an unknown key of a rule" 's/"multiple": 16/&, "most": 1/' \
    '"most" of "needs" is no known key'
refuse "an unknown key of set" 's/"rule": "div"/"rulez": "div"/' '"rulez"'
refuse "shape against layout" 's|"N/8", "K/16", "128"|"N/8", "K/16", "64"|' \
    '"shape" and "dtype" of "weight_tiles" are'
refuse "dtype against layout" 's/"dtype": "F32"/"dtype": "BF16"/' \
    '"shape" and "dtype" of "weight_scale" are'
for key in name title about source version experts codec block; do
    refuse "without $key" "/^  \"$key\"/d" "\"$key\" is"
done
refuse "another word for experts" 's/"stack"/"stacked"/' "\"experts\" is 'stacked'"
refuse "codes of another codec" 's/"element": "e4m3"/"element": "e2m1"/' "\"element\" of \"weight_tiles\" is 'e2m1'"
refuse "no JSON" 's/^{/{{/' "line 1"
refuse "no bijection" 's/(1,128))/(2,128))/' "not a bijection"
refuse "a name that would do harm on a terminal" 's/fp8-own/fp8\\u001b[31m/' '"name" is not'
sed 's/fp8-own/fp8-ct/' "$own" >"$work/bad.json"
fails "the name of a built-in format" 2 "is built in" \
    "$TILEPACK" plan "$work/model" --to fp8-ct --format-file "$work/bad.json"
fails "two files of one name" 2 "two files describe the format 'fp8-own'" \
    "$TILEPACK" plan "$work/model" --to fp8-own --format-file "$own" --format-file "$own"
fails "no file" 5 nowhere.json "$TILEPACK" plan "$work/model" --to fp8-own \
    --format-file "$work/nowhere.json"
head -c 1100000 /dev/zero | tr '\0' ' ' >"$work/bad.json"
fails "more than 1 MiB" 3 "bad.json" "$TILEPACK" plan "$work/model" --to fp8-own \
    --format-file "$work/bad.json"

# Every format under another name, and descriptors with every fault.
"$PYTHON" "$TESTS/bytes/unknown.py" >"$work/unknown" 2>&1
grep -v '^ok' "$work/unknown" | grep -v ' passed, '
passed=$((passed + $(grep -c '^ok' "$work/unknown")))
failed=$((failed + $(grep -c '^FAIL' "$work/unknown")))
grep -q ' passed, 0 failed' "$work/unknown" || [ "$failed" -gt 0 ] || bad "unknown.py did not end"
finish
