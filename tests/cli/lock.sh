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
says "--quiet" 0 without unpack "$work/with" -o "$work/again" --quiet

# Who writes where another process does, at the moment of its last fsync() of what ends in $AT, or of
# the unfinished output, before the rename.
cat >"$work/between.c" <<'C'
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int fd)
{
    char link[64], path[4096];
    const char *command = getenv("BETWEEN"), *at = getenv("AT") ? getenv("AT") : ".partial";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = command ? readlink(link, path, sizeof path) : 0;
    ssize_t end = (ssize_t)strlen(at);
    if (size > end && strncmp(path + size - end, at, (size_t)end) == 0 &&
        (!getenv("COMPLETE") || access(getenv("COMPLETE"), F_OK) == 0)) {
        char *copy = strdup(command);
        unsetenv("BETWEEN");
        if (system(copy) < 0)
            abort();
        free(copy);
    }
    return (int)syscall(SYS_fsync, fd);
}
C
cc -shared -fPIC -o "$work/between.so" "$work/between.c" || exit 1
cd "$work" || exit 1
between() { # command in between, command ...
    BETWEEN=$1
    shift
    export BETWEEN
    LD_PRELOAD=$work/between.so "$TILEPACK" "$@"
    status=$?
    unset BETWEEN
    return $status
}
COMPLETE=dest.partial/tilepack.json
export COMPLETE
set -- -q --to w4a8-ct --device cpu -j 2
other='echo other >dest.partial/model.safetensors'
fails "the unfinished output is replaced" 2 "somebody has removed or replaced the unfinished" \
    between "rm -r dest.partial; mkdir dest.partial; $other" convert src -o dest "$@"
check "and is not taken for it" test ! -e dest
check "nor removed" grep -q other dest.partial/model.safetensors
rm -r dest.partial
fails "it is moved away, and a link is there" 2 "somebody has removed or replaced the unfinished" \
    between "mv dest.partial aside; ln -s aside dest.partial" convert src -o dest "$@"
check "which is not taken for it" test ! -L dest
rm -r aside dest.partial
mkdir dest && cp with/* dest
fails "a former output is there" 2 "somebody has removed or replaced the unfinished" \
    between "rm -r dest.partial; mkdir dest.partial; $other" convert src -o dest "$@" --force \
    --shard-size 500kB
check "and stays" diff -r with dest
rm -r dest dest.partial
second="$TILEPACK convert $one -o dest.partial --to fp8-ct -q --force --include ."
check "its name is another one's output" \
    between "$second; echo \$? >second; cp -r dest.partial seen" convert src -o dest "$@"
check "which is refused" grep -qx 8 second
check "and that output is complete" diff -r with dest
rm -r dest seen
mkdir dest.partial && cp with/* dest.partial
: >dest.partial/.tilepack-journal # of a process that ended
check "a lock that nobody holds is none" sh -c "$second"
rm -r dest.partial
unset COMPLETE
hidden=.a.safetensors.tilepack.partial
fails "the same of a file" 2 "somebody has removed or replaced the unfinished output" \
    between "rm $hidden; echo other >$hidden" convert "$one" -o a.safetensors "$@"
check "which is not taken" test ! -e a.safetensors
check "nor removed, either" grep -qx other $hidden

# An archive is made of the file that was written, whatever has its name by then.
hidden=.a.safetensors.zst.tilepack.partial
fails "the same of a file that becomes an archive" 2 "removed or replaced the unfinished output" \
    between "rm $hidden; head -c 9999999 /dev/zero >$hidden" convert "$one" -o a.safetensors.zst "$@"
check "which is not taken either" test ! -e a.safetensors.zst
check "stays" test "$(wc -c <$hidden)" = 9999999
check "and leaves no archive" test ! -e $hidden.zst
rm $hidden
AT=.partial.zst
export AT
fails "of the archive" 2 "removed or replaced the unfinished output" \
    between "rm $hidden.zst; echo other >$hidden.zst" convert "$one" -o a.safetensors.zst "$@"
check "which is not taken, too" test ! -e a.safetensors.zst
check "but stays" grep -qx other $hidden.zst
check "and leaves nothing else" test ! -e $hidden

finish
