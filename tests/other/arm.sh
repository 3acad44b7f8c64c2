#!/bin/sh
# The kernels on aarch64: builds their tests with a cross compiler and runs them in
# an emulator (Debian: gcc-aarch64-linux-gnu, qemu-user). Every NEON row must equal
# the reference byte for byte. Skipped, with status 0, where the tools are missing.
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
sources=$(sh scripts/files.sh src/kernels/rows.c 'src/kernels/op/*.c' 'src/kernels/cpu/*.c' \
    'src/base/*.c')
for test in test_codec test_search test_kernels; do
    # shellcheck disable=SC2086
    "$cc" -O2 -std=c11 -D_GNU_SOURCE -Isrc -Itests/tools/minicmocka -ffp-contract=off \
        -pthread -Wall -Wextra -Werror -static -o "$out/$test" "tests/unit/$test.c" \
        $sources -lm
    TILEPACK_TEST_ROUNDS=${TILEPACK_TEST_ROUNDS:-2} "$emulator" "$out/$test"
done
