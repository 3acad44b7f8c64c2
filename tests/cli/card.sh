#!/bin/sh
# What a conversion leaves beside the weights: a model card with metadata of the Hub, the line
# that serves the output, and the licences of the source.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
unset HF_HOME XDG_CACHE_HOME
HF_HUB_CACHE=$work/hub
export HF_HUB_CACHE
convert() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert acme/tiny-llama -o "$to" -j 2 --device cpu "$@"
}
cd "$work" || exit 1
model=hub/models--acme--tiny-llama/snapshots/1
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
printf '%s\n' --- 'license: other' 'license_link: LICENSE' 'base_model:' '- acme/base' 'tags:' \
    '- text' --- '# Tiny' '' 'About it.' >$model/README.md
for name in LICENSE NOTICE USE_POLICY.md; do echo "$name" >$model/$name; done

answers "the line that serves it" 0 "serve it: vllm serve $work/packed" \
    convert "$work/packed" --to w4a8-ct --set quotient=bf16
convert json --to w4a8-ct --json -q >result
check "JSON has it, a word each" test "$(jq -c .serve result)" = \
    '{"engine":"vllm","command":["vllm","serve","json"],"install":null}'
mkdir "it's here"
answers "as a shell takes it" 0 "serve it: vllm serve 'it'\\''s here/\$(packed)'" \
    convert "it's here/\$(packed)" --to w4a8-ct
answers "and vllm no option" 0 "serve it: vllm serve ./-packed" convert -packed --to w4a8-ct
answers "a format for kernels has none, and says so first" 0 "tilepack: for callers of DeepGEMM (54e2261) on sm90: samples/load_packed.py DST" \
    convert kernels --to fp8-1x128
no_line() { if grep 'serve it: ' "$work/out"; then bad "$1"; else ok "$1"; fi; }
no_line "so that none is printed"
requires() { # directory, package
    check "$1 requires $2" grep -q "^ *\"requires\": \"$2\"," "$1/config.json"
    check "and says how to install it" \
        grep -q '^ *"install": "make wheel && pip install .*tilepack_llm-' "$1/config.json"
    check "which is not from PyPI" sh -c "! grep -q 'install [^b]*tilepack-llm' '$1/config.json' '$1/README.md'"
}
requires kernels tilepack-llm
for format in w4a8-cutlass fp8-deepgemm-sm100 mxfp8-blocked mxfp4-blocked; do
    convert kernels-$format --to $format -q
    requires kernels-$format 'tilepack-llm\[vllm\]'
done
check "stock engines load the other without" sh -c '! grep -q requires packed/config.json'
"$PYTHON" - packed/README.md <<'END' >metadata || bad "metadata"
import sys
text = open(sys.argv[1], encoding="utf-8").read()
head, body = text.split("---\n", 2)[1:]
assert head.splitlines() == ["license: other", "license_link: LICENSE", "tags:", "- text",
                             "base_model: acme/tiny-llama", "base_model_relation: quantized"], head
for words in ("14 weights in `w4a8-ct`", "--to w4a8-ct --set quotient=bf16", "vllm serve DST",
              "## The card of the source\n\n# Tiny\n\nAbout it.\n", "1338080 bytes"):
    assert words in body, words
END
check "the metadata and the card" test -f metadata
for name in LICENSE NOTICE USE_POLICY.md; do
    check "$name is copied" cmp $model/$name packed/$name
done
check "it is verified" "$TILEPACK" verify packed -q --strict
# Metadata as huggingface_hub finds it, too; a text that is too long is named.
cp $model/README.md card
front() { # text of the source's card
    printf '%b' "$1" >$model/README.md
    rm -rf front && convert front --to w4a8-ct -q && sed -n '1,/^$/p' front/README.md >metadata
    grep -qx 'license: other' metadata && [ "$(grep -c '^---$' metadata)" = 2 ]
}
check "metadata without a newline behind it" front '---\nlicense: other\n---'
check "with blank lines before it" front '\n\n---\nlicense: other\n---\n# Text\n'
printf 'before\0behind\n' >$model/README.md
check "a zero byte does not end a text" convert zero --to w4a8-ct -q
check "which is whole" grep -q 'before behind' zero/README.md
head -c 4194305 /dev/zero | tr '\0' x >$model/README.md
answers "a text that is too long is named" 0 'README.md: it is longer than 4 MiB' \
    convert lengthy --to w4a8-ct
mv card $model/README.md
# The card's own lines, with the output in place of DST, give the errors and the output again.
lines() { grep -o "tilepack $1 [^\`]*" packed/README.md | sed "s:^tilepack:\"$TILEPACK\":; s:DST:$2:"; }
sh -c "$(lines verify packed)" >errors
check "its line for the errors gives them" \
    test "$(grep -c 'w4a8-ct  *0[.0-9]*  *0[.0-9]*  *1[89][.0-9]*  *0[.0-9]*  equal$' errors)" = 7
check "its command" sh -c "$(lines convert remade) -q"
check "makes the output again" diff -r packed remade

# Its errors are those of all values, where the weights are small; and the same by any way.
cat >errors.py <<'END'
import json
import re
import sys
card, found = sys.argv[1], json.load(sys.stdin)["weights"]
row = re.search(r"^\| `(.*)` \| (\d+) of (\d+) \| (.*) \| (.*) dB \| (.*) dB in `(.*)` \| (.*) % \|$",
                open(card, encoding="utf-8").read(), re.MULTILINE).groups()
ratios = [w["sqnr_db"] for w in found]
mean = sum(ratios) / len(ratios)
worst = min(found, key=lambda w: w["sqnr_db"])
squares = sum(10 ** (-r / 10) for r in ratios) / len(ratios)
assert row[1] == row[2] == str(len(found)), row
assert abs(float(row[3]) - squares ** 0.5) < 1e-4, (row, squares)
assert abs(float(row[4]) - mean) < 0.006 and abs(float(row[5]) - worst["sqnr_db"]) < 0.006, row
assert row[6] == worst["name"], row
assert row[7] == f"{100 * max(w['lost'] for w in found):.2f}", row
END
measured() { # output, options: the errors of the card are those of verify
    convert "$@" -q && "$TILEPACK" verify "$1" --against acme/tiny-llama --json |
        "$PYTHON" errors.py "$1/README.md"
}
for format in fp8-ct w4a8-cutlass nvfp4-trtllm mxfp8-ct; do
    set --
    [ $format != nvfp4-trtllm ] || set -- --weights-only
    check "errors of $format" measured errors-$format --to $format "$@"
done
check "errors of a search" measured searched --to nvfp4-ct --search mse
convert searched-not --to nvfp4-ct --search none -q
check "the command says no search" grep -q -- '--to nvfp4-ct --search none' searched-not/README.md
"$TILEPACK" convert acme/tiny-llama -o one --to fp8-ct -q -j 1 --device cpu
TILEPACK_DISABLE=avx512,avx2 "$TILEPACK" convert acme/tiny-llama -o plain --to fp8-ct -q --device cpu
check "one thread has the same card" cmp errors-fp8-ct/README.md one/README.md
check "and another instruction set" cmp errors-fp8-ct/README.md plain/README.md

# Of partly quantized experts vLLM says itself that it takes all or none: no line promises more.
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" experts --preset tiny-mixtral --quiet \
    >/dev/null || exit 1
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" stacks --preset tiny-qwen3-moe --quiet \
    >/dev/null || exit 1
of() { # source, output, options ...
    source=$1 to=$2
    shift 2
    "$TILEPACK" convert "$source" -o "$to" -j 2 --device cpu "$@"
}
uneven() { # source, module, options ...
    source=$1 module=$2
    shift 2
    answers "experts that are not alike: $source $*" 0 \
        "vLLM (0.33) does not read it: '$module' has experts that are not all in one format" \
        of "$source" uneven --force "$@"
    no_line "no line serves them"
    check "nor in the card" sh -c "! grep -q 'vllm serve' uneven/README.md"
    check "which says so" grep -qF "\`$module\` has experts that are not all in one" uneven/README.md
}
echo '{"rules":[{"match":"experts[.]1[.]","to":"fp8-ct"},{"match":"_proj|experts","to":"mxfp8-ct"}]}' >mixed.json
uneven experts model.layers.0.block_sparse_moe.experts --to fp8-ct --exclude 'experts[.]0[.]'
of experts uneven --to fp8-ct --exclude 'experts[.]0[.]' --json -q --force >result
check "nor in JSON, which has the reason" \
    jq -e '(has("serve") | not) and (.unserved | endswith("are not all in one format"))' result
uneven experts model.layers.1.block_sparse_moe.experts --to w4a8-ct --exclude 'layers[.]1[.].*w2'
uneven experts model.layers.0.block_sparse_moe.experts --recipe mixed.json
uneven stacks model.layers.0.mlp.experts --to fp8-ct --exclude down_proj
for kept in 'layers[.]0[.].*experts' experts; do
    answers "what is all or none is served: $kept" 0 "serve it: vllm serve even" \
        of experts even --to fp8-ct --exclude "$kept" --force
    check "and the card says it" grep -q 'vllm serve DST' even/README.md
done

# Stacks of gpt-oss stay stacks, as their rows are interleaved, also in formats of single experts: no
# engine has a name for those.
"$PYTHON" "$TESTS/other/vllm/checkpoints.py" gptoss oss 256 256 || exit 1
stack=model.layers.0.mlp.experts.gate_up_proj
for format in mxfp4-ct w4a16-ct fp8-dynamic-ct; do
    answers "stacks that nobody reads: $format" 0 "vLLM (0.33) does not read it: '$stack' is a stack" \
        of oss stacked --to $format --requantize --force
    no_line "no line serves them"
    check "the card says so" grep -qF "does not read it: \`$stack\` is a stack" stacked/README.md
    check "and has no line" sh -c "! grep -q 'vllm serve' stacked/README.md"
done
answers "nor when they are asked for" 0 "vLLM (0.33) does not read it: '$stack' is a stack" \
    of stacks stacked --to fp8-ct --no-stack --force
answers "a format that holds stacks is served" 0 "serve it: vllm serve packed-oss" \
    of oss packed-oss --to mxfp4-marlin
check "as its card says, biases or not" grep -q 'vllm serve DST' packed-oss/README.md

# What the plugin takes of linear layers alone, or of experts alone, is not called served beside the
# others, nor are experts that --no-stack leaves apart; a recipe that gives each its own is.
echo '{"rules":[{"match":"experts","to":"mxfp8-trtllm"},{"match":"_proj","to":"mxfp8-blocked"}]}' >two.json
echo '{"rules":[{"match":"experts","to":"nvfp4-blocked"},{"match":"_proj","to":"fp8-ct"}]}' >none.json
unread() { # the end of a name, what is said of it, options ...
    name=$1 is=$2
    shift 2
    answers "no engine reads it: $name" 0 "$name' $is" of experts unread --force "$@"
    no_line "no line serves it"
    check "the card says so" grep -q "does not read it: \`.*$name\` $is" unread/README.md
    check "and has no line" sh -c "! grep -q 'vllm serve' unread/README.md"
}
unread experts.w13 'is of experts' --to mxfp8-blocked
unread self_attn.k_proj 'is a linear layer' --to mxfp8-trtllm
unread experts.0.w1 'is a single expert' --to mxfp4-blocked --no-stack
for options in '--to mxfp8-blocked --exclude experts' '--recipe two.json'; do
    # shellcheck disable=SC2086
    answers "what is taken is served: $options" 0 'serve it: vllm serve read
it needs: make wheel && pip install' \
        of experts read --force $options
    check "and the card says it" grep -q 'vllm serve DST' read/README.md
done
of experts unread --force --recipe none.json >"$work/out" 2>&1
no_line "nor what no engine loads, beside what one does"

# Kernels that quantize activations have their scales from the checkpoint alone.
unread experts.w13 'has no activation scales' --to nvfp4-trtllm --include experts --weights-only
of experts calibrated --to nvfp4-ct --include experts -q
"$PYTHON" "$TESTS/other/vllm/checkpoints.py" calibrated calibrated || exit 1
answers "with activation scales" 0 'serve it: vllm serve scaled
it needs: make wheel && pip install' \
    of calibrated scaled --to nvfp4-trtllm

# One card for all ways to an output, and one again of an output.
convert whole --to mxfp8-ct --shard-size 500k -q
for i in 1 2; do convert parts --to mxfp8-ct --shard-size 500k --part $i/2 -q; done
check "merge" "$TILEPACK" merge parts -q
check "gives the whole" diff -r whole parts
"$TILEPACK" convert packed -o again --to w4a8-cutlass -q
check "the source's card is kept once" test "$(grep -c '^About it' again/README.md)" = 1
check "and is not nested" test "$(grep -c 'made by tilepack' again/README.md)" = 1
check "what is taken over is not measured" \
    grep -q "^14 weights have the source's codes, and its scales rounded" again/README.md
check "so that there is no table" sh -c '! grep -q "signal to noise" again/README.md'
"$TILEPACK" convert errors-mxfp8-ct -o order --to mxfp8-blocked -q
check "or loses nothing" grep -q "^14 weights have the source's codes and scales" order/README.md
"$TILEPACK" convert packed -o coarse --to fp8-ct --requantize -q
check "what is quantized again is measured" grep -q '^| .fp8-ct. | 14 of 14 |' coarse/README.md
"$TILEPACK" convert packed -o same --to w4a8-ct --set quotient=bf16 -q
check "where nothing is made the card stays" cmp packed/README.md same/README.md
mkdir bare && cp $model/*.safetensors* $model/config.json bare
"$TILEPACK" convert bare -o bare-out --to fp8-ct -q
check "a source without a card gets one" grep -q '^# Weights quantized by tilepack' bare-out/README.md

# Rows that are longer than a box of the sample may be, in formats that take them whole or by 16.
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" long --layers 1 --hidden 128 --inter 53248 --heads 2 \
    --kv-heads 2 --head-dim 64 --vocab 64 --quiet >/dev/null || exit 1
for format in w4a8-cutlass w4a8-ct w4a16-marlin-channel fp8-dynamic-ct; do
    check "long rows to $format" "$TILEPACK" convert long -o "long-$format" --to $format -q
done
finish
