#!/bin/sh
# unpack: plain weights with the names, shapes and dtypes of the source and exactly
# the values that an independent decoder finds; --to takes codes over unchanged.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
unpack_says() { # name, status, text, arguments of unpack ...
    said=$1 status=$2 text=$3
    shift 3
    answers "$said" "$status" "$text" "$TILEPACK" unpack "$@"
}
make() { # name, options of gen_checkpoint.py ...
    name=$1
    shift
    "$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/$name" --quiet "$@" || exit 1
}
convert() { # from, to, format, options ...
    from=$work/$1 to=$work/$2 format=$3
    shift 3
    "$TILEPACK" convert "$from" -o "$to" --to "$format" -q "$@" || bad "convert to $format"
}
unpack() { # from, to, options ...
    from=$work/$1 to=$work/$2
    shift 2
    "$TILEPACK" unpack "$from" -o "$to" -q "$@" || bad "unpack $from $*"
}
round() { "$PYTHON" "$TESTS/bytes/roundtrip.py" "$@"; }

make experts --preset tiny-mixtral
make fused --preset tiny-qwen3-moe
make odd --layers 1 --hidden 256 --inter 160 --heads 4 --kv-heads 2 --head-dim 64 --vocab 512 \
    --moe-experts 3 --moe-style fused --shard-mb 0.7

# Values that are no numbers are written, and said; compare says them, too.
"$PYTHON" - "$work/nan.safetensors" <<'END' || exit 1
import json, struct, sys
text = json.dumps({"x.weight": {"dtype": "F32", "shape": [128, 128], "data_offsets": [0, 65536]}}).encode()
values = [1.0] * 16383 + [float("nan")]
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<16384f", *values))
END
"$TILEPACK" convert "$work/nan.safetensors" -o "$work/nan8.safetensors" --to mxfp8-ct --include x \
    --nonfinite keep --device cpu -q || bad "convert a NaN"
unpack_says "NaN is said" 0 "x.weight: 32 of 16384 values are NaN or infinite" \
    "$work/nan8.safetensors" -o "$work/nan-plain.safetensors"
answers "compare says it" 0 " values are NaN or infinite, in the source" \
    "$TILEPACK" compare "$work/nan8.safetensors" --to fp8-ct --include x --full

# Every format and back: per-expert names, and fused stacks of odd sizes.
for format in $("$TILEPACK" formats --json | "$PYTHON" -c '
import json, sys
listing = json.load(sys.stdin)
rows = listing["formats"] if isinstance(listing, dict) else listing
alike = ["awq", "w4a16-machete", "w8a16-machete", "w8a16-marlin", "w8a16-marlin-channel",
         "w4a16-marlin-channel", "mxfp8-marlin", "w8a16-ct", "fp8-marlin-channel"]  # another layout of one that is tried
print(*[row["name"] for row in rows if not row.get("input_only") and row["name"] not in alike])'); do
    rm -rf "$work/packed" "$work/plain" "$work/odd-packed" "$work/wide"
    convert experts packed "$format" --weights-only 2>/dev/null
    unpack packed plain
    check "$format and back, as bf16" round unpack "$work/packed" "$work/plain" "$work/experts" bf16
    check "$format and back verifies" "$TILEPACK" verify "$work/plain" -q
    check "$format and back has its config" cmp "$work/plain/config.json" \
        "$work/experts/config.json"
    convert odd odd-packed "$format" --weights-only 2>/dev/null
    unpack odd-packed wide --dtype f32 -j 3
    check "$format and back, as f32" round unpack "$work/odd-packed" "$work/wide" "$work/odd" f32
    check "$format and back, as f32, differs in nothing" "$TILEPACK" diff "$work/odd-packed" \
        "$work/wide" -q
done

# The same codes in another order, and back.
for model in experts fused; do
    convert $model $model-ct w4a8-ct
    convert $model-ct $model-cutlass w4a8-cutlass
    unpack $model-cutlass $model-back --to w4a8-ct
    check "w4a8-ct -> w4a8-cutlass -> w4a8-ct: identical codes ($model)" round same \
        "$work/$model-ct" "$work/$model-back" weight_packed weight_shape
    check "and names ($model)" round names "$work/$model-ct" "$work/$model-back"
    check "and it verifies against what it was taken from ($model)" "$TILEPACK" verify \
        "$work/$model-back" --against "$work/$model-cutlass" -q
    unpack $model-cutlass $model-plain
    check "unpacked after two steps: the names of the first source ($model)" round names \
        "$work/$model-plain" "$work/$model"
    unpack $model-back $model-again
    check "and after three ($model)" round unpack "$work/$model-back" "$work/$model-again" \
        "$work/$model" bf16
done
for model in experts fused odd; do
    convert $model $model-mx mxfp8-ct
    convert $model $model-blocked mxfp8-blocked 2>/dev/null
    unpack $model-blocked $model-mx2 --to mxfp8-ct
    check "mxfp8-blocked -> mxfp8-ct: the bytes of a direct conversion ($model)" round same \
        "$work/$model-mx" "$work/$model-mx2"
done
for model in experts fused; do
    unpack $model-mx $model-blocked2 --to mxfp8-blocked
    check "mxfp8-ct -> mxfp8-blocked: the bytes of a direct conversion ($model)" round same \
        "$work/$model-blocked" "$work/$model-blocked2"
done

# Mixtures: packed weights that were kept keep their descriptors.
convert experts mixed w4a8-cutlass --include 'layers\.0\.'
convert mixed mixed2 mxfp8-blocked --include 'layers\.1\.'
check "a mixture made in two steps verifies" "$TILEPACK" verify "$work/mixed2" -q
check "and is unpacked whole" "$TILEPACK" unpack "$work/mixed2" -o "$work/mixed-plain" -q
check "to what the decoder finds" round unpack "$work/mixed2" "$work/mixed-plain" \
    "$work/experts" bf16
"$TILEPACK" convert "$work/experts-ct" -o "$work/same" --to w4a8-ct >"$work/said" 2>&1
check "what is in the format already is copied" round same "$work/experts-ct" "$work/same"
check "with its config" cmp "$work/experts-ct/config.json" "$work/same/config.json"
check "and a word about it" grep -q "is in the format w4a8-ct already" "$work/said"

# A source whose own quantization still applies to a tensor that nobody here knows. One without
# elements is none.
cat >"$work/foreign.py" <<'EOF'
import json
import os
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import stfile

source, target = sys.argv[2:]
tensors, _ = stfile.load(source + "/model.safetensors")
tensors["foreign.weight"] = stfile.tensor("I8", np.full((64, 64), 3, dtype=np.int8))
tensors["empty.weight"] = stfile.tensor("I32", np.zeros((0, 5), dtype=np.int32))
os.mkdir(target)
stfile.save(target + "/model.safetensors", tensors)
config = json.load(open(source + "/config.json"))
config["quantization_config"]["numbers"] = [2 ** 64, -float("inf"), float("inf"), "1e999\"\\"]
json.dump(config, open(target + "/config.json", "w"))
EOF
"$PYTHON" "$work/foreign.py" "$TESTS/lib" "$work/experts-ct" "$work/foreign" || bad "foreign.py"
unpack_says "codes that are not read" 4 "tensor 'foreign.weight': I8 [64,64] looks like the codes" \
    "$work/foreign" -o "$work/no"
check "and the description stays with them" test ! -e "$work/no"

# A single file; then what is refused.
convert experts/model-00001-of-00004.safetensors one.safetensors fp8-ct --no-stack
unpack one.safetensors one-plain.safetensors
check "a single file" round unpack "$work/one.safetensors" "$work/one-plain.safetensors" \
    "$work/experts/model-00001-of-00004.safetensors" bf16
unpack_says "other numbers" 4 "hint: tilepack convert --requantize decodes it" "$work/experts-ct" \
    -o "$work/no" --to mxfp8-ct
check "and writes nothing" test ! -e "$work/no"
unpack_says "no output" 2 "no output is given" "$work/experts-ct"
unpack_says "--to and --dtype" 2 "exclude each other" "$work/experts-ct" -o "$work/no" --to w4a8-ct \
    --dtype f32
unpack_says "no such format" 2 "there is no format 'w4'" "$work/experts-ct" -o "$work/no" --to w4
unpack_says "an output in the way" 7 "exists already" "$work/experts-ct" -o "$work/fused"
unpack_says "the source itself" 2 "are the same" "$work/experts-ct" -o "$work/experts-ct" --force
unpack_says "a plain checkpoint" 0 "holds no packed weight" "$work/experts" -o "$work/copy"
check "which is copied" round same "$work/experts" "$work/copy"

finish
