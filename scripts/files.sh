#!/bin/sh
# files.sh PATTERN ...
#
# Prints the files that the patterns of the shell match, one a line, in the order of the
# patterns. A pattern that matches nothing is an error: a check that looks at no file
# would pass. Quote the patterns, and take the output through an assignment:
# files=$(sh scripts/files.sh 'src/*/*.c') || exit 1.
set -u
status=0
for pattern; do
    # shellcheck disable=SC2086 # the pattern is to be expanded
    set -- $pattern
    if [ -e "$1" ]; then
        printf '%s\n' "$@"
    else
        echo "files.sh: no file is called $pattern (in $PWD)" >&2
        status=1
    fi
done
exit $status
