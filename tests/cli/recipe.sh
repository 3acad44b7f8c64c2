#!/bin/sh
# `recipe`: errors against numpy, the choice against all assignments of a small model, budgets, what
# convert makes of it (recipe.py); threads; the page; refusals.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
check 'errors, choices and budgets' "$PYTHON" "$TESTS/cli/recipe.py" "$work/model"
cd "$work" || exit 1

some='--formats w4a16-ct,w8a16-ct,bf16'
# shellcheck disable=SC2086 # words
recipe() { "$TILEPACK" recipe model $some "$@"; }
for j in 1 2; do
    recipe --bits 6 --importance model/importance.safetensors -j $j -o $j.json >text.$j
done
check 'any number of threads' cmp 1.json 2.json
check 'says what it chose' grep -q '^1.json: [0-9.]* bits of 6 for each weight' text.1
check 'says how errors are weighed' grep -q 'by the file of importance, which has no gradients' text.1
recipe --bits 6 -o none.json --html page.html >text 2>err
check 'without importance it warns' grep -q "samples/moments.py and samples/gradients.py measure what counts" err
check 'and that they are not' grep -q 'without --importance all inputs count alike' text
check 'in the recipe, too' grep -q 'without --importance all inputs count alike' none.json
check 'the page is XML, without scripts' "$PYTHON" -c '
import sys, xml.etree.ElementTree as tree
text = open("page.html").read()
tree.fromstring(text.split("\n", 1)[1])
sys.exit("<script" in text or text.count("<rect") != 8 or "this recipe" not in text)'
check 'plan takes it' "$TILEPACK" plan model --recipe 1.json --engine vllm --gpu h100

fails 'a budget below the smallest' 4 \
    '4 bits for each weight are less than the smallest of the formats take, 4.12' recipe --bits 4 -o no.json
fails 'no format of that name' 2 "there is no format 'w4'" \
    "$TILEPACK" recipe model --bits 5 --formats w4,bf16 -o no.json
fails 'nothing to convert to' 2 'names nothing to convert to' \
    "$TILEPACK" recipe model --bits 16 --formats bf16 -o no.json
fails 'a format twice' 2 "names 'bf16' twice" \
    "$TILEPACK" recipe model --bits 16 --formats bf16,w4a16-ct,bf16 -o no.json
fails 'no budget' 2 'no budget is given' recipe -o no.json
fails 'no formats' 2 'no formats are given' "$TILEPACK" recipe model --bits 5 -o no.json
fails 'a budget that is no number' 2 'it is no number from 1 to 32' recipe --bits 5x -o no.json
fails 'no output' 2 'no output is given' recipe --bits 5
fails 'a recipe is called .json' 2 "hint: name it 'model.json', say" recipe --bits 5 -o model
fails 'importance of no weight' 3 'this importance belongs to no weight' \
    recipe --bits 6 --importance model/other.safetensors -o no.json
fails 'importance of some sets' 3 'the file has no importance of any of its weights' \
    recipe --bits 6 --importance model/part.safetensors -o no.json
fails 'gradients of some sets' 3 'or no gradient beside it as of others' \
    recipe --bits 6 --importance model/some.safetensors -o no.json
fails 'a format that the engine does not read' 4 'vLLM reads no weight in any of the formats' \
    "$TILEPACK" recipe model --bits 6 --formats w4a16-marlin,w8a16-marlin -o no.json
"$TILEPACK" convert model -o packed --to w8a16-ct --quiet || exit 1
fails 'a source that is quantized' 4 'it is quantized already (w8a16-ct)' \
    "$TILEPACK" recipe packed --bits 5 --formats w4a16-ct,w8a16-ct -o no.json
check 'nothing was written' test ! -e no.json
finish
