#!/bin/sh
# wheel.sh [BUILD [ARCH]]
#
# Makes the wheel for ARCH, x86_64 or aarch64 (default: this machine's), in BUILD/dist (default:
# build/dist): the Python package with the program and libtilepack inside, which need nothing but
# the C library of a Linux of 2018 or later (manylinux_2_28); and the source distribution. With
# nvcc the CUDA kernels are in it, but not in one for another architecture.
#
# TILEPACK_MAKE holds further words for make, such as NVCC= for a wheel without CUDA.
#
# It takes about 4 processor minutes, and 11 more for the CUDA kernels: half of those is ptxas and
# half the compiler before it, for five chips and the PTX. Kernels that `make` has built in BUILD
# are taken from there.
#
# The compiler is clang as ziglang carries it, which links for any architecture against the
# symbols of an old C library, whatever this machine's is. jansson, PCRE2, zstd, xxHash and nettle
# are linked in statically from the distribution's -dev packages, whose licences go into the
# wheel; those of another architecture are fetched with apt-get into BUILD.
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
arch=${2:-$(uname -m)}
case $build in /*) ;; *) build=$PWD/$build ;; esac
case $arch in
x86_64) debian=amd64 ;;
aarch64) debian=arm64 ;;
*)
    echo "wheel.sh: there are wheels for x86_64 and aarch64, not for '$arch'" >&2
    exit 2
    ;;
esac
case ${TILEPACK_MAKE:-}${MAKEFLAGS:-} in
*NVCC=*) echo "wheel.sh: this takes about 4 processor minutes" ;;
*)
    echo "wheel.sh: this takes about 4 processor minutes, and with nvcc 11 more for the CUDA kernels:"
    echo "wheel.sh: those that 'make' has built in $build are taken, and NVCC= leaves them out"
    ;;
esac
glibc=2.28
python=$(sh scripts/venv.sh "$build" wheel)
work=$build/wheel-libraries-$arch
out=$build/dist
rm -rf "$work"
mkdir -p "$work/licenses" "$out"

# Headers and archives of the libraries, under a folder that is / for this machine's own.
root=
if [ "$arch" != "$(uname -m)" ]; then
    root=$work/root
    mkdir -p "$root" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    : >"$work/apt/status"
    apt() {
        apt-get -q -o APT::Architecture=$debian -o APT::Architectures=$debian \
            -o APT::Sandbox::User=root -o Dir::State="$work/apt" \
            -o Dir::State::status="$work/apt/status" -o Dir::Cache="$work/apt/cache" "$@"
    }
    (cd "$work/apt" && apt update && apt download libjansson-dev libpcre2-dev libzstd-dev \
        libxxhash-dev nettle-dev) >"$work/apt.log" 2>&1 || {
        tail -n 5 "$work/apt.log" >&2
        echo "wheel.sh: apt-get could not fetch the libraries for $arch" >&2
        exit 1
    }
    for package in "$work"/apt/*.deb; do dpkg-deb -x "$package" "$root"; done
    TILEPACK_MAKE="NVCC= ${TILEPACK_MAKE:-}"
fi

ZIG_GLOBAL_CACHE_DIR=$build/zig
ZIG_LOCAL_CACHE_DIR=$build/zig
export ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
# The headers of the libraries only: those of the C library are the compiler's own.
cc="$python -m ziglang cc -target $arch-linux-gnu.$glibc -idirafter $root/usr/include"

archives=
for pair in jansson:libjansson-dev pcre2-8:libpcre2-dev zstd:libzstd-dev xxhash:libxxhash-dev \
    nettle:nettle-dev; do
    archive=$root/usr/lib/$arch-linux-gnu/lib${pair%:*}.a
    if [ ! -f "$archive" ]; then
        echo "wheel.sh: $archive is not there; run: sh scripts/deps.sh build wheel" >&2
        exit 1
    fi
    cp "$archive" "$work/"
    archives="$archives $work/lib${pair%:*}.a"
    cp "$root/usr/share/doc/${pair#*:}/copyright" "$work/licenses/${pair#*:}.txt"
done
# Debian's libjansson.a is not made for shared libraries: json_loadf() compares its argument
# with stdin, by an address that such a library cannot take. Nothing here calls it.
"$arch-linux-gnu-objcopy" --redefine-sym stdin=tilepack_no_stream "$work/libjansson.a"
echo 'void *tilepack_no_stream;' >"$work/no_stream.c"
# shellcheck disable=SC2086 # a command of several words
$cc -fPIC -fvisibility=hidden -c -o "$work/no_stream.o" "$work/no_stream.c"

# The time of the commit stands in the archives: the same commit makes the same wheel.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 315532800)}
TILEPACK_LICENSES=$work/licenses
TILEPACK_BUILD=$build/wheel-$arch
TILEPACK_PLATFORM=linux_$arch
# shellcheck disable=SC2089,SC2090 # quotes for the build hook, which reads words as a shell does
TILEPACK_MAKE="'CC=$cc' 'LIBS=$archives $work/no_stream.o' LDFLAGS=-s 'CUDA_BUILD=$build' ${TILEPACK_MAKE:-}"
# shellcheck disable=SC2090
export SOURCE_DATE_EPOCH TILEPACK_LICENSES TILEPACK_BUILD TILEPACK_PLATFORM TILEPACK_MAKE
rm -f "$out"/*.tar.gz "$out"/*"_$arch.whl"
"$python" -m hatchling build -t sdist -d "$out"
"$python" -m hatchling build -t wheel -d "$work"
PATH=$(dirname "$python"):$PATH
# auditwheel knows --plat of this machine's architecture only, so that the tag is looked at.
"$python" -m auditwheel repair --only-plat -w "$out" "$work"/*.whl
tag=manylinux_$(echo $glibc | tr . _)_$arch
set -- "$out"/*"-$tag.whl"
if [ ! -f "$1" ]; then
    echo "wheel.sh: the wheel in $out is not of $tag" >&2
    exit 1
fi
ls -l "$out"
