#!/bin/sh
# What nobody has set follows a packed source, where its codes and scales are taken over exactly
# then; what is set stays; hints name what would do; the request that is recorded says both.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
source_of() { "$PYTHON" "$TESTS/bytes/sources.py" --write "$1" "$work/$1" >/dev/null || exit 1; }
to() { # source, format, options ...
    from=$1 to=$2
    shift 2
    "$TILEPACK" convert "$work/$from" -o "$work/made" --force --to "$to" -j 2 --device cpu "$@"
}
is_exact() { "$TILEPACK" verify "$work/made" --against "$work/$1" --json |
    "$PYTHON" -c 'import json, sys
proof = json.load(sys.stdin)
sys.exit(not proof["ok"] or any(w["max_abs"] for w in proof["weights"]))'; }
recorded() { "$PYTHON" -c 'import glob, json, sys
with open(glob.glob(sys.argv[1] + "/*.safetensors")[0], "rb") as f:
    head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
print(json.loads(head["__metadata__"]["tilepack.request"])["rules"][0])' "$work/made"; }

for row in gptq-lm-head ct-inside-text-config autoround-int8 quark-ptpc modelopt-fp8; do
    source_of "$row"
done
while read -r from format set; do
    answers "$from to $format follows" 0 "$set" to "$from" "$format"
    check "and is exact" is_exact "$from"
    answers "plan says it" 0 "codes taken over, exact" \
        "$TILEPACK" plan "$work/$from" --to "$format"
    check "unpack --to does the same" "$TILEPACK" unpack "$work/$from" -o "$work/made" --force \
        --to "$format"
    check "and is exact" is_exact "$from"
done <<END
gptq-lm-head w4a16-ct (scales=f16)
gptq-lm-head w4a16-marlin (scales=f16)
ct-inside-text-config w4a16-ct (group=32)
autoround-int8 w8a16-ct (group=128, scales=f16)
quark-ptpc fp8-dynamic-ct (scales=f32)
modelopt-fp8 fp8-tensor-ct (scales=f32)
END

answers "the user's choice wins" 0 "scales rounded" to gptq-lm-head w4a16-ct --set scales=bf16
answers "all is recorded" 0 "'scales': 'bf16'" recorded
check "a choice beside it" to gptq-lm-head w4a16-ct --set quotient=bf16
answers "only that is recorded" 0 "'set': {'quotient': 'bf16'}, 'follows': True" recorded
check "the plan made again from it" is_exact gptq-lm-head
fails "a hint names what would do" 4 "hint: --set group=32 takes its codes and scales over" \
    to ct-inside-text-config w4a16-ct --set group=128
cp "$work/err" "$work/hint"
check "and not --requantize" sh -c "! grep -e --requantize '$work/hint'"
answers "which quantizes again" 0 "again" to ct-inside-text-config w4a16-ct --set group=128 --requantize
echo '{"rules": [{"match": ".", "to": "w4a16-ct", "set": {"group": "128"}}]}' >"$work/recipe"
fails "a recipe's set wins, too" 4 "--set group=32" "$TILEPACK" convert \
    "$work/ct-inside-text-config" -o "$work/made" --force --recipe "$work/recipe"

# What engines load as one follows all alike, or not at all.
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
for part in k o; do
    cat >"$work/recipe" <<END
{"rules": [{"match": "${part}_proj", "to": "w4a16-ct", "set": {"group": "32"}},
           {"match": "_proj", "to": "w4a16-ct"}]}
END
    "$TILEPACK" convert "$work/model" -o "$work/$part" --recipe "$work/recipe" -q \
        --merged convert || exit 1
done
answers "a layer of its own follows" 0 "codes taken over, exact" to o w4a16-marlin
check "and is exact" is_exact o
fails "one of three that are merged does not" 4 "--set group=32" to k w4a16-marlin
finish
