#!/bin/sh
# Rows that readers move when they load a plain weight, and that packed ones have in their order.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
check 'the order of rows' "$PYTHON" "$TESTS/cli/rows.py"
finish
