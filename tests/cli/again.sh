#!/bin/sh
# Done, and again: what is there is done if it is what would be written and its source is the one that
# it was made of, file for file; else that is read whole, and its sums compared. What says "exists" says
# why it is not the same, in words and for programs.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/read_fails.sh
. "$TESTS/lib/read_fails.sh"
again="source read again: the same"
complete="is complete already: this command made it"
changed="exists already, and the source has changed since"

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
echo '{}' >"$work/model/tokenizer.json"
last=$(find "$work/model" -name '*.safetensors' | sort | tail -n 1)
flip() { # file: one byte of its data is another
    "$PYTHON" -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-7, 2); byte = f.read(1)[0]
    f.seek(-7, 2); f.write(bytes([byte ^ 1]))' "$1"
}
from() { # source, output, options ...
    source=$work/$1 to=$work/$2
    shift 2
    "$TILEPACK" convert "$source" -o "$to" --to fp8-ct --device cpu "$@"
}

# ---- the source

check "a conversion" from model made -q
answers "is done" 0 "$complete" from model made
check "and reads nothing" sh -c "! grep -q 'read again' '$work/out'"
cp -p "$last" "$work/kept"
flip "$last"
touch -r "$work/kept" "$last"
fails "one byte of the last shard is another, and times are set back" 7 "$changed" from model made -q
fails "every time" 7 "$changed" from model made -q
fails "nor is it done for parts" 7 "$changed" from model made -q --part 1/1
check "--force makes it of what is there" from model made -q --force
answers "which is done" 0 "$complete" from model made
cat "$work/kept" >"$last"
check "as it was" from model made -q --force
chmod 600 "$last"
answers "other rights are no other source" 0 "$again" from model made
answers "which is known from then on" 0 "$complete" from model made
chmod 644 "$last"
cp "$last" "$work/copy" && mv "$work/copy" "$last"
answers "a copy in its place is read, too" 0 "$again" from model made
touch -d '2 hours' "$last"
answers "and one of the future" 0 "$again" from model made
answers "once" 0 "$complete" from model made
cp -r "$work/model" "$work/copied"
answers "so is a copy of all" 0 "$again" from copied made
cp -r "$work/made" "$work/made2"
answers "and the source of a copied output" 0 "$again" from copied made2
answers "which is known from then on, too" 0 "$complete" from copied made2

# Two steps of one training run: the same names, shapes and sizes, and both older than the output.
cp -r "$work/model" "$work/step-1" && cp -r "$work/model" "$work/step-2"
flip "$work/step-2/$(basename "$last")"
sleep 0.05
steps() { # what, command, the sources, output, options ...
    what=$1 command=$2 a=$work/$3 b=$work/$4 to=$work/$5
    shift 5
    case $command in convert) set -- --device cpu "$@" ;; esac
    check "$what of one step" "$TILEPACK" "$command" "$a" -o "$to" "$@" -q
    answers "$what: is done" 0 "$complete" "$TILEPACK" "$command" "$a" -o "$to" "$@"
    fails "$what: and not of the other" 7 "$changed" "$TILEPACK" "$command" "$b" -o "$to" "$@"
    answers "$what: is done, as it was" 0 "$complete" "$TILEPACK" "$command" "$a" -o "$to" "$@"
    cp -a "$to/tilepack.json" "$work/kept.json"
    echo >>"$to/tilepack.json"
    fails "$what: but not where the manifest has changed" 7 "its manifest is not as it was written" \
        "$TILEPACK" "$command" "$a" -o "$to" "$@"
    mv "$work/kept.json" "$to/tilepack.json"
}
steps convert convert step-1 step-2 one --to fp8-ct
steps "a shared global scale" convert step-1 step-2 global --to nvfp4-ct
steps archives convert step-1 step-2 archives --to fp8-ct --zstd
check "the other one" from step-2 other -q
steps unpack unpack one other plain
mv "$work/step-1" "$work/step-3" && mv "$work/step-2" "$work/step-1" && mv "$work/step-3" "$work/step-2"
fails "two folders changed over" 7 "$changed" from step-1 one
answers "and the other one is found again" 0 "$complete" from step-2 one

# Another training's shard with an old time, moved in as `rsync -t`, `cp -p` and `mv` do it, and a
# link that leads to one that has been there for long.
cp -r "$work/model" "$work/swapped"
own=$work/swapped/$(basename "$last")
cp "$own" "$work/other-shard"
flip "$work/other-shard"
touch -d 2020-01-01 "$work/other-shard"
cp -p "$work/other-shard" "$work/moved"
check "a source whose shard is to be replaced" from swapped of-swapped -q
mv "$work/moved" "$own"
fails "a shard that is older, but came later" 7 "$changed" from swapped of-swapped
rm -r "$work/of-swapped" "$own"
ln -s "$last" "$own"
check "a source whose shard is a link" from swapped of-swapped
answers "is done" 0 "$complete" from swapped of-swapped
ln -sf "$work/other-shard" "$own"
fails "a link that leads elsewhere since" 7 "$changed" from swapped of-swapped

# What is written to a file beside the weights while they are converted is no change of the source.
sh -c 'cd "$1" && cp -r model logged && cd logged && "$2" convert . -o ../of-logged --to fp8-ct \
    --device cpu -v >convert.log 2>&1' - "$work" "$TILEPACK"
check "a log in the source's directory" "$TILEPACK" verify "$work/of-logged" -q

# What is copied beside the weights, and the card, whatever their times say.
cp -r "$work/model" "$work/beside"
echo '{"a": 1}' >"$work/beside/tokenizer.json"
echo text >"$work/beside/README.md"
for other in LICENSE tokenizer.json README.md; do
    cp -r "$work/beside" "$work/beside-$other"
    echo '{"a": 2}' >"$work/beside-$other/$other"
done
check "what is copied" from beside beside-out -q
answers "as it was" 0 "$complete" from beside beside-out
for other in LICENSE tokenizer.json README.md; do
    fails "an older folder with another $other" 7 "$changed" from "beside-$other" beside-out
done
mv "$work/beside/tokenizer.json" "$work/kept.json"
fails "one that is gone" 7 "$changed" from beside beside-out
echo '{"a": 1}' >"$work/beside/tokenizer.json"
answers "the same text in a new file" 0 "$again" from beside beside-out
echo '{"model_type": "other"}' >"$work/beside-LICENSE/config.json"
rm "$work/beside-LICENSE/LICENSE"
fails "another config.json" 7 "$changed" from beside-LICENSE beside-out
if can_preload; then
    for unread in beside-out/tilepack.json beside/tokenizer.json; do
        touch "$work/beside/tokenizer.json"
        fails "where $unread cannot be read" 5 "$unread: cannot read" \
            reading_fails pread "$unread" 5 "$TILEPACK" convert "$work/beside" \
            -o "$work/beside-out" --to fp8-ct --device cpu
    done
fi

# A file that was not read whole has no sum. So it is, too, with manifests of 0.1.0.
edit() { # what is done to the manifest `info`
    "$PYTHON" - "$TESTS/lib" "$work/made2/tilepack.json" "$1" <<'EOF' || bad "a manifest"
import json, sys
sys.path.insert(0, sys.argv[1])
import own_hash
with open(sys.argv[2]) as f:
    info = json.load(f)
version = info.pop("tilepack")
exec(sys.argv[3])
with open(sys.argv[2], "wb") as f:
    f.write(own_hash.signed({"tilepack": version, "xxh3": "", **info}))
EOF
}
cp -r "$work/made/." "$work/made2"
edit 'del info["source"][-1]["data"]'
chmod 600 "$work/copied"/*
fails "without a sum" 7 "the source may have changed since" from copied made2
check "before the work" test ! -e "$work/made2.partial"

# An interrupted run of this very command, of a source that has changed since.
unfinished() { # output: its first shard was too large, and its source is another one since
    (ulimit -f 100 && ! from model "$1" -q 2>/dev/null) || bad "a run that fails"
    sed -i "1s/[0-9a-f]*\$/$(printf '%032d' 7)/" "$work/$1.partial/.tilepack-journal"
    echo "model.safetensors $(printf '%032d' 7)" >>"$work/$1.partial/.tilepack-journal"
}
unfinished cut
fails "what is there cannot be finished" 7 "of this command is here, and its source has changed" \
    from model cut
check "and not by that command" sh -c "! grep -q 'finish what is there' '$work/err'"
check "but begun anew" grep -qF -e "--force starts over" "$work/err"
fails "another command can" 7 "finish what is there (tilepack convert $work/model -o $work/cut" \
    from model cut --exclude mlp
check "--force does" from model cut -q --force
check "and leaves a whole one" "$TILEPACK" verify "$work/cut" -q

# ---- why it is not the same

reason() { # what, status, kind, reason, command ...: in JSON
    what=$1 wanted=$2 kind=$3 reason=$4
    shift 4
    "$@" --json >"$work/said" 2>/dev/null
    status=$?
    check "$what: $kind, $reason" "$PYTHON" -c 'import json, sys
said = json.load(open(sys.argv[1]))
said = said.get("error", said)
assert int(sys.argv[2]) == int(sys.argv[3]), said
assert (said["kind"], said.get("reason", "")) == (sys.argv[4], sys.argv[5]), said' \
        "$work/said" "$status" "$wanted" "$kind" "$reason"
}
reason "no sum" 7 exists source-maybe from copied made2
reason "a new output" 0 written "" from model new
reason "done" 0 "done" same from model new
reason "a copy" 0 "done" read-again from copied new
reason "another step" 7 exists source from step-1 new
reason "another format" 7 exists format "$TILEPACK" convert "$work/model" -o "$work/new" --to mxfp8-ct
answers "which one it is in" 7 "in another format: fp8-ct" \
    "$TILEPACK" convert "$work/model" -o "$work/new" --to mxfp8-ct
reason "unpacked" 7 exists format "$TILEPACK" unpack "$work/new" -o "$work/made"
reason "other options" 7 exists options from model new --exclude mlp
reason "shards of another size" 7 exists options from model new --shard-size 1MB
reason "archives" 7 exists options from model new --zstd
reason "digests" 7 exists options from model new --digest sha256
rm "$work/new/config.json"
reason "not complete" 7 exists incomplete from model new
mkdir "$work/foreign" && : >"$work/foreign/file"
reason "a stranger's" 7 exists foreign from model foreign
reason "a file in place of a directory" 7 exists kind from model foreign/file
mv "$work/kept" "$work/kept.safetensors"
one() { # output, options ...: a single file
    to=$work/$1
    shift
    "$TILEPACK" convert "$last" -o "$to" --to fp8-ct --device cpu "$@"
}
reason "a stranger's file" 7 exists foreign one kept.safetensors
check "a file" one one.safetensors -q
reason "which nothing says the source of" 7 exists file one one.safetensors
fails "in words" 7 "a single file has no manifest that says what it was made of" one one.safetensors
fails "and of a stranger's" 7 "exists already, and is none of tilepack's" one kept.safetensors
rm -r "$work/cut"
unfinished cut
reason "an unfinished one" 7 exists unfinished from model cut

# ---- --if-exists

reason "skip: nothing there" 0 written "" from model other --if-exists replace
reason "skip" 0 skipped format "$TILEPACK" convert "$work/model" -o "$work/other" --to mxfp8-ct \
    --if-exists skip
reason "skip what is done" 0 skipped same from model other --if-exists skip
answers "in words" 0 "$work/other exists already, and is left as it is" \
    from model other --if-exists skip
reason "skip a stranger's" 0 skipped foreign from model foreign --if-exists skip
check "which stays" test -f "$work/foreign/file" -a ! -e "$work/foreign/tilepack.json"
reason "skip a file" 0 skipped file one one.safetensors --if-exists skip
said() { # the keys of what was skipped
    check "$1: no more is said" "$PYTHON" -c 'import json, sys
said = json.load(open(sys.argv[1]))
assert set(said) == {"version", "output", "already_done", "kind", "reason"}, sorted(said)
assert not said["already_done"], said' "$work/said"
}
said "a file"
reason "skip what lacks a file" 0 skipped incomplete from model new --if-exists skip
said "what lacks a file"
reason "skip it as a part" 0 skipped incomplete from model new --if-exists skip --part 1/1
said "a part"
reason "skip what unpack finds" 0 skipped foreign "$TILEPACK" unpack "$work/one" \
    -o "$work/foreign" --if-exists skip
said "unpack"

# What is not read for skip and fail, though its files are newer.
chmod 600 "$last"
reason "skip: newer" 0 skipped source-unread from model other --if-exists skip
reason "fail: newer" 7 exists source-unread from model other --if-exists fail
fails "in words" 7 "its files are others, or newer, and were not read" \
    from model other --if-exists fail
check "with what to do" grep -qF "without --if-exists the source is read and compared" "$work/err"
answers "which helps" 0 "$again" from model other
reason "skip: read since" 0 skipped same from model other --if-exists skip
reason "fail: read since" 7 exists same from model other --if-exists fail
reason "fail, though it is the same" 7 exists same from model other --if-exists fail
reason "replace" 0 written "" from model other --if-exists replace
reason "unpack: fail" 7 exists same "$TILEPACK" unpack "$work/one" -o "$work/plain" --if-exists fail
reason "unpack: skip" 0 skipped same "$TILEPACK" unpack "$work/one" -o "$work/plain" --if-exists skip
reason "unpack: replace" 0 written "" "$TILEPACK" unpack "$work/one" -o "$work/plain" \
    --if-exists replace
fails "two that are not one" 2 "--force is --if-exists replace, and not skip" \
    from model other --force --if-exists skip
fails "another word" 2 "not one of skip fail replace" from model other --if-exists never
reason "kept" 0 written "" from model foreign --force
check "and where" grep -q '"old": ".*foreign.old"' "$work/said"
finish
