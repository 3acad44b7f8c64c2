#!/usr/bin/env python3
"""Files that earlier versions wrote are read as they were meant.

    old_files.py

tests/golden/old/0.1.0 holds a small checkpoint and what version 0.1.0 made of it in
w4a8-cutlass: with its default channel rule, which is called cpu now, and with div. Its rows
are such that the three rules of today give three different results. What the command says
of them and makes of them must follow from the rule they were written with. Ends with
`N passed, N failed`.
"""
import json
import os

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import golden_data
import oracle
import refquant as rq
import stfile
import tool

OLD = os.path.join(golden_data.PLAIN, "old", "0.1.0")
SOURCE = os.path.join(OLD, "source")
RULES = {"default": "cpu", "div": "div"}
SCALES = ("weight_group_scale", "weight_chan_scale")


def tensors(path):
    return tool.load(path)[0]


def equal(a, b, suffixes=("",)):
    """Whether tensors with these endings are the same in both."""
    names = [n for n in a if n.endswith(tuple(suffixes))]
    return bool(names) and all(n in b and (a[n].dtype, a[n].shape, a[n].data) ==
                               (b[n].dtype, b[n].shape, b[n].data) for n in names)


def stored(path):
    """What a packed file says of itself, without its hash and what is not about formats."""
    meta = tool.load(path)[1]
    request = json.loads(meta["tilepack.request"])
    return (json.loads(meta["tilepack.descriptors"]), json.loads(meta["tilepack.units"]),
            request["rules"])


def units(path):
    return oracle.Checkpoint(tool.shards(path)).units


def unpacked(t, work, packed, label):
    """The plain values are those that the oracle decodes."""
    plain = work.at("plain")
    tool.run("unpack", packed, "-o", plain, "--dtype", "f32", "--quiet")
    got, rows, good = tensors(plain), 0, True
    for unit in units(packed):
        values, row = unit.values(), 0
        for origin in unit.sources:
            for e in range(unit.descriptor["box"][0]):
                want = values[e, row:row + origin["rows"]]
                good &= np.array_equal(got[origin["name"].replace("{e}", str(e))].f32(), want)
                rows += origin["rows"]
            row += origin["rows"]
    t.check(good and rows == 16 + 2 * 48, f"{label}: unpack gives the oracle's values")


def interchange(t, work, packed, label):
    """w4a8-ct has the codes of the source, and group scale times channel scale."""
    back, direct = work.at("ct"), work.at("direct")
    tool.run("convert", packed, "-o", back, "--to", "w4a8-ct", "--quiet")
    tool.run("convert", SOURCE, "-o", direct, "--to", "w4a8-ct", "--search", "none", "--quiet")
    got, old = tensors(back), tensors(packed)
    t.check(equal(got, tensors(direct), ("weight_packed", "weight_shape", "layernorm.weight")),
            f"{label}: repacked to w4a8-ct has the source's codes")
    prefix = "model.layers.0.self_attn.q_proj."
    group = -rq.E4M3[old[prefix + "weight_group_scale"].bits[..., 7]].T
    want = stfile.f32_to_bf16(group * old[prefix + "weight_chan_scale"].bits)
    t.check(np.array_equal(got[prefix + "weight_scale"].bits, want),
            f"{label}: repacked to w4a8-ct has scale times scale")


def same_format(t, work, packed, rule, label):
    """Nothing is done for the rule that the file has; another one gives its channel scales."""
    old, same = tensors(packed), work.at("same")
    done = tool.run("convert", packed, "-o", same, "--to", "w4a8-cutlass", "--set",
                    f"scale={rule}")
    t.check("already" in done.stderr and equal(old, tensors(same)),
            f"{label}: the same rule leaves the file as it is")
    for other in sorted({"gpu", "cpu", "div"} - {rule}):
        out, direct = work.at(other), work.at(f"direct-{other}")
        for path, to in ((packed, out), (SOURCE, direct)):
            tool.run("convert", path, "-o", to, "--to", "w4a8-cutlass", "--set",
                     f"scale={other}", "--search", "none", "--quiet")
        got, want = tensors(out), tensors(direct)
        changed = [n for n in old if n.endswith(SCALES) and old[n].data != want[n].data]
        t.check(changed, f"{label}: {other} is another rule for this source")
        t.check(equal(got, want, ("weight_packed", "weight_layout", "chan_scale")) and
                equal(got, old, ("weight_packed", "weight_layout", "group_scale")),
                f"{label}: repacked with {other} has that rule's channel scales")


def described(t, packed, rule, label):
    """dump names the rule; the same conversion today writes the same bytes and words."""
    name = "model.layers.0.self_attn.q_proj.weight_packed"
    shown = tool.run("dump", packed, name).stdout
    t.check(f"quotient=fp32 scale={rule} zero-groups=keep" in shown, f"{label}: dump says {rule}")
    shown = json.loads(tool.run("dump", packed, name, "--json").stdout)
    word = {"cpu": "rcp"}.get(rule, rule)
    t.check(f'"scale": "{word}"' in json.dumps(shown), f"{label}: dump --json has what is stored")


def verified(t, packed, label):
    for against in ((), ("--against", SOURCE)):
        done = tool.run("verify", packed, *against, check=False)
        t.check(done.returncode == 0, f"{label}: verify {' '.join(against[:1])} {done.stderr}")


def written(t, work, packed, words, label):
    """The same conversion today: by --set and by recipe, under each word of the rule."""
    for word in words:
        recipe, out = work.at("recipe.json"), work.at("by-" + word)
        with open(recipe, "w", encoding="utf-8") as f:
            json.dump({"rules": [{"match": ".", "to": "w4a8-cutlass", "set": {"scale": word},
                                  "search": "none"}]}, f)
        tool.run("convert", SOURCE, "-o", out, "--to", "w4a8-cutlass", "--set", f"scale={word}",
                 "--search", "none", "--quiet")
        t.check(equal(tensors(packed), tensors(out)), f"{label}: --set scale={word}, same bytes")
        t.check(stored(packed) == stored(out), f"{label}: --set scale={word}, same descriptors")
        tool.run("convert", SOURCE, "-o", out, "--recipe", recipe, "--force", "--quiet")
        t.check(equal(tensors(packed), tensors(out)), f"{label}: recipe with {word}, same bytes")


def other_words(t, work, packed):
    """A descriptor that says cpu is read like one that says rcp; one that says nothing of
    the scale, or has a word too many, is refused: a default is never put in its place."""
    with open(os.path.join(packed, "model.safetensors"), "rb") as f:
        data = f.read()
    word, path = rb'\"scale\":\"rcp\"', work.at("edited.safetensors")
    cases = ((rb'\"scale\":\"cpu\"', True), (rb'\"scale\":\"gpu\"', True),
             (rb'\"scale\":\"rpc\"', False), (rb'\"other\":\"not\"', False))
    name = "model.layers.0.self_attn.q_proj.weight_packed"
    for text, good in cases:
        with open(path, "wb") as f:
            f.write(data.replace(word, text))
        done = tool.run("dump", path, name, check=False)
        label = text.decode().replace("\\", "")
        if good:
            rule = label.split('"')[3]
            t.check(data.count(word) == 4 and f"scale={rule} " in done.stdout,
                    f"a descriptor with {label} is read")
        else:
            t.check(done.returncode == 3 and "has no parameter" in done.stderr,
                    f"a descriptor with {label} is refused")
    missing = data.replace(word + b",", b" " * (len(word) + 1))
    with open(path, "wb") as f:
        f.write(missing)
    done = tool.run("dump", path, name, check=False)
    t.check(done.returncode == 3 and "contradicts the format" in done.stderr,
            "a descriptor without the parameter is refused")


def main():
    t = tool.Tally()
    for label, rule in RULES.items():
        packed = os.path.join(OLD, label)
        with tool.Workdir() as work:
            verified(t, packed, label)
            described(t, packed, rule, label)
            unpacked(t, work, packed, label)
            interchange(t, work, packed, label)
            same_format(t, work, packed, rule, label)
            written(t, work, packed, ("cpu", "rcp") if rule == "cpu" else (rule,), label)
            if rule == "cpu":
                other_words(t, work, packed)
    return t.finish()


if __name__ == "__main__":
    raise SystemExit(main())
