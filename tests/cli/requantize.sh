#!/bin/sh
# Weights that are quantized already: which conversions want --requantize, which are done with
# a line that says the error, and what rounding the scales of int4 costs. Nothing is lost
# without a word.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
convert() { # source, format, options ...
    from=$1 to=$2
    shift 2
    "$TILEPACK" convert "$work/$from" -o "$work/made" --force --to "$to" -j 2 --device cpu "$@"
}
silent() { # source, format: no line about a loss
    convert "$1" "$2" >"$work/said" 2>&1 && ! grep -q "error" "$work/said"
}
error_of() { # source: the largest relative error that verify finds, in per cent
    "$TILEPACK" verify "$work/made" --against "$work/$1" --json | "$PYTHON" -c '
import json, sys
print(max(w["relative"] for w in json.load(sys.stdin)["weights"]) * 100)'
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
for format in fp8-deepseek fp8-dynamic-ct mxfp8-ct mxfp4-ct nvfp4-ct w4a8-ct; do
    "$TILEPACK" convert "$work/model" -o "$work/$format" --to $format -q || exit 1
done

# Refused, and done on demand.
while read -r from to; do
    fails "$from to $to wants --requantize" 4 "--requantize" convert "$from" "$to" -q
    answers "$from to $to says its error" 0 "root mean square error" \
        convert "$from" "$to" --requantize
done <<END
fp8-deepseek w4a8-ct
fp8-deepseek nvfp4-ct
fp8-deepseek mxfp4-ct
fp8-deepseek fp8-dynamic-ct
fp8-dynamic-ct fp8-deepseek
mxfp8-ct fp8-deepseek
mxfp8-ct nvfp4-ct
mxfp8-ct w4a8-cutlass
mxfp8-ct mxfp4-ct
mxfp4-ct w4a8-ct
mxfp4-ct fp8-dynamic-ct
nvfp4-ct w4a8-ct
nvfp4-ct mxfp4-ct
nvfp4-ct fp8-deepseek
w4a8-ct fp8-deepseek
END
answers "plan refuses it, too" 4 "it is quantized already" \
    "$TILEPACK" plan "$work/nvfp4-ct" --to w4a8-ct

# Done with a line: 8-bit floats in blocks that lie within those of the source.
while read -r from to; do
    answers "$from to $to says its error" 0 "decoded and quantized again: " convert "$from" "$to"
    check "and proves it" "$TILEPACK" verify "$work/made" --against "$work/$from" -q
done <<END
fp8-deepseek mxfp8-ct
fp8-deepseek fp8-deepgemm-sm100
fp8-dynamic-ct mxfp8-ct
END
convert fp8-deepseek mxfp8-ct --json >"$work/json"
check "JSON has the figure" "$PYTHON" -c '
import json, sys
said = json.load(open(sys.argv[1]))["quantized_again"]
assert said["weights"] > 0 and 0.001 < said["relative"] < 0.05, said' "$work/json"

# Codes and scales that are taken over are no loss, and none is spoken of.
check "fp8-dynamic-ct to fp8-1x128 loses nothing" silent fp8-dynamic-ct fp8-1x128
check "mxfp8-ct to mxfp8-blocked loses nothing" silent mxfp8-ct mxfp8-blocked
check "w4a8-ct to w4a16-ct loses nothing" silent w4a8-ct w4a16-ct
check "mxfp4-ct to nvfp4-ct loses nothing" silent mxfp4-ct nvfp4-ct

# Rows that lie apart in the source: gate and up of gpt-oss take turns, and where a tile of the
# result is higher than a matrix of the source, it has rows of several.
"$PYTHON" - "$TESTS/lib" "$work/gpt-oss" "$work/low" <<'END' || exit 1
import json
import os
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import stfile
rng = np.random.default_rng(1)
LAYER = "model.layers.0.mlp.experts."


def save(path, config, tensors):
    os.makedirs(path)
    stfile.save(f"{path}/model.safetensors", tensors)
    with open(f"{path}/config.json", "w", encoding="ascii") as f:
        json.dump(config, f)


tensors = {}
for name, rows in (("gate_up_proj", 512), ("down_proj", 256)):
    tensors[f"{LAYER}{name}_blocks"] = stfile.tensor(
        "U8", rng.integers(0, 256, (2, rows, 8, 16), dtype=np.uint8))
    tensors[f"{LAYER}{name}_scales"] = stfile.tensor(
        "U8", rng.integers(115, 124, (2, rows, 8), dtype=np.uint8))
save(sys.argv[2], {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}},
     tensors)
save(sys.argv[3], {"model_type": "qwen3_moe"}, {
    f"{LAYER}{e}.{name}.weight": stfile.tensor("F32", np.float32(rng.standard_normal(shape)))
    for e in range(2) for name, shape in (("gate_proj", (128, 256)), ("up_proj", (128, 256)),
                                          ("down_proj", (256, 128)))})
END
"$TILEPACK" convert "$work/low" -o "$work/low-awq" --to awq -q || exit 1
while read -r from to; do
    answers "rows that lie apart: $from to $to" 0 "root mean square error" \
        convert "$from" "$to" --requantize
    cp "$work/out" "$work/text"
    check "the figure is that of verify" "$PYTHON" -c '
import re, sys
said = float(re.search("error ([0-9.]+) %", open(sys.argv[1]).read()).group(1))
most = float(sys.argv[2])
assert 0.8 * most < said <= 1.01 * most, (said, most)' "$work/text" "$(error_of "$from")"
done <<END
gpt-oss w4a16-marlin
low-awq mxfp4-triton-hopper
END

# They still alternate where the stack was packed under its own name, and are put apart from there.
"$TILEPACK" convert "$work/gpt-oss" -o "$work/direct" --to mxfp4-trtllm -q || exit 1
"$TILEPACK" convert "$work/gpt-oss" -o "$work/own-name" --to mxfp4-blocked --no-stack -q || exit 1
answers "from a stack under its own name" 0 "" convert own-name mxfp4-trtllm
check "the bytes are those of the direct way" "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import stfile
a, b = (stfile.load(f"{d}/model.safetensors")[0] for d in sys.argv[2:])
assert a.keys() == b.keys(), (a.keys(), b.keys())
assert all(a[n].data == b[n].data for n in a)' "$TESTS/lib" "$work/direct" "$work/made"

# A bias is no matrix of an expert, packed or not, and stays beside its weight.
PYTHONPATH=$TESTS/lib "$PYTHON" - "$work/biases" <<'END' || exit 1
import json, os, sys
import numpy as np
import stfile
rng = np.random.default_rng(0)
os.mkdir(sys.argv[1])
stfile.save(f"{sys.argv[1]}/model.safetensors", {
    f"model.layers.0.mlp.experts.{e}.{m}_proj.{what}": stfile.from_f32(
        "BF16", rng.standard_normal(shape).astype(np.float32))
    for e in range(2) for m in ("gate", "up", "down")
    for what, shape in (("weight", (256, 256)), ("bias", 256))})
with open(f"{sys.argv[1]}/config.json", "w", encoding="ascii") as f:
    json.dump({"model_type": "gpt_oss"}, f)
END
"$TILEPACK" convert "$work/biases" -o "$work/with-biases" --to w8a16-marlin --no-stack -q || exit 1
answers "packed biases beside single experts: stacked with them" 0 "4 weights converted" \
    convert with-biases mxfp4-marlin --requantize
answers "packed biases beside single experts: plain with them" 0 "12 weights converted" \
    convert with-biases w4a16-ct --requantize
check "and as they were" "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import stfile
a, b = (stfile.load(f"{d}/model.safetensors")[0] for d in sys.argv[2:])
biases = [n for n in a if n.endswith(".bias")]
assert len(biases) == 6 and all(a[n].data == b[n].data for n in biases)
assert sum(n.endswith("_packed") for n in b) == 6, b.keys()' "$TESTS/lib" "$work/biases" "$work/made"
answers "weights that are kept keep their packed biases" 0 "" \
    convert with-biases w4a16-ct --requantize --exclude "experts.1.gate_proj.weight"
check "in their order" "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import stfile
a, b = (stfile.load(f"{d}/model.safetensors")[0] for d in sys.argv[2:])
name = "model.layers.0.mlp.experts.1.gate_proj.bias"
assert a[name].data == b[name].data
' "$TESTS/lib" "$work/with-biases" "$work/made"

# The scales of W4A8 are rounded to e4m3.
answers "w4a8-cutlass says what its scales lose" 0 "codes taken over, scales rounded: " \
    convert w4a8-ct w4a8-cutlass
cp "$work/out" "$work/text"
check "the figure is that of verify" "$PYTHON" -c '
import re, sys
said = float(re.search("error ([0-9.]+) %", open(sys.argv[1]).read()).group(1))
most = float(sys.argv[2])
assert 0.5 * most < said <= 1.05 * most, (said, most)' "$work/text" "$(error_of w4a8-ct)"
cp -r "$work/made" "$work/cutlass" 2>/dev/null
answers "and the way back says it" 0 "codes taken over, scales rounded: " \
    "$TILEPACK" unpack "$work/cutlass" -o "$work/back" --to w4a8-ct
check "--quiet says nothing" sh -c "test -z \"\$('$TILEPACK' convert '$work/w4a8-ct' -o \
    '$work/quiet' --to w4a8-cutlass -q 2>&1)\""
# A value that is infinite is in no sum: that of nothing is no error of 0.
PYTHONPATH=$TESTS/lib "$PYTHON" - "$work/infinite" <<'END'
import json, os, sys
import numpy as np
import stfile
codes = np.zeros((128, 128), dtype=np.uint8)
codes[0, 0] = 0x38
os.mkdir(sys.argv[1])
name = "model.layers.0.self_attn.q_proj.weight"
stfile.save(os.path.join(sys.argv[1], "model.safetensors"), {
    name: stfile.tensor("F8_E4M3", codes),
    name + "_scale_inv": stfile.tensor("F32", np.full((1, 1), np.inf, dtype=np.float32))})
with open(os.path.join(sys.argv[1], "config.json"), "w") as f:
    json.dump({"model_type": "llama", "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}, f)
END
answers "an infinite value has no figure" 0 \
    "no figure, as all that differs is NaN or infinite, in model.layers.0.self_attn.q_proj" \
    convert infinite mxfp8-ct --requantize --nonfinite keep

# Said of what was done, and not of what was found complete, or is another part's.
unsaid() { ! grep "quantized again" "$work/said"; }
again() { "$TILEPACK" convert "$work/w4a8-ct" -o "$work/again" --to fp8-deepseek --requantize "$@" 2>&1; }
check "a run says what it did" sh -c "'$TILEPACK' convert '$work/w4a8-ct' -o '$work/again' \
    --to fp8-deepseek --requantize 2>&1 | grep -q 'decoded and quantized again'"
again >"$work/said"
check "what is complete is not done again" grep -q "is complete already" "$work/said"
check "and nothing is said of it" unsaid
rm -r "$work/again"
again --part 2/2 --shard-size 1GB >"$work/said"
check "a part without shards has nothing to say" unsaid
finish
