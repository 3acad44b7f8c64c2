#!/bin/sh
# Packed weights that are copied are looked at before they get a fresh hash; see
# tests/bytes/copied.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/bytes/copied.py"
