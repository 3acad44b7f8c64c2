# The names of the tests, and which of them a command line means. Read by run.sh, in the
# root of the repository. Not a test itself.
# shellcheck shell=sh

# The parts of one program each, in the order in which they run.
bytes='oracle golden checkpoints search feedback consumer inputs sources old quality pairs random'
broken='errors headers faults reading kills power kill large shapes'

# folder, pattern, what comes off the name: folder/NAME of every file.
named() {
    found=$(sh scripts/files.sh "tests/$1/$2") || return 1
    echo "$found" | sed "s|.*/\($3\)\([^/]*\)\.[a-z]*\$|$1/\2|"
}

# Every name, in the order in which a failure is easiest to understand. A folder without
# tests is an error.
all_names() {
    named unit 'test_*.c' test_ || return 1
    # shellcheck disable=SC2086 # lists of words
    printf '%s\n' $bytes $broken
    named cli '*.sh' '' && named packaging '*.sh' ''
}

# The names that a word means: the one that is spelled so, else those that begin so or
# that it matches as a pattern of the shell.
meant() { # word, names
    echo "$2" | grep -Fx -e "$1" && return
    echo "$2" | while read -r name; do
        # shellcheck disable=SC2254 # patterns are meant
        case $name in $1 | $1*) echo "$name" ;; esac
    done
}

# The name that takes the fewest changes of a letter to be the word, with its folder or
# without; the first of equals.
nearest() { # word, names
    echo "$2" | awk -v word="$1" '
    function least(a, b, c) { a = a < b ? a : b; return a < c ? a : c }
    function distance(s, t,   i, j, row, diagonal, above) {
        for (j = 0; j <= length(t); j++) row[j] = j
        for (i = 1; i <= length(s); i++) {
            diagonal = row[0]
            row[0] = i
            for (j = 1; j <= length(t); j++) {
                above = row[j]
                row[j] = least(above + 1, row[j - 1] + 1,
                               diagonal + (substr(s, i, 1) != substr(t, j, 1)))
                diagonal = above
            }
        }
        return row[length(t)]
    }
    {
        base = $0
        sub(/.*\//, "", base)
        d = distance(word, $0)
        if (distance(word, base) < d) d = distance(word, base)
        if (NR == 1 || d < best) { best = d; name = $0 }
    }
    END { print name }'
}

# Those of the names that the words mean, in the order of the names, each once.
chosen() { # names, word ...
    names=$1 picked=
    shift
    for word; do
        found=$(meant "$word" "$names")
        if [ -z "$found" ]; then
            echo "run.sh: there is no test '$word'; the nearest is $(nearest "$word" "$names")," \
                "and --list lists all" >&2
            return 1
        fi
        picked="$picked$found
"
    done
    echo "$names" | grep -Fx -e "${picked%?}"
}

# Seconds that a test may take, from the tables of tests/README.md: the first row whose name
# is the test's or, as a pattern, matches it.
budget() { # name
    # shellcheck disable=SC2016 # the table's own quotes
    sed -n 's/^| `\([^`]*\)` |.*| \([0-9][0-9]*\) |[^|]*|$/\1 \2/p' tests/README.md |
        while read -r row seconds; do
            # shellcheck disable=SC2254 # patterns are meant
            case $1 in $row) echo "$seconds" && break ;; esac
        done
}
