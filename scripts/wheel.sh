#!/bin/sh
# wheel.sh [BUILD]
#
# Makes the wheel of this machine's architecture in BUILD/dist (default: build/dist): the
# Python package with the program and libtilepack inside, which need nothing but the C library
# of a Linux of 2018 or later (manylinux_2_28), and the source distribution. With nvcc the CUDA
# kernels are in it.
#
# TILEPACK_MAKE holds further words for make, such as NVCC= for a wheel without CUDA.
#
# The compiler is clang as ziglang carries it, which links against the symbols of an old C
# library whatever this machine's is. jansson, PCRE2, zstd, xxHash and nettle are linked in
# statically from the distribution's -dev packages, whose licences go into the wheel.
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
glibc=2.28
machine=$(uname -m)
python=$(sh scripts/venv.sh "$build" wheel)
work=$build/wheel-libraries
out=$build/dist
rm -rf "$work" "$out"
mkdir -p "$work/licenses" "$out"

ZIG_GLOBAL_CACHE_DIR=$build/zig
ZIG_LOCAL_CACHE_DIR=$build/zig
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
# The headers of the libraries only: those of the C library are the compiler's own.
cc="$python -m ziglang cc -target $machine-linux-gnu.$glibc -idirafter /usr/include"

archives=
for name in jansson pcre2-8 zstd xxhash nettle; do
    archive=$(cc -print-file-name="lib$name.a")
    if [ ! -f "$archive" ]; then
        echo "wheel.sh: lib$name.a is not there; run: sh scripts/deps.sh build" >&2
        exit 1
    fi
    cp "$archive" "$work/"
    archives="$archives $work/lib$name.a"
    package=$(dpkg -S "$(realpath "$archive")" | sed 's/:.*//')
    cp "/usr/share/doc/$package/copyright" "$work/licenses/$package.txt"
done
# Debian's libjansson.a is not made for shared libraries: json_loadf() compares its argument
# with stdin, by an address that such a library cannot take. Nothing here calls it.
objcopy --redefine-sym stdin=tilepack_no_stream "$work/libjansson.a"
echo 'void *tilepack_no_stream;' >"$work/no_stream.c"
# shellcheck disable=SC2086 # a command of several words
$cc -fPIC -fvisibility=hidden -c -o "$work/no_stream.o" "$work/no_stream.c"

# The time of the commit stands in the archives: the same commit makes the same wheel.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
TILEPACK_LICENSES=$work/licenses
TILEPACK_BUILD=$build/wheel
# shellcheck disable=SC2089,SC2090 # quotes for the build hook, which reads words as a shell does
TILEPACK_MAKE="'CC=$cc' 'LIBS=$archives $work/no_stream.o' LDFLAGS=-s ${TILEPACK_MAKE:-}"
# shellcheck disable=SC2090
export SOURCE_DATE_EPOCH TILEPACK_LICENSES TILEPACK_BUILD TILEPACK_MAKE
"$python" -m hatchling build -t sdist -d "$out"
"$python" -m hatchling build -t wheel -d "$work"
PATH=$(dirname "$python"):$PATH
"$python" -m auditwheel repair --plat "manylinux_$(echo $glibc | tr . _)_$machine" --only-plat \
    -w "$out" "$work"/*.whl
ls -l "$out"
