#!/bin/sh
# run.sh [--quick | --check | --packaging] [NAME ...]
# run.sh --list
#
# Runs the tests that are named: by the whole name, by how it begins (unit/, cli/t) or
# by a pattern ('cli/*a*'). Without a name all run but packaging/, in the order in which
# a failure is easiest to understand. tests/README.md says what each of them proves, and
# the seconds that it may take: one that takes longer is named at the end. The last line
# is always `N passed, N failed`; exit status 1 if anything failed.
#
#   --list        prints the names
#   --quick       random shapes for 15 seconds, fewer rounds of unit/kernels, and without
#                 `large`
#   --check       what a minute is enough for, with what is there: tests that need the
#                 environment of Python are left out, with a word, where it is missing
#   --packaging   packaging/ in place of the others
#
# Environment: BUILD (build), TILEPACK ($BUILD/tilepack), PYTHON (BUILD/venv, made
# when missing), TILEPACK_TEST_SECONDS for random shapes (60; 15 with --quick),
# TILEPACK_TEST_FORMATS for the formats to test (all), TILEPACK_TEST_LONG for the long
# forms of the tests of headers, kills, power cuts and size (not set),
# TILEPACK_TEST_SLOWER by how many times a test may exceed its seconds (1).
#
# A part is a program whose last line is `N passed, N failed`. A script of cli/ or
# packaging/ may end with such a line too; otherwise it is one test, passed if it exits
# with 0. It gets TILEPACK, PYTHON, TESTS (this directory) and TMPDIR, a directory of its
# own.
set -u

cd "$(dirname "$0")/.." || exit 1
# shellcheck source=tests/lib/names.sh
. tests/lib/names.sh
BUILD=${BUILD:-build}
TESTS=$PWD/tests
from_here() { # a path; a command that PATH finds stays as it is
    case $1 in
    /* | '') echo "$1" ;;
    */*) echo "$PWD/$1" ;;
    *) echo "$1" ;;
    esac
}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
TILEPACK=$(from_here "${TILEPACK:-$BUILD/tilepack}")
PYTHON=$(from_here "${PYTHON:-}") # tests change their folder
seconds=${TILEPACK_TEST_SECONDS:-60}
formats=${TILEPACK_TEST_FORMATS:-}
long=${TILEPACK_TEST_LONG:-}
slower=${TILEPACK_TEST_SLOWER:-1}
passed=0
failed=0
late=''

give_up() { # message
    [ -z "$1" ] || echo "run.sh: $1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

# ------------------------------------------------------------------- which --
all=$(all_names) || give_up ''
mode=all
for word; do
    shift
    case $word in
    --list) echo "$all" && exit 0 ;;
    --quick | --check | --packaging) mode=${word#--} ;;
    -*) give_up "unknown option $word; there are --list, --quick, --check and --packaging" ;;
    *) set -- "$@" "$word" ;;
    esac
done
case $mode in # rounds of unit/kernels
quick) seconds=15 TILEPACK_TEST_ROUNDS=${TILEPACK_TEST_ROUNDS:-2} && export TILEPACK_TEST_ROUNDS ;;
check) TILEPACK_TEST_ROUNDS=${TILEPACK_TEST_ROUNDS:-1} && export TILEPACK_TEST_ROUNDS ;;
esac

usual() { # the names that run when none is given
    case $mode in
    packaging) echo "$all" | grep '^packaging/' ;;
    check) echo "$all" | grep -E '^(unit/.*|golden|errors|cli/(structure|usage|man))$' ;;
    *)
        leave_out='^packaging/'
        [ "$mode" != quick ] || leave_out="$leave_out|^large\$"
        [ -z "$formats" ] || leave_out="$leave_out|^inputs\$|^old\$|^quality\$|^($(echo "$broken" | tr ' ' '|'))\$"
        echo "$all" | grep -Ev "$leave_out"
        ;;
    esac
}
if [ $# -gt 0 ]; then
    names=$(chosen "$all" "$@") || give_up ''
else
    names=$(usual)
fi

# ---------------------------------------------------------- what they need --
needs_python() { # name
    case $1 in
    unit/* | faults | reading | kills | power) return 1 ;;
    */*) grep -q PYTHON "tests/$1.sh" ;;
    esac
}
without_python() {
    for name in $names; do
        needs_python "$name" || echo "$name"
    done
}
[ -x "$TILEPACK" ] || give_up "there is no $TILEPACK; build it with: make"
if [ -z "${PYTHON:-}" ] && [ "$names" != "$(without_python)" ]; then
    if [ "$mode" != check ]; then
        PYTHON=$(sh scripts/venv.sh "$BUILD") || give_up ''
    elif ! PYTHON=$(sh scripts/venv.sh --print "$BUILD"); then
        rest=$(without_python)
        echo "run.sh: left out, for want of an environment of Python:" \
            "$(echo "$names" | grep -Fxv -e "$rest" | tr '\n' ' ')"
        echo "run.sh: this makes one: sh scripts/venv.sh $BUILD"
        names=$rest
    fi
fi
PYTHON=${PYTHON:-python3}
export BUILD TESTS TILEPACK PYTHON
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

work=$(mktemp -d "${TMPDIR:-/tmp}/tilepack-tests.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
TMPDIR=$work
export TMPDIR

# ----------------------------------------------------------------- running --
count() { # passed, failed, name
    passed=$((passed + $1))
    failed=$((failed + $2))
    took=$(($(date +%s) - began))
    printf '== %s: %s passed, %s failed, %s s\n' "$3" "$1" "$2" "$took"
    may=$(budget "$3")
    if [ -z "$long" ] && [ -n "$may" ] && [ "$took" -gt $((may * slower)) ]; then
        late="${late}warning: $3 took $took s, its budget is $((may * slower)) s
"
    fi
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
    consumer) part consumer "$PYTHON" tests/bytes/consumer.py $formats ;;
    inputs) part inputs "$PYTHON" tests/bytes/inputs.py ;;
    old) part old "$PYTHON" tests/bytes/old_files.py ;;
    quality) part quality "$PYTHON" tests/bytes/quality.py ;;
    random) part random "$PYTHON" tests/bytes/random_shapes.py --seconds "$seconds" $formats ;;
    errors) part errors "$PYTHON" tests/errors/golden_errors.py ;;
    headers) part headers "$PYTHON" tests/errors/fuzz_header.py ;;
    faults) fault faults faults ${long:+1} ;;
    reading) fault reading reading ;;
    kills) fault kills kills ;;
    power) if [ -n "$long" ]; then fault power power 1 10000; else fault power power 1 2000; fi ;;
    kill) part kill "$PYTHON" tests/long/kill.py ${long:+--count 200 --megabytes 64} ;;
    large) part large "$PYTHON" tests/long/large.py ;;
    esac
}
for name in $names; do
    began=$(date +%s)
    one "$name"
done

printf '%s' "$late"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
