#!/bin/sh
# Sets of files as people publish them: indexes of diffusers, of variants and of Mistral, indexes
# that do not say what the shards hold, companions that --copy takes along, F64; and what verify
# says where there is nothing to prove.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
cd "$work" || exit 1
"$PYTHON" "$TESTS/cli/files_inputs.py" . || exit 1
same() { "$PYTHON" "$TESTS/cli/files_inputs.py" same "$@"; }
has() { # folder, name ...: its files, exactly these
    folder=$1
    shift
    [ "$(cd "$folder" && find . -type f | sort | tr '\n' ' ')" = "$(printf './%s\n' "$@" | sort | tr '\n' ' ')" ]
}
make() { # source, options ...: into packed, anew
    source=$1
    shift
    rm -rf packed
    "$TILEPACK" convert "$source" -o packed --to fp8-dynamic-ct "$@"
}
own='README.md config.json tilepack.json'
q=blocks.0.attn.to_q.weight

# ---- sets ---------------------------------------------------------------------------------
for set in diffusers variant mistral; do
    stem=diffusion_pytorch_model
    [ $set = mistral ] && stem=consolidated
    answers "$set is read by its index" 0 "4 weights converted" make $set
    # shellcheck disable=SC2086 # lists of names
    check "and its output keeps the stem" has packed $own $stem.safetensors $stem.safetensors.index.json
    answers "which is the source's" 0 "no difference" "$TILEPACK" verify packed --against $set --strict
    answers "and is done" 0 "is complete already" "$TILEPACK" convert $set -o packed --to fp8-dynamic-ct
    answers "in several shards, too" 0 "" make $set --shard-size 20000
    # shellcheck disable=SC2086
    check "by their names" has packed $own $stem.safetensors.index.json $stem-00001-of-00004.safetensors \
        $stem-00002-of-00004.safetensors $stem-00003-of-00004.safetensors $stem-00004-of-00004.safetensors
    answers "which are read again" 0 "4 weights restored" "$TILEPACK" unpack packed -o plain-$set
    answers "and replaced" 0 "4 weights converted" \
        "$TILEPACK" convert $set -o packed --to fp8-dynamic-ct --force --shard-size 1GB
done
answers "a file comes before its variant" 0 "fp16.safetensors' is no shard" make both
check "which is not read" grep -q "blocks.0.attn" packed/diffusion_pytorch_model.safetensors.index.json
answers "metadata may be null" 0 "2 weights converted" make null

# ---- index and shards -----------------------------------------------------------------------
odd() { # folder, text of the warning
    answers "$1: the index decides" 0 "$2" make "$1"
    answers "$1: and verify says so" 1 "$2" "$TILEPACK" verify "$1"
    answers "$1: which its output is not" 0 "no difference" "$TILEPACK" verify packed --against "$1" --strict
}
odd unlisted "the tensor 'inv_freq' is in a shard, but not in the index: left out"
check "it is not there" sh -c '! grep -q inv_freq packed/model.safetensors.index.json'
odd twice "the tensor '$q' is in several shards: read from the one that the index names"
"$TILEPACK" unpack twice -o plain 2>/dev/null >&2
check "that one is read" same plain/model.safetensors $q twice/model-00001-of-00002.safetensors $q
check "the other is another" sh -c "! '$PYTHON' '$TESTS/cli/files_inputs.py' same \
    plain/model.safetensors $q twice/model-00002-of-00002.safetensors $q"
odd elsewhere "2 tensors, the first of them '$q', are in another shard than the index says"
odd absent "2 tensors, the first of them 'x.weight', are in the index, but in no shard"
answers "./ in front of a shard's name is none" 0 "4 weights converted" make dotted

# ---- companions -----------------------------------------------------------------------------
answers "weights beside a model are named" 0 "--copy takes them along" make companions
# shellcheck disable=SC2086
check "and not copied, with their config" has packed $own model.safetensors model.safetensors.index.json
answers "unless they are asked for" 0 "'optimizer.pt' is not copied" \
    make companions --copy 'spk_*' --copy vision-lora/ --copy 'adapter_*' --copy none
# shellcheck disable=SC2086
check "with all that is in a folder" has packed $own model.safetensors model.safetensors.index.json spk_dict.pt \
    adapter_model.safetensors adapter_config.json vision-lora/adapter_model.safetensors \
    vision-lora/adapter_config.json
check "as they are" cmp companions/vision-lora/adapter_model.safetensors packed/vision-lora/adapter_model.safetensors
answers "they are in the manifest" 0 "no difference" "$TILEPACK" verify packed --against companions --strict
fails "a single file has no companions" 2 "it has no --copy" \
    "$TILEPACK" convert companions -o one.safetensors --to fp8-dynamic-ct --copy '*.pt'
answers "a glob that matches nothing is said" 0 "--copy 'none' matches no file" make companions --copy none
answers "an --exclude that matches nothing is said" 0 "--exclude 'embed tokens' matches no name" \
    "$TILEPACK" plan companions --to fp8-dynamic-ct --exclude to_q --exclude 'embed tokens'
answers "unpack copies, too" 0 "" "$TILEPACK" unpack packed -o plain-copies --copy spk_dict.pt
answers "and knows what was copied" 0 "'spk_dict.pt' is not copied" sh -c \
    "'$TILEPACK' convert companions -o with --to fp8-dynamic-ct --copy spk_dict.pt && '$TILEPACK' unpack with -o without"

# ---- F64 ------------------------------------------------------------------------------------
"$TILEPACK" convert f32 -o of32 --to w4a16-ct >/dev/null || exit 1
answers "F64 is read" 0 "2 weights converted" "$TILEPACK" convert f64 -o of64 --to w4a16-ct
check "as numpy rounds it" same of64/model.safetensors blocks.0.attn.to_q.weight_packed \
    of32/model.safetensors blocks.0.attn.to_q.weight_packed
check "and so are its scales" same of64/model.safetensors blocks.0.attn.to_q.weight_scale \
    of32/model.safetensors blocks.0.attn.to_q.weight_scale
answers "and derived again" 0 "no difference" "$TILEPACK" verify of64 --against f64
"$TILEPACK" diff f64 f32 --json >diff.json
check "value for value" "$PYTHON" -c '
import json
items = json.load(open("diff.json"))["items"]
assert len(items) == 2 and all(i["max_abs"] == 0 for i in items), items'
answers "one that is kept is listed as plain" 0 "" \
    "$TILEPACK" convert f64 -o kept --to w4a16-ct --exclude to_q
check "in config.json" grep -q "blocks.0.attn.to_q" kept/config.json
check "as it is" same kept/model.safetensors $q f64/model.safetensors $q
answers "what is infinite as F32 is not finite" 3 "to_q" "$TILEPACK" convert f64-large -o large --to w4a16-ct

# ---- verify ---------------------------------------------------------------------------------
answers "of what tilepack did not write nothing is proved" 0 \
    "was not written by tilepack: there is nothing to prove; --strict would refuse it" "$TILEPACK" verify f32
answers "which is a difference with --strict" 1 "its structure is right" "$TILEPACK" verify f32 --strict
check "in JSON, too" sh -c "'$TILEPACK' verify f32 --strict --json | grep -q '\"ok\": false'"
"$TILEPACK" unpack f32 -o copied >/dev/null 2>&1
answers "a copy is as it was written" 0 "no difference" "$TILEPACK" verify copied --strict
answers "but proves no weight" 1 "no weight was derived again" "$TILEPACK" verify copied --against f32

check "nothing sets modes, which some file systems refuse" sh -c "! grep -rqE '\bf?chmod(at)? *\(' '$TESTS/../src'"
finish
