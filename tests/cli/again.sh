#!/bin/sh
# The same command again: an output is done when its manifest is intact, names this plan, its files
# have their sizes and no file of the source was changed since; where one was, the source is read
# again. What is there and is another output is status 7 with the reason, as text and as JSON, and
# --if-exists says what becomes of it.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/read_fails.sh
. "$TESTS/lib/read_fails.sh"

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
echo '{"tokens": []}' >"$work/model/tokenizer.json"
shard=$(find "$work/model" -name '*-00001-of-*.safetensors')
last=$(find "$work/model" -name '*-00003-of-00003.safetensors')
done_text='no file of the source has changed since'
read_text='source read again: the same'
changed_text='the output exists already, and the source has changed since'
flip() { # file: one byte of its data is another
    "$PYTHON" -c 'import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-7, 2); byte = f.read(1)[0]
    f.seek(-7, 2); f.write(bytes([byte ^ 1]))' "$1"
}
later() { sleep 0.05; } # longer than the steps of a file system's clock
touched() { # file: its ctime is new, and nothing else
    later
    chmod "$(stat -c %a "$1")" "$1"
}
says() { # name, expression of d, the printed object, that has to be true
    if "$PYTHON" -c "import json; d = json.load(open('$work/said')); assert $2, d" 2>"$work/out"
    then ok "$1"; else bad "$1"; cat "$work/out"; fi
}
other() { # name, status, reason, command ...: an output that is another one, in JSON
    title=$1 status=$2 reason=$3
    shift 3
    "$@" --json >"$work/said" 2>/dev/null
    check "$title: status $status" test $? = "$status"
    says "$title: $reason" "d['error']['code'] == $status and d['error']['reason'] == '$reason' \
and d['error']['kind'] == 'exists' and d['error']['hint']"
}

# ---- done: by the manifest, the sizes and the times alone

check "a conversion to come back to" convert again -q
answers "is done" 0 "$done_text" convert again
answers "and what was not looked at is named" 0 "tilepack verify" convert again
convert again --json >"$work/said"
says "as JSON: a kind and a reason" \
    "d['kind'] == 'done' and d['reason'] == 'same' and d['already_done']"
if can_preload; then # the headers alone are read, which are at the beginning
    for unread in tokenizer.json README.md model.safetensors; do
        answers "nothing is read of the output's $unread" 0 "$done_text" \
            reading_fails pread "again/$unread" 5 "$TILEPACK" convert "$work/model" \
            -o "$work/again" --to fp8-ct --device cpu
    done
    fails "a manifest that cannot be read is an error" 5 "again/tilepack.json: cannot read" \
        reading_fails pread again/tilepack.json 5 "$TILEPACK" convert "$work/model" \
        -o "$work/again" --to fp8-ct --device cpu
fi
flip "$work/again/tokenizer.json"
answers "nothing is said of content" 0 "$done_text" convert again
answers "which is what verify reads" 1 "tokenizer.json" "$TILEPACK" verify "$work/again"
flip "$work/again/tokenizer.json"
touch -d 2040-01-01 "$shard" # what anybody may set is not looked at; that it was set is
answers "a time of the future is read again" 0 "$read_text" convert again
answers "and once only" 0 "$done_text" convert again
check "archives" convert archives -q --zstd
answers "are done at any level" 0 "$done_text" convert archives --zstd=5

# ---- later: the source is read again

cp -rp "$work/again" "$work/kept"
for file in "$shard" "$last" "$work/model/tokenizer.json"; do
    touched "$file"
    name=$(basename "$file")
    answers "a later ctime of $name" 0 "$read_text" convert again
    answers "read again once" 0 "$done_text" convert again
done
touched "$shard"
convert again --json >"$work/said"
says "as JSON: read again" "d['kind'] == 'done' and d['reason'] == 'read-again'"
check "nothing was written but a time" diff -r "$work/again" "$work/kept"
cp -r "$work/model" "$work/copied"
answers "a copy of the source" 0 "$read_text" "$TILEPACK" convert "$work/copied" -o "$work/again" \
    --to fp8-ct --device cpu

# Two steps of a training run: names, headers, sizes and, set back, times are the same.
times=$(mktemp "$work/times.XXXXXX")
touch -r "$last" "$times"
later
flip "$last"
touch -r "$times" "$last"
for i in 1 2; do
    fails "$i: one byte of the last shard" 7 "$changed_text" convert again
done
other "one byte" 7 source convert again
check "the output is as it was" diff -r "$work/again" "$work/kept"
check "which verify says" "$TILEPACK" verify "$work/again" -q
flip "$last"
touch -r "$times" "$last"
answers "and as it was" 0 "$read_text" convert again

# Another shard, moved in with an old time, as `rsync -t`, `cp -p` and `mv` do it, and by a link.
cp -r "$work/model" "$work/swapped"
own=$work/swapped/$(basename "$shard")
of_swapped() { "$TILEPACK" convert "$work/swapped" -o "$work/of-swapped" --to fp8-ct --device cpu; }
cp "$own" "$work/other-shard"
flip "$work/other-shard"
touch -d 2020-01-01 "$work/other-shard"
cp -p "$work/other-shard" "$work/moved"
check "a source whose shard is to be replaced" of_swapped
later
mv "$work/moved" "$own"
fails "a shard that is older, but came later" 7 "$changed_text" of_swapped
rm -r "$work/of-swapped" "$own"
ln -s "$shard" "$own"
check "a source whose shard is a link" of_swapped
answers "is done" 0 "$done_text" of_swapped
later
ln -sf "$work/other-shard" "$own"
fails "a link that leads elsewhere since" 7 "$changed_text" of_swapped
later
ln -sf "$shard" "$own"
answers "and back" 0 "$read_text" of_swapped

# What is copied beside the weights.
cp -r "$work/model" "$work/beside"
echo '{"a": 1}' >"$work/beside/tokenizer.json"
echo 'A card of some words.' >"$work/beside/README.md"
beside() { "$TILEPACK" convert "$work/beside" -o "$work/beside-out" --to fp8-ct --device cpu "$@"; }
check "what is copied" beside -q
for name in tokenizer.json README.md; do
    cp "$work/beside/$name" "$work/kept.text"
    later
    flip "$work/beside/$name"
    fails "another $name of the same size" 7 "$changed_text" beside
    cp "$work/kept.text" "$work/beside/$name"
    answers "the same text again" 0 "$read_text" beside
done
later
echo text >"$work/beside/LICENSE"
fails "one that is new" 7 "$changed_text" beside
rm "$work/beside/LICENSE"
mv "$work/beside/tokenizer.json" "$work/kept.json"
fails "one that is gone" 7 "$changed_text" beside
mv "$work/kept.json" "$work/beside/tokenizer.json"
answers "all as it was" 0 "$read_text" beside
later
sed -i 's/"hidden_size"/"hidden-size"/' "$work/beside/config.json"
fails "another config.json" 7 "$changed_text" beside
sed -i 's/"hidden-size"/"hidden_size"/' "$work/beside/config.json"
answers "and as it was" 0 "$read_text" beside

# A shard that was not read whole, as by a run that went on, has no sum in the manifest.
"$PYTHON" - "$TESTS/lib" "$work/kept/tilepack.json" <<'END' || bad "a manifest"
import json, sys
sys.path.insert(0, sys.argv[1])
import own_hash
with open(sys.argv[2]) as f:
    info = json.load(f)
version = info.pop("tilepack")
del info["source"][-1]["data"]
with open(sys.argv[2], "wb") as f:
    f.write(own_hash.signed({"tilepack": version, "xxh3": "", **info}))
END
touched "$shard"
may_text='the output exists already, and the source may have changed since'
answers "a file without a sum that is not newer" 0 "$read_text" convert kept
touched "$last"
fails "one that is" 7 "$may_text" convert kept
other "may have changed" 7 source-maybe convert kept
rm -r "$work/kept"

# ---- another output

to_mxfp8() {
    "$TILEPACK" convert "$work/model" -o "$work/again" --to mxfp8-ct --device cpu "$@"
}
other "another format" 7 format to_mxfp8
fails "which is named" 7 "the output exists already, in another format: fp8-ct" to_mxfp8
for options in "--exclude mlp" "--shard-size 1MB" "--zstd" "--digest sha256"; do
    # shellcheck disable=SC2086 # an option and its value
    other "other options: $options" 7 options convert again $options
    # shellcheck disable=SC2086
    fails "in words" 7 "the output exists already, made with other options" convert again $options
done
other "no archives" 7 options convert archives
incomplete='the output exists already, and is not complete'
cp -p "$work/again/tilepack.json" "$work/kept.json"
echo >>"$work/again/tilepack.json"
fails "a manifest that is not as it was written" 7 "$incomplete: its manifest" convert again
other "a changed manifest" 7 incomplete convert again
echo '{' >"$work/again/tilepack.json"
fails "one that is none" 7 "$incomplete: its manifest" convert again
mv "$work/kept.json" "$work/again/tilepack.json"
mv "$work/again/tokenizer.json" "$work/kept.json"
fails "a file that has gone" 7 "$incomplete: 'tokenizer.json'" convert again
echo '{}' >"$work/again/tokenizer.json"
fails "or has another size" 7 "$incomplete: 'tokenizer.json'" convert again
other "a file" 7 incomplete convert again
mv "$work/kept.json" "$work/again/tokenizer.json"
cp -p "$work/again/tilepack.json" "$work/kept.json"
for long in "$(printf 'a%.0s' $(seq 300))" "$(printf 'a/%.0s' $(seq 3000))a"; do
    "$PYTHON" - "$TESTS/lib" "$work/again/tilepack.json" "$long" <<'END' || bad "a manifest"
import json, sys
sys.path.insert(0, sys.argv[1])
import own_hash
with open(sys.argv[2]) as f:
    info = json.load(f)
version = info.pop("tilepack")
info["files"][0]["name"] = sys.argv[3]
with open(sys.argv[2], "wb") as f:
    f.write(own_hash.signed({"tilepack": version, "xxh3": "", **info}))
END
    fails "a manifest that names what no file can be called" 7 "$incomplete" convert again -q
    answers "which verify says" 1 "File name too long" "$TILEPACK" verify "$work/again"
done
mv "$work/kept.json" "$work/again/tilepack.json"
mkdir "$work/foreign"
echo data >"$work/foreign/results.csv"
fails "what is none of tilepack's" 7 "the output exists already, and is none of tilepack's" \
    convert foreign
other "nor is that" 7 foreign convert foreign
file() { # options ...
    "$TILEPACK" convert "$shard" -o "$work/one.safetensors" --to fp8-ct --device cpu "$@"
}
check "a single file" file -q
other "which has no manifest" 7 file file
mkfifo "$work/pipe"
fails "a pipe is never replaced" 7 "choose another output" convert pipe -q --force
other "nor is a device" 7 kind convert pipe
rm "$work/pipe"
check "unpacked" "$TILEPACK" unpack "$work/again" -o "$work/plain" -q
answers "unpack: done" 0 "$done_text" "$TILEPACK" unpack "$work/again" -o "$work/plain"
fails "unpack: another output" 7 "in another format: fp8-ct" \
    "$TILEPACK" unpack "$work/again" -o "$work/archives"

# ---- --if-exists

for dst in again foreign; do
    cp -rp "$work/$dst" "$work/was"
    answers "$dst: skip" 0 "exists already, and is left as it is" convert $dst --if-exists skip
    convert $dst --if-exists skip --json >"$work/said"
    says "$dst: skip, as JSON" "d['kind'] == 'skipped'"
    fails "$dst: fail" 7 "the output exists already" convert $dst --if-exists fail
    check "$dst: as it was" diff -r "$work/$dst" "$work/was"
    rm -r "$work/was"
done
answers "read again before" 0 "$read_text" convert again
other "fail: also where it is this one" 7 same convert again --if-exists fail
for word in skip fail; do
    check "$word writes what is not there" convert "new-$word" -q --if-exists $word
    check "$word: whole" "$TILEPACK" verify "$work/new-$word" -q
done
check "replace is --force" convert again -q --if-exists replace --shard-size 1MB
answers "replace: another one now" 0 "$done_text" convert again --shard-size 1MB
check "replace: and nothing else" test ! -e "$work/again.old"
fails "another word" 2 "it is not one of skip fail replace" convert again --if-exists maybe
fails "--force beside another" 2 "--force is --if-exists replace, and not skip" \
    convert again --force --if-exists skip
fails "nor fail" 2 "--force is --if-exists replace, and not fail" \
    convert again --force --if-exists fail
check "merge: parts" convert parted -q --part 1/1
check "merge" "$TILEPACK" merge "$work/parted" -q
check "parts of what is there" convert kept-parts -q --part 1/1
cp -r "$work/foreign" "$work/kept-parts"
fails "merge: no word" 7 "none of tilepack's" "$TILEPACK" merge "$work/kept-parts"
answers "merge: skip" 0 "left as it is" "$TILEPACK" merge "$work/kept-parts" --if-exists skip
check "as it was" diff -r "$work/foreign" "$work/kept-parts"
check "and the parts are not lost" test -f \
    "$work/kept-parts.part-1-of-1/tilepack-part.json"

# What is written to a file beside the weights while they are converted is no change of the source.
sh -c 'cd "$1" && cp -r model logged && cd logged && "$2" convert . -o ../of-logged --to fp8-ct \
    --device cpu -v >convert.log 2>&1' - "$work" "$TILEPACK"
check "a log in the source's directory" "$TILEPACK" verify "$work/of-logged" -q
finish
