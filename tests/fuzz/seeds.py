#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: seeds.py PROGRAM CORPUS.

Files `seed-*` in CORPUS/TARGET; the other files there were found by fuzzing. They hold what
this version writes, so run it again when formats, parts or journals change.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM, CORPUS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIME = 1700000000  # as folder.h sets it
P = "model.layers.0.mlp.down_proj."


def seed(target, name, data):
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed-" + name), "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def header(*tensors, **meta):
    """JSON of tensors (name, dtype, shape, bytes), and the size of their data."""
    at, entries = 0, {"__metadata__": meta} if meta else {}
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return json.dumps(entries, separators=(",", ":")), at


def shard(*tensors, **meta):
    text, size = header(*tensors, **meta)
    return f"{text}\n{size}".encode()


def bundle(line, **files):
    parts = [line.encode()]
    for name, data in files.items():
        data = data if isinstance(data, bytes) else data.encode()
        assert b"\n\1" not in data
        parts.append(b"\1" + name.encode() + b"\n" + data)
    return b"\n".join(parts)  # what is behind the last file would be of it


def read(path):
    with open(path, "rb") as file:
        return file.read()


def tree(*folders):
    """Files below the folders, as a bundle has them, hidden ones included."""
    paths = []
    for folder in folders:
        paths += sorted(os.path.join(at, name) for at, _, names in os.walk(folder)
                        for name in names)
    return {path: read(path) for path in paths}


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())
    os.utime(path, (TIME, TIME))


def tensors_file(tensors, **meta):
    """The bytes that the targets make of a shard()."""
    text, size = header(*tensors, **meta)
    data = bytes(0x3f if i & 1 else i * 29 & 255 for i in range(size))
    return struct.pack("<Q", len(text)) + text.encode() + data


def run(*words, status=0):
    done = subprocess.run([PROGRAM, *words], capture_output=True, check=False)
    assert done.returncode == status, (words, done)


CONFIG = '{"model_type": "llama", "torch_dtype": "bfloat16"}'
PLAIN = [(P + "weight", "BF16", [128, 128], 32768), ("model.norm.weight", "BF16", [128], 256)]
PAIR = [(f"model.layers.{i}.mlp.down_proj.weight", "BF16", [32, 256], 16384) for i in (0, 1)]
SMALL = [(f"model.layers.{i}.mlp.down_proj.weight", "BF16", [8, 64], 1024) for i in (0, 1)]
QKV = [(f"model.layers.0.self_attn.{n}_proj.weight", "BF16", [32, 128], 8192) for n in "qkv"]
EXPERTS = [(f"model.layers.0.block_sparse_moe.experts.{e}.w{w}.weight", "BF16",
            [32, 128] if w != 2 else [128, 32], 8192) for e in (0, 1) for w in (1, 2, 3)]
GPTQ = [(P + "qweight", "I32", [16, 64], 4096), (P + "qzeros", "I32", [1, 8], 32),
        (P + "scales", "F16", [1, 64], 128), (P + "g_idx", "I32", [128], 512)]
AWQ = [(P + "qweight", "I32", [128, 8], 4096), (P + "qzeros", "I32", [1, 8], 32),
       (P + "scales", "F16", [1, 64], 128)]
FP8 = [(P + "weight", "F8_E4M3", [128, 128], 16384), (P + "weight_scale_inv", "F32", [1, 1], 4)]
NVFP4 = [(P + "weight_packed", "U8", [128, 64], 8192),
         (P + "weight_scale", "F8_E4M3", [128, 8], 1024),
         (P + "weight_global_scale", "F32", [1], 4)]
FORMATS = [
    "w4a8-ct", "w4a8-cutlass", "fp8-deepseek", "fp8-ct", "fp8-deepgemm-sm100", "fp8-1x128",
    "mxfp8-ct", "mxfp4-ct", "nvfp4-ct", "mxfp8-blocked", "mxfp4-blocked", "nvfp4-blocked",
    "mxfp8-torchao3d", "w4a16-ct", "fp8-dynamic-ct"
]


def hub():
    typed = [
        "acme/tiny", "https://huggingface.co/acme/tiny", "hf://acme/tiny/tree/0123abc/sub",
        "https://hf.co/acme/tiny/tree/refs%2Fpr%2F1/sub?x=y", "hub/models--acme--tiny/",
        "https://huggingface.co/acme/tiny/blob/main/model.safetensors", "acme/tinny", "",
        "hub/models--acme--tiny/snapshots/0123abc", "acme/tiny/model.safetensors",
        "https://huggingface.co/acme/tiny/resolve/main/x", "https://huggingface.co/acme", "nothing"
    ]
    for i, name in enumerate(typed):
        seed("hub", f"typed-{i:02}", f"{name}\n0123abc")
    refs = ["", "0123abc\r", "../snapshots/0123abc", ".", "nowhere"]
    for i, text in enumerate(refs):
        seed("hub", f"refs-{i}", f"acme/tiny\n{text}\nsnapshots/other\nrefs/v2")


def containers():
    index = {
        "metadata": {"total_size": 1}, "weight_map": {"a": "b.safetensors", "c": "b.safetensors"}
    }
    seed("index", "two", json.dumps(index))
    seed("index", "escapes",
         '{"weight_map":{"\\u0061\\ud83d\\ude00":"x\\/y"},"n":[1.5e3,null,true]}')
    wrong = [
        '{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}', '{"weight_map":{"a":"x"}}',
        '{"weight_map":{"a":"x\\u0001.safetensors"}}', '{"weight_map":{},"weight_map":{}}',
        '{"weight_map":{"a":"' + "x" * 300 + '.safetensors"}}', '{"a":1}', '{"weight_map":{}} x',
        '{"weight_map":{"b":"x.safetensors","a":"x.safetensors","b":"x.safetensors",'
        '"a":"x.safetensors"}}'
    ]
    values = [
        '"\\u12G4"', '"\\uABCD\\u20ac\\u00e9"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\u0041"',
        '"\\x"', '"a',
        '"\x01"', "01", "99999999999999999999", "1.", "1e", "[1 2]", '{"a" 1}', "-", "tru",
        "[" * 200,
        '"\u0800\ud7ff\ue000\uffff\U00010000\U000fffff\U00100000"', "[1,]", "1.5e+3", "-0.0", ""
    ]
    wrong += ['{"n":' + value + "}" for value in values]
    for i, text in enumerate(wrong):
        seed("index", f"wrong-{i:02}", text)
    no_utf8 = [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf5a", b"\xc3(",
               b"\xf4\x90\x80\x80", b"\xc1\xbf"]
    for i, data in enumerate(no_utf8):
        seed("index", f"utf8-{i}", b'{"n":"' + data + b'"}')
    for name in ("../x.safetensors", "", "."):
        seed("index", "name-%d" % len(name), json.dumps({"weight_map": {"a": name}}))
    for name, tensors in (("plain", PLAIN[1:]), ("none", [])):
        seed("header", name, tensors_file(tensors, format="pt"))
    seed(
        "header", "dtypes",
        tensors_file([(d, d, [2], n)
                      for d, n in (("F64", 16), ("F32", 8), ("F16", 4), ("BF16", 4), ("I64", 16),
                                   ("U8", 2), ("BOOL", 2), ("F8_E4M3", 2), ("F8_E5M2", 2),
                                   ("F4", 1), ("F8_E8M0", 2), ("C64", 16))]))
    seed("json_edit", "config", '{"a": 1, "q": {"x": [1, "}"]}, "b": "\\u00e9"}')
    seed("json_edit", "empty", "{}")
    seed("json_edit", "nested", '{\n  "text_config": {"q": null},\n  "q" : -1.5e-3\n}\n')
    for name, text in (("lists", r"re:.*\.(q|k)_proj$"
                        "\0model.q_proj"), ("glob", "glob:*.mlp.[a-c]?\0a.mlp.bx"),
                       ("look", r"(?i)^(?!x)(?:a|b{2,3}?)+\d\s[^\w]\x41"
                        "\0abb1 -A"), ("long", "a" * 4097 + "\0a"),
                       ("steps", "(a*)*(a*)*b\0" + "a" * 60), ("empty", ""),
                       ("limit", "(a|aa)+\\d|(a+)+x$\0" + "a" * 60 + "c0x."),
                       ("heap", "(?:(a)|b)*c\0" + "ab" * 9000), ("lines", ".*b$\0a\nab"),
                       ("refused", "x" * 80 + "(\0a"), ("utf8", "\u00e9" * 30 + "(\0a"),
                       ("class", "[[:odd:]]\0a"), ("behind", r"(?<=a)b(?<!c)\b$"
                                                   "\0ab"), ("brace", "glob:{a,b}**/c\0b/c")):
        seed("pattern", name, text)
    patterns = [
        r"\x4", r"\U00110000", r"\101\7", r"[\400]", r"\777", "a\\", r"\N{DASH}", r"\q", "[z-a]",
        "(?i)é",
        "(?i)[à-ö]", r"[\101-\x7a\n]", "[[.a.]]", "[[=a=]]", "(?i)[[:alpha:]]",
        "[[:alpha:][:^digit:]]",
        "[a", "[]a]", "[^]a]", "[a-]", r"[\w-\d]", r"\u00e9\t\f\v\a\r", "a{2,1}", "a{,3}",
        "a{99999999}", "a**",
        "(?P<n>a)(?P=n)", "(?P<n>a)(?P<n>b)", "(?P<1>a)", "(?#x)a", "(?#x", "(?-i:a)(?s-m:b)",
        "(?L)a", "(?a)\\w",
        "(?x)a b # c", "(?<n>a)", "(?>a)", "(a)(?(1)b|c)", "(?=a)*", "(?<=a+)b", "(?<=ab|c)d",
        r"\1", r"(a)\1",
        r"\A\Z\B\b", "^*", "a|*", "()", "(?:", ")", "a{1", "a++", "a*+", "(?iu)a", "(?t)", "(?",
        "(?P", "(?P>"
    ]
    globs = ["[a", "[^a]", "[[:alpha:]]", "[!a]", "[]a]", "\\*", "[\\*]", "[z-a]", "[a-", "{a",
            "a**b", "?" * 9]
    for i, text in enumerate(patterns + ["glob:" + glob for glob in globs]):
        seed("pattern", f"each-{i:02}", text + "\0ab")
    seed("pattern", "bytes", b"a\xffb\0a")
    for level, size in ((1, 300), (3, 100000)):
        path = "data"
        write(path, bytes(i * i & 255 for i in range(size)))
        subprocess.run(["zstd", "-q", "-f", f"-{level}", path], check=True)
        seed("zst", f"frame-{size}", read(path + ".zst"))


def headers():
    """One wrong thing each; the 8 bytes of the length are right."""

    def raw(name, text, rest=0):
        seed("header", name, struct.pack("<Q", len(text)) + text.encode() + b"x" * rest)

    def one(name, rest=4, **change):
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **change}
        raw(name, json.dumps({"a": {k: v for k, v in entry.items() if v is not None}}), rest)

    ok = '{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}'
    raw("unsorted", '{"a":%s,"b":%s,"c":%s}' % (ok % (8, 12), ok % (0, 4), ok % (4, 8)), 12)
    raw("hole", '{"a":%s,"b":%s}' % (ok % (0, 4), ok % (8, 12)), 12)
    raw("overlap", '{"a":%s,"b":%s}' % (ok % (0, 4), ok % (2, 6)), 6)
    raw("same", '{"a":%s,"b":%s,"c":%s}' % (ok % (4, 8), ok % (4, 8), ok % (0, 4)), 8)
    raw(
        "nothing", '{"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},"a":%s,'
        '"c":{"dtype":"U8","shape":[0,3],"data_offsets":[0,0]}}' % (ok % (0, 4)), 4)
    raw("twice", '{"a":%s,"a":%s}' % (ok % (0, 4), ok % (4, 8)), 8)
    raw("late", '{"a":%s}' % (ok % (4, 8)), 8)
    raw("rest", '{"a":%s}' % (ok % (0, 4)), 8)
    raw("short", '{"a":%s}' % (ok % (0, 4)), 2)
    raw("behind", '{"a":%s} x' % (ok % (0, 4)), 4)
    raw("spaces", '{"a":%s}  \t' % (ok % (0, 4)), 4)
    raw("meta", '{"__metadata__":{"a":"\\u00e9\\n","b":""},"x":%s}' % (ok % (0, 4)), 4)
    raw("meta-twice", '{"__metadata__":{"a":"1","a":"2"}}')
    raw("meta-again", '{"__metadata__":{},"__metadata__":{}}')
    raw("meta-type", '{"__metadata__":{"a":1}}')
    raw("list", "[1]")
    raw("cut", '{"a":{"dtype"')
    one("dimensions", shape=[1] * 65)
    one("large", shape=[1 << 40, 1 << 40])
    one("negative", shape=[-1])
    one("fraction", shape=[1.5])
    one("dtype", dtype="F33")
    one("dtype-type", dtype=5)
    one("backwards", data_offsets=[4, 0])
    one("three", data_offsets=[0, 4, 5])
    one("beyond", data_offsets=[0, 400])
    one("bits", dtype="F4", shape=[3])
    one("size", shape=[2])
    for key in ("dtype", "shape", "data_offsets"):
        one("without-" + key, **{key: None})
    one("more", more={"deep": [None, True, 1e3]})
    raw("key-twice", '{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
    raw("no-object", '{"a":5}')
    raw("escape", '{"a\\ud800":1}')
    raw("utf8", '{"a\\u0000":1}')
    seed("header", "length", struct.pack("<Q", 1 << 60) + b"{}")
    seed("header", "tiny", b"12345")


def archives():

    def frame(data, *options):
        return subprocess.run(["zstd", "-q", "-c", *options],
                              input=data,
                              capture_output=True,
                              check=True).stdout

    def table(name, *frames, sums=False, rows=None, flag=None):
        import ctypes
        import ctypes.util
        library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
        library.XXH64.restype, library.XXH64.argtypes = ctypes.c_uint64, [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64
        ]
        body = b"".join(data for data, _ in frames)
        entries = b""
        for data, plain in frames if rows is None else rows:
            entries += struct.pack("<II", len(data), len(plain))
            entries += struct.pack("<I",
                                   library.XXH64(plain, len(plain), 0)
                                   & 0xffffffff) if sums else b""
        flags = (0x80 if sums else 0) if flag is None else flag
        foot = struct.pack("<IBI", len(frames if rows is None else rows), flags, 0x8F92EAB1)
        seed("zst", name, body + struct.pack("<II", 0x184D2A5E,
                                             len(entries) + len(foot)) + entries + foot)

    texts = [b"a" * 1000, bytes(range(256)) * 3, b"", b"z" * 70000]
    made = [(subprocess.run(["zstd", "-q", "-c", "--content-size", f"--stream-size={len(t)}"],
                            input=t,
                            capture_output=True,
                            check=True).stdout, t) for t in texts]
    table("table", *made)
    table("sums", *made, sums=True)
    table("sums-wrong",
          *made[:2],
          sums=True,
          rows=[(made[0][0], made[1][1]), (made[1][0], made[0][1])])
    table("sum-wrong", made[0], sums=True, rows=[(made[0][0], texts[0][:-1] + b"b")])
    table("stream-less", (frame(texts[3]), texts[3][:-1]))
    table("stream-more", (frame(texts[3]), texts[3] + b"z"))
    table("flag", *made[:1], flag=3)
    table("fewer", *made[:2], rows=made[:1])
    table("less", made[0], rows=[(made[0][0], texts[0][:-1])])
    table("more", made[0], rows=[(made[0][0], texts[0] + b"a")])
    table("stream", (frame(texts[0]), texts[0]))
    skip = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    table("skippable", (skip, b""), made[0])
    table("empty", made[2], made[0], made[2])
    table("empty-damaged", (made[2][0][:-1] + b"\1", b""), made[0])
    table("none")
    seed("zst", "cut", made[0][0][:-3])

    def foot(name, body, rows, count=None, flag=0, size=None):
        """A seek table of any numbers behind any bytes."""
        entries = b"".join(struct.pack("<II", *row) for row in rows)
        end = struct.pack("<IBI", len(rows) if count is None else count, flag, 0x8F92EAB1)
        seed("zst", name, body + struct.pack("<II", 0x184D2A5E, len(entries) + len(end)
                                             if size is None else size) + entries + end)

    data = made[0][0]
    foot("table-reserved", data, [(len(data), 1000)], flag=4)
    foot("table-long", data, [(len(data), 1000)], count=1 << 30)
    foot("table-head", data, [(len(data), 1000)], size=9)
    foot("table-outside", data, [(1 << 30, 1000)])
    foot("table-large", data, [(len(data), 1 << 30)])
    foot("table-skip", skip, [(len(skip) - 1, 0), (9, 0)])
    foot("table-garbage", made[0][0] + b"x" * 20, [(len(data), 1000), (20, 0)])
    foot("table-not-empty", data, [(len(data), 0)])
    foot("table-many", data, [(len(data), 1000)] + [(len(skip), 0)] * 600)
    cut = struct.pack("<IB", 0xFD2FB528, 0xC3) + b"\1\2"
    foot("table-cut-head", cut, [(len(cut), 0)])
    foot("table-dictionary",
         struct.pack("<IB", 0xFD2FB528, 0x23) + b"\1\0\0\0\0\1\0\0", [(13, 0)])
    seed("zst", "tiny", data[:10])
    seed("zst", "nothing", b"")


def importances():
    names = ["model.layers.0.mlp.down_proj", "model.layers.1.self_attn.k_proj"]
    tensors = [(n + ".weight", "F32", [4], 16) for n in names]
    text, size = header(*tensors)
    floats = struct.pack("<8f", *range(1, 9))
    seed("importance", "safetensors", struct.pack("<Q", len(text)) + text.encode() + floats)
    text, size = header(("model.layers.0.mlp.experts.weight", "F32", [2, 4], 32))
    seed("importance", "stack", struct.pack("<Q", len(text)) + text.encode() + floats)
    text, size = header(("a.weight", "BF16", [4], 8))
    seed("importance", "dtype", struct.pack("<Q", len(text)) + text.encode() + floats[:8])
    short = ["blk.0.ffn_down.weight", "blk.1.attn_k.weight", "blk.0.ffn_up_exps.weight"]

    def dat(names, calls=1, tail=b"", count=4):
        return struct.pack("<i", len(names)) + b"".join(
            struct.pack("<i", len(n)) + n.encode() + struct.pack("<ii", calls, count) + floats[:16]
            for n in names) + tail

    seed("importance", "dat", dat(short, tail=struct.pack("<ii", 7, 4) + b"text"))
    seed("importance", "dat-calls", dat(short[:1], calls=0))
    seed("importance", "dat-twice", dat(short[:1] * 2))
    seed("importance", "dat-cut", dat(short)[:-5])
    seed("importance", "dat-count", dat(short[:1], count=-1))

    def text_of(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def gguf(name, tensors, meta=b"", count=0, version=3, magic=b"GGUF"):
        head = magic + struct.pack("<IQQ", version, len(tensors), 1 + count)
        head += text_of("general.type") + struct.pack("<I", 8) + text_of("imatrix") + meta
        data = b""
        for title, shape, kind, values in tensors:
            head += text_of(title) + struct.pack("<I", len(shape)) + b"".join(
                struct.pack("<Q", n) for n in shape) + struct.pack("<IQ", kind, len(data))
            data += values + b"\0" * (-len(values) % 32)
        seed("importance", "gguf-" + name, head + b"\0" * (-len(head) % 32) + data)

    sums = [(n + ".in_sum2", [4, 2] if "exps" in n else [4, 1], 0,
             floats if "exps" in n else floats[:16]) for n in short]
    counts = [(n + ".counts", [1, 2] if "exps" in n else [1, 1], 0,
               floats[4:12] if "exps" in n else floats[4:8]) for n in short]
    both = [t for pair in zip(sums, counts) for t in pair]
    meta = (text_of("imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + text_of("wiki") +
            text_of("imatrix.chunk_count") + struct.pack("<II", 4, 5) + text_of("f") +
            struct.pack("<Id", 12, 1.5) + text_of("b") + struct.pack("<IB", 7, 1) + text_of("n") +
            struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 4, 1) + struct.pack("<I", 3))
    gguf("all", both, meta, 5)
    gguf("no-counts", sums)
    gguf("kind", [(short[0] + ".in_sum2", [4, 1], 1, floats[:8])] + counts[:1])
    gguf("version", both, version=9)
    gguf("dimensions", [(short[0] + ".in_sum2", [4, 1, 1, 1, 1], 0, floats[:16])])
    gguf("align", both, text_of("general.alignment") + struct.pack("<II", 4, 64), 1)

    def plain(name, *tensors, data=floats):
        text, _ = header(*tensors)
        seed("importance", name, struct.pack("<Q", len(text)) + text.encode() + data)

    seed("importance", "short", b"1234567")
    plain("no-entry", data=b"")
    plain("unclaimed", ("model.layers.9.mlp.other.weight", "F32", [4], 16), data=floats[:16])
    for i, value in enumerate((float("nan"), float("inf"), -1.0)):
        plain(f"number-{i}", tensors[0], data=floats[:12] + struct.pack("<f", value))
    gguf("count", [sums[0], (short[0] + ".counts", [1, 1], 0, struct.pack("<f", float("nan")))])
    gguf("outside", [(n + ".weight.in_sum2", [4, 1], 0, floats[:16])
                     for n in ("output", "token_embd", "output_norm")])
    gguf("name", [("x" * 3000 + ".in_sum2", [4, 1], 0, floats[:16])])
    gguf("stray-counts", counts[:1])
    gguf("outside-counts", [sums[0], (short[0] + ".counts", [1 << 40, 1], 0, floats[:4])])
    gguf("large", [(short[0] + ".in_sum2", [1 << 40, 1 << 40], 0, floats[:16])])
    gguf("many", [(short[0] + ".in_sum2", [4, 1 << 40, 1 << 40], 0, floats[:16])])
    gguf("align-0", both, text_of("general.alignment") + struct.pack("<II", 4, 0), 1)
    gguf("type", both, text_of("x") + struct.pack("<I", 99), 1)
    gguf("list-type", both, text_of("x") + struct.pack("<IIQ", 9, 99, 1), 1)
    gguf("list-long", both, text_of("x") + struct.pack("<IIQ", 9, 10, 1 << 62), 1)
    gguf("pairs", both, count=5)
    whole = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text_of("a.in_sum2") + struct.pack("<I", 2)
    for size in (6, 20, 30, len(whole), len(whole) + 10):
        seed("importance", f"gguf-cut-{size}", (whole + bytes(40))[:size])
    seed("importance", "gguf-counts", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0) + bytes(40))
    seed("importance", "dat-trailer", dat(short, tail=struct.pack("<ii", 7, 9) + b"text"))
    seed("importance", "dat-tail", dat(short, tail=b"12345"))
    seed("importance", "dat-end", dat(short, tail=b"12"))
    seed("importance", "dat-name", struct.pack("<ii", 1, 1 << 20) + bytes(40))
    seed("importance", "header", struct.pack("<Q", 1 << 40) + b"{}" + bytes(40))
    seed("importance", "dat-outside", dat(["output.weight", "token_embd.weight", "blk.0.x",
                                           "blk.99999999999999999999.ffn_down.weight"]))


def layouts():
    texts = {}
    for name in FORMATS:
        facts = json.loads(
            subprocess.run([PROGRAM, "formats", name, "--json"], capture_output=True,
                           check=True).stdout)
        stack = [facts]
        while stack:
            value = stack.pop()
            if isinstance(value, dict):
                stack += value.values()
                if isinstance(value.get("layout"), str):
                    texts[value["layout"]] = name
            elif isinstance(value, list):
                stack += value
    for i, (text, name) in enumerate(sorted(texts.items())):
        box = "2 128 128" if "E" in text else "1 128 256"
        seed("layout", f"{i:02}-{name}", f"{box}\n{text}\n{text}\nalign(N,4)*2+ceil(K,128)-E/1\n")
    seed("layout", "small", "1 4 4\n(E,N,K):(N*K,K,1)\n(1,2,4):(8,4,1)\n(N+K)*E")
    seed("layout", "not", "1 4 4\n(E,N,K):(N*K,1,1)\n(1,(2,2),4):(16,(1,8),2)\nN/3")
    seed("layout", "align",
         "1 100 100\n(E,align(N,16),align(K,32)):(1,1,align(N,16))\n\n18446744073709551615*N")


def tables():
    header_2025 = ("m,n,k,num_groups,num_sms,is_grouped_contiguous,is_grouped_masked,"
                   "is_fp32_out,is_wgrad")
    header_new = "arch,gemm_type,kernel,m,n,k,num_groups,num_sms,cd_dtype,with_accumulation"
    seed(
        "csv", "2025", header_2025 + "\n64,2048,7168,1,132,0,0,0,0\n4096,4096,4096,8,78,1,0,0,0\r\n"
        "128,7168,2048,4,132,0,1,0,0\n\n64,64,64,1,132,0,0,1,1\n")
    rows = [
        "9,normal,1d2d,64,2048,7168,1,132,bf16,0",
        "10,m_contiguous,1d1d,4096,4096,4096,8,148,bf16,0",
        "9,m_masked,1d2d,128,7168,2048,4,132,bf16,0", "10,normal,1d1d,1,576,7168,1,148,f32,1",
        "9,normal,1d1d,64,64,128,1,20,f32,1", "10,m_masked,1d1d,192,4096,7168,6,148,bf16,0"
    ]
    seed("csv", "new", header_new + "\n" + "\n".join(rows))
    for i, (column, value) in enumerate(
        (("m", "x"), ("m", "0"), ("gemm_type", "odd"), ("arch", "8"), ("kernel", "2d"),
         ("cd_dtype", "f16"), ("n", "99999999999"), ("with_accumulation", "2"))):
        row = rows[0].split(",")
        row[header_new.split(",").index(column)] = value
        seed("csv", f"wrong-{i}", header_new + "\n" + ",".join(row) + "\n")
    seed("csv", "columns", header_new + "\n9,normal\n")
    seed("csv", "missing", "m,n\n1,2\n")
    seed("csv", "illegal", header_2025 + "\n64,2049,7168,1,132,1,1,0,0\n")


def configs():

    def one(name, choice, value):
        seed("config", name,
             bytes([choice]) + (value if isinstance(value, bytes) else json.dumps(value).encode()))

    lists = {"ignore": ["lm_head", r"re:.*\.down_proj", "*x_proj", "", "model.layers.0"]}
    ct = {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {
            "group_0": {
                "weights": {"num_bits": 4, "group_size": 16}, "format": "nvfp4-pack-quantized"
            }
        }
    }
    gptq = {
        "quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq",
        "dynamic": {r"-:.*\.x": {}, "+:y": {"bits": 8}}
    }
    fp8 = {
        "quant_method": "fp8", "weight_block_size": [128,
                                                     128], "modules_to_not_convert": ["x_proj"],
        "ignored_layers": ["a*b"], "exclude_modules": ["re:("]
    }
    one("plain", 0, {"a": 1})
    for f in range(4):
        one(f"plain-{f}", f << 4 | 0x40, {"a": [1], "quantization_config": lists})
        one(f"fp8-{f}", f << 4 | 2, {"quantization_config": dict(fp8, exclude_modules=["m"])})
        one(f"gptq-{f}", f << 4 | 1, {"quantization_config": gptq})
        one(f"nvfp4-{f}", f << 4 | 3 | 0x80, {"quantization_config": ct})
        one(f"excluded-{f}", f << 4 | 1,
            {"quantization_config": dict(gptq, dynamic={}, modules_to_not_convert=["down_proj"])})
    one("unpack-fp8", 2 | 8, {"quantization_config": fp8})
    one("unpack-foreign", 4 | 8, {"quantization_config": dict(fp8, exclude_modules=[])})
    one("unpack-foreign-ct", 4 | 8, {"quantization_config": {"quant_method": "compressed-tensors"}})
    one("unpack-foreign-own", 4 | 8, {"quantization_config": {"quant_method": "tilepack"}})
    one("unpack-foreign-none", 4 | 8, {"quantization_config": {"quant_method": "fp8"}})
    one("unpack-gptq", 1 | 8, {"compression_config": dict(gptq, dynamic={})})
    one("nested", 2,
        {"text_config": {"quantization_config": fp8, "b": 2}, "compression_config": {}})
    one("method", 1, {"quantization_config": {"quant_method": "awq", "bits": 4}})
    one("bits", 1, {"quantization_config": {"quant_method": "gptq", "bits": 8}})
    one("group", 1, {"quantization_config": {"quant_method": "gptq", "group_size": 64}})
    one("row", 1, {"quantization_config": {"quant_method": "gptq", "group_size": -1}})
    one("block", 2,
        {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 128]}})
    for key, value in (("num_bits", 8), ("group_size", 32)):
        other = json.loads(json.dumps(ct))
        other["config_groups"]["group_0"]["weights"][key] = value
        one("ct-" + key, 3, {"quantization_config": other})
    one("ct-format", 3, {"quantization_config": dict(ct, format="x", config_groups={"g": {}})})
    one("ct-mixed", 3, {"quantization_config": dict(ct, format="mixed-precision")})
    one("unknown", 0, {"quantization_config": {"quant_method": "odd", "bits": 3}})
    one("no-object", 0, {"quantization_config": [1], "text_config": 5})
    for i, own in enumerate(
        ({"ignore": ["re:.*nothing$", "re:.*down.*"]}, {"dynamic": {"-:.*down": {}, "+:x": {}}},
         {"ignore": ["a*b", "*x*y", "model.*.1.mlp", "model.*.0.mlp.down*"]},
         {"ignored_layers": ["*down_proj"]}, {"ignore": ["re:(a|b)*c"],
                                              "exclude_modules": ["z.y"]})):
        one(f"lists-{i}", 0, {"quantization_config": own})
    for choice in (0x10, 0x40, 0x50, 0x70):
        one(f"text-{choice}", choice,
            {"text_config": {"quantization_config": {}, "b": 1}, "dtype": "bfloat16"})
    one("gptq-kept", 1,
        {"quantization_config": dict(gptq, dynamic={}, modules_to_not_convert=["down_proj"],
                                     checkpoint_format="gptq_v2")})
    for i, value in enumerate(("[]", "5", '"x"', "null", '{"a": 1, "a": 2}', "{} x", "\ufeff{}")):
        one(f"whole-{i}", 0x40, value.encode())
    numbers = {"numbers": [float("nan"), float("inf"), -float("inf"), 2 ** 64, -2 ** 64, 2 ** 62]}
    one("numbers", 1, {"quantization_config": dict(gptq, **numbers), **numbers})
    one("numbers-kept", 4 | 8,
        {"quantization_config": dict(fp8, exclude_modules=[], kv_cache_scheme=numbers)})
    one("broken", 0, b'{"quantization_config": {"quant_method": ')
    one("wild", 0x40,
        {"quantization_config": {"ignore": ["*.down*proj", "model*0.mlp", "a*", "lm_*d"]}})
    one("literal", 0x40,
        {"quantization_config": {"ignore": ["mlp.down_proj", 5, "re:lm.*(?=head)"]}})


def requests():
    rules = [{"match": r"\.down_proj", "to": "w4a8-ct", "set": {}, "search": "mse"},
             {"match": "norm", "keep": True, "optional": True, "comment": "x"}]
    seed("request", "recipe", "r" + json.dumps({"rules": rules, "comment": "c"}))
    wrong = [[], {}, {"rules": []}, {"rules": {},
                                     "x": 1}, {"rules": [5]}, {"rules": [{"match": "("}]},
             {"rules": [{"match": "a",
                         "to": "w4a8-cutlas"}]}, {"rules": [{"match": "a", "odd": 1}]},
             {"rules": [{"match": "a", "keep": True,
                         "set": {}}]}, {"rules": [{"match": 5, "keep": True}]},
             {"rules": [{"match": "a", "keep": True,
                         "search": "mse"}]}, {"rules": [{"match": "(", "keep": True}]},
             {"rules": [{"match": "a", "to": "fp8-deepseek", "set": {"variant": 5}}]
              }, {"rules": [{"match": "a", "to": "fp8-deepseek", "set": {"variant": "odd"}}]}, {
                  "rules": [
                      {"match": "a", "to": "nvfp4-ct", "search": "mse", "importance": "a.imatrix"},
                      {"match": "b", "to": "nvfp4-ct", "search": "mse", "importance": "a.imatrix"},
                      {"match": "c", "to": "nvfp4-ct", "search": "mse", "importance": "b.imatrix"}
                  ]
              }, {
                  "rules": [{
                      "match": "a", "to": "w4a8-ct", "search": "mse", "signed": True,
                      "importance": "none", "plain": "convert"
                  }]
              }]
    for i, value in enumerate(wrong):
        seed("request", f"recipe-{i:02}", "r" + json.dumps(value))
    seed("request", "recipe-broken", "r{")
    recorded = {
        "rules": [{"match": "", "to": "fp8-deepseek", "set": {"variant": "v2"}},
                  {"match": "x", "keep": True}, {
                      "match": "glob:*.y", "to": "w4a8-ct", "search": "w4a8", "signed": True,
                      "importance": "magnitude"
                  }], "include": ["lm_head", "glob:*a*"], "exclude": ["b$"], "no_stack": True,
        "keep_nonfinite": False, "requantize": True, "repack_only": True, "restore": "BF16",
        "shard_size": 1000, "digest": "sha256"
    }
    seed("request", "recorded", json.dumps(recorded))
    for i, change in enumerate(
        ({"include": ["("]}, {"exclude": ["(?P<"]}, {"rules": [{"to": "odd"}]
                                                     }, {"rules": [{"match": "("}]},
         {"rules": [{"match": "", "to": "fp8-deepseek", "set": {"variant": "x"}}]
          }, {"rules": [{"to": "w4a8-ct", "search": "mse", "importance": "file"}]})):
        seed("request", f"recorded-{i}", json.dumps(dict(recorded, **change)))
    seed("request", "no-object", "[]")
    with open(os.path.join(ROOT, "models", "mixtral.json"), encoding="utf-8") as file:
        model = json.load(file)
    for i, change in enumerate(
        ({"stacks": "ekn", "merged": True, "weights_only": True, "plain": "keep"}, {"stacks": "odd"},
         {"model": model}, {"model": {"name": 5}}, {"model": []})):
        seed("request", f"recorded-model-{i}", json.dumps(dict(recorded, **change)))
    for i, rule in enumerate(({"match": "", "keep": True},
                              {"match": "a", "to": "w4a8-ct", "set": {"odd": "x"}},
                              {"match": "a", "to": "w4a8-ct", "search": "mse",
                               "importance": "folder/a.imatrix"})):
        seed("request", f"recipe-rule-{i}", "r" + json.dumps({"rules": [rule]}))


def digits(text):
    return text.decode().split("\n")


def commands():
    config = {"src/config.json": CONFIG}
    for name in FORMATS:
        seed(
            "command", "to-" + name,
            bundle(f"convert src -o out --to {name}", **{"src/model.safetensors": shard(*PLAIN)},
                   **config))
    both = {"a.safetensors": shard(*QKV, format="pt")}
    index = {
        "src/a.safetensors": shard(*EXPERTS[:3]), "src/b.safetensors": shard(*EXPERTS[3:]),
        "src/model.safetensors.index.json": json.dumps({
            "weight_map": {
                t[0]: "a.safetensors" if t in EXPERTS[:3] else "b.safetensors"
                for t in EXPERTS
            }
        }), **config
    }
    lines = [
        "convert src -o out --to w4a8-cutlass --no-stack --digest sha256",
        "convert src -o out --to nvfp4-blocked --shard-size 20kB --zstd",
        "convert src -o out --to mxfp4-ct --include w2 --exclude re:a --strict --search mse",
        "convert src -o out --to w4a8-ct --search mse --signed --importance magnitude",
        "plan src --to fp8-ct --json", "convert src -o out --to fp8-deepseek --part 1_2",
        "verify src --json", "dump src", "schedule src --m 1,64 --gpu h200"
    ]
    for i, line in enumerate(lines):
        seed("command", f"experts-{i}", bundle(line, **index))
    for i, line in enumerate(
        ("convert a.safetensors -o out.safetensors --to fp8-1x128",
         "dump a.safetensors model.layers.0.self_attn.q_proj.weight --at 1,2",
         "diff a.safetensors a.safetensors", "dump a.safetensors --json",
         "dump a.safetensors model.layers.0.self_attn.q_proj.weight --values 0:2,0:4")):
        seed("command", f"file-{i}", bundle(line, **both))
    for name, tensors, method in (("gptq", GPTQ, {
            "quant_method": "gptq", "bits": 4, "group_size": 128
    }), ("awq", AWQ, {"quant_method": "awq", "bits": 4, "group_size": 128
                      }), ("fp8", FP8, {"quant_method": "fp8", "weight_block_size": [128, 128]}),
                                  ("nvfp4", NVFP4, {"quant_method": "compressed-tensors"})):
        files = {
            "src/model.safetensors": shard(*tensors),
            "src/config.json": json.dumps({"quantization_config": method})
        }
        seed("command", name + "-unpack", bundle("unpack src -o out --dtype f32", **files))
        seed("command", name + "-convert",
             bundle("convert src -o out --to w4a8-cutlass --requantize", **files))
    seed(
        "command", "recipe",
        bundle(
            "convert src -o out --recipe r.json", **{
                "src/model.safetensors": shard(*PLAIN),
                "r.json": json.dumps({"rules": [{"match": "down", "to": "mxfp8-blocked"}]})
            }, **config))
    mixed = {"src/model.safetensors": shard(*QKV, *PAIR), **config}
    for i, (q, pair) in enumerate((("w4a8-ct", "nvfp4-ct"), ("fp8-deepseek", "w4a8-ct"),
                                   ("w4a8-cutlass", "mxfp8-ct"), ("fp8-ct", "fp8-deepseek"),
                                   ("gptq", "awq"), ("gptq", "w4a16-marlin"))):
        rules = {"rules": [{"match": "self_attn", "to": q}, {"match": "mlp", "to": pair}]}
        seed("command", f"mixed-{i}",
             bundle("convert src -o out --recipe r.json", **mixed, **{"r.json": json.dumps(rules)}))
    kept = {"src/model.safetensors": shard(*GPTQ, *QKV), "src/config.json": json.dumps(
        {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                 "checkpoint_format": "gptq"}})}
    seed("command", "gptq-kept", bundle("convert src -o out --to w4a8-cutlass --exclude down",
                                        **kept))
    kinds = [(f"model.layers.{i}.mlp.down_proj.weight", "BF16", [128, 128], 32768)
             for i in (0, 1)]
    rules = [{"match": f"layers.{i}", "to": "mxfp8-ct", "set": {"scale": scale}}
             for i, scale in enumerate(("floor", "rceil"))]
    seed("command", "kinds", bundle("convert src -o out --recipe r.json", **{
        "src/model.safetensors": shard(*kinds), "r.json": json.dumps({"rules": rules})}, **config))
    several_ = ["w4a8-ct", "nvfp4-ct", "mxfp8-ct", "mxfp4-ct", "w4a16-ct", "w8a16-ct", "int8-ct",
                "fp8-ct", "fp8-dynamic-ct", "fp8-tensor-ct"]
    kinds = [(f"model.layers.{i}.mlp.down_proj.weight", "BF16", [128, 128], 32768)
             for i in range(len(several_))]
    rules = [{"match": f"layers.{i}.", "to": to} for i, to in enumerate(several_)]
    seed("command", "many-kinds", bundle("convert src -o out --recipe r.json", **{
        "src/model.safetensors": shard(*kinds), "r.json": json.dumps({"rules": rules})}, **config))
    nested = json.dumps({"text_config": {"model_type": "llama", "quantization_config": {
        "quant_method": "fp8"}}, "model_type": "llama"})
    seed("command", "nested-config", bundle("convert src -o out --to w4a8-ct", **{
        "src/model.safetensors": shard(*PLAIN), "src/config.json": nested}))
    cache = json.dumps({"quantization_config": {
        "quant_method": "fp8", "weight_block_size": [128, 128],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"}}})
    seed("command", "cache-scheme", bundle("convert src -o out --to mxfp8-ct --requantize", **{
        "src/model.safetensors": shard(*FP8), "src/config.json": cache}))
    for line in ("formats", "formats nvfp4-ct --json", "help convert", "completions zsh",
                 "convert -h", "man-options dump own", "digest .",
                 "schedule --shape 7168,2048 --m 4096 --kernel deepgemm --why"):
        seed("command", "w-" + line.replace(" ", "-")[:20], bundle(line, x="y"))


def directories():
    """What a directory may hold that is no checkpoint, or not all of one."""
    a, b = shard(*PAIR[:1]), shard(*PAIR[1:])
    place = "src/model.safetensors.index.json"

    def one(name, line="dump src --json", weight_map=None, **files):
        if weight_map is not None:
            files[place] = json.dumps({"weight_map": weight_map})
        files = {key.replace("__", "/", 1).replace("__", "."): data for key, data in files.items()}
        seed("command", "dir-" + name, bundle(line, **files))

    first, second = PAIR[0][0], PAIR[1][0]
    one("none", src__config__json=CONFIG)
    one("two", src__a__safetensors=a, src__b__safetensors=b)
    one("one-of-many", **{"src__m-00001-of-00003__safetensors": a})
    one("two-of-many", **{"src__m-00002-of-00003__safetensors": a})
    one("both", src__a__safetensors=a, src__a__safetensors__zst="x")
    one("model", src__a__safetensors=a, src__model__safetensors=b)
    one("archive", src__model__safetensors__zst="x")
    one("empty", src__model__safetensors="")
    one("short", src__model__safetensors="x" * 12)
    one("cut", src__model__safetensors=struct.pack("<Q", 99) + b"{}")
    one("no-path", line="dump nothing")
    one("slashes", line="dump src", src__a__safetensors=a)
    one("map-none", weight_map={}, src__a__safetensors=a)
    one("map-missing", weight_map={first: "a.safetensors"})
    one("map-archive", weight_map={first: "a.safetensors", second: "a.safetensors.zst"},
        src__a__safetensors=shard(*PAIR))
    one("map-other", weight_map={first: "b.safetensors", second: "b.safetensors"},
        src__a__safetensors=a, src__b__safetensors=b)
    one("map-swapped", weight_map={first: "b.safetensors", second: "a.safetensors"},
        src__a__safetensors=a, src__b__safetensors=b)
    one("map-twice", weight_map={first: "a.safetensors", second: "b.safetensors"},
        src__a__safetensors=a, src__b__safetensors=shard(*PAIR))
    one("map-lacks", weight_map={first: "a.safetensors"}, src__a__safetensors=shard(*PAIR))
    one("map-more", weight_map={first: "a.safetensors", "x": "a.safetensors"},
        src__a__safetensors=a)
    one("map-unread", weight_map={first: "a.safetensors"}, src__a__safetensors=a,
        src__b__safetensors=b, src__c__safetensors__zst="x")
    one("strict", line="convert src -o out --to w4a8-ct --strict", src__model__safetensors=a,
        src__config__json=CONFIG, src__other__txt="x", src__hf_quant_config__json="{}")


def stored():
    """Packed weights in the forms of other tools, and what contradicts its own words."""
    fp8, block = [128, 128], (P + "weight", "F8_E4M3", [128, 128], 16384)
    scales = {
        "f32": ("F32", [1, 1], 4), "bf16": ("BF16", [1, 1], 2), "f16": ("F16", [1, 1], 2),
        "e8m0": ("F8_E8M0", [1, 1], 1), "u8": ("U8", [1, 1], 1), "i32": ("I32", [1, 1], 4),
        "row": ("F32", [128, 1], 512), "row-bf16": ("BF16", [128, 1], 256),
        "row-e8m0": ("F8_E8M0", [128, 1], 128), "tensor": ("F32", [], 4)
    }
    for name, (dtype, shape, size) in scales.items():
        for suffix in ("weight_scale_inv", "weight_scale"):
            files = {
                "src/model.safetensors": shard(block, (P + suffix, dtype, shape, size)),
                "src/config.json": json.dumps({"quantization_config": {
                    "quant_method": "fp8", "weight_block_size": fp8}})
            }
            seed("command", f"fp8-{name}-{suffix[12:] or 'plain'}",
                 bundle("unpack src -o out", **files))
    blocks, sizes = ("model.layers.0.mlp.experts.down_proj_blocks", "U8", [2, 64, 4, 16], 8192), 512
    seed("command", "gpt-oss", bundle(
        "convert src -o out --to mxfp4-blocked", **{
            "src/model.safetensors": shard(
                blocks, ("model.layers.0.mlp.experts.down_proj_scales", "U8", [2, 64, 4], sizes)),
            "src/config.json": '{"model_type": "gpt_oss"}'
        }))
    for kind in ("gpt_oss", "llama4", "dbrx", "qwen3_vl_moe"):
        seed("command", "turned-" + kind, bundle(
            "convert src -o out --to mxfp8-ct --json", **{
                "src/model.safetensors": shard(
                    ("model.layers.0.mlp.experts.down_proj", "BF16", [2, 64, 32], 8192),
                    ("model.layers.0.mlp.experts.gate_up_proj", "BF16", [2, 32, 128], 16384)),
                "src/config.json": json.dumps({"model_type": kind})
            }))


def filled_file(byte, *tensors):
    text, size = header(*tensors)
    return struct.pack("<Q", len(text)) + text.encode() + bytes([byte]) * size


def zeros_file(*tensors):
    """Of zeros, which say nothing as zero points and as an order of columns."""
    return filled_file(0, *tensors)


def besides():
    """What other tools store beside a packed weight: nothing of it, or more than can be said."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}

    def one(name, to, method, data):
        seed("command", "beside-" + name, bundle(
            f"convert src -o out --to {to} --requantize", **{
                "src/model.safetensors": data,
                "src/config.json": json.dumps({"quantization_config": method})
            }))

    zero = (P + "weight_zero_point", "I8", [1, 1], 1)
    order = (P + "g_idx", "I32", [128], 512)
    for make, kind in ((zeros_file, "nothing"), (shard, "more")):
        one("zeros-" + kind, "fp8-dynamic-ct", fp8, make(*FP8, zero))
        one("order-" + kind, "fp8-ct", fp8, make(*FP8, order))
        one("awq-order-" + kind, "w4a16-ct", awq, make(*AWQ, order))
    for suffix in ("pre_quant_scale", "svdquant_lora_a", "hadamard_matrix"):
        one(suffix, "fp8-dynamic-ct", fp8, shard(*FP8, (P + suffix, "F32", [128], 512)))
    for shape in ([64], [8, 8]):
        one(f"act-{len(shape)}", "gptq", awq,
            shard(*AWQ, ("model.layers.0.mlp.act.scales", "F16", shape, 128)))
    for to in ("gptq", "awq", "w4a16-marlin", "w4a16-machete", "w4a16-ct"):
        one("to-" + to, to, gptq, shard(*GPTQ[:3]))
        one("from-awq-" + to, to, awq, shard(*AWQ))
        one("zeros-to-" + to, to, gptq, zeros_file(*GPTQ[:3]))
    for to in ("fp8-deepgemm-sm100", "fp8-deepseek", "fp8-trtllm"):
        one("nan-" + to, to, fp8, filled_file(0x7f, *FP8))
    locations = [[{"location": "weight_input"}, {"location": "weight_output"}],
                 [{"location": "input"}], [5], "x"]
    transforms = [{"transform_config": {"config_groups": {"u": {"apply": a}}}} for a in locations]
    transforms += [{"transform_config": {"config_groups": {"u": 5}}}, {"transform_config": [1]},
                   {"rotation_config": {"a": 1}}, {"rotation": "hadamard"},
                   {"transform_config": {}, "rotation_config": None, "rotation": ""},
                   {"rotation": 0, "rotation_config": [], "transform_config": False}]
    for i, more in enumerate(transforms):
        for choice in (2 | 0x80, 2 | 8):
            seed("config", f"transform-{i}-{choice}", bytes([choice]) + json.dumps(
                {"quantization_config": dict(fp8, **more)}).encode())


def frames():
    """Archives of several frames that no table lists, whole and cut off."""
    data = tensors_file(PLAIN)
    parts = [subprocess.run(["zstd", "-q", "-c", f"--stream-size={len(part)}"], input=part,
                            capture_output=True, check=True).stdout
             for part in (data[:100], data[100:9000], data[9000:])]
    for name, archive in (("whole", b"".join(parts)), ("cut", b"".join(parts[:2])),
                          ("header", parts[0]), ("inside", b"".join(parts)[:-9])):
        seed("zst", "frames-" + name, archive)
        assert b"\n\1" not in archive
        seed("command", "frames-" + name, bundle("dump model.safetensors.zst",
                                                 **{"model.safetensors.zst": archive}))


def contradictions():
    """A packed file whose tensors are not those of its descriptors."""
    write("src/model.safetensors", tensors_file(PLAIN))
    run("convert", "src", "-o", "p", "--to", "w4a8-ct", "--quiet")
    data = read("p/model.safetensors")
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    scale = P + "weight_scale"
    entry = head[scale]
    for i, change in enumerate(({scale + "x": entry, scale: None}, {
            scale: dict(entry, dtype="I16")
    }, {scale: dict(entry, shape=entry["shape"][::-1])}, {
            "__metadata__": dict(head["__metadata__"],
                                 **{"tilepack.units": head["__metadata__"]["tilepack.units"]
                                    .replace("[", "[" + "0,", 1)})
    })):
        text = json.dumps({k: v for k, v in (head | change).items() if v is not None},
                          separators=(",", ":")).encode()
        seed("command", f"contradiction-{i}", bundle(
            "verify p", **{"p/model.safetensors":
                           struct.pack("<Q", len(text)) + text + data[8 + size:]}))
    shutil.rmtree("src")
    shutil.rmtree("p")


def wrong_descriptors(known, units):
    """Descriptors and units with one thing changed, by the fast reader and by the slow one."""
    key, first = next(iter(known.items()))
    part = units[0]["from"][0]
    changes = [({key: {**first, **c}}, units) for c in (
        {"format": 5}, {"format": "odd"}, {"version": 99}, {"box": [1, 2]}, {"box": [1, 1 << 62,
        8]},
        {"rank": 7}, {"params": 5}, {"params": {"scale": "odd"}}, {"params": {"odd": "x"}},
        {"tensors": {}}, {"search": {"kind": "odd"}})]
    changes += [(known, [{**units[0], **c}]) for c in (
        {"prefix": 5}, {"dtype": "I8"}, {"dtype": 5}, {"desc": "none"}, {"from": []}, {"from": 5},
        {"from": [part] * 2}, *({"from": [{**part, **c}]} for c in (
            {"name": 5}, {"shape": [1, 2, 3, 4]}, {"shape": [-1, 2]}, {"row": -1},
            {"rows": 1 << 40},
            {"expert": -5}, {"expert": 3}, {"transposed": True})))]
    changes += [([], units), (known, {}), (known, [5]), ({key: 5}, units)]
    for i, (a, b) in enumerate(changes):
        fast = json.dumps(a, separators=(",", ":")) + "\0" + json.dumps(b, separators=(",", ":"))
        seed("descriptor", f"wrong-{i:02}", fast)
        seed("descriptor", f"wrong-{i:02}-slow",
             json.dumps(a, indent=1) + "\0" + json.dumps(b, indent=1).replace("mlp", "ml\\u0070"))
    seed("descriptor", "behind", json.dumps(known) + "\0" + json.dumps(units) + "x")
    seed("descriptor", "broken", "{\0[")


def raw(*tensors, **meta):
    """A file of tensors (name, dtype, shape, data)."""
    text, _ = header(*((name, dtype, shape, len(data)) for name, dtype, shape, data in tensors),
                     **meta)
    return struct.pack("<Q", len(text)) + text.encode() + b"".join(t[3] for t in tensors)


def sources():
    """Packed weights of others: what headers do not say of them."""

    def one(name, to, method, *tensors, line="--requantize"):
        seed("command", "source-" + name, bundle(
            f"convert src -o out --to {to} {line}", **{
                "src/model.safetensors": raw(*tensors),
                "src/config.json": json.dumps({"quantization_config": method})}))

    def gptq(name, to="w4a16-ct", zero=0x77777777, order=None, scale=0x3800, **more):
        order = [k // 128 for k in range(256)] if order is None else order
        one("gptq-" + name, to, {"quant_method": "gptq", "bits": 4, "group_size": 128, **more},
            (P + "qweight", "I32", [32, 64], bytes(range(256)) * 32),
            (P + "qzeros", "I32", [2, 8], struct.pack("<I", zero) * 16),
            (P + "scales", "F16", [2, 64], struct.pack("<H", scale) * 128),
            (P + "g_idx", "I32", [256], struct.pack("<256i", *order)), line="")

    gptq("plain")
    gptq("order", order=[k % 2 for k in range(256)])
    gptq("both", zero=0x12345678, order=[k % 2 for k in range(256)], checkpoint_format="gptq_v2")
    gptq("beyond", order=[9] * 256)
    gptq("nan", scale=0x7e00)
    gptq("negative", scale=0xb800)
    gptq("marlin", to="w4a16-marlin")
    ct = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "group_size": 128, "strategy": "group",
                                "symmetric": True, "type": "int"}}}}
    for name, to, shape, scale in (("plain", "w4a8-ct", (64, 256), 0x3f00), ("shape", "w4a8-ct",
                                   (64, 250), 0x3f00), ("f16", "gptq", (64, 256), 0x3f00),
                                   ("tiny", "gptq", (64, 256), 0x0001), ("fits-not", "awq",
                                   (64, 256), 0x7f00), ("inf", "w4a16-ct", (64, 256), 0x7f80),
                                   ("machete", "w4a16-machete", (64, 256), 0x3f00)):
        one("ct-" + name, to, ct, (P + "weight_packed", "I32", [64, 32], bytes(range(256)) * 32),
            (P + "weight_scale", "BF16", [64, 2], struct.pack("<H", scale) * 128),
            (P + "weight_shape", "I64", [2], struct.pack("<qq", *shape)), line="")
    bytes4 = json.loads(json.dumps(ct).replace("pack-quantized", "int-quantized"))
    for name, code in (("good", 7), ("large", 100), ("low", 200)):
        one("int8-" + name, "w4a8-ct", bytes4, (P + "weight", "I8", [64, 256],
                                                bytes([code]) * (64 * 256)),
            (P + "weight_scale", "BF16", [64, 2], struct.pack("<H", 0x3f00) * 128), line="")
    fp4 = {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}
    for name, value, scale in (("good", 2.0, 0x38), ("zero", 0.0, 0x38), ("nan", float("nan"),
                               0x38), ("less", -1.0, 0x38), ("scale", 1.0, 0x7f)):
        one("global-" + name, "nvfp4-ct", fp4, (P + "weight_packed", "U8", [128, 64],
                                                bytes(range(256)) * 32),
            (P + "weight_scale", "F8_E4M3", [128, 8], bytes([scale]) * 1024),
            (P + "weight_global_scale", "F32", [1], struct.pack("<f", value)), line="")


def changed(path, tensor, change):
    """Changes the bytes of one tensor in a file."""
    data = bytearray(read(path))
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    offsets = json.loads(data[8:begin])[tensor]["data_offsets"]
    at, end = (begin + offset for offset in offsets)
    data[at:end] = change(bytes(data[at:end]))
    write(path, bytes(data))


def copies():
    """Packed weights that are copied: as they are, and with what cannot be."""
    write("src/model.safetensors", tensors_file([(P + "weight", "BF16", [48, 128], 12288)]))
    write("src/config.json", CONFIG)
    for name, suffix, changes in (
        ("w4a8-cutlass", "weight_group_scale", {"eight": bytes(range(8)), "nan": b"\x7f"}),
        ("w4a8-cutlass", "weight_layout", {"words": b"\5\0\0\0"}),
        ("w4a8-cutlass", "weight_chan_scale", {"nan": b"\0\0\xc0\x7f"}),
        ("fp8-dynamic-ct", "weight_scale", {"nan": b"\xff\x7f"}),
        ("mxfp8-blocked", "weight_scale", {"pad": b"\1"}),
        ("nvfp4-blocked", "weight_scale", {"pad": b"\1", "nan": b"\x7f"}),
        ("fp8-deepgemm-sm90", "weight_scale_inv", {"nan": b"\0\0\xc0\x7f"}),
        ("fp8-deepgemm-sm100", "weight_scale_packed", {"pad": b"\1"}),
        ("w4a16-ct", "weight_scale", {"nan": b"\xff\x7f"}), ("mxfp4-blocked", None, {}),
        ("w4a16-ct", "weight_shape", {"words": struct.pack("<q", 5)})):
        done = subprocess.run([PROGRAM, "convert", "src", "-o", "p", "--to", name, "-q"],
                              capture_output=True, check=False)
        if done.returncode:
            continue
        whole = read("p/model.safetensors")
        lines = {"copy": f"convert p -o out --to {name}", "verify": "verify p"}
        for kind, line in lines.items():
            seed("command", f"copy-{name}-{kind}", bundle(line, **tree("p")))
        for what, fill in changes.items():
            changed("p/model.safetensors", P + suffix,
                    lambda data, fill=fill: (fill * len(data))[:len(data)])
            for kind, line in lines.items():
                seed("command", f"copy-{name}-{suffix}-{what}-{kind}", bundle(line, **tree("p")))
            write("p/model.safetensors", whole)
        shutil.rmtree("p")
    shutil.rmtree("src")


def conversions():
    """Descriptors, manifests and parts, as the program writes them."""
    write("src/model.safetensors", tensors_file(PLAIN))
    write("src/config.json", CONFIG)
    for name in FORMATS:
        run("convert", "src", "-o", "p", "--to", name, "--quiet")
        data = read("p/model.safetensors")
        meta = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
        seed("descriptor", name, meta["tilepack.descriptors"] + "\0" + meta["tilepack.units"])
        seed("unknown", name, meta["tilepack.descriptors"].replace('"format":"', '"format":"zz-')
             + "\0" + meta["tilepack.units"])
        if name == "w4a8-cutlass":
            seed("manifest", "plain", read("p/tilepack.json"))
            seed("zst", "none", data[:64])
            seed("command", "verify", bundle("verify p", **tree("p")))
            seed("command", "unpack", bundle("unpack p -o out", **tree("p")))
            seed("command", "dump-packed", bundle("dump p " + P[:-1] + " --at 3,7", **tree("p")))
            slow = json.dumps(json.loads(meta["tilepack.units"]),
                              indent=1).replace("mlp", "ml\\u0070")
            seed("descriptor", "slow", meta["tilepack.descriptors"] + "\0" + slow)
            wrong_descriptors(json.loads(meta["tilepack.descriptors"]),
                              json.loads(meta["tilepack.units"]))
            run("convert", "src", "-o", "z", "--to", name, "--quiet", "--zstd")
            seed("zst", "archive", read("z/model.safetensors.zst"))
            seed("command", "verify-zst", bundle("verify z", **tree("z")))
        shutil.rmtree("p")
    run("convert", "src", "-o", "d", "--to", "fp8-deepseek", "--digest", "sha256", "--quiet")
    seed("manifest", "digests", read("d/tilepack.json"))
    own = json.loads(read("d/tilepack.json"))
    for i, change in enumerate(
        ({"files": [{"name": "..", "size": 1, "xxh3": "0" * 32}]
          }, {"files": [{"name": "a", "size": 1, "xxh3": "0" * 32,
                         "sha256": "x"}]}, {"files": [{"name": "a", "size": 1, "xxh3": "0" * 32}]},
         {"tilepack": 2}, {"plan": 5}, {"files": {}})):
        seed("manifest", f"wrong-{i}", json.dumps(dict(own, **change), indent=1))
    seed("manifest", "broken", "{")
    shutil.rmtree("src")
    write("src/model.safetensors", tensors_file(PAIR))
    write("src/config.json", CONFIG)
    options = ["--to", "w4a8-ct", "--shard-size", "1kB", "--quiet", "-j", "1"]
    for name, more in (("plain", []), ("zstd", ["--zstd"]), ("digest", ["--digest", "sha256"])):
        for part in ("1/2", "2/2"):
            run("convert", "src", "-o", "out", *options, *more, "--part", part)
        for path in glob.glob("out.part-*/tilepack-part.json"):
            text = json.loads(read(path))
            text["source"] = "src"
            write(path, json.dumps(text, indent=1))
        files = tree("src", "out.part-1-of-2", "out.part-2-of-2")
        seed("merge", name, bundle("", **files))
        seed("parts", name, files["out.part-1-of-2/tilepack-part.json"])
        if name == "plain":
            several(files)
        if name == "plain":
            run("merge", "out", "--quiet")
            done = tree("out")
            seed("merge", name + "-again", bundle("", **done))
            del done[next(path for path in done if path.endswith("config.json"))]
            seed("merge", name + "-lost", bundle("", **done))
            shutil.rmtree("out")
        for part in glob.glob("out.part-*"):
            shutil.rmtree(part)


def several(files):
    """Parts that are missing, mixed, lost, or of another plan."""
    first = {k: v for k, v in files.items() if "2-of-2" not in k}
    seed("merge", "half", bundle("", **first))
    seed("merge", "unsaid", bundle("", **{k: v for k, v in files.items() if "2-of-2/t" not in k}))
    seed("merge", "interrupted", bundle("", **files, **{"out.partial/.tilepack-journal": "x"}))
    lost = {
        k: v[:-1] + b"x" if k.endswith(".safetensors") and "part-" in k else v
        for k, v in files.items()
    }
    seed("merge", "lost", bundle("", **lost))
    moved = dict(files, **{"src/config.json": "{}", "src/model.safetensors": shard(*PLAIN)})
    seed("merge", "source", bundle("", **moved))
    seed("merge", "done", bundle("", **{"out/tilepack.json": read("d/tilepack.json")}))
    seed("merge", "nothing", bundle("", x="y"))
    path = "out.part-2-of-2/tilepack-part.json"
    own = json.loads(files[path])
    for i, (key, value) in enumerate((
        ("zstd", 3), ("plan", "0" * 32), ("request", {}), ("tilepack_part", 3),
        ("source", "elsewhere"), ("source_id", 5), ("journal", ""), ("journal", []),
        ("journal", own["journal"][:-9]), ("journal", own["journal"].replace("model", "../model")),
        ("journal", own["journal"].replace("a", "b")), ("journal", "\n \n" + own["journal"]))):
        changed = json.dumps(dict(own, **{key: value}))
        seed("merge", f"part-{i}", bundle("", **{**files, path: changed}))
        seed("parts", f"part-{i}", changed)
    seed("parts", "broken", "{")
    seed("parts", "none", b"")


def journals():
    import ctypes
    import ctypes.util
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")

    class Canonical(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    library.XXH3_128bits.restype = Canonical
    library.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def xxh3(data):
        value = library.XXH3_128bits(data, len(data))
        return struct.pack(">QQ", value.high, value.low)

    plan = "0" * 32
    lines = []
    for f in range(2):  # the shards of fuzz_journal.c
        data = bytearray([97 + f]) * 200
        data[20:52] = b"0" * 32
        root = xxh3(struct.pack("<Q", 200) + xxh3(bytes(data)))
        lines.append(f"{'ab'[f]}.safetensors {root.hex()}\n")
    for kind in "1z":
        head = ("z" if kind == "z" else "p") + f"tilepack-journal {kind} {plan}\n"
        seed("journal", "both-" + kind, head + "".join(lines))
        seed("journal", "one-" + kind, head + lines[0])
        seed("journal", "command-" + kind, head + "# tilepack convert a -o b\n" + lines[0])
        seed("journal", "cut-" + kind, head + lines[0] + lines[1][:30])
        seed("journal", "wrong-" + kind, head + lines[0].replace("a.", "b."))
        seed("journal", "foreign-" + kind, head.replace("0" * 32, "1" * 32) + lines[0])
        seed("journal", "other-" + kind, head + "c.safetensors " + "0" * 32 + "\nxx\n")
        one = f" 0:{'1' * 32}"
        for name, read in (("none", ""), ("one", one), ("two", 2 * one), ("far", one.replace("0:", "7:")),
                           ("cut", one[:-1]), ("more", one + "1"), ("space", " ")):
            seed("journal", f"read-{name}-{kind}",
                 head + lines[0].replace("\n", " read" + read + "\n") + lines[1])
    seed("journal", "kind", f"ptilepack-journal z {plan}\n" + lines[0])
    seed("journal", "empty", "p")
    seed("journal", "garbled", "ptilepack-journ")


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    for make in (hub, containers, headers, archives, importances, layouts, tables, configs, requests,
                 commands, directories, stored, besides, frames, contradictions, journals, sources,
                 copies, conversions):
        make()
