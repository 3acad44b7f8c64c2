#!/bin/bash
# The progress line end to end: there on a terminal, gone at the end, and not a
# byte of it under --quiet; on a pipe or a dumb terminal one line in ten seconds. Usage: progress.sh [PROGRAM]
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

# For programs the name of the weight is the name, whatever is in it.
sed 's/layers[.]0/mod\xc3\xa8\xc2\x9bl/' slow.safetensors >named.safetensors
"$program" convert named.safetensors --to fp8-deepseek --discard --device cpu --jobs 1 \
    --progress-fd 9 9>lines >out 2>err </dev/null || fail "convert failed: $(cat err)"
grep -qF $'"item":"mod\xc3\xa8\\u009Bl.down_proj"' lines || fail "item: $(tail -n 1 lines)"

# However long it is, and however much longer in JSON.
weight() { # file, name of its one weight, rows and columns
    local bytes=$(($3 * $3 * 2)) header size
    header="{\"$2.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[$3,$3],\
\"data_offsets\":[0,$bytes]}}"
    size=$(printf %08x "$(printf %s "$header" | wc -c)")
    printf "\\x${size:6:2}\\x${size:4:2}\\x${size:2:2}\\x${size:0:2}\\0\\0\\0\\0%s" "$header" >"$1"
    truncate -s $((8 + 16#$size + bytes)) "$1"
}
long_name() { # the name of a weight, in bytes
    weight long.safetensors "$1" 128
    "$program" convert long.safetensors --to fp8-deepseek --discard --device cpu --progress-fd 9 \
        9>lines >out 2>err </dev/null || fail "convert failed: $(cat err)"
    grep -q '"done":32768,.*"item":"' lines || fail "no object for a long name: $(cat lines)"
}
long_name "$(printf '%02000d' 0)"
long_name "$(printf '\\u0001%.0s' {1..240})"

# At the end all is done, and no more: whatever form the weights have on either side.
ends() { # arguments of a command
    "$program" "$@" -q --progress-fd 9 9>lines >out 2>err </dev/null || fail "$1 failed: $(cat err)"
    local counts='"done":([0-9]+),"total":([0-9]+),'
    [[ $(tail -n 1 lines) =~ $counts && ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" ]] ||
        fail "$*: $(tail -n 1 lines)"
}
mkdir model && weight model/model.safetensors model.layers.0.mlp 256
echo '{}' >model/config.json
ends convert model -o int4 --to w4a16-ct --zstd
ends convert model -o int4 --to w4a16-ct --zstd # complete already
ends convert int4 -o marlin --to w4a16-marlin
ends verify marlin
ends verify marlin --against int4
ends unpack marlin -o back
ends unpack marlin -o back
ends unpack marlin -o again --to w4a16-ct
ends diff int4 marlin
ends diff marlin model
ends diff model marlin

# Whoever does not read is not waited for, but at the end for a second.
mkfifo full
exec 8<>full
head -c 65536 /dev/zero >&8
for signal in TERM INT; do
    "${command[@]}" --progress-fd 8 >out 2>err </dev/null &
    sleep 0.3
    kill -$signal $!
    for _ in {1..50}; do
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL $! 2>/dev/null && fail "SIG$signal does not end it while nobody reads"
    wait $! 2>/dev/null
done
timeout -s KILL 20 "$program" verify marlin --progress-fd 8 >out 2>err ||
    fail "nobody reads: $(cat err)"
exec 8>&-

# On a pipe there is a line each ten seconds; a stopped process is as good as a slow one.
slow() {
    "${command[@]}" >out 2>err </dev/null &
    sleep 0.3
    kill -STOP $!
    sleep 10.5
    kill -CONT $!
    wait $! || fail "convert failed: $(cat err)"
}
slow
grep -qE '^tilepack: convert  .* / 134 MB +[0-9]+%  .*ETA .*down_proj' err ||
    fail "no line after ten seconds: $(cat err)"
[[ $(wc -l <err) == 1 ]] || fail "not one line: $(cat err)"
"$program" convert slow.safetensors --to fp8-deepseek --discard --progress half >out 2>err
grep -q "is not one of auto bar plain none" err || fail "--progress half: $(cat err)"

# What an interrupted run did is said, and counts as done.
mkdir two && mv slow.safetensors two/model-00001-of-00002.safetensors
name() { sed "s/layers.0/layers.1/" two/model-00001-of-00002.safetensors; }
name >two/model-00002-of-00002.safetensors
printf '{"weight_map":{"layers.0.down_proj.weight":"model-00001-of-00002.safetensors",%s' \
    '"layers.1.down_proj.weight":"model-00002-of-00002.safetensors"}}' \
    >two/model.safetensors.index.json
both=("$program" convert two -o made --to fp8-deepseek --device cpu --jobs 1 --shard-size 70M)
"${both[@]}" >out 2>err &
for _ in {1..600}; do
    grep -q '^model-' made.partial/.tilepack-journal 2>/dev/null && break
    sleep 0.02
done
kill -KILL $! 2>/dev/null
wait $! 2>/dev/null
if [[ -e made ]]; then
    echo 'skipped: the run was over before it could be killed'
else
    "${both[@]}" --progress bar >out 2>err || fail "the second run failed: $(cat err)"
    grep -q 'going on from an interrupted run: 1 of 2 shards are there (134 MB of the source)' err ||
        fail "nothing about what is reused: $(tr '\r' '\n' <err)"
    grep -q $'\r.*%' err || fail '--progress bar draws no bar on a pipe'
    first=$(tr '\r' '\n' <err | grep -oE "[0-9]+%" | tail -1)
    [[ ${first%\%} -ge 50 ]] || fail "the bar ends at $first"
fi

# Room is looked for before anything is written.
rm -rf made made.partial
big=$((1 << 42))
header="{\"l.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[2097152,1048576],\
\"data_offsets\":[0,$big]}}"
while ((${#header} % 8)); do header+=' '; done
# shellcheck disable=SC2059
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >big.safetensors
free=$(($(stat -f -c '%a * %S' .)))
if truncate -s $((8 + ${#header} + big)) big.safetensors 2>/dev/null && ((free < big / 2)); then
    "$program" convert big.safetensors -o made --to fp8-deepseek --device cpu >out 2>err
    [[ $? == 5 ]] || fail "no room: status, $(cat err)"
    grep -q 'the output takes 219[0-9]* MB, but only [0-9]* MB are free there' err ||
        fail "no room: $(cat err)"
else
    echo 'skipped: no sparse file of 4 TB, or room for all of it'
fi
cd "$work" || exit 1
mv two/model-00001-of-00002.safetensors slow.safetensors

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
