#!/usr/bin/env python3
"""join of ranks whose tilepack-tp.json, or whose shards, say what cannot be: exit status 3
and a message that names what is wrong, and no output under its name. What such a file
could do otherwise: name two shards alike, or one as a file that is written beside them,
have an output that cannot be opened, or have one rank read as larger than it is."""
import copy
import json
import os
import shutil
import sys

import lib_path  # noqa: F401  pylint: disable=unused-import
import own_hash  # noqa: E402
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()
ZEROS = "0" * 32


def make_ranks(work):
    """A conversion to two ranks of three shards each; its tilepack-tp.json."""
    tool.make_source(work.at("src"))
    tool.run("convert", work.at("src"), "-o", work.at("ranks"), "--to", "w4a8-ct", "--tp", "2",
             "--shard-size", "200kB", "--quiet")
    with open(work.at("ranks", "tilepack-tp.json"), encoding="utf-8") as f:
        info = json.load(f)
    return info


def join(work, info):
    """Joins with that tilepack-tp.json, with the right checksum, as nothing keeps a stranger from
    giving it one; the finished process."""
    shutil.rmtree(work.at("out"), ignore_errors=True)
    shutil.rmtree(work.at("out.partial"), ignore_errors=True)
    with open(work.at("ranks", "tilepack-tp.json"), "wb") as f:
        f.write(own_hash.signed(info) if "xxh3" in info else json.dumps(info).encode())
    return tool.run("join", work.at("ranks"), "-o", work.at("out"), "--quiet", check=False)


def refused(work, name, text, info):
    done = join(work, info)
    good = done.returncode == 3 and text in done.stderr and not os.path.exists(work.at("out"))
    tally.check(good, f"{name}: status {done.returncode}" if good else
                f"{name}: status {done.returncode} (expected 3 and: {text})\n{done.stderr}")


# ---- names of files ---------------------------------------------------------

def names(work, info):
    first = info["files"][0]["name"]
    for name, text in (
            (info["files"][1]["name"], "comes twice"),
            ("config.json", "config.json"),
            ("tokenizer.json", "tokenizer.json"),
            ("model.safetensors.index.json", "index.json"),
            ("tilepack.json", "tilepack.json"),
            (".tilepack-journal.safetensors", "plain name"),
            ("a/model.safetensors", "plain name"),
            ("model.safetensors.zst", "model.safetensors.zst"),
            ("model\n.safetensors", "control character"),
            ("m" * 250 + ".safetensors", "longer than a file name may be")):
        wrong = json.loads(json.dumps(info).replace(first, json.dumps(name)[1:-1]))
        refused(work, f"a file named {name[:40]!r}", text, wrong)


# ---- headers ----------------------------------------------------------------

def with_header(info, f, change):
    """info with the header of file f changed (a dict), as long as it was."""
    out = copy.deepcopy(info)
    entry = out["files"][f]
    header = json.loads(entry["header"])
    change(header)
    text = json.dumps(header, separators=(",", ":"))
    assert len(text) <= len(entry["header"]), "the header must not grow"
    entry["header"] = text.ljust(len(entry["header"]))
    return out


def headers(work, info):
    packed = next(key for key in json.loads(info["files"][1]["header"])
                  if key.endswith(".weight_packed"))

    def retype(header):
        header[packed]["dtype"] = "U32"

    def short_hash(header):
        header["__metadata__"]["tilepack.xxh3"] = ZEROS[:8]

    def other_hash(header):
        header["__metadata__"]["tilepack.xxh3"] = "f" * 32

    def other_weight(header):
        descriptors = header["__metadata__"]["tilepack.descriptors"]
        header["__metadata__"]["tilepack.descriptors"] = descriptors.replace("int4", "int5", 1)

    refused(work, "codes of another dtype", packed, with_header(info, 1, retype))
    refused(work, "a hash that is too short", "hash", with_header(info, 1, short_hash))
    refused(work, "a hash that is none", "hash", with_header(info, 1, other_hash))
    refused(work, "descriptors of another weight", "descriptor",
            with_header(info, 1, other_weight))
    twice = copy.deepcopy(info)
    twice["files"].append(dict(info["files"][2], name="more.safetensors"))
    refused(work, "a tensor in two files", "lm_head.weight", twice)


# ---- texts ------------------------------------------------------------------

def texts(work, info):
    last = info["files"][2]["name"]
    elsewhere = dict(info, index=info["index"].replace(last, "else.safetensors"))
    refused(work, "an index of other files", "index", elsewhere)
    refused(work, "an index that is none", "index", dict(info, index="{}"))
    lacks = dict(info, index="\n".join(line for line in info["index"].split("\n")
                                       if "lm_head" not in line))
    refused(work, "an index that lacks a tensor", "index", lacks)
    other = dict(info, manifest=info["manifest"].replace(last, "else.safetensors"))
    refused(work, "a manifest of other files", "manifest", other)
    for change in ({"tilepack": 3}, {"plan": 7}):
        newer = dict(info, manifest=json.dumps(json.loads(info["manifest"]) | change, indent=1))
        refused(work, f"a manifest that none can read: {change}", "manifest", newer)
    longer = dict(info, config=info["config"].replace("{", '{"more": 1, ', 1))
    refused(work, "a config of another length", "'config.json' is not what", longer)
    same = dict(info, config=info["config"].replace("llama", "lxama", 1))
    assert same != info
    refused(work, "a config with another letter", "'config.json' is not what", same)
    path = work.at("ranks", "rank_0", "tokenizer.json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("1", "2"))
    refused(work, "a copied file that was changed",
            "rank_0/tokenizer.json: its contents have changed", info)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


# ---- ranks ------------------------------------------------------------------

def ranks(work, info):
    """A rank whose scales are wider than those of the other one."""
    name = info["files"][1]["name"]
    path = work.at("ranks", "rank_1", name)
    shutil.copy(path, work.at("kept"))
    tensors, _ = stfile.load(path)
    wide = {key: stfile.tensor("F32", t.f32()) if key.endswith(".weight_scale") else t
            for key, t in tensors.items()}
    assert any(t.dtype == "F32" for t in wide.values())
    stfile.save(path, wide) # without descriptors: another tool's, which may have such scales
    refused(work, "a rank with wider scales", "another shape or format", info)
    shutil.move(work.at("kept"), path)
    for r in range(2):
        other = list(info["rank_files"])
        other[r] = other[1 - r]
        refused(work, f"the files of rank {r} are those of another", f"rank {r} is of another",
                dict(info, rank_files=other))
    for wrong in ([], {}, info["rank_files"][:1], [7, 7]):
        refused(work, f"no list of files of ranks: {wrong}", "is of another conversion",
                dict(info, rank_files=wrong))
    before = {key: value for key, value in info.items() if key != "rank_files"}
    done = join(work, before)
    tally.check(done.returncode == 0, f"ranks without that list: {done.returncode}")
    text = "says that it is of version 1"
    refused(work, "version 1 with both", text, dict(info, tilepack_tp=1))
    refused(work, "version 1 with a checksum", text, dict(before, tilepack_tp=1))
    del before["xxh3"]
    done = join(work, dict(before, tilepack_tp=1))
    tally.check(done.returncode == 0, f"ranks of 0.1.0: {done.returncode}")
    before["rank_files"] = info["rank_files"]
    refused(work, "version 1 with a list of files", text, dict(before, tilepack_tp=1))
    refused(work, "version 2 without a checksum", "own hash is wrong", before)


def main():
    with tool.Workdir() as work:
        info = make_ranks(work)
        names(work, info)
        headers(work, info)
        texts(work, info)
        ranks(work, info)
        done = join(work, info)
        tally.check(done.returncode == 0, f"and as it was: status {done.returncode}")
        done = tool.run("verify", work.at("out"), "--quiet", check=False)
        tally.check(done.returncode == 0, f"which verifies: status {done.returncode}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
