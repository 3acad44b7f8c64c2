#!/bin/sh
# Everything that reads the source without running it. A finding is an error; what is
# switched off is listed here with its reason.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
step() { # name, command ...
    name=$1
    shift
    if "$@"; then echo "ok   $name"; else echo "FAIL $name"; status=1; fi
}

files() { sh scripts/files.sh "$@"; } # and none would be an error
sources=$(files 'src/base/*.c' 'src/pack/*/*.c' 'src/pack/plan/*/*.c' 'src/cli/*.c' 'plugin/*.c') || exit 1
reference=$(files 'src/kernels/op/*.c' src/kernels/rows.c) || exit 1
scripts=$(files 'scripts/*.sh' 'tests/*.sh' 'tests/*/*.sh' 'samples/*/*.sh' .ci/run) || exit 1
pages=$(files 'man/*.[1-9]') || exit 1

# cppcheck: style hints about scope and const are a matter of taste; unused functions
# are the library's public ones. It does not see jansson's header: jansson.cfg tells
# it the loops.
# shellcheck disable=SC2086 # lists of files
step cppcheck cppcheck --quiet -j "$(nproc)" --std=c11 --error-exitcode=1 --inline-suppr \
    --enable=warning,performance,portability --suppress=missingIncludeSystem \
    --library=scripts/jansson.cfg -Isrc $sources $reference

# clang-tidy: bug finders, and what clang warns of when it compiles. Off: the "insecure API"
# check (it asks for Annex K, which no C library here has), easily-swappable parameters,
# widening of checked products and the casts that %llu needs, sizeof of pointers (arrays of
# them are meant), and memcpy into what is not a string. The analyser does not know that
# va_start initialises.
off="clang-analyzer-security.insecureAPI.*,bugprone-easily-swappable-parameters"
off=$off,bugprone-implicit-widening-of-multiplication-result,bugprone-narrowing-conversions
off=$off,bugprone-misplaced-widening-cast,bugprone-reserved-identifier
off=$off,bugprone-assignment-in-if-condition,bugprone-branch-clone,bugprone-sizeof-expression
off=$off,bugprone-not-null-terminated-result,clang-analyzer-valist.Uninitialized
checks="-*,bugprone-*,clang-analyzer-*,clang-diagnostic-*,-$(echo "$off" | sed 's/,/,-/g')"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
tidy() {
    echo "$sources" |
        xargs -P "$(nproc)" -I FILE clang-tidy --quiet --warnings-as-errors='*' \
            --checks="$checks" FILE -- -std=c11 -D_GNU_SOURCE -Isrc -Wall -Wextra >"$log" 2>&1
    tidied=$?
    if [ $tidied -ne 0 ]; then
        grep -E 'error:|warning:' "$log" | sort -u
        echo "clang-tidy: exit status $tidied"
    fi
    [ $tidied -eq 0 ]
}
tidy
step clang-tidy [ $? -eq 0 ]

# shellcheck disable=SC2086 # lists of files
step shellcheck shellcheck -x $scripts
# The pages refer to each other, which mandoc looks for among the installed ones only.
# shellcheck disable=SC2086
step mandoc sh -c '! mandoc -T lint "$@" | grep -v "manual not found: Xr tilepack"' mandoc $pages
# The package: pyproject.toml has the rules.
if tools=$(sh scripts/venv.sh "${BUILD:-build}" lint); then
    step ruff "$tools" -m ruff check --quiet
    step 'ruff format' "$tools" -m ruff format --quiet --check python
    step mypy "$tools" -m mypy --no-error-summary
else
    step 'the environment of mypy and ruff' false
fi
step structure sh tests/cli/structure.sh
exit $status
