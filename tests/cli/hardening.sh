#!/bin/sh
# What hardens the program and the shared library, read from the files themselves. What the
# compiler does not have, or another processor does in another way, is named and not looked
# for. A program with a sanitizer is built without.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
build=${BUILD:-$root/build}
cc=$(sed 's/ -.*//' "$build/config") || exit 1
asked=$(sed 's/ |.*//' "$build/config")
case $asked in
*-fsanitize=*)
    echo "hardening: skipped, this build has a sanitizer"
    echo "0 passed, 0 failed"
    exit 0
    ;;
esac

has=$(sh "$root/scripts/hardening.sh" compile "$cc" -O2)
links=$(sh "$root/scripts/hardening.sh" link "$cc" -O2)
check 'the probe names what every compiler of this age has' test -n "$has"
wanted() { # property, flag: false, with a word, where the compiler does not have it
    case " $has $links " in
    *" $2"*) return 0 ;;
    esac
    echo "hardening: skipped, $cc has no $1 ($2)"
    return 1
}
none() { ! "$@"; }
symbols() { readelf --dyn-syms -W "$1"; }
code() { objdump -d --no-show-raw-insn "$@"; }
holds() { # pattern, command ...
    pattern=$1
    shift
    "$@" >"$work/text" && grep -qE -- "$pattern" "$work/text"
}

for flag in $has $links; do
    check "built with $flag" holds " $flag( |\$)" echo "$asked"
done

for file in "$TILEPACK" "$build/libtilepack.so"; do
    name=${file##*/}
    check "$name: position-independent" holds '^ *Type: *DYN ' readelf -hW "$file"
    check "$name: the stack holds no code" holds 'GNU_STACK .* RW  *0x' readelf -lW "$file"
    check "$name: no segment is both written and executed" none \
        holds 'LOAD .* RWE ' readelf -lW "$file"
    ! wanted relro -Wl,-z,relro || check "$name: relro" holds GNU_RELRO readelf -lW "$file"
    ! wanted 'early binding' -Wl,-z,now ||
        check "$name: bound at the start" holds 'FLAGS.*NOW' readelf -dW "$file"
    ! wanted 'stack protector' -fstack-protector-strong ||
        check "$name: stack protector" holds ' __stack_chk_fail(@|$)' symbols "$file"
    ! wanted _FORTIFY_SOURCE -D_FORTIFY_SOURCE= ||
        check "$name: checked copies" holds ' __(memcpy|snprintf|vsnprintf)_chk(@|$)' symbols "$file"
    if [ "$(uname -m)" != x86_64 ]; then
        echo "hardening: skipped, how pages of the stack are touched on $(uname -m)"
        continue
    fi
    ! wanted 'protection of the stack from clashes' -fstack-clash-protection ||
        check "$name: large frames touch each page" holds \
            "or[ql] +[\$]0x0,(0x[0-9a-f]+)?[(]%rsp" code "$file"
    function=main
    [ "$file" = "$TILEPACK" ] || function=tilepack_open
    ! wanted 'control-flow protection' -fcf-protection=full ||
        check "$name: $function begins where a jump may land" holds endbr64 \
            code --disassemble="$function" "$file"
done
check 'the program is PIE' holds 'FLAGS_1.* PIE' readelf -dW "$TILEPACK"

# The probe itself: a compiler that has nothing, one that is old, and sanitizers.
cat >"$work/cc" <<'SH'
#!/bin/sh
for word; do
    case $word in -fstack-clash*|-fcf*|-mbranch*|-D_FORTIFY_SOURCE=3) exit 1 ;; esac
done
exec cc "$@"
SH
chmod +x "$work/cc"
probe() { sh "$root/scripts/hardening.sh" "$@"; }
check 'an old compiler gets what it has' test "$(probe compile "$work/cc" -O2)" = \
    '-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2'
check 'a compiler that does not run has nothing' test -z "$(probe compile false -O2)"
check 'nothing with a sanitizer' test -z "$(probe compile "$cc" -O1 -fsanitize=address,undefined)"
check 'nothing to link with one' test -z "$(probe link "$cc" -fsanitize=thread)"
fails 'another word' 2 "there are compile and link" probe both "$cc"
finish
