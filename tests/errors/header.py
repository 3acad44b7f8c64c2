"""Safetensors files that break a rule of the format, or lie about sizes."""
import json
import os
import struct

from errors.common import PLAN, case, entry, listen, raw, st, tensors
from seekable import stored, table

NAME = '{"w":'
GOOD = '{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}'


def header(name, text, data=bytes(16)):
    """A case that is one header text in front of these data bytes."""
    @case(name)
    def build():
        st(text, data)
        return PLAN


def shape(name, text, offsets="[0,16]", dtype='"F32"', data=bytes(16)):
    """The same for one tensor's dtype, shape and offsets."""
    header(name, f'{{"w":{{"dtype":{dtype},"shape":{text},"data_offsets":{offsets}}}}}', data)


# -------------------------------------------------------------- the file -- #

def whole(name, data, size=None):
    @case(name)
    def build():
        raw("in.safetensors", data, size)
        return PLAN


whole("file-empty", b"")
whole("file-of-five-bytes", b"\x10\0\0\0\0")
whole("file-git-lfs-pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
whole("file-gguf", b"GGUF\3\0\0\0" + bytes(64))
whole("file-pytorch-zip", b"PK\3\4" + bytes(64))
whole("file-json-text", b'{"metadata": {"total_size": 0}, "weight_map": {}}')
whole("header-length-zero", bytes(8))
whole("header-length-one", b"\1" + bytes(7) + b"{")
whole("header-length-beyond-file", b"\x40" + bytes(7) + b"{}")
whole("header-length-all-ones", b"\xff" * 8 + b"{}")
whole("header-length-sign-bit", bytes(7) + b"\x80" + b"{}")
whole("header-over-100-mb", (100_000_001).to_bytes(8, "little") + b"{", 100_000_001 + 8)
whole("zstd-cut-off", b"\x28\xb5\x2f\xfd\x24")
FRAME = bytes.fromhex("28b52ffd2008") + b"\x41\0\0" + b"xxxxxxxx"  # of 8 bytes, stored plain
whole("zstd-without-seek-table", FRAME)
whole("zstd-cut-off-inside-a-frame", FRAME + FRAME[:-1])
whole("zstd-frame-beyond-file", FRAME + table((len(FRAME) + 1, 8)))
whole("zstd-with-a-damaged-last-byte", FRAME + table((len(FRAME), 8))[:-1] + b"\x8e")
WHOLE = json.dumps({"w.weight": entry((128, 128))}).encode()
WHOLE = len(WHOLE).to_bytes(8, "little") + WHOLE + bytes(128 * 128 * 4)
whole("zstd-of-several-frames-without-seek-table", stored(WHOLE[:30000]) + stored(WHOLE[30000:]))


@case("zstd-frame-above-max-memory")
def zstd_frame_above_max_memory():
    """48 MiB in one frame: the header, and blocks of 128 KiB of zeros."""
    block, count = 128 << 10, 384
    plain = count * block
    text = json.dumps({"w.weight": entry((count - 1, block // 4))}).encode()
    text += b" " * (block - 8 - len(text))
    frame = bytes.fromhex("28b52ffda0") + plain.to_bytes(4, "little")
    frame += (block << 3).to_bytes(3, "little") + len(text).to_bytes(8, "little") + text
    frame += ((block << 3 | 2).to_bytes(3, "little") + b"\0") * (count - 2)
    frame += (block << 3 | 3).to_bytes(3, "little") + b"\0"
    raw("in.safetensors.zst", frame + table((len(frame), plain)))
    return ("plan", "in.safetensors.zst", "--to", "w4a8-ct", "--max-memory", "32MiB")


@case("file-missing")
def file_missing():
    return PLAN


@case("file-is-a-pipe")
def file_is_a_pipe():
    os.mkfifo("in.safetensors")
    return PLAN


@case("file-is-a-socket")
def file_is_a_socket():
    listen("in.safetensors")
    return PLAN


@case("file-is-a-device")
def file_is_a_device():
    os.symlink("/dev/zero", "in.safetensors")
    return PLAN


@case("file-is-a-dangling-link")
def file_is_a_dangling_link():
    os.symlink("nowhere.safetensors", "in.safetensors")
    return PLAN


@case("file-is-a-link-loop")
def file_is_a_link_loop():
    os.symlink("in.safetensors", "in.safetensors")
    return PLAN


@case("file-behind-a-file")
def file_behind_a_file():
    raw("plain", b"x")
    return "plan", "plain/in.safetensors", "--to", "w4a8-ct"


# ------------------------------------------------------------ JSON rules -- #

header("header-is-a-list", "[]", b"")
header("header-begins-with-space", " {}", b"")
header("header-begins-with-bom", b"\xef\xbb\xbf{}", b"")
header("header-ends-too-early", NAME + '{"dtype":"F32"')
header("header-ends-in-a-string", '{"w')
header("header-ends-in-an-escape", '{"w\\')
header("header-comma-missing", '{"a":' + GOOD + '"b":' + GOOD + "}")
header("header-comma-at-the-end", '{"w":' + GOOD + ",}")
header("header-colon-missing", '{"w"' + GOOD + "}")
header("header-text-behind-the-end", NAME + GOOD + "}x")
header("header-newline-behind-the-end", NAME + GOOD + "}\n")
header("header-nul-behind-the-end", NAME + GOOD + "}\0\0")
header("name-without-quotes", "{w:" + GOOD + "}")
header("name-not-utf8", b'{"w\xff":' + GOOD.encode() + b"}")
header("name-utf8-overlong", b'{"\xc0\xaf":' + GOOD.encode() + b"}")
header("name-utf8-surrogate", b'{"\xed\xa0\x80":' + GOOD.encode() + b"}")
header("name-utf8-cut-off", b'{"w\xe2\x82":' + GOOD.encode() + b"}")
header("name-with-a-control-byte", b'{"w\x01":' + GOOD.encode() + b"}")
header("name-with-escaped-nul", '{"w\\u0000":' + GOOD + "}")
header("name-with-half-a-surrogate-pair", '{"w\\ud800":' + GOOD + "}")
header("name-with-the-other-half-first", '{"w\\udc00":' + GOOD + "}")
header("name-with-an-unknown-escape", '{"w\\x41":' + GOOD + "}")
header("name-with-bad-hex", '{"w\\u00g0":' + GOOD + "}")

# --------------------------------------------------------------- entries -- #

header("entry-is-a-number", '{"w":1}')
header("entry-is-a-list", '{"w":[]}')
header("entry-without-dtype", '{"w":{"shape":[2,2],"data_offsets":[0,16]}}')
header("entry-without-shape", '{"w":{"dtype":"F32","data_offsets":[0,16]}}')
header("entry-without-offsets", '{"w":{"dtype":"F32","shape":[2,2]}}')
header("entry-key-twice",
       '{"w":{"dtype":"F32","dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}')
header("entry-key-unknown",
       '{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16],"stride":[2,1]}}')
header("tensor-twice", '{"w":' + GOOD + ',"w":' + GOOD + "}")
header("tensor-twice-by-an-escape", '{"w":' + GOOD + ',"\\u0077":' + GOOD + "}")

shape("dtype-unknown", "[2,2]", dtype='"F33"')
shape("dtype-in-lower-case", "[2,2]", dtype='"f32"')
shape("dtype-not-a-string", "[2,2]", dtype="32")
shape("shape-is-a-number", "4")
shape("shape-negative", "[-2,2]")
shape("shape-with-a-fraction", "[2.0,2]")
shape("shape-with-an-exponent", "[2e0,2]")
shape("shape-with-a-leading-zero", "[02,2]")
shape("shape-with-a-string", '["2",2]')
shape("shape-with-null", "[null]")
shape("shape-with-a-comma-at-the-end", "[2,2,]")
shape("shape-of-nine-dimensions", "[1,1,1,1,1,1,1,2,2]")
shape("offsets-only-one", "[2,2]", "[0]")
shape("offsets-three", "[2,2]", "[0,16,32]")
shape("offsets-negative", "[2,2]", "[-16,0]")
shape("offsets-reversed", "[2,2]", "[16,0]")
shape("offsets-an-object", "[2,2]", "{}")

# ------------------------------------------- sizes that lie or overflow -- #

shape("size-number-of-65-bits", "[18446744073709551616]")
shape("size-shape-wraps-to-zero", "[4294967296,4294967296]", "[0,0]", data=b"")
shape("size-shape-wraps-to-small", "[4294967297,4294967297]")
shape("size-of-elements-wraps", "[4611686018427387905]", "[0,4]", data=bytes(4))
shape("size-in-bits-wraps", "[2305843009213693952]", "[0,0]", '"U8"', b"")
shape("size-wraps-behind-a-zero", "[4294967296,4294967296,0]", "[0,0]", data=b"")
shape("size-smaller-than-offsets", "[2,2]", "[0,32]", data=bytes(32))
shape("size-larger-than-offsets", "[1000,1000]")
shape("size-larger-than-file", "[1000,1000]", "[0,4000000]")
shape("size-near-2-to-the-64", "[2,2]", "[18446744073709551600,18446744073709551615]")
shape("size-offset-beyond-64-bits", "[2,2]", "[0,99999999999999999999]")
shape("size-not-whole-bytes", "[3]", "[0,1]", '"F4"', bytes(1))
shape("truncated-by-one-byte", "[2,2]", data=bytes(15))
shape("truncated-without-data", "[2,2]", data=b"")

# --------------------------------------------------- holes and overlaps -- #


def ranges(name, items, data):
    @case(name)
    def build():
        st(items, bytes(data))
        return PLAN


ranges("hole-in-front", {"w": entry(begin=8)}, 24)
ranges("hole-between", {"a": entry(), "b": entry(begin=20)}, 36)
ranges("hole-at-the-end", {"w": entry()}, 20)
ranges("bytes-without-tensors", {}, 4)
ranges("overlap-by-one-byte", {"a": entry(), "b": entry(begin=15)}, 31)
ranges("overlap-inside", {"a": entry((4, 4)), "b": entry(begin=16)}, 64)
ranges("overlap-of-equals", {"a": entry(), "b": entry()}, 16)
ranges("overlap-out-of-order", {"b": entry(begin=12), "a": entry()}, 28)

# -------------------------------------------------------------- metadata -- #

header("metadata-twice", '{"__metadata__":{},"__metadata__":{}}', b"")
header("metadata-key-twice", '{"__metadata__":{"a":"1","a":"2"}}', b"")
header("metadata-not-a-string", '{"__metadata__":{"a":1}}', b"")
header("metadata-is-a-list", '{"__metadata__":[]}', b"")

# ------------------------------------------------------------- too many -- #


@case("tensors-over-a-million")
def tensors_over_a_million():
    text = ",".join(f'"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
                    for i in range(1_000_001))
    st("{" + text + "}")
    return PLAN


# ------------------------------------------------ descriptors of our own -- #

META = {"tilepack": "1"}
DESC = {"format": "w4a8-cutlass", "version": 1, "box": [1, 128, 128], "rank": 2, "params": {},
        "codec": "int4", "block": [1, 128], "outputs": []}


def described(name, descriptors, units, named=None, meta=None):
    @case(name)
    def build():
        tensors(named or {"l.weight_packed": ("I32", (128, 16))},
                meta={**(META if meta is None else meta), "tilepack.descriptors": descriptors,
                      "tilepack.units": units})
        return "plan", "in.safetensors", "--to", "w4a8-ct"


described("descriptor-not-json", "{", "[]")
described("descriptors-of-newer-version", "{}", "[]", meta={"tilepack": "2"})
described("descriptors-without-version", "{}", "[]", meta={})
described("descriptor-of-unknown-format",
          '{"d0":{"format":"w2a8-magic","version":1,"box":[1,1,1],"rank":2}}', "[]")
described("descriptor-of-newer-version",
          '{"d0":{"format":"w4a8-cutlass","version":9,"box":[1,1,1],"rank":2}}', "[]")
described("descriptor-with-negative-box",
          '{"d0":{"format":"w4a8-cutlass","version":1,"box":[1,-128,128],"rank":2}}', "[]")
described("descriptor-with-unknown-parameter",
          '{"d0":{"format":"w4a8-cutlass","version":1,"box":[1,128,128],"rank":2,'
          '"params":{"speed":"high"}}}', "[]")
described("descriptor-contradicts-format",
          '{"d0":{"format":"w4a8-cutlass","version":1,"box":[1,128,128],"rank":2,"params":{},'
          '"outputs":[]}}', "[]")
described("descriptor-unit-without-prefix", "{}", '[{"desc":"d0","dtype":"BF16"}]')
