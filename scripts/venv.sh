#!/bin/sh
# venv.sh [--print] [BUILD]
#
# Makes the Python environment of the tests under BUILD/venv (default: build)
# with exact versions of numpy, ml_dtypes and safetensors, once; prints the path
# of its interpreter. Later calls with the same pins only print. --print makes
# nothing: status 1 where there is no such environment. Nothing outside BUILD is
# touched.
set -eu

make=1
if [ "${1:-}" = --print ]; then
    make=0
    shift
fi
build=${1:-build}
PYTHON=${PYTHON:-python3}
venv=$build/venv
pins='numpy==2.2.6;python_version<"3.11"
numpy==2.3.5;python_version>="3.11"
ml_dtypes==0.5.4
safetensors==0.7.0'

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
    -r "$venv/requirements.txt" >"$venv/pip.log" 2>&1; then
    tail -n 5 "$venv/pip.log" >&2
    {
        echo "venv.sh: pip could not install the Python packages of the tests:"
        echo "$pins" | sed 's/^/    /'
        echo "venv.sh: it needs its package index; without a network put the wheels into a"
        echo "venv.sh: folder and set PIP_NO_INDEX=1 PIP_FIND_LINKS=that-folder"
    } >&2
    exit 1
fi
printf '%s\n' "$pins" >"$venv/pins"
echo "$venv/bin/python"
