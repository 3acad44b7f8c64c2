#!/bin/bash
# The man pages against the program: option lists, commands, exit statuses,
# cross references, and mandoc's own opinion. Usage: man.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
cd "$(dirname "$0")/../.." || exit 1
failed=0
fail() {
    failed=1
    printf 'FAIL man: %s\n' "$1"
}

sh scripts/man_options.sh "$program" --check ||
    fail "option lists are not those of the table; run: sh scripts/man_options.sh $program"

# Every command is in the overview, and its options are listed somewhere.
commands=$("$program" --help | sed -n '/^Options:/q; s/^  \([a-z]*\) .*/\1/p')
[[ -n $commands ]] || fail 'no commands in --help'
for command in $commands; do
    grep -q "^\.Ss $command\$" man/tilepack.1 || fail "tilepack.1 does not explain $command"
    [[ $command == plan ]] && command=convert # the same options
    grep -qE "^\.\\\\\" options $command( own)?\$" man/*.1 || fail "no page lists the options of $command"
done

sources=$(sh scripts/files.sh 'src/cli/*.c' 'src/pack/*/*.c' 'src/pack/plan/*/*.c' 'src/kernels/*.c' 'src/kernels/*/*.c') &&
    pages=$(sh scripts/files.sh 'man/*.[135]') || exit 1

# The exit statuses are those of the code.
code=$(sed -n 's/^ *TP_\(OK\|E_[A-Z]*\) = \([0-9]*\),.*/\2/p' src/base/error.h)
page=$(sed -n '/^\.Sh EXIT STATUS/,/^\.El/s/^\.It \([0-9]*\)$/\1/p' man/tilepack.1)
[[ -n $code && $code == "$page" ]] || fail "exit statuses: code ${code//$'\n'/ }, page ${page//$'\n'/ }"

# So are the words of JSON: of outcomes, of why an output is not this one, and of errors.
words() { # what, those of the code, those of the page: one a line, in any order
    [[ -n $2 && $(sort <<<"$2") == "$(sort <<<"$3")" ]] ||
        fail "$1: code ${2//$'\n'/ }, page ${3//$'\n'/ }"
}
words reason \
    "$(sed -n 's/^ *\[TP_FOUND_[A-Z]*\] = "\(.*\)",$/\1/p' src/pack/commit/commit_found.c)" \
    "$(sed -n '/^The words of$/,/^\.El/s/^\.It Cm //p' man/tilepack-convert.1)"
words kind \
    "$(sed -n '/tp_str("kind"/,/"),$/s/.*\(? *\|: *\)"\([a-z]*\)".*/\2/p' src/cli/outcome.c)" \
    "$(sed -n '/^\.It Cm kind$/,/^\.It Cm reason/s/^\.Cm \([a-z]*\) :$/\1/p' \
        man/tilepack-convert.1)"
words "kind of an error" \
    "$(sed -n 's/^ *case TP_E_[A-Z]*: return "\(.*\)";/\1/p' src/cli/report.c)" \
    "$(sed -n '/^a word for it:$/,/^\.Qq message$/p' man/tilepack.1 | sed -n 's/^\.Cm //p' |
        tr ' ' '\n' | sed '/^[a-z]/!d')"

# Environment variables that the code reads are documented.
# shellcheck disable=SC2086 # a list of files
variables=$(grep -hoE '(getenv|environment_u64)\("[A-Z_]+"' $sources |
    sed 's/.*"\([A-Z_]*\)"/\1/' | sort -u)
[[ -n $variables ]] || fail 'no environment variable found in the code'
for name in $variables; do
    grep -q "$name" man/tilepack.1 || fail "tilepack.1 does not mention $name"
done

# References within the set lead somewhere.
# shellcheck disable=SC2086
while read -r name section; do
    [[ -e man/$name.$section ]] ||
        fail "reference to a page that does not exist: $name($section)"
done < <(sed -n 's/^\.Xr \(tilepack[a-z-]*\) \([0-9]\).*/\1 \2/p' $pages | sort -u)

if command -v mandoc >/dev/null; then
    # mandoc looks for references among the installed pages only
    # shellcheck disable=SC2086
    lint=$(mandoc -T lint $pages | grep -v 'referenced manual not found: Xr tilepack')
    [[ -z $lint ]] || fail "mandoc -T lint:
$lint"
else
    echo 'skipped: mandoc is not installed'
fi
((failed)) || echo 'man pages: in step with the program'
exit "$failed"
