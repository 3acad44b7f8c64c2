#!/bin/sh
# The kernels on aarch64: builds their tests with a cross compiler and runs them in
# an emulator (Debian: gcc-aarch64-linux-gnu, qemu-user). Every NEON row must equal
# the reference byte for byte. Skipped, with status 0, where the tools are missing.
#
# TILEPACK_TEST_SHAPES=10000 compares so many random weights of every form, too, with what the
# reference makes of them on this processor.
set -eu
cd "$(dirname "$0")/../.."
cc=${ARM_CC:-aarch64-linux-gnu-gcc}
emulator=${ARM_RUN:-qemu-aarch64}
for tool in "$cc" "$emulator"; do
    if ! command -v "$tool" > /dev/null 2>&1; then
        echo "arm: skipped, $tool is not installed"
        exit 0
    fi
done
out=${BUILD:-build}/arm
mkdir -p "$out"
kernels() { # compiler, folder: kernels.a there
    make -j"$(nproc)" BUILD="$2" CC="$1" NVCC= CFLAGS=-O2 HARDEN= "$2/kernels.a"
}
build() { # compiler, test, kernels.a, program
    "$1" -O2 -std=c11 -D_GNU_SOURCE -Isrc -Itests/tools/minicmocka -ffp-contract=off \
        -pthread -Wall -Wextra -Werror -static -o "$4" "tests/unit/$2.c" "$3" -lm
}
kernels "$cc" "$out"
for test in test_codec test_search test_kernels; do
    build "$cc" "$test" "$out/kernels.a" "$out/$test"
    TILEPACK_TEST_SHAPES='' TILEPACK_TEST_ROUNDS=${TILEPACK_TEST_ROUNDS:-2} "$emulator" "$out/$test"
done
[ -n "${TILEPACK_TEST_SHAPES:-}" ] || exit 0
kernels "${CC:-cc}" "$out/here"
build "${CC:-cc}" test_kernels "$out/here/kernels.a" "$out/test_kernels.here"
TILEPACK_TEST_STREAM='write' "$out/test_kernels.here" |
    TILEPACK_TEST_STREAM='read' "$emulator" "$out/test_kernels"
