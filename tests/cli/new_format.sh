#!/bin/sh
# A format that differs only in its layout is one JSON file and no C: int4 for
# CUTLASS' bf16 kernels (atom of 16x16 nibbles) is added to a copy of the build,
# converted to, verified, and decoded by the oracle from the stored descriptor. A second one
# puts up before gate, pads each of them and w2, moves the bits of codes, fills padding with 127 and has a
# bias in the order and with the padding of its rows; a third
# one stores its scales as e5m3 bytes, lifted, and the global scale times a power of two, has one
# activation scale for all experts, and pads w2 of experts without a gate; a fourth one stores
# zero points of int8 times minus their scales.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$root/tests/lib/plain_make.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/w4a16-cutlass.json" <<'EOF'
{
  "name": "w4a16-cutlass",
  "version": 1,
  "title": "int4 weights in the order of CUTLASS' mixed-input kernels for bf16 activations",
  "about": "A test: only the layout is new.",
  "source": "CUTLASS 4.7",
  "codec": "int4",
  "block": [1, 128],
  "needs": [
    {"dim": "N", "multiple": 16, "why": "a tile is 16 output features"},
    {"dim": "K", "multiple": 128, "why": "a group is 128 input features"}
  ],
  "table": [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7],
  "experts": "stack",
  "outputs": [
    {"role": "codes", "suffix": "weight_packed", "dtype": "I32", "shape": ["E", "N", "K/8"],
     "element": "int4", "layout": "(E,(8,2,N/16),(2,4,2,K/16)):(N*K,(32,2,256),(1,8,4,16*N))"},
    {"role": "scale", "suffix": "weight_scale", "dtype": "BF16", "shape": ["E", "K/128", "N"],
     "element": "bf16", "per": [1, 128], "layout": "(E,N,K/128):(N*(K/128),1,N)"}
  ]
}
EOF

cat >"$work/mxfp4-moved.json" <<'EOF'
{
  "name": "mxfp4-moved",
  "version": 1,
  "title": "MXFP4 with everything moved that a format file can move",
  "about": "A test.",
  "source": "a test",
  "codec": "mxfp4",
  "block": [1, 32],
  "set": {"rule": "even"},
  "rows": "up,gate",
  "let": {"P": "align(N,24)", "B": "align(K,64)", "J": "align(ceil(K,32),2)"},
  "gated": {"let": {"P": "align(N/S,24)"}},
  "down": {"let": {"P": "align(N,32)"}},
  "bias": {
    "let": {"P": "align(N,32)"},
    "gated": {"let": {"P": "align(N/S,24)"}},
    "outputs": [
      {"role": "codes", "suffix": "", "dtype": "F32", "shape": ["E", "S*P"], "element": "f32",
       "layout": "((S,E),P,1):((P,S*P),1,1)"}
    ]
  },
  "experts": "stack",
  "outputs": [
    {"role": "codes", "suffix": "weight", "dtype": "U8", "shape": ["E", "S*P", "B/2"],
     "element": "e2m1",
     "word_bits": [31, 30, 29, 28, 27, 26, 25, 24, 0, 1, 2, 3, 4, 5, 6, 7,
                   9, 8, 11, 10, 13, 12, 15, 14, 23, 16, 22, 17, 21, 18, 20, 19],
     "layout": "((S,E),(8,P/8),(8,B/8)):((8*B,S*P*B),(B,8*S*B),(1,8))"},
    {"role": "scale", "suffix": "weight_scale", "dtype": "U8", "shape": ["E", "S*P", "J"],
     "element": "e8m0", "per": [1, 32], "fill": 127,
     "layout": "((S,E),P,J):((P*J,S*P*J),J,1)"}
  ]
}
EOF

cat >"$work/nvfp4-lifted.json" <<'EOF'
{
  "name": "nvfp4-lifted",
  "version": 1,
  "title": "NVFP4 with scales stored otherwise",
  "about": "A test.",
  "source": "a test",
  "codec": "nvfp4",
  "block": [1, 16],
  "set": {"rule": "modelopt", "lift": true},
  "experts": "stack",
  "inputs": {"suffix": "act", "shape": [], "over": "experts", "range": 448, "why": "a test"},
  "let": {"B": "K"},
  "down_ungated": {"let": {"B": "align(K,64)"}},
  "outputs": [
    {"role": "codes", "suffix": "weight", "dtype": "U8", "shape": ["E", "N", "B/2"],
     "element": "e2m1", "layout": "(E,N,B):(N*B,B,1)"},
    {"role": "scale", "suffix": "weight_scale", "dtype": "U8", "shape": ["E", "K/16", "N"],
     "element": "e5m3", "per": [1, 16], "layout": "(E,N,K/16):(N*(K/16),1,N)"},
    {"role": "global", "suffix": "weight_scale_2", "dtype": "F32", "shape": ["E"], "keep_e": true,
     "element": "f32", "factor": -3, "per": [0, 0], "layout": "(E,1,1):(1,1,1)"}
  ]
}
EOF

cat >"$work/w8a16-products.json" <<'EOF'
{
  "name": "w8a16-products",
  "version": 1,
  "title": "int8 with zero points times minus their scales",
  "about": "A test.",
  "source": "a test",
  "codec": "int8",
  "block": [1, 64],
  "set": {"zeros": true},
  "params": [
    {"key": "scales", "help": "a test",
     "choices": [{"name": "f16", "set": {"scale_rule": "f16"}}, {"name": "bf16", "set": {"scale_rule": "bf16"}}]}
  ],
  "experts": "stack",
  "outputs": [
    {"role": "codes", "suffix": "weight", "dtype": "U8", "shape": ["E", "K", "N"],
     "element": "uint8b128", "layout": "(E,N,K):(N*K,1,N)"},
    {"role": "scale", "suffix": "weight_scale", "dtype": "BF16", "shape": ["E", "N", "K/64"],
     "element": "bf16", "per": [1, 64], "layout": "(E,N,K/64):(N*(K/64),K/64,1)"},
    {"role": "zero", "suffix": "added", "dtype": "BF16", "shape": ["E", "K/64", "N"],
     "element": "bf16", "per": [1, 64], "layout": "(E,N,K/64):(N*(K/64),1,N)"}
  ]
}
EOF

# Objects are taken from the build, whatever flags they were made with (-o), CUDA's too; only the
# embedded formats and the link are new, so the link must know those flags.
flags=
if grep -q __asan_init "$BUILD/tilepack"; then flags=-fsanitize=address,undefined; fi
mkdir "$work/build"
cp -Rp "$BUILD/src" "$work/build/"
cd "$root"
formats=$(sh scripts/files.sh 'formats/*.json')
plain_make BUILD="$work/build" -o "$work/build/config" -o "$work/build/cuda.config" LDFLAGS="$flags" \
    FORMATS="$(echo "$formats" | tr '\n' ' ') $work/w4a16-cutlass.json $work/mxfp4-moved.json \
        $work/nvfp4-lifted.json $work/w8a16-products.json" \
    "$work/build/tilepack" \
    >"$work/make.log" 2>&1 || {
    cat "$work/make.log"
    exit 1
}
TILEPACK=$work/build/tilepack
export TILEPACK
exec "${PYTHON:-python3}" "$root/tests/bytes/new_format.py"
