#!/bin/sh
# What config.json says to readers of what is packed, and what stays plain for their sake: heads and
# embeddings by name, groups by expressions, sets that readers merge all or none, experts, the keys
# of GPTQ, heads and towers of models that nobody knows, and where transformers stops.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"

cat >"$work/make.py" <<'EOF_PY'
# make.py DIR MODEL_TYPE NAME=ROWSxCOLUMNS ...: normal values in BF16. A name ends in .weight.
import json, os, sys
sys.path.insert(1, os.environ["TESTS_LIB"])
import numpy as np
import stfile
dice, tensors = np.random.default_rng(39), {}
for word in sys.argv[3:]:
    name, size = word.split("=")
    shape = [int(n) for n in size.split("x")]
    tensors[name + ".weight"] = stfile.from_f32(
        "BF16", dice.standard_normal(shape, dtype=np.float32) * np.float32(0.02))
os.makedirs(sys.argv[1])
stfile.save(sys.argv[1] + "/model.safetensors", tensors)
with open(sys.argv[1] + "/config.json", "w", encoding="utf-8") as f:
    json.dump({"model_type": sys.argv[2], "hidden_size": 256}, f)
EOF_PY
export TESTS_LIB="$TESTS/lib"
make() { # name, model_type, weights ...
    made=$1
    shift
    "$PYTHON" "$work/make.py" "$work/$made" "$@" || exit 1
}
to() { # source, output, options ...
    source=$1 out=$2
    shift 2
    rm -rf "${work:?}/$out"
    in_work convert "$source" -o "$out" --device cpu -q "$@" >"$work/said" 2>&1 ||
        { bad "$source to $out"; cat "$work/said"; }
}
says() { # name, output, filter of its quantization_config that has to be true
    check "$1" jq -e ".quantization_config | $3" "$work/$2/config.json"
}
attention=model.layers.0.self_attn
layer="$attention.q_proj=256x256 $attention.k_proj=128x256 $attention.v_proj=128x256
    $attention.o_proj=256x256 model.layers.0.mlp.gate_proj=512x256
    model.layers.0.mlp.up_proj=512x256 model.layers.0.mlp.down_proj=256x512"
# shellcheck disable=SC2086 # words
make llama llama $layer model.embed_tokens=512x256 lm_head=512x256

# A head is no "Linear" to readers, and embeddings may have no name.
to llama head --to w4a16-ct --include 'proj|lm_head|embed'
says 'a packed head and embeddings are named' head '.config_groups.group_0.targets ==
    ["Linear", "model.embed_tokens", "Embedding", "lm_head", "re:.*[.]lm_head$"] and .ignore == []'
for format in gptq awq; do
    to llama $format --to $format --include 'proj|lm_head|embed'
    says "$format says that the head is packed" $format '.lm_head == true'
    check "and no reader takes packed embeddings in $format" sh -c "
        '$TILEPACK' plan '$work/llama' --to $format --include 'proj|lm_head|embed' |
            grep -q 'model.embed_tokens.* a table of embeddings, which no reader takes in $format'"
    to llama $format --to $format
    says "a plain head is none of $format" $format '.lm_head != true'
done
says 'every kept matrix is listed' awq '.modules_to_not_convert == ["model.embed_tokens", "lm_head"]'

says 'GPTQ by the names of readers' gptq \
    '.modules_in_block_to_quantize[0] | .[0] == "." and contains(["q_proj", "down_proj"])'
to llama gptq-part --to gptq --exclude down_proj
says 'but where a matrix is kept that they would take' gptq-part \
    'has("modules_in_block_to_quantize") | not'

# Sets that readers load as one matrix.
kept='engines load it and model.layers.0.self_attn.q_proj as one matrix, and that is kept (excluded)'
answers 'what is left of a set stays plain' 0 "$kept" in_work plan llama --to w4a16-ct \
    --exclude q_proj
to llama part --to w4a16-ct --exclude q_proj
says 'and is listed, as what readers make of it is' part '.ignore |
    contains(["model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj",
              "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.qkv_proj"])'
check 'it is proved' in_work verify part --against llama -q
to llama whole --to w4a16-ct --exclude q_proj --merged convert
says '--merged convert wins' whole '.ignore | index("model.layers.0.self_attn.k_proj") == null'
fails '--strict' 4 "$kept" in_work plan llama --to w4a16-ct --exclude q_proj --strict
rules() { printf '{"rules": [%s]}\n' "$1" >"$work/rules.json"; }
rules '{"match": "q_proj", "to": "w8a16-ct"}, {"match": "_proj", "to": "w4a16-ct"}'
fails 'two formats in a set' 4 "it would be w4a16-ct, and model.layers.0.self_attn.q_proj w8a16-ct" \
    in_work plan llama --recipe rules.json
check 'with a way out' grep -q 'hint: .*--merged convert' "$work/err"
to llama mixed --recipe rules.json --merged convert
# Keys that serve as values: there is no v_proj, and readers ask for one.
make shared gemma4_text model.layers.0.self_attn.q_proj=256x256 \
    model.layers.0.self_attn.k_proj=128x256 model.layers.0.self_attn.o_proj=256x256
to shared shared-kept --to w4a16-ct --exclude 'q_proj|k_proj'
says 'the missing part is listed with the others' shared-kept \
    '.ignore | index("model.layers.0.self_attn.v_proj")'
to shared shared-packed --to w4a16-ct
says 'and not where they are packed' shared-packed '.ignore == ["lm_head"]'

# Groups of a recipe, over many experts and layers, and what expressions must not take in.
words=
for l in 0 1 2; do
    for e in 0 1 2 3; do
        for part in w1 w2 w3; do
            words="$words model.layers.$l.block_sparse_moe.experts.$e.$part=128x128"
        done
    done
    for part in q k v o; do words="$words model.layers.$l.self_attn.${part}_proj=128x128"; done
    words="$words vision_tower.encoder.layers.$l.self_attn.q_proj=128x128"
    words="$words model.layers.$l.shared_experts.up_proj=128x128"
done
# shellcheck disable=SC2086 # words
make moe mixtral $words lm_head=128x128
rules '{"match": "vision", "to": "fp8-dynamic-ct"}, {"match": "layers.2.*[.]experts", "to": "nvfp4-ct"},
    {"match": "[.]experts", "to": "mxfp4-ct"}, {"match": "_proj|lm_head", "to": "w4a16-ct"}'
to moe groups --recipe rules.json --merged convert
cat >"$work/matched.py" <<'EOF_PY'
# matched.py DIR: each packed module matches targets of its group alone, as readers look for them.
import json, re, sys
with open(sys.argv[1] + "/config.json", encoding="utf-8") as f:
    config = json.load(f)["quantization_config"]
groups = config["config_groups"].values()
kinds = {"nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4", "pack-quantized": "w4a16",
         "float-quantized": "fp8"}


def expected(name):
    if "vision" in name:
        return "fp8"
    if ".experts." in name:
        return "nvfp4" if ".layers.2." in name else "mxfp4"
    return "w4a16"


def matches(name, target):
    return re.match(target[3:], name) is not None if target.startswith("re:") else name == target


names = [f"model.layers.{l}.block_sparse_moe.experts.{e}.{p}"
         for l in range(3) for e in range(4) for p in ("w1", "w2", "w3")]
names += [f"model.layers.{l}.self_attn.{p}_proj" for l in range(3) for p in "qkvo"]
names += [f"vision_tower.encoder.layers.{l}.self_attn.q_proj" for l in range(3)]
names += [f"model.layers.{l}.shared_experts.up_proj" for l in range(3)] + ["lm_head"]
for name in names:
    found = {kinds[g["format"]] for g in groups if any(matches(name, t) for t in g["targets"])}
    assert found == {expected(name)}, (name, found)
# As vLLM calls some of them.
for name, kind in (("language_model.lm_head", "w4a16"),
                   ("language_model.model.layers.1.mlp.experts.0.w1", "mxfp4"),
                   ("model.layers.2.mlp.experts.0.gate_proj", "nvfp4")):
    found = {kinds[g["format"]] for g in groups if any(matches(name, t) for t in g["targets"])}
    assert found == {kind}, (name, found)
experts = [t for g in groups for t in g["targets"] if "experts" in t and "shared" not in t]
assert len(experts) <= 3 and all(t.startswith("re:") for t in experts), experts
EOF_PY
# transformers takes the first group for experts; and readers call shared experts otherwise than the file.
words=
for e in 0 1 2 3; do words="$words model.layers.1.mlp.experts.$e.up_proj=128x128"; done
# shellcheck disable=SC2086 # words
make shared-first hy_v3 model.layers.0.mlp.up_proj=128x128 $words \
    model.layers.1.mlp.shared_mlp.up_proj=128x128
rules '{"match": "[.]experts", "to": "mxfp4-ct"}, {"match": "_proj", "to": "w4a16-ct"}'
to shared-first shared-first-out --recipe rules.json
says 'the group of experts is the first' shared-first-out \
    '.config_groups.group_0 | .format == "mxfp4-pack-quantized" and (.targets | length) == 1'
says 'a group has the names that readers give its layers, too' shared-first-out \
    '.config_groups.group_1.targets | length == 3 and
     (map(select(contains("shared_mlp"))) | length) == 1 and
     (map(select(contains("shared_experts"))) | length) == 1'
check 'each group has its own, and no expert a name' "$PYTHON" "$work/matched.py" "$work/groups"
words=
for l in $(seq 0 59); do
    for e in 0 1 2; do
        words="$words model.layers.$l.mlp.experts.$e.up_proj=32x32"
        words="$words model.layers.$l.mlp.experts.$e.gate_proj=32x32"
        words="$words model.layers.$l.mlp.experts.$e.down_proj=32x32"
    done
    words="$words model.layers.$l.self_attn.o_proj=32x32"
done
# shellcheck disable=SC2086 # words
make deep mixtral $words
rules '{"match": "experts", "to": "mxfp4-ct"}, {"match": "o_proj", "to": "mxfp8-ct"}'
to deep deep-out --recipe rules.json
says '60 layers of experts are two expressions' deep-out '[.config_groups[].targets[]] | length == 2'

# Experts as readers take them.
# shellcheck disable=SC2086 # words
make experts mixtral $layer \
    model.layers.0.mlp.experts.0.gate_proj=128x256 model.layers.0.mlp.experts.0.up_proj=128x256 \
    model.layers.0.mlp.experts.0.down_proj=256x128 model.layers.0.mlp.experts.1.gate_proj=128x256 \
    model.layers.0.mlp.experts.1.up_proj=128x256 model.layers.0.mlp.experts.1.down_proj=256x128
to experts tensor --to fp8-tensor-ct
says 'activations of experts have one scale, as their weights' tensor '[.config_groups[] |
    select(.targets | any(contains("experts"))) | .input_activations | .strategy, .dynamic] ==
    ["tensor", true]'
says 'those of linear layers one a token' tensor '[.config_groups[] |
    select(.targets | any(contains("experts")) | not) | .input_activations.strategy] == ["token"]'
to experts rows --to w8a16-ct
says 'experts have groups' rows '[.config_groups[] |
    select(.targets | any(contains("experts"))) | .weights.group_size] == [128]'
says 'linear layers one scale to a row' rows '[.config_groups[] |
    select(.targets | any(contains("experts")) | not) | .weights.strategy] == ["channel"]'
check 'it is proved by what was recorded' in_work verify rows --against experts -q
to experts asked --to w8a16-ct --set group=channel
says 'what is asked for counts' asked '[.config_groups[].weights.strategy] == ["channel"]'

# Activation scales of all experts of a layer, or of none.
to experts nvfp4 --to nvfp4-ct
cat >"$work/modelopt.py" <<'EOF_PY'
# modelopt.py DIR: the same as ModelOpt has it, calibrated but for one matrix of one expert.
import glob, json, os, sys
sys.path.insert(1, os.environ["TESTS_LIB"])
import numpy as np
import stfile
path, = glob.glob(sys.argv[1] + "/*.safetensors")
made = {}
for name, tensor in stfile.load(path)[0].items():
    base, end = name.rsplit(".", 1)
    if end == "weight_packed":
        made[base + ".weight"] = tensor
        if base != "model.layers.0.mlp.experts.1.down_proj":
            made[base + ".input_scale"] = stfile.tensor("F32", np.array(0.5, np.float32))
    elif end == "weight_global_scale":
        made[base + ".weight_scale_2"] = stfile.tensor("F32", np.float32(1) / tensor.f32()[0])
    else:
        made[name] = tensor
stfile.save(path, made)
for name in glob.glob(sys.argv[1] + "/*.json"):
    os.remove(name)
with open(sys.argv[1] + "/config.json", "w", encoding="utf-8") as f:
    json.dump({"model_type": "mixtral", "quantization_config": {
        "quant_method": "modelopt", "quant_algo": "NVFP4"}}, f)
EOF_PY
check 'a source of ModelOpt' "$PYTHON" "$work/modelopt.py" "$work/nvfp4"
fails 'an expert without its scale' 4 \
    "tensor 'model.layers.0.mlp.experts.1.down_proj': it has no activation scale, and" \
    in_work plan nvfp4 --to nvfp4-ct
check 'with a way out' grep -q 'hint: --weights-only leaves them all out' "$work/err"
to nvfp4 without --to nvfp4-ct --weights-only
says 'which leaves activations as they are' without '[.config_groups[].input_activations] == [null]'

# GPTQ: a key that leaves a module of MTP out would leave all of MTP out.
make mtp qwen3_5_moe mtp.layers.0.mlp.gate=4x256 mtp.layers.0.mlp.shared_expert.up_proj=256x256 \
    model.language_model.layers.0.mlp.gate=4x256 model.language_model.layers.0.self_attn.o_proj=256x256
to mtp mtp-gptq --to gptq
says 'no key holds the word' mtp-gptq '.dynamic | keys | all(contains("mtp") | not)'
check 'and it is left out all the same' "$PYTHON" -c '
import json, re, sys
keys = json.load(open(sys.argv[1]))["quantization_config"]["dynamic"]
left = [n for n in ("mtp.layers.0.mlp.gate", "mtp.layers.0.mlp.shared_expert.up_proj")
        if any(re.match(k[2:], n) for k in keys)]
sys.exit(left != ["mtp.layers.0.mlp.gate"])' "$work/mtp-gptq/config.json"

# Heads of any model, and projectors, towers and the like of one that nobody knows.
plain() { # model_type, module, reason
    rm -rf "$work/odd"
    make odd "$1" model.layers.0.self_attn.o_proj=256x256 "$2=256x256"
    to odd odd-out --to fp8-dynamic-ct
    says "$1: $2 is listed" odd-out ".ignore | index(\"$2\")"
    answers "$1: $2 stays plain" 0 "$3" in_work plan odd --to fp8-dynamic-ct
}
head='head that is built plain'
for module in score score.0 classifier.dense classifier.out_proj qa_outputs token_classifier \
    v_head.summary regression_layer medusa_heads.0.1 codec_head audio_heads.0; do
    plain qwen3 $module "$head"
done
plain llama output 'output head'
plain nobody model.hyper_connection_mixer.fn 'hyper-connection'
plain nobody model.layers.0.mlp.gate.wg 'router'
for module in multi_modal_projector.linear_1 model.embed_vision.embedding_projection mlp1.1; do
    plain nobody $module 'projector, which readers may build plain'
done
for module in vision_tower.patch_embedder.input_proj audio_tower.layers.0.fc1; do
    plain nobody $module 'tower of images or sound, which readers may build plain'
done
make known qwen2_vl visual.blocks.0.mlp.fc1=256x256 model.layers.0.self_attn.o_proj=256x256
check 'a tower of a known model is converted' sh -c "
    '$TILEPACK' plan '$work/known' --to fp8-dynamic-ct --json |
        jq -e '[.units[].name] | index(\"visual.blocks.0.mlp.fc1\")'"

# Activations of MXFP4.
answers 'what a reader makes of them is said' 0 'rounds activations to FP4' \
    in_work plan llama --to mxfp4-ct
check 'not where it is chosen' sh -c "
    '$TILEPACK' plan '$work/llama' --to mxfp4-ct --set activations=16 2>&1 | grep -c FP4 | grep -qx 0"
to llama w4a8 --to mxfp4-ct --set activations=8
says '8 bits are one object' w4a8 '.config_groups.group_0.input_activations ==
    {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true, "dynamic": true}'
to llama w4a4 --to mxfp4-ct
for name in w4a8 w4a4; do in_work unpack $name -o plain-$name -q; done
check 'the weights are the same' cmp "$work/plain-w4a8/model.safetensors" \
    "$work/plain-w4a4/model.safetensors"

# The two matrices of DeepSeek that are loaded as one, whose rows the kernel counts together.
make latent deepseek_v3 $attention.q_a_proj=1536x256 $attention.kv_a_proj_with_mqa=576x256 \
    $attention.o_proj=256x256
answers 'rows of both together' 0 'its W4A8 kernel takes rows in multiples of 128' \
    in_work plan latent --to w4a8-cutlass
make even deepseek_v3 $attention.q_a_proj=1472x256 $attention.kv_a_proj_with_mqa=576x256
check 'which are enough here' sh -c "'$TILEPACK' plan '$work/even' --to w4a8-cutlass --json |
    jq -e '.units | length == 2'"

# Zero points that become products are rounded, and that is said.
make zeros llama $attention.o_proj=256x256
to zeros zeros-awq --to awq --set zeros=stored
"$PYTHON" - "$work/zeros-awq" <<'EOF_PY' || exit 1
import glob, os, sys
sys.path.insert(1, os.environ["TESTS_LIB"])
import numpy as np
import stfile
path, = glob.glob(sys.argv[1] + "/*.safetensors")
tensors = stfile.load(path)[0]
name, = (n for n in tensors if n.endswith("qzeros"))
tensors[name] = stfile.tensor("I32", np.full(tensors[name].shape, 0x56565656, np.int32))
stfile.save(path, tensors)
os.remove(sys.argv[1] + "/tilepack.json")
EOF_PY
answers "machete's rounding" 0 'codes taken over, scales rounded: 1 weight, root mean square error' \
    in_work convert zeros-awq -o zeros-machete --to w4a16-machete --device cpu

# transformers would fill a model with random values: it stops at the name of a file that is none.
to llama packed --to w4a8-cutlass
check 'the file that transformers asks for is none' jq -e '.transformers_weights |
    contains("import tilepack_llm.transformers") and (endswith(".safetensors") | not)' \
    "$work/packed/config.json"
check 'verify bears that' in_work verify packed --against llama -q --strict
to packed stock --to w4a8-ct
in_work unpack packed -o back -q
for name in stock back; do
    check "$name has no such key" jq -e 'has("transformers_weights") | not' \
        "$work/$name/config.json"
done
check 'what is unpacked has the config of the source' cmp "$work/back/config.json" \
    "$work/llama/config.json"

# A copy of what a tool has left in the middle of its work.
to llama copied --to fp8-dynamic-ct
sed -i 's/"quantization_status": "compressed"/"quantization_status": "frozen"/' \
    "$work/copied/config.json"
rm "$work/copied/tilepack.json"
to copied again --to fp8-dynamic-ct
says 'is packed' again '.quantization_status == "compressed"'
check 'and nothing else of it changes' sh -c "sed 's/\"frozen\"/\"compressed\"/' \
    '$work/copied/config.json' | cmp - '$work/again/config.json'"
finish
