#!/bin/sh
# The rules of the source that a compiler does not check: which folder may know which,
# no circle of files, nothing printed or ended below cli, system calls of pack through
# pack/os/os.c alone, no fast-math; documents name files that there are. A check that had
# nothing to look at has failed.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
LC_ALL=C
export LC_ALL
passed=0
failed=0

# The table of src/README.md: every folder, the ground first, and what it may include and call.
# Nothing else, and nothing further down: so folders form no circle. What is no longer used is to go.
# A name that begins with no folder of src is one of pack.
# shellcheck disable=SC2016 # awk's own variables
arrows=$(awk -F'|' '
function full(name) {
    gsub(/[` ]/, "", name)
    return name ~ /^((base|kernels|pack|cli)(\/|$)|$)/ ? name : "pack/" name
}
/^\| `/ && NF == 6 && !ended {
    printf "%s :", full($2)
    count = split($5, name, ",")
    for (i = 1; i <= count; i++)
        printf " %s", full(name[i])
    print ""
    found = 1
}
!/^\|/ && found { ended = 1 }' src/README.md)

# Without findings: passed. Else they are shown.
verdict() { # name, findings
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s:\n%s\n' "$1" "$2"
    fi
}

sources() { # folder ...
    find "$@" -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' | sort
}

# From files below src to lines "FROM TO WORD": FROM includes TO, or calls what TO defines
# (WORD). A definition stands at the beginning of a line; one with a prototype in a header
# has the prefix tp_ or tilepack_. What X_none.c defines stands in for another file, which
# counts. Also "FILE - definitions COUNT".
# shellcheck disable=SC2016 # awk's own variables
reads='
function plain(line,    text, at) { # without strings and comments
    gsub(/\\["\\]/, "", line)
    gsub(/"[^"]*"/, "\"\"", line)
    text = ""
    while (line != "") {
        at = index(line, comment ? "*/" : "/*")
        if (!comment)
            text = text (at ? substr(line, 1, at - 1) : line)
        if (!at)
            break
        line = substr(line, at + 2)
        comment = !comment
    }
    sub(/\/\/.*/, "", text)
    return text
}
function define(head, last,    name) {
    sub(/^extern "" /, "", head)
    if (head ~ /^(static|typedef|extern|template)/ || (last == ";" && head ~ /\(/))
        return
    gsub(/(struct|enum|union)[ \t]+[A-Za-z0-9_]+/, "", head)
    if (head ~ /\(/)
        match(head, /(tp_|tilepack_)[A-Za-z0-9_]*\(/)
    else
        match(head, /(tp_|tilepack_)[A-Za-z0-9_]*/)
    if (RSTART) {
        name = substr(head, RSTART, RLENGTH)
        sub(/\(/, "", name)
        if (!((FILENAME, name) in own)) {
            own[FILENAME, name] = 1
            where[name] = where[name] " " FILENAME
            defined[FILENAME]++
        }
    }
}
FNR == 1 { comment = 0; open = 0; head = "" }
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, part, "\"")
    print substr(FILENAME, 5), part[2], "#include"
    next
}
{ text = plain($0) }
FILENAME ~ /\.cu?$/ && !/^#/ {
    if (text ~ /^[A-Za-z_]/ && text !~ /^[a-z_]+:/) { head = ""; open = 1 }
    if (open) {
        head = head " " text
        if (match(head, /[;{=]/)) {
            open = 0
            last = substr(head, RSTART, 1)
            head = substr(head, 2, RSTART - 2)
            define(head, last)
        }
    }
}
FILENAME ~ /\.(cu?|inc)$/ {
    gsub(/(struct|enum|union)[ \t]+[A-Za-z0-9_]+/, "", text)
    while (match(text, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(text, RSTART, RLENGTH)
        if (word ~ /^(tp_|tilepack_)/)
            uses[FILENAME, word] = 1
        text = substr(text, RSTART + RLENGTH)
    }
}
END {
    for (use in uses) {
        split(use, part, SUBSEP)
        if (use in own || !(part[2] in where))
            continue
        count = split(where[part[2]], at, " ")
        for (i = 1; i <= count; i++)
            if (count == 1 || at[i] !~ /_none\.c$/)
                print substr(part[1], 5), substr(at[i], 5), part[2]
    }
    for (file in defined)
        print substr(file, 5), "-", "definitions", defined[file]
}'

# The lines of `reads` against the table: what breaks it, and what of it is not used.
# shellcheck disable=SC2016
judges='
function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
FNR == NR && NF {
    first = 1
    if (!/^ /) {
        if ($2 != ":")
            print "the table has a row without a colon: " $0
        name = $1
        rows[name] = 1
        first = 3
    }
    for (i = first; i <= NF; i++) {
        if (!($i in rows) || $i == name)
            print "the table: " name " names " $i ", which is not above it"
        allowed[name, $i] = 1
    }
}
FNR == NR { next }
$1 == "file" { files[$2] = 1; seen[folder($2)] = 1; next }
$2 == "-" { next }
{
    from = folder($1); to = folder($2)
    if (!($2 in files))
        print $1 " includes " $2 ", which there is not"
    else if (from != to && !((from, to) in allowed))
        print $1 (($3 == "#include") ? " includes " : " calls " $3 " of ") $2
    used[from, to] = 1
}
END {
    for (at in seen)
        if (!(at in rows))
            print "src/" at " has no row in the table"
    for (at in rows)
        if (!(at in seen))
            print "the table has a row for " at ", where there is no file"
    for (pair in allowed)
        if (!(pair in used)) {
            split(pair, part, SUBSEP)
            print "the table: " part[1] " uses nothing of " part[2]
        }
}'

# Reads a tree, whose `src` is here; leaves $work/lines, and what is wrong on stdout.
against_table() { # table, name of a file for the lines
    sources src >"$2.files"
    # shellcheck disable=SC2046 # names without blanks
    awk "$reads" $(cat "$2.files") >"$2.lines" || echo "awk failed"
    sed 's|^src/|file |' "$2.files" >"$2.all"
    cat "$2.lines" >>"$2.all"
    printf '%s\n' "$1" | awk "$judges" - "$2.all" || echo "awk failed"
}

# A file and its header are one: x.c, x.cu and x.h are "x".
circles() { # file with lines
    awk '$2 != "-" { sub(/\.(c|cu|h)$/, "", $1); sub(/\.(c|cu|h)$/, "", $2); print $1, $2 }' "$1" |
        sort -u | tsort 2>&1 >"$1.order" |
        sed 's/^tsort: //; s/^-: input contains a loop:$/a circle:/'
    [ -s "$1.order" ] || echo "tsort put nothing in order"
}

verdict 'what folders may know' "$(against_table "$arrows" "$work/tree")"
verdict 'circles of files' "$(circles "$work/tree.lines")"
verdict 'files in which no definition is found' "$(awk '$2 == "-" { print "src/" $1 }' \
    "$work/tree.lines" | sort | comm -13 - "$work/tree.files" |
    grep -E '\.cu?$' | grep -v '^src/cli/main\.c$')"

# The same on a tree of four files with one fault of each kind: all are found.
mkdir -p "$work/small/src/low" "$work/small/src/high" "$work/small/src/lost"
(
    cd "$work/small/src" || exit 1
    printf '%s\n' '#include "low/a.h"' '#include "high/b.h"' '#include "low/none.h"' \
        'int tp_a(void) { return 0; } /* tp_c */' 'static int tp_x(void) { return tp_b(); }' \
        >low/a.c
    printf '%s\n' 'int tp_a(void);' >low/a.h
    printf '%s\n' '#include "high/b.h"' '#include "low/a.h"' '' 'int tp_b(' '    void)' '{' \
        '    return tp_a() + tp_c("tp_d()");' '}' >high/b.c
    printf '%s\n' 'int tp_b(void);' >high/b.h
    printf '%s\n' '#include "high/b.h"' 'const int tp_c[] = {1};' 'int tp_d = 2;' >lost/c.cu
)
found=$(cd "$work/small" && against_table 'low :
high : low gone
empty : low' "$work/small.out" | sort)
expected='high/b.c calls tp_c of lost/c.cu
lost/c.cu includes high/b.h
low/a.c calls tp_b of high/b.c
low/a.c includes high/b.h
low/a.c includes low/none.h, which there is not
src/lost has no row in the table
the table has a row for empty, where there is no file
the table: empty uses nothing of low
the table: high names gone, which is not above it
the table: high uses nothing of gone'
[ "$found" = "$expected" ] && found=
verdict 'faults that the checks above should find' "$found"
found=$(circles "$work/small.out.lines" | tr '\n' ' ')
case $found in 'a circle: '*low/a*) found= ;; esac
verdict 'a circle that the check above should find' "$found"

# Lines of the folders' files that match, less comments. The same pattern must match in a
# place where the words are at home, or it is no pattern for them.
nowhere() { # name, pattern, file at home, folder ...
    name=$1 pattern=$2 home=$3
    shift 3
    empty=
    grep -qE "$pattern" "$home" || empty="the pattern finds nothing in $home either"
    for folder; do
        sources "$folder" 2>/dev/null | grep -q . || empty="there is no file in $folder"
    done
    if [ -n "$empty" ]; then
        verdict "$name" "$empty"
        return
    fi
    # shellcheck disable=SC2046
    verdict "$name" "$(grep -nE "$pattern" $(sources "$@") /dev/null |
        grep -v "^$home:" | grep -vE ':[0-9]+: *(\*|/\*)')"
}

nowhere 'printing or ending below src/cli' \
    '(^|[^_a-z.>])(printf|puts|putchar|perror|exit|abort|_exit)\(' src/cli/main.c \
    src/base src/kernels src/pack
call='open|pread|pwrite|fsync|rename|unlink|malloc|calloc|realloc|fopen|mmap|pthread_create'
nowhere 'src/pack calls the system past pack/os/os.c' \
    "(^|[^_a-z.>\"])($call)\\(" src/pack/os/os.c src/pack

# jansson passes over a failed allocation.
nowhere 'trees of JSON past pack/text/json_tree.c, where a lack of memory counts' \
    '\<json_(loadb|loads|dumps|dumpb)\(|^ *json_(object_(set|update)|array_append)[a-z_]*\(' \
    src/pack/text/json_tree.c src/pack src/cli
nowhere 'text of layouts where bytes are moved' 'layout_parse\.h|tp_(layout_compile|expr_eval)' \
    src/base/layout_parse.c src/kernels/cpu src/kernels/cuda src/pack/plan src/pack/sink \
    src/pack/run src/pack/commit src/pack/inspect src/pack/check src/pack/prove src/pack/bench

# What the documents say of the source is found there.
find src plugin tests scripts samples -type f | sed 's|.*/||' | sort -u >"$work/names"
documents=$(ls CONTRIBUTING.md src/*.md 2>/dev/null)
# shellcheck disable=SC2086
grep -ohE '[A-Za-z0-9_./*-]+\.(c|h|cu|cuh|inc|sh|py)\b' $documents | sed 's|.*/||' |
    grep -v '[*A-Z]' | sort -u >"$work/named"
found=$(comm -23 "$work/named" "$work/names")
[ -s "$work/named" ] || found="no file is named in $documents"
verdict "files that the documents name, and that there are not" "$found"

regex='#include <regex\.h>'
found=$(grep -rnE "$regex" src tests --include='*.[ch]')
echo '#include <regex.h>' | grep -qE "$regex" || found="the pattern finds nothing"
verdict "glibc's regex, which a stranger's pattern can crash" "$found"

# An algorithm of the CPU that is not listed would be compiled, and never be called.
sed -n '/define CPU_ALGORITHMS/,/[^\]$/p' src/kernels/cpu/cpu_rows.h | grep -o 'X([a-z0-9_]*)' |
    sed 's/X(\(.*\))/\1/' | sort >"$work/listed"
verdict 'cpu_*.inc against CPU_ALGORITHMS of cpu_rows.h' "$(find src/kernels/cpu -name 'cpu_*.inc' |
    sed 's/.*\/cpu_//; s/\.inc$//' | sort | comm -3 - "$work/listed")"

fast='^[^#]*(fast-math|use_fast_math)'
found=$(grep -nE "$fast" Makefile ./*.mk 2>&1)
echo 'CFLAGS = -ffast-math' | grep -qE "$fast" || found="the pattern finds nothing"
verdict 'fast-math in the build' "$found"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
