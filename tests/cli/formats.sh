#!/bin/bash
# `tilepack formats`: the list, one format in full, and JSON that is the format file.
# Usage: formats.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
root=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[[ -x $program ]] || { echo "FAIL: there is no $program"; exit 1; }
cd "$work" || exit 1
failed=0 checked=0
fail() {
    failed=1
    printf 'FAIL formats: %s\n' "$1"
}

# Every format file is in the list, in order, and the other way round.
"$program" formats >list 2>err || fail "status $?: $(cat err)"
[[ ! -s err ]] || fail "the list prints on stderr: $(cat err)"
sed '1d; /^$/,$d; s/ .*//' list >listed
for file in "$root"/formats/*.json; do basename "$file" .json; done | LC_ALL=C sort >files
cmp -s listed files || fail "listed and there: $(diff listed files)"
[[ $(head -n 1 list) =~ ^'name '+'loads in '+'what it is'$ ]] || fail "heading: $(head -n 1 list)"
grep -q '^w4a8-ct   *vLLM, transformers (unchanged)   *int4 weights in groups of 128' list ||
    fail 'w4a8-ct is not described'

# One format in full.
cat >wanted <<'TEXT'
mxfp8-torchao3d: MXFP8 of (E,N,K) experts in blocks of 32 along N, column-major, scales in 128x4 tiles

torchao's mxfp8_quantize_cuda_3d: codes with strides (N*K,1,N), stored as
[E,K,N]; the scale matrix of an expert has K rows and N/32 columns.

loads in      torchao grouped GEMM
source        torchao 36027d82
codec         mxfp8, a scale for each block of 32x1 (n x k)
experts       stacked: w13_ = [gate; up] along N, and w2_ (--no-stack: apart)
direction     read and written
needs         N in multiples of 32: a block is 32 output features
              K in multiples of 32 (with block=32x32): a block is 32 input
              features
wants         K in multiples of 32: torchao's GPU kernel takes K in multiples of
              32

parameters
  --set scale=rceil|floor   (default rceil)
              scale rule: rceil never saturates, floor is the OCP rule
  --set block=32x1|32x32   (default 32x1)
              block over which a scale is computed; 32x32 scales are stored for
              each of their 32 columns

outputs, for W[E,N,K]; a 2-D weight has E = 1 and shapes without E;
S is the weight's name without .weight
  with R = align(K,128), C = align(N/32,4)
  S.weight  F8_E4M3 [E, K, N]
    holds     codes: e4m3, one for each element of W
    layout    (E,N,K):(N*K,1,N)
    padding   0x00
  S.weight_scale  U8 [E, R*C]
    holds     scale: e8m0, one for each block of 32x1 (n x k) elements of W
    layout    (E,(4,C/4),(32,4,R/128)):(R*C,(1,512),(16,4,128*C))
    padding   0x00
TEXT
"$program" formats mxfp8-torchao3d >out || fail 'mxfp8-torchao3d'
diff -u wanted out || fail 'mxfp8-torchao3d is described otherwise'
checked=$((checked + 2))

# The table of codes, and constants.
"$program" formats w4a8-cutlass >out || fail 'w4a8-cutlass'
tail -n 3 out >table
diff -u - table <<'TEXT' || fail 'the code table is another one'
code table: the stored nibble of each value
  value   -8  -7  -6  -5  -4  -3  -2  -1   0   1   2   3   4   5   6   7
  stored   8   9   a   b   c   d   e   f   0   7   6   5   4   3   2   1
TEXT
grep -q '^    words     N/16, K/32, 32\*N$' out || fail 'no layout words'

# Choices, the default, and other names of choices.
grep -q '^  --set scale=gpu|cpu|div   (default gpu)$' out || fail 'no channel rules'
grep -q '^              rcp is another name of cpu$' out || fail 'no other name of a choice'

# Every format prints, in lines without blanks at their ends; JSON is the file itself.
while read -r name; do
    "$program" formats "$name" >out 2>err || fail "$name: status $?"
    [[ $(head -n 1 out) == "$name: "* ]] || fail "$name: $(head -n 1 out)"
    ! grep -n ' $' out || fail "$name: blanks at the end of lines"
    "$program" formats "$name" --json >out.json || fail "$name --json"
    if command -v jq >jq.path; then
        [[ $(jq -cS '.formats[0]' out.json) == "$(jq -cS . "$root/formats/$name.json")" ]] ||
            fail "$name --json is not its file"
    fi
    checked=$((checked + 2))
done <files

"$program" formats mxfp7 >out 2>err
status=$?
[[ $status == 2 && ! -s out ]] || fail "an unknown format: status $status, $(cat out)"
[[ $(cat err) == "tilepack formats: there is no format 'mxfp7'
  hint: the formats are $(paste -sd, files | sed 's/,/, /g')" ]] || fail "message: $(cat err)"

# docs/formats.md is made from what the program says.
"${PYTHON:-python3}" "$root/scripts/formats_md.py" "$program" --check "$root/docs/formats.md" ||
    fail 'docs/formats.md is another; run: python3 scripts/formats_md.py PROGRAM > docs/formats.md'

((failed)) || echo "formats: $((checked + 1)) command lines right"
exit "$failed"
