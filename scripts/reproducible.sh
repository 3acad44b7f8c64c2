#!/bin/sh
# Builds the committed source twice, in folders of different names and depths, and
# compares the program, the libraries and the source archive byte for byte. What is built
# is what make builds here: with nvcc the CUDA kernels, too. Needs git and an absolute
# path of enough room in TMPDIR (or /tmp).
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
build() { # folder, BUILD
    git clone -q . "$1"
    make -C "$1" BUILD="$2" -j"$(nproc)" all dist >"$work/log" 2>&1 || {
        tail -n 20 "$work/log" >&2
        exit 1
    }
}
build "$work/a" build
build "$work/deeper/b" out
for file in "$work"/a/build/tilepack "$work"/a/build/libtilepack.a \
    "$work"/a/build/libtilepack.so "$work"/a/build/tilepack-*.tar.gz; do
    name=${file##*/}
    if cmp "$file" "$work/deeper/b/out/$name"; then
        echo "same $name $(sha256sum <"$file" | cut -c1-16)"
    else
        status=1
    fi
done
exit "$status"
