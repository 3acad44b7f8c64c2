#!/bin/sh
# `dump`: weights by the source's own names and by the ends of names, patterns, and layers and
# experts folded, in a table and as a tree.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/tiny" --preset tiny-mixtral >/dev/null || exit 1
cd "$work" || exit 1
dump() { "$TILEPACK" dump "$@"; }
for format in w4a8-cutlass nvfp4-ct; do
    "$TILEPACK" convert tiny -o $format --to $format --quiet || exit 1
done
experts=model.layers.1.block_sparse_moe.experts

# The same element, whatever the weight is called.
same() { # path, name, full name, coordinates
    dump "$1" "$2" --at "$4" >a && dump "$1" "$3" --at "${5:-$4}" >b && cmp a b
}
q=model.layers.0.self_attn.q_proj
for format in w4a8-cutlass nvfp4-ct; do
    check "$format: the source's name" same $format $q.weight $q 3,40
    check "$format: the end of a name" same $format layers.0.self_attn.q_proj $q 3,40
    check "$format: the end of a tensor's" same $format 0.self_attn.q_proj.weight_packed $q 3,40
done
check 'an expert of a stack is found, with its rows' \
    same w4a8-cutlass $experts.3.w3.weight $experts.w13 3,40 3,515,40
check 'the first part too' same w4a8-cutlass $experts.2.w1.weight $experts.w13 3,40 2,3,40
check 'without .weight' same w4a8-cutlass $experts.2.w2 $experts.w2 3,40 2,3,40
check 'by its end' same w4a8-cutlass layers.1.block_sparse_moe.experts.2.w2 $experts.w2 3,40 2,3,40
dump w4a8-cutlass $experts.3.w3.weight --values 510:,0:4 --json | jq -c '[.expert, .n]' >a
check 'values end with its rows' test "$(cat a)" = '[3,[1022,1024]]'
dump w4a8-cutlass $experts.1.w1 --values 510:,0:4 --json | jq -c '[.expert, .n]' >a
check 'not with those of the weight' test "$(cat a)" = '[1,[510,512]]'
fails 'no such expert' 2 'there is no tensor or weight' dump w4a8-cutlass $experts.4.w3.weight
fails 'rows beyond its own' 2 'outside' dump w4a8-cutlass $experts.3.w3.weight --at 512,0
its_own() { fails "not of this name: $*" 2 'is outside of the tensor of the source' dump "$@"; }
its_own w4a8-cutlass $experts.0.w1 --at 512,0
its_own w4a8-cutlass $experts.1.w1 --at 1,0,0
its_own w4a8-cutlass $experts.1.w3 --at 18446744073709551615,0
its_own w4a8-cutlass $experts.1.w1 --values 0:1,0:1 --expert 1
its_own w4a8-cutlass $experts.1.w1 --values 512:513,0:1
its_own w4a8-cutlass $experts.1.w3 --values 18446744073709551104:,0:1
fails 'two end so' 2 "2 names end in 'q_proj'" dump w4a8-cutlass q_proj
fails 'one is named, and how to list them' 2 "such as '$q'; the pattern '*.q_proj*' lists them" \
    dump w4a8-cutlass q_proj
fails 'a part of a word is no end' 2 'there is no tensor' dump w4a8-cutlass 0.self_attn.q_pro
check 'a plain tensor by its end' same tiny norm.weight model.norm.weight 0,3

# Patterns list.
listed() { dump "$@" --json | jq -r '.tensors[].name'; }
listed w4a8-cutlass >all
check 'a glob is for whole names' test "$(listed w4a8-cutlass '*q_proj*')" = "$(grep q_proj all)"
check 'or names of weights' test "$(listed w4a8-cutlass '*.q_proj')" = "$(grep q_proj all)"
check 'glob:' test "$(listed w4a8-cutlass 'glob:*norm.weight')" = "$(grep 'norm\.weight$' all)"
check 're: is found anywhere' test "$(listed w4a8-cutlass 're:layers\.1.*_packed')" = \
    "$(grep 'layers\.1.*_packed' all)"
check 'and counts what it lists' test "$(dump w4a8-cutlass '*.1.*q_proj*' | tail -n 1)" = \
    '4 tensors, 37.9 kB in 1 file; w4a8-cutlass: 1 weight'
fails 'nothing matches' 2 "no tensor or weight matches '*down*'" dump tiny '*down*'
fails 'a broken one' 2 'missing closing parenthesis' dump tiny 're:('
check 'and what one is' grep -q "hint: a pattern is a glob with .*behind 're:'" "$work/err"
fails 'a broken glob, as it is read' 2 "the pattern 'glob:[a': this set is never closed, at offset 5" \
    dump tiny '[a'
fails 'a pattern has no element' 2 'a pattern stands for several tensors' dump tiny '*norm*' --at 0,0

# Folded: as many tensors and bytes as without.
dump nvfp4-ct --fold >folded
check 'one line for all layers and experts' test "$(grep -c 'experts' folded)" = 9
check 'with their number' grep -qE \
    '^model\.layers\.\*\.block_sparse_moe\.experts\.\*\.w2\.weight_packed +8 +U8 +\[256,256\] +524 kB' folded
check 'all are counted' test "$(awk '/^$/ { exit } NR > 1 { n += $2 } END { print n }' folded)" = \
    "$(dump nvfp4-ct --json | jq '.tensors | length')"
check 'the last line is the same' test "$(tail -n 1 folded)" = "$(dump nvfp4-ct | tail -n 1)"
dump nvfp4-ct 're:experts\.[0-2]\.w2|norm' --tree >tree
cat >wanted <<'TEXT'
tensor                               count  dtype    shape         size  holds
model
  layers.0-1
    block_sparse_moe.experts.0-2.w2
      weight_global_scale                6  F32      [1]           24 B  nvfp4-ct global
      weight_packed                      6  U8       [256,256]   393 kB  nvfp4-ct codes
      weight_scale                       6  F8_E4M3  [256,32]   49.2 kB  nvfp4-ct scale
    input_layernorm.weight               2  BF16     [256]      1.02 kB
    post_attention_layernorm.weight      2  BF16     [256]      1.02 kB
  norm.weight                            1  BF16     [256]        512 B

23 tensors, 445 kB in 1 file; nvfp4-ct: 6 weights
TEXT
check 'the tree' diff -u wanted tree
"$PYTHON" - <<'TEXT'
import json, struct
text = json.dumps({"1." * 100000 + "q.weight": {"dtype": "BF16", "shape": [1],
                                                "data_offsets": [0, 2]}}).encode()
open("deep.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(2))
TEXT
check 'a name of 100,000 numbers is a line at once' timeout 5 "$TILEPACK" dump deep.safetensors --tree
fails 'one or the other' 2 'exclude each other' dump tiny --fold --tree
fails 'not of one tensor' 2 'are for several tensors' dump tiny model.norm.weight --tree
fails 'JSON lists all' 2 'without --fold and --tree' dump tiny --json --tree
finish
