#!/bin/sh
# bench.sh [BUILD] [options of bench_e2e.py]
#
# The benchmark of `make bench`: conversions of a checkpoint of 1.48 GB against `cp` of the
# same files, one processor against all, kernels against memcpy, and the size of the input.
# Makes the checkpoint once, under BUILD/bench, and leaves there bench.md and stages.svg
# (conversions), threads.md, kernels.md and scale.md, each with its .json. Needs 5 GB of
# room; measure on an idle machine. Other programs that do the same job are measured by
# bench_peers.py, where they are installed.
#
# Environment: BENCH, `long` for inputs up to 60 GB (holes, which take no room) and of
# random values up to 15 GB (where 35 GB are free), and fp8 scales alone; ROUNDS, of each
# measurement.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -gt 0 ] && shift
sh scripts/deps.sh test
python=$(sh scripts/venv.sh "$build")
mkdir -p "$build/bench"
if [ ! -e "$build/bench/src/config.json" ]; then
    rm -rf "$build/bench/src.new"
    "$python" samples/gen_checkpoint.py "$build/bench/src.new" --preset bench
    mv "$build/bench/src.new" "$build/bench/src"
fi
sizes=1.5,15 random='' long=''
[ "${BENCH:-}" = long ] && sizes=1.5,15,60 random=1.5,15 long=--long
script() { # name, options ...
    name=$1
    shift
    "$python" "scripts/$name.py" --program "$build/tilepack" --dir "$build/bench" "$@"
}
script bench_e2e "$@"
script bench_threads
# shellcheck disable=SC2086 # nothing, or one option
script bench_kernels $long
script bench_scale --sizes "$sizes" --random "$random"
echo "$build/bench: bench.md, threads.md, kernels.md, scale.md, stages.svg"
