#!/bin/sh
# Parts: convert --part I/P and merge against the conversion by one process. Every
# file must be equal; every way in which parts can be incomplete or mixed must be
# refused with its exit status and a message that names the part.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/read_fails.sh
. "$TESTS/lib/read_fails.sh"
same() { diff -r "$1" "$2" >"$work/diff" 2>&1 || { cat "$work/diff"; return 1; }; }
part() { # I/P, DST, options ...
    share=$1 dst=$2
    shift 2
    "$TILEPACK" convert "$work/src" -o "$work/$dst" --part "$share" -j 2 --device cpu -q "$@"
}
merge() { "$TILEPACK" merge "$work/$1" -q; }

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/src" --preset tiny-mixtral >/dev/null ||
    exit 1
echo '{"a": 1}' >"$work/src/tokenizer.json"
mkdir "$work/src/1_Pooling" && echo '{}' >"$work/src/1_Pooling/config.json"

# The four parts in an order of their own, small shards: more than one each.
set -- --to w4a8-cutlass --shard-size 500kB
"$TILEPACK" convert "$work/src" -o "$work/one" "$@" -q || exit 1
for i in 3 1 4 2; do part $i/4 four "$@" || bad "part $i/4"; done
check "parts leave DST alone" test ! -e "$work/four"
check "four parts merge" merge four
check "four parts equal one process in every file" same "$work/one" "$work/four"
check "merging twice says so" sh -c "'$TILEPACK' merge '$work/four' | grep -q 'complete already'"
mv "$work/four/config.json" "$work/kept.json"
fails "but not where a file has gone" 3 "'config.json' is in its manifest, and is missing" merge four
mv "$work/kept.json" "$work/four/config.json"
cp -p "$work/four/README.md" "$work/kept.md"
echo 'Ours.' >>"$work/four/README.md"
check "an edited model card is no obstacle" merge four
mv "$work/kept.md" "$work/four/README.md"
shard=$(basename "$(find "$work/four" -name '*-00002-of-*.safetensors')")
mv "$work/four/$shard" "$work/kept.shard"
"$TILEPACK" convert "$work/src" -o "$work/archived" "$@" --zstd -q || bad "archives"
cp "$work/archived/$shard.zst" "$work/four"
check "nor is a shard that was compressed" merge four
rm "$work/four/$shard.zst"
fails "one that has gone is" 3 "'$shard' is in its manifest, and is missing" merge four
: >"$work/four/$shard.zst"
fails "with an archive that is none, too" 3 "'$shard' is in its manifest, and is missing" merge four
head -c 999 "$work/kept.shard" | zstd -q >"$work/four/$shard.zst"
fails "or one of another size" 3 "'$shard' is in its manifest, and is missing" merge four
rm "$work/four/$shard.zst"
mv "$work/kept.shard" "$work/four/$shard"
cp -p "$work/four/tilepack.json" "$work/kept.json"
echo >>"$work/four/tilepack.json"
fails "nor where the manifest has changed" 2 "four: there are no parts of this output" merge four
fails "nor does a part" 2 "exists already" part 2/4 four "$@"
mv "$work/kept.json" "$work/four/tilepack.json"
check "a part after the merge does nothing" part 2/4 four "$@"
check "and leaves the output as it is" same "$work/one" "$work/four"
check "the merged output verifies" "$TILEPACK" verify "$work/four" -q

# All at once, each by its own process.
for i in 1 2 3; do part $i/3 par "$@" & done
wait
check "three parts at once merge" merge par
check "three parts at once equal one process" same "$work/one" "$work/par"

# More parts than shards: the others have nothing to do, and are not needed.
"$TILEPACK" convert "$work/src" -o "$work/few1" --to mxfp8-ct -q || exit 1
check "a part without a shard succeeds" part 5/5 few --to mxfp8-ct
fails "a part with shards is missed" 3 "part 1/5 (not begun)" merge few
check "the part with the shard" part 1/5 few --to mxfp8-ct
check "more parts than shards merge" merge few
check "more parts than shards equal one process" same "$work/few1" "$work/few"

# Of many missing parts the first eight are named.
part 2/14 many "$@" --shard-size 100kB || bad "part 2/14"
fails "many missing parts are counted" 3 "part 1/14 (not begun), part 3/14 (not begun), part 4/14 \
(not begun), part 5/14 (not begun), part 6/14 (not begun), part 7/14 (not begun), part 8/14 (not \
begun), part 9/14 (not begun) and 2 more" merge many

# What stands in the unfinished output under the name of a file, and is none.
a_socket() { # its whole name may be too long for one
    (cd "${1%/*}" && "$PYTHON" -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "${1##*/}")
}
soon() { timeout -k 1 20 "$TILEPACK" "$@"; } # what waits for a pipe does not end by itself
again() { soon convert "$work/src" -o "$work/odd" --device cpu -q --part "${owner%-of-*}/2" "$@"; }
for i in 1 2; do part $i/2 odd "$@" || bad "part $i/2"; done
shard=$(cd "$work/odd.partial" && echo model-00001-*)
owner=$(cd "$work/odd.partial" && grep -l "$shard" .tilepack-journal.* | sed 's/.*journal\.//')
for kind in mkfifo a_socket; do
    rm "$work/odd.partial/$shard"
    $kind "$work/odd.partial/$shard"
    fails "a shard by $kind is none" 3 "is gone" soon merge "$work/odd" -q
    check "and is made anew" again "$@"
done
for kind in mkfifo a_socket mkdir; do
    mv "$work/odd.partial/.tilepack-journal.$owner" "$work/kept"
    $kind "$work/odd.partial/.tilepack-journal.$owner"
    fails "a journal by $kind" 2 "journal.$owner: not a regular file" again "$@"
    fails "a journal by $kind, when merging" 2 "journal.$owner: not a regular file" merge odd
    rm -r "$work/odd.partial/.tilepack-journal.$owner"
    mv "$work/kept" "$work/odd.partial/.tilepack-journal.$owner"
done
chmod 400 "$work/odd.partial/$shard"
check "what is as it was merges" merge odd
check "with the rights of a new file" test -n "$(find "$work/odd/$shard" \
    -perm "$(stat -c %a "$work/one/$shard")")"
check "and equals one process, too" same "$work/one" "$work/odd"

# A part that is killed half-way, and started again.
for i in 1 2 4; do part $i/4 kill "$@" || bad "part $i/4"; done
fails "the missing part is named" 3 "part 3/4 (not begun)" merge kill
"$TILEPACK" convert "$work/src" -o "$work/kill" --part 3/4 -j 1 --device cpu -q "$@" &
pid=$!
tries=0
while ! grep -q model- "$work/kill.partial/.tilepack-journal.3-of-4" 2>/dev/null &&
    [ $tries -lt 2000 ] && kill -0 $pid 2>/dev/null; do
    tries=$((tries + 1))
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
# Whenever the kill came: cut the journal, as if it came before the last line was whole.
journal=$work/kill.partial/.tilepack-journal.3-of-4
lines=$(wc -l <"$journal")
if [ "$lines" -gt 1 ]; then
    size=$(wc -c <"$journal")
    head -c $((size - 5)) "$journal" >"$journal.cut" && cat "$journal.cut" >"$journal"
    rm -f "$journal.cut"
fi
fails "a killed part is named" 3 "part 3/4 (" merge kill
check "the killed part again" part 3/4 kill "$@"
check "parts with one killed merge" merge kill
check "parts with one killed equal one process" same "$work/one" "$work/kill"

# A shard that rots between part and merge.
for i in 1 2; do part $i/2 rot "$@" || bad "part $i/2"; done
shard=$(grep -o 'model-[0-9a-z.-]*' "$work/rot.partial/.tilepack-journal.2-of-2" | head -n 1)
printf 'x' | dd of="$work/rot.partial/$shard" bs=1 seek=5000 conv=notrunc 2>/dev/null
fails "a shard with a wrong hash is found" 3 "part 2/2 wrote" merge rot
check "the part again, which redoes that shard" part 2/2 rot "$@"
rm "$work/rot.partial/$shard"
fails "a shard that is gone is found" 3 "$shard" merge rot
check "and again" part 2/2 rot "$@"
touch "$work/rot.partial/stray"
fails "a stray file is not deleted" 2 "'stray'" merge rot
rm "$work/rot.partial/stray"
check "healed parts merge" merge rot
check "healed parts equal one process" same "$work/one" "$work/rot"

# What is refused before its first shard is in nobody's way.
fails "a part that has not enough memory" 6 "more memory is needed: --max-memory" part 1/2 small "$@" --zstd \
    --max-memory 32MiB
check "leaves nothing" test -z "$(ls -A "$work/small.partial")"
check "one that was begun" sh -c "! (ulimit -f 100; exec \"\$@\") 2>/dev/null" - "$TILEPACK" \
    convert "$work/src" -o "$work/small" --part 1/2 -j 1 --device cpu -q "$@" --zstd
check "has left some of a shard" test -n "$(find "$work/small.partial" -name 'model-*')"
fails "is refused for its memory, too" 6 "more memory is needed: --max-memory" part 1/2 small "$@" --zstd \
    --max-memory 32MiB
check "and goes on when there is enough" part 1/2 small "$@" --zstd

# Mixtures.
part 1/2 mix "$@"
fails "other options are refused" 2 "their options differ" part 2/2 mix --to mxfp8-ct
fails "another number of parts is refused" 2 "another number of parts" part 2/3 mix "$@"
fails "another compression is refused" 2 "--zstd" part 2/2 mix "$@" --zstd
fails "one process does not take it over" 2 "parts of a conversion" \
    "$TILEPACK" convert "$work/src" -o "$work/mix" "$@" -q
part 2/2 mix2 --to mxfp8-ct
cp "$work/mix2.partial/.tilepack-plan.2-of-2" "$work/mix.partial/"
fails "mixed notes are found by merge" 3 "part 1/2 and part 2/2 are of different plans" merge mix
"$PYTHON" -c '
import sys
with open(sys.argv[1], "w") as note:
    note.write("{\"request\": {" + ",".join(f"\"{i}\": 0" for i in range(1_000_000)) + "}}")
' "$work/mix2.partial/.tilepack-plan.2-of-2"
fails "a large note is not read beyond the limit" 6 "more memory is needed: --max-memory" \
    "$TILEPACK" merge "$work/mix2" --max-memory 64MiB
fails "no parts" 2 "there are no parts" merge nothing
"$TILEPACK" convert "$work/src" -o "$work/mix2.safetensors" --part 1/2 "$@" 2>"$work/err"
check "a single file has no parts" test $? = 2

# A part whose process is at work: nobody else is it, and merge waits for its end.
for i in 1 2; do part $i/2 busy "$@" || bad "part $i/2"; done
"$PYTHON" -c 'import fcntl, sys, time
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)' "$work/busy.partial/.tilepack-journal.2-of-2" >"$work/locked" &
pid=$!
while [ ! -s "$work/locked" ] && kill -0 $pid; do :; done
fails "the same part twice at a time" 2 "part 2/2 is at work in another process" part 2/2 busy "$@"
check "another part at the same time" part 1/2 busy "$@"
fails "merge while a part is at work" 2 "part 2/2 is still at work" merge busy
kill $pid
wait $pid 2>/dev/null
check "merge when it has ended" merge busy
check "and equal one process, as ever" same "$work/one" "$work/busy"

# A source that changed, and one that moved.
for i in 1 2; do part $i/2 moved "$@" || bad "part $i/2"; done
cp -pr "$work/src" "$work/elsewhere"
touch "$work/src/"*.safetensors
fails "a changed source is found" 3 "not the one that the parts converted" merge moved
fails "a part of the changed source" 2 "sources differ" part 1/2 moved "$@"
mv "$work/src" "$work/gone"
fails "a source that is gone" 5 "--source" merge moved
ln -s src "$work/src" # where nobody can look
check "--source" "$TILEPACK" merge "$work/moved" --source "$work/elsewhere" -q
rm "$work/src"
check "from the moved source the same" same "$work/one" "$work/moved"
mv "$work/elsewhere" "$work/src"

# An output in the way.
fails "a part of something else is refused" 2 "exists already" part 1/2 one --to mxfp8-ct
cp -r "$work/one" "$work/old"
for i in 1 2; do part $i/2 old --to mxfp8-ct --force || bad "part $i/2 --force"; done
check "parts do not touch the old output" same "$work/one" "$work/old"
mkdir "$work/csv" && echo data >"$work/csv/results.csv"
fails "a part does not work for what no merge will replace" 2 "'results.csv'" \
    part 1/2 csv --to mxfp8-ct --force
check "nothing was begun" test ! -e "$work/csv.partial"
fails "merge does not replace by itself" 2 "--force" merge old
mkdir "$work/notes" && cp "$work/old.partial"/.tilepack-* "$work/notes"
echo data >"$work/old.partial/thesis.docx"
fails "a user's file beside the parts stops merge --force" 2 "'thesis.docx'" \
    "$TILEPACK" merge "$work/old" --force -q
fails "and what would replace the parts" 2 "'thesis.docx'" \
    "$TILEPACK" convert "$work/src" -o "$work/old" --to mxfp8-ct --device cpu --force
rm "$work/old.partial/thesis.docx"
check "merge --force" "$TILEPACK" merge "$work/old" --force -q
check "--force replaces by the same bytes" same "$work/few1" "$work/old"

# A merge --force that ended just behind the exchange: what was replaced lies under the unfinished
# name, half removed, and the output has its notes still.
cp "$work/notes"/.tilepack-* "$work/old"
cp -r "$work/one" "$work/old.partial"
rm "$work/old.partial/config.json"
mv "$work/src" "$work/elsewhere"
fails "nothing is deleted unasked" 2 "what the output has replaced is still here" merge old
touch "$work/old.partial/stray"
fails "what came into the old content stays" 2 "'stray'" "$TILEPACK" merge "$work/old" --force
check "in it" test -e "$work/old.partial/stray"
cp "$work/notes"/.tilepack-* "$work/old"
rm "$work/old.partial/stray"
can_preload && fails "what cannot be read is not said to be a stranger's" 5 "Input/output error" \
    reading_fails open old.partial/tilepack.json 5 "$TILEPACK" merge "$work/old" --force
answers "a merge that was interrupted behind the exchange is ended" 0 "complete already" \
    "$TILEPACK" merge "$work/old" --force
check "the old content is gone" test ! -e "$work/old.partial"
check "the notes, too" same "$work/few1" "$work/old"
mv "$work/elsewhere" "$work/src"

# An output may have any name, also that of an unfinished one.
long=$(printf '%0250d' 7)
for name in x.partial "$long"; do
    part 1/1 "$name" --to mxfp8-ct || bad "part 1/1 of $name"
    check "an output called ${name#"${name%????????}"} merges" merge "$name"
    check "under its name" same "$work/few1" "$work/$name"
done
part 1/1 named --to mxfp8-ct || bad "part 1/1"
fails "the unfinished name is not the output's" 2 "as the parts were given it" merge named.partial

# Compressed shards, a recipe, and the numbers from a job's environment.
cat >"$work/recipe.json" <<'JSON'
{"rules": [{"match": "experts", "to": "w4a8-ct"}, {"match": "self_attn", "to": "mxfp8-ct"},
           {"match": "no_such_weight", "to": "mxfp8-ct", "optional": true}]}
JSON
set -- --recipe "$work/recipe.json" --shard-size 500kB --zstd
"$TILEPACK" convert "$work/src" -o "$work/zst1" "$@" -q || bad "one process with --zstd"
for i in 7 9 11; do
    (
        export SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=7 SLURM_ARRAY_TASK_MAX=11 \
            SLURM_ARRAY_TASK_STEP=2
        part auto zst "$@"
    ) || bad "task $i of a Slurm array"
done
check "compressed parts of a recipe merge" merge zst
check "and equal one process" same "$work/zst1" "$work/zst"
for i in 0 1; do
    (
        export JOB_COMPLETION_INDEX=$i
        part auto/2 k8s --to mxfp8-ct
    ) || bad "index $i of a Kubernetes job"
done
check "parts of a Kubernetes job merge" merge k8s
check "and equal one process, too" same "$work/few1" "$work/k8s"

# A part that goes on when the source has become another one of the same times begins anew.
cp -r "$work/src" "$work/kept"
touch -d 2020-01-01 "$work/src"/*
check "a part" part 1/2 swapped --to mxfp8-ct --shard-size 500kB
for file in "$work/src"/*.safetensors; do
    "$PYTHON" -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-2, 2)
    f.write(b"\0\0")' "$file"
done
touch -d 2020-01-01 "$work/src"/*
for i in 1 2; do part $i/2 swapped --to mxfp8-ct --shard-size 500kB || bad "part $i/2 again"; done
check "its parts are merged" merge swapped
check "and are of one source" "$TILEPACK" verify "$work/swapped" --against "$work/src" -q
rm -r "$work/src"
mv "$work/kept" "$work/src"

# A shard that the system cannot read is not blamed on its part.
if can_preload; then
    for i in 1 2; do part $i/2 unread --to mxfp8-ct --shard-size 500kB || bad "part $i/2 of unread"; done
    shard=$(basename "$(find "$work/unread.partial" -name '*-00002-of-*.safetensors')")
    for failure in 'open 5' 'pread 5' 'pread 28' 'open 13'; do # EIO, ENOSPC, EACCES
        # shellcheck disable=SC2086 # two words
        fails "a shard whose $failure fails" 5 "unread.partial/$shard: cannot " \
            reading_fails ${failure% *} "$shard" ${failure#* } "$TILEPACK" merge "$work/unread"
    done
    fails "one that is gone is" 3 "this shard is not what part" \
        reading_fails open "$shard" 2 "$TILEPACK" merge "$work/unread"
    own=.tilepack-journal.1-of-2
    fails "a journal that cannot be looked at is not missing" 5 "$own: cannot look at" \
        reading_fails stat "$own" 5 "$TILEPACK" merge "$work/unread"
    fails "nor is its lock another's" 5 "$own: cannot look at" reading_fails stat "$own" 5 \
        "$TILEPACK" convert "$work/src" -o "$work/unread" --to mxfp8-ct --shard-size 500kB --part 1/2
    fails "nor is a checkpoint none whose manifest cannot be read" 5 "one/tilepack.json: cannot open" \
        reading_fails open one/tilepack.json 5 "$TILEPACK" convert "$work/src" -o "$work/one" \
        --to mxfp4-ct --force
    check "and read again it is merged" merge unread
fi

finish
