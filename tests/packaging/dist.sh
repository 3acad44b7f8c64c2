#!/bin/sh
# The archive of `make dist` holds what it takes to build: unpacked into an empty folder
# it gives the program and the libraries, of the version in its name. Without CUDA, which
# takes long and adds nothing here. The archive is that of the last commit. Its bill of
# materials names what the program that was built links (lib/sbom.py).
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$TESTS/lib/plain_make.sh"
if ! git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
    echo "dist: skipped, this is no checkout of git"
    echo "0 passed, 0 failed"
    exit 0
fi
cd "$root" || exit 1 # the bill of materials asks git

check 'make dist' plain_make -C "$root" BUILD="$work/made" NVCC= dist
archive=$(echo "$work"/made/tilepack-*.tar.gz)
name=$(basename "$archive" .tar.gz)
mkdir "$work/empty"
check 'it unpacks' tar -xzf "$archive" -C "$work/empty"
check 'into one folder of its name' test "$(ls -A "$work/empty")" = "$name"
# Compiled fast, without warnings: what is looked at is whether all is there.
check 'it builds' \
    plain_make -C "$work/empty/$name" BUILD=build NVCC= CFLAGS="-O1 -w" -j"$(nproc)" all
answers 'the program has its version' 0 "tilepack ${name#tilepack-}" \
    "$work/empty/$name/build/tilepack" --version
answers 'and the formats' 0 w4a8-cutlass "$work/empty/$name/build/tilepack" formats

materials=$work/made/$name.spdx.json
check 'the bill of materials is SPDX and names what is linked' "$PYTHON" "$TESTS/lib/sbom.py" \
    "$materials" "$archive" "$work/empty/$name/build/tilepack"
cp "$materials" "$work/first.spdx.json"
check 'make dist again' plain_make -C "$root" BUILD="$work/made" NVCC= dist
check 'gives the same bill of materials' cmp "$materials" "$work/first.spdx.json"
fails 'a library without a row is an error' 1 'no licence is known for -lother' \
    sh "$root/scripts/sbom.sh" "$archive" 1 -lother
finish
