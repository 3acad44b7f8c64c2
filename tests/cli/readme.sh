#!/bin/sh
# README's examples, table of GPUs and picture are those of the program, and its demo runs from an empty
# folder: with a `make` that puts the program there, and without a network.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")

check "examples, table of GPUs and picture" "$PYTHON" "$TESTS/cli/readme.py"

mkdir "$work/bin" "$work/empty"
cat >"$work/bin/make" <<'EOF_MAKE'
#!/bin/sh
for word; do case $word in BUILD=*) build=${word#*=} ;; esac; done
exec cp "$TILEPACK" "$build/tilepack"
EOF_MAKE
chmod +x "$work/bin/make"
ln -s "$(cd "$(dirname "$PYTHON")/.." && pwd)" "$work/empty/venv"
answers 'the demo runs from an empty folder' 0 '3 formats, all equal to their source' \
    env -u NVCC -u PIP_FIND_LINKS PIP_NO_INDEX=1 PATH="$work/bin:$PATH" sh "$root/scripts/demo.sh" \
    "$work/empty"
page=$work/empty/demo/index.html
check 'and makes a page with a row for each' test "$(grep -c '^<tr><td><code>' "$page")" = 3
check 'whose links lead somewhere' sh -c "
    cd '$work/empty/demo' && sed -n 's/.*href=\"\\([^\"]*\\)\".*/\\1/p' index.html | xargs ls >/dev/null"
finish
