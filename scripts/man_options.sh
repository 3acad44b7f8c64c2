#!/bin/sh
# Keeps the option lists of the man pages equal to the program's option table.
#   man_options.sh PROGRAM          rewrites the lists in man/
#   man_options.sh PROGRAM --check  prints the differences instead; status 1 if any
# A list stands between the comments `.\" options COMMAND [own|common]` and `.\" end options`.
set -eu
program=$1
check=${2:-}
root=$(cd "$(dirname "$0")/.." && pwd)
new=$(mktemp)
list=$(mktemp)
trap 'rm -f "$new" "$list"' EXIT
status=0
for page in "$root"/man/*.[1-9]; do
    : >"$new"
    skip=
    while IFS= read -r line; do
        case $line in
            '.\" options '*)
                skip=yes
                # shellcheck disable=SC2086 # one or two words
                "$program" man-options ${line#'.\" options '} >"$list" </dev/null
                printf '%s\n' "$line" >>"$new"
                cat "$list" >>"$new"
                ;;
            '.\" end options') skip= ;;
        esac
        case $skip in
            yes) ;;
            *) printf '%s\n' "$line" >>"$new" ;;
        esac
    done <"$page"
    if [ "$check" = --check ]; then
        diff -u "$page" "$new" || status=1
    elif ! cmp -s "$new" "$page"; then
        cat "$new" >"$page"
    fi
done
exit "$status"
