#!/bin/sh
# --force: the new output and what was there change places. What was there is OUT.old then, and goes
# when all of it is as its own intact manifest says; else all of it stays, and one line says where.
# An OUT.old that is there already is status 7 before the work.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
echo '{}' >"$work/model/tokenizer.json"
echo notes >"$work/model/notes.of-mine"
shard=$(find "$work/model" -name '*-00001-of-*.safetensors')
alone() { # output: nothing is beside it
    test -z "$(find "$work" -maxdepth 1 \( -name "$1.*" -o -name ".$1.*" \))"
}
whole() { "$TILEPACK" verify "$work/$1" -q; }

# ---- what goes

check "an output" convert dst -q
check "its like" cp -rp "$work/dst" "$work/first"
check "is replaced" convert dst -q --force --shard-size 1MB
check "by a whole one" whole dst
check "of the new options" test "$(find "$work/dst" -name '*.safetensors' | wc -l)" -gt 1
check "and what was there is gone" alone dst
check "twice" convert dst -q --force
check "to the same bytes" diff -r -x tilepack.json "$work/dst" "$work/first"
check "nothing is left either" alone dst
rm "$work/dst/tokenizer.json"
check "one that lacks a file" convert dst -q --force
check "goes, too: nothing else is in it" alone dst
check "archives" convert dst -q --force --zstd
check "that are replaced" convert dst -q --force
check "leave nothing" alone dst
check "parts" convert dst -q --part 1/1 --force --shard-size 1MB
check "and the merge of them" "$TILEPACK" merge "$work/dst" --force -q
check "is whole" whole dst
check "and leaves nothing" alone dst
mkdir "$work/empty"
check "an empty directory is not in the way" convert empty -q
check "and is not kept" alone empty

# ---- what stays

made() { rm -rf "$work/dst" "$work/dst.old" && cp -rp "$work/first" "$work/dst"; }
stays() { # name, what is said of it
    cp -rp "$work/dst" "$work/was"
    answers "$1: kept" 0 "what was replaced is kept as $work/dst.old: $2" convert dst --force \
        --shard-size 1MB
    check "$1: all of it" diff -r --no-dereference "$work/was" "$work/dst.old"
    check "$1: the new output is whole" whole dst
    rm -rf "$work/was"
}
named() { stays "$1" "'$1' in it is $2"; }
for name in eval.csv .hidden README-thesis.txt lora.safetensors merges.txt tilepack-part.json \
    model-00001-of-00009.safetensors tilepack.json.mine .tilepack-journal.bak; do
    made
    echo data >"$work/dst/$name"
    named "$name" "not in its manifest"
done
convert dst --force --json >"$work/said" 2>/dev/null
check "until it is moved away: status 7" test $? = 7
made
echo data >"$work/dst/eval.csv"
convert dst --force --json >"$work/said" 2>/dev/null
check "in JSON" "$PYTHON" -c 'import json, sys
assert json.load(open(sys.argv[1]))["old"] == sys.argv[2]' "$work/said" "$work/dst.old"
made
mkdir "$work/dst/code"
named code "no plain file"
made
mkfifo "$work/dst/pipe"
answers "a pipe: kept" 0 "'pipe' in it is no plain file" convert dst --force --shard-size 1MB
check "a pipe: it" test -p "$work/dst.old/pipe"
for link in tokenizer.json config.json model.safetensors; do
    made
    mv "$work/dst/$link" "$work/elsewhere"
    ln -s ../elsewhere "$work/dst/$link"
    named "$link" "no plain file"
    check "$link: and what the link leads to" test -s "$work/elsewhere"
done
made
ln "$work/dst/tokenizer.json" "$work/second-name"
named tokenizer.json "a file of several names"
made
echo >>"$work/dst/model.safetensors"
named model.safetensors "of another size than its manifest says"
made
printf '[]\n' >"$work/dst/tokenizer.json"
named tokenizer.json "changed since it was written"
made
sed -i 's/"notes.of-mine"/"notes.of-mind"/' "$work/dst/tilepack.json"
stays "a manifest that has changed" "it has no manifest, as tilepack writes one"
made
rm "$work/dst/tilepack.json"
stays "none" "it has no manifest, as tilepack writes one"
made
rm -r "$work/dst" && cp -r "$work/model" "$work/dst"
stays "a checkpoint of another tool" "it has no manifest, as tilepack writes one"
rm -r "$work/dst" "$work/dst.old"
mkdir "$work/dst"
echo mine >"$work/dst/thesis.tex"
stays "somebody's folder" "it has no manifest, as tilepack writes one"

# ---- an OUT.old that is there

made
for old in directory file link; do
    case $old in
    directory) mkdir "$work/dst.old" ;;
    file) echo mine >"$work/dst.old" ;;
    link) ln -s nowhere "$work/dst.old" ;;
    esac
    fails "a $old: before the work" 7 \
        "$work/dst.old: what an earlier --force has replaced is here" \
        convert dst --force --shard-size 1MB --max-memory 32MiB
    convert dst --force --json >"$work/said" 2>/dev/null
    check "a $old: the reason in JSON" "$PYTHON" -c 'import json, sys
error = json.load(open(sys.argv[1]))["error"]
assert (error["code"], error["kind"], error["reason"]) == (7, "exists", "old"), error' "$work/said"
    check "a $old: nothing was begun" test ! -e "$work/dst.partial"
    check "a $old: the output is as it was" diff -r "$work/first" "$work/dst"
    answers "a $old: is in nobody's way else" 0 "complete already" convert dst
    rm -rf "$work/dst.old"
done
echo text >"$work/new.old"
check "nor of an output that is new" convert new -q --force
check "which stays" grep -q text "$work/new.old"

# ---- runs that were interrupted behind the exchange

left() { # the new output has its name, and what was there that of the unfinished one, or OUT.old
    made
    cp -rp "$work/dst" "$work/$1"
    : >"$work/dst/.tilepack-replaces"
    : >"$work/dst/.tilepack-journal"
}
for name in dst.partial dst.old; do
    left $name
    answers "$name: the same command ends it" 0 "complete already" convert dst
    check "$name: nothing is left" alone dst
    check "$name: the output is as it was" diff -r "$work/first" "$work/dst"
    left $name
    echo data >"$work/$name/eval.csv"
    answers "$name: with a file of somebody's" 0 "kept as $work/dst.old: 'eval.csv'" convert dst
    check "$name: which stays" grep -q data "$work/dst.old/eval.csv"
    check "$name: and no mark of it" test -z "$(find "$work/dst" -name '.tilepack-*')"
    left $name
    check "$name: --force, too" convert dst -q --force --shard-size 1MB
    check "$name: and leaves nothing" alone dst
done
left dst.old
rm "$work/dst.old/"*.safetensors
check "what an interrupted removal left" convert dst -q
check "goes" alone dst

# ---- a file system that exchanges nothing: two renames

cat >"$work/noexchange.c" <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (flags == RENAME_EXCHANGE) {
        fputs("no exchange\n", stderr);
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}
C
case ${BUILD:-build} in
*/asan) ;; # its runtime has to be the first library of a process
*)
    ${CC:-cc} -shared -fPIC -o "$work/noexchange.so" "$work/noexchange.c" || exit 1
    in_two() {
        LD_PRELOAD=$work/noexchange.so "$TILEPACK" convert "$work/model" -o "$work/dst" \
            --to fp8-ct --device cpu --force --shard-size 1MB
    }
    made
    answers "two renames" 0 "no exchange" in_two
    check "end with a whole output" whole dst
    check "of the new options" test "$(find "$work/dst" -name '*.safetensors' | wc -l)" -gt 1
    check "and nothing else" alone dst
    made
    echo data >"$work/dst/eval.csv"
    answers "what stays is kept" 0 "kept as $work/dst.old: 'eval.csv'" in_two
    check "all of it" grep -q data "$work/dst.old/eval.csv"
    ;;
esac

# ---- single files

file() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert "$shard" -o "$work/$to" --to fp8-ct --device cpu "$@"
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
        fails "$to, content $i: without --force" 7 "exists already" file "$to"
        check "$to, content $i: it is still there" cmp "$work/$to" "$work/was"
        answers "$to, content $i: kept" 0 "kept as $work/$to.old: it is no file of tilepack's" \
            file "$to" --force
        check "$to, content $i: all of it" cmp "$work/$to.old" "$work/was"
        check "$to, content $i: the new one" whole "$to"
        cp "$work/was" "$work/$to"
        fails "$to, content $i: an OUT.old" 7 "what an earlier --force has replaced is here" \
            file "$to" --force
        check "$to, content $i: as it was" cmp "$work/$to" "$work/was"
        rm "$work/$to.old"
    done
    : >"$work/$to"
    check "an empty one" file "$to" -q --force
    check "and one of tilepack's" file "$to" -q --force
    check "are gone" test ! -e "$work/$to.old"
    echo mine >"$work/$to.old"
    check "an OUT.old is in the way of no file that goes" file "$to" -q --force
    check "and stays" grep -q mine "$work/$to.old"
    rm "$work/$to.old"
done
cp "$work/mine.safetensors" "$work/mine.safetensors.zst"
check "a plain one by an archive" file mine.safetensors.zst -q --force
check "is gone, too" test ! -e "$work/mine.safetensors.zst.old"
truncate -s 1000 "$work/mine.safetensors"
check "one that is cut off" file mine.safetensors -q --force
check "is kept" mv "$work/mine.safetensors.old" "$work/was"
echo text >"$work/plain.safetensors"
check "unpack --force, too" "$TILEPACK" unpack "$work/mine.safetensors" \
    -o "$work/plain.safetensors" -q --force
check "keeps what is none of its files" grep -q text "$work/plain.safetensors.old"
finish
