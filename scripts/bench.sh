#!/bin/sh
# bench.sh [BUILD] [options of bench_e2e.py]
#
# The benchmark of `make bench`: conversions of a checkpoint of 1.48 GB against `cp` of the
# same files, kernels against memcpy, and the size of the input. Makes the checkpoint once,
# under BUILD/bench, and leaves there bench.md, bench.json and stages.svg (conversions),
# kernels.md and scale.md. Needs 5 GB of room; measure on an idle machine.
#
# Environment: BENCH, `long` for inputs up to 60 GB (they take no room);
# ROUNDS, of each measurement.
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
sizes=1.5,15
[ "${BENCH:-}" = long ] && sizes=1.5,15,60
"$python" scripts/bench_e2e.py --program "$build/tilepack" --dir "$build/bench" "$@"
"$python" scripts/bench_kernels.py --program "$build/tilepack" --dir "$build/bench"
"$python" scripts/bench_scale.py --program "$build/tilepack" --dir "$build/bench" --sizes "$sizes"
echo "$build/bench: bench.md, kernels.md, scale.md, stages.svg"
