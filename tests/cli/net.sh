#!/bin/sh
# What happens to all that is not read as a packed weight: plain weights that a quantizer left stay
# plain and are said, codes of no known form stop a conversion, unpack restores all or is an error,
# and no hint sends anybody to take a description from weights that are packed.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"

cat >"$work/make.py" <<'EOF_PY'
# make.py LIB DIR NAME: a checkpoint of that name; make.py LIB DIR odd DTYPE SHAPE VALUES [NAME ...]: a
# plain one with one tensor more, called NAME, and scalars of the other names.
import json
import os
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import stfile

target, kind, *more = sys.argv[2:]
rng = np.random.default_rng(1)
LAYER = "model.layers.0."
config = {"model_type": "llama", "num_attention_heads": 4}


def plain(*shape):
    return stfile.from_f32("BF16", rng.standard_normal(shape).astype(np.float32))


def values(word, shape):
    count = int(np.prod(shape))
    if word == "flags":
        return np.arange(count) % 2
    if word == "indices":
        return np.arange(count) % 300
    if word == "bytes":
        return rng.integers(0, 256, count)
    return rng.integers(0, 2 ** 31, count)


tensors = {f"{LAYER}self_attn.{p}_proj.weight": plain(256, 256) for p in "qkvo"}
if kind != "oss":
    tensors |= {f"{LAYER}mlp.{p}_proj.weight": plain(256, 256) for p in ("gate", "up", "down")}
    tensors |= {f"mtp.layers.0.{p}.weight": plain(256, 256) for p in ("fc", "up_proj")}
tensors |= {"model.embed_tokens.weight": plain(304, 256), "lm_head.weight": plain(304, 256)}
if kind == "oss":
    config = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    for name, rows in (("gate_up_proj", 512), ("down_proj", 256)):
        tensors[f"{LAYER}mlp.experts.{name}_blocks"] = stfile.tensor(
            "U8", rng.integers(0, 256, (2, rows, 8, 16), dtype=np.uint8))
        tensors[f"{LAYER}mlp.experts.{name}_scales"] = stfile.tensor(
            "U8", rng.integers(115, 124, (2, rows, 8), dtype=np.uint8))
if kind == "odd":
    dtype, shape, word, name, *others = more
    shape = [int(n) for n in shape.split("x")]
    bits = {"F4": 4, "F6_E3M2": 6}.get(dtype, 8)
    if bits < 8 or dtype.startswith("F8"):
        data = rng.integers(0, 256, int(np.prod(shape)) * bits // 8, dtype=np.uint8).tobytes()
    else:
        numpy = {"U": "<u", "I": "<i", "B": "<u"}[dtype[0]]
        width = 1 if dtype == "BOOL" else int(dtype[1:]) // 8
        data = values(word, shape).astype(f"{numpy}{width}").tobytes()
    tensors[name] = stfile.Tensor(dtype, tuple(shape), data)
    for other in others:
        if "=" in other:
            config |= json.loads(other.split("=", 1)[1])
        else:
            tensors[other] = stfile.tensor("F32", np.ones(256, np.float32))
os.makedirs(target)
stfile.save(target + "/model.safetensors", tensors)
with open(target + "/config.json", "w", encoding="ascii") as f:
    json.dump(config, f)
EOF_PY
make() { # directory, kind, ...
    rm -rf "${work:?}/$1"
    into=$1
    shift
    "$PYTHON" "$work/make.py" "$TESTS/lib" "$work/$into" "$@" || exit 1
}
cat >"$work/same.py" <<'EOF_PY'
# same.py LIB SRC DST PATTERN COUNT: so many tensors of SRC whose names match are in DST, byte for
# byte, and in the list of kept modules where they are linear layers.
import json
import re
import sys

sys.path.insert(0, sys.argv[1])
import stfile

a, b = (stfile.load(d + "/model.safetensors")[0] for d in sys.argv[2:4])
names = [n for n in a if re.search(sys.argv[4], n)]
assert len(names) == int(sys.argv[5]), names
with open(sys.argv[3] + "/config.json", encoding="ascii") as f:
    text = json.dumps(json.load(f).get("quantization_config", {}))
for name in names:
    assert name in b and a[name].dtype == b[name].dtype and a[name].data == b[name].data, name
    assert f'"{name[:-7]}"' in text, (name, text)
EOF_PY
same() { "$PYTHON" "$work/same.py" "$TESTS/lib" "$@"; }
to() { # source, output, format, options ...
    source=$1 out=$2 format=$3
    shift 3
    in_work convert "$source" -o "$out" --to "$format" --device cpu --force "$@"
}
says() { # name, expression of d, the JSON object that was printed, which has to be true
    check "$1" "$PYTHON" -c "import json; d = json.load(open('$work/said')); assert $2, d"
}

# ---- what a quantizer left plain: a checkpoint that was packed in part
make plain plain
to plain part w4a16-ct --include mlp -q || exit 1
left='self_attn|mtp'
line='left plain by its quantizer: 6 (model.layers.*.self_attn.*, mtp.*)'
answers 'codes taken over, the rest as it was' 0 "$line" to part made w4a16-marlin
check 'byte for byte, and listed' same "$work/part" "$work/made" "$left" 6
check 'proved against the source' in_work verify made --against part -q
answers 'decoded and quantized again, the rest as it was' 0 "$line" to part made fp8-dynamic-ct \
    --requantize
check 'byte for byte, and listed' same "$work/part" "$work/made" "$left" 6
answers 'the same format' 0 'part is in the format w4a16-ct already' to part made w4a16-ct
check 'is a copy' in_work diff part made
answers 'the plan says it' 0 "$line" in_work plan part --to w4a16-marlin
answers 'and of each' 0 'left plain by its quantizer' in_work plan part --to w4a16-marlin
answers 'unpack --to' 0 "$line" in_work unpack part -o made --to w4a16-marlin --force
check 'byte for byte, and listed' same "$work/part" "$work/made" "$left" 6
to part made w4a16-marlin --json >"$work/said"
says 'as JSON' "d['left_plain'] == {'weights': 6, 'names': ['model.layers.*.self_attn.*', 'mtp.*']} \
and d['converted'] == 3"
in_work plan part --to w4a16-marlin --json >"$work/said"
says 'of a plan' "d['left_plain']['weights'] == 6"
to part made w4a16-marlin --plain convert --json >"$work/said"
says '--plain convert takes what no list names' "d['converted'] == 3 and d['left_plain']['weights'] == 6"
sed -i 's/"ignore": *\[[^]]*\]/"ignore": ["lm_head"]/' "$work/part/config.json"
tr -d '\n' <"$work/part/config.json" | sed 's/"ignore": *\[[^]]*\]/"ignore": ["mtp"]/' \
    >"$work/config" && cp "$work/config" "$work/part/config.json"
answers 'in no list' 0 "$line" to part made w4a16-marlin
check 'byte for byte, and listed' same "$work/part" "$work/made" "$left" 6
to part made w4a16-marlin --plain convert --json >"$work/said"
says '--plain convert' "d['converted'] == 7 and d['left_plain']['names'] == ['mtp.*']"
check 'proved against the source' in_work verify made --against part -q
to part made w4a16-ct --include 'o_proj|mlp' --json >"$work/said"
says '--include takes what it names' "d['converted'] == 1 and 'left_plain' not in d"
recipe() { # plain or nothing
    echo '{"rules": [{"match": "o_proj", "to": "w8a16-ct"'"$1"'}, {"match": ".", "to": "w4a16-ct"}]}' \
        >"$work/r.json"
    in_work convert part -o made --force --recipe r.json --json >"$work/said"
}
fails 'a rule that takes only such ones' 2 "rule 1 of the recipe, 'o_proj', matches no weight but \
those that the source's quantizer left plain" recipe ''
check 'with the way' grep -q 'hint: "plain": "convert" in the rule' "$work/err"
recipe ', "plain": "convert"'
says 'a rule that converts them' "d['converted'] == 1 and d['left_plain']['weights'] == 5"
fails 'another word' 2 'the value of "plain" is neither "keep" nor "convert"' recipe ', "plain": "x"'
fails 'nothing but such ones' 4 'no weight would be converted' to part no w4a16-marlin --exclude mlp
check 'with the option' grep -q 'plain convert quantizes what was left plain' "$work/err"

# q packed, k and v plain; a layer of two that differ
to plain part w4a16-ct --include q_proj --merged convert -q || exit 1
answers 'of one set' 0 'left plain by its quantizer: 8 (model.layers.*.mlp.*, model.layers.*.self_attn\
.k_proj, model.layers.*.self_attn.o_proj, model.layers.*.self_attn.v_proj, mtp.*)' \
    to part made w4a16-marlin
check 'byte for byte, and listed' same "$work/part" "$work/made" "self_attn.[kvo]|mlp|mtp" 8

# gpt-oss, whose lists may be missing
make oss oss
answers 'gpt-oss' 0 'left plain by its quantizer: 4 (model.layers.*.self_attn.*)' to oss made mxfp4-ct
check 'byte for byte, and listed' same "$work/oss" "$work/made" self_attn 4
for format in fp8-dynamic-ct w4a16-ct gptq; do
    fails "its experts beside a head in $format" 4 "it stays packed as mxfp4-gptoss, and the \
quantization_config of $format has no words for that" to oss no "$format" --include lm_head
    fails "or excluded" 4 'nobody could read it' to oss no "$format" --include . --exclude experts
done
to oss made fp8-marlin --include lm_head >"$work/said" 2>&1
check 'nor does an engine serve them beside what is kernel-ready' sh -c "! grep 'serve it' '$work/said'"

# ---- codes of no form that is read
while read -r dtype shape word others; do
    # shellcheck disable=SC2086 # names
    make odd odd "$dtype" "$shape" "$word" model.thing.table $others
    wanted="tensor 'model.thing.table': $dtype [$(echo "$shape" | tr x ,)] looks like the codes"
    fails "$dtype $shape $word" 4 "$wanted" to odd no fp8-dynamic-ct
    check 'with where to start' grep -q 'start from the model that it was made of' "$work/err"
    fails "unpack: $dtype $shape $word" 4 "$wanted" in_work unpack odd -o no
    check 'nothing is written' test ! -e "$work/no"
    answers 'excluded it passes' 0 '1 weights converted' to odd made fp8-dynamic-ct --exclude table \
        --include q_proj --merged convert
done <<EOF_LIST
U8 64x32 bytes
I8 4x64x32 bytes
I16 64x32 words
U16 64x32 words
I32 64x32 words
U32 2x3x4x5 words
F8_E4M3 64x32 any model.thing.table_scale
F8_E5M2 64x32 any model.thing.table_scale
F8_E8M0 64x32 any
F4 64x32 any
F6_E3M2 64x32 any
EOF_LIST
while read -r name dtype shape word type; do
    make odd odd "$dtype" "$shape" "$word" "$name" "=$type"
    answers "$name of $dtype" 0 '9 weights converted' to odd made fp8-dynamic-ct
    answers 'unpack' 0 'holds no packed weight' in_work unpack odd -o made --force
    [ "$dtype" = I64 ] || [ "$dtype" = BOOL ] || answers 'with a line' 0 'integers that are no codes' \
        in_work plan odd --to fp8-dynamic-ct
done <<EOF_LIST
embeddings.position_ids I64 1x512 indices {}
embeddings.position_ids I32 1x300 indices {"model_type":"bert"}
transformer.h.0.attn.attention.bias U8 1x1x64x64 flags {"model_type":"gpt_neo"}
encoder.layers.0.attention.self.relative_position_index I32 49x49 indices {"model_type":"swin"}
layers.0.ffn.gate.tid2eid I32 1000x6 indices {"model_type":"deepseek_v4"}
layers.0.other.table I32 1000x6 indices {}
layers.0.other.table I64 64x64 words {}
layers.0.other.table BOOL 64x64 flags {}
EOF_LIST
while read -r what dtype word name others; do
    # shellcheck disable=SC2086 # names
    make odd odd "$dtype" 64x32 "$word" "$name" $others
    fails "$what" 4 "'$name': $dtype [64,32] looks like the codes" to odd no fp8-dynamic-ct
done <<EOF_LIST
codes_of_a_book I32 indices m.q.ids m.q.own_codebook
bytes_of_a_book U8 bytes m.q.ids m.q.table
with_a_scale I32 indices m.q.weight m.q.weight_scale
below_its_own_name U8 flags m.q.weight m.q.weight.own_scale
of_a_stack I32 flags m.experts.up_packed m.experts.up_scale
with_zero_points I16 flags m.q.packed m.q.zeros
with_a_shape U8 flags m.q.ids m.q.own_shape
EOF_LIST
make odd odd U8 64x32 flags attn.bias attn.masked_bias attn.k_proj.weight_scale
answers 'what belongs to another module is not beside it' 0 '9 weights converted' \
    to odd made fp8-dynamic-ct

# a model's file may name them
make odd odd I32 64x32 words model.thing.table
sed 's/"model_type": \[[^]]*\]/&, "integers": ["thing.table$"]/' "$TESTS/../models/llama.json" \
    >"$work/llama.json"
answers 'named by a file of the model' 0 '9 weights converted' to odd made fp8-dynamic-ct \
    --model-file llama.json
sed 's/"integers": \[[^]]*\]/"integers": "x"/' "$work/llama.json" >"$work/bad.json"
fails 'which is strict' 3 '"integers"' to odd no fp8-dynamic-ct --model-file bad.json

# ---- excluded, where a description holds for it
described='={"quantization_config":{"quant_method":"odd"}}'
make odd odd U8 64x32 bytes model.thing.table "$described"
fails 'codes with a description' 4 'config.json says "quant_method": "odd"' to odd no fp8-dynamic-ct
check 'no hint to take it out' sh -c "! grep -E 'exclude|take' '$work/err'"
fails 'that would be lost' 4 'excluded it would lose the quantization_config by which it is read' \
    to odd no fp8-dynamic-ct --exclude table --include o_proj
to plain packed w4a16-ct -q || exit 1
rm "$work/packed/model.safetensors.index.json"
PYTHONPATH=$TESTS/lib "$PYTHON" -c '
import stfile, sys
tensors, _ = stfile.load(sys.argv[1])
stfile.save(sys.argv[1], {**tensors, "a.thing": stfile.Tensor("U8", (64, 32), bytes(range(256)) * 8)})
' "$work/packed/model.safetensors" || exit 1
fails 'one code among packed weights' 4 "'a.thing': U8 [64,32] looks like" to packed no w4a16-marlin
fails 'excluded' 4 'would lose the quantization_config' to packed no w4a16-marlin --exclude thing
answers 'in the same format config.json stays as it is' 0 'is in the format w4a16-ct already' \
    to packed made w4a16-ct --exclude thing
check 'and is true of it' cmp "$work/packed/config.json" "$work/made/config.json"
fails 'unpack' 4 "'a.thing': U8 [64,32] looks like" in_work unpack packed -o no
fails 'unpack --to' 4 "'a.thing': U8 [64,32] looks like" in_work unpack packed -o no --to w4a16-marlin

# ---- unpack: all or nothing
rm -rf "$work/part"
to plain part w4a16-ct -q || exit 1
check 'unpack takes the description with the last code' sh -c "cd '$work' && '$TILEPACK' unpack part -o \
made --force -q && ! grep quantization_config made/config.json"
make odd odd I64 64x32 words model.thing.table "$described"
for command in 'unpack odd -o no' 'convert odd -o no --to fp8-dynamic-ct'; do
    # shellcheck disable=SC2086 # words
    fails "$command: a description that no tensor fits" 4 'but no tensors of a quantization that is \
read here were found' in_work $command
    check 'here it may be taken out' grep -q 'if the weights are plain, take "quantization_config" out' \
        "$work/err"
done
answers 'a plain checkpoint' 0 'holds no packed weight: its tensors are copied' \
    in_work unpack plain -o made --force
check "is copied" in_work diff plain made
# A packed convolution is no matrix: unpack makes it plain (see `sources`), and convert leaves it where
# it is told to.
for row in comfy-scaled-conv fp8-cast-conv; do
    "$PYTHON" "$TESTS/bytes/sources.py" --write $row "$work/$row" >/dev/null || exit 1
    file=$(echo "$work/$row"/*.safetensors)
    fails "$row: convert refuses it" 4 "it is a convolution, of which fp8-tensor-ct has none" \
        "$TILEPACK" convert "$file" -o "$work/$row.safetensors" --to fp8-tensor-ct
    answers "$row: --exclude leaves it" 0 "8 weights converted" "$TILEPACK" convert "$file" \
        -o "$work/$row.safetensors" --to fp8-tensor-ct --exclude 'input_blocks|out\.2'
    check "as it was" "$PYTHON" -c '
import sys
sys.path.insert(0, sys.argv[1])
import stfile
a, b = (stfile.load(path)[0] for path in sys.argv[2:])
four = [name for name in a if len(a[name].shape) == 4]
assert four and all((a[n].dtype, a[n].data) == (b[n].dtype, b[n].data) for n in four), four
' "$TESTS/lib" "$file" "$work/$row.safetensors"
done
finish
