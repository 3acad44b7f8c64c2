#!/bin/sh
# What `suggest` recommends: suggest.py, and its golden table suggest.json.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
check 'suggestions' "$PYTHON" "$TESTS/cli/suggest.py"
finish
