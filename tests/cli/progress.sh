#!/bin/bash
# The progress line end to end: there on a terminal, gone at the end, and not a
# byte of it on a pipe, under --quiet or on a dumb terminal. Usage: progress.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0
fail() {
    failed=1
    printf 'FAIL progress: %s\n' "$1"
}

# One weight of zeros, a hole in the file; slow enough for the reference kernels.
rows=8192 columns=8192
header="{\"layers.0.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[$rows,$columns],\
\"data_offsets\":[0,$((rows * columns * 2))]}}"
while ((${#header} % 8)); do header+=' '; done
# shellcheck disable=SC2059 # the format is the length's first byte
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >slow.safetensors
truncate -s $((8 + ${#header} + rows * columns * 2)) slow.safetensors
command=("$program" convert slow.safetensors --to fp8-deepseek --discard --device cpu --jobs 1)
export TILEPACK_DISABLE=avx512,avx2,neon,cuda TERM=xterm

"${command[@]}" >out 2>err </dev/null || fail "convert failed: $(cat err)"
! grep -q $'\r\|\033' out err || fail 'there is progress on a pipe'

if command -v script >/dev/null && script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    script -qec "stty cols 100; ${command[*]} >/dev/null" typescript >/dev/null </dev/null ||
        fail 'convert failed on a terminal'
    grep -qE $'\rconvert  .* / 134 MB +[0-9]+%  .*/s  ETA ' typescript ||
        fail "no progress on a terminal: $(cat -v typescript)"
    grep -q 'down_proj' typescript || fail 'the tensor is not named'
    # the last thing on the line is that it was cleared
    sed '/^Script /d' typescript | tr -d '\n' | grep -q $'\r\033\\[K[^%]*$' ||
        fail "the line is left behind: $(tail -c 200 typescript | cat -v)"
    script -qec "${command[*]} --quiet >/dev/null" typescript >/dev/null </dev/null
    ! grep -q '%' typescript || fail 'there is progress under --quiet'
    TERM=dumb script -qec "${command[*]} >/dev/null" typescript >/dev/null </dev/null
    ! grep -q '%' typescript || fail 'there is progress on a dumb terminal'
else
    echo 'skipped: script is not installed, or there are no pseudo-terminals'
fi
((failed)) || echo 'progress: on a terminal and nowhere else'
exit "$failed"
