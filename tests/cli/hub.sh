#!/bin/sh
# Finding the model: by its name on the Hub or by a folder of the cache, in the cache of this
# machine alone; and what is said where there is none, another format, or only a part.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
unset HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE XDG_CACHE_HOME
HOME=$work/home
export HOME
plan() {
    "$TILEPACK" plan "$1" --to fp8-ct
}
finds() { # name, source
    answers "$1" 0 "14 weights converted" plan "$2"
}

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/model" --preset tiny-llama --quiet \
    >/dev/null || exit 1
cache() { # folder of the cache, revision
    mkdir -p "$1/blobs" "$1/refs" "$1/snapshots/$2"
    for file in "$work/model"/*; do
        blob=$(sha256sum <"$file" | cut -d ' ' -f 1)
        cp "$file" "$1/blobs/$blob"
        ln -s "../../blobs/$blob" "$1/snapshots/$2/$(basename "$file")"
    done
    printf %s "$2" >"$1/refs/main"
}
hub=$HOME/.cache/huggingface/hub
cd "$work" || exit 1
fails "a model that is not there" 5 "hf download acme/tiny-llama" plan acme/tiny-llama
cache "$hub/models--acme--tiny-llama" 0123abc
finds "a name of the Hub" acme/tiny-llama
finds "hf://" hf://acme/tiny-llama
finds "an address" https://hub.example/acme/tiny-llama
finds "an address of one of its pages" https://hub.example/acme/tiny-llama/tree/main
finds "with what a browser adds" "https://hub.example/acme/tiny-llama?library=x#files"
finds "and a slash" https://hub.example/acme/tiny-llama/
page=https://hub.example/acme/tiny-llama
for address in $page/tree/v2 $page/tree/m "$page/tree/main/sub" $page/tree/0123abc hf://acme/tiny-llama/tree/v2 \
    $page/tree/main/../v2 $page/blob/main/config.json $page/resolve/main/model.safetensors $page/x; do
    fails "not of another branch, a folder or a file: $address" 5 "and does no network" plan "$address"
    check "and what to do" grep -q "hint: download it first, and" err
done
mv "$hub/models--acme--tiny-llama/refs/main" main
finds "the only snapshot is that of the name" acme/tiny-llama
fails "and not of a branch" 5 "hf download acme/tiny-llama; or" plan "$page/tree/main"
printf %040d 7 >"$hub/models--acme--tiny-llama/refs/main"
fails "but not where main is another" 5 "" plan acme/tiny-llama
fails "nor of the folder" 3 "has no refs/main" plan "$hub/models--acme--tiny-llama"
mv main "$hub/models--acme--tiny-llama/refs/main"
for page in '' / /tree/main '?library=x'; do
    fails "the address of one that is not there: '$page'" 5 \
        "hint: download the model first: hf download acme/other; or correct the path" \
        plan "https://hub.example/acme/other$page"
done
for address in https://files.example/model.safetensors https://files.example/a/b/c \
    https://files.example/a/model.safetensors https://files.example http://files.example/a s3://a; do
    fails "it does no network: $address" 5 "and does no network" plan "$address"
    check "and knows no model of the Hub" grep -q "hint: download it first" err
done
finds "a folder of the cache" "$hub/models--acme--tiny-llama"
finds "with a slash behind it" "$hub/models--acme--tiny-llama/"
finds "its snapshot" "$hub/models--acme--tiny-llama/snapshots/0123abc"
check "convert takes it" "$TILEPACK" convert acme/tiny-llama -o packed --to fp8-ct -q --strict
check "verify does" "$TILEPACK" verify packed --against acme/tiny-llama -q
check "dump does" "$TILEPACK" dump acme/tiny-llama
fails "another one" 5 "hf download acme/other" plan acme/other
mkdir -p acme/tiny-llama && cp model/* acme/tiny-llama
rm acme/tiny-llama/config.json
answers "a directory of that name goes first" 0 "there is no config.json" plan acme/tiny-llama
rm -rf acme

# Where the cache is.
mkdir -p elsewhere/hub && mv "$hub/models--acme--tiny-llama" elsewhere/hub
fails "the cache is looked for where it is" 5 "hf download" plan acme/tiny-llama
HF_HOME=$work/elsewhere finds "HF_HOME" acme/tiny-llama
HF_HUB_CACHE=$work/elsewhere/hub finds "HF_HUB_CACHE" acme/tiny-llama
HF_HOME=$work/none HF_HUB_CACHE=$work/elsewhere/hub finds "which goes first" acme/tiny-llama
mkdir xdg && ln -s ../elsewhere xdg/huggingface
XDG_CACHE_HOME=$work/xdg finds "XDG_CACHE_HOME" acme/tiny-llama
HUGGINGFACE_HUB_CACHE=$work/elsewhere/hub finds "HUGGINGFACE_HUB_CACHE" acme/tiny-llama

# Revisions.
folder=elsewhere/hub/models--acme--tiny-llama
rm $folder/refs/main
finds "the only snapshot" $folder
mkdir $folder/snapshots/other
fails "several, and no main" 3 "has no refs/main" plan $folder
printf other >$folder/refs/main
hint="complete the download: hf download acme/tiny-llama"
for path in $folder $folder/snapshots/other $folder/snapshots/other/; do
    fails "one without its weights: $path" 3 "$hint" plan "$path"
    "$TILEPACK" plan "$path" --to fp8-ct 2>&1 | grep -qx "  hint: $hint" || bad "of main, it says"
done
mkdir -p $folder/snapshots/4567def/sub
for path in $folder/snapshots/4567def $folder/snapshots/4567def/sub; do
    fails "one of another revision: $path" 3 "$hint --revision 4567def" plan "$path"
done
rm -r $folder/snapshots/4567def
printf '../../../../model' >$folder/refs/main
fails "a revision that leads elsewhere is none" 3 "has no refs/main" plan $folder
printf '%s/..' "$(basename "$(echo "$folder"/snapshots/[!o]*)")" >$folder/refs/main
fails "nor is one with more behind its name" 3 "has no refs/main" plan $folder
printf '%s\nmore' "$(basename "$(echo "$folder"/snapshots/[!o]*)")" >$folder/refs/main
fails "nor one with more lines" 3 "has no refs/main" plan $folder
printf '%s\0more' "$(basename "$(echo "$folder"/snapshots/[!o]*)")" >$folder/refs/main
fails "nor one with a zero in it" 3 "has no refs/main" plan $folder
printf '%s\r\n' "$(basename "$(echo "$folder"/snapshots/[!o]*)")" >$folder/refs/main
answers "the end of its line may be there" 0 "" plan $folder

# What is there, and what to do.
fails "a typo" 5 "check the path" plan modle
fails "a name that is too long for a folder" 5 "hf download acme/" \
    plan "https://huggingface.co/acme/$(printf '%0300d' 0)"
mkdir bin gguf
echo x >bin/pytorch_model.bin
echo x >gguf/model-q4.gguf
fails "weights of pickles" 3 "'pytorch_model.bin': weights in a format that is not read" plan bin
fails "and what to do" 3 "save_pretrained(DST)" plan bin
fails "weights of llama.cpp" 3 "'model-q4.gguf'" plan gguf
answers "one shard of several" 0 "part 1 of " plan "$(echo model/*-00001-of-*.safetensors)"
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n' \
    >"$(echo model/*-00001-of-*.safetensors)"
fails "a pointer of Git LFS" 3 "git lfs pull" plan model
finish
