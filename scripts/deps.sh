#!/bin/sh
# deps.sh [--print] [build] [test] [lint] [wheel] [arm] [slurm] [browser] [packaging]
#
# Installs what this project needs from the distribution (Debian or Ubuntu, apt)
# and is not there yet. A thing counts as there when it can be used (the command
# runs, the header is found by the compiler), wherever it came from; with
# everything there, nothing is run but these checks. --print only names what is
# missing. Without a group: build.
set -eu

CC=${CC:-cc}
PYTHON=${PYTHON:-python3}

# package, kind of probe, what is probed
packages() {
    case $1 in
    build)
        echo "gcc compiler $CC"
        echo "libc6-dev header stdio.h"
        echo "make command make"
        echo "pkg-config command pkg-config"
        echo "libjansson-dev header jansson.h"
        echo "libpcre2-dev pcre2 pcre2.h"
        echo "libzstd-dev header zstd.h"
        echo "libxxhash-dev header xxhash.h"
        echo "nettle-dev header nettle/sha2.h"
        ;;
    test)
        echo "libcmocka-dev cmocka cmocka.h"
        echo "python3 command $PYTHON"
        echo "python3-venv venv $PYTHON"
        echo "zstd command zstd"
        echo "jq command jq"
        ;;
    lint)
        echo "clang command clang"
        echo "clang-tidy command clang-tidy"
        echo "cppcheck command cppcheck"
        echo "shellcheck command shellcheck"
        echo "mandoc command mandoc"
        echo "python3 command $PYTHON"
        echo "python3-venv venv $PYTHON"
        ;;
    wheel)
        echo "binutils command $(uname -m)-linux-gnu-objcopy"
        ;;
    arm)
        echo "gcc-aarch64-linux-gnu command ${ARM_CC:-aarch64-linux-gnu-gcc}"
        echo "libc6-dev-arm64-cross file /usr/aarch64-linux-gnu/include/stdio.h"
        echo "qemu-user command ${ARM_RUN:-qemu-aarch64}"
        ;;
    slurm)
        echo "slurm-wlm command slurmctld"
        echo "munge command munged"
        ;;
    browser)
        echo "chromium command ${CHROMIUM:-chromium}"
        ;;
    packaging)
        echo "binutils command $(uname -m)-linux-gnu-objcopy"
        echo "buildah command buildah"
        echo "debootstrap file /usr/sbin/debootstrap"
        echo "dpkg-dev command dpkg-shlibdeps"
        echo "lintian command lintian"
        ;;
    *)
        echo "deps.sh: unknown group '$1'; the groups are build, test, lint, wheel, arm, slurm, browser and packaging" >&2
        exit 2
        ;;
    esac
}

# CC may be several words, as for make: ccache gcc
# shellcheck disable=SC2086
preprocesses() { $CC -E -x c - >/dev/null 2>&1; }

have() { # kind, what
    case $1 in
    command | compiler) command -v "${2%% *}" >/dev/null 2>&1 ;;
    file) [ -e "$2" ] ;;
    header) echo "#include <$2>" | preprocesses ;;
    pcre2)
        printf '%s\n' '#define PCRE2_CODE_UNIT_WIDTH 8' "#include <$2>" |
            preprocesses
        ;;
    cmocka)
        printf '%s\n' '#include <stdarg.h>' '#include <stddef.h>' '#include <stdint.h>' \
            '#include <setjmp.h>' '#include <cmocka.h>' | preprocesses
        ;;
    venv) "$2" -c 'import venv, ensurepip' >/dev/null 2>&1 ;;
    esac
}

print_only=0
groups=
for arg in "$@"; do
    case $arg in
    --print) print_only=1 ;;
    *) groups="$groups $arg" ;;
    esac
done
list=$(for group in ${groups:-build}; do packages "$group" || exit $?; done)

missing=
while read -r package kind what; do
    have "$kind" "$what" || missing="$missing $package"
done <<EOF
$list
EOF

missing=${missing# }
if [ -z "$missing" ]; then
    exit 0
fi
if [ "$print_only" = 1 ]; then
    echo "$missing"
    exit 0
fi

install="apt-get install -y --no-install-recommends $missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "deps.sh: missing: $missing" >&2
    echo "deps.sh: there is no apt-get here; install the equivalents of these packages" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    echo "deps.sh: missing: $missing" >&2
    echo "deps.sh: neither root nor sudo is at hand; run this as root and try again:" >&2
    echo "    apt-get update && $install" >&2
    exit 1
fi

echo "deps.sh: installing $missing" >&2
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Package lists may be absent or too old: then refresh them once and try again.
# shellcheck disable=SC2086
if ! $as_root $install >"$log" 2>&1; then
    if ! { $as_root apt-get update && $as_root $install; } >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "deps.sh: apt could not install: $missing (see above); run it by hand:" >&2
        echo "    apt-get update && $install" >&2
        exit 1
    fi
fi
