#!/bin/sh
# run.sh, .ci/run and scripts/files.sh themselves, in a tree of small tests made here, and
# that every real test has a row, with seconds, in tests/README.md.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
unset TILEPACK_TEST_FORMATS TILEPACK_TEST_LONG TILEPACK_TEST_SECONDS TILEPACK_TEST_SLOWER

# ------------------------------------------------------- a tree of small tests --
tree=$work/tree
mkdir -p "$tree/tests/unit" "$tree/tests/cli" "$tree/tests/packaging" "$tree/tests/bytes" \
    "$tree/tests/lib" "$tree/scripts" "$tree/build/unit" "$tree/.ci"
cp "$root/tests/run.sh" "$tree/tests/"
cp "$root/tests/lib/one.sh" "$tree/tests/lib/"
sed "s/^bytes=.*/bytes='golden random'/; s/^broken=.*/broken='errors faults large'/" \
    "$root/tests/lib/names.sh" >"$tree/tests/lib/names.sh" # a few parts, whatever is added
cp "$root/scripts/files.sh" "$root/scripts/venv.sh" "$tree/scripts/"
cp "$root/.ci/run" "$tree/.ci/"
program() { cat >"$tree/$1" && chmod +x "$tree/$1"; } # path; its text comes in
program build/tilepack </dev/null
for name in good bad; do : >"$tree/tests/unit/test_$name.c"; done
program build/unit/test_good <<'SH'
#!/bin/sh
printf '1..3\nok 1 - a\nok 2 - b\nnot ok 3 # SKIP c\n'
SH
program build/unit/test_bad <<'SH'
#!/bin/sh
printf '1..2\nok 1 - a\nnot ok 2 - b\n'
exit 1
SH
program tests/cli/counts.sh <<'SH'
#!/bin/sh
echo "$PYTHON" >/dev/null
printf 'ok a\nok b\nnot ok c\n2 passed, 1 failed\n'
exit 1
SH
program tests/cli/dies.sh <<'SH'
#!/bin/sh
echo 'no last words'
exit 3
SH
program tests/cli/liar.sh <<'SH'
#!/bin/sh
echo '4 passed, 0 failed'
exit 1
SH
program tests/cli/plain.sh <<'SH'
#!/bin/sh
echo 'all is well'
SH
program tests/cli/slow.sh <<'SH'
#!/bin/sh
sleep 1.1
SH
program tests/packaging/box.sh <<'SH'
#!/bin/sh
echo '7 passed, 0 failed'
SH
mkdir "$tree/build/fault"
program build/fault/fault <<'SH'
#!/bin/sh
echo "mode $2"
echo '1 passed, 0 failed'
SH
echo 'print("5 passed, 0 failed")' >"$tree/tests/bytes/golden.py"
cat >"$tree/tests/README.md" <<'MD'
| name | what it proves | seconds | alone |
|---|---|--:|---|
| `cli/slow` | nothing, `slowly` | 0 | `tests/run.sh cli/slow` |
| `cli/*` | nothing | 60 | `sh` |
MD

run() { env -u TILEPACK -u BUILD "PYTHON=${python-python3}" sh "$tree/tests/run.sh" "$@"; }
# Status and last line of a run; its output stays in $work/log.
ends() { # name, status, last line, arguments of run.sh ...
    title=$1 status=$2 line=$3
    shift 3
    run "$@" >"$work/log" 2>&1
    got=$?
    if [ "$got" = "$status" ] && [ "$(tail -n 1 "$work/log")" = "$line" ]; then
        ok "$title"
    else
        bad "$title: status $got (expected $status and: $line)"
        cat "$work/log"
    fi
}
said() { check "$1" grep -qxE -e "$2" "$work/log"; } # name, pattern of a whole line

# ----------------------------------------------------------------------- run.sh --
run --list >"$work/log" 2>&1
check '--list: unit, parts, cli, packaging' test "$(tr '\n' ' ' <"$work/log")" = "unit/bad unit/good \
golden random errors faults large cli/counts cli/dies cli/liar cli/plain cli/slow packaging/box "

ends 'a unit program counts its cases' 0 '2 passed, 0 failed' unit/good
said 'a line with seconds' '== unit/good: 2 passed, 0 failed, [0-9]+ s'
said 'what was skipped is said' 'unit/good: 1 skipped'
ends 'a failed case' 1 '1 passed, 1 failed' unit/bad
said 'its output is shown' 'not ok 2 - b'
ends 'a part' 0 '5 passed, 0 failed' golden
ends 'calls that fail' 0 '1 passed, 0 failed' faults
said 'most of them' 'mode faults'
ends 'in a hurry' 0 '1 passed, 0 failed' --quick faults
said 'fewer of them' 'mode quick'
TILEPACK_TEST_LONG=1 && export TILEPACK_TEST_LONG
ends 'in the long form' 0 '1 passed, 0 failed' faults
unset TILEPACK_TEST_LONG
said 'all of them' 'mode thorough'
ends 'a script that counts' 1 '2 passed, 1 failed' cli/counts
ends 'a script that dies' 1 '0 passed, 1 failed' cli/dies
said 'its output is shown, too' 'no last words'
ends 'success claimed with another status' 1 '4 passed, 1 failed' cli/liar
ends 'a script without a count' 0 '1 passed, 0 failed' cli/plain
ends 'the beginning of names' 1 '3 passed, 1 failed' unit/
ends 'a pattern' 1 '5 passed, 2 failed' 'cli/*i*'
ends 'each once, in the order of the list' 0 '7 passed, 0 failed' --jobs 1 golden unit/good golden
check 'unit/good came first' test "$(grep '^== ' "$work/log" | head -n 1 | cut -c1-12)" = '== unit/good'
ends 'packaging' 0 '7 passed, 0 failed' --packaging
ends 'no tests named' 1 '17 passed, 7 failed'
check 'all but packaging' test "$(grep -c '^== ' "$work/log")" -eq 12
ends '--quick is without large' 1 '17 passed, 6 failed' --quick
ends 'an unknown name' 1 '0 passed, 1 failed' unit/good cli/plan
said 'the nearest' "run.sh: there is no test 'cli/plan'; the nearest is cli/plain, and --list lists all"
ends 'an unknown name without its folder' 1 '0 passed, 1 failed' sloow
said 'the nearest with its folder' ".*'sloow'; the nearest is cli/slow, .*"
ends 'an unknown option' 1 '0 passed, 1 failed' --fast
ends 'a test beyond its seconds is no failure' 0 '1 passed, 0 failed' cli/slow
said 'but named' 'warning: cli/slow took [12] s, its budget is 0 s'
ends 'a test within them' 0 '1 passed, 0 failed' cli/plain
check 'is not' test "$(grep -c warning "$work/log")" -eq 0

# Two that wait for each other end only if they run at once, and neither's lines stand within
# the other's.
for name in left:right right:left; do
    program "tests/cli/meets_${name%:*}.sh" <<SH
#!/bin/sh
echo '${name%:*} begins'
: >'$work/${name%:*}'
for turn in 1 2 3 4 5 6 7 8 9 10; do
    [ ! -e '$work/${name#*:}' ] || { echo '${name%:*} ends'; echo '1 passed, 0 failed'; exit 0; }
    sleep 0.2
done
exit 1
SH
done
ends 'one after the other' 1 '1 passed, 1 failed' --jobs 1 cli/meets
rm "$work/left" "$work/right"
ends 'two at once' 0 '2 passed, 0 failed' --jobs 2 cli/meets
check 'each speaks alone' test "$(cut -d ' ' -f 2 "$work/log" | tr '\n' ' ')" = \
    'begins ends cli/meets_left: begins ends cli/meets_right: passed, ' -o \
    "$(cut -d ' ' -f 2 "$work/log" | tr '\n' ' ')" = \
    'begins ends cli/meets_right: begins ends cli/meets_left: passed, '
rm "$tree"/tests/cli/meets_*
for number in 0 two -1; do
    ends "--jobs '$number'" 1 '0 passed, 1 failed' --jobs "$number" golden
done
ends '--jobs without a number' 1 '0 passed, 1 failed' golden --jobs

# A test may change its folder: where Python lies must not be said from the old one.
mkdir "$tree/own"
ln -s "$(command -v python3)" "$tree/own/python"
program tests/cli/plain.sh <<'SH'
#!/bin/sh
cd / && "$PYTHON" -c 'print("all is well")'
SH
python=own/python
ends 'a Python beside the tests' 0 '1 passed, 0 failed' cli/plain
unset python

python=''
ends '--check without an environment of Python' 1 '3 passed, 1 failed' --check
said 'says what it leaves out' 'run.sh: left out, .*: golden errors *'
said 'and the command' 'run.sh: this makes one: sh scripts/venv.sh .*/build'
unset python
ends '--check with one' 1 '8 passed, 2 failed' --check
rm "$tree/build/unit/test_good"
ends 'a unit program that is not built' 1 '0 passed, 1 failed' unit/good
said 'is told how to' 'unit/good: there is no .*; build it with: make .*/unit/test_good'
rm "$tree"/tests/unit/*
ends 'a folder without tests' 1 '0 passed, 1 failed' golden
rm "$tree/build/tilepack"
ends 'nothing is built' 1 '0 passed, 1 failed' golden

# --------------------------------------------------------------------- files.sh --
in_tree() { (cd "$tree" && sh scripts/files.sh "$@"); }
check 'files.sh: in the order of the patterns' test \
    "$(in_tree 'tests/packaging/*.sh' 'tests/cli/[cd]*.sh' | tr '\n' ' ')" = \
    'tests/packaging/box.sh tests/cli/counts.sh tests/cli/dies.sh '
fails 'files.sh: a pattern that matches nothing' 1 'no file is called tests/*.none' \
    in_tree 'tests/*.sh' 'tests/*.none'

# ---------------------------------------------------------------------- .ci/run --
mkdir "$work/bin"
cat >"$work/bin/make" <<'SH'
#!/bin/sh
case $1 in
test) printf 'x\n== golden: 9 passed, 0 failed, 1 s\n100 passed, %s failed\n' "$TEST_FAILS" ;;
asan) echo '30 passed, 0 failed' ;;
lint) echo "ok   cppcheck" && exit "$LINT" ;;
*) echo '4 passed, 0 failed' && echo "make: *** [$1] Error 2" && exit "$PACKAGING" ;;
esac
[ "$1" != test ] || [ "$TEST_FAILS" = 0 ]
SH
chmod +x "$work/bin/make"
ci() { # name, status, last line, failures of test, status of lint, status of packaging
    title=$1 status=$2 line=$3
    GATES='test:25 lint:10 asan:20 test-packaging:5' \
        TEST_FAILS=$4 LINT=$5 PACKAGING=$6 PATH=$work/bin:$PATH "$tree/.ci/run" >"$work/log" 2>&1
    got=$?
    [ "$got" = "$status" ] && [ "$(tail -n 1 "$work/log")" = "$line" ]
    outcome=$?
    check "$title" test "$outcome" = 0
    [ "$outcome" = 0 ] || cat "$work/log"
}
ci '.ci/run adds up its gates' 0 '135 passed, 0 failed' 0 0 0
ci '.ci/run: a failed test' 1 '135 passed, 2 failed' 2 0 0
ci '.ci/run: red lint counts as one' 1 '134 passed, 1 failed' 0 1 0
ci '.ci/run: a gate that ends with another status' 1 '135 passed, 1 failed' 0 0 2

# -------------------------------------------------------------- tests/README.md --
cd "$root" || exit 1
# shellcheck source=tests/lib/names.sh
. "$TESTS/lib/names.sh"
sum=0
names=$(all_names) || exit 1
for name in $names; do
    seconds=$(budget "$name")
    check "tests/README.md has a row, with seconds, for $name" test "${seconds:-0}" -gt 0
    case $name in packaging/*) ;; *) sum=$((sum + ${seconds:-0})) ;; esac
done
check "the tests may take 25 minutes together (now $sum s)" test "$sum" -le 1500
# shellcheck disable=SC2016 # the table's own quotes
sed -n 's/^| `\([^`]*\)` |.*| [0-9][0-9]* |[^|]*|$/\1/p' tests/README.md >"$work/rows"
while read -r row; do
    check "the row $row of tests/README.md is of a test" test -n "$(meant "$row" "$names")"
done <"$work/rows"
# A build folder has one name, however it is typed: make would take two names for two folders.
spelled() { # BUILD
    make -C "$root" -npq NVCC= BUILD="$1" FORCE 2>/dev/null | sed -n 's/^BUILD := //p'
}
for typed in of-mine ./of-mine of-mine/ "$(cd "$root" && pwd -P)/of-mine"; do
    check "BUILD=$typed" test "$(spelled "$typed")" = of-mine
done
check "and one that is elsewhere" test "$(spelled "$work/of-mine")" = "$work/of-mine"
finish
