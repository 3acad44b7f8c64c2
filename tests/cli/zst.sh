#!/bin/sh
# Seekable archives against the zstd command line: each reads what the other
# wrote, ranges come out right, and 1000 flipped bits are refused or harmless.
# Built with ASan and UBSan, so that any misstep ends the test. Needs cc and zstd.
set -eu
cd "$(dirname "$0")/../.."
CC=${CC:-cc}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM

$CC -std=c11 -D_GNU_SOURCE -Isrc -O1 -g -pthread -Wall -Wextra -Werror \
    -fsanitize=address,undefined -fno-sanitize-recover=all -o "$dir/tool" \
    tests/tools/zst_tool.c src/pack/file/zst_*.c \
    src/pack/os/os.c src/pack/os/calls.c src/pack/os/memory.c src/base/error.c src/base/num.c \
    -lzstd -lxxhash -ljansson

fail() {
    echo "zst: $*" >&2
    exit 1
}

# 11 MB: text that compresses, noise that does not, a long run of one byte.
{
    seq 1 600000
    head -c 5000000 /dev/urandom
    head -c 2000000 /dev/zero
} > "$dir/plain"
size=$(wc -c < "$dir/plain")

# Ours, restored by zstd; for several levels, threads and cuts.
for spec in "1 1 0" "3 2 1000000" "3 5 4194304" "12 2 0"; do
    # shellcheck disable=SC2086 # three words
    "$dir/tool" pack $spec "$dir/plain" "$dir/ours.zst"
    zstd -q -t "$dir/ours.zst" || fail "zstd -t refuses what 'pack $spec' wrote"
    zstd -q -d -f -o "$dir/back" "$dir/ours.zst"
    cmp "$dir/plain" "$dir/back" || fail "zstd -d differs after 'pack $spec'"
    "$dir/tool" read "$dir/ours.zst" 0 -1 | cmp - "$dir/plain" || fail "reading '$spec'"
done

# The same bytes for any number of threads.
"$dir/tool" pack 3 1 3000000 "$dir/plain" "$dir/one.zst"
"$dir/tool" pack 3 4 3000000 "$dir/plain" "$dir/four.zst"
cmp "$dir/one.zst" "$dir/four.zst" || fail "1 and 4 threads write different bytes"

# Ranges, around frame borders and anywhere.
for at in 0 1 2999999 3000000 3000001 4194303 5999990 $((size - 1)) "$size"; do
    for n in 0 1 10 4097 3500000; do
        [ $((at + n)) -le "$size" ] || continue
        "$dir/tool" read "$dir/one.zst" "$at" "$n" > "$dir/got"
        tail -c +$((at + 1)) "$dir/plain" | head -c "$n" > "$dir/want"
        cmp "$dir/got" "$dir/want" || fail "range $at + $n"
    done
done
"$dir/tool" read "$dir/one.zst" "$size" 1 2> "$dir/err" && fail "a read beyond the end succeeded"
grep -q 'beyond the end' "$dir/err" || fail "unexpected: $(cat "$dir/err")"

u32() {
    for shift in 0 8 16 24; do
        # shellcheck disable=SC2059 # the byte as an octal escape
        printf "\\$(printf %03o $(($1 >> shift & 255)))"
    done
}
seekable() { # file of one frame, its plain bytes: appends a seek table
    stored=$(wc -c < "$1")
    {
        u32 0x184D2A5E && u32 17 && u32 "$stored" && u32 "$2" && u32 1 && printf '\0' &&
            u32 0x8F92EAB1
    } >> "$1"
}
refused() { # name of a file that cannot be read in parts
    rc=0
    "$dir/tool" read "$dir/$1.zst" 0 1 > "$dir/got" 2> "$dir/err" || rc=$?
    [ "$rc" = 4 ] || fail "$1.zst: exit $rc"
    grep -q "zstd -d $dir/$1.zst" "$dir/err" || fail "no way out: $(cat "$dir/err")"
}

# zstd's frames, with and without their sizes, read by us once they have a seek table.
zstd -q -f -o "$dir/theirs.zst" "$dir/plain"
zstd -q -c < "$dir/plain" > "$dir/pipe.zst"
for name in theirs pipe; do
    refused "$name"
    seekable "$dir/$name.zst" "$size"
    "$dir/tool" read "$dir/$name.zst" 0 -1 | cmp - "$dir/plain" || fail "reading $name.zst"
    "$dir/tool" read "$dir/$name.zst" 7000000 5 | cmp - "$dir/plain" -n 5 -i 0:7000000
done

# Two of our archives in a row: to zstd a longer file, to us one whose table does
# not reach its beginning.
cat "$dir/one.zst" "$dir/one.zst" > "$dir/double.zst"
rc=0
"$dir/tool" read "$dir/double.zst" 0 -1 > "$dir/got" 2> "$dir/err" || rc=$?
[ "$rc" = 3 ] || fail "two archives in a row: exit $rc"
grep -q 'do not add up' "$dir/err" || fail "unexpected: $(cat "$dir/err")"

# One frame of more than 64 MiB cannot be read in parts.
head -c 67108865 /dev/zero | zstd -q --stream-size=67108865 -c > "$dir/huge.zst"
seekable "$dir/huge.zst" 67108865
refused huge
head -c 67108864 /dev/zero | zstd -q --stream-size=67108864 -c > "$dir/large.zst"
seekable "$dir/large.zst" 67108864
"$dir/tool" read "$dir/large.zst" 67108863 1 | cmp - /dev/zero -n 1 || fail "64 MiB frame"

# A checkpoint of large frames is read, with a warning.
TILEPACK=${TILEPACK:-build/tilepack}
header='{"a.down_proj.weight":{"dtype":"BF16","shape":[8192,2048],"data_offsets":[0,33554432]}}'
{
    u32 ${#header} && u32 0 && printf %s "$header" && head -c 33554432 /dev/zero
} > "$dir/model.safetensors"
size=$((8 + ${#header} + 33554432))
zstd -q --stream-size=$size -c < "$dir/model.safetensors" > "$dir/model.safetensors.zst"
seekable "$dir/model.safetensors.zst" $size
"$TILEPACK" plan "$dir/model.safetensors.zst" --to w4a8-ct > "$dir/got" 2> "$dir/err" ||
    fail "a frame of 32 MiB: $(cat "$dir/err")"
grep -q "it has frames of up to 32 MiB" "$dir/err" || fail "no warning: $(cat "$dir/err")"
"$TILEPACK" plan "$dir/model.safetensors" --to w4a8-ct > "$dir/plain-plan" 2> "$dir/err"
! grep -q frames "$dir/err" || fail "a plain file has frames: $(cat "$dir/err")"

# Frames that are large beside the memory are unpacked once or twice, and not for each piece of a
# weight that lies in them, nor for each row of a transposed one that lies in all of them: what is
# read of the archive is what the program read in all.
cat > "$dir/frames.py" <<'PYTHON'
import json
import math
import os
import random
import struct
import subprocess
import sys

folder, program, lib = sys.argv[1:]
sys.path.insert(0, lib)
import seekable  # noqa: E402

NARROW = bytes(0x3C | byte & 0x83 for byte in range(256))  # high bytes: finite, of like sizes
NOISE = random.Random(1)


def archive(name, frame_size, shapes):
    """Writes a model of random weights in such frames; its path."""
    header, data = {}, b""
    for tensor, shape in shapes.items():
        values = bytearray(NOISE.randbytes(2 * math.prod(shape)))
        values[1::2] = values[1::2].translate(NARROW)
        header[tensor] = {"dtype": "BF16", "shape": shape,
                          "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path = os.path.join(folder, name + ".safetensors.zst")
    with open(path, "wb") as file:
        file.write(seekable.archive(struct.pack("<Q", len(text)) + text + data, frame_size))
    return path


def converts(source, form, memory):
    output = source.removesuffix(".zst") + "." + form
    child = subprocess.Popen([program, "convert", "-q", "--device", "cpu", "-j", "2",
                              "--max-memory", memory, "--to", form, source, "-o", output])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with open(f"/proc/{child.pid}/io", encoding="ascii") as counts:
        read = int(counts.readline().split()[1])
    if child.wait():
        sys.exit(f"{form}: status {child.returncode}")
    times = read / os.path.getsize(source)
    if times > 2:
        sys.exit(f"{form}: {times:.1f} times the archive was read")


def convert_in(source, memory):
    """Its status, and what it says."""
    done = subprocess.run([program, "convert", "-q", "--device", "cpu", "-j", "2", "--max-memory",
                           f"{memory}MiB", "--to", "fp8-deepseek", source, "-o", source + ".out",
                           "--force"], stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr


def refused_or_done(source, memories):
    """Where it is refused more memory is asked for, and the most of these is enough."""
    for memory in memories:
        status, text = convert_in(source, memory)
        if status and (status != 6 or "--max-memory" not in text or memory == memories[-1]):
            sys.exit(f"in {memory} MiB: status {status}: {text}")


rows = archive("rows", 4 << 20, {f"layers.{i}.up_proj.weight": [4096, 2048] for i in range(3)})
for form in ("w4a16-marlin", "mxfp4-trtllm", "fp8-deepseek"):
    converts(rows, form, "48MiB")
experts = "model.layers.0.feed_forward.experts.gate_up_proj"
stack = archive("stack", 16 << 20, {experts: [1, 4096, 8192]})
for form in ("fp8-dynamic-ct", "w4a16-marlin"):
    converts(stack, form, "192MiB")
for name, size in (("thirds", 30 << 20), ("sixths", 60 << 20)):
    model = archive(name, size, {f"layers.{i}.up_proj.weight": [4096, 3072] for i in range(3)})
    refused_or_done(model, (33, 56, 110, 139, 163, 300))

# What is enough is no matter of the pages that the heap happens to have.
wide = os.path.join(folder, "wide.safetensors")
with open(wide, "wb") as plain:
    text = b'{"a.down_proj.weight":{"dtype":"BF16","shape":[64,131072],"data_offsets":[0,16777216]}}'
    plain.write(struct.pack("<Q", len(text)) + text)
    plain.truncate(8 + len(text) + (16 << 20))
compress = [program, "convert", "-q", "--device", "cpu", "-j", "4", "--to", "mxfp8-ct", "--zstd",
            wide, "-o", wide + ".zst", "--force", "--max-memory"]
if subprocess.run([*compress, "32MiB"], stderr=subprocess.DEVNULL, check=False).returncode != 6:
    sys.exit("an encoder fits into 32 MiB")
for i in range(12):
    subprocess.run([*compress, "64MiB"], check=True)
PYTHON
"${PYTHON:-python3}" "$dir/frames.py" "$dir" "$TILEPACK" tests/lib || fail "frames are unpacked many times"

# Flipped bits, in a file small enough to be read a thousand times.
head -c 300000 "$dir/plain" > "$dir/small"
tail -c +4000000 "$dir/plain" | head -c 60000 >> "$dir/small"
"$dir/tool" pack 3 2 50000 "$dir/small" "$dir/small.zst"
"$dir/tool" flip "$dir/small.zst" "$dir/small" 1000 1
echo "zst: ok"
