#!/bin/sh
# action.yml: its steps are run as a runner of GitHub runs them (packaging/action.py), with a
# program that is installed and with one that the first step builds.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(dirname "$TESTS")
"$PYTHON" "$root/samples/gen_checkpoint.py" "$work/src" --preset tiny-llama --quiet || exit 1
"$TILEPACK" convert "$work/src" -o "$work/expected" --to fp8-ct --digest sha256 --quiet
cd "$work" || exit 1
bin=$(dirname "$TILEPACK")
run() { # path of commands, input=value ...
    path=$1
    shift
    env -u MAKEFLAGS -u MAKELEVEL PATH="$path" CFLAGS="-O1 -w" \
        "$PYTHON" "$TESTS/packaging/action.py" "$root/action.yml" "$work/runner" "$@"
}
clean=$(printf '%s' "$PATH" | tr : '\n' | while read -r folder; do
    [ -x "$folder/tilepack" ] || printf '%s:' "$folder"
done)
want() { run "$bin:$clean" source=src output="$1" to=fp8-ct "$2"; }

want made 'options=--digest sha256 --jobs 2' >steps 2>log
check 'it converts and verifies' test $? -eq 0
check 'in three steps' test "$(xargs <steps)" = 'Build tilepack Convert Verify'
check 'to the same bytes' diff -r expected made
result=$(sed -n 's/^result=//p' runner/outputs)
check 'its result is the JSON of convert' jq -e '.output | endswith("made")' "$result"
answers 'verify=false leaves that out' 0 'skipped: Verify' want again verify=false
check 'and converts' diff -r expected/model.safetensors again/model.safetensors
touch o_proj1 o_proj2 # what a pattern among the options does not mean
check 'options are words, whatever the files here are called' \
    want named 'options=--exclude o_proj* --quiet'
"$PYTHON" - <<'EOF' >'of importance'
import json, struct, sys
header = json.dumps({"model.layers.0.self_attn.q_proj.weight":
                     {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
sys.stdout.buffer.write(struct.pack("<Q", len(header)) + header + struct.pack("<256f", *range(256)))
EOF
check 'a file of importance is what both steps take' run "$bin:$clean" source=src \
    output=searched to=w4a8-ct 'options=--search mse --quiet' 'importance=of importance'
fails 'without it nobody could verify' 2 importance "$TILEPACK" verify searched --against src
cp -r made damaged
printf x | dd of=damaged/model.safetensors bs=1 seek=99999 conv=notrunc 2>/dev/null
fails 'an earlier output whose weights are damaged is found' 1 'failed: Verify' \
    want damaged verify=true
mkdir wrapped # a tilepack after whose conversion a disk loses a byte
cat >wrapped/tilepack <<EOF
#!/bin/sh
"$TILEPACK" "\$@" || exit
[ "\$1" != convert ] || printf x | dd of=lost/model.safetensors bs=1 seek=99999 conv=notrunc 2>&1
EOF
chmod +x wrapped/tilepack
fails 'an output that is damaged is found' 1 'failed: Verify' run "$PWD/wrapped:$clean" \
    source=src output=lost to=fp8-ct verify=true
mkdir taken && echo mine >taken/notes.txt
fails 'one that is in the way is an error' 1 'failed: Convert' want taken verify=true
fails 'without the input that it needs nothing begins' 1 'to: is required' \
    run "$bin:$clean" source=src output=none
check 'without tilepack it is built' \
    run "$clean" source=src output=built to=fp8-ct 'options=--digest sha256'
check 'and converts to the same bytes' diff -r expected built
finish
