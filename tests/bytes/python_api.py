#!/usr/bin/env python3
"""The package tilepack_llm against the program: convert, plan, verify, unpack, open, load,
quantize, and what its exceptions carry. Ends with `N passed, N failed`.
"""
import copy
import enum
import gc
import json
import math
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import stfile
import tool
from tool import raised

import tilepack_llm as tp
from tilepack_llm import loading, parts, tiles
from tilepack_llm.tensor import numpy_dtype

Q_PROJ = "model.layers.0.self_attn.q_proj"
EXPERTS = "model.layers.0.block_sparse_moe.experts.w2"


def same_files(a, b):
    return subprocess.run(["diff", "-r", a, b], check=False).returncode == 0


def commands(t, work):
    steps = []
    src = work.at("src")
    made = tp.convert(src, work.at("python"), to="w4a8-cutlass", set={"scale": "cpu"},
                      exclude=["o_proj", "k_proj"], progress=steps.append, jobs=1)
    tool.run("convert", src, "-o", work.at("shell"), "--to", "w4a8-cutlass", "--set",
             "scale=cpu", "--exclude", "o_proj", "--exclude", "k_proj", "--quiet")
    t.check(same_files(work.at("python"), work.at("shell")), "convert: the program's bytes")
    t.check(made.output == work.at("python") and not made.already_done
            and made.report["converted"] > 0, "convert: its report")
    done = [step.done for step in steps]
    t.check(steps and done == sorted(done) and steps[-1].done == steps[-1].total == made.bytes_in
            and steps[-1].command == "convert", "convert: progress to the end")
    again = tp.convert(src, work.at("python"), to="w4a8-cutlass", set={"scale": "cpu"},
                       exclude=["o_proj", "k_proj"])
    t.check(again.already_done, "convert: again, nothing is done")
    plan = tp.plan(src, to="w4a8-cutlass", no_stack=True)
    t.check(len(plan.units) > made.report["converted"] and plan.units[0]["box"][0] == 1,
            "plan: options are taken")
    found = tp.verify(work.at("python"), against=src)
    t.check(found.ok and all(w["equal"] for w in found.weights), "verify: against the source")
    tp.unpack(work.at("python"), work.at("plain"), dtype="bf16")
    tool.run("unpack", work.at("shell"), "-o", work.at("plain-shell"), "--dtype",
             "bf16", "--quiet")
    t.check(same_files(work.at("plain"), work.at("plain-shell")), "unpack: the program's bytes")


class Name(str, enum.Enum):
    """What people hold options in."""

    O_PROJ = "o_proj"


def values(t, work):
    """What an option is given is what the program gets, in whatever it is held, or a TypeError."""
    def names(**given):
        return [u["name"] for u in tp.plan(work.at("src"), to="w4a8-ct", **given).units]

    want = [name for name in names() if not name.endswith("o_proj")]
    for held in (["o_proj"], {"o_proj"}, (name for name in ["o_proj"]), {"o_proj": 1},
                 {"o_proj": 1}.keys(), b"o_proj", [b"o_proj"], "o_proj", np.array(["o_proj"]),
                 Name.O_PROJ, [Name.O_PROJ]):
        t.check(want == names(exclude=held), f"exclude: {type(held).__name__}")
    for held in ([None], [True], [["o_proj"]], [1.5], 1.5, object(), bytearray(b"o_proj"),
                 memoryview(b"o_proj")):
        t.check(raised(TypeError, names, exclude=held) is not None, f"exclude: not {held}")
    t.check(raised(TypeError, names, set=[("scale", "ue8m0")]) is not None, "set: not pairs")
    for given in ({"exclude": True}, {"shard_size": True}, {"jobs": True}):
        t.check(raised(TypeError, tp.plan, work.at("src"), to="w4a8-ct", strict=True, **given)
                is not None, f"{given}: it wants a value")
    t.check(tp.plan(work.at("src"), to="w4a8-ct", strict=True, zstd=True).units, "what does not")
    output = work.at("bytes")
    made = tp.convert(os.fsencode(work.at("src")), os.fsencode(output), to="w4a8-ct",
                      shard_size=np.int64(1 << 30), max_memory=1 << 29)
    t.check(made.output == output and tp.verify(os.fsencode(output), os.fsencode(work.at("src"))).ok
            and tp.open(os.fsencode(output)).path == output and tp.load(os.fsencode(output)),
            "names of files as bytes")


def names_of_files(t, work):
    """A name need not be UTF-8, and ends nowhere before its end."""
    odd = work.at(os.fsdecode(b"b\xff"))
    shutil.copytree(work.at("python"), odd)
    tensors = tp.open(odd).tensors
    t.check(all(tensors[name].array.size for name in tensors), "open: a name that is no UTF-8")
    zero = work.at("src") + "\0x"
    for function, *more in ((tp.open,), (tp.load,), (tp.plan,), (tp.convert, work.at("x"))):
        for name in (zero, "\ud800"):
            error = raised(tp.UsageError, function, name, *more,
                           **({"to": "w4a8-ct"} if function in (tp.plan, tp.convert) else {}))
            t.check(error is not None, f"{function.__name__}: {ascii(name)[-8:]} is no name")
    error = raised(tp.UsageError, tp.quantize, np.ones((128, 256), np.float32), "w4a8-ct\0x")
    t.check(error and "zero byte" in error.message, "quantize: nor one of a format")
    for name, parameters in (("\ud800", None), ("w4a8-ct", {"scale": "\ud800"})):
        error = raised(tp.UsageError, tp.quantize, np.ones((128, 256), np.float32), name, parameters)
        t.check(error is not None, f"quantize: {ascii(name)} {ascii(parameters)} is no text")
    ones = np.ones((128, 256), np.float32)
    for wrong in ((ones, 3), (ones, b"w4a8-ct"), ([[1.0]], "w4a8-ct"),
                  (ones, "w4a8-ct", "scale=cpu")):
        t.check(raised(TypeError, tp.quantize, *wrong) is not None, f"quantize: {wrong[1:]}")
    error = raised(tp.SystemFailure, tp.plan, os.fsdecode(b"z\xfe"), to="w4a8-ct")
    t.check(error and os.fsencode(error.file) == b"z\xfe", "an error has the name of the file")


def failures(t, work):
    src = work.at("src")
    for function in (lambda: tp.convert(work.at("none"), work.at("x"), to="w4a8-ct"),
                     lambda: tp.open(work.at("none")), lambda: tp.load(work.at("none"))):
        error = raised(FileNotFoundError, function)
        t.check(isinstance(error, tp.SystemFailure) and error.code == 5 and error.errno == 2 and
                error.file == error.filename == work.at("none"), f"a missing source {error}")
        again = pickle.loads(pickle.dumps(error))
        t.check((str(again), again.errno, again.filename, again.file) ==
                (str(error), 2, error.file, error.file), "an error of a missing file is copied")
    error = raised(tp.UsageError, tp.convert, src, work.at("x"), to="w4a8")
    t.check(error and "no format 'w4a8'" in error.message and error.hint and error.code == 2,
            "convert: an unknown format")
    error = raised(tp.ExistsError, tp.convert, src, work.at("python"), to="mxfp8-ct")
    t.check(error and error.code == 7 and "in another format" in error.message,
            "convert: another output is in the way")
    skipped = tp.convert(src, work.at("python"), to="mxfp8-ct", if_exists="skip")
    t.check(skipped.report["kind"] == "skipped" and not skipped.already_done, "convert: if_exists")
    t.check(raised(TypeError, tp.convert, src, work.at("x"), to="w4a8-ct", speed=1) is not None,
            "convert: an unknown option")

    def stop(step):
        raise RuntimeError(step.item)
    t.check(raised(RuntimeError, tp.convert, src, work.at("stopped"), to="mxfp8-ct",
                   progress=stop) is not None, "convert: an exception of the callback comes out")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tp.unpack(src, work.at("copied"))
    t.check(seen and all(w.category is tp.TilepackWarning for w in seen) and
            "holds no packed weight" in str(seen[0].message), "a warning is a TilepackWarning")
    damaged = work.at("damaged")
    shutil.copytree(work.at("python"), damaged)
    with open(os.path.join(damaged, "model.safetensors"), "r+b") as file:
        file.seek(-100000, 2)
        file.write(b"\xff\x00\xff")
    error = raised(tp.VerifyError, tp.verify, damaged)
    t.check(error and error.code == 1 and error.file.endswith("damaged/model.safetensors")
            and "have changed" in error.message and not error.verification.ok,
            "verify: a flipped byte is an exception")
    t.check(tp.verify(damaged, check=False).ok is False, "verify: or a result")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        t.check(str(again) == str(error) and again.verification.problems ==
                error.verification.problems and again.file == error.file, "which can be copied")
    shutil.copy(os.path.join(damaged, "model.safetensors"), work.at("alone.safetensors"))
    for function in (tp.verify, lambda path: tp.load(path, verify=True)):
        error = raised(tp.VerifyError, function, work.at("alone.safetensors"))
        t.check(error and error.file == work.at("alone.safetensors"), "verify: a single file")
    for wrong in (0, None, object()):
        t.check(raised(TypeError, tp.load, work.at("python"), wrong) is not None,
                f"a device that is a {type(wrong).__name__}")
    t.check(raised(TypeError, tp.verify, work.at("python"), progress=np.zeros(2)) is not None,
            "progress that cannot be called")
    stfile.save(work.at("huge.safetensors"), {"a": stfile.Tensor("F32", (1 << 63, 0), b"")})
    for function in (tp.load, lambda path: tp.open(path).tensors["a"]):
        t.check(raised(tp.UnsupportedError, function, work.at("huge.safetensors")) is not None,
                "a shape that numpy has no place for")
    t.check(raised(tp.VerifyError, tp.load, damaged, verify=True) is not None,
            "load: verify=True finds it")
    with open(os.path.join(damaged, "model.safetensors"), "r+b") as file:
        file.truncate(os.path.getsize(file.name) - 4096)
    t.check(raised(tp.InputError, tp.load, damaged) is not None, "load: a truncated file")
    cut = tp.open(work.at("python"))
    shutil.copy(os.path.join(work.at("python"), "model.safetensors"), work.at("keep"))
    with open(os.path.join(work.at("python"), "model.safetensors"), "r+b") as file:
        file.truncate(100000)
    error = raised(tp.InputError, lambda: [cut.tensors[name] for name in cut.tensors])
    t.check(error and "truncated" in error.hint, "open: a file truncated since then")
    cut = tp.open(work.at("keep"))
    os.truncate(work.at("keep"), 0)
    error = raised(tp.InputError, lambda: [cut.tensors[name] for name in cut.tensors])
    t.check(error and "truncated" in error.hint, "open: a file emptied since then")
    opened, own = tp.open(work.at("shell")), tp.load(work.at("shell"))
    own = {name: tensor.array.tobytes() for name, tensor in own.items()}
    tool.run("convert", src, "-o", work.at("shell"), "--to", "fp8-dynamic-ct", "--force", "--quiet")
    t.check(own == {name: tensor.array.tobytes() for name, tensor in opened.tensors.items()},
            "open: the tensors of the opened file, also where another one has its name by now")


def without_means(t, work):
    """The system gives no temporary file, or no more descriptors: an Error, wherever it is short."""
    usual, tempfile.tempdir = tempfile.tempdir, work.at("no-folder")
    error = raised(tp.SystemFailure, tp.plan, work.at("src"), to="w4a8-ct")
    tempfile.tempdir = usual
    t.check(error and "temporary" in error.message, "plan: no folder for temporary files")
    gc.collect()
    limits, used = resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd"))
    free = os.dup(0)
    os.close(free)
    what = []
    for more in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, limits[1]))
        try:
            tp.plan(work.at("src"), to="w4a8-ct")
        except tp.Error as failed:
            what.append(failed.message)
        except OSError as failed:
            t.check(False, f"plan: {more} descriptors: {failed!r}")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    t.check(any("pipe" in text for text in what) and any("temporary" in text for text in what),
            f"plan: descriptors are short: {set(what)}")
    t.check(len(os.listdir("/proc/self/fd")) == used, "plan: none of them stays open")


def reading(t, work, fmt):
    path = work.at(fmt)
    tool.run("convert", work.at("src"), "-o", path, "--to", fmt, "--quiet", "--search", "none")
    checkpoint = tp.open(path)
    units = oracle.Checkpoint(tool.shards(path)).units
    t.check(len(units) == len(checkpoint.weights), f"{fmt}: every packed weight is there")
    wrong = 0
    for unit in units:
        weight = checkpoint.weights[unit.prefix.rstrip("._")]
        want = unit.values()
        want = want if weight.stacked else want[0]
        wrong += not np.array_equal(weight.values(), want)
        index = np.s_[..., 3:7, 16:32][-want.ndim:] if want.ndim == 2 else np.s_[1, 3:7, -32:-16]
        index = tuple(slice(None) if i is Ellipsis else i for i in index)
        wrong += not np.array_equal(checkpoint.values(weight.name, index), want[index])
        wrong += any(tensor.array.tobytes() != unit.data[suffix]
                     for suffix, tensor in weight.stored.items())
    t.check(not wrong, f"{fmt}: stored bytes and values are the oracle's")


def one_name(t, work):
    """Two packed weights of one name, as earlier versions wrote them: neither hides the other."""
    at, path, files = "m.layers.0.mlp.experts", work.at("twice"), {}
    os.mkdir(path)
    for name, labels in (("a", ["0.gate_proj", "0.up_proj", "0.down_proj"]), ("b", ["w13"])):
        plain, packed = work.at("plain.safetensors"), f"{path}/{name}.safetensors"
        stfile.save(plain, {f"{at}.{label}.weight": stfile.from_f32(
            "BF16", np.ones((128, 128), np.float32)) for label in labels})
        tool.run("convert", plain, "-o", packed, "--to", "w4a8-cutlass", "--quiet")
        files.update({tensor: f"{name}.safetensors" for tensor in stfile.load(packed)[0]})
    with open(f"{path}/model.safetensors.index.json", "w", encoding="ascii") as file:
        json.dump({"weight_map": files}, file)
    error = raised(tp.InputError, lambda: tp.open(path).weights)
    t.check(error and f"called '{at}.w13'" in error.message, "weights: two of one name")
    t.check(set(tp.load(path)) == set(files), "load: all tensors of both")
    done = tool.run("dump", path, at + ".w13", "--at", "0,0", check=False)
    t.check(done.returncode == 2 and "several weights are called" in done.stderr,
            "dump: two of one name")
    for joint in "._":
        tool.run("dump", path, f"{at}.w13{joint}weight_packed", "--at", "0,0")


def rules_of_reading(t, work):
    checkpoint = tp.open(work.at("w4a8-cutlass"))
    weight = checkpoint.weights[EXPERTS]
    t.check(weight.stacked and weight.values(np.s_[1:3, 4, 5:7]).shape == (2, 2)
            and weight.values(-1).shape == weight.box[1:]
            and weight.values(np.int64(-1)).shape == weight.box[1:]
            and weight.values((np.uint8(1), slice(2, 3), np.int32(4))).shape == (1,),
            "values: shapes as numpy's")
    for index in (np.s_[9], np.s_[0, 0, 0, 0], np.s_[0, 0:4:2], 1.0, None, "1", np.s_["1":],
                  np.s_[::0], np.s_[..., 1], ([0, 1],)):
        t.check(raised(tp.UsageError, weight.values, index) is not None, f"values: not {index}")
        t.check(raised(tp.UsageError, checkpoint.tensors.part, f"{EXPERTS}_weight_packed", index)
                is not None, f"part: not {index}")
    t.check(checkpoint.tensors.part(f"{EXPERTS}_weight_packed", np.int64(1)).shape ==
            checkpoint.tensors.part(f"{EXPERTS}_weight_packed", 1).shape, "part: of numpy's number")
    error = raised(tp.UsageError, checkpoint.values, "nothing")
    t.check(error and error.file == checkpoint.path, "values: an unknown weight")
    operands = checkpoint.weights[Q_PROJ].operands()
    e, n, k = checkpoint.weights[Q_PROJ].box
    t.check(e == 1 and operands["b"].shape == (k // 8, n) and operands["b"].strides == (1, k // 8)
            and operands["b_group_scales"].strides == (1,), "the dense kernel's b is transposed")
    sizes = tp.problem_sizes(weight.box, [5, 0, 1, 2])
    t.check(sizes.dtype == np.int32 and sizes[0].tolist() == [weight.box[1], 5, weight.box[2]],
            "problem_sizes")
    tensors = tp.open(work.at("w4a8-cutlass")).tensors  # nothing else holds the checkpoint
    t.check(len(tensors) and all(tensors[name].shape for name in tensors),
            "tensors live as long as they are used")
    t.check("lm_head.weight" in checkpoint.others and
            not any(name.startswith(Q_PROJ) for name in checkpoint.others), "others")
    tool.run("convert", work.at("src"), "-o", work.at("zst"), "--to", "w4a8-cutlass", "--zstd",
             "--search", "none", "--quiet")
    packed = tp.open(work.at("zst")).weights[Q_PROJ].stored["weight_packed"]
    t.check(np.array_equal(packed.array, checkpoint.weights[Q_PROJ].stored["weight_packed"].array),
            "a compressed file is read")


def loading_views(t, work):
    path = work.at("w4a8-cutlass")
    loaded = tp.load(path, verify=True)
    t.check(set(loaded) == set(tp.open(path).tensors), "load: every tensor")
    some = tp.load(path, names=[Q_PROJ, "lm_head.weight"])
    t.check(len(some) == 5 and f"{Q_PROJ}.weight_packed" in some, "load: a weight's tensors")
    address = some["lm_head.weight"].array.ctypes.data
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = [line for line in maps if "model.safetensors" in line and
                  int(line.split("-")[0], 16) <= address < int(line.split()[0].split("-")[1], 16)]
    t.check(len(mapped) == 1, "load: views of the mapped file")
    t.check(raised(tp.UsageError, tp.load, path, names=["none"]) is not None, "load: not a name")
    t.check(raised(tp.UsageError, tp.load, path, names="none") is not None, "load: not a list")
    t.check(raised(tp.UnsupportedError, tp.load, path, "tpu") is not None, "load: not a device")


def copied(path, wanted, **options):
    """The tensors that the loader copies to memory of this process: {name: array}."""
    checkpoint = tp.open(path)
    chosen = loading._chosen(checkpoint, wanted)
    out = {name: np.full(part.shape, 0x5A, numpy_dtype(part.dtype))
           for name, part in chosen.items()}
    parts.copy(checkpoint.handle, list(chosen.values()), [a.ctypes.data for a in out.values()],
               device=-1, file=path, **options)
    return out


def same(loaded, views):
    return set(loaded) == set(views) and all(
        loaded[name].shape == views[name].shape and
        loaded[name].tobytes() == views[name].array.tobytes() for name in loaded)


def copying(t, work):
    """The loader that GPUs have, into memory of this process."""
    path, packed = work.at("w4a8-cutlass"), f"{EXPERTS}_weight_packed"
    for options in ({}, {"threads": 1, "ring": 1}, {"threads": 5, "verify": True}):
        t.check(same(copied(path, None, **options), tp.load(path)), f"copy: every tensor {options}")
    slices = {packed: np.s_[1:3, 4:9, -1], "lm_head.weight": np.s_[3:, 5:7], Q_PROJ: ()}
    views = tp.load(path, names=slices)
    whole = tp.open(path).tensors
    t.check(np.array_equal(views[packed].array, whole[packed].array[1:3, 4:9, -1]) and
            len(views) == 6, "load: slices are numpy's")
    t.check(same(copied(path, slices), views), "copy: slices")
    rows = tp.load(path, names={EXPERTS: np.s_[2:4]})
    t.check(all(np.array_equal(tensor.array, whole[name].array[2:4])
                for name, tensor in rows.items()) and len(rows) > 3, "load: experts of a rank")
    t.check(same(copied(path, {EXPERTS: np.s_[2:4]}, verify=True), rows), "copy: experts of a rank")
    t.check(same(copied(path, {EXPERTS: np.int64(2)}), tp.load(path, names={EXPERTS: 2})),
            "load: an expert by a number of numpy's")
    t.check(same(copied(work.at("zst"), [Q_PROJ], verify=True), tp.load(work.at("zst"), names=[Q_PROJ])),
            "copy: a compressed file")
    for wrong in ({packed: np.s_[9]}, {packed: np.s_[::2]}, {packed: np.s_[0, 0, 0, 0]},
                  {Q_PROJ: np.s_[0:1]}):
        t.check(raised(tp.UsageError, tp.load, path, names=wrong) is not None, f"load: not {wrong}")
    damaged = work.at("damaged")
    shutil.rmtree(damaged)
    shutil.copytree(path, damaged)
    with open(os.path.join(damaged, "model.safetensors"), "r+b") as file:
        file.seek(-100000, 2)
        file.write(b"\xff\x00\xff")
    error = raised(tp.Difference, copied, damaged, ["lm_head.weight"], verify=True)
    t.check(error and error.code == 1 and "its contents have changed" in error.message,
            "copy: verify finds a flipped byte of another tensor")
    t.check(len(copied(damaged, ["lm_head.weight"])) == 1, "copy: which it does without")
    error = raised(tp.UnsupportedError, copied, work.at("src"), None, verify=True)
    t.check(error and "hash" in error.message, "copy: no hash, nothing to verify with")
    checkpoint = tp.open(damaged)
    os.truncate(os.path.join(damaged, "model.safetensors"), 100000)
    some = checkpoint.tensors.part(packed)
    out = np.empty(some.shape, numpy_dtype(some.dtype))
    error = raised(tp.InputError, parts.copy, checkpoint.handle, [some], [out.ctypes.data], device=-1)
    t.check(error and "truncated" in str(error), "copy: a file truncated since it was opened")
    environment = dict(os.environ, TILEPACK_DISABLE="cuda")
    script = ("import sys, tilepack_llm as tp; from tilepack_llm import parts\n"
              "c = tp.open(sys.argv[1]); part = c.tensors.part(sys.argv[2])\n"
              "try: parts.copy(c.handle, [part], [64], device=0)\n"
              "except tp.ResourceError as error: print(error)")
    done = subprocess.run([sys.executable, "-c", script, path, packed], env=environment, check=True,
                          capture_output=True, text=True)
    t.check("no GPU to load to: " in done.stdout, "copy: no GPU")


def quantizing(t, work):
    alone = Q_PROJ.replace("q_proj", "o_proj")  # its global scale is no other's
    plain = tp.open(work.at("src")).tensors[f"{alone}.weight"]
    wrong = 0
    for fmt in ("w4a8-cutlass", "fp8-deepseek", "mxfp4-blocked", "nvfp4-comfy"):
        stored = tp.open(work.at(fmt)).weights[alone].stored
        made = tp.quantize(plain.array, fmt)
        wrong += set(made) != set(stored)
        for suffix, tensor in made.items():
            same = np.array_equal(tensor.array, stored[suffix].array)
            wrong += not same or tensor.dtype != stored[suffix].dtype
    t.check(not wrong, "quantize: what convert stores without a search")
    values = np.random.default_rng(3).standard_normal((2, 128, 256), np.float32)
    made = tp.quantize(values, "w4a8-cutlass", {"scale": "cpu"})
    t.check(made["weight_packed"].shape == (2, 128, 32), "quantize: a stack")
    same = tp.quantize(np.asfortranarray(values), "w4a8-cutlass", {"scale": "cpu"})
    t.check(all(np.array_equal(made[s].array, same[s].array) for s in made),
            "quantize: any strides")
    error = raised(tp.UnsupportedError, tp.quantize, values[:, :17], "w4a8-cutlass")
    t.check(error and "N=17 is not a multiple of 16" in error.message, "quantize: a size refused")
    values[0, 0, 0] = np.nan
    t.check(raised(tp.InputError, tp.quantize, values, "w4a8-ct") is not None, "quantize: NaN")
    t.check("weight_packed" in tp.quantize(values, "w4a8-ct", nonfinite="keep"),
            "quantize: NaN, kept")
    for bad in (values.astype(np.float64), values[0, 0]):
        t.check(raised(tp.UsageError, tp.quantize, bad, "w4a8-ct") is not None,
                f"quantize: not {bad.dtype} {bad.shape}")
    t.check(raised(tp.UsageError, tp.quantize, values, "w4a8-ct", nonfinite="no") is not None,
            "quantize: a word that is none")


def grids(t):
    """The steps in which each kernel's tensors can be cut."""
    cases = {
        # format, suffix: (rows, columns, bytes) of a tile for W[256,1024]
        ("w4a8-cutlass", "weight_packed", (1, 1)): (16, 32, 256),
        ("w4a8-cutlass", "weight_group_scale", (1, 128)): (1, 128, 8),
        ("w4a8-cutlass", "weight_chan_scale", (1, 0)): (1, 0, 4),
        ("fp8-deepgemm-sm100", "weight", (1, 1)): (1, 1, 1),
        ("fp8-deepgemm-sm100", "weight_scale_packed", (1, 128)): (1, 512, 4),
        ("fp8-deepseek", "weight_scale_inv", (128, 128)): (128, 128, 4),
        ("mxfp8-blocked", "weight_scale", (1, 32)): (128, 128, 512),
        ("mxfp4-blocked", "weight_packed", (1, 1)): (1, 2, 1),
        ("nvfp4-blocked", "weight_scale", (1, 16)): (128, 64, 512),
    }
    from tilepack_llm._native import Described
    for (fmt, suffix, per), want in cases.items():
        described = Described.new(fmt, None, (1, 256, 1024))
        i = next(i for i in range(described.tensors) if described.suffix(i) == suffix)
        g = tiles.grid(described.layout(i), described.bytes(i), per)
        tile = math.prod(size for size, _ in g.inside)
        t.check((g.n.step, g.k.step, tile) == want and
                g.e.count * g.n.count * g.k.count * tile == described.bytes(i),
                f"tiles of {fmt} {suffix}")
    g = tiles.grid("(1,256,1024):(262144,1024,1)", 262144, (1, 1))
    t.check(g.n.tiles(16, 32, 256) == (16, 32), "tiles: a slice")
    blocked = tiles.Axis(2, 512, 128)
    t.check(blocked.tiles(128, 200, 200) == (1, 2), "tiles: the last one may be short")
    t.check(raised(tp.UnsupportedError, blocked.tiles, 64, 128, 200) is not None,
            "tiles: not from the middle of one")
    for order in "(1,(2,2),(2,2)):(16,(1,8),(2,4))", "(1,(2,2),(2,2)):(16,(1,2),(8,4))":
        g = tiles.grid(order, 16, (1, 1))
        seen = np.lib.stride_tricks.as_strided(np.arange(16, dtype=np.uint8), g.shape(),
                                               g.strides())
        n, k = np.indices((4, 4))
        steps = order.split(":")[1].replace("(", "").replace(")", "").split(",")
        want = (n % 2 * int(steps[1]) + n // 2 * int(steps[2]) + k % 2 * int(steps[3]) +
                k // 2 * int(steps[4]))
        t.check(all(np.array_equal(np.sort(seen[0, i, j], axis=None),
                                   np.sort(want[2 * i:2 * i + 2, 2 * j:2 * j + 2], axis=None))
                    for i in (0, 1) for j in (0, 1)), f"tiles: any order of bytes, {order}")


def main():
    t = tool.Tally()
    with tool.Workdir() as work:
        subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                        work.at("src"), "--preset", "tiny-mixtral", "--quiet"], check=True)
        commands(t, work)
        values(t, work)
        names_of_files(t, work)
        failures(t, work)
        without_means(t, work)
        for fmt in ("w4a8-cutlass", "fp8-deepseek", "mxfp4-blocked", "nvfp4-comfy"):
            reading(t, work, fmt)
        one_name(t, work)
        rules_of_reading(t, work)
        loading_views(t, work)
        copying(t, work)
        quantizing(t, work)
        grids(t)
    return t.finish()


if __name__ == "__main__":
    sys.exit(main())
