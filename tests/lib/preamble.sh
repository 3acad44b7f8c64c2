# Read by the command-line tests that count what they check: the environment that they
# share with run.sh, a folder of their own, and the outcomes. Not a test itself.
# shellcheck shell=sh
TILEPACK=${TILEPACK:-build/tilepack}
case $TILEPACK in /*) ;; *) TILEPACK=$PWD/$TILEPACK ;; esac
PYTHON=${PYTHON:-python3}
TESTS=${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}
export TILEPACK
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

ok() { passed=$((passed + 1)); echo "ok $*"; }
bad() { failed=$((failed + 1)); echo "not ok $*"; }
check() { # name, command ...
    title=$1
    shift
    if "$@" >"$work/out" 2>&1; then ok "$title"; else bad "$title"; cat "$work/out"; fi
}
# The exit status, and a text that stderr must hold.
fails() { # name, status, text, command ...
    title=$1 status=$2 text=$3
    shift 3
    "$@" >"$work/out" 2>"$work/err"
    judge $? "$work/err"
}
# The exit status, and a text that stdout and stderr together must hold.
answers() { # name, status, text, command ...
    title=$1 status=$2 text=$3
    shift 3
    "$@" >"$work/out" 2>&1
    judge $? "$work/out"
    : >"$work/err"
}
judge() { # status, file that must hold the text
    if [ "$1" = "$status" ] && grep -qF -- "$text" "$2"; then
        ok "$title"
    else
        bad "$title: status $1 (expected $status and: $text)"
        cat "$work/out" "$work/err" 2>/dev/null
    fi
}
# $work/model, in $format or fp8-ct; scripts that need more have a convert() of their own.
convert() { # output, options ...
    to=$1
    shift
    "$TILEPACK" convert "$work/model" -o "$work/$to" --to "${format:-fp8-ct}" -j 2 --device cpu "$@"
}
in_work() { (cd "$work" && "$TILEPACK" "$@"); }
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
