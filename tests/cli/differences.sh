#!/bin/sh
# verify --against names the element that a changed byte belongs to; see
# tests/bytes/differences.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/bytes/differences.py"
