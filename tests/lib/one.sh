#!/bin/sh
# one.sh NAME: runs one test and prints what it says, without its lines `ok`, and last
# `== NAME: N passed, N failed, S s`. It chooses nothing and judges no time: run.sh does, and
# sets BUILD, TESTS, TILEPACK, PYTHON, TMPDIR and the variables TILEPACK_TEST_*.
#
# A part is a program whose last line is `N passed, N failed`. A script of cli/ or
# packaging/ may end with such a line too; otherwise it is one test, passed if it exits
# with 0. It gets TILEPACK, PYTHON, TESTS (the folder of the tests) and TMPDIR, a directory of
# its own.
set -u

formats=${TILEPACK_TEST_FORMATS:-}
long=${TILEPACK_TEST_LONG:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/tilepack-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
TMPDIR=$work
export TMPDIR

count() { # passed, failed, name
    printf '== %s: %s passed, %s failed, %s s\n' "$3" "$1" "$2" $(($(date +%s) - began))
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

unit() { # name
    program=$BUILD/unit/test_${1#unit/}
    if [ ! -x "$program" ]; then
        echo "$1: there is no $program; build it with: make $program"
        count 0 1 "$1"
        return
    fi
    CMOCKA_MESSAGE_OUTPUT=TAP "$program" >"$work/output" 2>&1
    status=$?
    good=$(grep -c '^ok ' "$work/output")
    bad=$(grep '^not ok ' "$work/output" | grep -vc '# SKIP')
    skipped=$(grep -c '# SKIP' "$work/output")
    [ "$skipped" -eq 0 ] || echo "$1: $skipped skipped"
    if [ "$status" -ne 0 ] || [ $((good + bad)) -eq 0 ]; then
        cat "$work/output"
        [ "$bad" -eq 0 ] && bad=1
    fi
    count "$good" "$bad" "$1"
}

script() { # name
    file=$TESTS/$1.sh
    mkdir "$work/script"
    (
        TMPDIR=$work/script
        export TMPDIR
        cd "$work/script" && if [ -x "$file" ]; then "$file"; else sh "$file"; fi
    ) >"$work/output" 2>&1
    status=$?
    rm -rf "$work/script"
    if tail -n 1 "$work/output" | grep -q '^[0-9]* passed, [0-9]* failed$'; then
        grep -v '^ok ' "$work/output" | sed '$d'
        tally "$1" "$status" "$work/output"
    elif [ "$status" -eq 0 ]; then
        count 1 0 "$1"
    else
        cat "$work/output"
        printf '%s: exit status %s\n' "$1" "$status"
        count 0 1 "$1"
    fi
}

fault() { # name, arguments of the program ...
    if [ -x "$BUILD/fault/fault" ]; then
        mkdir -p "$work/fault"
        name=$1
        shift
        part "$name" "$BUILD/fault/fault" "$work/fault" "$@"
    else
        echo "$1: there is no $BUILD/fault/fault; build it with: make $BUILD/fault/fault"
        count 0 1 "$1"
    fi
}

one() { # name
    # shellcheck disable=SC2086 # the formats are a list of words
    case $1 in
    unit/*) unit "$1" ;;
    cli/* | packaging/*) script "$1" ;;
    oracle) part oracle "$PYTHON" tests/bytes/oracle_selfcheck.py ;;
    golden) part golden "$PYTHON" tests/bytes/golden.py $formats ;;
    checkpoints) part checkpoints "$PYTHON" tests/bytes/golden_checkpoints.py $formats ;;
    search) part search "$PYTHON" tests/bytes/search.py ;;
    feedback) part feedback "$PYTHON" tests/bytes/feedback.py ;;
    consumer) part consumer "$PYTHON" tests/bytes/consumer.py $formats ;;
    inputs) part inputs "$PYTHON" tests/bytes/inputs.py ;;
    sources) part sources "$PYTHON" tests/bytes/sources.py ;;
    old) part old "$PYTHON" tests/bytes/old_files.py ;;
    quality) part quality "$PYTHON" tests/bytes/quality.py ;;
    pairs) part pairs "$PYTHON" tests/bytes/pairs.py ;;
    random) part random "$PYTHON" tests/bytes/random_shapes.py --seconds "$TILEPACK_TEST_SECONDS" \
        $formats ;;
    errors) part errors "$PYTHON" tests/errors/golden_errors.py ;;
    headers) part headers "$PYTHON" tests/errors/fuzz_header.py ;;
    faults) fault faults "$TILEPACK_TEST_FAULTS" ;;
    reading) fault reading reading ;;
    kills) fault kills kills ;;
    power) if [ -n "$long" ]; then fault power power 1 10000; else fault power power 1 2000; fi ;;
    kill) part kill "$PYTHON" tests/long/kill.py ${long:+--count 200 --megabytes 64} ;;
    large) part large "$PYTHON" tests/long/large.py ;;
    shapes) part shapes "$PYTHON" tests/long/shapes.py ;;
    esac
}
began=$(date +%s)
one "$1"
