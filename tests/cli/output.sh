#!/bin/sh
# The output's place: what --force may delete and what it stops for, names up to the length
# that a file system allows, the current directory, a source whose times lie in the future,
# and what a conversion that finds its output finished says of it.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
ranks() { # options ...
    "$TILEPACK" convert "$work/model" -o "$work/ranks" --to mxfp8-ct --tp 2 -q --device cpu "$@"
}
nothing_beside() { ! find "$work" -name '*.partial*' | grep .; }
names() { # how many letters
    printf '%*s' "$1" '' | tr ' ' n
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
echo '{}' >"$work/model/tokenizer.json"
echo notes >"$work/model/notes.of-mine"

# What is no checkpoint stays.
mkdir "$work/results" "$work/notes" "$work/mixed"
echo data >"$work/results/results.csv"
fails "--force stops for an unknown file" 2 "'results.csv'" convert results -q --force
check "which is still there" grep -q data "$work/results/results.csv"
echo text >"$work/notes/README.md"
fails "--force stops where there is no checkpoint" 2 "no checkpoint" convert notes -q --force
check "and nothing is gone" grep -q text "$work/notes/README.md"
check "nothing is left beside them" nothing_beside

# A finished checkpoint may have the name of another's unfinished output.
check "a checkpoint of that name" convert first.partial -q
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
check "all ranks" ranks
mv "$work/ranks" "$work/first.partial"
fails "--force does not replace them in that name either" 2 "a finished checkpoint has the name" \
    convert first -q --force --shard-size 1MB
check "which are still there" "$TILEPACK" verify "$work/first.partial" -q
rm -rf "$work/first.partial"

# What an interrupted run replaced is there, too, as long as the output has its journal.
check "what was replaced" convert first.partial -q
: >"$work/first/.tilepack-journal"
check "an interrupted run is finished" convert first -q --force --shard-size 1MB
check "nothing is beside the output" test ! -e "$work/first.partial"
check "nor in it" test ! -e "$work/first/.tilepack-journal"

# What is one goes: of this program, with the files that its manifest names; of others.
check "a conversion" convert whole -q
check "is replaced, its copied files included" convert whole -q --force --shard-size 1MB
check "and holds them again" grep -q notes "$work/whole/notes.of-mine"
echo card >"$work/whole/README.md"
check "a model card may have come" convert whole -q --force
echo data >"$work/whole/eval.csv"
fails "another file stops it" 2 "'eval.csv'" convert whole -q --force
rm "$work/whole/eval.csv"
echo data >"$work/whole/.hidden"
fails "a hidden one, too" 2 "'.hidden'" convert whole -q --force
cp "$work/model"/*.safetensors* "$work/model/config.json" "$work/model/tokenizer.json" "$work/mixed"
for name in merges.txt vocab.json tokenizer.model chat_template.jinja LICENSE .gitattributes \
    special_tokens_map.json generation_config.json modeling_x.py preprocessor_config.json; do
    echo x >"$work/mixed/$name"
done
check "a checkpoint of another tool is replaced" convert mixed -q --force
check "ranks" ranks
check "are replaced" convert ranks -q --force
check "ranks again" ranks --force
echo data >"$work/ranks/rank_1/results.csv"
fails "but not with an unknown file in one" 2 "'results.csv'" convert ranks -q --force
mkdir "$work/gone.partial"
echo data >"$work/gone.partial/results.csv"
fails "nor an unknown one where the unfinished output would be" 2 "'results.csv'" \
    convert gone -q --force
check "which stays" grep -q data "$work/gone.partial/results.csv"
rm -rf "$work/gone.partial"

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
assert "odd?" in json.dumps(json.load(open(sys.argv[1])))' "$work/said"
}
cp -r "$work/model" "$work/$odd.model"
cp "$shard" "$work/$odd.safetensors"
to="--to fp8-ct --device cpu"
# shellcheck disable=SC2086 # several words
check "convert --json to a name that is no UTF-8" is_json convert "$work/model" -o "$work/$odd" $to
# shellcheck disable=SC2086
check "and a part" is_json convert "$work/model" -o "$work/$odd.part" $to --part 1/1
check "merge" is_json merge "$work/$odd.part"
"$TILEPACK" convert "$work/model" -o "$work/halves" --to mxfp8-ct --tp 2 -q || exit 1
check "join" is_json join "$work/halves" -o "$work/$odd.joined"
check "unpack" is_json unpack "$work/$odd" -o "$work/$odd.plain"
check "verify" is_json verify "$work/$odd"
check "verify --against" is_json verify "$work/$odd" --against "$work/$odd.model"
check "digest" is_json digest "$work/$odd"
check "diff" is_json diff "$work/$odd.model" "$work/model"
tensor=$("$TILEPACK" dump "$shard" | sed -n '2s/ .*//p')
check "dump" is_json dump "$work/$odd.safetensors" "$tensor"
check "dump --at" is_json dump "$work/$odd.safetensors" "$tensor" --at 0,0
check "dump --offset" is_json dump "$work/$odd.safetensors" "$tensor" --offset 2
rm -rf "${work:?}/$odd"* "$work/halves"

# Without --force: what is finished is said to be, and how far that was looked at.
finished() { convert again >"$work/said" && grep 'complete already' "$work/said"; }
cp -r "$work/model" "$work/named"
mkdir "$work/named/rank_0"
echo text >"$work/named/rank_0/notes.txt"
for again in "" --force; do
    # shellcheck disable=SC2086 # no word, or one
    check "a folder of the source called rank_0 $again" "$TILEPACK" convert "$work/named" \
        -o "$work/of-named" --to fp8-ct --device cpu -q --shard-size 1MB $again
done
fails "its other files stop --force" 2 "'rank_0/mine'" sh -c "echo x >'$work/of-named/rank_0/mine' &&
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
sleep 0.1
touch -d '3 hours' "$shard"
fails "until it is touched again" 2 "exists already" convert again -q

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
    rm -rf "$work/both.partial"
    check "other names are fine there" folded "$TILEPACK" convert "$work/model" -o "$work/both" \
        --to fp8-ct --device cpu -q
    ;;
esac

# What lies beside ranks is none of a checkpoint's files.
echo '{}' >"$work/model/tilepack-tp.json"
check "a tilepack-tp.json in the source" convert astray -q
check "is not copied" test ! -e "$work/astray/tilepack-tp.json"
answers "where it lies beside weights they are a checkpoint" 0 "not written by tilepack" \
    "$TILEPACK" verify "$work/model"
finish
