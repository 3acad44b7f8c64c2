#!/bin/sh
# static.sh BUILD VERSION
#
# Makes BUILD/dist/tilepack-VERSION-linux-ARCH.tar.gz of the program of the wheel for this machine
# (`make wheel`), which needs nothing but the C library of a Linux of 2018 or later, with what
# `make install` puts beside it, less the library. Unpacked anywhere, bin/tilepack runs. The same
# source gives the same bytes (SOURCE_DATE_EPOCH, else the commit's time).
set -eu
umask 022
build=$1 name=tilepack-$2-linux-$(uname -m)
set -- "$build"/dist/*_"$(uname -m)".whl
if [ ! -f "$1" ]; then
    echo "static.sh: there is no wheel in $build/dist; run: make wheel" >&2
    exit 1
fi
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheel=$work/wheel/tilepack_llm/native

# What the make that runs this has built is taken as it is.
${MAKE:-make} -s BUILD="$build" -o "$build/config" DESTDIR="$work/" PREFIX="$name" install-program
python3 -m zipfile -e "$1" "$work/wheel"
install -m 755 "$wheel/tilepack" "$work/$name/bin/tilepack"
cp -r "$wheel/licenses" "$work/$name/share/doc/tilepack/"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    -cf - "$name" | gzip -9n >"$build/dist/$name.tar.gz"
echo "$build/dist/$name.tar.gz"
