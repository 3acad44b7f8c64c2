#!/bin/sh
# The wheel of `make wheel`, without CUDA, which takes long and adds nothing here: its tag is
# true, it carries the licences of what it bundles, and installed from files alone into an empty
# environment it converts, as a command and from Python, to the bytes of the program of the
# checkout. The source distribution builds, too, with all that is embedded. The archive that `make
# static` makes of the wheel's program runs in a bare system.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$TESTS/lib/plain_make.sh"
# shellcheck source=tests/lib/bare.sh
. "$TESTS/lib/bare.sh"
# What the tests of a checkout set would be found in place of what is installed.
unset TILEPACK_PROGRAM TILEPACK_LIBRARY PYTHONPATH
TILEPACK_MAKE=NVCC=
export TILEPACK_MAKE

check 'make wheel' env -u MAKEFLAGS -u MAKELEVEL PYTHON=python3 sh "$root/scripts/wheel.sh" "$BUILD"
wheel=$(echo "$BUILD"/dist/*_"$(uname -m)".whl)
version=$("$TILEPACK" --version | cut -d' ' -f2)
case $(basename "$wheel") in
"tilepack_llm-$version-py3-none-manylinux_2_28_$(uname -m).whl") ok 'its name' ;;
*) bad "its name: $wheel" ;;
esac
tools=$BUILD/venv-wheel/bin/python
answers 'auditwheel finds the tag true' 0 'consistent' "$tools" -m auditwheel show "$wheel"
check 'nothing of this machine is linked but the C library' "$tools" - "$wheel" <<'PYTHON'
import io, sys, zipfile
from elftools.elf.elffile import ELFFile
known = {"libc.so.6", "libm.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2",
         "ld-linux-aarch64.so.1", "libdl.so.2", "librt.so.1"}
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in ("tilepack", "libtilepack.so"):
        elf = ELFFile(io.BytesIO(wheel.read(f"tilepack_llm/native/{name}")))
        tags = elf.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        needed = {tag.needed for tag in tags}
        assert needed and needed <= known, needed
    licenses = [n for n in wheel.namelist() if "/licenses/" in n and not n.endswith("/")]
    assert len(licenses) == 6, licenses
PYTHON

python3 -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
check 'it installs' pip install --only-binary :all: "$wheel"
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/src" --preset tiny-llama --quiet
"$TILEPACK" convert "$work/src" -o "$work/expected" --to w4a8-cutlass --quiet
check 'tilepack converts' env PATH="$work/venv/bin:/usr/bin:/bin" \
    tilepack convert "$work/src" -o "$work/made" --to w4a8-cutlass --quiet
check 'to the same bytes' diff -r "$work/expected" "$work/made"
cd "$work" || exit 1
check 'and from Python' "$work/venv/bin/python" - <<'PYTHON'
import tilepack_llm as tp
assert tp.__version__ == tp.library_version(), (tp.__version__, tp.library_version())
tp.convert("src", "again", to="w4a8-cutlass")
assert tp.verify("again", against="src").ok
assert tp.open("again").weights["model.layers.0.self_attn.q_proj"].operands()["b"].shape == (32, 256)
PYTHON
check 'to the same bytes as well' diff -r "$work/expected" "$work/again"
"$work/venv/bin/tilepack" convert none -o x --to w4a8-ct >/dev/null 2>&1
check 'the command has the exit status of the program' test $? -eq 5

# The lines that convert prints, and cards and config.json hold, with a pip that fetches nothing.
mkdir -p "$work/checkout/build" "$work/first"
ln -s "$BUILD/dist" "$work/checkout/build/dist"
printf '#!/bin/sh\n' >"$work/first/make"
# shellcheck disable=SC2016 # the stub's own
printf '#!/bin/sh\n[ "$1" = install ] && shift && exec "%s" -m pip --disable-pip-version-check install --quiet --no-deps --force-reinstall "$@"\n' \
    "$work/venv/bin/python" >"$work/first/pip"
chmod +x "$work/first/make" "$work/first/pip"
installs() { # a line, in a checkout
    "$work/venv/bin/python" -m pip --quiet uninstall -y tilepack-llm &&
        (cd "$work/checkout" && PATH=$work/first:$PATH sh -c "$1") &&
        "$work/venv/bin/python" -c 'import tilepack_llm; tilepack_llm.library_version()'
}
"$TILEPACK" convert "$work/src" -o "$work/kernels" --to fp8-1x128 --quiet
check 'the line of convert installs it' installs \
    "$("$TILEPACK" convert "$work/src" -o "$work/lines" --to w4a8-cutlass | sed -n 's/^it needs: //p')"
for made in lines kernels; do
    check "the line in config.json of $made does" installs \
        "$(jq -r .quantization_config.install "$work/$made/config.json")"
done

cd "$root" || exit 1
static() { plain_make -C "$root" BUILD="$BUILD" -o "$built_config" -o wheel static; }
archive=$BUILD/dist/tilepack-$version-linux-$(uname -m).tar.gz
check 'make static' static
check 'makes an archive' cp "$archive" "$work/first.tar.gz"
check 'make static again' static
check 'gives the same bytes' cmp "$archive" "$work/first.tar.gz"
mkdir "$work/there"
check 'it unpacks into one folder' tar -xzf "$archive" -C "$work/there" --strip-components=1
for file in bin/tilepack share/man/man1/tilepack.1 share/bash-completion/completions/tilepack \
    share/doc/tilepack/LICENSE share/doc/tilepack/licenses/libzstd-dev.txt \
    share/tilepack/samples/load_packed.py; do
    check "with $file" test -s "$work/there/$file"
done
check 'and the program of the wheel' cmp "$work/there/bin/tilepack" \
    "$(find "$work/venv/lib" -path '*/native/tilepack')"
if bare_root "$work/bare"; then
    cp -r "$work/there" "$work/bare/tilepack"
    cp -r "$work/src" "$work/bare/src"
    check 'which converts in a bare system' bare "$work/bare" \
        /tilepack/bin/tilepack convert /src -o /made --to w4a8-cutlass --quiet
    check 'to the same bytes' diff -r "$work/expected" "$work/bare/made"
fi

# Compiled fast, without warnings: what is looked at is whether all is there.
mkdir "$work/sdist"
tar -xzf "$BUILD"/dist/tilepack_llm-*.tar.gz -C "$work/sdist" --strip-components=1
check 'the source distribution builds' env -u MAKEFLAGS -u MAKELEVEL CFLAGS="-O1 -w" \
    TILEPACK_BUILD="$work/sdist-build" \
    sh -c "cd '$work/sdist' && exec '$tools' -m hatchling build -t wheel -d '$work/sdist-wheel'"
"$TILEPACK" formats >"$work/formats"
"$TILEPACK" models >"$work/models"
"$TILEPACK" quantizers >"$work/quantizers"
check 'with all formats' sh -c "'$work/sdist-build/tilepack' formats | diff - '$work/formats'"
check 'all quantizers' sh -c "'$work/sdist-build/tilepack' quantizers | diff - '$work/quantizers'"
check 'and all models' sh -c "'$work/sdist-build/tilepack' models | diff - '$work/models'"
finish
