#!/bin/sh
# The Python package of python/ in this checkout, with the program and the library of $BUILD
# (bytes/python_api.py, bytes/python_words.py), and the parts of its plugin for vLLM that need no vLLM
# (bytes/python_vllm.py).
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
build=${BUILD:-$root/build}
case $build in
*/asan) # Python cannot load a library with the sanitizers
    echo "0 passed, 0 failed"
    exit 0
    ;;
esac
export PYTHONPATH="$root/python" TILEPACK_LIBRARY="$build/libtilepack.so" \
    TILEPACK_PROGRAM="$TILEPACK"
for program in python_api python_words python_vllm; do
    "$PYTHON" "$TESTS/bytes/$program.py" >"$work/log" 2>&1
    line=$(tail -n 1 "$work/log")
    good=$(echo "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
    failures=$(echo "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
    [ "${failures:-1}" -eq 0 ] || grep -v '^ok ' "$work/log"
    passed=$((passed + ${good:-0}))
    failed=$((failed + ${failures:-1}))
done
check 'python -m tilepack_llm is the program' test \
    "$("$PYTHON" -m tilepack_llm --version)" = "$("$TILEPACK" --version)"
"$PYTHON" -m tilepack_llm convert nothing -o "$work/x" --to w4a8-ct >/dev/null 2>&1
check 'with its exit status' test $? -eq 5
finish
