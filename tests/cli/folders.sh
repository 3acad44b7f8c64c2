#!/bin/sh
# The files of a checkpoint that are no weights: copied from folders of any depth, left out
# where they are weights in other formats, and each of those named by plan, convert and JSON.
# Such outputs are verified, resumed, replaced, cut and joined as all others.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
same() { # file ...: as in the source
    for name; do cmp "$work/model/$name" "$work/dst1/$name" || return 1; done
}
listed() { # key, name ...: of the JSON in $work/json, exactly these
    "$PYTHON" -c '
import json, sys
have, want = sorted(json.load(open(sys.argv[1]))[sys.argv[2]]), sorted(sys.argv[3:])
assert have == want, (have, want)' "$work/json" "$@"
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
cd "$work/model" || exit 1
mkdir -p 1_Pooling 2_Dense onnx/fp16 original code/layers/deep .cache earlier __pycache__ README.md
echo '{}' >1_Pooling/config.json
echo weights >2_Dense/model.safetensors
echo 'import torch' >code/layers/deep/model.py
echo '{}' >original/params.json
echo text >README.md/x # where the output has its card
for name in pytorch_model.bin model.gguf onnx/model.onnx onnx/fp16/model.onnx original/a.pth \
    .cache/hidden __pycache__/x.pyc; do
    echo weights >$name
done
echo '{}' >earlier/tilepack.json
mkdir "$work/blobs" && echo blob >"$work/blobs/$(printf %040d 7)"
ln -s "../../blobs/$(printf %040d 7)" code/blob.json
ln -s onnx linked
cd "$work" || exit 1
left='README.md/ __pycache__/ earlier/ linked/ model.gguf onnx/ original/a.pth pytorch_model.bin'
kept='1_Pooling/config.json 2_Dense/model.safetensors code/blob.json code/layers/deep/model.py
      generation_config.json original/params.json tokenizer.json tokenizer_config.json'
[ -e model/generation_config.json ] || echo '{}' >model/generation_config.json

answers "plan names what is left out" 0 "README.md/, __pycache__/, earlier/, linked/, model.gguf, onnx/" \
    "$TILEPACK" plan model --to fp8-ct
"$TILEPACK" plan model --to fp8-ct --json >json
# shellcheck disable=SC2086 # lists of names
check "as JSON" listed left_out $left
# shellcheck disable=SC2086
check "and what is copied" listed copied $kept
mkfifo model/pipe
answers "a pipe is left out, and so is a link to a folder" 0 "'pipe', 'pytorch_model.bin' are \
not copied: other weights, folders of such (--copy takes them along), links to folders (see --follow-links), or \
pipes and devices" convert piped
rm -r model/pipe piped
ln -s /dev/null model/null.json
answers "a link to a device, too" 0 "or pipes and devices" convert piped
rm -r model/null.json piped
answers "convert names it, too" 0 "'pytorch_model.bin' are not copied" convert dst1
convert json-dst1 --json -q >json
# shellcheck disable=SC2086
check "as JSON" listed left_out $left
# shellcheck disable=SC2086
check "files of folders are copied" same $kept
check "and nothing else" test "$(find dst1 -mindepth 1 | wc -l)" = \
    "$(($(find dst1 -maxdepth 1 -type f | wc -l) + 11))"
check "it is whole" "$TILEPACK" verify dst1 -q
echo x >>dst1/code/layers/deep/model.py
answers "a change in a folder is found" 1 "code/layers/deep/model.py" "$TILEPACK" verify dst1
echo weights >json-dst1/x.gguf
answers "unpack copies and names them" 0 "not copied" "$TILEPACK" unpack json-dst1 -o plain --to fp8-deepseek
check "unpack has them" test -f plain/1_Pooling/config.json

# What has a folder is replaced, and kept as OUT.old.
cp -r dst1 was
check "--force replaces it" convert dst1 -q --force
check "and keeps what was there" diff -r was dst1.old
rm -r was
check "the same again is complete" sh -c "'$TILEPACK' convert model -o dst1 --to fp8-ct | grep -q already"

# An interrupted run goes on, and a killed one's folders are swept.
mkdir -p dst.partial/code/layers
: >dst.partial/.tilepack-journal
echo mine >dst.partial/code/layers/mine
fails "a file that is in no folder of the source stops it" 7 "'code/layers/mine'" convert dst -q
rm -r dst.partial/code/layers
ln -s ../../model/onnx dst.partial/code/layers
fails "a link in place of a folder, too" 7 "'code/layers'" convert dst -q
rm dst.partial/code/layers
mkdir -p dst.partial/code/layers/deep
echo old >dst.partial/code/layers/deep/model.py
check "an unfinished output is finished" convert dst -q
check "and has the same files" diff -r dst1 dst
check "what links led to is there" test -f model/onnx/model.onnx
format=mxfp8-ct
convert whole -q
check "parts" sh -c "'$TILEPACK' convert model -o parts --to mxfp8-ct --part 1/1 -q &&
    '$TILEPACK' merge parts -q && diff -r parts whole"

unset format

# An output inside of the source is not copied into itself.
check "an output in the source" "$TILEPACK" convert model -o model/fp8 --to fp8-ct -q
check "again, with it there" "$TILEPACK" convert model -o model/other --to fp8-ct -q
check "has no copy of the other" test ! -e model/other/fp8
rm -rf model/fp8 model/other

# Links.
ln -s /etc/hostname model/code/outside
fails "a link to outside is refused" 3 "leads out of the directory" convert again -q
check "and followed on demand" convert again -q --follow-links
rm model/code/outside
ln -s missing model/code/nowhere
fails "a link to nowhere" 5 "a link leads nowhere" convert never -q
rm model/code/nowhere
check "--strict takes the Hub's blobs in folders" convert strict -q --strict

# A manifest leads nowhere else.
sed 's#"code/blob.json"#"code/../../x"#' dst1/tilepack.json >changed && cp changed dst1/tilepack.json
answers "names that lead out are refused" 1 "lacks a plain name" "$TILEPACK" verify dst1
finish
