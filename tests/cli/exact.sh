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

# Where only the numbers tell, `plan` says the condition, and the run stops at one that does not fit.
# MXFP4 is FP8 with a power of two to a block of 128x128 where its scales lie close enough to each
# other; scales of F32 are taken over into 16 bits where they are numbers of that type.
"$PYTHON" - "$TESTS/lib" "$work" <<'END' || exit 1
import json, os, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import stfile
rng = np.random.default_rng(38)
NAME = "model.layers.%d.mlp.down_proj.weight"
E2M1 = np.float32([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def save(folder, group, form, tensors):
    os.mkdir(f"{sys.argv[2]}/{folder}")
    stfile.save(f"{sys.argv[2]}/{folder}/model.safetensors", tensors)
    with open(f"{sys.argv[2]}/{folder}/config.json", "w", encoding="ascii") as f:
        json.dump({"model_type": "llama", "quantization_config": {
            "quant_method": "compressed-tensors", "format": form, "ignore": [],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": group}}}}, f)


# From 2^-7 to 2^6 beside each other: 0.5 * 2^-7 to 6 * 2^6 are numbers of E4M3 with one scale.
for folder, far in (("near", None), ("far", 100)):
    tensors, values = {}, {}
    for layer in range(2):
        scale = rng.integers(120, 134, (256, 8), dtype=np.uint8)
        code = rng.integers(0, 256, (256, 128), dtype=np.uint8)
        if far and layer:
            scale[130, 3], code[130, 48:64] = far, 0x11
        tensors[NAME % layer + "_packed"] = stfile.tensor("U8", code)
        tensors[NAME % layer + "_scale"] = stfile.tensor("U8", scale)
        nibbles = np.stack([code & 15, code >> 4], axis=-1).reshape(256, 256)
        values[NAME % layer] = E2M1[nibbles] * np.exp2(scale.astype(np.float32) - 127).repeat(32, 1)
    save(folder, {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32,
                  "symmetric": True, "scale_dtype": "torch.uint8"}, "mxfp4-pack-quantized", tensors)
    np.savez(f"{sys.argv[2]}/{folder}.npz", **values)

for folder, factor in (("half", 1), ("single", 1.001)):
    tensors = {}
    for layer in range(2):
        scale = np.exp2(rng.integers(-9, -5, (256, 1))).astype(np.float32) * np.float32(1.5)
        scale[200] *= np.float32(factor if layer else 1)
        tensors[NAME % layer] = stfile.tensor("I8", rng.integers(-127, 128, (256, 256), dtype=np.int8))
        tensors[NAME % layer + "_scale"] = stfile.tensor("F32", scale)
    save(folder, {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
         "int-quantized", tensors)
END
has_values() { "$TILEPACK" unpack "$work/made" -o "$work/values" --dtype f32 --force -q &&
    "$PYTHON" -c '
import glob, sys
sys.path.insert(0, sys.argv[1])
import numpy as np, stfile
got = stfile.load(glob.glob(sys.argv[2] + "/*.safetensors")[0])[0]
want = np.load(sys.argv[3])
assert set(got) == set(want.files), set(got)
for name in want.files:
    assert np.array_equal(got[name].f32(), want[name]), name
' "$TESTS/lib" "$work/values" "$work/$1.npz"; }

while read -r from far to set; do
    set=${set:+ $set}
    answers "$from to $to: plan says the condition" 0 \
        "if all are numbers of the format, else the run stops: 2 weights$set" \
        "$TILEPACK" plan "$work/$from" --to "$to"
    rm -rf "$work/made" "$work/made.partial"
    answers "and it holds" 0 "values kept, exact: 2 weights$set" to "$from" "$to"
    check "as numpy finds" has_values near
    check "and verify" is_exact "$from"
    answers "in JSON, too" 0 '"exact_values"' to "$from" "$to" --json
    test "$far" = - && continue
    rm -rf "$work/made" "$work/made.partial"
    for again in "" again; do
        fails "$far to $to stops $again" 4 "tensor 'model.layers.1.mlp.down_proj': \
3.7252903e-09 at e=0 n=130 k=96 is no number of $to" to "$far" "$to"
        check "and publishes nothing" test ! -e "$work/made"
    done
    fails "unpack --to stops, too" 4 "--requantize rounds such values" \
        "$TILEPACK" unpack "$work/$far" -o "$work/made" --to "$to" --if-exists replace
    answers "--requantize rounds it" 0 "root mean square error" to "$far" "$to" --requantize
done <<END
near far fp8-deepseek (scale=ue8m0)
near far fp8-deepgemm-sm100
near far fp8-1x128 (scale=ue8m0)
near - mxfp8-ct
END
answers "the others are converted" 0 "values kept, exact: 1 weight" \
    to far fp8-deepgemm-sm100 --exclude layers.1
fails "a scale that is set is no power of two" 4 "hint: --set scale=ue8m0 keeps its values" \
    to near fp8-deepseek --set scale=fp32

while read -r from far to; do
    answers "F32 scales, $to: plan says the condition" 0 \
        "if their scales are numbers of the new type, else the run stops: 2 weights" \
        "$TILEPACK" plan "$work/$from" --to "$to"
    rm -rf "$work/made" "$work/made.partial"
    answers "and it holds" 0 "codes taken over, exact: 2 weights" to "$from" "$to"
    check "and is exact" is_exact "$from"
    rm -rf "$work/made" "$work/made.partial"
    fails "F32 scales, $to: one that is none stops it" 4 \
        "'model.layers.1.mlp.down_proj': one of its scales is" to "$far" "$to"
    cp "$work/err" "$work/hint"
    check "and says what to do" grep -q -e "hint: .*--requantize rounds it" "$work/hint"
    check "and publishes nothing" test ! -e "$work/made"
    answers "--requantize rounds it" 0 "scales rounded" to "$far" "$to" --requantize
done <<END
half single int8-ct
half single w8a16-ct
half single w8a16-marlin-channel
END
finish
