#!/bin/sh
# The C library from outside: what it exports, that C and C++ programs build with it
# (shared and static), that the samples run, and (library.py) that it makes and reads
# the bytes of the program. Needs `make library` in $BUILD.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
build=${BUILD:-$root/build}
case $build in
*/asan) # a program without the sanitizers cannot load a library with them
    echo "0 passed, 0 failed"
    exit 0
    ;;
esac
export LD_LIBRARY_PATH="$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
header=$root/src/pack/api/tilepack.h

outcome() { # name, status; what explains it is in $work/log
    if [ "$2" -eq 0 ]; then ok "$1"; else bad "$1"; cat "$work/log"; fi
    : >"$work/log"
}

# Exactly the functions of the header are exported.
grep -o 'tilepack_[a-z0-9_]*(' "$header" | tr -d '(' | sort -u >"$work/declared"
nm -D --defined-only "$build/libtilepack.so" | awk '$2 == "T" { print $3 }' |
    sed 's/@.*//' | sort -u >"$work/exported"
[ -s "$work/declared" ] && diff "$work/declared" "$work/exported" >"$work/log"
outcome 'exports what the header declares' $?
nm -D --defined-only "$build/libtilepack.so" |
    awk '$2 != "T" && !($2 == "A" && $3 ~ /^TILEPACK_/)' >"$work/log"
outcome 'exports nothing else' "$([ ! -s "$work/log" ]; echo $?)"

# What measures kernels is the program's: neither library holds it, hidden symbols included.
benchmarks() { nm --defined-only "$1" | grep -E ' tp_(cuda_)?bench(_|$)'; }
benchmarks "$TILEPACK" >"$work/log"
outcome 'the program has the benchmarks' "$([ -s "$work/log" ]; echo $?)"
for file in libtilepack.a libtilepack.so; do
    benchmarks "$build/$file" >"$work/log"
    outcome "$file has no benchmarks" "$([ ! -s "$work/log" ]; echo $?)"
done

missing=$(while read -r name; do
    grep -q "^\.F[no] $name\b" "$root/man/tilepack.3" || echo "$name"
done <"$work/declared")
echo "$missing" >"$work/log"
outcome 'tilepack(3) lists every function' "$([ -z "$missing" ]; echo $?)"

version=$(sed -n 's/^#define TILEPACK_VERSION "\(.*\)"/\1/p' "$header")
readelf -d "$build/libtilepack.so" | grep -q "soname: \[libtilepack.so.${version%%.*}\]"
outcome 'the soname is that of the version' $?
"$TILEPACK" --version | grep -q "^tilepack $version "
outcome 'program and header agree on the version' $?

# The header is C99 and C++ by itself.
mkdir "$work/include" && cp "$header" "$work/include"
echo '#include <tilepack.h>' >"$work/alone.c"
cp "$work/alone.c" "$work/alone.cc"
cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$work/include" -c -o "$work/alone.o" \
    "$work/alone.c" 2>"$work/log"
outcome 'the header is C99' $?
if command -v c++ >/dev/null; then
    c++ -std=c++11 -pedantic -Wall -Wextra -Werror -I"$work/include" -c -o "$work/alone.o" \
        "$work/alone.cc" 2>"$work/log"
    outcome 'the header is C++11' $?
fi

# The C sample, with either library.
libs=$(sed -n 's/^Libs.private: //p' "$build/tilepack.pc")
cc -std=c11 -Wall -Wextra -Werror -I"$work/include" "$root/samples/c_quantize.c" \
    -o "$work/shared" -L"$build" -ltilepack 2>"$work/log"
outcome 'c_quantize.c links with libtilepack.so' $?
# shellcheck disable=SC2086 # a list of flags
cc -std=c11 -Wall -Wextra -Werror -I"$work/include" "$root/samples/c_quantize.c" \
    -o "$work/static" "$build/libtilepack.a" $libs 2>"$work/log"
outcome 'c_quantize.c links with libtilepack.a' $?
"$work/shared" w4a8-cutlass 32 256 >"$work/a" 2>"$work/log" &&
    grep -q '^weight_chan_scale' "$work/a"
outcome 'c_quantize runs' $?
"$work/static" w4a8-cutlass 32 256 2>"$work/log" | cmp -s - "$work/a"
outcome 'shared and static print the same' $?
"$work/shared" w4a8-cutlass 17 128 >/dev/null 2>"$work/log"
[ $? -eq 4 ] && grep -q 'N=17 is not a multiple of 16' "$work/log"
outcome 'c_quantize says why a size is refused' $?

# The Python samples.
"$PYTHON" "$root/samples/quantize_torch.py" --library "$build/libtilepack.so" >"$work/log" 2>&1
outcome 'quantize_torch.py' $?
export PYTHONPATH="$root/python" TILEPACK_LIBRARY="$build/libtilepack.so" \
    TILEPACK_PROGRAM="$TILEPACK"
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/moe" --preset tiny-mixtral --quiet
for format in w4a8-cutlass fp8-1x128 fp8-deepgemm-sm90 fp8-deepgemm-sm100 mxfp8-torchao3d; do
    "$TILEPACK" convert "$work/moe" -o "$work/$format" --to "$format" --quiet &&
        "$PYTHON" "$TESTS/bytes/packed_views.py" "$work/$format" >"$work/log" 2>&1 &&
        grep -q '[1-9][0-9]* views proven' "$work/log"
    outcome "the views of $format are proven" $?
done
# What the launchers ask for: spec'd strides, in elements.
strides() { # format, operand, text, weight (default: the experts' w2)
    "$PYTHON" "$root/samples/load_packed.py" "$work/$1" \
        "model.layers.0.${4:-block_sparse_moe.experts.w2}" >"$work/log" 2>&1
    grep -q "^ *$2 .*$3\$" "$work/log"
    outcome "$1: $2 has $3" $?
}
strides fp8-1x128 scale 'shape (4, 256, 4)  strides (1024, 1, 256)'
strides fp8-deepgemm-sm100 scale 'shape (4, 256, 1)  strides (256, 1, 256)'
strides mxfp8-torchao3d qdata 'shape (4, 256, 512)  strides (131072, 1, 256)'
strides w4a8-cutlass group_scale_strides 'shape (4, 2)  strides (2, 1)'
strides w4a8-cutlass b 'shape (4, 256, 64)  strides (16384, 64, 1)'
# The dense kernel takes N from the second dimension of b, and a flat list of scales.
strides w4a8-cutlass b 'shape (32, 128)  strides (1, 32)' self_attn.k_proj
strides w4a8-cutlass b_group_scales 'shape (2048,)  strides (1,)' self_attn.k_proj
"$PYTHON" "$root/samples/load_packed.py" "$work/moe" nothing >"$work/log" 2>&1
[ $? -eq 1 ] && grep -q "^load_packed.py: .*/moe: no packed weight 'nothing'\$" "$work/log"
outcome 'load_packed.py says what is not there' $?

"$PYTHON" "$TESTS/bytes/library.py" "$build/libtilepack.so" >"$work/log" 2>&1
line=$(tail -n 1 "$work/log")
good=$(echo "$line" | sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p')
bad=$(echo "$line" | sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p')
[ "${bad:-1}" -eq 0 ] || grep -v '^ok ' "$work/log"
passed=$((passed + ${good:-0}))
failed=$((failed + ${bad:-1}))

finish
