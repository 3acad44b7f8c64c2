#!/bin/sh
# Data races: what runs in several threads, in a build with -fsanitize=thread. Every
# format is converted, verified against its source and unpacked; then archives,
# parts and their merging, errors and an interruption. `make tsan` builds and runs it.
set -u
TESTS=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/lib/preamble.sh
. "$TESTS/lib/preamble.sh"
build=$(dirname "$TILEPACK")
TSAN_OPTIONS="log_path=$work/races exitcode=66 history_size=4"
export TSAN_OPTIONS TMPDIR="$work"

# The exit status that is expected, and no race.
quiet() { # status, command ...
    status=$1
    shift
    "$@"
    [ $? -eq "$status" ] && ! cat "$work"/races.* 2>/dev/null
}
clean() { # name, status, arguments of tilepack ...
    title=$1 status=$2
    shift 2
    check "$title" quiet "$status" in_work "$@" -j 8 -q
    rm -f "$work"/races.*
}

for program in run write_queue sink_file leafhash zst commit load library; do
    check "test_$program" quiet 0 "$build/unit/test_$program"
done
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-mixtral --quiet \
    >/dev/null || exit 1
for format in $("$TILEPACK" formats --json | "$PYTHON" -c 'import json, sys
print(*[f["name"] for f in json.load(sys.stdin)["formats"]
        if not f.get("input_only", f.get("written") is False)])'); do
    clean "$format: convert" 0 convert model -o "$format" --to "$format" --weights-only --shard-size 1MB
    clean "$format: verify" 0 verify "$format" --against model
    clean "$format: unpack" 0 unpack "$format" -o plain --force --shard-size 1MB
done
clean "archives" 0 convert model -o zst --to mxfp8-blocked --zstd --shard-size 1MB
clean "archives: verify" 0 verify zst --against model
clean "archives: unpack" 0 unpack zst -o plain --force
clean "quantized again" 0 convert mxfp8-ct -o again --to nvfp4-ct --requantize --shard-size 1MB
clean "little memory" 0 convert model -o small --to nvfp4-ct --max-memory 32MiB --shard-size 1MB
clean "differences" 1 diff fp8-ct fp8-deepseek
for part in 1 2; do
    clean "part $part" 0 convert model -o parts --to fp8-ct --shard-size 1MB --part $part/2
done
clean "parts: merge" 0 merge parts
check "a file that is too large" quiet 5 sh -c 'ulimit -f 300; exec "$@"' sh \
    "$TILEPACK" convert "$work/model" -o "$work/large" --to fp8-ct -j 8 -q
rm -f "$work"/races.*
timeout -s INT 0.5 "$TILEPACK" convert "$work/model" -o "$work/stopped" --to nvfp4-ct -j 8 -q 2>/dev/null
clean "after an interruption" 0 convert model -o stopped --to nvfp4-ct
finish
