#!/bin/sh
# run.sh TEST_CUDA TILEPACK [LOG_DIRECTORY]
#
# What needs a GPU: every CUDA row against the reference (TEST_CUDA is
# tests/gpu/test_cuda.c built with CUDA), the same under compute-sanitizer, every
# golden file, every search of scales and random shapes through --device cuda, what verify
# says with --device cuda, boxes cut in awkward places, one against several GPUs, and the
# original libraries on the same GPU where they are installed. Python needs numpy,
# ml_dtypes and safetensors.
# Ends with `N passed, N failed`. TILEPACK_GPU_ONLY names the checks to run (all);
# TILEPACK_GPU_CASES: random cases of each format; TILEPACK_SANITIZER_CASES: rounds of each
# operation under each sanitizer; TILEPACK_TEST_SECONDS: of random shapes.
set -u
cd "$(dirname "$0")/../.." || exit 1
test_cuda=$1
TILEPACK=$(realpath "$2")
logs=${3:-$(mktemp -d)}
PYTHON=${PYTHON:-python3}
export TILEPACK
TILEPACK_DEVICE=cuda
export TILEPACK_DEVICE
passed=0
failed=0

check() { # name, command ...
    name=$1
    shift
    case " ${TILEPACK_GPU_ONLY:-$name} " in *" $name "*) ;; *) return ;; esac
    start=$(date +%s)
    if "$@" >"$logs/$name.log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok   %s, %s s: %s\n' "$name" "$(($(date +%s) - start))" \
            "$(tail -n 1 "$logs/$name.log" | cut -c1-100)"
    else
        failed=$((failed + 1))
        printf 'FAIL %s (exit %s)\n' "$name" "$?"
        tail -n 15 "$logs/$name.log"
    fi
}

same_bytes() { # options of both runs ... -- the second run's own
    work=$(mktemp -d)
    "$PYTHON" samples/gen_checkpoint.py "$work/in" --preset tiny-mixtral || return 1
    status=0
    for format in w4a16-ct gptq awq w8a16-ct int8-ct fp8-tensor-ct fp8-deepgemm-sm90 w4a16-marlin \
        w4a8-ct w4a8-cutlass fp8-deepseek fp8-ct fp8-dynamic-ct \
        fp8-deepgemm-sm100 fp8-1x128 \
        mxfp8-ct mxfp8-blocked mxfp8-torchao3d mxfp4-ct mxfp4-blocked nvfp4-ct nvfp4-blocked; do
        "$TILEPACK" convert "$work/in" -o "$work/cpu" --to "$format" --device cpu -q --force &&
            "$TILEPACK" convert "$work/in" -o "$work/gpu" --to "$format" -q --force "$@" &&
            diff -r "$work/cpu" "$work/gpu" || status=1
        rm -rf "$work/cpu" "$work/gpu"
    done
    rm -rf "$work"
    return $status
}

searched_bytes() { # every search and none, groups of other sizes: the GPU's files are the CPU's
    work=$(mktemp -d)
    "$PYTHON" samples/gen_checkpoint.py "$work/in" --preset tiny-mixtral || return 1
    status=0
    while read -r line; do
        # shellcheck disable=SC2086  # options of one line
        set -- $line
        "$TILEPACK" convert "$work/in" -o "$work/cpu" --device cpu -q --force --to "$@" &&
            "$TILEPACK" convert "$work/in" -o "$work/gpu" --device cuda -q --force --to "$@" &&
            diff -r "$work/cpu" "$work/gpu" || status=1
        rm -rf "$work/cpu" "$work/gpu"
    done <<EOF
w4a8-ct --search mse
w4a8-ct --search mse --importance none
w4a8-ct --search mse --signed
w4a8-ct --search w4a8
w4a8-ct --search w4a8 --signed --importance none
w4a8-cutlass --search mse
w4a8-cutlass --search mse --signed
nvfp4-ct --search mse
nvfp4-ct --search mse --importance magnitude
nvfp4-blocked --search mse
mxfp4-ct --search mse
mxfp4-blocked --search mse --importance magnitude
w4a16-ct --search mse --set group=64
w4a16-ct --set group=64
w4a16-ct --set group=32
w4a16-ct --set group=channel
w4a16-ct --search none --set group=64
w4a16-ct --search none --set group=32
w4a16-ct --search none --set group=channel
w4a8-ct --search none
w4a8-cutlass --search none
w4a16-marlin --search none
gptq --search none
awq --search none
nvfp4-ct --search none
nvfp4-blocked --search none
EOF
    rm -rf "$work"
    return $status
}

verified() { # checkpoint, source: what verify says on the GPU and on the CPU
    for device in cpu cuda; do
        "$TILEPACK" verify "$1" --against "$2" --json -v --device $device 2>"$work/err" |
            sed 's/"seconds": *[0-9.e-]*/"seconds": 0/' >"$work/$device.json"
    done
    if grep -q '"ok": true' "$work/cpu.json" && grep -q 'device: 1 GPU, as asked' "$work/err" &&
        cmp "$work/cpu.json" "$work/cuda.json"; then
        echo "$(basename "$1"): the same"
    else
        echo "$(basename "$1"): verify says other things on the GPU"
        status=1
    fi
}

verify_equals_cpu() { # weights of several boxes, plain and packed sources, restored ones
    work=$(mktemp -d)
    status=0
    "$PYTHON" samples/gen_checkpoint.py "$work/in" --layers 1 --hidden 1024 --inter 4096 --heads 8 \
        --vocab 512 --quiet || return 1
    while read -r made from line; do
        # shellcheck disable=SC2086  # options of one line
        "$TILEPACK" convert "$work/$from" -o "$work/$made" --device cpu -q $line || status=1
        verified "$work/$made" "$work/$from"
    done <<EOF
ct in --to w4a8-ct
cutlass ct --to w4a8-cutlass
searched in --to w4a8-cutlass --search mse
unsearched in --to w4a8-cutlass --search none
nvfp4 in --to nvfp4-ct
nvfp4-searched in --to nvfp4-blocked --search mse --importance magnitude
deepseek in --to fp8-deepseek
rows in --to fp8-dynamic-ct
mxfp8 in --to mxfp8-ct
again mxfp8 --to mxfp8-blocked
requantized mxfp8 --to mxfp4-ct --requantize
marlin in --to w4a16-marlin
gptq in --to gptq
EOF
    "$TILEPACK" unpack "$work/nvfp4" -o "$work/plain" -q || status=1
    verified "$work/plain" "$work/nvfp4"
    rm -rf "$work"
    return $status
}

check rows "$test_cuda" --cases 20 --per-format "${TILEPACK_GPU_CASES:-10000}" --threads "$(nproc)"
library=$(dirname "$test_cuda")/test_library_cuda # tilepack.h on device pointers
[ -x "$library" ] && check library "$library"
device=$(dirname "$test_cuda")/test_device # slots; fails an allocation on purpose
[ -x "$device" ] && check device "$device"
gemm=$(dirname "$test_cuda")/test_gemm # the FP8 GEMM of the plug-in, exactly
[ -x "$gemm" ] && check gemm "$gemm"
for tool in memcheck racecheck synccheck; do
    [ -x "$gemm" ] && check "gemm_$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$gemm"
done
for tool in memcheck racecheck initcheck synccheck; do
    check "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$test_cuda" \
        --threads "$(nproc)" --cases "${TILEPACK_SANITIZER_CASES:-30}"
done
check golden "$PYTHON" tests/bytes/golden.py
check inputs "$PYTHON" tests/bytes/inputs.py
check random "$PYTHON" tests/bytes/random_shapes.py --seconds "${TILEPACK_TEST_SECONDS:-60}"
check search "$PYTHON" tests/bytes/search.py
check originals "$PYTHON" tests/gpu/originals.py # torch, torchao, compressed-tensors
check humming "$PYTHON" tests/gpu/humming_originals.py --random 40 # Humming's functions and kernels
check consumers "$PYTHON" tests/gpu/consumers.py "$TILEPACK" # vLLM's kernels, DeepGEMM, torch
check gemm_numbers "$PYTHON" tests/gpu/gemm.py numbers # torch; DeepGEMM where it is installed
check load "$PYTHON" tests/gpu/load.py "$TILEPACK" # torch
check device_equals_cpu same_bytes --device cuda
check search_equals_cpu searched_bytes
check verify_equals_cpu verify_equals_cpu
check small_slots same_bytes --device cuda --gpu-memory 16MiB
if [ "$(nvidia-smi -L | wc -l)" -gt 1 ]; then
    check several_gpus same_bytes --device cuda:all
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
