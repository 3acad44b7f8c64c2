#!/bin/sh
# What the commands print under --json, against docs/json.md and the schemas that are made of it:
# bytes/json_outputs.py.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
"$PYTHON" "$TESTS/bytes/json_outputs.py" >"$work/log" 2>&1
line=$(tail -n 1 "$work/log")
passed=$(echo "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
failed=$(echo "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
passed=${passed:-0} failed=${failed:-1}
[ "$failed" -eq 0 ] || grep -v '^ok ' "$work/log"
finish
