#!/bin/sh
# action.yml: its steps are run as a runner of GitHub runs them (packaging/action.py), with a
# program that is installed, one that is given, one that a step builds and one of the cache. What
# docs/ci.md has for others is run as it stands there.
# shellcheck disable=SC2016 # texts of the summary, and names that are none of variables
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
check 'in its steps' test "$(grep -v Cache steps | xargs)" = \
    'skipped: Take the program Name the build Build tilepack Convert Verify Summary'
check 'to the same bytes' diff -r expected made
result=$(sed -n 's/^result=//p' runner/outputs)
check 'its result is the JSON of convert' jq -e '.output | endswith("made")' "$result"
has() { # output, value
    check "the output $1 is '$2'" grep -qxF "$1=$2" runner/results
}
has 'done' false
has serve 'vllm serve made'
has reason ''
has bytes "$(jq .bytes_out "$result")"
says() { # words of the summary ...
    for words; do check "the summary says '$words'" grep -qF "$words" runner/summary; done
}
says '### tilepack: fp8-ct' 'bytes became ' 'worst weight | `model.layers.' ' dB, relative error ' \
    '| verified | every byte is what the source gives |' '| serve | `vllm serve made` |'
check 'again, it is done' want made verify=false
has 'done' true
has reason same
says '| left as it was | same |' '| verified | no |'
answers 'verify=false leaves that out' 0 'skipped: Verify' want again verify=false
check 'and converts' diff -r expected/model.safetensors again/model.safetensors
touch o_proj1 o_proj2 # what a pattern among the options does not mean
check 'options are words, whatever the files here are called' \
    want named 'options=--exclude o_proj* --quiet'
mkdir 'a folder'
check 'with quotes, on several lines' run "$bin:$clean" source=src 'output=a folder/$(made)' \
    to=fp8-ct "options=--exclude 'o_proj|two \"words\"'
--quiet
--max-memory \"1GiB\"" verify=false
check 'and mean what they say' "$TILEPACK" diff named 'a folder/$(made)'
has serve "vllm serve 'a folder/\$(made)'"
fails 'a quote without an end is an error' 1 'failed: Convert' want open "options=--exclude 'x"
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
has reason foreign
says '| failed | status 7 (foreign): '
fails 'without the input that it needs nothing begins' 1 'to: is required' \
    run "$bin:$clean" source=src output=none
given() { # input=value ...
    run "$clean" source=src output="given$#" to=fp8-ct 'options=--digest sha256' "$@"
}
check 'a program that is given' given program="$TILEPACK"
check 'converts to the same bytes' diff -r expected given1
mkdir -p "archive/tilepack-1-linux/bin" && cp "$TILEPACK" archive/tilepack-1-linux/bin/
tar -czf program.tar.gz -C archive tilepack-1-linux
sum=$(sha256sum <program.tar.gz | cut -d' ' -f1)
check 'or an archive, with its SHA-256' given program=program.tar.gz sha256="$sum"
check 'does, too' diff -r expected given2
fails 'with another it is refused' 1 "its SHA-256 is $sum" given program=program.tar.gz sha256=1234
"$PYTHON" -u -m http.server --bind 127.0.0.1 0 >server 2>&1 &
server=$!
trap 'kill $server; rm -rf "$work"' EXIT
port=
while kill -0 $server && [ -z "$port" ]; do
    sleep 0.2
    port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' server)
done
check 'or a URL' run "$clean" source=src output=fetched to=fp8-ct 'options=--digest sha256' \
    program="http://127.0.0.1:$port/program.tar.gz" sha256="$sum"
check 'does as well' diff -r expected fetched
# The page's recipe for GitLab, but for its apt-get, and what it has for scripts.
mkdir recipe && cp -r src recipe/model
sed -n '/^## GitLab/,/^## /p' "$root/docs/ci.md" | sed -n 's/^    - //p' | grep -v apt-get >recipe/gitlab
check 'the recipe for GitLab has its lines' test "$(wc -l <recipe/gitlab)" -eq 5
check 'and runs' env -C recipe PATH="$clean" PROGRAM="http://127.0.0.1:$port/program.tar.gz" \
    sh -eu gitlab
check 'and proves' jq -e '.ok and (.weights | length > 0)' recipe/verify.json
sed -n '/^```sh$/,/^```$/p' "$root/docs/ci.md" | sed '1d;$d' >recipe/script
answers 'a script finds it done' 0 'done' env -C recipe PATH="$bin:$clean" sh -eu script
sed -i 's/fp8-dynamic-ct/awq/' recipe/script
answers 'another one is an error' 7 'format' env -C recipe PATH="$bin:$clean" sh -eu script

CACHE=$work/cache
export CACHE
want_built() { # output
    run "$clean" source=src output="$1" to=fp8-ct 'options=--digest sha256'
}
answers 'without tilepack it is built' 0 'Cache the build: miss' want_built built
check 'and converts to the same bytes' diff -r expected built
rm -rf runner
answers 'once' 0 'Cache the build: hit' want_built cached
check 'and the one of the cache does' diff -r expected cached
finish
