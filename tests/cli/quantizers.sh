#!/bin/sh
# Whose checkpoints are read: `tilepack quantizers`, a user's own file, and that C knows no method's name.
# What each file says of tensors is proved by `sources`.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/facts.sh
. "$TESTS/lib/facts.sh"
root=$TESTS/..

shows_files quantizers quantizer
check 'each form is a format that there is, with the dtype that its codes have' "$PYTHON" -c '
import glob, json, os, sys
for path in glob.glob(sys.argv[1] + "/quantizers/*.json"):
    for form in json.load(open(path)).get("forms", []):
        fmt = json.load(open(os.path.join(sys.argv[1], "formats", form["format"] + ".json")))
        codes = dict(next(out for out in fmt["outputs"] if out["role"] == "codes"))
        codes.update(form.get("spelled", {}).get("codes", {}))
        assert (codes["suffix"], codes["dtype"]) == (form["codes"], form["dtype"]), (path, form)
        roles = {out["role"] for out in fmt["outputs"]}
        assert set(form.get("spelled", {})) <= roles, (path, form)' "$root"
check 'docs/sources.md' "$PYTHON" "$root/scripts/sources_md.py" "$TILEPACK" --check \
    "$root/docs/sources.md"

# Each file is needed: without it something is not read, or not refused by its name.
"$PYTHON" "$TESTS/bytes/quantizer_files.py" >"$work/needed" 2>&1 || bad 'each file is needed'
grep -v '^ok' "$work/needed"
passed=$((passed + $(grep -c '^ok' "$work/needed")))

# Facts of methods stand in the files: in all of C no string is a method's name, but for these.
"$PYTHON" - "$root" >"$work/names" <<'EOF'
import glob, json, re, sys
rules = "the rule by which a library computes the scale of NVFP4: a word of formats/*.json"
codecs = "a codec: a word of formats/*.json"
EXCEPTIONS = {
    ("src/kernels/op/traits.c", "torchao"): rules,
    ("src/kernels/op/traits.c", "modelopt"): rules,
    ("src/kernels/op/traits.c", "fp8"): codecs,
    ("src/kernels/op/traits.c", "mxfp8"): codecs,
    ("src/kernels/op/traits.c", "mxfp4"): codecs,
    ("src/pack/plan/file/config.c", "compressed-tensors"): "its description is nested in groups, and "
        "that is written here; what a group says stands in formats/*.json",
}
words, used = set(), set()
for path in glob.glob(sys.argv[1] + "/quantizers/*.json"):
    one = json.load(open(path))
    words |= set(one.get("methods", [])) | {one["name"]}
for path in glob.glob(sys.argv[1] + "/src/**/*.[ch]*", recursive=True):
    for text in re.findall(r'"((?:\\.|[^"\\])*)"', re.sub(r"/\*.*?\*/", "", open(path).read(), flags=re.S)):
        place = (path[len(sys.argv[1]) + 1:], text)
        if text in words and place not in EXCEPTIONS:
            print(*place)
        used.add(place)
for place in EXCEPTIONS:
    if place not in used:
        print(*place, "is an exception for nothing")
EOF
check 'C has no name of a method' test ! -s "$work/names"

# A user's own file: names, a spelling, a list; then mistakes in it.
"$PYTHON" - "$work/src" <<'EOF'
import json, os, struct, sys
import numpy as np
os.makedirs(sys.argv[1])
rng = np.random.default_rng(1)
codes = rng.integers(0, 100, (256, 256), dtype=np.uint8)
scales = rng.random((2, 2), dtype=np.float32)
plain = np.zeros((256, 256), np.uint16)
tensors = {"model.layers.0.self_attn.o_proj.weight": ("F8_E4M3", codes),
           "model.layers.0.self_attn.o_proj.block_scale": ("F32", scales),
           "model.layers.0.mlp.down_proj.weight": ("BF16", plain)}
head, blobs, at = {}, [], 0
for name, (dtype, data) in sorted(tensors.items()):
    raw = data.tobytes()
    head[name] = {"dtype": dtype, "shape": list(data.shape), "data_offsets": [at, at + len(raw)]}
    at += len(raw)
    blobs.append(raw)
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1] + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
json.dump({"model_type": "llama", "quantization_config": {"quant_method": "acme_fp8", "left": ["mlp"]}},
          open(sys.argv[1] + "/config.json", "w"))
EOF
cat >"$work/acme.json" <<'EOF'
{"name": "acme", "title": "ACME", "source": "me", "methods": ["acme_fp8"], "plain": [{"key": "left"}],
 "forms": [{"format": "fp8-deepseek", "codes": "weight", "dtype": "F8_E4M3",
            "spelled": {"scale": {"suffix": "block_scale"}}}]}
EOF
fails 'without it nothing is known' 4 'looks like the codes' "$TILEPACK" convert "$work/src" \
    -o "$work/o" --to fp8-deepseek
check 'with it codes are taken over' "$TILEPACK" convert "$work/src" -o "$work/o" --to fp8-deepseek \
    --quantizer-file "$work/acme.json" -q
answers 'plan names it' 0 'fp8-deepseek' "$TILEPACK" plan "$work/src" --to fp8-deepseek \
    --quantizer-file "$work/acme.json"
check 'the plain one stays' "$PYTHON" -c '
import json, struct, sys
raw = open(sys.argv[1] + "/model.safetensors", "rb").read()
head = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])
sys.exit(head["model.layers.0.mlp.down_proj.weight"]["dtype"] != "BF16")' "$work/o"
answers 'it is listed' 0 'acme_fp8' "$TILEPACK" quantizers --quantizer-file "$work/acme.json"

wrong() { # text of the error, sed expression
    sed "$2" "$work/acme.json" >"$work/bad.json"
    fails "$1" "$3" "$1" "$TILEPACK" quantizers --quantizer-file "$work/bad.json"
}
wrong '"metods" is an unknown key' 's/"methods"/"metods"/' 3
wrong 'forms[0]: "dtype" is none of safetensors' 's/F8_E4M3/F8/' 3
wrong 'forms[0]: "codes" is missing' 's/"codes": "weight", //' 3
wrong '"file_says_more" needs "file"' 's/"title"/"file_says_more": true, "title"/' 3
wrong 'it needs "forms" or "refused"' 's/"title"/"refused": "x", "title"/' 3
wrong 'cannot be another one of that name' 's/"acme"/"gptq"/' 2
finish
