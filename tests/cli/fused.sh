#!/bin/sh
# One global scale for weights that engines load as one, whatever their dtypes; see
# tests/bytes/fused.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/bytes/fused.py"
