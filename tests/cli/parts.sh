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
of() { echo "$work/$2.part-${1%/*}-of-${1#*/}"; } # I/P, DST: the part's directory
alone() { test -z "$(find "$work" -maxdepth 1 -name "$1.*")"; } # nothing beside DST

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/src" --preset tiny-mixtral >/dev/null ||
    exit 1
echo '{"a": 1}' >"$work/src/tokenizer.json"
mkdir "$work/src/1_Pooling" && echo '{}' >"$work/src/1_Pooling/config.json"

# The four parts in an order of their own, small shards: more than one each.
set -- --to w4a8-cutlass --shard-size 500kB
"$TILEPACK" convert "$work/src" -o "$work/one" "$@" -q || exit 1
for i in 3 1 4 2; do part $i/4 four "$@" || bad "part $i/4"; done
check "parts leave DST alone" test ! -e "$work/four" -a ! -e "$work/four.partial"
check "a part has its shards and what it says of them" test "$(find "$(of 1/4 four)" -mindepth 1 | wc -l)" = 3
check "again it does nothing" part 1/4 four "$@"
check "four parts merge" merge four
check "four parts equal one process in every file" same "$work/one" "$work/four"
check "and nothing else is left" alone four
check "merging twice says so" sh -c "'$TILEPACK' merge '$work/four' | grep -q 'complete already'"
cp -p "$work/four/tilepack.json" "$work/kept.json"
echo >>"$work/four/tilepack.json"
fails "nor where the manifest has changed" 2 "four: there are no parts of this output" merge four
fails "nor does a part" 7 "exists already, and is not complete" part 2/4 four "$@"
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
fails "a part with shards is missed" 3 "1 of 5 parts are not complete, part 1/5 first" merge few
check "the part with the shard" part 1/5 few --to mxfp8-ct
check "more parts than shards merge" merge few
check "more parts than shards equal one process" same "$work/few1" "$work/few"
check "and all parts are gone" alone few

part 2/14 many "$@" --shard-size 100kB || bad "part 2/14"
fails "many missing parts are counted" 3 "10 of 14 parts are not complete, part 1/14 first" merge many

# What stands in a part under the name of a file, and is none, is made again.
a_socket() { # its whole name may be too long for one
    (cd "${1%/*}" && "$PYTHON" -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "${1##*/}")
}
soon() { timeout -k 1 20 "$TILEPACK" "$@"; } # what waits for a pipe does not end by itself
shard=model-00001-of-00007.safetensors
for kind in mkfifo a_socket mkdir; do
    for i in 1 2; do part $i/2 odd "$@" || bad "part $i/2"; done
    [ $kind = mkdir ] || {
        rm "$(of 1/2 odd)/$shard"
        $kind "$(of 1/2 odd)/$shard"
        answers "a shard by $kind is made again" 0 "1 of 7 shards were not what the parts had" \
            soon merge "$work/odd"
        check "and equals one process, too" same "$work/one" "$work/odd"
        rm -r "$work/odd"
    }
    for i in 1 2; do part $i/2 odd "$@" || bad "part $i/2"; done
    file=$(of 2/2 odd)/tilepack-part.json
    mv "$file" "$work/kept"
    $kind "$file"
    fails "what a part says of itself by $kind" 3 "tilepack-part.json: not a regular file" \
        soon merge "$work/odd"
    rm -r "$file"
    mv "$work/kept" "$file"
    check "what is as it was merges" merge odd
    rm -r "$work/odd"
done

# A part that is killed half-way, and started again.
for i in 1 2 4; do part $i/4 kill "$@" || bad "part $i/4"; done
fails "the missing part is named" 3 "1 of 4 parts are not complete, part 3/4 first" merge kill
"$TILEPACK" convert "$work/src" -o "$work/kill" --part 3/4 -j 1 --device cpu -q "$@" &
pid=$!
journal=$(of 3/4 kill).partial/.tilepack-journal
tries=0
while ! grep -q model- "$journal" 2>/dev/null && [ $tries -lt 2000 ] && kill -0 $pid 2>/dev/null; do
    tries=$((tries + 1))
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
if [ -e "$journal" ]; then
    fails "a killed part is named" 3 "part 3/4 first" merge kill
fi
check "the killed part again" part 3/4 kill "$@"
check "parts with one killed merge" merge kill
check "parts with one killed equal one process" same "$work/one" "$work/kill"
check "and nothing else is left" alone kill

# A merge that is killed goes on where it was.
for i in 1 2; do part $i/2 cut "$@" || bad "part $i/2"; done
mkdir "$work/cut.partial"
check "one that cannot end" sh -c "! (ulimit -f 1; exec '$TILEPACK' merge '$work/cut' -q) 2>/dev/null"
for i in 1 2; do part $i/2 cut2 "$@" || bad "part $i/2"; done
check "is ended by the next" merge cut
check "and equals one process" same "$work/one" "$work/cut"
check "and nothing else is left" alone cut

# A shard that rots between part and merge, and one that is gone.
for i in 1 2; do part $i/2 rot "$@" || bad "part $i/2"; done
printf 'x' | dd of="$(of 2/2 rot)/model-00002-of-00007.safetensors" bs=1 seek=5000 conv=notrunc \
    2>/dev/null
rm "$(of 1/2 rot)/model-00003-of-00007.safetensors"
touch "$(of 1/2 rot)/stray"
answers "shards that are not what was written are made again" 0 \
    "2 of 7 shards were not what the parts had written" "$TILEPACK" merge "$work/rot"
check "and equal one process" same "$work/one" "$work/rot"
check "a stray file is not deleted" test -e "$(of 1/2 rot)/stray"
for i in 1 2; do part $i/2 gone "$@" || bad "part $i/2"; done
rm "$(of 1/2 gone)/model-00003-of-00007.safetensors"
check "a part that lacks one makes itself anew" part 1/2 gone "$@"
check "all of itself" test -e "$(of 1/2 gone)/model-00003-of-00007.safetensors"

# What is refused before its first shard is in nobody's way.
fails "a part that has not enough memory" 6 "more memory is needed: --max-memory" part 1/2 small "$@" --zstd \
    --max-memory 32MiB
check "leaves nothing" test -z "$(find "$work" -name 'small*')"
check "one that was begun" sh -c "! (ulimit -f 100; exec \"\$@\") 2>/dev/null" - "$TILEPACK" \
    convert "$work/src" -o "$work/small" --part 1/2 -j 1 --device cpu -q "$@" --zstd
check "has left some of a shard" test -n "$(find "$(of 1/2 small).partial" -name 'model-*')"
fails "is refused for its memory, too" 6 "more memory is needed: --max-memory" part 1/2 small "$@" --zstd \
    --max-memory 32MiB
check "and goes on when there is enough" part 1/2 small "$@" --zstd

# Mixtures.
part 1/2 mix "$@"
part 2/2 mix --to mxfp8-ct
fails "other options are found by merge" 3 "part 1/2 and part 2/2 are of different plans: their options" \
    merge mix
fails "and by the part itself" 7 "other options" part 2/2 mix "$@"
check "which --force makes anew" part 2/2 mix "$@" --force
part 1/3 mix "$@"
fails "another number of parts is refused" 3 "another number of parts" merge mix
rm -r "$(of 1/3 mix)"
fails "another compression is refused" 7 "other options" part 2/2 mix "$@" --zstd
check "the part again" part 2/2 mix "$@" --zstd --force
fails "and found by merge" 3 "their options differ" merge mix
check "one process takes no notice of parts" \
    "$TILEPACK" convert "$work/src" -o "$work/mix" "$@" -q
for change in 's/"tilepack_part": 2/"tilepack_part": 3/' 's/"zstd": 1/"zstd": -1/' \
    's/"plan": "../"plan": "/' 's/"journal": ".*"/"journal": 5/' 's/"request": {/"Request": {/' \
    's/}$//'; do
    cp -r "$(of 2/2 mix)" "$(of 1/1 changed)"
    sed -i "$change" "$(of 1/1 changed)/tilepack-part.json"
    fails "a changed file of a part: $change" 3 "changed.part-1-of-1/tilepack-part.json: " merge changed
    rm -r "$(of 1/1 changed)"
done
mkdir "$(of 1/1 changed)"
"$PYTHON" -c '
import sys
with open(sys.argv[1], "w") as file:
    file.write("{\"request\": {" + ",".join(f"\"{i}\": 0" for i in range(1_000_000)) + "}}")
' "$(of 1/1 changed)/tilepack-part.json"
fails "a large one is not read beyond the limit" 6 "more memory is needed: --max-memory" \
    "$TILEPACK" merge "$work/changed" --max-memory 64MiB
fails "no parts" 2 "there are no parts" merge nothing
"$TILEPACK" convert "$work/src" -o "$work/mix2.safetensors" --part 1/2 "$@" 2>"$work/err"
check "a single file has no parts" test $? = 2
mkdir "$(of 1/2 mine)"
echo mine >"$(of 1/2 mine)/notes"
fails "a folder of somebody's under a part's name" 7 "mine.part-1-of-2: it has the name of a part" \
    part 1/2 mine "$@"
fails "it stops merge, too" 7 "mine.part-1-of-2: it has the name of a part" merge mine
check "which stays" test -e "$(of 1/2 mine)/notes"

# A part whose process is at work: nobody else is it.
check "a part" sh -c "! (ulimit -f 100; exec \"\$@\") 2>/dev/null" - "$TILEPACK" \
    convert "$work/src" -o "$work/busy" --part 2/2 -j 1 --device cpu -q "$@"
"$PYTHON" -c 'import fcntl, sys, time
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)' "$(of 2/2 busy).partial/.tilepack-journal" >"$work/locked" &
pid=$!
while [ ! -s "$work/locked" ] && kill -0 $pid; do :; done
fails "the same part twice at a time" 8 "another tilepack is writing" part 2/2 busy "$@"
check "another part at the same time" part 1/2 busy "$@"
fails "merge while a part is at work" 8 "part 2/2 is still being written" merge busy
kill $pid
wait $pid 2>/dev/null
fails "merge when it was killed" 3 "part 2/2 first" merge busy
check "the part when it has ended" part 2/2 busy "$@"
check "merge" merge busy
check "and equal one process, as ever" same "$work/one" "$work/busy"

# What merge says for programs.
says() { # title, status, kind, reason, options ...
    title=$1 status=$2 kind=$3 reason=$4
    shift 4
    "$TILEPACK" merge "$work/says" --json "$@" >"$work/said" 2>/dev/null
    check "$title: $kind $reason" "$PYTHON" -c 'import json, sys
said = json.load(open(sys.argv[1]))
keys = set(said)
said = said.get("error", said)
assert int(sys.argv[2]) == int(sys.argv[3]), said
assert (said["kind"], said.get("reason", "")) == (sys.argv[4], sys.argv[5]), said
assert said["kind"] == "written" or not keys & {"bytes_out", "shards"}, keys' \
        "$work/said" $? "$status" "$kind" "$reason"
}
for i in 1 2; do part $i/2 says "$@" || bad "part $i/2"; done
cp -r "$work/says.part-1-of-2" "$work/kept-part"
says "merge" 0 written ""
says "again" 0 "done" merged
says "again, with a word for it" 0 skipped merged --if-exists skip
says "or with another" 7 exists merged --if-exists fail
mv "$work/kept-part" "$work/says.part-1-of-2"
says "a part, and something else in its place" 0 skipped same --if-exists skip
rm -r "$work/says.part-1-of-2"

# A source that changed, and one that moved.
for i in 1 2; do part $i/2 moved "$@" || bad "part $i/2"; done
cp -pr "$work/src" "$work/elsewhere"
touch "$work/src/"*.safetensors
fails "a changed source is found" 3 "not the one that the parts converted" merge moved
fails "a part of the changed source" 7 "source that has changed" part 1/2 moved "$@"
mv "$work/src" "$work/gone"
fails "a source that is gone" 5 "--source" merge moved
check "--source" "$TILEPACK" merge "$work/moved" --source "$work/elsewhere" -q
check "from the moved source the same" same "$work/one" "$work/moved"
mv "$work/elsewhere" "$work/src"

# An output in the way.
fails "a part of something else is refused" 7 "in another format: w4a8-cutlass" part 1/2 one --to mxfp8-ct
cp -r "$work/one" "$work/old"
for i in 1 2; do part $i/2 old --to mxfp8-ct --force || bad "part $i/2 --force"; done
check "parts do not touch the old output" same "$work/one" "$work/old"
mkdir "$work/csv" && echo data >"$work/csv/results.csv"
mkdir "$work/csv.old"
fails "a part does not work for what no merge will replace" 7 "what an earlier --force has replaced" \
    part 1/2 csv --to mxfp8-ct --force
check "nothing was begun" test ! -e "$(of 1/2 csv).partial"
fails "merge does not replace by itself" 7 "in another format: w4a8-cutlass" merge old
check "merge --force" "$TILEPACK" merge "$work/old" --force -q
check "--force replaces by the same bytes" same "$work/few1" "$work/old"
check "what it replaced has a folder, and is kept" same "$work/one" "$work/old.old"

# A merge that was killed while it removed the parts.
for i in 1 2; do part $i/2 ends "$@" || bad "part $i/2"; done
cp -r "$(of 2/2 ends)" "$work/kept-part"
check "a merge" merge ends
for force in "" --force; do
    cp -r "$work/kept-part" "$(of 2/2 ends)"
    mkdir "$(of 1/2 ends)"
    rm "$(of 2/2 ends)/"*.safetensors
    # shellcheck disable=SC2086 # no word, or one
    answers "what it left goes $force" 0 "complete already" "$TILEPACK" merge "$work/ends" $force
    check "all of it" alone ends
done

# An output may have any name, also that of an unfinished one.
long=$(printf '%0250d' 7)
for name in x.partial "$long"; do
    part 1/1 "$name" --to mxfp8-ct || bad "part 1/1 of $name"
    check "an output called ${name#"${name%????????}"} merges" merge "$name"
    check "under its name" same "$work/few1" "$work/$name"
done

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

# A part that goes on when the source has become another one of the same times begins anew, also
# when it was complete.
cp -r "$work/src" "$work/kept-src"
touch -d 2020-01-01 "$work/src"/*
check "a part" part 1/2 swapped --to mxfp8-ct --shard-size 500kB
check "and one that was begun" part 2/2 swapped --to mxfp8-ct --shard-size 500kB
mv "$(of 2/2 swapped)" "$(of 2/2 swapped).partial"
"$PYTHON" - "$(of 2/2 swapped).partial" <<'END'
import json, os, sys
path = os.path.join(sys.argv[1], "tilepack-part.json")
part = json.load(open(path))
os.remove(path)
with open(os.path.join(sys.argv[1], ".tilepack-journal"), "w") as journal:
    journal.write(f"tilepack-journal 1 {part['plan']}\n# source {part['source_id']}\n")
    journal.writelines(part["journal"].splitlines(True)[3:])
END
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
mv "$work/kept-src" "$work/src"

# What the system cannot read is no part that is missing, or another's.
if can_preload; then
    for i in 1 2; do part $i/2 unread --to mxfp8-ct --shard-size 500kB || bad "part $i/2 of unread"; done
    for call in open pread; do
        fails "a part whose $call fails" 5 "unread.part-1-of-2/tilepack-part.json: cannot " \
            reading_fails $call tilepack-part.json 5 "$TILEPACK" merge "$work/unread"
        fails "and its process, too" 5 "unread.part-1-of-2/tilepack-part.json: cannot " \
            reading_fails $call tilepack-part.json 5 "$TILEPACK" convert \
            "$work/src" -o "$work/unread" --to mxfp8-ct --shard-size 500kB --part 1/2
    done
    fails "a checkpoint is not none whose manifest cannot be read" 5 "one/tilepack.json: cannot open" \
        reading_fails open one/tilepack.json 5 "$TILEPACK" convert "$work/src" -o "$work/one" \
        --to mxfp4-ct
    check "and read again it is merged" merge unread
fi

finish
