#!/bin/sh
# Out of memory is status 6 and said so, whichever allocation of the process fails: see
# out_of_memory.py. TILEPACK_TEST_LONG: every allocation of every command.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
case ${BUILD:-} in
*/asan | */tsan) # their own malloc cannot be replaced
    ok "left out under a sanitizer"
    finish
    exit
    ;;
esac
${CC:-cc} -std=c11 -O1 -Wall -Wextra -Werror -shared -fPIC -o "$work/fails.so" \
    "$TESTS/tools/malloc_fails.c" || exit 1
mkdir "$work/here"
"$PYTHON" "$TESTS/cli/out_of_memory.py" "$work/fails.so" "$work/here"
