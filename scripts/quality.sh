#!/bin/sh
# quality.sh [BUILD] [options of quality/main.py]
#
# The benchmark of `make quality`: what each format and each search costs in signal to
# noise, perplexity and divergence, on two small models that PyPI packages hold, beside other
# quantizers. Leaves quality.md, choose.md and quality.json under BUILD/quality and copies the
# first to docs/quality.md. Takes an hour or two on two cores, 4 GB of memory and of room, and
# 6 GB more for torch, which some of the other quantizers need.
#
# BUILD/quality/rows.json keeps what was measured: a run that was interrupted goes on, and a new
# format costs its own minutes alone. After a change of bytes, measure the rows of tilepack
# again: `sh scripts/quality.sh build --again ^tilepack`.
#
# Environment: PEERS, `no` to leave the other quantizers and the check against transformers
# out; ROUNDS, of each conversion that is timed.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -gt 0 ] && shift
sh scripts/deps.sh test
python=$(sh scripts/venv.sh "$build" quality)
for model in minilm smollm2; do
    sh scripts/model.sh "$build" "$model"
done
others=''
for set in llama torch; do
    [ "${PEERS:-}" = no ] && continue
    if interpreter=$(sh scripts/venv.sh "$build" "$set"); then
        others="$others --$set $interpreter"
    else
        echo "quality.sh: the set '$set' cannot be installed; the page is written without it"
    fi
done
# One thread for each window of text is better than several for each product.
OPENBLAS_NUM_THREADS=1
PYTHONDONTWRITEBYTECODE=1
export OPENBLAS_NUM_THREADS PYTHONDONTWRITEBYTECODE
# shellcheck disable=SC2086 # options, in words
"$python" scripts/quality/main.py --program "$build/tilepack" --dir "$build/quality" \
    --models "$build/models" $others --page docs/quality.md "$@"
