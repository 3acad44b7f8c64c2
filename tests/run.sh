#!/bin/sh
# run.sh [--quick]
#
# All tests, in the order in which a failure is easiest to understand: unit tests,
# the oracle against the golden data, golden files, whole golden checkpoints,
# consumers, random shapes, broken inputs and the command-line tests (tests/cli/*.sh).
# Ends with the single line `N passed, N failed`; exit status 1 if anything failed.
#
# Environment: BUILD (build), TILEPACK ($BUILD/tilepack), PYTHON (BUILD/venv, made
# when missing), TILEPACK_TEST_SECONDS for random shapes (60; 15 with --quick),
# TILEPACK_TEST_FORMATS for the formats to test (all), TILEPACK_TEST_LONG for the long
# forms of the tests of headers, kills, power cuts and size (not set).
#
# A part is a program whose last line is `N passed, N failed`. A command-line test
# may end with such a line too; otherwise it is one test, passed if it exits with 0.
# It gets TILEPACK, PYTHON, TESTS (this directory) and TMPDIR, a directory of its own.
set -u

cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
TESTS=$PWD/tests
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
TILEPACK=${TILEPACK:-$BUILD/tilepack}
seconds=${TILEPACK_TEST_SECONDS:-60}
[ "${1:-}" = --quick ] && seconds=15
formats=${TILEPACK_TEST_FORMATS:-}

if [ ! -x "$TILEPACK" ]; then
    echo "run.sh: there is no $TILEPACK; build it with: make" >&2
    echo "0 passed, 1 failed"
    exit 1
fi
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$(sh scripts/venv.sh "$BUILD") || {
        echo "0 passed, 1 failed"
        exit 1
    }
fi
export BUILD TESTS TILEPACK PYTHON
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

work=$(mktemp -d "${TMPDIR:-/tmp}/tilepack-tests.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
TMPDIR=$work
export TMPDIR

passed=0
failed=0

count() { # passed, failed, name
    passed=$((passed + $1))
    failed=$((failed + $2))
    printf '== %s: %s passed, %s failed\n' "$3" "$1" "$2"
}

# Adds up the last line of a part's output; a part without one has failed.
tally() { # name, exit status, output file
    line=$(tail -n 1 "$3")
    set -- "$1" "$2" "$(echo "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')" \
        "$(echo "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')"
    if [ -z "$3" ] || [ -z "$4" ]; then
        printf '%s: exit status %s without a result\n' "$1" "$2"
        count 0 1 "$1"
    elif [ "$2" -ne 0 ] && [ "$4" -eq 0 ]; then
        printf '%s: exit status %s\n' "$1" "$2"
        count "$3" 1 "$1"
    else
        count "$3" "$4" "$1"
    fi
}

part() { # name, command ...
    name=$1
    shift
    { "$@" 2>&1; echo $? >"$work/status"; } | tee "$work/output" |
        grep -v -e '^ok ' -e '^[0-9]* passed, [0-9]* failed$'
    tally "$name" "$(cat "$work/status")" "$work/output"
}

unit() { # program
    name=unit/$(basename "$1")
    CMOCKA_MESSAGE_OUTPUT=TAP "$1" >"$work/output" 2>&1
    status=$?
    good=$(grep -c '^ok ' "$work/output")
    bad=$(grep '^not ok ' "$work/output" | grep -vc '# SKIP')
    skipped=$(grep -c '# SKIP' "$work/output")
    [ "$skipped" -eq 0 ] || echo "$name: $skipped skipped"
    if [ "$status" -ne 0 ] || [ $((good + bad)) -eq 0 ]; then
        cat "$work/output"
        [ "$bad" -eq 0 ] && bad=1
    fi
    count "$good" "$bad" "$name"
}

cli() { # script
    name=cli/$(basename "$1" .sh)
    mkdir "$work/cli"
    (
        TMPDIR=$work/cli
        export TMPDIR
        cd "$work/cli" && if [ -x "$1" ]; then "$1"; else sh "$1"; fi
    ) >"$work/output" 2>&1
    status=$?
    rm -rf "$work/cli"
    if tail -n 1 "$work/output" | grep -q '^[0-9]* passed, [0-9]* failed$'; then
        grep -v '^ok ' "$work/output" | sed '$d'
        tally "$name" "$status" "$work/output"
    elif [ "$status" -eq 0 ]; then
        count 1 0 "$name"
    else
        cat "$work/output"
        printf '%s: exit status %s\n' "$name" "$status"
        count 0 1 "$name"
    fi
}

for program in "$BUILD"/unit/test_*; do
    case $program in *.d | *.o) continue ;; esac
    [ -x "$program" ] && unit "$program"
done
part oracle "$PYTHON" tests/bytes/oracle_selfcheck.py
# shellcheck disable=SC2086
{
    part golden "$PYTHON" tests/bytes/golden.py $formats
    part checkpoints "$PYTHON" tests/bytes/golden_checkpoints.py $formats
    part consumer "$PYTHON" tests/bytes/consumer.py $formats
    [ -n "$formats" ] || part inputs "$PYTHON" tests/bytes/inputs.py
    part random "$PYTHON" tests/bytes/random_shapes.py --seconds "$seconds" $formats
}
[ -n "$formats" ] || {
    long=${TILEPACK_TEST_LONG:-} cuts=2000
    [ -z "$long" ] || cuts=10000
    part errors "$PYTHON" tests/errors/golden_errors.py
    part headers "$PYTHON" tests/errors/fuzz_header.py
    if [ -x "$BUILD/fault/fault" ]; then
        mkdir "$work/fault"
        part faults "$BUILD/fault/fault" "$work/fault" faults ${long:+1}
        part reading "$BUILD/fault/fault" "$work/fault" reading
        part kills "$BUILD/fault/fault" "$work/fault" kills
        part power "$BUILD/fault/fault" "$work/fault" power 1 "$cuts"
    else
        count 0 1 "faults: there is no $BUILD/fault/fault; build it with: make"
    fi
    if [ -n "$long" ]; then
        part kill "$PYTHON" tests/long/kill.py --count 200 --megabytes 64
    else
        part kill "$PYTHON" tests/long/kill.py
    fi
    [ "${1:-}" = --quick ] || part large "$PYTHON" tests/long/large.py
}
for script in tests/cli/*.sh; do
    [ -e "$script" ] && cli "$PWD/$script"
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
