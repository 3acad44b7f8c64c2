#!/bin/sh
# Names of a stranger's tensors do not drive the terminal: C1 controls, and characters that
# reorder or hide text, are escaped by every command, in text and in JSON, where they stay the
# same strings.
exec "${PYTHON:-python3}" "$(cd "$(dirname "$0")/.." && pwd)/errors/terminal.py"
