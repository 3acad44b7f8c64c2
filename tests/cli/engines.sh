#!/bin/sh
# Who reads what is written: `tilepack engines`, a user's own file, mistakes in one, and that no file of
# formats or models says it. The verdicts are engines.py.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/facts.sh
. "$TESTS/lib/facts.sh"
root=$TESTS/..

shows_files engines engine
check 'docs/engines.md' "$PYTHON" "$root/scripts/engines_md.py" "$TILEPACK" --check "$root/docs/engines.md"

# What readers do stands here alone; all formats, models and words that it names there are.
check 'no other file says who reads what' "$PYTHON" - "$root" <<'EOF'
import glob, json, sys
root = sys.argv[1]
def load(folder):
    return {f["name"]: f for f in (json.load(open(path)) for path in glob.glob(f"{root}/{folder}/*.json"))}
formats, models, engines = load("formats"), load("models"), load("engines")
titles = ("vLLM", "SGLang", "TensorRT", "transformers", "DeepGEMM", "FlashInfer", "torchao")
for name, fmt in formats.items():
    assert not {"loads_in", "serve", "requires", "snr_db", "merged"} & set(fmt), name
for name, model in models.items():
    assert not {"checked", "ran", "limits"} & set(model), name
    reasons = [keep["why"] for keep in model.get("keep", [])]
    reasons += [stack.get("kept", "") for stack in model.get("stacks", [])]
    assert not any(title in why for title in titles for why in reasons), (name, reasons)
def sms(gpus):
    return {sm for sm in (80, 86, 89, 90, 100, 103, 120, 121) for gpu in gpus
            if sm == int(gpu[2:].rstrip("+")) or (gpu.endswith("+") and sm > int(gpu[2:-1]))}
used = set()
for name, engine in engines.items():
    assert json.load(open(f"{root}/engines/{name}.json"))["name"] == name
    every = engine["reads"] + [rule for key in ("plain", "sizes", "families", "merged", "ran", "suggest")
                               for rule in engine.get(key, [])]
    for rule in every:
        assert set(rule.get("formats", [])) <= set(formats), (name, rule)
    for rule in every:
        assert set(rule.get("models", []) + rule.get("but", [])) <= set(models), (name, rule)
    for run in engine.get("ran", []):
        assert set(run["models"]) <= set(models), (name, run)
    used |= {fmt for row in engine["reads"] for fmt in row["formats"]}
    for advice in engine.get("suggest", []):
        for fmt in advice["formats"]:
            rows = [row["gpus"] for row in engine["reads"] if fmt in row["formats"]]
            assert sms(advice["gpus"]) <= set().union(*map(sms, rows)), (name, fmt)
    words = {(key, *rule.get("set", {}).items()) for rule in every for key in rule}
    for rule in every:
        for key, value in rule.get("set", {}).items():
            for fmt in rule["formats"]:
                param = next(p for p in formats[fmt]["params"] if p["key"] == key)
                assert value in [c["name"] for c in param["choices"]], (name, rule)
assert used == set(formats), set(formats) - used
# A word that one file alone uses is in the README with its reason.
files = {}
for name, engine in engines.items():
    keys = set(engine) | {key for value in engine.values() if isinstance(value, list)
                          for rule in value if isinstance(rule, dict) for key in rule}
    for key in keys:
        files.setdefault(key, set()).add(name)
alone = {key for key, names in files.items() if len(names) == 1}
listed = open(f"{root}/engines/README.md").read().split("\nThese words are in one file alone")[1]
assert len(alone) <= 6 and all(f"`{key}`" in listed for key in alone), alone
EOF
# README's table names for each GPU what vLLM, and vLLM with the plugin, read there.
check "README's table of GPUs" "$PYTHON" - "$root" "$TILEPACK" <<'EOF'
import json, re, subprocess, sys
root, program = sys.argv[1:]
page = open(f"{root}/README.md").read().split("\n| GPU | take first |")[1].split("\n\n")[0]
rows = [line.split("|")[2:-1] for line in page.splitlines()[2:]]
seen = 0
for row, gpu in zip(rows, ("a100", "l40s", "h100", "b200", "5090"), strict=True):
    out = subprocess.run([program, "formats", "--gpu", gpu, "--json"], capture_output=True, check=True).stdout
    for cell, engine in zip(row, ("vllm", "vllm", "vllm-tilepack"), strict=True):
        served = {o["format"] for o in json.loads(out)["offers"] if o["engine"] == engine}
        named = set(re.findall("`([a-z0-9-]+)`", cell))
        assert named and named <= served, (gpu, engine, named - served)
        seen += len(named)
assert seen >= 20, seen
EOF
check 'C names no engine' sh -c "! grep -rnE '\"[^\"]*(vllm|sglang|trtllm|deepgemm|flashinfer)\"' \
    '$root/src/pack/engine' '$root/src/pack/plan/file/served.c' '$root/src/cli/served_report.c' '$root/src/cli/cmd_engines.c'"

# A file of the user's own, and mistakes in one.
cat >"$work/own.json" <<'EOF'
{"name": "acme", "title": "ACME", "version": "1.2", "kind": "server", "source": ["me"],
 "serve": ["acme", "serve", "DST"], "parallel": ["--ranks", "N"], "alike": ["experts"],
 "reads": [{"formats": ["fp8-ct"], "gpus": ["sm89+"], "speed": "native", "takes": ["linear"], "basis": "run"}],
 "sizes": [{"dim": "K", "multiple": 128, "says": "K in multiples of 128"}],
 "families": [{"models": ["falcon"], "verdict": "kept", "says": "it regroups rows"}]}
EOF
answers 'it is listed' 0 'ACME' "$TILEPACK" engines --engine-file "$work/own.json"
answers 'its formats are offered' 0 'acme' "$TILEPACK" formats --engine acme \
    --engine-file "$work/own.json"
wrong() { # text of the error, sed expression, status
    sed "$2" "$work/own.json" >"$work/bad.json"
    fails "$1" "${3:-3}" "$1" "$TILEPACK" engines --engine-file "$work/bad.json"
}
wrong '"titel" is an unknown key' 's/"title"/"titel"/'
wrong '"version" is missing' 's/"version": "1.2", //'
wrong '"kind" is no known word' 's/"server"/"servant"/'
wrong '"serve" has the word DST once' 's/"DST"/"SRC"/'
wrong '"serve" has the word DST once' 's/"server"/"kernels"/'
wrong '"how" is missing in a library' 's/"server"/"library"/; s/"serve": ."acme", "serve", "DST".,//'
wrong '"alike" holds no known word' 's/\["experts"\]/["expert"]/'
wrong 'reads[0]: "gpus" holds what is neither smNN nor smNN+' 's/sm89+/h100/'
wrong 'reads[0]: "speed" is no known word' 's/"native"/"fast"/'
wrong 'reads[0]: "takes" holds no known word' 's/"linear"/"lineal"/'
wrong 'reads[0]: "basis" is missing' 's/, "basis": "run"//'
wrong 'sizes[0]: "multiple" is no number of at least 1' 's/128,/0,/'
wrong 'sizes[0]: "dim" is no known word' 's/"dim": "K"/"dim": "E"/'
wrong 'families[0]: "verdict" is no known word' 's/"kept"/"left"/'
wrong 'line 1' 's/^{/{{/'
wrong 'cannot be another one of that name' 's/"acme"/"vllm"/' 2
sed 's/"checked"/x/; s/^{/{"ran": ["x"],/' "$root/models/llama.json" >"$work/model.json"
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/src" --layers 1 --hidden 256 --inter 256 --heads 2 \
    --kv-heads 2 --head-dim 128 --vocab 64 --quiet || exit 1
fails 'a former key of models' 3 '"ran" is no key any more: what readers take, refuse and misread stands in engines/' \
    "$TILEPACK" plan "$work/src" --to fp8-ct --model-file "$work/model.json"
sed 's/^{/{"loads_in": "x",/; s/"name": "fp8-ct"/"name": "own"/' "$root/formats/fp8-ct.json" >"$work/format.json"
fails 'a former key of formats' 3 '"loads_in" is no key of a format any more: who reads what stands in engines/' \
    "$TILEPACK" formats --format-file "$work/format.json"

"$PYTHON" "$TESTS/cli/engines.py" >"$work/verdicts" 2>&1
grep -v '^ok ' "$work/verdicts" | grep -v ' passed, '
passed=$((passed + $(grep -c '^ok ' "$work/verdicts")))
failed=$((failed + $(grep -c '^FAIL' "$work/verdicts")))
grep -q ' passed, 0 failed' "$work/verdicts" || [ "$failed" -gt 0 ] || bad "engines.py did not end"
finish
