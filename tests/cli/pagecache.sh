#!/bin/sh
# What a conversion leaves in the page cache; see tests/long/pagecache.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/long/pagecache.py"
