#!/bin/sh
# `compare`: sizes are those of conversions, the errors of --full those of verify --against,
# and a sample's within 0.2 dB of them (bytes/compare.py); text, page, refusals; a model of 137
# GB in seconds.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/tiny" --preset tiny-mixtral >/dev/null || exit 1
cd "$work" || exit 1
check 'figures' "$PYTHON" "$TESTS/bytes/compare.py" tiny

"$TILEPACK" compare tiny --to fp8-ct --to w4a16-ct >text 2>err
check 'no word on stderr' test ! -s err
check 'the smaller one first' test "$(sed -n '2,3s/ .*//p' text | tr '\n' ' ')" = 'w4a16-ct fp8-ct '
check 'the worst weights of both' test "$(sed -n '/the worst weights/,/^$/p' text |
    grep -c '^w4a16-ct  *model\.')" = 3
check 'it says that it is a sample' grep -q -- '--full measures all values' text
"$TILEPACK" compare tiny --to fp8-ct --full >text
check 'and when it is none' test "$(grep -c -- '--full' text)" = 0
# shellcheck disable=SC2016 # expanded there
check 'any number of jobs' sh -c '
    for j in 1 5; do
        "$TILEPACK" compare tiny --json -j $j | jq "del(.seconds)" >json.$j
    done
    cmp json.1 json.5'
"$TILEPACK" compare tiny --to nvfp4-trtllm --to nvfp4-ct --to nvfp4-cutlass-moe \
    --html bare.html >text
fails 'convert refuses' 4 'needs activation scales' "$TILEPACK" convert tiny --to nvfp4-trtllm -o no
check 'what is made with --weights-only alone is named' grep -qx \
    'only with --weights-only, as the source has no activation scales: .*nvfp4-trtllm.*' text
check 'and nothing else' test "$(grep -c 'only .*nvfp4-ct' text)" = 0
check 'on the page' test "$(grep -c 'only with --weights-only' bare.html)" = 2
check 'and in JSON' test "$("$TILEPACK" compare tiny --to nvfp4-trtllm --to nvfp4-ct --json |
    jq -c '[.formats[] | select(.weights_only) | .format]')" = '["nvfp4-trtllm"]'
check 'only what is included' test "$("$TILEPACK" compare tiny --to fp8-ct --json \
    --include 'o_proj' | jq '.formats[0].weights')" = 2
fails 'no such format' 2 "there is no format 'mxfp7' to convert to" "$TILEPACK" compare tiny --to mxfp7
fails 'no such source' 5 'nowhere' "$TILEPACK" compare nowhere

# The page: well-formed, without scripts or anything from elsewhere, all formats and names.
fails 'pages are called .html' 2 "hint: name it 'tiny.txt.html', say" "$TILEPACK" compare tiny --html tiny.txt
fails 'where none can be' 5 'gone/a.html: cannot be written' \
    "$TILEPACK" compare tiny --to fp8-ct --html gone/a.html
full() { (ulimit -f 8 && exec "$TILEPACK" compare tiny --html page.html); }
fails 'a page that must not grow' 5 'page.html: cannot be written: File too large' full
check 'and what to do' grep -q 'hint: raise the limit of file sizes' err
check 'leaves nothing' test -z "$(find . -name '*page.html*')"
check 'the page' "$TILEPACK" compare tiny --html page.html
check 'is what it should be' "$PYTHON" "$TESTS/bytes/compare.py" tiny --page page.html
check 'names are no markup' "$PYTHON" "$TESTS/bytes/compare.py" --markup
check 'values that are no numbers are counted' "$PYTHON" "$TESTS/bytes/compare.py" --nonfinite
check 'values without a global scale' "$PYTHON" "$TESTS/bytes/compare.py" --tiny

# A few large columns hide what happens to the others from the ratio, and not from this figure.
check 'runs that became zero' "$PYTHON" "$TESTS/bytes/compare.py" --outliers

# Rows are read, not the model: a sparse file of 137 GB.
check 'a large model in seconds' timeout 60 "$PYTHON" "$TESTS/bytes/compare.py" --large
finish
