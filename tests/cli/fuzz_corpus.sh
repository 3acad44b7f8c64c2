#!/bin/sh
# Every fuzz target on its corpus and on what fuzzing once found: fuzz/corpus/TARGET and
# fuzz/found/TARGET, through $BUILD/replay/replay, which needs no libFuzzer.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
replay=${BUILD:-$(dirname "$TESTS")/build}/replay/replay
FUZZ_TMPDIR=$work/fuzz
export FUZZ_TMPDIR
mkdir "$FUZZ_TMPDIR"
if [ ! -x "$replay" ]; then
    echo "fuzz_corpus: there is no $replay; build it with: make $replay"
    exit 1
fi
"$replay" >"$work/targets" || exit 1

while read -r target; do
    set --
    for folder in "$TESTS/fuzz/corpus/$target" "$TESTS/fuzz/found/$target"; do
        [ ! -d "$folder" ] || set -- "$@" "$folder"/*
    done
    if [ $# -eq 0 ]; then
        echo "fuzz_corpus: there are no inputs for $target"
    else
        check "$target: $# inputs" "$replay" "$target" "$@"
    fi
done <"$work/targets"
for folder in "$TESTS"/fuzz/corpus/* "$TESTS"/fuzz/found/*; do
    [ ! -d "$folder" ] || check "$folder is of a target" grep -qx "${folder##*/}" "$work/targets"
done

# The replay can fail: no such target, no such file.
fails 'another target' 2 'there is no target other' "$replay" other
fails 'a file that is not there' 1 'No such file' "$replay" index "$work/nothing"
finish
