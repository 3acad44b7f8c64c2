#!/bin/sh
# run.sh [--quick | --check | --packaging] [--jobs N] [NAME ...]
# run.sh --list
#
# Runs the tests that are named: by the whole name, by how it begins (unit/, cli/t) or
# by a pattern ('cli/*a*'). Without a name all run but packaging/, in the order in which
# a failure is easiest to understand. tests/README.md says what each of them proves, and
# the seconds that it may take: one that takes longer is named at the end. The last line
# is always `N passed, N failed`; exit status 1 if anything failed.
#
#   --list        prints the names
#   --quick       random shapes for 15 seconds, fewer rounds of unit/kernels, fewer calls
#                 that fail in `faults`, every third case of long tables, and without what takes
#                 long and runs no function that the others leave out (`slow`, below)
#   --check       what a minute is enough for, with what is there: tests that need the
#                 environment of Python are left out, with a word, where it is missing
#   --packaging   packaging/ in place of the others
#   --jobs N      so many tests at once; each prints what it has to say when it ends (as many
#                 as there are processors, at most 8; 1 with --packaging)
#
# Environment: BUILD (build), TILEPACK ($BUILD/tilepack), PYTHON (BUILD/venv, made
# when missing), TILEPACK_TEST_SECONDS for random shapes (60; 15 with --quick),
# TILEPACK_TEST_FORMATS for the formats to test (all), TILEPACK_TEST_SHARE for --quick
# (3: every third case of long tables; 1: all), TILEPACK_TEST_LONG for the long
# forms of the tests of headers, kills, power cuts and size (not set),
# TILEPACK_TEST_SLOWER by how many times a test may exceed its seconds (1).
#
# tests/lib/one.sh runs each of them, in a process of its own.
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
slower=${TILEPACK_TEST_SLOWER:-1}
faults=${TILEPACK_TEST_LONG:+thorough}
share=${TILEPACK_TEST_SHARE:-1}
slow='large|shapes|kills|pairs|consumer|quality|cli/(bench|build|formats|pagecache|progress|readme|rows|unpack|zst)'

give_up() { # message
    [ -z "$1" ] || echo "run.sh: $1" >&2
    echo "0 passed, 1 failed"
    exit 1
}

# ------------------------------------------------------------------- which --
all=$(all_names) || give_up ''
mode=all
jobs=''
before=''
for word; do
    shift
    if [ "$before" = --jobs ]; then
        jobs=$word before=''
        continue
    fi
    case $word in
    --list) echo "$all" && exit 0 ;;
    --quick | --check | --packaging) mode=${word#--} ;;
    --jobs) before=$word ;;
    -*) give_up "unknown option $word; there are --list, --quick, --check, --packaging and --jobs" ;;
    *) set -- "$@" "$word" ;;
    esac
done
if [ -z "$jobs" ] && [ -z "$before" ]; then
    jobs=$(nproc)
    [ "$jobs" -le 8 ] || jobs=8
    [ "$mode" != packaging ] || jobs=1 # they install and remove what they share
fi
case $jobs in '' | 0* | *[!0-9]*) give_up "--jobs takes a number of tests at once, from 1" ;; esac
case $mode in
quick | check)
    [ "$mode" = check ] || seconds=15 faults=${faults:-quick} share=${TILEPACK_TEST_SHARE:-3}
    TILEPACK_TEST_ROUNDS=${TILEPACK_TEST_ROUNDS:-1} && export TILEPACK_TEST_ROUNDS # of unit/kernels
    ;;
esac

usual() { # the names that run when none is given
    case $mode in
    packaging) echo "$all" | grep '^packaging/' ;;
    check) echo "$all" | grep -E '^(unit/.*|golden|errors|cli/(structure|usage|man))$' ;;
    *)
        leave_out='^packaging/'
        [ "$mode" != quick ] || leave_out="$leave_out|^($slow)\$"
        [ -z "$formats" ] || leave_out="$leave_out|^inputs\$|^sources\$|^old\$|^quality\$|^($(echo "$broken" | tr ' ' '|'))\$"
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
TILEPACK_TEST_SECONDS=$seconds
TILEPACK_TEST_FAULTS=${faults:-faults} # how many calls fail: fault.c
TILEPACK_TEST_SHARE=$share # of long tables: tool.share()
export BUILD TESTS TILEPACK PYTHON TILEPACK_TEST_SECONDS TILEPACK_TEST_FAULTS TILEPACK_TEST_SHARE
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

work=$(mktemp -d "${TMPDIR:-/tmp}/tilepack-tests.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
TMPDIR=$work
export TMPDIR

# ----------------------------------------------------------------- running --
# A test that ends between two others of the table is printed between them: under a lock, so
# that no line of one stands within another's.
# shellcheck disable=SC2016 # the script's own words
echo "$names" | xargs -P "$jobs" -I NAME sh -c '
    log=$1/$(echo "$2" | tr / _).log
    sh "$TESTS/lib/one.sh" "$2" >"$log" 2>&1
    flock "$1" cat "$log"' one "$work" NAME

# The lines `== NAME: N passed, N failed, S s` of all logs; a test whose line is missing has
# failed.
results=$(cat "$work"/*.log | sed -n 's/^== \([^ ]*\): \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) s$/\1 \2 \3 \4/p')
passed=0
failed=0
for name in $names; do
    line=$(echo "$results" | grep -F -m 1 "$name ")
    # shellcheck disable=SC2086 # four words
    set -- ${line:-"$name" 0 1 0}
    [ -n "$line" ] || echo "$name: ended without a result"
    passed=$((passed + $2))
    failed=$((failed + $3))
    may=$(budget "$name")
    if [ -z "${TILEPACK_TEST_LONG:-}" ] && [ -n "$may" ] && [ "$4" -gt $((may * slower)) ]; then
        echo "warning: $name took $4 s, its budget is $((may * slower)) s"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
