#!/bin/sh
# What a conversion leaves: status 4 with the reasons where it would convert nothing, a warning
# with the reasons where it converts under half of the bytes of weights, the same in JSON. What is
# in the format already is no failure.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"

cat >"$work/make.py" <<'EOF_PY'
# make.py FILE NAME=ROWSxCOLUMNS ...: BF16 tensors of ones; a size alone is one dimension.
import json, math, struct, sys
header, data = {}, b""
for name, size in (word.split("=") for word in sys.argv[2:]):
    shape = [int(n) for n in size.split("x")]
    begin, data = len(data), data + b"\x80\x3f" * math.prod(shape)
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
EOF_PY
layer=l.0.mlp
small() { # name, more tensors: two weights of 131,072 bytes and a norm
    name=$1
    shift
    mkdir -p "$work/$name"
    echo '{}' >"$work/$name/config.json"
    "$PYTHON" "$work/make.py" "$work/$name/model.safetensors" $layer.up_proj.weight=256x256 \
        $layer.down_proj.weight=256x256 l.0.norm.weight=256 "$@"
}
small plain
small large embed_tokens.weight=1000x256
mkdir "$work/norms" "$work/odd"
"$PYTHON" "$work/make.py" "$work/odd/model.safetensors" l.0.mlp.gate.weight=16x256 \
    l.0.rotary.weight=1x256 l.0.conv.weight=1x256 lm_head.weight=200x256 \
    l.0.mlp.up_proj.weight=256x100 embed_tokens.weight=1000x256
"$PYTHON" "$work/make.py" "$work/norms/model.safetensors" l.0.norm.weight=256
to() { # source, output, options ...
    source=$1 out=$2
    shift 2
    in_work convert "$source" -o "$out" --to mxfp8-ct --device cpu "$@"
}
json() { # expression of d, the object in $work/said, that has to be true
    "$PYTHON" -c "import json; d = json.load(open('$work/said')); assert $1, d"
}

# Nothing.
fails 'all is excluded' 4 "tilepack: error: plain: no weight would be converted: 2 weights, 262 kB: \
excluded" to plain no --exclude .
check 'and said what shows more' grep -q '^  hint: .tilepack plan. says why of each' "$work/err"
check 'nothing is written' test ! -e "$work/no" -a ! -e "$work/no.partial"
fails 'a part of nothing' 4 'no weight would be converted' to plain no --exclude . --part 1/2
fails 'thrown away' 4 'no weight would be converted' in_work convert plain --discard --to mxfp8-ct \
    --exclude .
echo '{"rules": [{"match": ".", "keep": true}]}' >"$work/keep.json"
fails 'kept by a recipe' 4 '2 weights, 262 kB: kept by the recipe' in_work convert plain -o no \
    --recipe keep.json
fails 'several reasons, the largest first' 4 'no weight would be converted: 1 weight, 512 kB: embedding; \
1 weight, 102 kB: output head; 1 weight, 51.2 kB: K = 100 is not a multiple of 32; 1 weight, 8.19 kB: \
router; 2 more, 1.02 kB, for other reasons' to odd no
fails 'no weights' 4 'norms: there is no weight to convert' to norms no
fails 'as JSON' 4 'no weight would be converted' to plain no --exclude . --json
cp "$work/out" "$work/said"
check 'the error' json "d['error']['code'] == 4 and 'excluded' in d['error']['message']"
answers 'the plan is shown' 0 'no weight would be converted, and' \
    in_work plan plain --to mxfp8-ct --exclude .

# Little.
fails 'under half' 0 'large: only 33.8 % of the bytes of weights are converted; kept are 1 weight, \
512 kB: embedding' to large most
to large quiet -q 2>"$work/err" >/dev/null
check '--quiet' test ! -s "$work/err"
to large json --json >"$work/said" 2>/dev/null
check 'as JSON' json "(d['weight_bytes'], d['weight_bytes_kept'], d['kept_weights']) == (774144, \
512000, [{'reason': 'embedding', 'weights': 1, 'bytes': 512000}]) and 'only 33.8 %' in d['warning']"
to plain half --exclude up_proj --json >"$work/said" 2>"$work/err"
check 'half is no reason to warn' json "d['weight_bytes_kept'] == 131072 and 'warning' not in d"
check 'nor is it said' test ! -s "$work/err"

# Already there.
to plain packed -q || bad 'convert'
fails 'all is in the format already' 0 'packed is in the format mxfp8-ct already' to packed again
check 'it is copied' cmp "$work/packed/model.safetensors" "$work/again/model.safetensors"
fails 'but not if it is excluded' 4 '2 weights, 135 kB: excluded' to packed no --exclude .
finish
