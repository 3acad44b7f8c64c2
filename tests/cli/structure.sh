#!/bin/sh
# The rules of the source that a compiler does not check: the direction of the
# includes (cli -> pack -> kernels -> base), nothing printed or ended below cli, and
# system calls of pack only through pack/os.c.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1
passed=0
failed=0

none() { # name, command that finds what should not exist
    name=$1
    shift
    found=$("$@")
    set -- "$name"
    if [ -z "$found" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s:\n%s\n' "$1" "$found"
    fi
}

prints() {
    grep -rnE '(^|[^_a-z.>])(printf|puts|putchar|perror|exit|abort|_exit)\(' src/base \
        src/kernels src/pack
}

# Calls, not the words of comments and messages; os.c is where they are made.
bypasses() {
    grep -rnE --include='*.c' \
        '(^|[^_a-z.>"])(open|pread|pwrite|fsync|rename|unlink|malloc|calloc|realloc|fopen|mmap)\(' \
        src/pack | grep -v '^src/pack/os/os\.c:' | grep -vE ':[0-9]+: *(\*|/\*)'
}

none "src/base includes what is above it" grep -rnE '#include "(kernels|pack|cli)/' src/base
none "src/kernels includes what is above it" grep -rnE '#include "(pack|cli)/' src/kernels
none "src/pack includes src/cli" grep -rnE '#include "cli/' src/pack
none "printing or ending below src/cli" prints
none "src/pack calls the system past pack/os/os.c" bypasses
none "fast-math in the build" grep -nE '^[^#]*(fast-math|use_fast_math)' Makefile cuda.mk library.mk
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
