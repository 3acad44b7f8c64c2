#!/bin/sh
# `tilepack prove` without a GPU: a plug-in made here (tests/prove/fake_plugin.c) computes the
# same on the CPU, slowly, and can be told to be wrong. Also: what is said where there is no
# plug-in, no GPU, nothing to prove, or damage.
set -u
# shellcheck source=tests/lib/preamble.sh
. "${TESTS:-$(cd "$(dirname "$0")/.." && pwd)}/lib/preamble.sh"
root=$(cd "$TESTS/.." && pwd)

"${CC:-cc}" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -fPIC -shared -I"$root/src" \
    -o "$work/fake.so" "$TESTS/prove/fake_plugin.c" -lm || exit 1
PYTHONPATH=$TESTS/lib "$PYTHON" - "$work" <<'END' || exit 1
import sys
import numpy as np
import stfile
rng = np.random.default_rng(5)

def weight(*shape):
    rows = np.exp(rng.normal(size=shape[:-1] + (1,)))
    values = (rng.normal(size=shape) * rows).astype(np.float32)
    return stfile.tensor("BF16", stfile.f32_to_bf16(values))

stfile.save(sys.argv[1] + "/plain.safetensors", {
    "layers.0.experts.w13.weight": weight(3, 48, 256), "layers.0.o_proj.weight": weight(80, 384)})
stfile.save(sys.argv[1] + "/dense.safetensors", {"o_proj.weight": weight(200, 272)})
stfile.save(sys.argv[1] + "/thin.safetensors", {"o_proj.weight": weight(100, 256)})
stfile.save(sys.argv[1] + "/both.safetensors", {
    "a_proj.weight": weight(100, 256), "o_proj.weight": weight(200, 272),
    "z_proj.weight": weight(60, 256)})
END
mkdir "$work/plain"
cp "$work/plain.safetensors" "$work/plain/model.safetensors"
echo '{}' >"$work/plain/config.json"
convert() { # source, output, format
    "$TILEPACK" convert "$work/$1" -o "$work/$2" --to "$3" --stacks enk -q --device cpu || exit 1
}
convert plain w4 w4a8-cutlass
convert plain.safetensors sm90.safetensors fp8-deepgemm-sm90
convert dense.safetensors deepseek.safetensors fp8-deepseek
convert dense.safetensors ct.safetensors fp8-ct
convert dense.safetensors sm100.safetensors fp8-deepgemm-sm100
convert plain.safetensors mx.safetensors mxfp8-ct
convert thin.safetensors narrow.safetensors fp8-deepseek
convert both.safetensors some.safetensors fp8-deepseek

prove() { "$TILEPACK" prove "$@"; }
fake() { # what is wrong with it, arguments ...
    wrong=$1
    shift
    TILEPACK_PROVE=$work/fake.so TILEPACK_FAKE=$wrong "$TILEPACK" prove "$@"
}
report() { fake "$@" --json >"$work/report.json"; }
says() { check "$1" jq -e "$2" "$work/report.json"; } # name, jq condition

# ---- before anything is computed
mkdir "$work/alone" && cp "$TILEPACK" "$work/alone/tilepack" # with nothing beside it
fails "no plug-in" 4 "libtilepack_prove.so, is not installed" \
    "$work/alone/tilepack" prove "$work/w4"
TILEPACK_PROVE=$work/none.so fails "a plug-in that is not there" 4 "none.so, is not installed" \
    prove "$work/w4"
TILEPACK_PROVE=$work/plain.safetensors fails "no library" 4 "does not load: " prove "$work/w4"
built=$(dirname "$TILEPACK")/libtilepack_prove.so # `make test` builds it, `make asan` does not
if [ -e "$built" ] && [ ! -e /dev/nvidiactl ]; then
    TILEPACK_PROVE=$built fails "the plug-in of this build loads" 6 "no GPU is usable" \
        prove "$work/sm90.safetensors"
fi
fails "another version" 4 "speaks version 3 of its interface, this program version 2" \
    fake abi "$work/w4"
fails "no GPU" 6 "no GPU is usable" fake none "$work/w4"
fails "a GPU of another number" 6 "no GPU is usable" fake "" "$work/w4" --device cuda:5
fails "another generation" 4 "compute capability 8.0; the kernels that read these weights run on 9.0" \
    fake ampere "$work/w4"
for device in cpu cuda:all cuda:0,1; do
    fails "--device $device" 2 "the kernels run on one GPU" fake "" "$work/w4" --device $device
done
for m in 0 a 70000 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17; do
    fails "--m $m" 2 "is not a list of row counts" prove "$work/w4" --m $m
done
fails "another format" 4 "there are kernels for w4a8-cutlass and for FP8" fake "" "$work/mx.safetensors"
fails "plain weights" 4 "holds nothing that a kernel here reads" fake "" "$work/plain"
fails "a plain weight by its name" 4 "tensor 'layers.0.o_proj.weight'" fake "" "$work/plain" o_proj
fails "a name that is not there" 2 "there is no tensor or weight 'nosuch'" fake "" "$work/w4" nosuch

# ---- right numbers
check "W4A8, dense and grouped" report "" "$work/w4" --m 1,17
says "every weight is exact, in shapes of both kinds" '.ok and .left == 0 and
    ([.weights[] | .ok and .exact == (.box[0] * .box[1] * .box[2]) and .wrong == null] | all) and
    ([.weights[].box] | sort) == [[1,80,384],[3,48,256]]'
says "the schedules are those that schedule predicts" '[.weights[] | select(.box[0] == 3).cases[] |
    .predicted] == ["Kernel_128x16_2x1x1_Coop","Kernel_256x32_1x1x1_Coop"]'
says "errors are within the bound, and not nothing" '[.weights[].cases[].schedules[] |
    .bound_share > 0.01 and .bound_share < 0.5 and .relative_error > 1e-4 and
    .relative_error < 5e-3] | all'
# shellcheck disable=SC2016 # the variables are of jq
says "rates follow from the times, and shares from the GPU's figures" '[.weights[] |
    (.box[0] * .box[1] * .box[2]) as $size | .cases[] | .m as $m | .roofline_us as $roof |
    .schedules[] | (.tflops * .microseconds / (2e-6 * $size * $m) - 1 | fabs) < 1e-9 and
    (.roofline_share * .microseconds / $roof - 1 | fabs) < 1e-9] | all'
for file in sm90 deepseek ct sm100; do
    check "FP8 of $file" report "" "$work/$file.safetensors" --m 1,7
    says "is exact" '.ok and (.weights | length) > 0 and ([.weights[] |
        .exact == (.box[0] * .box[1] * .box[2])] | all)'
done
check "experts, in blocks of 128 rows and in others" report "" "$work/sm90.safetensors" w13 --m 5,128
# shellcheck disable=SC2016 # the variable is of jq
says "are planned for the rows as they lie" '.ok and ([.weights[0].cases[] | .predicted as $name |
    .schedules[0] | .schedule == $name and .stages > 0] | all) and .weights[0].kernels == 2'
check "FP8 with a plug-in of nothing else" report fp8 "$work/deepseek.safetensors" --m 1
check "--tune of FP8" report "" "$work/deepseek.safetensors" --m 64 --tune
says "is what the planner would take next" '.weights[0].cases[0] | (.schedules | length) == 8 and
    .schedules[0].schedule == .predicted and ([.schedules[].schedule] | unique | length) == 8'
fails "W4A8 with a plug-in that has none" 4 "the plug-in has no kernel for it" fake fp8 "$work/w4"
fails "rows of FP8 that TMA does not read" 4 "the kernel wants n % 8 == 0, and it is 100" \
    fake "" "$work/narrow.safetensors" --m 1
check "is left out of a whole checkpoint" report "" "$work/some.safetensors" --m 1
says "and counted" '.ok and .left == 2 and [.weights[].name] == ["o_proj"]'
fails "and is an error by its name" 4 "tensor 'a_proj': the kernel wants n % 8 == 0" \
    fake "" "$work/some.safetensors" o_proj a_proj --m 1
check "one weight by the end of its name" report "" "$work/w4" o_proj --m 16
says "and no other" '[.weights[].name] == ["layers.0.o_proj"]'
check "--against another packing" report "" "$work/w4" --against "$work/w4" --m 1
"$TILEPACK" unpack "$work/sm90.safetensors" -o "$work/f32.safetensors" --dtype f32 -q || exit 1
check "--against decoded weights" report "" "$work/sm90.safetensors" --against \
    "$work/f32.safetensors" --m 1
says "are exact" '.ok and (.weights | length) > 0'
answers "--against other numbers" 1 "weights give wrong numbers" \
    fake "" "$work/sm90.safetensors" --against "$work/plain.safetensors" --m 1
fails "--against others" 3 "tensor 'o_proj': it is [1,80,384] there, and [1,200,272] here" \
    fake "" "$work/deepseek.safetensors" --against "$work/mx.safetensors" --m 1
fails "--against nothing" 5 "nowhere" fake "" "$work/w4" --against "$work/nowhere"
answers "text" 0 "2 weights proven, each of 67584 numbers exactly; NVIDIA H200" \
    fake "" "$work/w4" --m 16
check "--tune" report "" "$work/w4" w13 --m 16 --tune
says "times every schedule and knows the best" '.weights[0] | .kernels == 3 and (.cases[0] |
    .predicted == "Kernel_128x16_2x1x1_Coop" and .best == "Kernel_256x16_1x1x1_Coop" and
    (.schedules | length) == 3 and .schedules[0].schedule == .predicted)'
answers "--tune in text" 0 "best" fake "" "$work/w4" w13 --m 16 --tune
check "--write" report "" "$work/w4" --m 16,17 --tune --write
cp "$work/w4/tilepack.json" "$work/report.json"
says "keeps the best in the manifest" '.schedules | .device == "NVIDIA H200" and
    (.shapes | length) == 4 and ([.shapes[] | select(.e == 3 and .m == 16)][0] |
    .best == "Kernel_256x16_1x1x1_Coop" and .predicted == "Kernel_128x16_2x1x1_Coop" and
    .microseconds < .predicted_microseconds)'
check "which is as good as it was" "$TILEPACK" verify "$work/w4" --strict
check "and again" report "" "$work/w4" o_proj --m 16 --tune --write
cp "$work/w4/tilepack.json" "$work/report.json"
says "in place of the other" '(.schedules.shapes | length) == 1 and ([keys[] |
    select(. == "schedules")] | length) == 1'
check "and nothing beside it" test ! -e "$work/w4/tilepack.json.new"
sed 's/"plan"/"Plan"/' "$work/w4/tilepack.json" >"$work/other.json"
cp -r "$work/w4" "$work/edited"
cp "$work/other.json" "$work/edited/tilepack.json"
fails "--write over a manifest that was edited" 3 "is not as it was written" \
    fake "" "$work/edited" o_proj --m 16 --tune --write
fails "--write without --tune" 2 "--write goes with --tune" prove "$work/w4" --write
fails "--write of one file" 2 "is no directory, and has no manifest" \
    fake "" "$work/sm90.safetensors" --tune --write
answers "a schedule that was not built" 0 "Kernel_128x16_2x1x1_Coop (for Kernel_128x256_2x1x1_Coop)" \
    fake few "$work/w4" w13 --m 300

# ---- wrong ones
answers "a wrong weight" 1 "element (2,3,0): expected " fake unit "$work/w4" w13 --m 1
check "is one line of JSON" sh -c "! TILEPACK_PROVE='$work/fake.so' TILEPACK_FAKE=unit \
    '$TILEPACK' prove '$work/w4' w13 --m 1 --json >'$work/report.json'"
says "with the coordinate, expected and got" '(.ok | not) and (.weights[0] | .exact == 0 and
    (.wrong | .e == 2 and .n == 3 and .k == 0 and .count == 1 and .expected != .got and
    .schedule == "Kernel_128x16_2x1x1_Coop"))'
answers "a wrong sum" 1 "expert 2, row 0 of 1, column 3: expected " fake random "$work/w4" w13 --m 1
answers "rows that are not written" 1 "got " fake lazy "$work/w4" w13 --m 1
answers "the summary" 1 "2 of 2 weights give wrong numbers" fake unit "$work/w4" --m 1
fails "no memory on the GPU" 6 "out of memory on the GPU" fake memory "$work/w4" --m 1

# ---- damage
damage() { # where, what: in a copy of the packed directory
    rm -rf "$work/bad"
    cp -r "$work/w4" "$work/bad"
    PYTHONPATH=$TESTS/lib "$PYTHON" - "$work/bad/model.safetensors" "$1" "$2" <<'END'
import sys
import stfile
path, suffix, what = sys.argv[1:]
header, data = open(path, "rb").read(8), None
size = 8 + int.from_bytes(header, "little")
data = bytearray(open(path, "rb").read())
entries = __import__("json").loads(data[8:size])
name = next(n for n in entries if n.endswith(suffix))
at = size + entries[name]["data_offsets"][0]
if what == "nibble":
    data[at + 100] ^= 0x10
elif what == "swap":
    other = next(i for i in range(8, 4096, 8) if data[at + i:at + i + 8] != data[at:at + 8])
    data[at:at + 8], data[at + other:at + other + 8] = data[at + other:at + other + 8], data[at:at + 8]
else:
    data[at:at + 4] = b"\xff\xff\xff\x7f"
open(path, "wb").write(data)
END
}
damage weight_packed nibble
fails "a flipped nibble" 1 "the stored weights are damaged: its contents have changed" \
    fake "" "$work/bad" --m 1
answers "is a wrong number where the right ones are known" 1 "element (0,3,17): expected " \
    fake "" "$work/bad" --against "$work/w4" --m 1
answers "and nothing else is" 1 "; 1 wrong in this result" \
    fake "" "$work/bad" --against "$work/w4" --m 1
damage weight_group_scale swap
answers "a swapped scale is, too" 1 "element (0," \
    fake "" "$work/bad" --against "$work/w4" --m 1
fails "two scales swapped" 1 "the stored weights are damaged: its contents have changed" \
    fake "" "$work/bad" --m 1
damage weight_chan_scale nan
fails "a scale that is no number, where checksums are not read" 3 "is no number: " \
    fake "" "$work/bad" w13 --m 1
finish
