#!/bin/sh
# The output's place: what is left alone where the unfinished output would be, what is read and
# would be replaced, names up to the length that a file system allows, the current directory.
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
shard=$(echo "$work"/model/*-00001-of-*.safetensors)

# What is refused before the first shard leaves nothing, above all no unfinished output.
fails "memory for what was asked" 6 "more memory is needed: --max-memory" convert refused -q --zstd --max-memory 32MiB
check "leaves nothing beside the output" nothing_beside

# A finished checkpoint may have the name of another's unfinished output.
check "a checkpoint of that name" convert first.partial -q
fails "it is called one unasked, too" 7 "a finished checkpoint has the name" convert first -q
fails "--force does not take it for an unfinished output" 7 "a finished checkpoint has the name" \
    convert first -q --force
check "it is still there" "$TILEPACK" verify "$work/first.partial" -q
check "an output beside it" mv "$work/first.partial" "$work/kept"
check "of the first name" convert first -q
mv "$work/kept" "$work/first.partial"
fails "--force replaces that one, not both" 7 "a finished checkpoint has the name" \
    convert first -q --force --shard-size 1MB
check "both are still there" "$TILEPACK" verify "$work/first.partial" -q
check "as they were" "$TILEPACK" verify "$work/first" -q

# A journal in a finished output is of a run that replaced nothing: what has the name of the
# unfinished output is then somebody's.
: >"$work/first/.tilepack-journal"
check "an interrupted run is ended" convert first -q
check "and its journal gone" test ! -e "$work/first/.tilepack-journal"
check "the other one is still there" "$TILEPACK" verify "$work/first.partial" -q
rm -rf "$work/first.partial"

# Where the unfinished output would be.
mkdir "$work/gone.partial"
echo data >"$work/gone.partial/results.csv"
for force in "" --force; do
    # shellcheck disable=SC2086 # no word, or one
    fails "a folder that is not of tilepack $force" 7 "this directory is not of tilepack" \
        convert gone -q $force
done
check "which stays" grep -q data "$work/gone.partial/results.csv"
rm -rf "$work/gone.partial"

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
    model-00008-of-00007.safetensors model-00000-of-00001.safetensors.zst; do
    mv "$begun/lora.safetensors" "$begun/$name"
    fails "nor of ours: $name" 7 "'$name'" \
        convert gone -q
    mv "$begun/$name" "$begun/lora.safetensors"
done
check "which stay" grep -q data "$begun/lora.safetensors"
fails "nor does --force take them" 7 "'lora.safetensors'" convert gone -q --force
mkdir "$begun/eval"
rm "$begun/lora.safetensors"
fails "nor a folder" 7 "'eval/'" convert gone -q --force
rm -r "$begun"
mkdir "$begun"
: >"$begun/.tilepack-journal"
: >"$begun/model-00001-of-00009.safetensors.zst"
: >"$begun/notes.of-mine"
for name in .tilepack-notes tilepack.json.mine README-thesis.txt thesis.docx; do
    echo data >"$begun/$name"
    fails "a run that goes on stops for $name" 7 "'$name'" convert gone -q
    rm "$begun/$name"
done
check "what a conversion may have left is swept" convert gone -q
check "and the output has none of it" diff -rq -x tilepack.json "$work/gone" "$work/first"

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

# Names of any length that there are.
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

# A folder in which one may write and which one may not open: no name in it can be made durable.
into_closed() { # output, options ...
    mkdir -p "$work/no-look"
    to=$1
    shift
    reading_fails open "/no-look" 13 "$TILEPACK" convert "$work/model" -o "$work/no-look/$to" \
        --to fp8-ct --device cpu "$@"
}
if can_preload; then
    fails "a folder that may not be opened" 5 "no-look: cannot open the folder" into_closed out
    fails "nor for a part" 5 "no-look: cannot open the folder" into_closed out --part 1/1
    fails "nor for a file" 5 "no-look: cannot open the folder" \
        reading_fails open "/no-look" 13 "$TILEPACK" convert "$shard" \
        -o "$work/no-look/o.safetensors" --to fp8-ct --device cpu
    check "gets nothing" rmdir "$work/no-look"
    mkdir "$work/no-look"
    check "parts of before" "$TILEPACK" convert "$work/model" -o "$work/no-look/out" --to fp8-ct \
        --device cpu --part 1/1 -q
    fails "are not merged there" 5 "no-look: cannot open the" \
        reading_fails open "/no-look" 13 "$TILEPACK" merge "$work/no-look/out"
    check "and stay" test -d "$work/no-look/out.part-1-of-1" -a ! -e "$work/no-look/out"
fi

finish
