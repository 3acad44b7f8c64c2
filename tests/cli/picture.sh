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
if [ -w /dev/full ]; then
    ln -s /dev/full full.html
    fails 'a full disk' 5 'No space left' dump w4a16-ct.safetensors 'x<y>&' --html full.html
fi
finish
