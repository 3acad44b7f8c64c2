#!/bin/sh
# An output that is a link: to a directory, that one is filled, and the link stays; to
# nothing, it is refused before any work; a file's link is replaced by the file.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
convert() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert "$work/model" -o "$work/$to" --to fp8-ct -j 2 --device cpu -q "$@"
}
leads_to() { [ "$(readlink "$work/$1")" = "$2" ] && [ -f "$work/$2/tilepack.json" ]; }
nothing_beside() { ! ls -d "$work"/*.partial 2>/dev/null; }

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
mkdir "$work/empty" "$work/full"
echo old >"$work/full/old.safetensors"
ln -s empty "$work/to_empty"
ln -s full "$work/to_full"
ln -s gone "$work/to_nothing"
ln -s gone "$work/to_nothing.safetensors"
echo 'no weights' >"$work/notes"
ln -s notes "$work/to_notes.safetensors"

check "an empty directory by its link" convert to_empty
check "is filled" leads_to to_empty empty
fails "a full one is refused" 7 "exists already, and is none of tilepack" convert to_full
check "and replaced with --force" convert to_full --force
answers "the output is named as it was typed" 0 "$work/to_full is complete" \
    "$TILEPACK" convert "$work/model" -o "$work/to_full" --to fp8-ct
check "behind its link" leads_to to_full full
check "without what it held" test ! -e "$work/full/old.safetensors"
check "which is kept beside the directory" mv "$work/full.old/old.safetensors" "$work"
check "and nothing else" rmdir "$work/full.old"
fails "a link that leads nowhere is refused" 2 "leads nowhere" convert to_nothing
check "no unfinished output is left" nothing_beside
check "parts by the link" convert to_full --part 1/1 --force
check "are merged by the link" "$TILEPACK" merge "$work/to_full" --force -q
check "behind it" leads_to to_full full
rm -r "$work/empty"
mkdir "$work/empty"
answers "also where it is written" 0 "$work/to_empty/: 14 weights converted" \
    "$TILEPACK" convert "$work/model" -o "$work/to_empty/" --to fp8-ct
answers "and served" 0 "serve $work/to_empty/" \
    "$TILEPACK" convert "$work/model" -o "$work/to_empty/" --to fp8-ct --force
answers "in JSON" 0 "\"$work/to_empty\"" \
    "$TILEPACK" convert "$work/model" -o "$work/to_empty" --to fp8-ct --json
ln -s plain "$work/to_plain"
mkdir "$work/plain"
answers "unpacked" 0 "$work/to_plain: 14 weights" \
    "$TILEPACK" unpack "$work/to_empty" -o "$work/to_plain"
check "a file in place of a link" convert to_nothing.safetensors
check "is a file" test -f "$work/to_nothing.safetensors" -a ! -L "$work/to_nothing.safetensors"
check "--force replaces the link of any file" convert to_notes.safetensors --force
check "and not what it leads to" grep -qx 'no weights' "$work/notes"
finish
