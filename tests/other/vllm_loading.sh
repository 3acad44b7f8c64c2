#!/bin/sh
# How vLLM 0.33 itself loads packed checkpoints through the plugin, on a machine without a GPU as in
# vllm.sh: models whose layers it names, merges or divides in ways of its own give the operands of
# stock vLLM, or are refused before a byte is read; a server that slept, at level 2 with its weights
# loaded anew, has those of the first time, at the same addresses; a rank reads its part of packed
# weights once, and makes nothing larger than its buffer, which has a layer's size here; dummy
# weights; what the log says. Not a part of `make test`.
#
# Environment: BUILD, TILEPACK; VLLM_PYTHON, a Python that has vLLM 0.33 (made when missing).
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
# shellcheck source=tests/other/vllm/lib.sh
. "$root/tests/other/vllm/lib.sh"

# Models as transformers saves them. What Marlin has plain, layers of four rows, is so in both.
"$VLLM_PYTHON" "$here/families.py" "$work" minimax_m2 granitemoehybrid laguna stablelm gptj bert \
    whisper minicpm3 glm4v qwen3_5 falcon_h1 falcon falcon_one falcon_old llama4 llama4_images \
    2>"$work/err" || bad 'families.py'
moved='falcon falcon_one falcon_old llama4 llama4_images' # rows, by vLLM and by convert
families="minimax_m2 granitemoehybrid laguna stablelm gptj bert whisper minicpm3 glm4v qwen3_5 $moved"
four=''
for model in $families; do
    convert "$model" "$model-ct" --to w4a16-ct --set group=64 --exclude 'g_proj|in_proj_[ab][.]'
    convert "$model" "$model-p" --to w4a16-marlin --set group=64
    four="$four s-$model=$work/$model-ct,strict=no p-$model=$work/$model-p,strict=no"
done
convert falcon_h1 falcon_h1-p --to w4a16-marlin --set group=64
for model in falcon llama4; do
    convert $model $model-8 --to mxfp8-ct
    convert $model $model-8p --to mxfp8-marlin
    cp -r "$work/$model-8p" "$work/$model-flip"
    "$TILEPACK" models $model --json | jq '.models[0] | del(.rows)' >"$work/$model.json"
    convert $model $model-file --to w4a16-marlin --model-file "$work/$model.json"
done
"$PYTHON" "$here/checkpoints.py" flipped "$work/falcon-flip" \
    transformer.h.1.self_attention.query_key_value.weight
"$PYTHON" "$here/checkpoints.py" flipped "$work/llama4-flip" \
    model.layers.1.self_attn.k_proj.weight

for model in llama mixtral; do
    "$PYTHON" "$root/samples/gen_checkpoint.py" "$work/$model" --preset "tiny-$model" --quiet
    convert $model $model-w4a8-ct --to w4a8-ct
    convert $model $model-w4a8 --to w4a8-cutlass --set scale=cpu # as torch does it here
done
convert mixtral mixtral-gpu --to w4a8-cutlass
convert mixtral mixtral-awq --to awq --set zeros=stored --set scales=bf16 --set group=64
"$PYTHON" "$here/checkpoints.py" asymmetric "$work/mixtral-awq"
convert mixtral-awq mixtral-zeros --to w4a16-marlin --set group=64
"$PYTHON" "$here/checkpoints.py" gptoss "$work/oss" 320 192
convert oss oss-triton --to mxfp4-triton-hopper
convert mixtral mixtral-calibrated --to nvfp4-ct --include experts
"$PYTHON" "$here/checkpoints.py" calibrated "$work/mixtral-calibrated"
convert mixtral-calibrated mixtral-trtllm --to nvfp4-trtllm
convert mixtral mixtral-w4a16 --to w4a16-marlin --set group=64
for model in llama mixtral; do
    convert $model $model-fp8 --to fp8-deepseek
    convert $model-fp8 $model-deepgemm --to fp8-deepgemm-sm100 --requantize
done
# A weight under a name that no layer of vLLM has.
cp -r "$work/llama-w4a8" "$work/astray"
sed -i 's/model[.]layers[.]1[.]mlp[.]down_proj/model.layers.1.mlp.down_other/' \
    "$work/astray/tilepack.json"

marlin=linear_backend=marlin,moe_backend=marlin,strict=no # which vLLM does not prefer everywhere
# Models with experts come first: vLLM makes the groups of ranks for them with the first one.
# shellcheck disable=SC2086 # words
load 80 1 zs="$work/mixtral-awq" zr="$work/mixtral-zeros,sleep=22,counted=yes" $four \
    falcon_h1="$work/falcon_h1-p,strict=no" \
    f8s="$work/falcon-8,$marlin" f8p="$work/falcon-8p" l8s="$work/llama4-8,$marlin" l8p="$work/llama4-8p" \
    f8f="$work/falcon-flip" l8f="$work/llama4-flip" \
    falcon_file="$work/falcon-file" llama4_file="$work/llama4-file"
equal zs zr 0
equal f8s f8p 0
equal l8s l8p 0
for model in f l; do # one byte is found
    "$VLLM_PYTHON" "$here/compare.py" "flip:$work/${model}8p.0.pt:$work/${model}8f.0.pt::" >"$work/flip"
    check "$model: a flipped byte" grep -q '^not ok .* 1 differences' "$work/flip"
done
refused falcon_file 'query_key_value: vLLM takes its rows in another order .*; convert the model again'
refused llama4_file '[qk]_proj: vLLM takes its rows in another order .*; convert the model again'
for model in $families; do
    plain=''
    [ "$model" != minicpm3 ] || plain=q_a_proj,kv_a_proj_with_mqa # stock cannot load it so
    equal "s-$model" "p-$model" 0 '' $plain
done
refused falcon_h1 'vLLM does not load it packed: it numbers the layers of this model .*; convert'

load 80 2 ls="$work/llama4-8,$marlin" lp="$work/llama4-8p" fs="$work/falcon-8,$marlin" \
    fp="$work/falcon-8p" ks="$work/falcon_one-ct" kp="$work/falcon_one-p" # one head of k and v
for rank in 0 1; do
    equal ls lp $rank
    equal fs fp $rank
    equal ks kp $rank
done

dummy=load_format=dummy,strict=no
export VLLM_LOGGING_LEVEL=INFO
load 90 1 xs="$work/mixtral-w4a8-ct" xr="$work/mixtral-w4a8,sleep=1222,counted=yes" gpu="$work/mixtral-gpu" \
    xh="$work/mixtral-w4a8,handed=yes,sleep=2" wh="$work/llama-w4a8,handed=yes,sleep=2" \
    ws="$work/llama-w4a8-ct" wr="$work/llama-w4a8,sleep=212,counted=yes" \
    os="$work/oss" or="$work/oss-triton,sleep=22,counted=yes" \
    dense="$work/llama-w4a8,$dummy" moe="$work/mixtral-w4a8,$dummy" astray="$work/astray"
export VLLM_LOGGING_LEVEL=WARNING
equal xs xr 0
equal xs xh 0
equal ws wr 0
equal ws wh 0
equal os or 0
result dense '.ok and .moved == 0'
result moe '.ok and .moved == 0'
refused astray 'mlp.down_other: it is packed, and vLLM builds no layer for it: .*; convert'
said() { # how many times, pattern
    found=$(grep -c "tilepack: $2" "$work/said")
    if [ "$found" -eq "$1" ]; then ok "the log: $2"; else bad "the log: $found times: $2"; fi
}
said 5 'linear layers: w4a8-cutlass by CutlassW4A8LinearKernel (8)$' # wr and wh have it each time
said 7 'experts: w4a8-cutlass by CutlassExpertsW4A8Fp8 (2)$'
said 1 'with enforce_eager, or custom_ops all, stock vLLM rounds .*--set scale=div'
said 15 '[0-9.]* GB copied into parameters in [0-9.]* s, [0-9.]* GB/s, nothing is processed$'

deep=moe_backend=deep_gemm
load 100 1 ns="$work/mixtral-calibrated,moe_backend=flashinfer_trtllm" \
    nr="$work/mixtral-trtllm,sleep=22,counted=yes" \
    bs="$work/mixtral-fp8,$deep" br="$work/mixtral-deepgemm,$deep,sleep=22,counted=yes" \
    ds="$work/llama-fp8" dr="$work/llama-deepgemm,sleep=212,counted=yes"
equal ns nr 0
equal bs br 0
equal ds dr 0
for one in zr xr wr nr br dr; do
    result $one '.ok and .read == .packed and .looked_at == .plain and .temporary <= .layer'
done
# Columns of scales that are padding are not read.
result or '.ok and .packed - .read == 16384 and .looked_at == .plain and .temporary <= .layer'

# Of two ranks each has its own part: of tiles that lie apart in the file, too.
marlin=moe_backend=marlin,linear_backend=marlin,counted=yes
parallel=enable_expert_parallel=yes
load 90 2 t8="$work/mixtral-w4a8,counted=yes" l8="$work/llama-w4a8,counted=yes,sleep=2" \
    t4="$work/mixtral-w4a16,$marlin" e8="$work/mixtral-w4a8,$parallel,counted=yes,sleep=2"
for one in t8 l8 t4 e8; do
    result $one '.moved == 0 and .read == .held and .read < 0.6 * .packed'
    result $one '.ok and .looked_at <= .plain and .temporary <= .layer'
done
compared
finish
