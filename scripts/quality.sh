#!/bin/sh
# quality.sh [BUILD] [options of quality/main.py]
#
# The benchmark of `make quality`: what formats and searches cost in perplexity and divergence, on
# three small models that PyPI packages hold, beside other quantizers. Writes docs/quality.md, and
# choose.md under BUILD/quality. Takes two hours or more on two cores, 8 GB of memory, 6 GB of room
# for the environment and 4 for the models.
#
# BUILD/quality/MODEL/rows.json keeps what was measured: a run that was interrupted goes on, a run
# after that only writes the page, and a new format costs its own minutes alone. After a change of
# bytes, measure the rows of tilepack again: `sh scripts/quality.sh build --again ^tilepack`.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
[ $# -gt 0 ] && shift
sh scripts/deps.sh test
python=$(sh scripts/venv.sh "$build" quality)
for model in smollm2 gemma3 qwen2.5 news; do
    sh scripts/model.sh "$build" "$model"
done
PYTHONDONTWRITEBYTECODE=1 exec "$python" scripts/quality/main.py --program "$build/tilepack" \
    --dir "$build/quality" --models "$build/models" --page docs/quality.md "$@"
