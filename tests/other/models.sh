#!/bin/sh
# The families of models in the readers themselves, on a CPU: small models that transformers makes
# (models/zoo.py) are converted to all 13 interchange formats and unpacked again. transformers computes
# logits of the source, of what was unpacked, and of the output as compressed-tensors reads it; with
# VLLM_PYTHON, vLLM's real loader takes each output, on a CPU that it takes for an H200 (some models for
# an A100 and a B200, too), and every parameter is decoded and compared with the source's; of
# kernel-ready formats every operand is compared with what vLLM makes of the interchange checkpoint.
# vLLM has to load just what `tilepack plan` says that it loads, and `ran` of engines/vllm.json says so
# of families. A dense model and one of experts are also converted by what `tilepack recipe` chooses.
# Not a part of `make test`.
#
# With --writers the other way round: checkpoints of every scheme that llm-compressor, AutoRound and
# ModelOpt write on a CPU (models/writers/) are unpacked to the writer's values, bit for bit, and
# converted without loss, or refused by name.
#
# usage: models.sh [--all | NAME ...]: twenty models of the zoo (DEFAULT), all, or these
#        models.sh --writers [llm_compressor|autoround|nvidia ...]
# Environment: BUILD, TILEPACK; MODELS_PYTHON, a Python that has torch, transformers and
# compressed-tensors (6 GB in BUILD/venv-torch when it is not given); VLLM_PYTHON, one that has
# vLLM 0.33 (`make test-vllm` makes one in BUILD/venv-vllm); KEEP, a folder for all results.
# LLM_COMPRESSOR_PYTHON, MODELOPT_PYTHON: ones that have these (6 GB each in BUILD, when not given).
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
build=${BUILD:-$root/build}
here=$TESTS/other/models
if [ -n "${KEEP:-}" ]; then
    trap - EXIT
    rm -rf "$work"
    mkdir -p "$KEEP" && work=$KEEP
fi
export HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=''
if [ "${1:-}" = --writers ]; then
    shift
    # shellcheck source=tests/other/models/writers/writers.sh
    . "$here/writers/writers.sh"
    writers "$@"
    finish
    exit
fi
MODELS_PYTHON=${MODELS_PYTHON:-$(sh "$root/scripts/venv.sh" "$build" torch)} || exit 1
files=$root/engines/vllm.json
case ${1:-} in
    --all) shift ;;
    '')
        # shellcheck disable=SC2046 # names
        set -- $(PYTHONPATH=$here "$PYTHON" -c 'import zoo; print(*zoo.DEFAULT)')
        files= ;;
    *) files= ;;
esac
"$MODELS_PYTHON" -W ignore "$here/make.py" "$work/zoo" "$@" 2>"$work/make.log" |
    sed -n 's/^@//p' >"$work/made"
[ -d "$work/zoo" ] || { bad 'models of transformers'; tail -n 5 "$work/make.log"; finish; exit; }
"$PYTHON" "$here/convert.py" "$TILEPACK" "$work" >"$work/converted" || exit 1
cat "$work/converted"
failed=$((failed + $(grep -c '^not ok ' "$work/converted")))
judged() { # reader
    "$PYTHON" "$here/judge.py" "$1" "$work" ${files:+"$files"} >"$work/judged.$1"
    grep -v '^ok ' "$work/judged.$1"
    passed=$((passed + $(grep -c '^ok ' "$work/judged.$1")))
    failed=$((failed + $(grep -c '^not ok ' "$work/judged.$1")))
}
"$MODELS_PYTHON" -W ignore "$here/moments.py" "$TILEPACK" "$work" 2>"$work/moments.log" >"$work/moments"
passed=$((passed + $(grep -c '^ok ' "$work/moments")))
[ "$(grep -c '^ok ' "$work/moments")" = 2 ] || { bad samples/moments.py; cat "$work/moments"; }
"$PYTHON" "$here/judge.py" jobs "$work" >"$work/jobs" || exit 1
"$MODELS_PYTHON" -W ignore "$here/logits.py" <"$work/jobs" 2>"$work/transformers.log" |
    sed -n 's/^@//p' >"$work/transformers"
judged transformers
if [ -n "${VLLM_PYTHON:-}" ]; then
    mkdir -p "$work/home" "$work/site/tilepack_llm-0.dist-info"
    # It finds the plug-in by the entry point of an installed distribution.
    printf 'Metadata-Version: 2.1\nName: tilepack-llm\nVersion: 0\n' \
        >"$work/site/tilepack_llm-0.dist-info/METADATA"
    printf '[vllm.general_plugins]\ntilepack = tilepack_llm.vllm:register\n' \
        >"$work/site/tilepack_llm-0.dist-info/entry_points.txt"
    cc -shared -fPIC -O2 -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" \
        "$TESTS/other/vllm/no_driver.c" || exit 1
    HOME=$work/home VLLM_LOGGING_LEVEL=ERROR HUMMING_DISABLE_PARALLEL_BUILD=1 \
        PYTHONPATH="$root/python:$work/site:$TESTS/lib" TILEPACK_PROGRAM="$TILEPACK" \
        TILEPACK_LIBRARY="$build/libtilepack.so" "$VLLM_PYTHON" -W ignore "$here/vllm_load.py" \
        "$work/libcuda.so.1" <"$work/jobs" 2>"$work/vllm.log" | sed -n 's/^@//p' >"$work/vllm"
    judged vllm
fi
finish
