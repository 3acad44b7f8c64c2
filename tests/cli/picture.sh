#!/bin/sh
# `dump --svg` and `--html`: well-formed, and every cell is what --at and --offset say
# (bytes/picture.py); what is refused.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
"$PYTHON" - "$work" <<'PYTHON' || exit 1
import json, struct, sys
import numpy as np
def save(path, **tensors):
    header, data = {}, b""
    for name, shape in tensors.items():
        values = np.random.default_rng(1).standard_normal(shape, np.float32)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
save(f"{sys.argv[1]}/a.safetensors", **{"x<y>&.weight": [160, 384], "norm.weight": [8]})
PYTHON
cd "$work" || exit 1
# A reordered tile, padding in tiles of scales, columns first, rows in one piece.
for format in w4a8-cutlass nvfp4-blocked mxfp8-torchao3d fp8-deepgemm-sm100 w4a16-ct; do
    "$TILEPACK" convert a.safetensors -o $format.safetensors --to $format --include 'x' --quiet || exit 1
    check "$format" "$PYTHON" "$TESTS/bytes/picture.py" $format.safetensors 'x<y>&'
done
dump() { "$TILEPACK" dump "$@"; }
dump w4a16-ct.safetensors 'x<y>&' --svg b.svg >said
cells=$(grep -c 'class="cell"' b.svg)
check 'it says what it wrote' test "$(cat said)" = "b.svg: $cells cells of w4a16-ct"
check 'also in JSON' test "$(dump w4a16-ct.safetensors 'x<y>&' --svg b.svg --json | jq -c '[.svg, .html, .cells]')" = \
    "[\"b.svg\",null,$cells]"
fails 'not of a plain tensor' 2 'it is not packed' dump a.safetensors norm.weight --svg b.svg
fails 'not of all' 2 '--svg needs a tensor' dump a.safetensors --svg b.svg
fails 'not of several' 2 'a pattern stands for several' dump a.safetensors '*' --html b.html
fails 'not with an element' 2 '--at and a picture exclude each other' \
    dump w4a16-ct.safetensors 'x<y>&' --at 0,0 --svg b.svg
fails 'a picture is called .svg' 2 'does not end in .svg' dump w4a16-ct.safetensors 'x<y>&' --svg a.safetensors
fails 'where none can be' 5 'gone/b.svg: cannot be written' dump w4a16-ct.safetensors 'x<y>&' --svg gone/b.svg
# As other outputs: written beside its name and renamed, whole or not at all, and through no link.
echo precious >victim
kept() { check "$1: nothing else was written to" sh -c 'grep -qx precious victim && test ! -L b.svg'; }
rm b.svg
ln -s victim b.svg
check 'a link in its place' dump w4a16-ct.safetensors 'x<y>&' --svg b.svg
kept 'a link'
check 'is replaced by the picture' grep -q '</svg>' b.svg
ln -s victim .b.svg.tilepack.partial
check 'an unfinished one that is a link is replaced' dump w4a16-ct.safetensors 'x<y>&' --svg b.svg
kept 'an unfinished link'
echo older and longer than any >.b.svg.tilepack.partial
check 'one that a killed run left' dump w4a16-ct.safetensors 'x<y>&' --svg b.svg
check 'is gone' test ! -e .b.svg.tilepack.partial
# Values of a checkpoint are readable by nobody who cannot read it.
chmod 600 w4a16-ct.safetensors
umask 022
for page in b.svg b.html; do
    dump w4a16-ct.safetensors 'x<y>&' --${page#b.} $page >said
    check "$page of a private checkpoint" test "$(stat -c %a $page)" = 600
done
"$TILEPACK" compare a.safetensors --include x --to fp8-ct --html b.html >said
check 'of one that all may read' test "$(stat -c %a b.html)" = 644
chmod 600 a.safetensors
"$TILEPACK" compare a.safetensors --include x --to fp8-ct --html b.html >said
check 'what compare says of a private one' test "$(stat -c %a b.html)" = 600
chmod 644 a.safetensors w4a16-ct.safetensors
mkdir folder
ln -s folder way
check 'a directory may be a link' dump w4a16-ct.safetensors 'x<y>&' --html way/b.html
check 'and has the page' grep -q '</html>' folder/b.html
cp b.svg before.svg
# shellcheck disable=SC2016 # the inner shell expands it
fails 'a file that must not grow' 5 'b.svg: cannot be written: File too large' \
    sh -c 'ulimit -f 8; exec "$TILEPACK" dump w4a16-ct.safetensors "x<y>&" --svg b.svg'
check 'leaves the picture that was there' cmp b.svg before.svg
check 'and nothing beside it' test -z "$(find . -name '.*.partial')"
finish
