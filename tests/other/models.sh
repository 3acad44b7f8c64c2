#!/bin/sh
# The families of models in the readers themselves, on a CPU: small models that transformers makes
# (models/zoo.py) are converted to six interchange formats and unpacked again. transformers computes
# logits of the source, of what was unpacked, and of the output as compressed-tensors reads it; with
# VLLM_PYTHON, vLLM's real loader takes each output, strictly, and every parameter is decoded and
# compared with the source's. What a reader is known to refuse stands in models/zoo.py, and what it
# loads in `ran` of models/*.json: both must be so. A dense model and one of experts are also converted
# by what `tilepack recipe` chooses. Not a part of `make test`.
#
# With --writers the other way round: checkpoints of every scheme that llm-compressor, AutoRound and
# ModelOpt write on a CPU (models/writers/) are unpacked to the writer's values, bit for bit, and
# converted without loss, or refused by name.
#
# usage: models.sh [NAME ...]: all models of the zoo, or these
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
FORMATS='w4a8-ct fp8-deepseek fp8-ct mxfp8-ct mxfp4-ct nvfp4-ct'

RECIPES='llama mixtral' # of two formats at 6 bits

kept=$(PYTHONPATH=$here "$PYTHON" -c 'import zoo; print(*zoo.KEPT)')
refuses() { # model, format
    "$TILEPACK" convert "$work/zoo/$1" -o "$work/out/$1/$2" --to "$2" 2>"$work/err"
    if [ $? = 4 ] && grep -q 'no weight would be converted' "$work/err"; then
        ok "$1 to $2: nothing is converted"
    else
        bad "$1 to $2: converted, or refused for another reason"
        cat "$work/err"
    fi
}
recipe() { # model
    if ! "$TILEPACK" recipe "$work/zoo/$1" --bits 6 --formats mxfp4-ct,mxfp8-ct --engine vllm \
        -o "$work/$1.json" --json 2>"$work/err" >"$work/chosen" ||
        ! "$TILEPACK" convert "$work/zoo/$1" -o "$work/out/$1/recipe" --recipe "$work/$1.json" --quiet \
            --force 2>"$work/err" ||
        ! "$TILEPACK" unpack "$work/out/$1/recipe" -o "$work/back/$1/recipe" --quiet --force 2>"$work/err"; then
        bad "$1 by a recipe"
        cat "$work/err"
    elif jq -e 'all(.formats[]; .sets > 0)' "$work/chosen" >"$work/err"; then
        ok "$1 by a recipe of both formats"
    else
        bad "$1: the recipe has one format alone"
    fi
}
files=$root/engines/vllm.json
[ $# -eq 0 ] || files=
"$MODELS_PYTHON" -W ignore "$here/make.py" "$work/zoo" "$@" 2>"$work/make.log" |
    sed -n 's/^@//p' >"$work/made"
[ -d "$work/zoo" ] || { bad 'models of transformers'; tail -n 5 "$work/make.log"; finish; exit; }
for model in "$work"/zoo/*/; do
    name=$(basename "$model")
    mkdir -p "$work/out/$name" "$work/back/$name"
    for to in $FORMATS; do
        case " $kept " in *" $name "*)
            refuses "$name" "$to"
            continue ;;
        esac
        "$TILEPACK" convert "$model" -o "$work/out/$name/$to" --to "$to" --quiet --force \
            2>"$work/err" || { bad "$name to $to"; cat "$work/err"; continue; }
        "$TILEPACK" unpack "$work/out/$name/$to" -o "$work/back/$name/$to" --quiet --force \
            2>"$work/err" || { bad "$name from $to"; cat "$work/err"; }
    done
    case " $RECIPES " in *" $name "*)
        recipe "$name" ;;
    esac
    "$TILEPACK" plan "$model" --to mxfp8-ct --json 2>"$work/err" |
        jq -c --arg name "$name" '{name: $name, file: .model.files[0],
            experts: any(.units[].name; contains(".experts."))}' >>"$work/families"
done
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
    mkdir -p "$work/home"
    cc -shared -fPIC -O2 -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" \
        "$TESTS/other/vllm/no_driver.c" || exit 1
    HOME=$work/home VLLM_LOGGING_LEVEL=ERROR "$VLLM_PYTHON" -W ignore "$here/vllm_load.py" \
        "$work/libcuda.so.1" 90 <"$work/jobs" 2>"$work/vllm.log" | sed -n 's/^@//p' >"$work/vllm"
    judged vllm
fi
finish
