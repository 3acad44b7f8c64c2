#!/bin/sh
# hardening.sh compile|link CC [FLAG ...]
#
# Prints those of the hardening flags below that the compiler CC takes together with the
# other flags: nothing for flags of a sanitizer, which does its own checking. The Makefile
# asks at every call, so that all are tried at once first, and one by one only where that
# fails. A flag that is missing is no error: an older compiler builds with what it has.
#
#   -fstack-protector-strong     a return address that was written over ends the program
#   -fstack-clash-protection     large frames touch each page: none jumps over the guard
#   -fcf-protection, -mbranch-protection   indirect jumps land where jumps may land
#   _FORTIFY_SOURCE=3            copies into buffers of known size are checked (2: older C
#                                libraries; it needs optimization)
#   -z relro, -z now             the tables of imported functions are read-only
set -u
kind=$1
cc=$2
shift 2
case " $* " in *' -fsanitize='*) exit 0 ;; esac
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
printf '%s\n' '#include <stdio.h>' '#include <string.h>' 'int main(void)' '{' \
    '    char text[8];' '    memset(text, 0, sizeof text);' '    return puts(text) < 0;' '}' \
    >"$dir/probe.c"

# shellcheck disable=SC2086 # CC and the candidates may be several words
takes() { # flags under trial; those of the caller are in "$@" of the script
    case $kind in
    compile) $cc $given $1 -Werror -c -o "$dir/probe.o" "$dir/probe.c" ;;
    *) $cc $given $1 -Werror -o "$dir/probe" "$dir/probe.c" ;;
    esac >/dev/null 2>&1
}
given=$*
fortify='-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE'
case $kind in
compile)
    common='-fstack-protector-strong -fstack-clash-protection'
    case $(uname -m) in # a wrong guess, for a cross compiler, is tried below
    x86_64) all="$common -fcf-protection=full $fortify=3" ;;
    *) all="$common -mbranch-protection=standard $fortify=3" ;;
    esac
    set -- -fstack-protector-strong -fstack-clash-protection -fcf-protection=full \
        -mbranch-protection=standard "$fortify=3" "$fortify=2"
    ;;
link)
    all='-Wl,-z,relro -Wl,-z,now'
    set -- -Wl,-z,relro -Wl,-z,now
    ;;
*)
    echo "hardening.sh: unknown kind '$kind'; there are compile and link" >&2
    exit 2
    ;;
esac
if takes "$all"; then
    echo "$all"
    exit 0
fi
taken=
for flags; do
    case $taken in *"$fortify=3"*) [ "$flags" != "$fortify=2" ] || continue ;; esac
    if takes "$flags"; then
        taken="$taken $flags"
    fi
done
echo "${taken# }"
