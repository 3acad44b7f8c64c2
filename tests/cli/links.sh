#!/bin/sh
# Links that somebody planted. Below an output nothing is written or deleted through a link, be
# it in the unfinished directory, in its place, or beside a single file, or come while the program
# works; a directory of another
# user is refused. In a source, files that are merely copied may be links within the checkpoint
# or into the Hub's cache, others only with --follow-links. An output is readable by nobody who
# cannot read its source.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
convert() { # source, output, options ...
    from=$1 to=$2
    shift 2
    "$TILEPACK" convert "$work/$from" -o "$work/$to" --to mxfp8-ct -j 2 --device cpu -q "$@"
}
victim() { # fresh, and out of everybody's way
    rm -rf "$work/dst" "$work/dst.old" "$work"/*.partial "$work"/.*.partial* "$work/victim" "$work/folder"
    echo precious >"$work/victim"
    mkdir "$work/folder"
    echo precious >"$work/folder/config.json"
    cp "$work/folder/config.json" "$work/folder/model.safetensors"
}
unharmed() {
    check "$1: nothing was harmed" sh -c "
        grep -qx precious '$work/victim' && grep -qx precious '$work/folder/config.json' &&
        grep -qx precious '$work/folder/model.safetensors' &&
        test \$(ls -A '$work/folder' | wc -l) = 2"
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
shard=$(basename "$work/model/"*-00001-of-*.safetensors)

# ---- below the output

victim
mkdir "$work/dst.partial"
ln -s ../victim "$work/dst.partial/.tilepack-journal"
fails "a journal that is a link" 2 "a link is in its place" convert model dst
unharmed "journal"

victim
ln -s folder "$work/dst.partial"
fails "an unfinished directory that is a link" 2 "a link is in its place" convert model dst
fails "the same, with --force" 2 "a link is in its place" convert model dst --force
check "a part" convert model dst --part 1/1
fails "the same, for a merge" 2 "a link is in its place" "$TILEPACK" merge "$work/dst"
rm -r "$work/dst.part-1-of-1"
ln -s folder "$work/dst.part-1-of-1.partial"
fails "the same, for a part" 2 "a link is in its place" convert model dst --part 1/1
ln -s folder "$work/dst.part-1-of-1"
fails "a part that is a link" 2 "a link is in its place" convert model dst --part 1/1
fails "and is merged" 2 "a link is in its place" "$TILEPACK" merge "$work/dst"
rm "$work/dst.part-1-of-1" "$work/dst.part-1-of-1.partial"
unharmed "unfinished directory"

# What an interrupted run left is swept, and written anew: never through a link.
victim
mkdir "$work/dst.partial"
: >"$work/dst.partial/.tilepack-journal"
for name in $shard config.json model.safetensors.index.json tilepack.json tokenizer.json; do
    ln -s ../victim "$work/dst.partial/$name"
done
check "links among what is swept" convert model dst
unharmed "sweep"
check "the output has none" test -z "$(find "$work/dst" -type l)"

victim
check "an output" convert model dst
ln -s ../folder "$work/dst/code"
check "--force does not look behind a link" convert model dst --force --shard-size 1MB
check "and keeps it" test -L "$work/dst.old/code"
unharmed "--force"
rm -r "$work/dst.old"

victim
mkdir "$work/dst.part-1-of-2.partial"
for name in tilepack-part.json "$shard" "$shard.zst"; do
    ln -s ../victim "$work/dst.part-1-of-2.partial/$name"
done
: >"$work/dst.part-1-of-2.partial/.tilepack-journal"
check "links where a part writes" convert model dst --part 1/2
unharmed "part"
victim
ln -sf ../victim "$work/dst.part-1-of-2/model.safetensors"
answers "a link in a part is not what was written" 0 "1 of 1 shards were not what" \
    "$TILEPACK" merge "$work/dst"
unharmed "shard of a part"
victim
check "a part" convert model dst --part 1/2
ln -sf ../victim "$work/dst.part-1-of-2/tilepack-part.json"
fails "what a part says of itself, by a link" 2 "a link is in its place" "$TILEPACK" merge "$work/dst"
unharmed "file of a part"
rm -r "$work/dst.part-1-of-2"

# ---- beside a single file

set -- convert "model/$shard" dst.safetensors
rm -f "$work/dst.safetensors"
victim
ln -s victim "$work/.dst.safetensors.tilepack.partial"
fails "an unfinished file that is a link" 2 "a link is in its place" "$@"
unharmed "unfinished file"
victim
ln -s victim "$work/.dst.safetensors.zst.tilepack.partial.zst"
check "an archive's unfinished file that is a link" convert "model/$shard" dst.safetensors.zst
unharmed "archive"
check "the archive is a file" test -f "$work/dst.safetensors.zst" -a ! -L "$work/dst.safetensors.zst"

ln -s folder "$work/way"
check "an archive in a folder that is a link" convert "model/$shard" way/new.safetensors.zst
check "is where that leads" test -f "$work/folder/new.safetensors.zst"
rm "$work/way"

# ---- in a source

echo secret >"$work/secret"
linked() { # name, target: a fresh source with one link in it
    rm -rf "$work/linked" "$work/dst" "$work/dst.old" "$work/plain"
    cp -r "$work/model" "$work/linked"
    ln -s "$2" "$work/linked/$1"
}
linked notes.txt ../secret
fails "a file that leads out is not copied" 3 "--follow-links" convert linked dst
fails "and named" 3 "notes.txt" convert linked dst
fails "nor planned" 3 "--follow-links" "$TILEPACK" plan "$work/linked" --to mxfp8-ct -q
check "looking at the checkpoint is fine" "$TILEPACK" dump "$work/linked"
check "with --follow-links it is copied" convert linked dst --follow-links
check "as a file" sh -c "test ! -L '$work/dst/notes.txt' && grep -q secret '$work/dst/notes.txt'"
rm "$work/dst/notes.txt"
ln -s ../secret "$work/dst/notes.txt"
fails "unpack: the same" 3 "--follow-links" "$TILEPACK" unpack "$work/dst" -o "$work/plain" -q
check "unpack --follow-links" "$TILEPACK" unpack "$work/dst" -o "$work/plain" -q --follow-links
fails "--strict goes first" 3 "leads out of" convert linked dst --force --strict --follow-links
if [ "$(cat /proc/version 2>/dev/null)" ]; then # its size is said to be 0
    cp -r "$work/model" "$work/unsized"
    ln -s /proc/version "$work/unsized/notes.txt"
    fails "a file that holds more than its size" 3 "holds more than the 0 bytes" \
        convert unsized unsized-dst --follow-links
    mv "$work/unsized/notes.txt" "$work/unsized/README.md"
    fails "a card that does" 3 "holds more than the 0 bytes" \
        convert unsized unsized-card --follow-links
fi
linked notes.txt tokenizer.json
check "a link within the checkpoint is followed" convert linked dst --strict
check "and copied as a file" cmp "$work/dst/notes.txt" "$work/model/tokenizer.json"
check "which is none" test ! -L "$work/dst/notes.txt"

# So it is with config.json, whose keys go into the output.
cp "$work/model/config.json" "$work/elsewhere.json"
for target in ../elsewhere.json copy-of-config.json; do
    linked x "$target"
    rm "$work/linked/x"
    mv "$work/linked/config.json" "$work/linked/copy-of-config.json"
    ln -s "$target" "$work/linked/config.json"
    [ "$target" = copy-of-config.json ] && break
    fails "a config that leads out" 3 "--follow-links" convert linked dst
    fails "unpack: the same" 3 "--follow-links" "$TILEPACK" unpack "$work/linked" -o "$work/plain"
    check "looking at the checkpoint is fine" "$TILEPACK" dump "$work/linked"
    check "with --follow-links it is read" convert linked dst --follow-links
done
check "one that leads to a file within is read" convert linked dst

# Weights may lie anywhere, as people do that, but not with --strict.
linked x ../secret
rm "$work/linked/x" "$work/linked/$shard"
ln -s "../model/$shard" "$work/linked/$shard"
check "a shard may lie elsewhere" convert linked dst
fails "but not with --strict" 3 "leads out of" convert linked dst --force --strict

# The Hub's cache: snapshots/REV/NAME -> ../../blobs/HASH, in subfolders deeper.
hub() { # folder below the snapshot, path back to the cache
    snapshot=hub/snapshots/0123456789abcdef0123456789abcdef01234567$1
    rm -rf "$work/hub" "$work/dst" "$work/dst.old"
    mkdir -p "$work/$snapshot" "$work/hub/blobs"
    for file in "$work/model"/*; do
        hash=$(sha256sum "$file" | cut -c1-64)
        cp "$file" "$work/hub/blobs/$hash"
        ln -s "$2/blobs/$hash" "$work/$snapshot/$(basename "$file")"
    done
}
hub "" ../..
check "a snapshot of the Hub" convert "$snapshot" dst
check "and with --strict" convert "$snapshot" dst --force --strict
ln -s ../../blobs/secret "$work/$snapshot/notes.txt"
cp "$work/secret" "$work/hub/blobs/secret"
fails "a name that is no hash" 3 "notes.txt" convert "$snapshot" dst --force
hash=$(printf '%040d' 7)
ln -sf "../../blobs/$hash" "$work/$snapshot/notes.txt"
ln -s ../../secret "$work/hub/blobs/$hash"
fails "a blob that is a link itself" 3 "notes.txt" convert "$snapshot" dst --force
hub /text/encoder ../../../..
check "a snapshot's subfolder" convert "$snapshot" dst --strict

# ---- who may read

readable() { # file of the output: its permissions
    stat -c %a "$work/dst/$1"
}
rm -rf "$work/dst"
umask 022
cp -r "$work/model" "$work/private"
chmod 600 "$work/private/tokenizer.json"
check "a source with a private file" convert private dst
check "its copy is private" test "$(readable tokenizer.json)" = 600
check "the others are not" test "$(readable config.json)$(readable model.safetensors)" = 644644
chmod 640 "$work/private/$shard"
check "a source with a private shard" convert private dst --force
check "what is made of it" test "$(readable model.safetensors)$(readable config.json)" = 640640
check "its manifest" test "$(readable tilepack.json)" = 640
check "a single file" convert "private/$shard" private.safetensors
check "is private, too" test "$(stat -c %a "$work/private.safetensors")" = 640
check "an archive" convert "private/$shard" private.safetensors.zst
check "as well" test "$(stat -c %a "$work/private.safetensors.zst")" = 640
chmod 700 "$work/private"
check "a private directory" convert private dst --force
check "gives one" test "$(stat -c %a "$work/dst")" = 700
mkdir "$work/private/code"
echo 'import torch' >"$work/private/code/model.py"
chmod 755 "$work/private"
chmod 644 "$work/private"/*.*
chmod 700 "$work/private/code"
check "a private folder in it" convert private dst --force
check "gives one there" test "$(stat -c %a "$work/dst" "$work/dst/code" | xargs)" = "755 700"
chmod 710 "$work/private"
check "of a private directory a file" convert private whole.safetensors --force
check "may be read by those who could enter it" test "$(stat -c %a "$work/whole.safetensors")" = 640
cp -r "$work/model" "$work/narrowed"
chmod 700 "$work/narrowed"
mkdir "$work/mine.partial"
echo mine >"$work/mine.partial/notes"
chmod 755 "$work/mine.partial"
fails "a folder of somebody's under that name" 7 "not of tilepack" convert narrowed mine
check "keeps its rights" test "$(stat -c %a "$work/mine.partial")" = 755
mv "$work/mine.partial" "$work/mine.part-1-of-1.partial"
fails "nor is it a part's" 7 "not of tilepack" convert narrowed mine --part 1/1
check "which leaves it, too" test "$(stat -c %a "$work/mine.part-1-of-1.partial")" = 755

# Pages of a closed directory are outside of it.
cp -r "$work/model" "$work/paged"
check "a packed one" convert paged paged-out
chmod 700 "$work/paged" "$work/paged-out"
check "a comparison" "$TILEPACK" compare "$work/paged" --to fp8-ct --html "$work/compared.html" -q
weight=$("$TILEPACK" dump "$work/paged-out" --json | "$PYTHON" -c '
import json, sys
print([t["weight"] for t in json.load(sys.stdin)["tensors"] if "weight" in t][0])')
check "a picture" "$TILEPACK" dump "$work/paged-out" "$weight" --svg "$work/drawn.svg" \
    --html "$work/drawn.html"
check "are for who may enter it" test \
    "$(stat -c %a "$work/compared.html" "$work/drawn.svg" "$work/drawn.html" | xargs)" = "600 600 600"

# A card is a part of the source's.
cp -r "$work/model" "$work/carded"
echo secret >"$work/carded/README.md"
chmod 600 "$work/carded/README.md"
check "a private card" convert carded of-carded --force
check "is private in the output" test "$(stat -c %a "$work/of-carded/README.md")" = 600
check "other files are not" test "$(stat -c %a "$work/of-carded/config.json")" = 644
# A tree of links: few entries, 10^13 files. Long names reach the limit the sooner.
long=$(printf '%0230d' 0)
tree=$work/model/.tree
mkdir -p "$tree/14"
echo >"$tree/14/f"
for i in 13 12 11 10 9 8 7 6 5 4 3 2 1 0; do
    mkdir "$tree/$i"
    for j in 0 1 2 3 4 5 6 7 8 9; do ln -s ../$((i + 1)) "$tree/$i/$j$long"; done
done
ln -s .tree/13 "$work/model/few"
rm -rf "$work/dst"
check "folders that are links" convert model dst --follow-links
check "are copied" test "$(find "$work/dst/few" -type f | wc -l)" = 10
ln -s .tree/0 "$work/model/many"
fails "but not without end" 3 "the list of all files is longer than 256 MiB" \
    timeout -s KILL 60 "$TILEPACK" convert "$work/model" -o "$work/dst" --to w4a8-ct --follow-links \
    --force
check "what was there stays" test -f "$work/dst/tilepack.json"
check "without --follow-links they are left out" convert model dst --force
check "and what was there is kept, which had folders" test -d "$work/dst.old/few"
finish
