#!/bin/sh
# What `make install` puts onto a machine, under a DESTDIR and a PREFIX of its own: the
# program runs, the C sample builds with what pkg-config says, with the shared and the
# static library, the manual pages and the completions are where they are looked for.
# `make uninstall` takes away these files and nothing else.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$TESTS/lib/plain_make.sh"
there=$work/machine/opt/tilepack

here() { # arguments of make ...
    plain_make -C "$root" BUILD="$BUILD" -o "$built_config" DESTDIR="$work/machine" \
        PREFIX=/opt/tilepack "$@"
}
files() { (cd "$work/machine" && find . ! -type d | LC_ALL=C sort); }

# Files of others stand in every folder that is used, and stay.
for folder in bin include lib lib/pkgconfig share/man/man1 share/man/man3 share/man/man5 \
    share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d \
    share/tilepack/samples share/doc/tilepack; do
    mkdir -p "$there/$folder"
    echo mine >"$there/$folder/tilepack-other"
done
files >"$work/before"
cp "$BUILD/tilepack.pc" "$work/pc" || exit 1 # of the PREFIX of before, which comes back
check 'make install' here install
cp "$work/pc" "$BUILD/tilepack.pc"
answers 'the installed program runs' 0 "$("$TILEPACK" --version)" "$there/bin/tilepack" --version

PKG_CONFIG_PATH=$there/lib/pkgconfig
PKG_CONFIG_SYSROOT_DIR=$work/machine
LD_LIBRARY_PATH=$there/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR LD_LIBRARY_PATH
answers 'pkg-config knows the version' 0 \
    "$(sed -n 's/^#define TILEPACK_VERSION "\(.*\)"/\1/p' "$there/include/tilepack.h")" \
    pkg-config --modversion tilepack
answers 'pkg-config knows PREFIX' 0 /opt/tilepack pkg-config --variable=prefix tilepack
compile() { # program, options of pkg-config ...: with a -L in front of all others
    out=$work/$1
    shift
    # shellcheck disable=SC2046 # a list of flags
    cc -std=c11 -Wall -Wextra -Werror -L"$work/first" "$root/samples/c_quantize.c" -o "$out" \
        $(pkg-config --cflags --libs "$@" tilepack)
}
check 'c_quantize.c builds with the shared library' compile shared
mkdir "$work/first"
cp "$there/lib/libtilepack.a" "$work/first"
check 'c_quantize.c builds with the static library' compile static --static
libraries() { readelf -d "$work/$1" | grep -c 'NEEDED.*libtilepack'; }
check 'the one needs libtilepack.so' test "$(libraries shared)" -eq 1
check 'the other does not' test -x "$work/static" -a "$(libraries static)" -eq 0
answers 'shared' 0 weight_chan_scale "$work/shared" w4a8-cutlass 32 256
"$work/shared" w4a8-cutlass 32 256 >"$work/a" 2>&1
"$work/static" w4a8-cutlass 32 256 >"$work/b" 2>&1
check 'both print the same' cmp "$work/a" "$work/b"

pages=$(cd "$root" && sh scripts/files.sh 'man/*.[1-9]') || bad 'there are no manual pages'
for page in $pages; do
    name=${page#man/}
    check "$name is installed" cmp "$root/$page" "$there/share/man/man${name##*.}/$name"
    if man -w ls >/dev/null 2>&1 || man -w man >/dev/null 2>&1; then
        check "man finds $name" man -M "$there/share/man" -w "${name##*.}" "${name%.*}"
    fi
done
for shell in bash-completion/completions/tilepack zsh/site-functions/_tilepack \
    fish/vendor_completions.d/tilepack.fish; do
    check "share/$shell" test -s "$there/share/$shell"
done

check 'the page of plan is that of convert' grep -q 'tilepack-convert' \
    "$there/share/man/man1/tilepack-plan.1"
for file in LICENSE README.md CHANGELOG.md; do
    check "$file is installed" cmp "$root/$file" "$there/share/doc/tilepack/$file"
done
for file in samples/load_packed.py samples/Containerfile samples/kubernetes/convert.yaml \
    samples/slurm/convert.sbatch samples/recipes/searched-scales.json; do
    check "$file is installed" cmp "$root/$file" "$there/share/tilepack/$file"
done

check 'make uninstall' here uninstall
files >"$work/after"
check 'nothing is left, and nothing else is gone' diff "$work/before" "$work/after"
finish
