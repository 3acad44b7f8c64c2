#!/bin/bash
# The command line itself: help, version, refusals with their exact text, exit
# statuses, and what goes to which stream. Usage: usage.sh [PROGRAM]
set -u
program=$(realpath "${1:-${TILEPACK:-build/tilepack}}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0 checked=0
fail() {
    failed=1
    printf 'FAIL usage: %s\n' "$1"
}

# run ARGUMENTS: sets status, out, err
run() {
    "$program" "$@" >out 2>err </dev/null
    status=$?
    out=$(cat out) err=$(cat err)
    checked=$((checked + 1))
}

# refuses WHAT HINT ARGUMENTS: status 2, exactly this on stderr, nothing on stdout
refuses() {
    local wanted="$1"$'\n'"  hint: $2"
    shift 2
    run "$@"
    [[ $status == 2 ]] || fail "tilepack $*: status $status"
    [[ $err == "$wanted" ]] || fail "tilepack $*:
  wanted: $wanted
  got:    $err"
    [[ -z $out ]] || fail "tilepack $*: prints on stdout: $out"
}

run
[[ $status == 2 && -z $out && $err == "tilepack: no command is given"*"Start here:"*"  verify "* ]] ||
    fail "without a command: status $status, $err"
refuses "tilepack: unknown command 'convrt' (did you mean 'convert'?)" \
    "'tilepack --help' lists the commands" convrt
refuses "tilepack: unknown command 'quantize' (did you mean 'convert'?)" \
    "'tilepack --help' lists the commands" quantize model
refuses "tilepack: unknown command 'serve'" \
    'an engine serves what convert writes, and convert prints the command for it' serve packed
refuses "tilepack convert: unknown option '--format' (did you mean '--to'?)" \
    "'tilepack convert --help' lists what it takes" convert SRC --format awq
refuses "tilepack convert: unknown option '--group-size' (did you mean '--set'?)" \
    "--set group=N; 'tilepack formats FORMAT' lists what may be set" convert SRC --group-size 128
refuses "tilepack convert: unexpected argument 'packed'" \
    'the output is named by an option: -o packed' convert SRC packed --to awq
refuses "tilepack: option '--quiet' before the command" \
    'options follow the command: tilepack COMMAND --quiet' --quiet convert
refuses "tilepack convert: unknown option '--foo' (did you mean '--force'?)" \
    "'tilepack convert --help' lists what it takes" convert SRC --foo
refuses "tilepack dump: unknown option '--shard-size' (it belongs to convert, plan, unpack)" \
    "'tilepack dump --help' lists what it takes" dump PATH --shard-size 5GB
refuses 'tilepack convert: a single file is not divided: it has no --shard-size' \
    'name a directory with -o' \
    convert in.safetensors -o out.safetensors --to mxfp8-ct --shard-size 1MB
refuses 'tilepack unpack: a single file is not divided: it has no --shard-size' \
    'name a directory with -o' unpack in.safetensors -o out.safetensors --shard-size 1MB
refuses 'tilepack convert: no format is given' \
    "--to FORMAT or --recipe FILE; 'tilepack formats' lists the formats" convert SRC -o DST
refuses 'tilepack convert: no output is given' \
    '-o DST names what to write; --dry-run shows the plan without it' convert SRC --to w4a8-ct
refuses "tilepack convert: --shard-size '5X': it is not a size such as 5GB or 5G (5 * 1000^3), or \
512MiB (512 * 1024^2)" "'tilepack convert --help' lists what it takes" \
    convert SRC -o DST --to w4a8-ct --shard-size 5X
refuses "tilepack convert: --to is given twice: 'w4a8-ct' and 'fp8-ct'" \
    "'tilepack convert --help' lists what it takes" convert SRC -o DST --to w4a8-ct --to=fp8-ct
refuses "tilepack convert: '-' would be standard output, but an output is not written in the order \
of its bytes" "name a file or directory; one that is called '-' is ./-" \
    convert SRC -o - --to w4a8-ct
refuses "tilepack verify: '-' would be standard input, but checkpoints are not read in the order of \
their bytes" "name a file or directory; one that is called '-' is ./-" verify -
refuses 'tilepack diff: B is missing' "'tilepack diff --help' lists what it takes" diff a
refuses "tilepack verify: unexpected argument 'b'" \
    "'tilepack verify --help' lists what it takes" verify a b
refuses "tilepack convert: unknown option '--a\\x1B[31m'" \
    "'tilepack convert --help' lists what it takes" convert --a$'\033[31m'
TILEPACK_JOBS=0 refuses "tilepack verify: TILEPACK_JOBS '0': it is not a number from 1 to 1024" \
    "'tilepack verify --help' lists what it takes" verify a
TILEPACK_DISABLE=avx2,avx-512 refuses \
    "tilepack verify: TILEPACK_DISABLE 'avx-512': it is not one of avx2, avx512, neon, cuda" \
    "'tilepack verify --help' lists what it takes" verify a

# A refusal under --json is one object on stdout as well.
run convert SRC --foo --json
[[ $(jq -cS '[.version, .error.code, .error.kind, .error.message, .error.hint]' out) == \
    '[1,2,"usage","unknown option '\''--foo'\'' (did you mean '\''--force'\''?)","'\'"tilepack \
convert --help' lists what it takes\"]" ]] || fail "--json: $out"

# Help: to stdout, status 0, in 80 columns, the same by both ways.
run --help
[[ $status == 0 && -z $err ]] || fail "--help: status $status, $err"
top=$out
commands=$(sed -n '/^Options:/q; s/^  \([a-z]*\) .*/\1/p' out)
[[ -n $commands ]] || fail 'no commands in --help'
run help
[[ $out == "$top" ]] || fail 'help and --help differ'
run -h
[[ $out == "$top" ]] || fail '-h and --help differ'
for command in $commands; do
    run "$command" --help
    [[ $status == 0 && -z $err ]] || fail "$command --help: status $status, $err"
    by_option=$out
    grep -q '^Examples:' out || fail "$command --help has no examples"
    awk 'length > 80 {exit 1}' out || fail "$command --help is wider than 80 columns"
    run help "$command"
    [[ $out == "$by_option" ]] || fail "help $command and $command --help differ"
    run "$command" -h
    [[ $out == "$by_option" ]] || fail "$command -h and $command --help differ"
done
# Plan has convert's options, which come in groups.
run plan --help
[[ $out == *"Options: those of 'tilepack convert --help'."* && $out != *--shard-size* ]] ||
    fail "plan --help: $out"
for title in 'Format and engine' 'Which weights' Quality Output 'Machine and messages'; do
    "$program" convert --help | grep -qx "$title:" || fail "convert --help has no '$title'"
done
run convert --help
cat >wanted <<'TEXT'
Usage: tilepack convert SRC -o DST --to FORMAT [options]

Quantize and repack a checkpoint into kernel-ready bytes.
SRC is a .safetensors file or a Hugging Face directory, and so is DST. The same
command resumes an interrupted run.

Format and engine:
      --to FORMAT         format to write; 'tilepack formats' lists them
      --set KEY=VALUE     choose a parameter of the format; repeatable
TEXT
head -n 9 out | diff -u wanted - || fail 'convert --help begins otherwise'

# Version: name, number, commit; quickly (the best of 20, shell included).
run --version
[[ $out =~ ^'tilepack '[0-9]+\.[0-9]+\.[0-9]+' ('([0-9a-f]{12}|unknown)')'$ ]] ||
    fail "--version: $out"
best=1000000 limit=5000
[[ ${BUILD:-} != */asan ]] || limit=100000 # the sanitizers' own start
for _ in {1..20}; do
    begin=${EPOCHREALTIME/[.,]/}
    "$program" --version >/dev/null
    end=${EPOCHREALTIME/[.,]/}
    ((end - begin < best)) && best=$((end - begin))
done
((best < limit)) || fail "--version takes $best us"

# A result that cannot be written is an error.
if [[ -w /dev/full ]]; then
    "$program" --help >/dev/full 2>err
    status=$?
    [[ $status == 5 && $(head -n 1 err) == \
        'tilepack: error: standard output cannot be written: No space left on device' ]] ||
        fail "/dev/full: status $status, $(cat err)"
fi
(ulimit -f 1 && exec "$program" formats --json >long) 2>err
status=$?
[[ $status == 5 && $(head -n 1 err) == \
    'tilepack: error: standard output cannot be written: File too large' ]] ||
    fail "a limit of file sizes: status $status, $(cat err)"

# Without a driver that is said, in words of our own; a build without CUDA says that instead.
if [[ ! -e /proc/driver/nvidia ]]; then
    run bench --device cuda
    grep -qxE 'tilepack: error: .*(this build has no CUDA|no NVIDIA driver is installed).*' err ||
        fail "--device cuda without a driver: $(cat err)"
fi

((failed)) || echo "usage: $checked command lines right"
exit "$failed"
