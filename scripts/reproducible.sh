#!/bin/sh
# Builds the committed source twice, under different names of the build folder, and
# compares the program, the libraries, the source archive and its bill of materials byte for byte. Without nvcc
# the two stand in folders of different names and depths, too; nvcc gives its compiler the
# absolute path of every source, which shows in the code, so that with it both are built at
# the same path. Needs git and room in TMPDIR (or /tmp).
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
mv "$work/a/build" "$work/first"
second=$work/deeper/b
if grep -q '| [^ ]' "$work/first/config"; then # made with an nvcc
    rm -rf "$work/a"
    second=$work/a
fi
build "$second" out
for file in "$work"/first/tilepack "$work"/first/libtilepack.a "$work"/first/libtilepack.so \
    "$work"/first/tilepack-*.tar.gz "$work"/first/tilepack-*.spdx.json; do
    name=${file##*/}
    if cmp "$file" "$second/out/$name"; then
        echo "same $name $(sha256sum <"$file" | cut -c1-16)"
    else
        status=1
    fi
done
exit "$status"
