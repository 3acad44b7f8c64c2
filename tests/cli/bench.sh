#!/bin/sh
# tilepack bench: which rows are measured, what is counted, and what is refused. Says
# nothing about how fast anything is. Also: the time per stage of a conversion, and the
# end-to-end benchmark on a small checkpoint.
set -u
program=${TILEPACK:-build/tilepack}
python=${PYTHON:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/tilepack-bench.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

ok() { # name, status
    if [ "$2" -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAIL bench: $1"
        [ -s "$work/err" ] && sed 's/^/    /' "$work/err"
    fi
    : >"$work/err"
}

bench() { # options; the result in $work/out
    "$program" bench --device cpu --jobs 2 --shape 1,256,512 "$@" >"$work/out" 2>"$work/err"
}

says() { # jq condition
    jq -e "$1" "$work/out" >/dev/null 2>"$work/err"
}

# The reference is always there, so this holds on any processor.
bench --format fp8-ct --json --verbose
ok 'runs' $?
says '.device == "cpu" and .threads == 2 and (.rows | length) >= 5'
ok 'device, threads, rows' $?
says '[.rows[] | select(.row == "ref" and .kind == "encode" and .dtype == "BF16")] | length == 1 and
      .[0].read_bytes == 256*512*2 and .[0].write_bytes == 256*512 + 2*4*2 and
      .[0].shape == [1,256,512]'
ok 'bytes in and out, scales included' $?
says '[.rows[] | .seconds > 0 and .ceiling_seconds > 0 and .seconds_min <= .seconds and
      .seconds <= .seconds_max and .repeats >= 3 and
      (.gb_per_s * .seconds * 1e9 / (.read_bytes + .write_bytes) - 1 | fabs) < 1e-6 and
      (.fraction * .ceiling_gb_per_s / .gb_per_s - 1 | fabs) < 1e-6] | all'
ok 'rates and fractions follow from the times' $?
bench --format mxfp8-blocked --json --verbose
says '[.rows[] | select(.kind == "repack") | .source] | index("mxfp8-ct") != null'
ok 'repacking is measured' $?
bench --format w4a8-ct --format fp8-ct --verbose && grep -q '^BF16 -> w4a8-ct ' "$work/out" &&
    grep -q '^fp8-ct -> F32 ' "$work/out" && ! grep -q 'mxfp8' "$work/out"
ok 'text, and only what was asked for' $?
bench --format mxfp8-torchao3d --set scale=floor --verbose
ok 'a parameter' $?

TILEPACK_DISABLE=avx512,avx2,neon bench --format fp8-ct
[ $? -eq 2 ] && grep -q -- '--verbose' "$work/err"
ok 'no fast row: says so' $?
bench --format fp8-ct --shape 8
[ $? -eq 2 ] && grep -q "'8'" "$work/err"
ok 'a malformed shape' $?
"$program" bench --device cpu --format w4a8-cutlass --shape 1,17,128 >"$work/out" 2>"$work/err"
ok 'a shape that the format refuses' "$([ $? -eq 2 ]; echo $?)"
bench --format gptq
[ $? -eq 2 ] && grep -q 'gptq' "$work/err"
ok 'a format that is only read' $?
bench --format fp8-ct --set nothing=here
[ $? -eq 2 ] && grep -q 'nothing=here' "$work/err"
ok 'a parameter of another format' $?
"$program" bench --device cuda:0,1 >"$work/out" 2>"$work/err"
status=$?
[ $status -eq 2 ] || [ $status -eq 6 ]
ok 'several devices' $?
TILEPACK_DISABLE=cuda "$program" bench --device cuda >"$work/out" 2>"$work/err"
ok 'no GPU' "$([ $? -eq 6 ]; echo $?)"

# Stages of a conversion.
mkdir "$work/bench"
"$python" "$root/samples/gen_checkpoint.py" "$work/bench/src" --preset tiny-llama --quiet
"$program" convert "$work/bench/src" -o "$work/packed" --to mxfp8-ct --verbose --jobs 2 \
    >"$work/out" 2>"$work/err"
grep -q 'seconds of 2 workers: read [0-9.]*, kernel [0-9.]*, hash [0-9.]*, write [0-9.]*, sync' \
    "$work/err"
ok 'convert --verbose says where the time went' $?
"$python" "$root/scripts/bench_e2e.py" --program "$program" --dir "$work/bench" --rounds 1 \
    --jobs 2 --format fp8-ct --format w4a8-cutlass >"$work/out" 2>"$work/err"
ok 'bench_e2e.py runs' $?
says_file() { jq -e "$1" "$work/bench/bench.json" >/dev/null 2>"$work/err"; }
says_file '([.formats[] | .["one thread"] > 0 and .discard > 0 and .["write alone"] > 0] | all)'
ok 'one thread, nothing written, stages alone' $?
says_file '(.formats | keys) == ["fp8-ct","w4a8-cutlass"] and .cp > 0 and
    ([.formats[] | .convert > 0 and .verify > 0 and .memory > 1000000 and .bytes > 100000] | all)'
ok 'bench.json' $?
"$python" -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$work/bench/stages.svg" \
    2>"$work/err" && grep -q 'w4a8-cutlass: kernel' "$work/bench/stages.svg" &&
    grep -q '^| .fp8-ct. | 0' "$work/bench/bench.md"
ok 'picture and table' $?
[ "$(find "$work/bench" -mindepth 1 -maxdepth 1 | sort | tr '\n' ' ' | sed "s,$work/bench/,,g")" \
    = 'bench.json bench.md src stages.svg ' ]
ok 'leaves nothing else' $?

# Kernels against memcpy, and the size of the input.
mkdir "$work/more"
"$python" "$root/scripts/bench_kernels.py" --program "$program" --dir "$work/more" --rounds 1 \
    --jobs 2 --shape 1,256,512 --format fp8-deepseek >"$work/out" 2>"$work/err"
ok 'bench_kernels.py runs' $?
jq -e '(.rows | length) <= 1 and ([.rows[] | .to == "fp8-deepseek" and .fraction > 0 and
    .scaling > 0 and .ceiling_scaling > 0] | all) and
    [.reference[] | .row] == ["ref"] and .reference[0].scaling > 0' "$work/more/kernels.json" \
    >/dev/null 2>"$work/err" && grep -q '^| BF16 to .fp8-deepseek., reference' "$work/more/kernels.md"
ok 'kernels.json and the table' $?
"$python" "$root/scripts/bench_scale.py" --program "$program" --dir "$work/more" --rounds 1 \
    --jobs 2 --sizes 1.5 --format fp8-deepseek >"$work/out" 2>"$work/err"
ok 'bench_scale.py runs' $?
jq -e 'length == 1 and .[0].bytes > 1400000000 and .[0].cpu > 0 and .[0].peak > 1000000 and
    .[0].peak < 536870912' "$work/more/scale.json" >/dev/null 2>"$work/err"
ok 'scale.json' $?
[ ! -e "$work/more/sparse" ]
ok 'no sparse files are left' $?

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
