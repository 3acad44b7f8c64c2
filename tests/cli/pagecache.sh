#!/bin/sh
# What a conversion leaves in the page cache; see tests/pagecache.py.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/pagecache.py"
