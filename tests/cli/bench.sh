#!/bin/sh
# tilepack bench: which rows are measured, what is counted, and what is refused. Says
# nothing about how fast anything is. Also: the time per stage of a conversion, and the
# scripts of `make bench` on small checkpoints.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
scripts=$TESTS/../scripts
result=$work/result

bench() { "$TILEPACK" bench --device cpu --jobs 2 --shape 1,256,512 "$@"; }
bench_to() { bench "$@" >"$result"; }
says() { # name, jq condition of the result
    check "$1" jq -e "$2" "$result"
}
listed() { grep -q "$1" "$result"; }

# The reference is always there, so this holds on any processor.
check 'runs' bench_to --format fp8-ct --json --verbose
says 'device, threads, rows' '.device == "cpu" and .threads == 2 and (.rows | length) >= 5'
says 'bytes in and out, scales included' \
    '[.rows[] | select(.row == "ref" and .kind == "encode" and .dtype == "BF16")] | length == 1 and
     .[0].read_bytes == 256*512*2 and .[0].write_bytes == 256*512 + 2*4*2 and
     .[0].shape == [1,256,512]'
says 'rates and fractions follow from the times' \
    '[.rows[] | .seconds > 0 and .ceiling_seconds > 0 and .seconds_min <= .seconds and
      .seconds <= .seconds_max and .repeats >= 3 and
      (.gb_per_s * .seconds * 1e9 / (.read_bytes + .write_bytes) - 1 | fabs) < 1e-6 and
      (.fraction * .ceiling_gb_per_s / .gb_per_s - 1 | fabs) < 1e-6] | all'
check 'runs for a format with tiled scales' bench_to --format mxfp8-blocked --json --verbose
says 'repacking is measured' \
    '[.rows[] | select(.kind == "repack") | .source] | index("mxfp8-ct") != null'
check 'text' bench_to --format w4a8-ct --format fp8-ct --verbose
check 'encoding is listed' listed '^BF16 -> w4a8-ct '
check 'decoding is listed' listed '^fp8-ct -> F32 '
check 'only what was asked for' test "$(grep -c mxfp8 "$result")" = 0
check 'runs with a search' bench_to --format nvfp4-ct --format fp8-ct --search mse --json --verbose
says 'conversions that search are measured, and those alone' \
    '(.rows | length) >= 3 and ([.rows[] | .kind == "encode" and .format == "nvfp4-ct" and
      .search == "mse" and .importance == "none"] | all)'
says 'how much slower they are follows from the times' \
    '[.rows[] | .plain_seconds > 0 and (.slower * .plain_seconds / .seconds - 1 | fabs) < 1e-6] | all'
check 'without one nothing is compared' bench_to --format nvfp4-ct --json
says 'no search is named' '[.rows[] | has("search") or has("slower")] | any | not'
check 'a search as text' bench_to --format w4a8-ct --search w4a8 --verbose
check 'its name and the column' test "$(grep -cE '^BF16 -> w4a8-ct \(w4a8\) |  slower$' "$result")" -ge 2
fails 'a search that no format has' 2 'no kernel does this search' bench --format nvfp4-ct --search w4a8
check 'a parameter' bench --format mxfp8-torchao3d --set scale=floor --verbose

fails 'no fast row: says so' 2 --verbose \
    env TILEPACK_DISABLE=avx512,avx2,neon "$TILEPACK" bench --device cpu --format fp8-ct
fails 'a malformed shape' 2 "'8'" bench --format fp8-ct --shape 8
check 'a shape that formats which it is repacked from refuse' \
    "$TILEPACK" bench --device cpu --jobs 1 --format w4a8-cutlass --shape 1,128,128
fails 'a shape that the format refuses' 2 'no fast kernel' \
    "$TILEPACK" bench --device cpu --format w4a8-cutlass --shape 1,17,128
fails 'a format that is only read' 2 ct-int4 bench --format ct-int4
fails 'a parameter of another format' 2 nothing=here bench --format fp8-ct --set nothing=here
"$TILEPACK" bench --device cuda:0,1 >"$work/out" 2>&1
status=$?
check 'several devices' test $status -eq 2 -o $status -eq 6
fails 'no GPU' 6 cuda env TILEPACK_DISABLE=cuda "$TILEPACK" bench --device cuda

# The scripts.
mkdir "$work/bench"
script() { # name, options ...
    name=$1
    shift
    "$PYTHON" "$scripts/$name.py" --program "$TILEPACK" --dir "$work/bench" "$@"
}
made() { result=$work/bench/$1; }
in_table() { grep -q "$2" "$work/bench/$1.md"; }
is_xml() { "$PYTHON" -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$1"; }

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/bench/src" --preset tiny-llama --quiet
answers 'convert --verbose says where the time went' 0 'seconds of 2 workers: read' \
    "$TILEPACK" convert "$work/bench/src" -o "$work/packed" --to mxfp8-ct --verbose --jobs 2
check 'bench_e2e.py runs' script bench_e2e --rounds 1 --jobs 2 --format fp8-ct --format w4a8-cutlass
made bench.json
says 'conversions: every time' '(.formats | keys) == ["fp8-ct","w4a8-cutlass"] and .cp > 0 and
    ([.formats[] | .convert > 0 and .verify > 0 and .memory > 1000000 and .bytes > 100000 and
      .["read alone"] > 0 and .["write alone"] > 0] | all)'
check 'conversions: the table' in_table bench '^| .fp8-ct. | 0'
check 'conversions: the picture' is_xml "$work/bench/stages.svg"
check 'conversions: stages in the picture' grep -q 'w4a8-cutlass: kernel' "$work/bench/stages.svg"

check 'bench_threads.py runs' script bench_threads --rounds 1 --format fp8-ct
made threads.json
says 'processors: every time' '.formats["fp8-ct"] | [.written, .discarded] |
    [.[] | .one > 0 and .many > 0 and .busy > 0 and .more_work > 0 and
     (.reached * .loop_scaling / .scaling - 1 | fabs) < 1e-6 and
     (.scaling * .many / .one - 1 | fabs) < 1e-6] | all'
check 'processors: the table' in_table threads '^| .fp8-ct. | 0'

check 'bench_kernels.py runs' script bench_kernels --rounds 1 --jobs 2 --shape 1,256,512 \
    --format fp8-deepseek
made kernels.json
says 'kernels: shares and scaling' '(.rows | length) <= 1 and
    ([.rows[] | .to == "fp8-deepseek" and ([.slot, .memory][] | .fraction > 0 and
      .scaling > 0 and .ceiling_scaling > 0)] | all) and
    [.reference[] | .row] == ["ref"] and .reference[0].scaling > 0'
check 'kernels: the table' in_table kernels '^| bf16 to .fp8-deepseek., reference'

check 'bench_scale.py runs' script bench_scale --rounds 1 --jobs 2 --sizes 1.5 --format fp8-deepseek
made scale.json
says 'size: time and memory' 'length == 1 and .[0].bytes > 1400000000 and .[0].cpu > 0 and
    .[0].peak > 1000000 and .[0].peak < 536870912'

# Peers are not installed for a test: it must say which it looked for, or run.
script bench_peers --rounds 1 --job Q4_0 >"$work/found" 2>&1
check 'bench_peers.py says what it found' grep -q '^llama-quantize: ' "$work/found"
rm -f "$work/bench"/peers.*

check 'nothing else is left' test "$(cd "$work/bench" && echo *)" = 'bench.json bench.md '\
'kernels.json kernels.md scale.json scale.md src stages.svg threads.json threads.md'
finish
