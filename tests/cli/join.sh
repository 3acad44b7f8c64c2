#!/bin/sh
# What `join` takes from files that it cannot trust; see tests/bytes/join_hostile.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/bytes/join_hostile.py"
