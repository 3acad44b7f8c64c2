#!/bin/sh
# A flipped bit in ranks is refused by `join` or changes nothing; see tests/bytes/tp_flips.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/bytes/tp_flips.py"
