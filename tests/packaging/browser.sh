#!/bin/sh
# The pages in a real browser, without a network: `compare --html` draws, and the page of
# `dump --html` says of the cell under the pointer what the cell is, for every cell.
# Chromium of the distribution, headless; CHROMIUM names another one.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
CHROMIUM=${CHROMIUM:-chromium}
export CHROMIUM
sh "$root/scripts/deps.sh" browser || exit 1
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/tiny" --preset tiny-mixtral >/dev/null || exit 1
cd "$work" || exit 1

# The page as the browser has it when its scripts have run; what it complains of to stderr.
shown() { # page
    timeout 120 "$CHROMIUM" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir="$work/profile" \
        --enable-logging=stderr --virtual-time-budget=5000 --dump-dom "file://$work/$1"
}
quiet() { ! grep -E 'CONSOLE.*(Error|Refused|Failed)' "$1"; }

check 'the page of compare' "$TILEPACK" compare tiny --html compare.html
shown compare.html >compare.dom 2>compare.log
cat >boxes.js <<'EOF'
<script>
const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect();
const boxes = [...svg.querySelectorAll("text.name")].map(t => t.getBoundingClientRect());
const outside = boxes.filter(b => b.left < frame.left || b.right > frame.right ||
                                  b.top < frame.top || b.bottom > frame.bottom).length;
const covered = boxes.filter((a, i) => boxes.some((b, j) => j > i && a.top + 3 < b.bottom &&
                                                  b.top + 3 < a.bottom)).length;
document.body.append(`labels ${boxes.length}, outside ${outside}, covered ${covered}.`);
</script>
EOF
cat compare.html boxes.js >boxes.html # behind the page's end, where a browser still takes it
shown boxes.html >boxes.dom 2>/dev/null
check 'every label of the picture is inside of it, and none covers another' \
    grep -qE 'labels [1-9][0-9]*, outside 0, covered 0\.' boxes.dom
check 'and no complaint' quiet compare.log

for format in w4a8-cutlass nvfp4-blocked fp8-ct; do
    "$TILEPACK" convert tiny -o $format --to $format --quiet || exit 1
    check "$format is drawn" "$TILEPACK" dump $format layers.0.self_attn.k_proj --html $format.html
    check 'in a window of 1280 pixels' test \
        "$(sed -n 's/^<svg.* width="\([0-9]*\)".*/\1/p; s/.*<svg.* width="\([0-9]*\)".*/\1/p' $format.html | head -n 1)" -lt 1232
    "$PYTHON" "$TESTS/bytes/picture.py" --probe $format.html >probe.html || exit 1
    shown probe.html >dom 2>log
    check 'without a complaint' quiet log
    check "every cell of $format is explained" "$PYTHON" "$TESTS/bytes/picture.py" --said dom \
        "$(grep -c 'class="cell"' $format.html)"
done
finish
