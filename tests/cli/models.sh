#!/bin/sh
# What is known of models: the families of tests/models (families.py), `tilepack models`, and a
# user's own file, which is checked as strictly as those that there are.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/facts.sh
. "$TESTS/lib/facts.sh"
root=$TESTS/..

shows_files models model
check 'docs/models.md' "$PYTHON" "$root/scripts/models_md.py" "$TILEPACK" --check \
    "$root/docs/models.md"

# A file of the user's own: what it keeps is kept, also when the result is proved.
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/src" --layers 1 --hidden 256 --inter 256 \
    --heads 2 --kv-heads 2 --head-dim 128 --vocab 64 --quiet || exit 1
cat >"$work/own.json" <<'TEXT'
{"name": "own", "title": "mine", "source": ["me"], "model_type": ["mine"],
 "keep": [{"modules": ["self_attn.*"], "why": "I say so"}]}
TEXT
answers 'its reason is given' 0 'I say so' \
    "$TILEPACK" plan "$work/src" --to mxfp8-ct --model-file "$work/own.json"
check 'it converts' "$TILEPACK" convert "$work/src" -o "$work/done" --to mxfp8-ct -q \
    --model-file "$work/own.json"
check 'its modules are listed' grep -q '"model.layers.0.self_attn.q_proj"' "$work/done/config.json"
check 'it is proved by what was recorded' \
    "$TILEPACK" verify "$work/done" --against "$work/src" -q
check 'a part has it' "$TILEPACK" convert "$work/src" -o "$work/parts" --to mxfp8-ct -q \
    --model-file "$work/own.json" --part 1/1
check 'the parts are merged by what was recorded' "$TILEPACK" merge "$work/parts" -q
check 'they are the same' cmp "$work/parts/config.json" "$work/done/config.json"
# What else looks at models takes the same options. A stack of which nothing tells the layout is
# refused until --stacks says it.
"$TILEPACK" compare "$work/src" --to mxfp8-ct --json >"$work/without"
"$TILEPACK" compare "$work/src" --to mxfp8-ct --json --model-file "$work/own.json" >"$work/with"
check 'compare keeps what it keeps' "$PYTHON" -c '
import json, sys
more, less = (json.load(open(path))["formats"][0] for path in sys.argv[1:])
sys.exit(not (less["kept"] == more["kept"] + 4 and less["weights"] == more["weights"] - 4))' \
    "$work/without" "$work/with"
"$TILEPACK" schedule "$work/src" --m 1 --json >"$work/without" 2>"$work/err"
"$TILEPACK" schedule "$work/src" --m 1 --json --model-file "$work/own.json" >"$work/with" \
    2>"$work/err"
check 'schedule leaves that out' "$PYTHON" -c '
import json, sys
less, more = (sum(s["weights"] for s in json.load(open(path))["schedules"])
              for path in sys.argv[1:])
sys.exit((less, more) != (7, 3))' "$work/without" "$work/with"
fails 'a shape has no model' 2 'speak of a checkpoint' \
    "$TILEPACK" schedule --shape 128,128 --m 1 --model-file "$work/own.json"
refuse() { # what is wrong, sed command
    sed "$2" "$work/own.json" >"$work/bad.json"
    fails "$1" 3 "$1" "$TILEPACK" plan "$work/src" --to mxfp8-ct --model-file "$work/bad.json"
    check 'it names the file' grep -q bad.json "$work/err"
}
refuse '"titel" is an unknown key' 's/title/titel/'
refuse '"source" is missing' 's/"source": ."me".,//'
refuse 'keep[0]: "why" is missing' 's/, "why": "I say so"//'
refuse "keep[0]: \"modules\" holds something that is no module's name" 's/self_attn[.]/self_attn../'
refuse 'line 2, column' 's/}$/]/'
fails 'no file' 5 'nowhere.json' \
    "$TILEPACK" plan "$work/src" --to mxfp8-ct --model-file "$work/nowhere.json"

# config.json means what JSON makes of it: names with escapes, numbers in any spelling.
"$PYTHON" - "$TESTS/lib" "$work" <<'EOF' || exit 1
import os
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np
import stfile

alternating = np.ones((4, 256, 1024), np.float32)
alternating[:, :, 1::2] = -1
for name, config in (
        ("usual", '"model_type": "gpt_oss", "hidden_size": 256, "intermediate_size": 512'),
        ("type", r'"model_type": "gpt\u005foss", "hidden_size": 256, "intermediate_size": 512'),
        ("architecture", r'"architectures": ["Gpt\u004fssForCausalLM"], "hidden_size": 256, '
                         '"intermediate_size": 512'),
        ("long", '"architectures": [ "GptOssForCausalLM"' + ', "Another"' * 1000 + '], '
                 '"hidden_size": 256.' + "0" * 5000 + ', "intermediate_size": 512'),
        ("sizes", '"model_type": "gpt_oss", "hidden_size": 256.0, "intermediate_size": 5.12e2')):
    folder = os.path.join(sys.argv[2], "spelled-" + name)
    os.mkdir(folder)
    stfile.save(os.path.join(folder, "model.safetensors"), {
        "model.layers.0.mlp.experts.gate_up_proj": stfile.from_f32("BF16", alternating)})
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as f:
        f.write("{" + config + "}")
EOF
for spelled in usual type architecture long sizes; do
    "$TILEPACK" plan "$work/spelled-$spelled" --to mxfp8-ct 2>&1 |
        sed "s/spelled-$spelled/spelled/g" >"$work/spelled-$spelled.txt"
    check "$spelled: the same plan" cmp "$work/spelled-usual.txt" "$work/spelled-$spelled.txt"
done
check "which keeps interleaved rows" grep -q "interleaved" "$work/spelled-usual.txt"

for part in beside own_names families; do
    "$PYTHON" "$TESTS/models/$part.py" >"$work/$part" 2>&1
    grep -v '^ok ' "$work/$part" | sed '$d'
    more=$(sed -n '$s/ passed, [0-9]* failed$//p' "$work/$part")
    less=$(sed -n '$s/.* passed, \([0-9]*\) failed$/\1/p' "$work/$part")
    passed=$((passed + ${more:-0}))
    failed=$((failed + ${less:-1}))
done
finish
