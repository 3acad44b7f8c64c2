#!/bin/sh
# README's examples, table of GPUs and picture are those of the program.
exec "${PYTHON:-python3}" "${TESTS:-$(dirname "$0")/..}/cli/readme.py"
