#!/bin/bash
# `tilepack dump` on small files made here: exact text, JSON, and the bytes that it
# says lie there. Usage: dump.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -x $program ]] || { echo "FAIL: there is no $program"; exit 1; }
cd "$work" || exit 1
failed=0 checked=0
fail() {
    failed=1
    printf 'FAIL dump: %s\n' "$1"
}

# prints ARGUMENTS: stdout is exactly what is on stdin, status 0, stderr empty
prints() {
    cat >wanted
    "$program" dump "$@" >out 2>err </dev/null
    local status=$?
    checked=$((checked + 1))
    [[ $status == 0 && ! -s err ]] || fail "dump $*: status $status, $(cat err)"
    diff -u wanted out || fail "dump $*"
}

# refuses STATUS MESSAGE HINT ARGUMENTS: exactly this on stderr, nothing on stdout
refuses() {
    local wanted_status=$1 wanted="$2"$'\n'"  hint: $3"
    shift 3
    "$program" dump "$@" >out 2>err </dev/null
    local status=$?
    checked=$((checked + 1))
    [[ $status == "$wanted_status" ]] || fail "dump $*: status $status"
    [[ $(cat err) == "$wanted" ]] || fail "dump $*:
  wanted: $wanted
  got:    $(cat err)"
    [[ ! -s out ]] || fail "dump $*: prints on stdout: $(cat out)"
}

# A BF16 file whose values are multiples of 1/64, so that every number is known.
make_file() { # file, then name:shape ...
    "$python" - "$@" <<'PYTHON'
import json, math, struct, sys
tensors, data = {}, b""
for argument in sys.argv[2:]:
    name, shape = argument.split(":")
    shape = [int(n) for n in shape.split(",")]
    values = [((i * 37 + i // 7) % 255 - 127) / 64 for i in range(math.prod(shape))]
    part = b"".join(struct.pack("<f", v)[2:] for v in values)
    tensors[name] = {"dtype": "BF16", "shape": shape,
                     "data_offsets": [len(data), len(data) + len(part)]}
    data += part
text = json.dumps(tensors, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
PYTHON
}

convert() { # source, destination, format, options
    local source=$1 to=$2 format=$3
    shift 3
    "$program" convert "$source" -o "$to" --to "$format" --quiet "$@" ||
        fail "cannot convert $source to $format"
}

make_file in.safetensors l.q_proj.weight:32,128 l.norm.weight:4
make_file experts.safetensors l.experts.down_proj:2,64,40
convert in.safetensors q.safetensors w4a8-cutlass --search none
convert in.safetensors deepgemm.safetensors fp8-deepgemm-sm100
convert experts.safetensors torchao.safetensors mxfp8-torchao3d

# ---- the table

prints q.safetensors <<'TEXT'
tensor                       dtype    shape     bytes  holds
l.norm.weight                BF16     [4]           8
l.q_proj.weight_chan_scale   F32      [32,1]      128  w4a8-cutlass channel
l.q_proj.weight_group_scale  F8_E4M3  [1,32,8]    256  w4a8-cutlass group8
l.q_proj.weight_layout       I32      [1,3]        12  w4a8-cutlass words
l.q_proj.weight_packed       I32      [32,16]    2048  w4a8-cutlass codes

5 tensors, 2.45 kB in 1 file; w4a8-cutlass: 1 weight
TEXT

prints q.safetensors --verbose <<'TEXT'
tensor                       dtype    shape     bytes  holds                 file           offset
l.norm.weight                BF16     [4]           8                        q.safetensors    6284
l.q_proj.weight_chan_scale   F32      [32,1]      128  w4a8-cutlass channel  q.safetensors    6144
l.q_proj.weight_group_scale  F8_E4M3  [1,32,8]    256  w4a8-cutlass group8   q.safetensors    6292
l.q_proj.weight_layout       I32      [1,3]        12  w4a8-cutlass words    q.safetensors    6272
l.q_proj.weight_packed       I32      [32,16]    2048  w4a8-cutlass codes    q.safetensors    4096

5 tensors, 2.45 kB in 1 file; w4a8-cutlass: 1 weight
TEXT

prints in.safetensors --json <<TEXT
{
  "version": 1,
  "files": [
    {"name": "in.safetensors", "size": $(stat -c %s in.safetensors), "compressed": false}
  ],
  "tensors": [
    {"name": "l.norm.weight", "dtype": "BF16", "shape": [4], "bytes": 8, \
"offset": $(($(stat -c %s in.safetensors) - 8)), "file": "in.safetensors"},
    {"name": "l.q_proj.weight", "dtype": "BF16", "shape": [32,128], "bytes": 8192, \
"offset": $(($(stat -c %s in.safetensors) - 8200)), "file": "in.safetensors"}
  ]
}
TEXT

# ---- one tensor: descriptor and tile

prints q.safetensors l.q_proj.weight_packed <<'TEXT'
l.q_proj: w4a8-cutlass, W[32,128] from BF16
  codec int4, a scale for each block of 1x128 (n x k)
  set with quotient=fp32 scale=gpu zero-groups=keep
  made from l.q_proj.weight [32,128]

l.q_proj.weight_packed
  I32 [32,16], 2048 bytes at 4096 of q.safetensors
  codes: int4
  nibbles 0 to 15 are 0 7 6 5 4 3 2 1 -8 -7 -6 -5 -4 -3 -2 -1
  layout (1,(8,2,2),(4,4,2,4)):(4096,(64,4,512),(1,16,8,1024)) in nibbles, padding 0x00
  the first tile, 16 x 32 (n x k), in the order of its bytes; a cell is (n, k) of 4 elements,
  two to a byte, the first in the low half:
      0  0,0-3     8,0-3     0,16-19   8,16-19   0,4-7     8,4-7     0,20-23   8,20-23
     16  0,8-11    8,8-11    0,24-27   8,24-27   0,12-15   8,12-15   0,28-31   8,28-31
     32  1,0-3     9,0-3     1,16-19   9,16-19   1,4-7     9,4-7     1,20-23   9,20-23
     48  1,8-11    9,8-11    1,24-27   9,24-27   1,12-15   9,12-15   1,28-31   9,28-31
     64  2,0-3     10,0-3    2,16-19   10,16-19  2,4-7     10,4-7    2,20-23   10,20-23
     80  2,8-11    10,8-11   2,24-27   10,24-27  2,12-15   10,12-15  2,28-31   10,28-31
     96  3,0-3     11,0-3    3,16-19   11,16-19  3,4-7     11,4-7    3,20-23   11,20-23
    112  3,8-11    11,8-11   3,24-27   11,24-27  3,12-15   11,12-15  3,28-31   11,28-31
    128  4,0-3     12,0-3    4,16-19   12,16-19  4,4-7     12,4-7    4,20-23   12,20-23
    144  4,8-11    12,8-11   4,24-27   12,24-27  4,12-15   12,12-15  4,28-31   12,28-31
    160  5,0-3     13,0-3    5,16-19   13,16-19  5,4-7     13,4-7    5,20-23   13,20-23
    176  5,8-11    13,8-11   5,24-27   13,24-27  5,12-15   13,12-15  5,28-31   13,28-31
    192  6,0-3     14,0-3    6,16-19   14,16-19  6,4-7     14,4-7    6,20-23   14,20-23
    208  6,8-11    14,8-11   6,24-27   14,24-27  6,12-15   14,12-15  6,28-31   14,28-31
    224  7,0-3     15,0-3    7,16-19   15,16-19  7,4-7     15,4-7    7,20-23   15,20-23
    240  7,8-11    15,8-11   7,24-27   15,24-27  7,12-15   15,12-15  7,28-31   15,28-31
         ...
  n + 16 is 256 bytes further
  k + 32 is 512 bytes further
TEXT

# Padding in the first cells, and four scales to a word.
prints deepgemm.safetensors l.q_proj.weight_scale_packed <<'TEXT'
l.q_proj: fp8-deepgemm-sm100, W[32,128] from BF16
  codec fp8, a scale for each block of 128x128 (n x k)
  set with requant=f32
  made from l.q_proj.weight [32,128]

l.q_proj.weight_scale_packed
  I32 [1,32], 128 bytes at 4096 of deepgemm.safetensors
  scale: e8m0
  layout (1,32,(4,1)):(128,4,(1,128)) in bytes, padding 0x00
  the first tile, 1 x 512 (n x k), in the order of its bytes; a cell is (n, k/128) of 4 elements:
      0  0,0+3   1,0+3   2,0+3   3,0+3   4,0+3   5,0+3   6,0+3   7,0+3
     32  8,0+3   9,0+3   10,0+3  11,0+3  12,0+3  13,0+3  14,0+3  15,0+3
         ...
  +1, +2, ...: as many elements more are padding
  n + 1 is 4 bytes further
TEXT

# A stack of experts, column-major, and its 128x4 scale tiles: 64 rows are missing.
prints torchao.safetensors l.experts.w2 <<'TEXT'
l.experts.w2: mxfp8-torchao3d, W[2,64,40] from BF16
  codec mxfp8, a scale for each block of 32x1 (n x k)
  set with scale=rceil block=32x1
  made from l.experts.down_proj [2,64,40]

l.experts.w2_weight
  F8_E4M3 [2,40,64], 5120 bytes at 4096 of torchao.safetensors
  codes: e4m3
  layout (2,64,40):(2560,1,64) in bytes, padding 0x00
  in the order of the bytes; a line is (n, k) of 64 elements:
      0  0-63,0
     64  0-63,1
    128  0-63,2
    192  0-63,3
         ...
  k + 1 is 64 bytes further
  e + 1 is 2560 bytes further

l.experts.w2_weight_scale
  U8 [2,512], 1024 bytes at 9216 of torchao.safetensors
  scale: e8m0
  layout (2,(4,1),(32,4,1)):(512,(1,512),(16,4,512)) in bytes, padding 0x00
  the first tile, 128 x 128 (n x k), in the order of its bytes; a cell is (n/32, k) of 4 elements:
      0  0-1,0+2   0-1,32+2  pad       pad       0-1,1+2   0-1,33+2  pad       pad
     32  0-1,2+2   0-1,34+2  pad       pad       0-1,3+2   0-1,35+2  pad       pad
     64  0-1,4+2   0-1,36+2  pad       pad       0-1,5+2   0-1,37+2  pad       pad
     96  0-1,6+2   0-1,38+2  pad       pad       0-1,7+2   0-1,39+2  pad       pad
    128  0-1,8+2   pad       pad       pad       0-1,9+2   pad       pad       pad
    160  0-1,10+2  pad       pad       pad       0-1,11+2  pad       pad       pad
    192  0-1,12+2  pad       pad       pad       0-1,13+2  pad       pad       pad
    224  0-1,14+2  pad       pad       pad       0-1,15+2  pad       pad       pad
    256  0-1,16+2  pad       pad       pad       0-1,17+2  pad       pad       pad
    288  0-1,18+2  pad       pad       pad       0-1,19+2  pad       pad       pad
    320  0-1,20+2  pad       pad       pad       0-1,21+2  pad       pad       pad
    352  0-1,22+2  pad       pad       pad       0-1,23+2  pad       pad       pad
    384  0-1,24+2  pad       pad       pad       0-1,25+2  pad       pad       pad
    416  0-1,26+2  pad       pad       pad       0-1,27+2  pad       pad       pad
    448  0-1,28+2  pad       pad       pad       0-1,29+2  pad       pad       pad
    480  0-1,30+2  pad       pad       pad       0-1,31+2  pad       pad       pad
         ...
  +1, +2, ...: as many elements more are padding
  pad: all of it is padding
  e + 1 is 512 bytes further
TEXT

prints in.safetensors l.norm.weight <<TEXT
l.norm.weight
  BF16 [4], 8 bytes at $(($(stat -c %s in.safetensors) - 8)) of in.safetensors
  not packed; rows of 4 in order
TEXT

# ---- one element

# W[17,101] is 42/64, the row's scale nearly 127/64/7.5: the code is 2.
prints q.safetensors l.q_proj --at 17,101 <<'TEXT'
l.q_proj  e=0 n=17 k=101  w4a8-cutlass
  value         0.52734375 = e4m3(q * g) * channel
  code          0x6 in the high half of byte 1832 of l.q_proj.weight_packed
                at 5928 of q.safetensors: 2 (canonical code 10)
  group scale   FE FC FA F9 F6 F2 EE E6 in the bytes 136 to 143 of l.q_proj.weight_group_scale
                at 6428 of q.safetensors: g = 56, the code picks byte 6 of the eight: EE
  channel scale 0x3B9A4925 in the bytes 68 to 71 of l.q_proj.weight_chan_scale
                at 6212 of q.safetensors: 0.00470842654
TEXT

# A code that the named half byte does not hold is said to be spread over its word.
convert in.safetensors hopper.safetensors mxfp4-triton-hopper --include q_proj
for at in 0,0 3,1 17,8 21,101 31,66; do
    "$program" dump hopper.safetensors l.q_proj --at $at --json
done | "$python" -c '
import json, re, sys
data, rest, spread = open("hopper.safetensors", "rb").read(), sys.stdin.read(), []
while rest.strip():
    item, end = json.JSONDecoder().raw_decode(rest.lstrip())
    rest = rest.lstrip()[end:]
    code = item["parts"][0]
    byte = data[code["offset"]]
    half = byte >> 4 if code["nibble"] == "high" else byte & 15
    spread.append(code.get("spread", False))
    assert spread[-1] or half == int(code["stored"], 16), item
assert len(spread) == 5 and any(spread), spread
' || fail 'a spread code'
checked=$((checked + 1))
"$program" dump hopper.safetensors l.q_proj --at 0,0 |
    grep -q 'code .* in the bits of bytes 0 to 3, the lowest in the high half of byte 0 of l.q_proj' ||
    fail 'a spread code as text'

prints in.safetensors l.q_proj --at 1,0 <<'TEXT'
l.q_proj.weight  e=0 n=1 k=0
  value         0.578125
  stored        0x3F14 in the bytes 256 to 257 of l.q_proj.weight
                at 416 of in.safetensors
TEXT

# W[1,33,7] is -83/64, and 127/64 the largest value of its block.
prints torchao.safetensors l.experts.w2_weight_scale --at 1,33,7 --json <<'TEXT'
{
  "version": 1,
  "weight": "l.experts.w2",
  "format": "mxfp8-torchao3d",
  "at": [
    1,
    33,
    7
  ],
  "value": -1.25,
  "parts": [
    {
      "role": "codes",
      "tensor": "l.experts.w2_weight",
      "file": "torchao.safetensors",
      "offset": 7137,
      "byte": 3041,
      "bits": 8,
      "stored": "0xF2",
      "value": -160.0,
      "code": 242
    },
    {
      "role": "scale",
      "tensor": "l.experts.w2_weight_scale",
      "file": "torchao.safetensors",
      "offset": 9841,
      "byte": 625,
      "bits": 8,
      "stored": "0x78",
      "value": 0.0078125
    }
  ]
}
TEXT

# ---- one byte, and the same byte read from the file

prints q.safetensors l.q_proj --offset 1832 <<'TEXT'
byte 1832 of l.q_proj.weight_packed (at 5928 of q.safetensors): 0x60
  low half 0x0: code of e=0 n=17 k=100: 0, value 0
  high half 0x6: code of e=0 n=17 k=101: 2, value 0.52734375
TEXT
[[ $(od -An -tx1 -j5928 -N1 q.safetensors) == ' 60' ]] || fail 'byte 5928 is another one'

prints q.safetensors l.q_proj.weight_group_scale --offset 0x8e <<'TEXT'
byte 142 of l.q_proj.weight_group_scale (at 6434 of q.safetensors): 0xEE
  byte 6 of FE FC FA F9 F6 F2 EE E6: -2g of the group scale of e=0 n=17 k=0..127: g = 56
TEXT
prints q.safetensors l.q_proj.weight_chan_scale --offset 69 <<'TEXT'
byte 69 of l.q_proj.weight_chan_scale (at 6213 of q.safetensors): 0x49
  byte 1 of 0x3B9A4925: channel scale of e=0 n=17 k=0..127: 0.00470842654
TEXT
prints q.safetensors l.q_proj.weight_layout --offset 4 <<'TEXT'
byte 4 of l.q_proj.weight_layout (at 6276 of q.safetensors): 0x04
  byte 0 of 0x00000004: word 1, constant, for e=0 n=0..31 k=0..127: 4
TEXT
prints torchao.safetensors l.experts.w2_weight_scale --offset 625 <<'TEXT'
byte 625 of l.experts.w2_weight_scale (at 9841 of torchao.safetensors): 0x78
  0x78: scale of e=1 n=32..63 k=7: 0.0078125
TEXT
prints torchao.safetensors l.experts.w2_weight_scale --offset 626 <<'TEXT'
byte 626 of l.experts.w2_weight_scale (at 9842 of torchao.safetensors): 0x00
  0x00: padding
TEXT
prints in.safetensors l.norm.weight --offset 3 --json <<TEXT
{
  "version": 1,
  "tensor": "l.norm.weight",
  "file": "in.safetensors",
  "byte": 3,
  "offset": $(($(stat -c %s in.safetensors) - 5)),
  "stored": 191,
  "items": [
    {
      "role": "value",
      "tensor": "l.norm.weight",
      "file": "in.safetensors",
      "offset": $(($(stat -c %s in.safetensors) - 6)),
      "byte": 2,
      "bits": 16,
      "stored": "0xBFB4",
      "byte_of_element": 1,
      "padding": false,
      "e": [
        0,
        1
      ],
      "n": [
        0,
        1
      ],
      "k": [
        1,
        2
      ],
      "value": -1.40625,
      "element_value": -1.40625
    }
  ]
}
TEXT

# Padding that does not hold its fill is said to.
cp torchao.safetensors damaged.safetensors
printf '\x41' | dd of=damaged.safetensors bs=1 seek=9842 conv=notrunc 2>dd.err
prints damaged.safetensors l.experts.w2_weight_scale --offset 626 <<'TEXT'
byte 626 of l.experts.w2_weight_scale (at 9842 of damaged.safetensors): 0x41
  0x41: padding, which should be 0x0
TEXT

# ---- a rectangle of values

prints in.safetensors l.q_proj --values 30:,0:3 <<'TEXT'
l.q_proj.weight  e=0
   n \ k             0            1            2
      30       -0.6875    -0.109375      0.46875
      31         1.875     -1.51562      -0.9375
TEXT
prints torchao.safetensors l.experts.w2 --values 33:34,6:9 --expert 1 --json <<'TEXT'
{
  "version": 1,
  "weight": "l.experts.w2",
  "expert": 1,
  "n": [33, 34],
  "k": [6, 9],
  "values": [
    [-1.875, -1.25, -0.75]
  ]
}
TEXT
# Ends beyond the edge are cut. -3 * 56 is no e4m3 number: 160 is taken, as in the kernel.
prints q.safetensors l.q_proj --values 17:18,126:1000 --json <<'TEXT'
{
  "version": 1,
  "weight": "l.q_proj",
  "expert": 0,
  "n": [17, 18],
  "k": [126, 128],
  "values": [
    [-0.753348231, -0.263671875]
  ]
}
TEXT

# ---- a packed checkpoint without descriptors, as other tools write it

convert in.safetensors ct.safetensors w4a8-ct
"$python" - <<'PYTHON'
import json, struct
with open("ct.safetensors", "rb") as f:
    size = struct.unpack("<Q", f.read(8))[0]
    header, data = json.loads(f.read(size)), f.read()
del header["__metadata__"]
text = json.dumps(header).encode()
with open("foreign.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
PYTHON
"$program" dump foreign.safetensors l.q_proj >out || fail 'foreign file'
[[ $(head -n 1 out) == 'l.q_proj: w4a8-ct, W[32,128], known by its tensors (no descriptor is stored)' ]] ||
    fail "foreign file: $(head -n 1 out)"
for what in '--values 3:9,5:77' '--values 0:32,120:'; do
    for file in ct foreign; do
        # shellcheck disable=SC2086
        "$program" dump $file.safetensors l.q_proj $what --json >$file.json ||
            fail "$file $what"
    done
    cmp -s ct.json foreign.json || fail "values of the foreign file differ: $what"
done
checked=$((checked + 3))

# ---- an archive

mkdir plain
cp in.safetensors plain/model.safetensors
"$program" convert plain -o packed --to w4a8-ct -q || fail "convert"
"$program" convert plain -o archive --to w4a8-ct -q --zstd || fail "convert --zstd"
[ -e archive/model.safetensors.zst ] || fail "no archive was written"
for what in '--at 3,100' '--offset 777' '--values 30:,0:3'; do
    # shellcheck disable=SC2086
    "$program" dump packed l.q_proj $what >plain.txt || fail "directory: $what"
    # shellcheck disable=SC2086
    "$program" dump archive l.q_proj $what >archive.txt || fail "archive: $what"
    cmp -s plain.txt archive.txt || fail "the archive gives other answers: $what"
    checked=$((checked + 1))
done

# ---- on a terminal

# Lines of cells are as long as the terminal, and at most 92 columns.
widest() { # columns of the terminal
    script -qec "stty cols $1; '$program' dump q.safetensors l.q_proj --color never" /dev/null \
        </dev/null | tr -d '\r' | grep -E '^ +[0-9]+  [0-9]+,' | awk '
        length > most {most = length} END {print most}'
}
if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    checked=$((checked + 1))
    got=$(widest 80) wide=$(widest 200)
    if ((got < 40 || got > 80 || wide <= 80)); then
        failed=1
        echo "FAIL cells take $got columns of 80, $wide of 200"
    fi
else
    echo 'skipped: script makes no terminal here'
fi

# ---- refusals

refuses 2 "tilepack: error: q.safetensors: there is no tensor or weight 'l.q_porj'" \
    "did you mean 'l.q_proj'?" q.safetensors l.q_porj
refuses 2 "tilepack: error: q.safetensors: there is no tensor or weight '_scale'" \
    "did you mean 'l.q_proj.weight_chan_scale'?" \
    q.safetensors _scale
refuses 2 "tilepack: error: q.safetensors: there is no tensor or weight 'embeddings'" \
    "'tilepack dump q.safetensors' lists the tensors" q.safetensors embeddings
refuses 2 "tilepack: error: tensor 'l.q_proj': element e=0 n=32 k=0 is outside of the box \
[1,32,128]" 'e is 0 to 0, n 0 to 31, k 0 to 127' q.safetensors l.q_proj --at 32,0
refuses 2 "tilepack: error: tensor 'l.q_proj.weight_packed': byte 2048 is outside of the tensor, \
which has 2048 bytes" "offsets are counted from the beginning of the tensor's data" \
    q.safetensors l.q_proj --offset 2048
refuses 2 "tilepack: error: tensor 'l.q_proj': n=32 is outside of the box [1,32,128]" \
    'n is 0 to 31' q.safetensors l.q_proj --values 32:33,0:1
refuses 2 "tilepack: error: tensor 'l.q_proj': e=1 is outside of the box [1,32,128]" \
    'e is 0 to 0' q.safetensors l.q_proj --values 0:1,0:1 --expert 1
refuses 2 'tilepack dump: --at needs a tensor' "'tilepack dump PATH' lists the tensors" \
    q.safetensors --at 0,0
refuses 2 'tilepack dump: --at, --offset and --values exclude each other' \
    'ask for one at a time' q.safetensors l.q_proj --at 0,0 --offset 0
# The largest number is no sign of an option that was not given.
refuses 2 "tilepack dump: --offset '18446744073709551615': it is beyond what a file can hold" \
    "'tilepack dump --help' lists what it takes" q.safetensors l.q_proj \
    --offset 18446744073709551615
refuses 2 'tilepack dump: --expert goes with --values' \
    'with --at the expert is the first of three numbers: --at E,N,K' \
    q.safetensors l.q_proj --expert 0

((failed)) || echo "dump: $checked command lines right"
exit "$failed"
