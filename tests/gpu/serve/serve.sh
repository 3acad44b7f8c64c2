#!/bin/sh
# `make test-serve`: vLLM on a real GPU with packed checkpoints. Packs the pieces for a machine without
# network into BUILD/serve, and runs them where a GPU is here; otherwise says how to run them there.
#
#     serve.sh [GROUP...]       of plan.py; all without
#
# Environment: BUILD, TILEPACK; VLLM_PYTHON, an environment with vLLM 0.33 (`make test-vllm` makes
# BUILD/venv-vllm); MIB (64), the room of a folder of pieces.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
build=${BUILD:-$root/build}
python=${VLLM_PYTHON:-$build/venv-vllm/bin/python}
export BUILD="$build" TILEPACK="${TILEPACK:-$build/tilepack}"

[ -x "$python" ] || {
    echo "no environment with vLLM 0.33 at $python: run \`make test-vllm\`, or set VLLM_PYTHON" >&2
    exit 2
}
for tool in zstd readelf ldd strip; do
    command -v $tool >/dev/null || { echo "$tool is missing" >&2; exit 2; }
done
if nvidia-smi -L >/dev/null 2>&1; then
    export WORK="$build/serve" PYTHON="$python"
    "$python" "$here/pieces.py" --here "$WORK" || exit 1
    exec sh "$here/on_gpu.sh" run "$build/serve/out" "$@"
fi
"$python" "$here/pieces.py" "$build/serve" "${MIB:-64}" || exit 1
cat <<END
There is no GPU here. On the machine that has one, with torch 2.11, triton and transformers:
    for each folder N of $build/serve in turn:  sh N/on_gpu.sh unpack N
    then:  sh 1/on_gpu.sh run OUT [GROUP...]
END
