#!/bin/sh
# verify: what it says of whole, damaged, incomplete and foreign checkpoints, with
# and without --against. TILEPACK_TEST_FLIPS: flipped bits of a directory (300);
# those of single files are tests/unit/test_verify.c's.
set -u
# shellcheck source=tests/lib/preamble.sh
. "$(dirname "$0")/../lib/preamble.sh"
# shellcheck source=tests/lib/read_fails.sh
. "$TESTS/lib/read_fails.sh"
says() { # name, status, text, arguments of verify ...
    said=$1 status=$2 text=$3
    shift 3
    answers "$said" "$status" "$text" in_work verify "$@"
}
fresh() { rm -rf "$work/d" && cp -r "$work/packed" "$work/d"; }

"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/src" --preset tiny-mixtral --quiet || exit 1
"$TILEPACK" convert "$work/src" -o "$work/packed" --to w4a8-cutlass --search none --shard-size 1MB -q || exit 1
"$TILEPACK" convert "$work/src/model-00001-of-00004.safetensors" -o "$work/one.safetensors" \
    --to mxfp8-blocked --no-stack -q || exit 1

# Whole.
says "a directory" 0 "packed: no difference; 10 files hashed" packed
says "a single file" 0 "one.safetensors: no difference; 1 file hashed" one.safetensors
says "one shard of a directory" 0 "no difference" packed/model-00001-of-00004.safetensors
says "a checkpoint of another tool" 0 "src: not written by tilepack: its structure is right" src
says "with its source" 0 "no difference" packed --against src
says "a single file with its source" 0 "no difference" one.safetensors \
    --against src/model-00001-of-00004.safetensors
"$TILEPACK" verify "$work/packed" -q --against "$work/src" >"$work/quiet" 2>&1
check "--quiet says nothing of a good one" test "$? $(wc -c <"$work/quiet")" = "0 0"

# The figures, folded and not, are the same for any number of threads.
for jobs in 1 3; do
    "$TILEPACK" verify "$work/packed" --against "$work/src" -v -j $jobs 2>"$work/note$jobs" |
        sed '$d' >"$work/table$jobs"
    "$TILEPACK" verify "$work/packed" --against "$work/src" --json -j $jobs |
        sed 's/"seconds": *[0-9.e-]*/"seconds": 0/' >"$work/json$jobs"
done
check "figures do not depend on threads" cmp "$work/table1" "$work/table3"
check "nor do those of --json" cmp "$work/json1" "$work/json3"
check "--verbose has a line for every weight" test "$(grep -c ' equal$' "$work/table1")" = 12
says "equal layers are one line" 0 "model.layers.*.self_attn.q_proj" packed --against src

# Values that no figure can have: mxfp4-ct stores the largest as infinite.
"$PYTHON" - "$TESTS/lib" "$work" <<'EOF' || exit 1
import sys

sys.path.insert(0, sys.argv[1])
import numpy as np
import stfile

for name, most in (("huge", 3.38e38), ("partly", 1)):
    values = np.full((128, 256), most, np.float32)
    values[:, :32] = 3.38e38
    stfile.save(f"{sys.argv[2]}/{name}.safetensors", {"b.weight": stfile.from_f32("F32", values)})
stfile.save(f"{sys.argv[2]}/biased.safetensors", {
    "b.bias": stfile.from_f32("BF16", np.ones(128, np.float32)),
    "b.weight": stfile.from_f32("BF16", np.eye(128, 256, dtype=np.float32))})
stfile.save(f"{sys.argv[2]}/foreign.safetensors", {
    "c.weight_packed": stfile.tensor("I32", np.zeros((8, 32), np.int32)),
    "c.weight_scale": stfile.from_f32("BF16", np.ones((8, 2), np.float32)),
    "c.weight_shape": stfile.tensor("I64", np.array([8, 248]))})
EOF
says "one that contradicts itself" 1 "foreign.safetensors: not written by tilepack: 1 difference in its \
structure (3 tensors, 1 of them packed weights)" foreign.safetensors
for name in huge partly; do
    in_work convert $name.safetensors -o $name-out.safetensors --to mxfp4-ct --include . -q || exit 1
done
no_figure() { in_work verify "$1-out.safetensors" --against "$1.safetensors" | sed -n '2s/  */ /gp;3p'; }
check "infinite values are not exact" test "$(no_figure huge)" = \
"b 1 [128,256] mxfp4-ct - - - 0.00 equal
32768 values are NaN or infinite, in the source or as stored, and in no figure"
check "nor where all others are" test "$(no_figure partly)" = \
"b 1 [128,256] mxfp4-ct - - - 0.00 equal
4096 values are NaN or infinite, in the source or as stored, and in no figure"
figures='{w["max_abs"], w["relative"], w["sqnr_db"]} == {None}'
in_work verify huge-out.safetensors --against huge.safetensors --json >"$work/none"
check "null with --json" "$PYTHON" -c "import json, sys
[w] = json.load(open(sys.argv[1]))['weights']; assert $figures" "$work/none"
in_work diff huge.safetensors huge-out.safetensors --json >"$work/none"
check "and of diff" "$PYTHON" -c "import json, sys
[w] = json.load(open(sys.argv[1]))['items']; assert $figures" "$work/none"
in_work diff huge.safetensors huge-out.safetensors >"$work/none"
check "a dash in its table" grep -q "F32  *mxfp4-ct  values  *-  *-$" "$work/none"
in_work compare huge.safetensors --to mxfp4-ct --include . --full >"$work/none"
check "and compare does not call them exact" grep -q "exact, or hold values that are NaN or inf" \
    "$work/none"

# Of two codes in a byte it is the one that differs.
for change in "0x40 209" "0x4 208" "0x44 208"; do
    "$PYTHON" - "$TESTS/lib" "$work/partly-out.safetensors" "$work/nibble.safetensors" \
        "${change% *}" <<'EOF' || exit 1
import sys

sys.path.insert(0, sys.argv[1])
import stfile

entries, _, start = stfile.header(sys.argv[2])
data = bytearray(open(sys.argv[2], "rb").read())
data[start + entries["b.weight_packed"]["data_offsets"][0] + 1000] ^= int(sys.argv[4], 16)
open(sys.argv[3], "wb").write(data)
EOF
    says "the code that was changed, $change" 1 "element e=0 n=7 k=${change#* }" \
        nibble.safetensors --against partly.safetensors
done

# A bias that the source has in an order of its own, and the result plain.
in_work convert biased.safetensors -o marlin.safetensors --to fp8-marlin --include . -q || exit 1
in_work convert marlin.safetensors -o plain-bias.safetensors --to mxfp8-ct --include . -q || exit 1
says "a bias that became plain" 0 "; 2 weights derived again, 0 tensors compared;" \
    plain-bias.safetensors --against marlin.safetensors
check "has no line" test "$(grep -c equal$ "$work/out") $(grep -c bias "$work/out")" = "1 1"
says "and none in JSON" 0 '"format": "mxfp8-ct"' plain-bias.safetensors --against \
    marlin.safetensors --json
in_work compare marlin.safetensors --to mxfp8-ct >"$work/none"
check "and compare makes it plain" test $? = 0

# Nor on the device. Where there is no GPU, one that is asked for is missed as convert misses it.
"$TILEPACK" verify "$work/packed" --against "$work/src" --json --device cpu |
    sed 's/"seconds": *[0-9.e-]*/"seconds": 0/' >"$work/json-cpu"
check "figures with --device cpu" cmp "$work/json1" "$work/json-cpu"
says "--verbose says which device and why" 0 "device: cpu: as asked" packed --against src -v \
    --device cpu
TILEPACK_DISABLE=${TILEPACK_DISABLE:+$TILEPACK_DISABLE,}cuda
export TILEPACK_DISABLE
for device in cuda cuda:0; do
    in_work convert src -o none --to w4a8-cutlass --device $device -q >"$work/missed" 2>&1
    check "convert --device $device without a GPU" test $? = 6
    says "verify --device $device without a GPU" 6 "--device $device: " packed --against src \
        --device $device
    cp "$work/out" "$work/said"
    check "says the same" cmp "$work/missed" "$work/said"
done
says "it is missed before anything is read" 6 "--device cuda: " nothing-there --against src \
    --device cuda
TILEPACK_DEVICE=cuda
export TILEPACK_DEVICE
says "the environment has the default" 6 "--device cuda: " packed --against src
says "without a source there is nothing to derive" 0 "no difference" packed
unset TILEPACK_DEVICE
says "another word for a device" 2 "--device 'gpu': it is not one of" packed --device gpu

# --json is one object, and says what the exit status says.
cat >"$work/look.py" <<'EOF'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["ok"] and report["by_tilepack"] and not report["problems"], report
assert len(report["weights"]) == report["packed"] == 12
for weight in report["weights"]:
    assert weight["equal"] and 0.1 < weight["relative"] < 0.13 and 17.5 < weight["sqnr_db"] < 19.5
EOF
check "--json" "$PYTHON" "$work/look.py" "$work/json1"

# What unpack wrote is derived again from the packed checkpoint.
"$TILEPACK" unpack "$work/packed" -o "$work/plain" -q || bad "unpack"
says "unpacked, with the packed one" 0 "no difference" plain --against packed
"$TILEPACK" unpack "$work/packed" -o "$work/plain32" --dtype f32 -q || bad "unpack to f32"
says "unpacked to f32" 0 "no difference" plain32 --against packed

# Damaged. 1: found by its hash, whatever it was.
fresh
printf 'X' | dd of="$work/d/model-00002-of-00004.safetensors" bs=1 seek=100000 conv=notrunc 2>/dev/null
says "a changed byte in a shard" 1 \
    "model-00002-of-00004.safetensors: its contents have changed: the hash is" d
says "is one difference for its header and one for the manifest" 1 "d: 2 differences" d
says "and is named against the source" 1 "of its" d --against src
cp "$work/out" "$work/named"
check "with its element" grep -q "element e=[0-9]* n=[0-9]* k=[0-9]*" "$work/named"
fresh
printf ' ' >>"$work/d/config.json"
says "a longer config.json" 1 "config.json: has" d
fresh
sed -i 's/"hidden_size": 256/"hidden_size": 257/' "$work/d/config.json"
says "a changed config.json" 1 "config.json: its contents have changed" d
fresh
sed -i 's/output head/output hand/' "$work/d/tilepack.json"
says "a changed manifest" 1 "tilepack.json: its text has changed" d
fresh
rm "$work/d/tokenizer.json"
says "a missing file" 1 "tokenizer.json: cannot" d
fresh
echo hello >"$work/d/notes.txt"
ln -s nowhere "$work/d/link.bin"
ln -s loop "$work/d/loop"
mkfifo "$work/d/pipe"
for name in link.bin loop pipe; do
    says "so is what is no file: $name" 0 "$name is not in the manifest; --strict would" d
done
says "and refused, too" 1 "d: 4 differences" d --strict
check "other readers do not mind it" in_work dump d
fails "but a conversion" 5 "cannot look at the file" in_work unpack d -o unpacked -q
rm "$work/d/link.bin" "$work/d/loop" "$work/d/pipe"
says "a file that was added is named" 0 "notes.txt is not in the manifest; --strict would" d
says "and refused with --strict" 1 "notes.txt: is not in the manifest" d --strict
says "JSON names it" 0 '"file": "notes.txt"' d --json
cp "$work/d/model-00001-of-00004.safetensors" "$work/d/extra.safetensors"
says "weights that were added are a difference" 1 "extra.safetensors: is not in the manifest" d
rm "$work/d/extra.safetensors"
echo hello >"$work/d/model-00001-of-00004.safetensors.zst"
says "an archive beside its plain file is" 1 \
    "model-00001-of-00004.safetensors.zst: is not in the manifest" d
rm "$work/d/model-00001-of-00004.safetensors.zst" "$work/d/notes.txt"
"$TILEPACK" convert "$work/src" -o "$work/squeezed" --to w4a8-cutlass --zstd -q || bad "--zstd"
"$TILEPACK" convert "$work/src" -o "$work/unsqueezed" --to w4a8-cutlass -q ||
    bad "without --zstd"
cp "$work/unsqueezed/model.safetensors" "$work/squeezed/"
says "a plain file beside its archive is one, said once" 1 "squeezed: 2 differences" squeezed
says "and the archive is not said to have changed" 1 \
    "model.safetensors.zst: is not read: the file without .zst" squeezed
rm "$work/squeezed/model.safetensors.zst"
says "what zstd -d restores is right" 0 "no difference" squeezed --strict
cp "$work/squeezed/model.safetensors" "$work/restored"
"$TILEPACK" convert "$work/src" -o "$work/again" --to w4a8-cutlass --zstd -q || bad "--zstd"
mv "$work/again/model.safetensors.zst" "$work/squeezed/model.safetensors"
says "an archive under its name is not" 1 "model.safetensors: is not in the manifest" squeezed
mv "$work/restored" "$work/squeezed/model.safetensors"
rm -r "$work/again"
printf x | dd of="$work/squeezed/model.safetensors" bs=1 seek=50000 conv=notrunc 2>/dev/null
says "unless it has changed" 1 "model.safetensors: its contents have changed" squeezed
rm -r "$work/squeezed" "$work/unsqueezed"
cp -r "$work/src" "$work/carded"
printf '# A model\n' >"$work/carded/README.md"
"$TILEPACK" convert "$work/carded" -o "$work/card" --to fp8-ct --digest sha256 -q || bad "a card"
echo more >>"$work/card/README.md"
says "a model card that was changed is named" 0 "README.md has changed since the conversion" card
says "and refused with --strict" 1 "README.md: has " card --strict
rm "$work/card/README.md"
says "a missing one is a difference" 1 "README.md: cannot" card
fresh
echo hello >"$work/d/.hidden"
mkdir "$work/d/logs"
says "hidden files and directories are the user's" 0 "no difference" d
fresh
rm "$work/d/tilepack.json"
says "no manifest" 1 "tilepack.json: is missing" d
fresh
rm "$work/d/model-00003-of-00004.safetensors"
says "no shard" 3 "model-00003-of-00004.safetensors" d
fresh
truncate -s -1 "$work/d/model-00001-of-00004.safetensors"
says "a shard cut short" 3 "model-00001-of-00004.safetensors" d
says "no checkpoint at all" 3 "config.json" packed/config.json
says "nothing" 5 "nothing-there" nothing-there

# Against something else.
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/other" --preset tiny-mixtral --seed 2 --quiet
"$PYTHON" "$TESTS/../samples/gen_checkpoint.py" "$work/llama" --preset tiny-llama --quiet
says "the source of another training" 1 "are not those that the source gives" packed --against other
says "another model" 3 "this is another model" packed --against llama
says "a source for what was not converted" 4 "does not say how it was converted" src --against src

# Converted with options: they are recorded, and done again.
"$TILEPACK" convert "$work/src" -o "$work/set" --to fp8-deepseek --set variant=div \
    --set scale=ue8m0 --exclude 'layers\.0' --no-stack -q || bad "convert with options"
says "recorded options" 0 "no difference" set --against src
# Damaged, what is recorded is a fault of the file, and not of the command line.
# A format by another name may be one that is not known here.
for change in 'variant/varient' 'fp8-deepseek/fp8-deepseel' 'ue8m0/ue8m9'; do
    cp -r "$work/set" "$work/d2"
    sed -i "s/$change/" "$work"/d2/*.safetensors
    case $change in
    *deepseel) says "damaged: $change" 4 "the format 'fp8-deepseel' is not known here" d2 --against src ;;
    *) says "damaged: $change" 3 "the recorded request" d2 --against src ;;
    esac
    rm -r "$work/d2"
done

check "flipped bits of a directory" "$PYTHON" "$TESTS/bytes/roundtrip.py" flips "$work/packed" \
    "${TILEPACK_TEST_FLIPS:-300}"

# Folders that hold files of the manifest have no others; what else there is, is the user's.
cp -r "$work/src" "$work/sub"
mkdir -p "$work/sub/1_Pooling/more"
echo '{}' >"$work/sub/1_Pooling/config.json"
echo text >"$work/sub/1_Pooling/more/a.txt"
"$TILEPACK" convert "$work/sub" -o "$work/folders" --to w4a8-cutlass -q || bad "convert with folders"
mkdir "$work/folders/mine" "$work/folders/1_Pooling/mine"
echo text | tee "$work/folders/mine/a" >"$work/folders/1_Pooling/mine/a"
says "folders of the manifest and of mine" 0 "no difference" folders
echo text >"$work/folders/1_Pooling/more/b.txt"
says "a file too many in a folder" 1 "1_Pooling/more/b.txt: is not in the manifest" --strict folders

# A file that the system cannot read is no difference: nothing is known of what it holds.
unread() { # call, end of the file's name, path, options ...
    call=$1 name=$2 path=$3
    shift 3
    fails "$call of $name in $path fails $*" 5 "$name: cannot " \
        reading_fails "$call" "$name" 5 "$TILEPACK" verify "$work/$path" "$@"
    fails "$call of $name in $path fails --json $*" 5 "$name: cannot " \
        reading_fails "$call" "$name" 5 "$TILEPACK" verify "$work/$path" --json "$@"
    check "which JSON says $call $name $path $*" jq -e '.error.code == 5 and .error.errno == 5' \
        "$work/out"
}
if can_preload; then
    "$TILEPACK" convert "$work/src" -o "$work/sha" --to w4a8-cutlass -q --digest sha256 || bad "digests"
    for call in open pread; do
        for name in tilepack.json model.safetensors.index.json config.json README.md; do
            unread "$call" "$name" packed
        done
        unread "$call" config.json sha
    done
    unread stat tilepack.json packed
    # nor is a path or a folder missing that cannot be looked at
    touch "$work/packed/stray.txt"
    unread stat stray.txt packed
    rm "$work/packed/stray.txt"
    fails "dump of a folder that cannot be listed" 5 "sha: cannot open the directory" \
        reading_fails open sha 5 "$TILEPACK" dump "$work/sha"
    fails "digest" 5 "sha: cannot look at" reading_fails stat sha 5 "$TILEPACK" digest "$work/sha"
    fresh
    rm "$work/d/README.md"
    says "a file that is missing is one" 1 "README.md: cannot open: No such file" d
fi

# A manifest with an entry of more than a megabyte.
fresh
"$PYTHON" -c '
import sys
with open(sys.argv[1] + "/tilepack.json", "w") as f:
    f.write("{\"tilepack\":1,\"plan\":\"x\",\"files\":[{\"name\":\"%s\",\"xxh3\":\"%s\",\"size\":1}]%s}"
            % ("A" * 530_000, "B" * 900_000, " " * 200_000))
' "$work/d"
says "an entry of a megabyte" 1 "lacks a plain name, size or hash" d
fresh
touch "$work/d/notes.tar.zst"
says "an archive of the user's own" 0 "no difference" d

finish
