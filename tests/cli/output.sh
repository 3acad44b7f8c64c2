#!/bin/sh
# The output's place: what --force replaces and what becomes of that, what it stops for, names up to
# the length that a file system allows, the current directory.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/read_fails.sh
. "$TESTS/lib/read_fails.sh"
nothing_beside() { ! find "$work" -name '*.partial*' | grep .; }
names() { # how many letters
    printf '%*s' "$1" '' | tr ' ' n
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
echo '{}' >"$work/model/tokenizer.json"
echo notes >"$work/model/notes.of-mine"

# What is there and none of ours is replaced, and kept.
mkdir "$work/results"
echo data >"$work/results/results.csv"
fails "a folder of somebody's" 7 "exists already, and is none of tilepack's" convert results -q
fails "nor for parts" 7 "none of tilepack's" convert results -q --part 1/2
answers "is replaced, and kept" 0 "what was replaced is kept as $work/results.old: it has no manifest" \
    convert results --force
check "as it was" grep -qx data "$work/results.old/results.csv"
check "the output is whole" "$TILEPACK" verify "$work/results" -q
fails "but not twice" 7 "what an earlier --force has replaced is here" convert results -q --force
check "before the work" nothing_beside
fails "whatever it is" 7 "results.old" sh -c "rm -r '$work/results.old' && : >'$work/results.old' &&
    '$TILEPACK' convert '$work/model' -o '$work/results' --to fp8-ct --device cpu -q --force"
rm "$work/results.old"
check "nor is it in a conversion's way that replaces nothing" convert results -q
check "what is ours goes" convert results -q --force --shard-size 1MB
check "for good" test ! -e "$work/results.old"
check "and is of the new options" test "$(find "$work/results" -name "*.safetensors" | wc -l)" -gt 1
mkdir "$work/empty"
check "an empty folder makes way unasked" convert empty -q

# All of ours goes, or nothing.
kept() { # why, command that changes it
    rm -rf "$work/kept.old"
    check "an output: $1" convert kept -q --force --shard-size $((i += 1))MB
    rm -rf "$work/kept.old"
    (cd "$work/kept" && eval "$2")
    find "$work/kept" | sort | sed 's/kept/kept.old/' >"$work/listed"
    answers "is kept: $1" 0 "kept.old: $1" convert kept --force --shard-size $((i += 1))MB
    check "$1: all of it" sh -c "find '$work/kept.old' | sort | cmp '$work/listed'"
    check "$1: the new one is whole" "$TILEPACK" verify "$work/kept" -q
}
i=0
small='notes.of-mine'
kept "'eval.csv' in it is not in its manifest" 'echo data >eval.csv'
kept "'.hidden' in it is not in its manifest" 'echo data >.hidden'
kept "'$small' in it is changed since it was written" "echo other >$small"
kept "'config.json' in it is changed since it was written" \
    'tr 1 2 <config.json >c; cat c >config.json; rm c'
kept "'$small' in it is of another size than its manifest says" "echo more >>$small"
kept "'model.safetensors' in it is of another size" 'truncate -s 1000 model.safetensors'
kept "'$small' in it is no plain file" "rm $small; ln -s ../model/$small"
kept "'$small' in it is a file of several names" "ln $small ../second"
rm "$work/second"
kept "'mine' in it is no plain file" 'mkdir mine'
kept "it has no manifest, as tilepack writes one" 'echo >>tilepack.json'
kept "it has no manifest, as tilepack writes one" 'rm tilepack.json'
rm -rf "$work/kept" "$work/kept.old"
check "what is gone from it is no reason" sh -c "'$TILEPACK' convert '$work/model' -o '$work/lacking' \
    --to fp8-ct -q && rm '$work/lacking/config.json'"
fails "it is not complete" 7 "not complete: 'config.json' is not there, or of another size" \
    convert lacking -q
check "is replaced" convert lacking -q --force
check "and goes" test ! -e "$work/lacking.old"
cp -r "$work/model" "$work/foldered"
mkdir "$work/foldered/code"
echo text >"$work/foldered/code/notes.txt"
of_foldered() {
    "$TILEPACK" convert "$work/foldered" -o "$work/of-foldered" --to fp8-ct --device cpu "$@"
}
check "an output with a folder" of_foldered -q
answers "is kept, too" 0 "'code' in it is no plain file" of_foldered --force --shard-size 1MB
rm -rf "$work/of-foldered" "$work/of-foldered.old" "$work/foldered"

# Between the step and the end: the next run ends what one that was killed has left to do.
left() { # what the run had replaced, by a name that it has until it is settled
    rm -rf "$work/left" "$work/left.old" "$work/left.partial"
    check "an output" convert left -q
    : >"$work/left/.tilepack-journal"
    : >"$work/left/.tilepack-replaces"
    check "and what it replaced: $1" convert "$1" -q --shard-size 1MB
    check "the same command ends it" convert left -q
    check "$1 is gone" test ! -e "$work/left.old" -a ! -e "$work/left.partial"
    check "and nothing else" "$TILEPACK" verify "$work/left" -q
    check "no note is left" test -z "$(find "$work/left" -name '.tilepack*')"
}
left left.partial
left left.old
rm -rf "$work/left"
check "a journal alone, whose run had no time to remove it" sh -c "'$TILEPACK' convert '$work/model' \
    -o '$work/left' --to fp8-ct -q && : >'$work/left/.tilepack-journal'"
check "a stranger's folder beside it" mkdir -p "$work/left.old/mine"
check "goes" convert left -q
check "and the stranger's folder stays" rm -r "$work/left.old/mine" "$work/left.old"

# What is refused before the first shard leaves nothing, above all no unfinished output.
fails "memory for what was asked" 6 "more memory is needed: --max-memory" convert refused -q --zstd --max-memory 32MiB
check "leaves nothing beside the output" nothing_beside
enough=$(sed -n 's/^  hint: \(--max-memory [0-9]*MiB\) is enough$/\1/p' "$work/err")
check "how much is enough is said" test -n "$enough"
# shellcheck disable=SC2086 # an option and its value
check "and is" convert enough -q --zstd $enough
rm -r "$work/enough"

# A file, too: text, random bytes, and what begins with a length that a header may have.
shard=$(echo "$work"/model/*-00001-of-*.safetensors)
file() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert "$shard" -o "$work/$to" --to fp8-ct --device cpu -q "$@"
}
for to in mine.safetensors mine.safetensors.zst; do
    i=0
    for content in 'text' '\125\252\377\0\1\2\3\4\5\6\7\10' '\20\0\0\0\0\0\0\0' \
        '\20\0\0\0\0\0\0\0a record that has its length before it' \
        '\50\265\57\375\40\20\201\0\0text of archive!'; do
        i=$((i + 1))
        # shellcheck disable=SC2059 # the bytes of the file
        printf "$content" >"$work/$to"
        cp "$work/$to" "$work/was"
        fails "one without it" 7 "exists already" file "$to"
        check "--force replaces $to, content $i" file "$to" --force
        check "and keeps it" cmp "$work/$to.old" "$work/was"
        echo more >"$work/$to"
        fails "but not twice" 7 "what an earlier --force has replaced" file "$to" --force
        rm "$work/$to.old"
    done
    : >"$work/$to"
    fails "an empty one stops what has no --force" 7 "exists already" file "$to"
    check "with the hint of --force" grep -q -e "--force replaces it once" "$work/err"
    check "and nothing that has" file "$to" --force
    check "a checkpoint is replaced" file "$to" --force
    check "unpacked" "$TILEPACK" unpack "$work/$to" -o "$work/plain.safetensors" -q --force
    check "a plain checkpoint of another tool" cp "$shard" "$work/$to"
    check "is kept" file "$to" --force
    check "as it was" cmp "$shard" "$work/$to.old"
    rm "$work/$to.old"
done
echo text >"$work/plain.safetensors"
answers "unpack --force says so, too" 0 "kept as $work/plain.safetensors.old" \
    "$TILEPACK" unpack "$work/mine.safetensors" -o "$work/plain.safetensors" --force
check "which is there" grep -qx text "$work/plain.safetensors.old"
rm "$work"/mine.* "$work"/plain.safetensors*

# A finished checkpoint may have the name of another's unfinished output.
check "a checkpoint of that name" convert first.partial -q
for force in '' --force; do
    # shellcheck disable=SC2086 # no word, or one
    fails "it is called one $force" 7 "a finished checkpoint has the name" convert first -q $force
done
check "it is still there" "$TILEPACK" verify "$work/first.partial" -q
rm -rf "$work/first.partial"
for content in file folder; do
    case $content in
    file) echo data >"$work/first.partial" ;;
    *) mkdir "$work/first.partial" && echo data >"$work/first.partial/results.csv" ;;
    esac
    fails "a $content of somebody's has it" 7 "would be" convert first -q --force
    check "and stays" grep -rqx data "$work/first.partial"
    rm -rf "$work/first.partial"
done

# A manifest that names what no file can be called is none.
check "a conversion" convert whole -q
cp -p "$work/whole/tilepack.json" "$work/kept.json"
for long in "$(printf 'a%.0s' $(seq 300))" "$(printf 'a/%.0s' $(seq 3000))a"; do
    "$PYTHON" - "$TESTS/lib" "$work/whole/tilepack.json" "$long" <<'EOF' || bad "a manifest"
import json, sys
sys.path.insert(0, sys.argv[1])
import own_hash
with open(sys.argv[2]) as f:
    info = json.load(f)
version = info.pop("tilepack")
info["files"][0]["name"] = sys.argv[3]
with open(sys.argv[2], "wb") as f:
    f.write(own_hash.signed({"tilepack": version, "xxh3": "", **info}))
EOF
    fails "is not taken for one" 7 "exists already" convert whole -q
    answers "which verify says" 1 "File name too long" "$TILEPACK" verify "$work/whole"
done
rm -rf "$work/whole" "$work/kept.json"

# Beside what an interrupted run left, too, a file of the user's stays, and its folder.
begun=$work/gone.partial
mkdir -p "$begun/eval"
: >"$begun/.tilepack-journal"
: >"$begun/model-00001-of-00009.safetensors.zst"
echo data >"$begun/eval/results.csv"
fails "a run that goes on stops for an unknown folder" 7 "'eval/'" convert gone -q
mv "$begun/eval/results.csv" "$begun/lora.safetensors"
rmdir "$begun/eval"
fails "and for weights of another name" 7 "'lora.safetensors'" convert gone -q
for name in model-mine.safetensors model-00001-of-9.safetensors models.safetensors.index.json \
    model-00008-of-00007.safetensors model-00000-of-00001.safetensors.zst \
    LICENSE.pdf README merges.txt modeling_mine.py; do
    mv "$begun/lora.safetensors" "$begun/$name"
    fails "nor of ours, or files that checkpoints have and this one has not: $name" 7 "'$name'" \
        convert gone -q
    mv "$begun/$name" "$begun/lora.safetensors"
done
check "which stay" grep -q data "$begun/lora.safetensors"
fails "also with --force" 7 "'lora.safetensors'" convert gone -q --force
mv "$begun/lora.safetensors" "$begun/merges.txt"
mkdir "$begun/eval"
fails "nor does it take a folder" 7 "'eval/'" convert gone -q --force
rmdir "$begun/eval"
check "it takes files that checkpoints have" convert gone -q --force
check "and the output has none" test ! -e "$work/gone/merges.txt"
rm -rf "$work/gone"
mkdir "$begun"
: >"$begun/.tilepack-journal"
: >"$begun/model-00001-of-00009.safetensors.zst"
: >"$begun/notes.of-mine"
for name in .tilepack-notes tilepack.json.mine README-thesis.txt; do
    echo data >"$begun/$name"
    fails "a run that goes on stops for $name" 7 "'$name'" convert gone -q
    rm "$begun/$name"
done
check "what a conversion may have left is swept" convert gone -q

# What is read stays: a source in what an interrupted run left, and what the request names.
mkdir "$begun"
: >"$begun/.tilepack-journal"
cp -r "$work/model" "$begun/code"
fails "a source in an unfinished output" 2 "holds what is being read" \
    "$TILEPACK" convert "$begun/code" -o "$work/gone" --to fp8-ct --device cpu -q --force
check "which stays" diff -r "$work/model" "$begun/code"
rm -r "$begun"
inputs() { # options ...
    fails "--force stops for what is read: $1" 2 "holds what is being read" "$TILEPACK" convert \
        "$work/model" -o "$work/inputs" --force --device cpu -q "$@"
}
mkdir "$work/inputs"
shard=$(echo "$work"/model/*-00001-of-*.safetensors)
"$PYTHON" - "$work/inputs/importance.safetensors" <<'END'
import json, struct, sys
text = json.dumps({"model.layers.0.mlp.up_proj.weight":
                   {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + 256 * struct.pack("<f", 1))
END
ln -s inputs "$work/inputs-link"
echo '{"rules":[{"match":".","to":"fp8-ct"}]}' >"$work/inputs/quant_config.json"
inputs --recipe "$work/inputs-link/quant_config.json"
inputs --to w4a8-ct --search mse --importance "$work/inputs/importance.safetensors"
check "both are there" test -f "$work/inputs/importance.safetensors" -a \
    -f "$work/inputs/quant_config.json"
fails "a file that is read is not replaced" 2 "holds what is being read" "$TILEPACK" convert \
    "$shard" -o "$work/inputs/importance.safetensors" --to w4a8-ct --search mse \
    --importance "$work/inputs/importance.safetensors" --force --device cpu -q

mkfifo "$work/pipe"
fails "a pipe in the output's place is not said to be replaced" 7 "choose another output" \
    convert pipe -q
rm "$work/pipe"

# Names of any length that there are.
shard=$(echo "$work"/model/*-00001-of-*.safetensors)
for size in 247 248 255; do
    name=$(names $size)
    check "a directory whose name has $size bytes" convert "$name" -q
    check "$size: is whole" "$TILEPACK" verify "$work/$name" -q
    check "$size: is found again" sh -c "'$TILEPACK' convert '$work/model' -o '$work/$name' \
        --to fp8-ct --device cpu | grep -q 'complete already'"
    name=$(names $((size - 12))).safetensors
    check "a file whose name has $size bytes" "$TILEPACK" convert "$shard" \
        -o "$work/$name" --to fp8-ct --device cpu -q
    name=$(names $((size - 16))).safetensors.zst
    check "an archive whose name has $size bytes" "$TILEPACK" convert "$shard" \
        -o "$work/$name" --to fp8-ct --device cpu -q
done
name=$(names 255)
for i in 1 2; do
    check "part $i/2 of a long name" convert "$name" -q --force --shard-size 1MB --part $i/2
done
check "is merged" "$TILEPACK" merge "$work/$name" --force -q
check "a long name of letters of two bytes" convert "$(names 254 | sed 's/nn/é/g')n" -q
fails "a name that no file system has" 5 "name too long" convert "$(names 256)" -q

# Files beside a single file, under names that anybody may give.
others=".own.safetensors.partial own.safetensors.partial .own.safetensors.zst.partial
    .own.safetensors.zst.partial.zst own.safetensors.zst.partial"
for name in $others; do echo precious >"$work/$name"; done
for name in own.safetensors own.safetensors.zst; do
    check "a file beside those of others: $name" "$TILEPACK" convert "$shard" -o "$work/$name" \
        --to fp8-ct --device cpu -q
    fails "one that fails beside them: $name" 7 "exists already" "$TILEPACK" convert "$shard" \
        -o "$work/$name" --to fp8-ct --device cpu -q
done
# shellcheck disable=SC2086 # a list of names
check "they stay" test "$(cd "$work" && cat $others | sort | uniq -c | tr -d ' ')" = 5precious
# shellcheck disable=SC2086
(cd "$work" && rm -f $others)
: >"$work/.again.safetensors.zst.tilepack.partial"
echo cut off >"$work/.again.safetensors.zst.tilepack.partial.zst"
check "what a killed run left is begun anew" "$TILEPACK" convert "$shard" \
    -o "$work/again.safetensors.zst" --to fp8-ct --device cpu -q

# The longest names of tensors that are read are the longest that are written.
for size in 2034 2035; do
    "$PYTHON" - "$size" "$work/long-$size.safetensors" <<'END' || exit 1
import json, struct, sys
name = "x" * int(sys.argv[1]) + ".weight"
text = json.dumps({name: {"dtype": "F32", "shape": [128, 128], "data_offsets": [0, 65536]}}).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + bytes(65536))
END
done
long() { # size
    "$TILEPACK" convert "$work/long-$1.safetensors" -o "$work/long.safetensors" --to mxfp8-ct -q \
        --include x --device cpu
}
check "a tensor with the longest name" long 2034
check "is read" "$TILEPACK" verify "$work/long.safetensors" --against "$work/long-2034.safetensors" -q
rm "$work/long.safetensors"
fails "one with a longer name" 4 "would have 2048 bytes with 'weight_scale', and at most 2047" long 2035
check "nothing is left of any" nothing_beside

# A name that means a directory which is there already cannot be taken by the finished one.
mkdir "$work/here"
for name in . ./ .. ../here/. ../here/..; do
    fails "-o $name" 2 "no name that a new output can take" sh -c \
        "cd '$work/here' && '$TILEPACK' convert ../model -o '$name' --to fp8-ct -q --force"
done
check "makes nothing" test -z "$(ls -A "$work/here")"

# A name that is no UTF-8 is no lack of memory, which is what JSON knows it as.
odd=$(printf 'odd\377')
is_json() { # command ...
    "$TILEPACK" "$@" --json >"$work/said" && "$PYTHON" -c 'import json, sys
assert "odd\\udcff" in json.dumps(json.load(open(sys.argv[1])))' "$work/said"
}
cp -r "$work/model" "$work/$odd.model"
cp "$shard" "$work/$odd.safetensors"
to="--to fp8-ct --device cpu"
# shellcheck disable=SC2086 # several words
check "convert --json to a name that is no UTF-8" is_json convert "$work/model" -o "$work/$odd" $to
# shellcheck disable=SC2086
check "and a part" is_json convert "$work/model" -o "$work/$odd.part" $to --part 1/1
check "merge" is_json merge "$work/$odd.part"
check "unpack" is_json unpack "$work/$odd" -o "$work/$odd.plain"
check "verify" is_json verify "$work/$odd"
check "verify --against" is_json verify "$work/$odd" --against "$work/$odd.model"
check "digest" is_json digest "$work/$odd"
check "diff" is_json diff "$work/$odd.model" "$work/model"
tensor=$("$TILEPACK" dump "$shard" | sed -n '2s/ .*//p')
check "dump" is_json dump "$work/$odd.safetensors" "$tensor"
check "dump of a file" is_json dump "$work/$odd.safetensors"
check "dump --at" is_json dump "$work/$odd.safetensors" "$tensor" --at 0,0
check "dump --offset" is_json dump "$work/$odd.safetensors" "$tensor" --offset 2
rm -rf "${work:?}/$odd"*

# Two names of the source that differ in case alone.
cp -r "$work/model" "$work/cased"
echo '{"not": "the config"}' >"$work/cased/Config.json"
from_cased() { "$TILEPACK" convert "$work/cased" -o "$work/both" --to fp8-ct --device cpu -q; }
check "two names of one in the other case" from_cased
check "are both written" grep -q 'not' "$work/both/Config.json"
check "and right" "$TILEPACK" verify "$work/both" -q
rm -rf "$work/both"
finish
