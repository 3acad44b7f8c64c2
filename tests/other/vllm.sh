#!/bin/sh
# vLLM 0.33 itself loads packed checkpoints through the plugin, on a machine without a GPU: its own
# configuration, choice of kernels, loader, processing and construction of kernels, under a
# pretended A100, H200, B200 or RTX 5090 (vllm/pretend.py, which emulates the operators of loading
# that need a GPU). Every operand that a kernel gets equals that of stock vLLM with the interchange
# checkpoint, byte for byte; nothing is processed. Not a part of `make test`: the environment
# takes 9 GB in BUILD/venv-vllm, and each start of vLLM half a minute.
#
# Environment: BUILD, TILEPACK; VLLM_PYTHON, a Python that has vLLM 0.33 (made when missing).
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
# shellcheck source=tests/other/vllm/lib.sh
. "$root/tests/other/vllm/lib.sh"

for model in llama mixtral; do
    "$PYTHON" "$root/samples/gen_checkpoint.py" "$work/$model" --preset "tiny-$model" --quiet
    for format in w4a8-ct mxfp8-ct mxfp8-blocked mxfp4-ct mxfp4-blocked fp8-deepseek; do
        convert $model "$model-$format" --to $format
    done
    convert $model $model-w4a8-cutlass --to w4a8-cutlass --set scale=cpu # as torch does it here
    convert $model-fp8-deepseek $model-fp8-deepgemm-sm100 --to fp8-deepgemm-sm100 --requantize
done
# Two names of formats: what stock vLLM takes, and what the plugin takes. Groups of 64, so that
# two ranks have more than one of them in a row.
both() { # model, suffix, stock's format, ours, [options]
    from=$1 both=$1$2 stock=$3 ours=$4 # `convert` has a name of its own
    shift 4
    convert "$from" "$both-$stock" --to "$stock" "$@"
    convert "$from" "$both-$ours" --to "$ours" "$@"
}
both mixtral '' w4a16-ct w4a16-marlin --set group=64
both mixtral '' w8a16-ct w8a16-marlin --set group=128
convert mixtral mixtral-mxfp4-marlin --to mxfp4-marlin
convert mixtral mixtral-mxfp8-marlin --to mxfp8-marlin
convert mixtral mixtral-nvfp4-ct --to nvfp4-ct
convert mixtral-nvfp4-ct mixtral-nvfp4-marlin --to nvfp4-marlin
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/odd" --layers 1 --hidden 320 --inter 192 \
    --heads 4 --kv-heads 2 --head-dim 64 --vocab 512 --moe-experts 4 --moe-style mixtral --quiet
convert odd odd-nvfp4-ct --to nvfp4-ct --include experts
convert odd-nvfp4-ct odd-nvfp4-marlin-64 --to nvfp4-marlin-64
# A model without experts whose sizes are none of the kernel's: each of q, k and v, and gate and up,
# is padded in another way than the matrix that vLLM makes of them.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/narrow" --layers 1 --hidden 320 --inter 192 \
    --heads 4 --kv-heads 2 --head-dim 64 --vocab 512 --quiet
for bits in 4 8; do
    both narrow '' w${bits}a16-ct w${bits}a16-marlin --set group=64
    convert narrow narrow-row-w${bits}a16-ct --to w${bits}a16-ct --set group=channel
    convert narrow narrow-row-w${bits}a16-marlin-channel --to w${bits}a16-marlin-channel
    both narrow '' mxfp$bits-ct mxfp$bits-marlin
done
both narrow '' fp8-dynamic-ct fp8-marlin-channel
# Experts whose intermediate size is padded, of gate and of up each.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/filled" --layers 1 --hidden 256 --inter 160 \
    --heads 4 --kv-heads 2 --head-dim 64 --vocab 512 --moe-experts 4 --moe-style mixtral --quiet
both filled '' w4a16-ct w4a16-marlin --set group=32 --include experts
both filled '' w8a16-ct w8a16-marlin --set group=32 --include experts
both filled '' mxfp8-ct mxfp8-marlin --include experts
both filled '' fp8-dynamic-ct fp8-marlin-channel --include experts
convert filled filled-mxfp8-trtllm --to mxfp8-trtllm --include experts # padded with 127
convert filled filled-nvfp4-ct --to nvfp4-ct --include experts
convert filled-nvfp4-ct filled-nvfp4-marlin --to nvfp4-marlin
# Biases of as many numbers as the model has rows, where the kernel has more.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/slim" --layers 1 --hidden 192 --inter 256 \
    --heads 3 --kv-heads 1 --head-dim 64 --vocab 512 --shard-mb 0.1 --quiet
"$PYTHON" "$here/checkpoints.py" biased "$work/slim"
convert slim slim-mxfp4-marlin --to mxfp4-marlin --exclude o_proj
convert narrow narrow-nvfp4-ct --to nvfp4-ct
convert narrow-nvfp4-ct narrow-nvfp4-marlin-64 --to nvfp4-marlin-64
convert narrow-nvfp4-ct narrow-nvfp4-marlin --to nvfp4-marlin
convert mixtral mixtral-nvfp4-f16 --to nvfp4-marlin --set scales=f16
convert mixtral mixtral-fp8-marlin --to fp8-marlin
convert mixtral mixtral-fp8-dynamic-ct --to fp8-dynamic-ct
convert mixtral mixtral-fp8-marlin-channel --to fp8-marlin-channel
for bits in 4 8; do
    convert llama llama-w${bits}a16-ct --to w${bits}a16-ct --set group=channel
    convert llama llama-w${bits}a16-marlin-channel --to w${bits}a16-marlin-channel
    both llama -groups w${bits}a16-ct w${bits}a16-machete --set group=128
done
convert mixtral mixtral-w8a16-ct-channel --to w8a16-ct --set group=channel
convert mixtral mixtral-w8a16-marlin-channel --to w8a16-marlin-channel
cp -r "$work/llama" "$work/biased"
"$PYTHON" "$here/checkpoints.py" biased "$work/biased"
both biased '' w4a16-ct w4a16-marlin --set group=64
convert biased biased-mxfp8-ct --to mxfp8-ct
convert biased biased-mxfp8-marlin --to mxfp8-marlin
convert biased biased-nvfp4-ct --to nvfp4-ct
convert biased-nvfp4-ct biased-nvfp4-marlin --to nvfp4-marlin
convert biased biased-fp8-dynamic-ct --to fp8-dynamic-ct
convert biased biased-fp8-marlin-channel --to fp8-marlin-channel
# Zero points, which AWQ has, and our own formats take over.
for model in mixtral narrow llama; do
    format=w4a16-marlin group=64
    [ $model != llama ] || { format=w4a16-machete && group=128; }
    convert $model $model-awq --to awq --set zeros=stored --set scales=bf16 --set group=$group
    "$PYTHON" "$here/checkpoints.py" asymmetric "$work/$model-awq"
    convert $model-awq $model-zeros --to $format --set group=$group
done
convert llama-awq llama-zeros-marlin --to w4a16-marlin --set group=128
# Experts in the order of TRTLLM-gen, beside linear layers for the same GPU.
for bits in mxfp8 fp8; do
    linear=mxfp8-blocked
    [ $bits = mxfp8 ] || linear=fp8-deepgemm-sm100
    printf '{"rules": [{"match": "experts", "to": "%s"}, {"match": "_proj", "to": "%s"}]}' \
        $bits-trtllm $linear >"$work/$bits.json"
done
convert mixtral mixtral-mxfp8-trtllm --recipe "$work/mxfp8.json"
convert mixtral-fp8-deepseek mixtral-fp8-trtllm --recipe "$work/fp8.json" --requantize
for format in mxfp4-ct mxfp4-trtllm mxfp4-cutlass-moe; do
    convert mixtral experts-$format --to $format --include experts
done
"$PYTHON" "$here/checkpoints.py" activations "$work/experts-mxfp4-ct"
convert mixtral experts-w4a16-ct --to w4a16-ct --set group=32 --include experts
convert experts-w4a16-ct experts-mxint4-trtllm --to mxint4-trtllm
# Humming's kernels, vLLM's choice for such experts on Hopper; sizes that it pads, and zero points.
both mixtral -hopper w4a16-ct w4a16-humming --set group=64 --include experts
both filled -hopper w4a16-ct w4a16-humming --set group=32 --include experts
convert mixtral mixtral-hopper-w4a8-ct --to w4a8-ct --include experts
convert mixtral mixtral-hopper-w4a8-humming --to w4a8-humming --include experts
convert mixtral mixtral-hopper-awq --to awq --set zeros=stored --set scales=bf16 --set group=64 \
    --include experts
"$PYTHON" "$here/checkpoints.py" asymmetric "$work/mixtral-hopper-awq"
convert mixtral-hopper-awq mixtral-hopper-zeros --to w4a16-humming --set group=64
# NVFP4 with activation scales, without which these kernels do not run.
for model in mixtral odd filled; do
    convert $model $model-calibrated --to nvfp4-ct --include experts
    "$PYTHON" "$here/checkpoints.py" calibrated "$work/$model-calibrated"
    for format in trtllm cutlass-moe vllm-cutlass cutedsl; do
        convert $model-calibrated $model-nvfp4-$format --to nvfp4-$format
    done
done
convert odd uncalibrated --to nvfp4-trtllm --include experts --weights-only
# The same of whole calibrated models, with linear layers in Marlin's order, which takes no such scales.
cp -r "$work/mixtral-nvfp4-ct" "$work/whole-calibrated"
"$PYTHON" "$here/checkpoints.py" calibrated "$work/whole-calibrated"
cp -r "$work/whole-calibrated" "$work/nvidia-calibrated"
"$PYTHON" "$here/checkpoints.py" nvidia "$work/nvidia-calibrated"
for format in trtllm cutlass-moe vllm-cutlass cutedsl; do
    printf '{"rules": [{"match": "experts", "to": "%s"}, {"match": "_proj", "to": "nvfp4-marlin"}]}' \
        nvfp4-$format >"$work/$format.json"
    for model in whole nvidia; do
        convert $model-calibrated $model-nvfp4-$format --recipe "$work/$format.json"
    done
done
# Linear layers with activation scales that no kernel of the output takes: these are left out.
convert llama llama-nvfp4-ct --to nvfp4-ct
convert llama llama-static --to fp8-tensor-ct --set fused=shared
cp -r "$work/llama-nvfp4-ct" "$work/llama-nvfp4"
"$PYTHON" "$here/checkpoints.py" calibrated "$work/llama-nvfp4"
"$PYTHON" "$here/checkpoints.py" calibrated "$work/llama-static"
cp -r "$work/llama-nvfp4" "$work/llama-nvidia"
"$PYTHON" "$here/checkpoints.py" nvidia "$work/llama-nvidia"
convert llama-static llama-static-fp8-dynamic-ct --to fp8-dynamic-ct
for model in llama-nvfp4 llama-nvidia; do
    convert $model $model-marlin --to nvfp4-marlin
    convert $model $model-fp8-dynamic-ct --to fp8-dynamic-ct --requantize
done
for model in llama-nvfp4 llama-nvidia llama-static; do
    convert $model $model-w4a16-ct --to w4a16-ct --requantize
done
# FP8 with one scale for a weight, and one for activations; the second model is padded.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/ragged" --layers 1 --hidden 256 --inter 168 \
    --heads 4 --kv-heads 2 --head-dim 64 --vocab 512 --moe-experts 4 --moe-style mixtral --quiet
for model in mixtral ragged; do
    convert $model $model-static --to fp8-tensor-ct --set fused=shared --include experts
    "$PYTHON" "$here/checkpoints.py" calibrated "$work/$model-static"
    convert $model-static $model-fp8-tensor-trtllm --to fp8-tensor-trtllm
done
convert mixtral dynamic --to fp8-tensor-trtllm --include experts
convert mixtral experts-mxfp8-ct --to mxfp8-ct --include experts
convert mixtral experts-mxfp8-trtllm --to mxfp8-trtllm --include experts
# gpt-oss as published, with sizes that are padded, and with ones that ranks can share.
"$PYTHON" "$here/checkpoints.py" gptoss "$work/oss" 320 192
"$PYTHON" "$here/checkpoints.py" gptoss "$work/even" 256 256
for format in mxfp4-marlin mxfp4-humming mxfp4-triton-hopper mxfp4-flashinfer-sm90 \
    mxfp4-triton-blackwell mxfp4-trtllm mxfp4-cutlass-moe mxfp4-blocked; do
    convert oss oss-$format --to $format
    convert even even-$format --to $format
done
cp -r "$work/llama" "$work/tied"
"$PYTHON" "$here/checkpoints.py" tied "$work/tied"
"$PYTHON" "$here/checkpoints.py" deepseek "$work/deepseek"
convert deepseek deepseek-calibrated --to nvfp4-ct --include '[.]experts'
"$PYTHON" "$here/checkpoints.py" calibrated "$work/deepseek-calibrated"
convert deepseek-calibrated deepseek-nvfp4-trtllm --to nvfp4-trtllm
# One head of keys and values, which two ranks share.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/shared" --layers 1 --hidden 256 --inter 512 \
    --heads 4 --kv-heads 1 --head-dim 128 --vocab 512 --quiet
some='--exclude kv_a_proj' # its 576 rows are not for vLLM's W4A8 kernel
for model in tied deepseek shared; do
    # shellcheck disable=SC2086 # options
    convert $model $model-w4a8-ct --to w4a8-ct $some
    # shellcheck disable=SC2086
    convert $model $model-w4a8-cutlass --to w4a8-cutlass --set scale=cpu $some
done

# What must be refused.
convert llama rank --to w4a8-cutlass
sed -i 's/"request": {/&"tp": {"rank": 0, "ranks": 2}, /' "$work/rank/tilepack.json"
convert llama part --to w4a8-cutlass --exclude k_proj --merged convert
printf '%s\n' '{"rules": [{"match": "k_proj", "to": "mxfp8-blocked"},' \
    '{"match": "_proj", "to": "mxfp4-blocked"}]}' >"$work/mixed.json"
convert llama mixed --recipe "$work/mixed.json" --merged convert
layer=model.layers.1.mlp.down_proj.
damaged() { # name, how, suffix: llama with one tensor otherwise
    cp -r "$work/llama-w4a8-cutlass" "$work/$1"
    "$PYTHON" "$here/checkpoints.py" "$2" "$work/$1" "$layer$3"
}
damaged missing without weight_chan_scale
damaged words flipped weight_layout
damaged rows shorter weight_packed
cp -r "$work/mixtral-nvfp4-marlin" "$work/apart"
"$PYTHON" "$here/checkpoints.py" flipped "$work/apart" \
    model.layers.1.self_attn.k_proj.weight_scale_2
cp -r "$work/odd-nvfp4-trtllm" "$work/unscaled"
"$PYTHON" "$here/checkpoints.py" without "$work/unscaled" \
    model.layers.0.block_sparse_moe.experts.w2_input_scale
cp -r "$work/llama-w4a8-cutlass" "$work/older"
sed -i 's/^ "tilepack": 1,/ "tilepack": 2,/' "$work/older/tilepack.json"
cp -r "$work/llama-w4a8-cutlass" "$work/newer"
sed -i '/"format": "w4a8-cutlass"/,/"version"/ s/"version": 1/"version": 2/' \
    "$work/newer/tilepack.json"
cp -r "$work/llama-w4a8-cutlass" "$work/bare" && rm "$work/bare/tilepack.json"

marlin=linear_backend=marlin,moe_backend=marlin # where vLLM prefers Humming's kernels
weights_only=$marlin,strict=no # vLLM has scales of activations, which it does not read then
load 80 1 i4s="$work/mixtral-w4a16-ct" i4p="$work/mixtral-w4a16-marlin" \
    i8s="$work/mixtral-w8a16-ct" i8p="$work/mixtral-w8a16-marlin" \
    j8s="$work/mixtral-w8a16-ct-channel" j8p="$work/mixtral-w8a16-marlin-channel" \
    m4s="$work/mixtral-mxfp4-ct" m4p="$work/mixtral-mxfp4-marlin" \
    m8s="$work/mixtral-mxfp8-ct" m8p="$work/mixtral-mxfp8-marlin" \
    n4s="$work/mixtral-nvfp4-ct,$weights_only" n4p="$work/mixtral-nvfp4-marlin" \
    o4s="$work/odd-nvfp4-ct,$weights_only" o4p="$work/odd-nvfp4-marlin-64" \
    f8s="$work/mixtral-fp8-deepseek" f8p="$work/mixtral-fp8-marlin" \
    fcs="$work/mixtral-fp8-dynamic-ct,$marlin" fcp="$work/mixtral-fp8-marlin-channel" \
    g4s="$work/llama-w4a16-ct" g4p="$work/llama-w4a16-marlin-channel" \
    g8s="$work/llama-w8a16-ct" g8p="$work/llama-w8a16-marlin-channel" \
    z4s="$work/mixtral-awq" z4p="$work/mixtral-zeros" \
    zls="$work/llama-awq" zlp="$work/llama-zeros-marlin" \
    b4s="$work/biased-w4a16-ct" b4p="$work/biased-w4a16-marlin" \
    b8s="$work/biased-mxfp8-ct" b8p="$work/biased-mxfp8-marlin" \
    bns="$work/biased-nvfp4-ct,$weights_only" bnp="$work/biased-nvfp4-marlin" apart="$work/apart" \
    bfs="$work/biased-fp8-dynamic-ct,$marlin" bfp="$work/biased-fp8-marlin-channel" \
    p4s="$work/narrow-w4a16-ct" p4p="$work/narrow-w4a16-marlin" \
    p8s="$work/narrow-w8a16-ct" p8p="$work/narrow-w8a16-marlin" \
    r4s="$work/narrow-row-w4a16-ct" r4p="$work/narrow-row-w4a16-marlin-channel" \
    r8s="$work/narrow-row-w8a16-ct" r8p="$work/narrow-row-w8a16-marlin-channel" \
    q4s="$work/narrow-mxfp4-ct" q4p="$work/narrow-mxfp4-marlin" \
    q8s="$work/narrow-mxfp8-ct" q8p="$work/narrow-mxfp8-marlin" \
    qfs="$work/narrow-fp8-dynamic-ct,$marlin" qfp="$work/narrow-fp8-marlin-channel" \
    qns="$work/narrow-nvfp4-ct,$weights_only" qnp="$work/narrow-nvfp4-marlin-64" \
    qms="$work/narrow-nvfp4-ct,$weights_only" qmp="$work/narrow-nvfp4-marlin" \
    e4s="$work/filled-w4a16-ct" e4p="$work/filled-w4a16-marlin" \
    e8s="$work/filled-w8a16-ct" e8p="$work/filled-w8a16-marlin" \
    ems="$work/filled-mxfp8-ct" emp="$work/filled-mxfp8-marlin" \
    efs="$work/filled-fp8-dynamic-ct,$marlin" efp="$work/filled-fp8-marlin-channel" \
    ens="$work/filled-nvfp4-ct,$weights_only" enp="$work/filled-nvfp4-marlin" \
    pzs="$work/narrow-awq" pzp="$work/narrow-zeros" \
    gms="$work/oss,moe_backend=marlin" gmp="$work/oss-mxfp4-marlin" \
    lns="$work/llama-nvfp4-ct,$weights_only" lnp="$work/llama-nvfp4-marlin" \
    lms="$work/llama-nvfp4-ct,$weights_only" lmp="$work/llama-nvidia-marlin" \
    ln4="$work/llama-nvfp4-w4a16-ct" lm4="$work/llama-nvidia-w4a16-ct" \
    ls4="$work/llama-static-w4a16-ct" ln8="$work/llama-nvfp4-fp8-dynamic-ct,$marlin" \
    lm8="$work/llama-nvidia-fp8-dynamic-ct,$marlin" ls8="$work/llama-static-fp8-dynamic-ct,$marlin" \
    n16="$work/mixtral-nvfp4-f16" slim="$work/slim-mxfp4-marlin" \
    f16="$work/mixtral-w4a16-marlin,dtype=float16" \
    triton="$work/mixtral-w4a16-marlin,moe_backend=triton" \
    machete="$work/llama-groups-w4a16-machete"
for pair in i4 i8 j8 m4 m8 n4 o4 f8 fc g4 g8 z4 zl gm p4 p8 r4 r8 q4 q8 qf qn qm pz \
    e4 e8 em ef en b4 b8 bn bf ln lm; do
    equal ${pair}s ${pair}p 0
done
for loaded in ln4 lm4 ls4 ln8 lm8 ls8; do
    result $loaded .ok
done
refused f16 'w4a16-marlin is for models in bfloat16, and this one runs in float16; start it with'
refused n16 'nvfp4-marlin is for models in float16, and this one runs in bfloat16; start it with'
refused slim 'a bias of 320 numbers, and Marlin.s has 384, which .* does not pad; convert'
refused apart 'its parts have other numbers in weight_scale_2, and vLLM holds .* one; convert'
refused triton 'w4a16-marlin is for --moe-backend marlin, and vLLM has chosen triton; start it'
refused machete 'for Hopper .*, and this is NVIDIA A100.*; convert'
parallel=enable_expert_parallel=yes
load 80 2 its="$work/mixtral-w4a16-ct" itp="$work/mixtral-w4a16-marlin" \
    ies="$work/mixtral-w4a16-ct,$parallel" iep="$work/mixtral-w4a16-marlin,$parallel" \
    mts="$work/mixtral-mxfp8-ct" mtp="$work/mixtral-mxfp8-marlin" \
    nts="$work/mixtral-nvfp4-ct,$weights_only" ntp="$work/mixtral-nvfp4-marlin" \
    nes="$work/mixtral-nvfp4-ct,$weights_only,$parallel" \
    nep="$work/mixtral-nvfp4-marlin,$parallel" \
    fts="$work/mixtral-fp8-dynamic-ct,$marlin" ftp="$work/mixtral-fp8-marlin-channel" \
    its2="$work/mixtral-w8a16-ct-channel" itp2="$work/mixtral-w8a16-marlin-channel" \
    gts="$work/oss,moe_backend=marlin" gtp="$work/oss-mxfp4-marlin" \
    ges="$work/oss,moe_backend=marlin,$parallel" gep="$work/oss-mxfp4-marlin,$parallel" \
    zts="$work/mixtral-awq" ztp="$work/mixtral-zeros"
for rank in 0 1; do
    equal gts gtp $rank
    equal ges gep $rank
    equal zts ztp $rank
    equal its itp $rank
    equal ies iep $rank
    equal mts mtp $rank
    equal nts ntp $rank
    equal nes nep $rank
    equal fts ftp $rank
    equal its2 itp2 $rank
done

cutlass=moe_backend=flashinfer_cutlass_afp8 trtllm=moe_backend=flashinfer_trtllm_afp8
sm90=moe_backend=flashinfer_cutlass
latent=attention_backend=TRITON_MLA stages=pipeline_parallel_size=2
# Models with experts come first: vLLM makes the groups of ranks for them with the first one.
load 90 1 xs="$work/mixtral-w4a8-ct" xp="$work/mixtral-w4a8-cutlass" \
    vs="$work/deepseek-w4a8-ct,$latent" vp="$work/deepseek-w4a8-cutlass,$latent" \
    ws="$work/llama-w4a8-ct" wp="$work/llama-w4a8-cutlass" \
    is="$work/tied-w4a8-ct" ip="$work/tied-w4a8-cutlass" \
    w4s="$work/llama-groups-w4a16-ct" w4p="$work/llama-groups-w4a16-machete" \
    w8s="$work/llama-groups-w8a16-ct" w8p="$work/llama-groups-w8a16-machete" \
    zms="$work/llama-awq" zmp="$work/llama-zeros" \
    u4s="$work/mixtral-hopper-w4a16-ct" u4p="$work/mixtral-hopper-w4a16-humming" \
    u5s="$work/filled-hopper-w4a16-ct" u5p="$work/filled-hopper-w4a16-humming" \
    uas="$work/mixtral-hopper-w4a8-ct,moe_backend=humming" uap="$work/mixtral-hopper-w4a8-humming" \
    uzs="$work/mixtral-hopper-awq" uzp="$work/mixtral-hopper-zeros" \
    ugs="$work/oss,moe_backend=humming" ugp="$work/oss-mxfp4-humming" \
    hts="$work/oss" htp="$work/oss-mxfp4-triton-hopper" \
    hfs="$work/oss,$sm90" hfp="$work/oss-mxfp4-flashinfer-sm90" \
    sm100="$work/llama-mxfp8-blocked" rank="$work/rank" part="$work/part" \
    missing="$work/missing,strict=no" words="$work/words" rows="$work/rows" older="$work/older" \
    newer="$work/newer" bare="$work/bare"
equal xs xp 0
equal vs vp 0
equal ws wp 0
equal is ip 0
equal w4s w4p 0
equal w8s w8p 0
equal zms zmp 0
for pair in u4 u5 ua uz ug; do
    equal ${pair}s ${pair}p 0
done
equal hts htp 0
equal hfs hfp 0
refused sm100 'for data-centre Blackwell .*, and this is NVIDIA H200; convert'
refused rank 'one rank of .convert --tp.'
refused part 'k_proj is not packed, and vLLM holds .*q_proj, .*k_proj, .*v_proj as one; pack all'
refused missing 'names the tensor .*down_proj.weight_chan_scale, which is missing .* convert the source again'
refused words 'down_proj: weight_layout is .* its codes lie in another layout; convert again'
refused rows 'down_proj.weight_packed has not the dtype and shape its descriptor gives .* convert the source again'
refused older 'manifest of version 2, this plugin reads 1; update'
refused newer 'w4a8-cutlass of version 2, this plugin reads 1; update'
refused bare 'tilepack.json: No such file'
scaled() { # name, model, format of NVFP4, [,OPTION ...]: what stock and the plugin load
    case $3 in
    cutlass-moe) backend=flashinfer_cutlass ;;
    vllm-cutlass) backend=cutlass ;;
    *) backend=flashinfer_$3 ;;
    esac
    echo "s-$1-$3=$work/$2-calibrated,moe_backend=$backend${4:-}" \
        "p-$1-$3=$work/$2-nvfp4-$3${4:-}"
}
one="$(scaled filled filled trtllm) $(scaled filled filled cutedsl)" two='' rtx=''
one="$one $(scaled latent deepseek trtllm ",$latent")"
for format in trtllm cutlass-moe vllm-cutlass cutedsl; do
    one="$one $(scaled one mixtral $format) $(scaled odd odd $format)"
    for model in whole nvidia; do
        one="$one $(scaled $model $model $format ,linear_backend=marlin,strict=no)"
    done
    two="$two $(scaled tensors mixtral $format) $(scaled experts mixtral $format ,$parallel)"
done
for format in cutlass-moe vllm-cutlass; do
    rtx="$rtx $(scaled rtx mixtral $format)"
done
load 100 1 unasked="$work/experts-mxint4-trtllm"
refused unasked 'does not take .* mxint4-trtllm by itself; start it with VLLM_USE_FLASHINFER_MOE_INT4=1'
export VLLM_USE_FLASHINFER_MOE_INT4=1 # until there are two ranks of that
# shellcheck disable=SC2086 # words
load 100 1 $one i32s="$work/experts-w4a16-ct" i32p="$work/experts-mxint4-trtllm" \
    f1s="$work/mixtral-static" f1p="$work/mixtral-fp8-tensor-trtllm" \
    r1s="$work/ragged-static" r1p="$work/ragged-fp8-tensor-trtllm" dynamic="$work/dynamic,strict=no" \
    uncalibrated="$work/uncalibrated" unscaled="$work/unscaled,strict=no" \
    apart160="$work/filled-nvfp4-cutlass-moe" \
    cutlass="$work/mixtral-nvfp4-trtllm,moe_backend=cutlass" \
    x4s="$work/mixtral-mxfp4-ct" x4p="$work/mixtral-mxfp4-blocked" \
    xds="$work/mixtral-fp8-deepseek,moe_backend=deep_gemm" \
    xdp="$work/mixtral-fp8-deepgemm-sm100,moe_backend=deep_gemm" \
    t8s="$work/mixtral-mxfp8-ct" t8p="$work/mixtral-mxfp8-trtllm" \
    tfs="$work/mixtral-fp8-deepseek" tfp="$work/mixtral-fp8-trtllm" \
    t4s="$work/experts-mxfp4-ct" t4p="$work/experts-mxfp4-trtllm" \
    gas="$work/oss" gap="$work/oss-mxfp4-trtllm" \
    gqs="$work/oss,$trtllm" gqp="$work/oss-mxfp4-trtllm,$trtllm" \
    gbs="$work/oss,moe_backend=triton" gbp="$work/oss-mxfp4-triton-blackwell" \
    gcs="$work/even,$cutlass" gcp="$work/even-mxfp4-cutlass-moe" \
    wider="$work/oss-mxfp4-cutlass-moe" turns="$work/even-mxfp4-blocked" \
    u8s="$work/filled-mxfp8-ct" u8p="$work/filled-mxfp8-trtllm" \
    c4s="$work/experts-mxfp4-ct,$cutlass" c4p="$work/experts-mxfp4-cutlass-moe" \
    x8="$work/mixtral-mxfp8-blocked" xd="$work/mixtral-fp8-deepgemm-sm100" \
    8s="$work/llama-mxfp8-ct" 8p="$work/llama-mxfp8-blocked" 4s="$work/llama-mxfp4-ct" \
    4p="$work/llama-mxfp4-blocked" ds="$work/llama-fp8-deepseek" \
    dp="$work/llama-fp8-deepgemm-sm100" sm90="$work/llama-w4a8-cutlass" mixed="$work/mixed"
equal x4s x4p 0
equal xds xdp 0
for pair in t8 u8 tf t4 c4 ga gq gb gc; do
    equal ${pair}s ${pair}p 0
done
equal 8s 8p 0
equal 4s 4p 0
equal ds dp 0
unread=alpha,input_global_scale,input_global_scale_inv # stock keeps them beside Marlin's operands
for format in trtllm cutlass-moe vllm-cutlass cutedsl; do
    equal s-one-$format p-one-$format 0
    equal s-odd-$format p-odd-$format 0
    equal s-whole-$format p-whole-$format 0 "$unread" o_proj,qkv_proj
    equal s-nvidia-$format p-nvidia-$format 0 "$unread" o_proj,qkv_proj
done
equal s-latent-trtllm p-latent-trtllm 0
equal s-filled-trtllm p-filled-trtllm 0
equal s-filled-cutedsl p-filled-cutedsl 0
equal i32s i32p 0
equal f1s f1p 0
equal r1s r1p 0
refused dynamic 'no activation scales, and vLLM.s kernel for fp8-tensor-trtllm .*; convert a cal'
refused uncalibrated 'no activation scales, and vLLM.s kernel for nvfp4-trtllm .*; convert a cal'
refused unscaled 'no activation scales, and vLLM.s kernel for nvfp4-trtllm .*; convert a cal'
refused apart160 'nvfp4-cutlass-moe takes intermediate sizes in multiples of 64, not 160; serve on'
refused cutlass 'nvfp4-trtllm is for --moe-backend flashinfer_trtllm, and vLLM has chosen cutlass;'
refused wider 'w13 is .*, which vLLM rounds up to .*, and mxfp4-cutlass-moe does not; convert'
refused turns 'experts:.*_proj: rows of gate and up are interleaved, .* in mxfp4-blocked; convert'
refused x8 'no kernel of vLLM for experts reads mxfp8-blocked as it lies; convert'
refused xd 'fp8-deepgemm-sm100 is for --moe-backend deep_gemm, .*; start it with --moe-backend'
refused sm90 'for Hopper .*, and this is NVIDIA B200; convert'
refused mixed 'q_proj, .*k_proj, .*v_proj have different formats or parameters, .*; convert'
# shellcheck disable=SC2086 # words
load 100 2 $two j32s="$work/experts-w4a16-ct" j32p="$work/experts-mxint4-trtllm" \
    k32s="$work/experts-w4a16-ct,$parallel" k32p="$work/experts-mxint4-trtllm,$parallel" \
    f2s="$work/mixtral-static" f2p="$work/mixtral-fp8-tensor-trtllm" \
    f3s="$work/mixtral-static,$parallel" f3p="$work/mixtral-fp8-tensor-trtllm,$parallel" \
    halves="$work/odd-nvfp4-trtllm" \
    tts="$work/experts-mxfp8-ct" ttp="$work/experts-mxfp8-trtllm" \
    tes="$work/experts-mxfp8-ct,enable_expert_parallel=yes" \
    tep="$work/experts-mxfp8-trtllm,enable_expert_parallel=yes" \
    ats="$work/even" atp="$work/even-mxfp4-trtllm" \
    aes="$work/even,$parallel" aep="$work/even-mxfp4-trtllm,$parallel" \
    abs="$work/even,moe_backend=triton" abp="$work/even-mxfp4-triton-blackwell"
for rank in 0 1; do
    for format in trtllm cutlass-moe vllm-cutlass cutedsl; do
        equal s-tensors-$format p-tensors-$format $rank
        equal s-experts-$format p-experts-$format $rank
    done
    equal j32s j32p $rank
    equal k32s k32p $rank
    equal f2s f2p $rank
    equal f3s f3p $rank
    equal ats atp $rank
    equal aes aep $rank
    equal abs abp $rank
    equal tts ttp $rank
    equal tes tep $rank
done
unset VLLM_USE_FLASHINFER_MOE_INT4
refused halves 'w13: .* of 192 are not whole tiles of 64; serve on another number of ranks than 2'
# shellcheck disable=SC2086 # words
load 120 1 $rtx sm120="$work/mixtral-nvfp4-trtllm"
equal s-rtx-cutlass-moe p-rtx-cutlass-moe 0
equal s-rtx-vllm-cutlass p-rtx-vllm-cutlass 0
refused sm120 'for data-centre Blackwell .*, and this is NVIDIA GeForce RTX 5090; convert'
# Row-parallel layers of W4A8 have the scales of whole rows: docs/serving.md.
load 90 2 ts="$work/mixtral-w4a8-ct" tp="$work/mixtral-w4a8-cutlass" \
    es="$work/mixtral-w4a8-ct,enable_expert_parallel=yes" \
    ep="$work/mixtral-w4a8-cutlass,enable_expert_parallel=yes" \
    lts="$work/llama-w4a8-ct" ltp="$work/llama-w4a8-cutlass" \
    kvs="$work/shared-w4a8-ct" kvp="$work/shared-w4a8-cutlass" \
    v4s="$work/mixtral-hopper-w4a16-ct" v4p="$work/mixtral-hopper-w4a16-humming" \
    vas="$work/mixtral-hopper-w4a8-ct,moe_backend=humming" vap="$work/mixtral-hopper-w4a8-humming" \
    ots="$work/even" otp="$work/even-mxfp4-triton-hopper" \
    oes="$work/even,$parallel" oep="$work/even-mxfp4-triton-hopper,$parallel" \
    ofs="$work/even,$sm90" ofp="$work/even-mxfp4-flashinfer-sm90"
# Each rank one of the two layers.
load 90 2 ps="$work/mixtral-w4a8-ct,$stages" pp="$work/mixtral-w4a8-cutlass,$stages"
rows=b_group_scales,b_channel_scales
for rank in 0 1; do
    equal ts tp $rank "$rows,w2_scale,g2_alphas" o_proj,experts
    equal es ep $rank "$rows" o_proj
    equal lts ltp $rank "$rows" o_proj,down_proj
    equal kvs kvp $rank "$rows" o_proj,down_proj
    equal ps pp $rank
    equal v4s v4p $rank
    equal vas vap $rank
    equal ots otp $rank
    equal oes oep $rank
    equal ofs ofp $rank
done
compared
finish
