#!/bin/sh
# Tensor-parallel output: for every format and 2 and 4 ranks, the values of each rank
# are slices of the whole's (tp_slices.py), every rank verifies, and `join` gives back
# the conversion without --tp, equal in every file. Then parts, archives, sources that
# are packed already, interruption, and everything that must be refused.
# TILEPACK_TEST_FORMATS: the formats to test (all).
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
convert() { # source, output, options ...
    from=$1 to=$2
    shift 2
    "$TILEPACK" convert "$work/$from" -o "$work/$to" -j 2 --device cpu -q "$@"
}
join() { "$TILEPACK" join "$work/$1" -o "$work/$2" -j 2 -q; }
slices() { "$PYTHON" "$TESTS/bytes/tp_slices.py" "$work/$1" "$work/$2" "$3"; }
make_model() { # name, options ...
    model=$1
    shift
    "$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/$model" --layers 1 --hidden 512 \
        --inter 2048 --heads 16 --kv-heads 8 --head-dim 128 --vocab 128 "$@" --quiet >/dev/null ||
        exit 1
    echo '{"tokens": 1}' >"$work/$model/tokenizer.json"
}

make_model moe --moe-experts 2 --moe-style mixtral --shard-mb 4
make_model dense --shard-mb 4
make_model fused --moe-experts 2 --moe-fused --shard-mb 8
# Formats that differ from one of the others in a layout or in names alone: of four one is tried.
alike='awq nvfp4-trtllm-token w4a8-flashinfer-sm90 mxfp4-flashinfer-sm90-fp8 mxfp8-comfy fp8-tensor-ct w4a16-machete w8a16-machete w8a16-marlin w8a16-marlin-channel
       w4a16-marlin-channel mxfp8-marlin w8a16-ct fp8-tensor-trtllm fp8-trtllm mxfp8-trtllm
       mxfp4-trtllm mxfp4-cutlass-moe mxfp4-megamoe mxfp4-triton-blackwell nvfp4-comfy
       nvfp4-cutedsl nvfp4-cutlass-moe nvfp4-vllm-cutlass nvfp4-marlin fp8-marlin fp8-marlin-channel
       bf16-trtllm nvfp4-marlin-64 w4a8-int8-marlin-channel'
# shellcheck disable=SC2086 # a list of words
formats=${TILEPACK_TEST_FORMATS:-$("$TILEPACK" formats --json |
    "$PYTHON" -c 'import json, sys
print(*[f["name"] for f in json.load(sys.stdin)["formats"]
        if not f.get("input_only", f.get("written") is False)
        and f["name"] not in sys.argv[1:]])' $alike)}

for format in $formats; do
    case $format in *-ct | fp8-deepseek) model=dense ;; *) model=moe ;; esac
    convert $model whole --to "$format" --weights-only --shard-size 6MB || bad "convert --to $format"
    for ranks in 2 4; do
        convert $model cut --to "$format" --weights-only --shard-size 6MB --tp $ranks || bad "$format --tp $ranks"
        check "$format, $ranks ranks: slices of the whole" slices whole cut $ranks
        for rank in "$work/cut"/rank_*; do
            check "$format, $(basename "$rank") of $ranks verifies" \
                "$TILEPACK" verify "$rank" --against "$work/$model" -q
        done
        check "$format, $ranks ranks: join" join cut joined
        check "$format, $ranks ranks: joined equals uncut in every file" \
            diff -r "$work/whole" "$work/joined"
        rm -rf "$work/cut" "$work/joined"
    done
    rm -rf "$work/whole"
done

# A rank that is not what the source gives, and one that is another's.
convert moe cut --to w4a8-cutlass --tp 2
check "dump shows the ranks one after the other" sh -c "
    '$TILEPACK' dump '$work/cut' >'$work/table' &&
    grep -q '/cut/rank_0:\$' '$work/table' && grep -q '/cut/rank_1:\$' '$work/table' &&
    test \$(grep -c 'experts.w2' '$work/table') -ge 2"
shard=$work/cut/rank_1/model.safetensors
printf 'xy' | dd of="$shard" bs=1 seek=$(($(wc -c <"$shard") - 2000000)) conv=notrunc 2>/dev/null
check "verify --against finds a changed byte in a rank" sh -c "
    '$TILEPACK' verify '$work/cut/rank_1' --against '$work/moe' |
        grep 'not those that the source gives' || exit 3
    '$TILEPACK' verify '$work/cut/rank_1' --against '$work/moe' -q; test \$? = 1"
check "unpack of a rank: slices of plain weights" "$TILEPACK" unpack "$work/cut/rank_0" \
    -o "$work/plain0" --dtype f32 -q
"$TILEPACK" dump "$work/plain0" >"$work/table"
check "with their shapes" sh -c "
    grep -q 'experts.1.w1.weight *F32 *\[1024,512\]' '$work/table' &&
    grep -q 'experts.1.w2.weight *F32 *\[512,1024\]' '$work/table' &&
    grep -q 'k_proj.weight *F32 *\[512,512\]' '$work/table'"
rm -rf "$work/cut" "$work/plain0"

# From packed sources: taken over into another format, and cut as they are.
set -- --shard-size 6MB
convert dense ct --to mxfp8-ct "$@"
convert ct blocked --to mxfp8-blocked "$@"
convert ct blocked4 --to mxfp8-blocked "$@" --tp 4
check "repacked: slices" slices blocked blocked4 4
check "repacked: join" join blocked4 blocked1
check "repacked: joined equals uncut" diff -r "$work/blocked" "$work/blocked1"
convert blocked same --to mxfp8-blocked "$@"
convert blocked same2 --to mxfp8-blocked "$@" --tp 2
check "already packed: slices" slices same same2 2
check "already packed: join" join same2 same1
check "already packed: joined equals uncut" diff -r "$work/same" "$work/same1"

# Stacks that the source holds fused: gate and up are cut by themselves.
convert fused stack --to mxfp8-torchao3d
convert fused stack4 --to mxfp8-torchao3d --tp 4
check "fused stacks: slices" slices stack stack4 4
check "fused stacks: join" join stack4 stack1
check "fused stacks: joined equals uncut" diff -r "$work/stack" "$work/stack1"

# Experts without a gate: the rows of their one matrix follow each other, also in a rank.
"$PYTHON" - "$work/moe" "$work/ungated" "$TESTS/lib" <<'END'
import os, sys
sys.path.insert(0, sys.argv[3])
import stfile, tool
tensors, _ = tool.load(sys.argv[1])
os.makedirs(sys.argv[2])
stfile.save(os.path.join(sys.argv[2], "model.safetensors"),
            {name: t for name, t in tensors.items() if ".experts." in name and ".w3." not in name})
END
convert ungated one --to mxfp8-torchao3d
for from in ungated one; do
    convert $from one2 --to mxfp8-torchao3d --tp 2
    check "experts without a gate from $from: slices" slices one one2 2
    check "experts without a gate from $from: join" join one2 one1
    check "experts without a gate from $from: joined equals uncut" \
        cmp "$work/one/model.safetensors" "$work/one1/model.safetensors"
    rm -rf "$work/one1" "$work/one2"
done
rm -rf "$work/one"

# Parts, archives.
convert moe one --to w4a8-cutlass "$@" --tp 2
for part in 2 1 3; do
    convert moe parts --to w4a8-cutlass "$@" --tp 2 --part $part/3 || bad "part $part/3 of ranks"
done
check "parts of ranks merge" "$TILEPACK" merge "$work/parts"
check "parts of ranks equal one process in every file" diff -r "$work/one" "$work/parts"
check "and are complete" sh -c "'$TILEPACK' merge '$work/parts' | grep -q 'complete already'"
mv "$work/parts/rank_1" "$work/away"
fails "but not without one of the ranks" 2 "there are no parts of this output" \
    "$TILEPACK" merge "$work/parts"
mv "$work/away" "$work/parts/rank_1"
echo >>"$work/parts/rank_1/tilepack.json"
fails "nor not where a manifest has changed" 2 "there are no parts of this output" \
    "$TILEPACK" merge "$work/parts"
convert moe plain --to w4a8-cutlass "$@"
convert moe zst --to w4a8-cutlass "$@" --tp 2 --zstd
check "compressed ranks join" join zst unzst
check "compressed ranks join to the plain whole" diff -r "$work/plain" "$work/unzst"

# Killed at several moments: what the journals name is kept, the rest made again.
for what in cut joined; do
    if [ $what = cut ]; then
        set -- "$TILEPACK" convert "$work/moe" -o "$work/cut" --to w4a8-cutlass --shard-size 6MB \
            --tp 2 -j 1 --device cpu
        like=one
    else
        set -- "$TILEPACK" join "$work/one" -o "$work/joined" -j 1
        like=plain
    fi
    killed=0 tries=0 delay=0.02
    while [ $killed -lt 4 ] && [ $tries -lt 40 ]; do
        tries=$((tries + 1))
        TILEPACK_DISABLE=avx512,avx2 timeout --foreground -s KILL "$delay" "$@" -q >/dev/null 2>&1
        if [ -d "$work/$what.partial" ]; then
            killed=$((killed + 1)) factor=1.2
        elif [ ! -d "$work/$what" ]; then # too early
            factor=1.5
        elif [ $killed -gt 0 ]; then # complete
            break
        else
            rm -rf "${work:?}/$what"
            factor=0.8
        fi
        delay=$(awk "BEGIN { print $delay * $factor }")
    done
    check "$what: $killed times interrupted" test $killed -gt 0
    check "$what: and again" "$@" -q
    check "$what: equal after interruptions" diff -r "$work/$like" "$work/$what"
    check "$what: once more" sh -c "$(printf "'%s' " "$@") | grep -q 'complete already'"
    check "$what: --force" "$@" --force -q
    check "$what: equal after --force" diff -r "$work/$like" "$work/$what"
    rm -rf "${work:?}/$what"
done

# What is refused.
fails "ranks between tiles" 4 "--tp may be 1, 2, 4 for" \
    convert dense no --to fp8-deepgemm-sm100 --tp 8
fails "and says where" 4 "multiples of 128" convert dense no --to mxfp8-blocked --tp 8 \
    --exclude 'self_attn|down_proj' --include gate_proj --tp 32
fails "heads" 4 "8 key/value heads cannot be divided among 16 ranks" \
    convert dense no --to w4a8-cutlass --tp 16
# Wherever config.json says it, and whatever else Python has written there.
cat >"$work/elsewhere.py" <<'EOF'
import json
import sys

source, target, key = sys.argv[1:]
with open(source + "/config.json") as f:
    text = json.load(f)
with open(target + "/config.json", "w") as f:
    json.dump({"time_step_limit": [0.0, float("inf")], "seed": 2 ** 64, key: text}, f)
EOF
mkdir "$work/elsewhere"
cp "$work/dense"/*.safetensors* "$work/elsewhere"
for key in text_config llm_config language_config; do
    "$PYTHON" "$work/elsewhere.py" "$work/dense" "$work/elsewhere" $key
    fails "heads in $key" 4 "8 key/value heads cannot be divided among 16 ranks" \
        "$TILEPACK" plan "$work/elsewhere" --to w4a8-cutlass --tp 16
done
unsaid="heads of attention there are: see that 16 divides their number"
echo '{"num_attention_heads": Infinity}' >"$work/elsewhere/config.json"
fails "heads that are no number" 0 "k_proj: config.json does not tell how many $unsaid" \
    "$TILEPACK" plan "$work/elsewhere" --to mxfp8-ct --tp 16
rm "$work/elsewhere/config.json"
fails "heads that nothing tells" 0 "k_proj: there is no config.json to tell how many $unsaid" \
    "$TILEPACK" plan "$work/elsewhere" --to mxfp8-ct --tp 16
rm -rf "$work/elsewhere"
# A packed bias has the heads of its weight, which is the one that is named.
"$PYTHON" "$TESTS/other/vllm/checkpoints.py" gptoss "$work/biased" 256 256 || exit 1
fails "heads of a weight with a bias" 4 "self_attn.q_proj': 4 heads cannot be divided among 8" \
    "$TILEPACK" plan "$work/biased" --to w4a16-marlin --include q_proj --tp 8
rm "$work/biased/config.json"
fails "heads that nothing tells of such" 0 "self_attn.q_proj: there is no config.json to tell" \
    "$TILEPACK" plan "$work/biased" --to w4a16-marlin --include q_proj --tp 2
rm -rf "$work/biased"
fails "a dry run refuses, too" 4 "--tp may be" \
    "$TILEPACK" plan "$work/dense" --to mxfp8-blocked --tp 3
check "a dry run counts" sh -c "'$TILEPACK' plan '$work/dense' --to mxfp8-blocked --tp 2 |
    grep -q '^2 ranks of .*: 5 weights cut along N, 2 along K'"
"$TILEPACK" plan "$work/dense" --to mxfp8-blocked --tp 2 --shard-size 6MB --json >"$work/tp.json"
check "the plan to be checked is written" convert dense planned --to mxfp8-blocked --tp 2 \
    --shard-size 6MB
check "the plan's JSON has every file of every rank, and its size" "$PYTHON" -c '
import json, os, sys
plan = json.load(open(sys.argv[1]))
tp, made = plan["tp"], sys.argv[2]
assert tp["ranks"] == 2 and tp["cut"] == {"none": 0, "N": 5, "K": 2}, tp["cut"]
assert [u["cut"] for u in plan["units"]].count("K") == 2
for r, rank in enumerate(tp["plans"]):
    assert rank["directory"] == f"rank_{r}"
    folder = os.path.join(made, rank["directory"])
    written = {n: os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder)
               if n.endswith(".safetensors")}
    assert len(written) > 1 and {f["name"]: f["size"] for f in rank["files"]} == written
    assert 0 < sum(written.values()) - rank["bytes_out"] < 65536 * len(written)
' "$work/tp.json" "$work/planned"
fails "a single file" 2 "a single file cannot be written for several ranks" \
    convert dense no.safetensors --to mxfp8-ct --tp 2
fails "join of no ranks" 2 "there are no ranks here" join plain no
fails "join without an output" 2 "no output" "$TILEPACK" join "$work/one"
fails "join into a file" 2 "directory" "$TILEPACK" join "$work/one" -o "$work/no.safetensors"
for change in 'rm' 'sed -i 1s/^/x/'; do
    cp -r "$work/one" "$work/hurt"
    $change "$work/hurt/rank_0/tokenizer.json"
    fails "a small file, $change" 3 "hurt/rank_0/tokenizer.json: " join hurt no
    check "what to do" grep -q "hint: take the file of that conversion" "$work/err"
    check "before anything is written" test ! -e "$work/no.partial"
    rm -r "$work/hurt"
done
echo mine >"$work/one/rank_0/notes.txt"
fails "a file that was added to rank 0" 3 "rank_0/notes.txt: the conversion did not write it" \
    join one no
check "before anything is written" test ! -e "$work/no.partial"
mv "$work/one/rank_0/notes.txt" "$work/one/rank_1/notes.txt"
check "one of another rank is not read" join one one-with-notes
rm "$work/one/rank_1/notes.txt"
fails "join over something else" 2 "exists already" join one dense
mv "$work/one/rank_1" "$work/away"
fails "a missing rank" 3 "rank 1 of 2 is missing" join one no
ln -s rank_1 "$work/one/rank_1"
fails "one that cannot be looked at is not missing" 5 "rank_1: cannot look at the file" join one no
rm "$work/one/rank_1"
cp -r "$work/one/rank_0" "$work/one/rank_1"
fails "a rank twice" 3 "this is not rank 1 of this conversion" join one no
rm -r "$work/one/rank_1"
mv "$work/away" "$work/one/rank_1"
mv "$work/one/rank_1/tilepack.json" "$work/away"
fails "a rank without its manifest" 3 "rank 1 has no tilepack.json" join one no
answers "verify says so, too" 1 "rank 1 has no tilepack.json" "$TILEPACK" verify "$work/one"
mv "$work/away" "$work/one/rank_1/tilepack.json"
cp "$work/one/tilepack-tp.json" "$work/signed.json"
sed 's/"along": "K"/"along": "N"/' "$work/signed.json" >"$work/one/tilepack-tp.json"
fails "a change of what has a checksum" 3 "its own hash is wrong" join one no
# As 0.1.0 wrote it, without a checksum, what is said is looked at all the same.
sed '/^ "xxh3"/d; /^ "rank_files"/,/^ \]/d; s/"tilepack_tp": 2/"tilepack_tp": 1/' \
    "$work/signed.json" >"$work/good.json"
sed 's/"along": "K"/"along": "N"/' "$work/good.json" >"$work/one/tilepack-tp.json"
fails "cuts that are not those" 3 "tilepack-tp.json" join one no
sed 's/"header": "{/"header": "[/' "$work/good.json" >"$work/one/tilepack-tp.json"
fails "headers that are none" 3 "tilepack-tp.json" join one no
head -c 1000 "$work/good.json" >"$work/one/tilepack-tp.json"
fails "a file cut off" 3 "tilepack-tp.json" join one no
sed 's/^\( *\)512$/\11024/' "$work/good.json" >"$work/one/tilepack-tp.json"
fails "another shape" 3 "another shape or format" join one no
cp "$work/good.json" "$work/one/tilepack-tp.json"
check "and as it was" join one no

finish
