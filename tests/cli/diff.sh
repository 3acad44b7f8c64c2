#!/bin/sh
# diff: equal and differing checkpoints of the same and of different formats, exact
# output where it is short.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
says() { # name, status, text, arguments of diff ...
    said=$1 status=$2 text=$3
    shift 3
    answers "$said" "$status" "$text" in_work diff "$@"
}
exactly() { # name, status, arguments of diff ...; expected output on stdin
    name=$1 status=$2
    shift 2
    cat >"$work/expected"
    (cd "$work" && "$TILEPACK" diff "$@") >"$work/out" 2>&1
    got=$?
    if [ "$got" = "$status" ] && cmp -s "$work/expected" "$work/out"; then
        ok "$name"
    else
        bad "$name: status $got (expected $status)"
        diff "$work/expected" "$work/out"
    fi
}


# Small files of all the ways in which two tensors can differ.
cat >"$work/make.py" <<'EOF'
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import stfile

out = sys.argv[2]
grid = (np.arange(12, dtype=np.float32).reshape(3, 4) - 5) / 4
base = {"m.weight": stfile.from_f32("BF16", grid), "n.weight": stfile.from_f32("F32", grid[0]),
        "i.index": stfile.tensor("I64", np.arange(3))}
stfile.save(out + "/a.safetensors", base)
other = grid.copy()
other[2, 1] += 0.5
other[2, 3] = 7
stfile.save(out + "/values.safetensors", {**base, "m.weight": stfile.from_f32("BF16", other)})
stfile.save(out + "/dtype.safetensors", {**base, "m.weight": stfile.from_f32("F32", grid)})
stfile.save(out + "/shape.safetensors", {**base, "m.weight": stfile.from_f32("BF16", grid.T)})
stfile.save(out + "/fewer.safetensors", {k: v for k, v in base.items() if k != "n.weight"})
stfile.save(out + "/bytes.safetensors", {**base, "i.index": stfile.tensor("I64", np.arange(3) ^ 2)})
zero = grid.copy()
zero[1, 1] = -0.0
stfile.save(out + "/zero.safetensors", {**base, "m.weight": stfile.from_f32("BF16", zero)})
nan = grid.copy()
nan[0, 0] = np.nan
stfile.save(out + "/nan.safetensors", {**base, "m.weight": stfile.from_f32("BF16", nan)})
EOF
"$PYTHON" "$work/make.py" "$TESTS/lib" "$work" || exit 1

exactly "nothing" 0 a.safetensors a.safetensors <<'EOF'
no difference in 3 tensors
EOF
exactly "values" 1 a.safetensors values.safetensors <<'EOF'
tensor    count  shape  A     B     difference  max abs  relative
m.weight      1  [3,4]  BF16  BF16  values          5.5   1.82824

first difference: tensor 'm.weight', element [2,1]: 1 in A, 1.5 in B (2 of 12 elements)
1 of 3 tensors differ
EOF
exactly "dtypes, with equal values" 1 a.safetensors dtype.safetensors <<'EOF'
tensor    count  shape  A     B    difference  max abs  relative
m.weight      1  [3,4]  BF16  F32  dtype             0   0.00000

first difference: tensor 'm.weight': dtype
1 of 3 tensors differ
EOF
exactly "shapes" 1 a.safetensors shape.safetensors <<'EOF'
tensor    count  shape        A     B     difference  max abs  relative
m.weight      1  [3,4] [4,3]  BF16  BF16  shape

first difference: tensor 'm.weight': shape
1 of 3 tensors differ
EOF
exactly "a tensor that B lacks" 1 a.safetensors fewer.safetensors <<'EOF'
tensor    count  shape  A    B  difference  max abs  relative
n.weight      1  [4]    F32  -  only in A

first difference: tensor 'n.weight': only in A
1 of 3 tensors differ
EOF
says "a tensor that A lacks" 1 "only in B" fewer.safetensors a.safetensors
says "bytes of what is no number here" 1 "tensor 'i.index', byte 0 (3 bytes)" a.safetensors \
    bytes.safetensors
says "the sign of zero is a byte, not a value" 1 "tensor 'm.weight', byte 11 (1 bytes)" \
    a.safetensors zero.safetensors
says "a NaN is a difference" 1 "element [0,0]: -1.25 in A, nan in B (1 of 12 elements)" \
    a.safetensors nan.safetensors
says "a NaN equals itself" 0 "no difference" nan.safetensors nan.safetensors
says "a file that is not there" 5 "nothing" a.safetensors nothing.safetensors

# Across formats.
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/src" --preset tiny-mixtral --quiet || exit 1
"$TILEPACK" convert "$work/src" -o "$work/cutlass" --to w4a8-cutlass -q || exit 1
"$TILEPACK" convert "$work/src" -o "$work/apart" --to w4a8-cutlass --no-stack -q || exit 1
"$TILEPACK" convert "$work/src" -o "$work/ct" --to w4a8-ct --shard-size 1MB -q || exit 1
"$TILEPACK" unpack "$work/cutlass" -o "$work/plain" --dtype f32 -q || exit 1
says "packed against its unpacked form" 0 "no difference in 41 tensors" cutlass plain
says "stacked against apart" 0 "no difference" cutlass apart
says "packed against itself, by units" 0 "no difference in 21 tensors" cutlass cutlass
says "the source against packed" 1 "32 of 41 tensors differ" src cutlass
says "by the names of the source" 1 "model.layers.*.block_sparse_moe.experts.*.w1.weight" src cutlass
says "two packed formats" 1 "32 of 41 tensors differ" ct cutlass
says "all lines with --verbose" 1 "model.layers.1.block_sparse_moe.experts.3.w1.weight" src cutlass -v
says "the same in sixteen threads" 1 "32 of 41 tensors differ" src cutlass -j 16
for jobs in 1 3; do
    "$TILEPACK" diff "$work/src" "$work/ct" --json -j $jobs >"$work/json$jobs"
done
check "figures do not depend on threads" cmp "$work/json1" "$work/json3"
cat >"$work/look.py" <<'EOF'
import json
import sys

diff = json.load(open(sys.argv[1]))
assert not diff["equal"] and diff["differing"] == len(diff["items"]) == 32, diff
for item in diff["items"]:
    assert item["a"] == "BF16" and item["b"] == "w4a8-ct" and item["difference"] == "values"
    assert 0.1 < item["relative"] < 0.13 and item["max_abs"] > 0 and item["first"]["at"] == [0, 0]
EOF
check "--json" "$PYTHON" "$work/look.py" "$work/json1"
# The manual page's example for that JSON, also where some items have no error.
example=$(sed -n "/jq -r '/,/^\.Ed/p" "$TESTS/../man/tilepack-diff.1" | sed '$d' |
    tr -d '\n' | sed "s/^[^']*'//; s/'\$//")
(cd "$work" && "$TILEPACK" diff values.safetensors fewer.safetensors --json) |
    jq -r "$example" >"$work/largest"
check "the largest errors come first" test "$(cut -f 1 "$work/largest" | xargs)" = \
    "m.weight n.weight"

# Equal bytes of other meaning, and other bytes of the same.
cat >"$work/meaning.py" <<'EOF'
import json
import os
import sys

sys.path[:0] = [sys.argv[1] + "/lib", sys.argv[1] + "/bytes"]
import numpy as np
import stfile
from input_cases import common

out, *files = sys.argv[2:]
rng = np.random.default_rng(1)
codes, scales = common.random_codes(rng, 16, 256), common.f16_scales(rng, 16, 2)
zeros = rng.integers(0, 16, (16, 2), dtype=np.uint8)
name = "model.layers.0.mlp.down_proj"


def gptq(folder, lacks=(), zeros=0x77777777, order=None, of=scales, **more):
    os.makedirs(f"{out}/{folder}")
    tensors = common.gptq_file(name, codes, of, zeros, order)
    stfile.save(f"{out}/{folder}/model.safetensors",
                {x: t for x, t in tensors.items() if not x.endswith(lacks or "-")})
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False,
              "sym": False, **more}
    json.dump({"quantization_config": config}, open(f"{out}/{folder}/config.json", "w"))


gptq("v1", zeros=zeros)
gptq("v2", zeros=zeros, checkpoint_format="gptq_v2")
gptq("no-zeros", "qzeros", zeros=zeros, sym=True)
gptq("eight")
gptq("act-order", order=rng.permutation(256) // 128)
gptq("no-order", "g_idx")
low = scales.view(np.uint16).copy()
low[0, 1] ^= 1  # which bf16 has no place for
gptq("eight-low", of=low.view(np.float16))
for folder, byte in (("wide", 65), ("wider", 113)):
    wide = common.int8_file(name, codes, common.to_bf16(scales))
    bytes_ = wide[name + ".weight"].bits.copy()
    bytes_.reshape(-1)[2] = byte
    wide[name + ".weight"] = stfile.tensor("I8", bytes_)
    os.makedirs(f"{out}/{folder}")
    stfile.save(f"{out}/{folder}/model.safetensors", wide)
swap = {".w1.weight": ".w3.weight", ".w3.weight": ".w1.weight"}
stfile.save(out + "/swapped.safetensors",
            {x[:-10] + swap.get(x[-10:], x[-10:]): t for path in files
             for x, t in stfile.load(path)[0].items()})
EOF
"$PYTHON" "$work/meaning.py" "$TESTS" "$work" "$work/src/"*.safetensors || exit 1
differs() { says "$1" 1 "1 of 1 tensors differ" "$2" "$3"; }
differs "the same words, GPTQ's second version" v1 v2
differs "no zero points here" v1 no-zeros
differs "no act-order here" no-order act-order
says "no zero points here, and none there that differ from 8" 0 "no difference" no-zeros eight
says "the order of the columns there, no order here" 0 "no difference" no-order eight
eight="these are 8-bit weights, not int4 ones stored as bytes"
refuses_wide() { fails "8-bit weights: $*" 4 "it holds the code 65: $eight" in_work "$@"; }
refuses_wide diff wide wider
refuses_wide unpack wide -o wide-plain
for look in --at=0,2 --offset=2 --values=0:1,0:4; do
    refuses_wide dump wide model.layers.0.mlp.down_proj.weight $look
done
says "8-bit weights of equal bytes" 0 "no difference" wide wide
"$TILEPACK" convert "$work/eight" -o "$work/taken" --to gptq -q || exit 1
says "F16 scales that differ only where bf16 is coarser" 1 \
    "first difference: tensor 'model.layers.0.mlp.down_proj', element [0,128]" eight eight-low
# shellcheck disable=SC2016 # the inner shell expands it
check "which is said in JSON" sh -c \
    '"$TILEPACK" diff "$0/eight" "$0/eight-low" --json | grep -q "\"difference\": \"values\""' "$work"
says "of a source, and the same bytes taken over" 0 "no difference" eight taken
differs "of a source, and others taken over" eight-low taken
for x in v1 v2 act-order; do
    "$TILEPACK" unpack "$work/$x" -o "$work/$x-plain" --dtype f32 -q || exit 1
    says "and each against its unpacked form: $x" 0 "no difference" $x $x-plain
done
"$TILEPACK" convert "$work/src" -o "$work/gate-up" --to mxfp4-blocked -q || exit 1
"$TILEPACK" convert "$work/src" -o "$work/up-gate" --to mxfp4-cutlass-moe -q || exit 1
"$TILEPACK" convert "$work/swapped.safetensors" -o "$work/swapped" --to mxfp4-cutlass-moe \
    --weights-only -q || exit 1
# Biases that are packed with their weights, of matrices and of stacks, and a spare tensor beside.
"$PYTHON" - "$TESTS/lib" "$work" <<'EOF' || exit 1
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import stfile

out, dice = sys.argv[2], np.random.default_rng(3)


def floats(*shape):
    return stfile.from_f32("BF16", dice.standard_normal(shape, dtype=np.float32))


layer = "model.layers.0."
experts = layer + "mlp.experts."
biased = {layer + "self_attn.q_proj.weight": floats(128, 128),
          layer + "self_attn.q_proj.bias": floats(128),
          experts + "gate_up_proj": floats(2, 128, 512),
          experts + "gate_up_proj_bias": floats(2, 512),
          experts + "down_proj": floats(2, 256, 128), experts + "down_proj_bias": floats(2, 128)}
stfile.save(out + "/biased.safetensors", biased)
biased[experts + "down_proj_bias"] = floats(2, 128)
biased[layer + "self_attn.q_proj.bias"] = floats(128)
stfile.save(out + "/other-biases.safetensors", biased)
row = {"x.weight": stfile.tensor("F8_E4M3", np.full((128, 128), 0x38, np.uint8)),
       "x.weight_scale": floats(128, 1)}
stfile.save(out + "/row.safetensors", row)
row["x.weight_zero_point"] = stfile.tensor("I8", np.zeros((128, 1), np.int8))
stfile.save(out + "/spare.safetensors", row)
row["x.weight_scale_inv"] = floats(1, 1)
stfile.save(out + "/two-scales.safetensors", row)
EOF
for to in w4a16-marlin mxfp4-triton-hopper mxfp4-trtllm; do
    for x in biased other-biases; do
        "$TILEPACK" convert "$work/$x.safetensors" -o "$work/$x-$to.safetensors" --to $to -q ||
            exit 1
    done
    "$TILEPACK" unpack "$work/biased-$to.safetensors" -o "$work/biased-plain.safetensors" \
        --dtype f32 -q --force || exit 1
    says "packed biases and their unpacked form: $to" 0 "no difference in 6 tensors" \
        biased-$to.safetensors biased-plain.safetensors
    says "the other way: $to" 0 "no difference in 6 tensors" biased-plain.safetensors \
        biased-$to.safetensors
    says "other biases, both packed: $to" 1 "2 of 6 tensors differ" biased-$to.safetensors \
        other-biases-$to.safetensors
    says "other biases here: $to" 1 "2 of 6 tensors differ" other-biases-$to.safetensors \
        biased-plain.safetensors
done
"$TILEPACK" unpack "$work/spare.safetensors" -o "$work/spare-plain.safetensors" --dtype f32 -q ||
    exit 1
for x in spare row spare-plain; do
    says "a tensor that says nothing is no difference: $x" 0 "no difference in 1 tensors" \
        spare.safetensors $x.safetensors
done
fails "two that may be its scales" 4 "stands beside it" in_work diff two-scales.safetensors \
    two-scales.safetensors
says "up before gate is another order of the same" 0 "no difference in 41 tensors" gate-up up-gate
says "gate and up exchanged, in the order of each" 1 \
    "model.layers.0.block_sparse_moe.experts.0.w1.weight" gate-up swapped

finish
