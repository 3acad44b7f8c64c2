# Read by tests of what is said when the system cannot read a file (tools/read_fails.c,
# preloaded). Not a test itself.
# shellcheck shell=sh
# shellcheck disable=SC2154 # work and TESTS are preamble.sh's

# Whether a library can be preloaded: a sanitizer's runtime wants to be the first of a process.
can_preload() { case ${BUILD:-} in */asan | */tsan) false ;; esac; }
reading_fails() { # open|stat|pread, end of the file's name, errno, command ...
    fails_call=$1 fails_name=$2 fails_errno=$3
    shift 3
    [ -e "$work/read_fails.so" ] || ${CC:-cc} -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC \
        -o "$work/read_fails.so" "$TESTS/tools/read_fails.c" || exit 1
    READ_FAILS_CALL=$fails_call READ_FAILS_NAME=$fails_name READ_FAILS_ERRNO=$fails_errno \
        LD_PRELOAD=$work/read_fails.so "$@"
}
