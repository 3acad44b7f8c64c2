#!/bin/sh
# A file system without locks: every command that writes does its work, and says once
# that nothing keeps a second process out; where there are locks it says nothing. A
# preloaded fcntl() stands for the file system.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
case ${BUILD:-build} in
*/asan) # its runtime has to be the first library of a process
    echo "0 passed, 0 failed"
    exit 0
    ;;
esac
text='gives no locks'

cat >"$work/nolock.c" <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
int fcntl(int fd, int what, ...)
{
    va_list args;
    va_start(args, what);
    long arg = va_arg(args, long);
    va_end(args);
    if (what == F_OFD_SETLK || what == F_SETLK) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, what, arg);
}
C
cc -shared -fPIC -o "$work/nolock.so" "$work/nolock.c" || exit 1
without() { LD_PRELOAD=$work/nolock.so "$TILEPACK" "$@"; }

# Exit status 0, and as many lines of warning about locks as are named.
says() { # name, lines, command ...
    title=$1 lines=$2
    shift 2
    "$@" >"$work/out" 2>"$work/err"
    status=$?
    found=$(grep -c "$text" "$work/err")
    if [ $status -eq 0 ] && [ "$found" -eq "$lines" ]; then
        ok "$title"
    else
        bad "$title: status $status, $found lines about locks (expected $lines)"
        cat "$work/err"
    fi
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/src" --preset tiny-mixtral --quiet \
    >/dev/null || exit 1
one=$(find "$work/src" -name '*.safetensors' | head -n 1)
set -- --to w4a8-ct --device cpu -j 2
says "convert with locks" 0 "$TILEPACK" convert "$work/src" -o "$work/with" "$@"
says "convert without locks" 1 without convert "$work/src" -o "$work/out1" "$@"
grep -q "^tilepack: warning: .*$work/out1" "$work/err"
check "it is a warning, and names the output" test $? -eq 0
check "the bytes are the same" diff -r "$work/with" "$work/out1"
says "a dry run writes nothing" 0 without convert "$work/src" -o "$work/dry" "$@" --dry-run
says "a file" 1 without convert "$one" -o "$work/one.safetensors" "$@"
says "unpack" 1 without unpack "$work/with" -o "$work/plain"
says "complete already" 0 without convert "$work/src" -o "$work/out1" "$@"
says "part 1" 1 without convert "$work/src" -o "$work/parts" "$@" --shard-size 500kB --part 1/2
says "part 2" 1 without convert "$work/src" -o "$work/parts" "$@" --shard-size 500kB --part 2/2
says "merge, whatever the number of parts" 1 without merge "$work/parts"
says "ranks" 1 without convert "$work/src" -o "$work/ranks" "$@" --tp 2
says "join" 1 without join "$work/ranks" -o "$work/joined"
says "--quiet" 0 without join "$work/ranks" -o "$work/again" --quiet

finish
