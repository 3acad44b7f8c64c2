#!/bin/sh
# tilepack schedule against the planners' tables and against checkpoints made here.
exec "${PYTHON:-python3}" "${TESTS:-$(dirname "$0")/..}/bytes/schedule_golden.py"
