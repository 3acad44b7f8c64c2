#!/bin/sh
# The package that `make deb` makes: what it holds runs, lintian finds nothing, and the same
# source gives the same bytes. apt installs it in a bare system with what it depends on, and takes
# all of it away.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$TESTS/lib/plain_make.sh"
# shellcheck source=tests/lib/bare.sh
. "$TESTS/lib/bare.sh"
if ! command -v dpkg-deb >/dev/null || ! command -v dpkg-shlibdeps >/dev/null; then
    ok "skipped: packages are made with dpkg-dev"
    finish
    exit
fi
make_deb() { plain_make -C "$root" BUILD="$BUILD" -o "$built_config" deb; }

check 'make deb' make_deb
deb=$(find "$BUILD" -maxdepth 1 -name 'tilepack_*.deb')
check 'there is one package' test -f "$deb"
cp "$deb" "$work/first.deb"
check 'make deb again' make_deb
check 'gives the same bytes' cmp "$deb" "$work/first.deb"
check 'it can be taken apart' dpkg-deb -x "$deb" "$work/there"
answers 'its program runs' 0 "$("$TILEPACK" --version)" "$work/there/usr/bin/tilepack" --version
for file in bin/tilepack share/man/man1/tilepack-convert.1.gz share/man/man1/tilepack-plan.1.gz \
    share/bash-completion/completions/tilepack share/zsh/vendor-completions/_tilepack \
    share/doc/tilepack/examples/load_packed.py share/doc/tilepack/copyright; do
    check "it holds $file" test -e "$work/there/usr/$file"
done
check 'nothing of the library' test -z "$(find "$work/there" -name 'libtilepack*')"
answers 'it depends on what is linked' 0 libjansson4 dpkg-deb -f "$deb" Depends
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$deb" >"$work/lintian" 2>&1
    check 'lintian finds nothing' test ! -s "$work/lintian"
    cat "$work/lintian"
else
    echo 'skipped: lintian is not installed'
fi

there=$work/bare
if bare_root "$there"; then
    "$PYTHON" "$root/samples/gen_checkpoint.py" "$there/tiny" --preset tiny-llama --quiet || exit 1
    cp "$deb" "$there/tilepack.deb"
    bare "$there" dpkg --get-selections >"$work/before"
    check 'apt installs it in a bare system' \
        bare "$there" apt-get -q install -y --no-install-recommends /tilepack.deb
    answers 'the program runs there' 0 "$("$TILEPACK" --version)" bare "$there" tilepack --version
    check 'and converts' bare "$there" tilepack convert /tiny -o /made --to w4a8-cutlass --quiet
    check 'and proves it' bare "$there" tilepack verify /made --against /tiny --strict
    "$TILEPACK" convert "$there/tiny" -o "$work/made" --to w4a8-cutlass --quiet
    check 'to the bytes of the program here' diff -r "$work/made" "$there/made"
    check 'apt takes it away' bare "$there" apt-get -q purge -y --autoremove tilepack
    bare "$there" dpkg --get-selections >"$work/after"
    check 'and what came with it' diff "$work/before" "$work/after"
    check 'and leaves nothing' test -z "$(find "$there/usr" -name '*tilepack*')"
fi
finish
