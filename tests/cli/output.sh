#!/bin/sh
# The output's place: what --force may delete and what it stops for, names up to the length
# that a file system allows, the current directory, a source whose times lie in the future,
# and what a conversion that finds its output finished says of it.
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

# What is no checkpoint stays, and nothing says of it that --force replaces it.
not_forced() { ! grep -e --force "$work/err"; }
mkdir "$work/results" "$work/notes" "$work/mixed"
echo data >"$work/results/results.csv"
fails "one without it, too" 2 "hint: choose another output with -o" convert results -q
check "whose hint is not --force" not_forced
fails "nor is it that of parts" 2 "hint: choose another output with -o" convert results -q --part 1/2
check "and says nothing of it" not_forced
fails "--force stops for an unknown file" 2 "'results.csv'" convert results -q --force
check "which is still there" grep -q data "$work/results/results.csv"
echo text >"$work/notes/README.md"
fails "--force stops where there is no checkpoint" 2 "no checkpoint" convert notes -q --force
check "and nothing is gone" grep -q text "$work/notes/README.md"
check "nothing is left beside them" nothing_beside

# What is refused before the first shard leaves nothing, above all no unfinished output.
fails "memory for what was asked" 6 "more memory is needed: --max-memory" convert refused -q --zstd --max-memory 32MiB
check "leaves nothing beside the output" nothing_beside

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
        fails "one without it, too" 2 "hint: choose another output with -o" file "$to"
        fails "--force stops for $to, content $i" 2 "no safetensors file that --force may replace" file "$to" --force
        check "which is still there" cmp "$work/$to" "$work/was"
    done
    : >"$work/$to"
    fails "an empty one stops what has no --force" 2 "exists already" file "$to"
    check "with the hint of --force" grep -q -e "--force replaces it once" "$work/err"
    check "and nothing that has" file "$to" --force
    check "a checkpoint is replaced" file "$to" --force
    check "unpacked" "$TILEPACK" unpack "$work/$to" -o "$work/plain.safetensors" -q --force
done
check "a plain one by an archive" cp "$work/mine.safetensors" "$work/mine.safetensors.zst"
check "is replaced" file mine.safetensors.zst --force
truncate -s 1000 "$work/mine.safetensors"
check "one that is cut off, too" file mine.safetensors --force
echo text >"$work/plain.safetensors"
fails "unpack --force stops for a file that is none" 2 "no safetensors file that --force may replace" \
    "$TILEPACK" unpack "$work/mine.safetensors" -o "$work/plain.safetensors" -q --force
check "and it is still there" grep -q text "$work/plain.safetensors"
rm "$work"/mine.* "$work/plain.safetensors"

# A finished checkpoint may have the name of another's unfinished output.
check "a checkpoint of that name" convert first.partial -q
fails "it is called one unasked, too" 2 "a finished checkpoint has the name" convert first -q
fails "--force does not take it for an unfinished output" 2 "a finished checkpoint has the name" \
    convert first -q --force
check "it is still there" "$TILEPACK" verify "$work/first.partial" -q
check "an output beside it" mv "$work/first.partial" "$work/kept"
check "of the first name" convert first -q
mv "$work/kept" "$work/first.partial"
fails "--force replaces that one, not both" 2 "a finished checkpoint has the name" \
    convert first -q --force --shard-size 1MB
check "both are still there" "$TILEPACK" verify "$work/first.partial" -q
check "as they were" "$TILEPACK" verify "$work/first" -q
rm -rf "$work/first.partial"

# What an interrupted run replaced is there, too, as long as the output has its journal.
check "what was replaced" convert first.partial -q
: >"$work/first/.tilepack-journal"
for again in 1 2; do
    fails "which nobody deletes unasked" 2 "the output has replaced is still here" convert first -q
    check "$again: it is still there" "$TILEPACK" verify "$work/first.partial" -q
done
check "--force does" convert first -q --force
check "and no more than that" test ! -e "$work/first.partial" -a ! -e "$work/first/.tilepack-journal"
check "what was replaced, again" convert first.partial -q
: >"$work/first/.tilepack-journal"
check "an interrupted run is finished" convert first -q --force --shard-size 1MB
check "nothing is beside the output" test ! -e "$work/first.partial"
check "nor in it" test ! -e "$work/first/.tilepack-journal"

# What is one goes: of this program, with the files that its manifest names; of others.
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
    fails "one whose manifest names what no file can be called is none" 2 "exists already" \
        convert whole -q
    answers "which verify says" 1 "File name too long" "$TILEPACK" verify "$work/whole"
done
mv "$work/kept.json" "$work/whole/tilepack.json"
check "is replaced, its copied files included" convert whole -q --force --shard-size 1MB
check "and holds them again" grep -q notes "$work/whole/notes.of-mine"
echo card >"$work/whole/README.md"
check "a model card may have come" convert whole -q --force
echo data >"$work/whole/eval.csv"
fails "another file stops it" 2 "'eval.csv'" convert whole -q --force
rm "$work/whole/eval.csv"
echo data >"$work/whole/.hidden"
fails "a hidden one, too" 2 "'.hidden'" convert whole -q --force
rm "$work/whole/.hidden"
keeps() { # directory, names ...: --force stops for a file of that name
    in=$1
    shift
    for name in "$@"; do
        echo data >"$work/$in/$name"
        fails "a user's file in $in: $name" 2 "'$name'" convert "$in" -q --force
        rm "$work/$in/$name"
    done
}
keeps whole README-thesis.txt .tilepack-planning.txt tilepack-part.json lora.safetensors merges.txt
cp "$work/whole/tilepack.json" "$work/manifest"
sed -i 's/"notes.of-mine"/"notes.of-mind"/' "$work/whole/tilepack.json"
mv "$work/whole/notes.of-mine" "$work/kept-notes"
keeps whole notes.of-mind
sed -i 's|"notes.of-mind"|"mine/notes"|' "$work/whole/tilepack.json"
cp "$work/whole/tilepack.json" "$work/changed-manifest"
mkdir "$work/whole/mine"
fails "nor of a folder that only a changed manifest names" 2 "'mine'" convert whole -q --force
rmdir "$work/whole/mine"
mv "$work/kept-notes" "$work/whole/notes.of-mine"
cp "$work/manifest" "$work/whole/tilepack.json"
echo '{}' >"$work/whole/tilepack.json.new"
check "what interrupted work left goes" convert whole -q --force
cp "$work/model"/*.safetensors* "$work/model/config.json" "$work/model/tokenizer.json" "$work/mixed"
keeps mixed README-thesis.txt LICENSE_KEY my_config.json tokenizer-mine.json x.jinja \
    .tilepack-journal.bak
for name in merges.txt vocab.json tokenizer.model chat_template.jinja LICENSE .gitattributes \
    special_tokens_map.json generation_config.json modeling_x.py preprocessor_config.json; do
    echo x >"$work/mixed/$name"
done
check "a checkpoint of another tool is replaced" convert mixed -q --force
mkdir "$work/gone.partial"
echo data >"$work/gone.partial/results.csv"
fails "nor an unknown one where the unfinished output would be" 2 "'results.csv'" \
    convert gone -q --force
check "which stays" grep -q data "$work/gone.partial/results.csv"
rm -rf "$work/gone.partial"

# Beside what an interrupted run left, too, a file of the user's stays, and its folder.
begun=$work/gone.partial
mkdir -p "$begun/eval"
: >"$begun/.tilepack-journal"
: >"$begun/model-00001-of-00009.safetensors.zst"
echo data >"$begun/eval/results.csv"
fails "a run that goes on stops for an unknown folder" 2 "'eval/'" convert gone -q
mv "$begun/eval/results.csv" "$begun/lora.safetensors"
rmdir "$begun/eval"
fails "and for weights of another name" 2 "'lora.safetensors'" convert gone -q
for name in model-mine.safetensors model-00001-of-9.safetensors models.safetensors.index.json \
    model-00008-of-00007.safetensors model-00000-of-00001.safetensors.zst \
    LICENSE.pdf README merges.txt modeling_mine.py; do
    mv "$begun/lora.safetensors" "$begun/$name"
    fails "nor of ours, or files that checkpoints have and this one has not: $name" 2 "'$name'" \
        convert gone -q
    mv "$begun/$name" "$begun/lora.safetensors"
done
cp "$work/changed-manifest" "$begun/tilepack.json"
mkdir "$begun/mine"
mv "$begun/lora.safetensors" "$work"
fails "nor a folder that only a changed manifest names" 2 "'mine/'" convert gone -q
rmdir "$begun/mine"
rm "$begun/tilepack.json"
mv "$work/lora.safetensors" "$begun"
check "which stay" grep -q data "$begun/lora.safetensors"
echo data >"$begun/thesis.docx"
fails "nor does --force take a file that no checkpoint has" 2 "'thesis.docx'" convert gone -q --force
rm "$begun/thesis.docx"
mkdir "$begun/eval"
fails "nor a folder" 2 "'eval/'" convert gone -q --force
rmdir "$begun/eval"
check "it deletes weights" convert gone -q --force
check "and the output has none" test ! -e "$work/gone/lora.safetensors"
rm -rf "$work/gone"
mkdir "$begun"
: >"$begun/.tilepack-journal"
: >"$begun/model-00001-of-00009.safetensors.zst"
: >"$begun/notes.of-mine"
for name in .tilepack-notes tilepack.json.mine README-thesis.txt; do
    echo data >"$begun/$name"
    fails "a run that goes on stops for $name" 2 "'$name'" convert gone -q
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
fails "a pipe in the output's place is not said to be replaced" 2 "choose another output" \
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
    fails "one that fails beside them: $name" 2 "exists already" "$TILEPACK" convert "$shard" \
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

# Without --force: what is finished is said to be, and how far that was looked at.
finished() { convert again >"$work/said" && grep 'complete already' "$work/said"; }
cp -r "$work/model" "$work/named"
mkdir "$work/named/code"
echo text >"$work/named/code/notes.txt"
for again in "" --force; do
    # shellcheck disable=SC2086 # no word, or one
    check "a folder of the source called code $again" "$TILEPACK" convert "$work/named" \
        -o "$work/of-named" --to fp8-ct --device cpu -q --shard-size 1MB $again
done
fails "its other files stop --force" 2 "'code/mine'" sh -c "echo x >'$work/of-named/code/mine' &&
    '$TILEPACK' convert '$work/named' -o '$work/of-named' --to fp8-ct --device cpu -q --force"
check "a conversion to come back to" convert again -q
check "is finished" finished
check "with what was looked at" sh -c "grep -q 'plan.*sizes' '$work/said'"
check "and what was not" sh -c "grep -q 'tilepack verify' '$work/said'"
touch -d '2 hours' "$shard"
check "a source of the future" convert future -q
fails "is not the one of before" 2 "exists already" convert again -q
rm -rf "$work/again"
mv "$work/future" "$work/again"
check "but what was made of it is finished" finished

# Another training's shard with an old time, moved in as `rsync -t`, `cp -p` and `mv` do it, and a
# link that leads to one that has been there for long.
cp -r "$work/model" "$work/swapped"
own=$work/swapped/$(basename "$shard")
of_swapped() { "$TILEPACK" convert "$work/swapped" -o "$work/of-swapped" --to fp8-ct --device cpu; }
flip() { # file: one byte of its data is another
    "$PYTHON" -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-7, 2); byte = f.read(1)[0]
    f.seek(-7, 2); f.write(bytes([byte ^ 1]))' "$1"
}
cp "$own" "$work/other-shard"
flip "$work/other-shard"
touch -d 2020-01-01 "$work/other-shard"
cp -p "$work/other-shard" "$work/moved"
check "a source whose shard is to be replaced" of_swapped
sleep 0.05 # longer than the steps of a file system's clock
mv "$work/moved" "$own"
fails "a shard that is older, but came later" 2 "exists already" of_swapped
rm -r "$work/of-swapped" "$own"
ln -s "$shard" "$own"
check "a source whose shard is a link" of_swapped
check "which is found finished" sh -c "'$TILEPACK' convert '$work/swapped' -o '$work/of-swapped' \
    --to fp8-ct --device cpu | grep 'complete already'"
sleep 0.05
ln -sf "$work/other-shard" "$own"
fails "a link that leads elsewhere since" 2 "exists already" of_swapped
sleep 0.1
touch -d '3 hours' "$shard"
fails "until it is touched again" 2 "exists already" convert again -q

# What is written to a file beside the weights while they are converted is no change of the source.
sh -c 'cd "$1" && cp -r model logged && cd logged && "$2" convert . -o ../of-logged --to fp8-ct \
    --device cpu -v >convert.log 2>&1' - "$work" "$TILEPACK"
check "a log in the source's directory" "$TILEPACK" verify "$work/of-logged" -q

# Two models of the same names and shapes, both there before the outputs: under another path, and
# changed over. What is made of one is not what is made of the other.
sh -c 'cd "$1" && mkdir two && cp -r model two/a && cp -r model two/b' - "$work"
flip "$(find "$work/two/b" -name '*-00001-of-*.safetensors')"
sleep 0.05
of_two() { # command, source, output, options ...
    made=$work/two/$3 command=$1 from=$work/two/$2
    shift 3
    case $command in convert) set -- --device cpu "$@" ;; esac
    "$TILEPACK" "$command" "$from" -o "$made" "$@"
}
same_shapes() { # what, command, the sources, options ...
    what=$1 command=$2 a=$3 b=$4 to=$5
    shift 5
    check "$what of one model" of_two "$command" "$a" "$to" "$@" -q
    answers "$what: which is complete" 0 "complete already" of_two "$command" "$a" "$to" "$@"
    fails "$what: but not of the other" 2 "exists already" of_two "$command" "$b" "$to" "$@"
    manifest=$(find "$work/two/$to" -name tilepack.json | sort | tail -n 1)
    cp -p "$manifest" "$work/kept.json"
    echo >>"$manifest"
    fails "$what: nor where the manifest has changed" 2 "exists already" of_two "$command" "$a" \
        "$to" "$@"
    mv "$work/kept.json" "$manifest"
}
same_shapes convert convert a b one --to fp8-ct
same_shapes "a shared global scale" convert a b global --to nvfp4-ct
check "and of the other" of_two convert b other --to fp8-ct -q
fails "an archive under the name of a plain file" 2 "name it" convert zipped.safetensors --zstd
fails "plain files are no archives" 2 "exists already" of_two convert b other --to fp8-ct --zstd
check "archives" of_two convert b archives --to fp8-ct --zstd -q
answers "are complete at any level" 0 "complete already" of_two convert b archives --to fp8-ct \
    --zstd=5
fails "and no plain files" 2 "exists already" of_two convert b archives --to fp8-ct
same_shapes unpack unpack one other plain
mv "$work/two/a" "$work/two/c" && mv "$work/two/b" "$work/two/a" && mv "$work/two/c" "$work/two/b"
fails "two folders changed over" 2 "exists already" of_two convert a one --to fp8-ct

# Nor where what is copied beside the weights is another, whatever its times say.
cp -r "$work/model" "$work/beside"
echo '{"a": 1}' >"$work/beside/tokenizer.json"
echo text >"$work/beside/README.md"
for other in LICENSE tokenizer.json README.md; do
    cp -r "$work/beside" "$work/beside-$other"
    echo '{"a": 2}' >"$work/beside-$other/$other"
done
sleep 0.05
beside() { "$TILEPACK" convert "$work/beside$1" -o "$work/beside-out" --to fp8-ct --device cpu; }
answers "what is copied" 0 "" beside ""
answers "as it was" 0 "complete already" beside ""
for other in LICENSE tokenizer.json README.md; do
    fails "an older folder with another $other" 2 "exists already" beside "-$other"
done
mv "$work/beside/tokenizer.json" "$work/kept.json"
fails "one that is gone" 2 "exists already" beside ""
echo '{"a": 1}' >"$work/beside/tokenizer.json"
answers "the same text in a new file" 0 "complete already" beside ""
for own in tokenizer.json config.json model.safetensors.index.json README.md; do
    cp "$work/beside-out/$own" "$work/kept.json"
    flip "$work/beside-out/$own"
    fails "a changed byte in the output's own $own" 2 "exists already" beside ""
    mv "$work/kept.json" "$work/beside-out/$own"
done
answers "all as it was" 0 "complete already" beside ""
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

if can_preload; then
    for unread in tokenizer.json tilepack.json model.safetensors; do
        fails "an output whose $unread cannot be read" 5 "beside-out/$unread: cannot read" \
            reading_fails pread "beside-out/$unread" 5 "$TILEPACK" convert "$work/beside" \
            -o "$work/beside-out" --to fp8-ct --device cpu
    done
fi
check "and the other one is found again" sh -c "'$TILEPACK' convert '$work/two/b' -o \
    '$work/two/one' --to fp8-ct --device cpu | grep 'complete already'"

# Names that differ in case only: written with a warning, refused where the file system would
# hold one of them. A preloaded lstat(), which finds names in capitals, stands for such a one.
cp -r "$work/model" "$work/cased"
echo '{"not": "the config"}' >"$work/cased/Config.json"
from_cased() { "$TILEPACK" convert "$work/cased" -o "$work/both" --to fp8-ct --device cpu "$@"; }
fails "two names of one in the other case" 0 "'Config.json' and 'config.json' differ in case only" \
    from_cased
check "are both written" grep -q 'not' "$work/both/Config.json"
check "and right" "$TILEPACK" verify "$work/both" -q
fails "the plan warns, too" 0 "differ in case only" \
    "$TILEPACK" plan "$work/cased" --to fp8-ct
echo '{}' >"$work/cased/TilePack.json"
fails "of each further pair" 0 "and 'config.json', and 1 other pair differ in case only" \
    "$TILEPACK" plan "$work/cased" --to fp8-ct
rm "$work/cased/TilePack.json"
rm -rf "$work/both" "$work/foldered"
cp -r "$work/model" "$work/foldered"
mkdir "$work/foldered/names"
for name in NAMES names-x names.x names/a names/b; do
    echo text >"$work/foldered/$name"
done
fails "a file and a folder of one" 0 "'NAMES' and 'names/a' differ in case only" \
    "$TILEPACK" plan "$work/foldered" --to fp8-ct
cat >"$work/fold.c" <<'C'
#define _GNU_SOURCE
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
int lstat(const char *path, struct stat *st)
{
    int status = fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
    char *copy = strdup(path), *slash = strrchr(copy, '/');
    for (char *c = slash ? slash + 1 : copy; status && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    status = status ? fstatat(AT_FDCWD, copy, st, AT_SYMLINK_NOFOLLOW) : 0;
    free(copy);
    return status;
}
C
case ${BUILD:-build} in
*/asan) ;; # its runtime has to be the first library of a process
*)
    cc -shared -fPIC -o "$work/fold.so" "$work/fold.c" || exit 1
    folded() { # command ...
        LD_PRELOAD=$work/fold.so "$@"
    }
    fails "where case is nothing" 4 "cannot hold both 'Config.json' and 'config.json'" \
        folded "$TILEPACK" convert "$work/cased" -o "$work/both" --to fp8-ct --device cpu
    check "nothing is left" test ! -e "$work/both.partial"
    fails "nor by parts" 4 "differ in case only" folded "$TILEPACK" convert "$work/cased" \
        -o "$work/both" --to fp8-ct --device cpu --part 1/2
    check "other names are fine there" folded "$TILEPACK" convert "$work/model" -o "$work/both" \
        --to fp8-ct --device cpu -q
    ;;
esac
finish
