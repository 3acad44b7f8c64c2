#!/bin/sh
# What a change of one file compiles anew: `make -n` on the build that is there, with the change
# and without it. Compiles nothing.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
BUILD=${BUILD:-$root/build}
# shellcheck source=tests/lib/plain_make.sh
. "$TESTS/lib/plain_make.sh"
cd "$root" || exit 1
build=${built_config%/config}

steps() { # options of make ...: what is compiled or generated, less the links
    plain_make -n V=0 BUILD="$build" -o "$build/config" -o "$build/formats.list" \
        -o "$build/models.list" "$@" "$build/tilepack" "$build/unit/test_plan" >"$work/make" 2>&1 || {
        cat "$work/make" >&2
        return 1
    }
    sed -n "s/^echo '\(CC [^']*\|GEN [^']*\)' && .*/\1/p" "$work/make" | sort
}
steps >"$work/before" || exit 1

changed() { # options of make ...: what is made because of them
    steps "$@" >"$work/after" && comm -13 "$work/before" "$work/after"
}
is() { # lines, options of make ...
    lines=$1
    shift
    changed "$@" >"$work/changed"
    echo "$lines" | diff - "$work/changed"
}
embedded() { printf '%s\n' "CC $build/$1_embedded.c" "GEN $build/$1_embedded.c"; }

check 'a format: one object' is "$(embedded formats)" -W formats/fp8-ct.json
cp formats/fp8-ct.json "$work/fp8-new.json"
check 'another format: the same' is "$(embedded formats)" \
    FORMATS="$(echo formats/*.json) $work/fp8-new.json"
check 'a model: one object' is "$(embedded models)" -W models/llama.json
nothing() { lines=$(changed "$@") && test -z "$lines"; }
check 'what a user names for other targets: nothing' nothing MODELS=--all SERVE=x VLLM_PYTHON=x SECONDS=1
no_format() { ! grep json "$1"; }
check 'what all objects depend on names no format' no_format "$BUILD/config"
check 'a source of the library: no unit program' is 'CC src/base/num.c' -W src/base/num.c
check 'a unit program: itself' is 'CC tests/unit/test_plan.c' -W tests/unit/test_plan.c

# Kernels of CUDA are compiled once, whatever C compiler takes their objects; and anew for other chips.
mkdir -p "$work/cuda/bin"
cat >"$work/cuda/bin/nvcc" <<'EOF'
#!/bin/sh
echo "$*" >>"$CALLS"
while [ $# -gt 1 ]; do
    case $1 in -o | -MF) : >"$2" ;; esac
    shift
done
EOF
chmod +x "$work/cuda/bin/nvcc"
CALLS=$work/calls
export CALLS
kernels() { # BUILD, CC, word of make ...
    to=$1 cc=$2
    shift 2
    (
        unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES
        make BUILD="$to" CUDA_BUILD="$work/kernels" CC="$cc" NVCC="$work/cuda/bin/nvcc" "$@" \
            "$work/kernels/src/kernels/cuda/cuda_caller.o" >"$work/make" 2>&1 || {
            cat "$work/make" >&2
            exit 1
        }
    )
}
called() { test "$(wc -l <"$CALLS")" -eq "$1"; }
check 'a kernel is compiled' kernels "$work/one" cc
check 'its PTX with the chip that it is for' \
    grep -Fq 'gencode=arch=compute_90,code=[sm_90a,compute_90]' "$CALLS"
check 'in one call' called 1
check 'another C compiler takes it' kernels "$work/two" 'cc -pipe'
check 'as it is' called 1
check 'other chips' kernels "$work/two" cc CUDA_ARCHS=90a CUDA_PTX=
check 'compile it anew' called 2

# Programs that need a GPU to run need none to compile.
cuda=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
for file in tests/gpu/*.c; do
    [ ! -e "$cuda/cuda_runtime.h" ] ||
        check "$file compiles" cc -std=c11 -D_GNU_SOURCE -Isrc -isystem "$cuda" -Wall -Wextra -Werror \
            -fsyntax-only "$file"
done

own() { # file: it alone, for each instruction set of this processor
    changed -W "$1" >"$work/changed"
    grep "^CC $1 for " "$work/changed" | diff - "$work/changed" && test -s "$work/changed"
}
for file in src/kernels/cpu/cpu_*.inc; do
    check "$file: its own objects" own "$file"
done
finish
