#!/usr/bin/env python3
"""What `suggest` says of six models as they are published, on five GPUs, one and eight of them: the
golden table suggest.json; and on how many GPUs small ones are served. Every command that it prints runs,
and no format that it prints is one that `plan` refuses there. Errors are those of a sample, of a small
model whose values are there.

usage: suggest.py [--write]   (writes suggest.json anew; look at the differences)"""
import concurrent.futures
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import giants  # noqa: E402
import tool  # noqa: E402

GOLDEN = os.path.join(HERE, "suggest.json")
GPUS = ("a100", "l40s", "h100", "b200", "5090")
tally = tool.Tally()


def run(path, gpu, count=1, *options, status=(0,)):
    done = tool.run("suggest", path, "--gpu", gpu, "--gpus", str(count), "--json", *options, check=False)
    if done.returncode not in status:
        raise SystemExit(f"{path} {gpu} {count}: status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def line(row):
    """"fp8-dynamic-ct 8.00 bits, 9.09 GB on each of 8, rounded, native"."""
    experts = ", experts whole" if row["expert_parallel"] else ""
    return (f"{row['format']} {row['bits']:.2f} bits, {row['bytes_per_gpu'] / 1e9:.2f} GB on each of {row['gpus']}"
            f"{experts}, {row['source']}, {row['speed']}")


def other(row):
    if "why" in row:
        return f"{row['format']}: {row['why']}"
    return f"{row['format']}: {row['bytes_per_gpu'] / 1e9:.2f} GB, takes {row.get('gpus', 'more than 64')}"


def table(found):
    return {"rows": [line(row) for row in found["suggestions"]], "others": [other(row) for row in found["others"]],
            **({"needs": found["gpus_needed"]} if "gpus_needed" in found else {})}


def runs(found, seen):
    """What is printed is what `plan` takes; each command once."""
    for row in found["suggestions"]:
        words = row["convert"]
        if not words or tuple(words) in seen or "DeepSeek-V3" in words[2]:
            continue
        seen.add(tuple(words))
        at = words.index("-o")
        done = tool.run("plan", *words[2:at], *words[at + 2:], check=False)
        tally.check(done.returncode == 0, f"{' '.join(words)}: {done.stderr}")


def golden(work):
    found, seen = {}, set()
    models = tool.share(giants.MODELS)
    cases = [(model, gpu, count) for model in models for gpu in GPUS for count in (1, 8)]
    paths = {model: giants.make(work.path, model) for model in models}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda case: run(paths[case[0]], *case[1:], "--no-sample", status=(0, 1)), cases))
    for (model, gpu, count), said in zip(cases, answers):
        found[f"{model}, {count} x {gpu}"] = table(said)
        tally.check(len(said["suggestions"]) <= 3, f"{model} {gpu}: at most three")
        runs(said, seen)
    if "--write" in sys.argv:
        with open(GOLDEN, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)
            f.write("\n")
    with open(GOLDEN, encoding="utf-8") as f:
        want = json.load(f)
    tally.check(len(want) == 60 and (set(want) == set(found) or len(models) < len(giants.MODELS)), f"{len(want)} cases")
    for name, said in found.items():
        tally.check(want.get(name) == said, f"{name}: {'' if want.get(name) == said else said}")


def no_int8_first(work):
    """Llama-3-70B in int8 by rounding alone loses most of its accuracy: no GPU and no number of them
    is told to, though its error by weights is less than that of FP8."""
    path = giants.make(work.path, "Llama-3-70B")
    for gpu in tool.share(GPUS):
        for count in (1, 2, 4, 8):
            rows = run(path, gpu, count, "--no-sample", status=(0, 1))["suggestions"]
            tally.check(not any("int8" in row["format"] for row in rows), f"{gpu} {count}: no int8")
    first = run(path, "h100", 8, "--no-sample")["suggestions"][0]
    tally.check(first["preferred"] and first["format"].startswith("fp8-") and first["speed"] == "native",
                "FP8 is first on an H100")


def gpus(work):
    """Names of products, and what is none."""
    path = work.at("tiny")
    for name, chip, sm in (("NVIDIA H100 80GB HBM3", "h100", 1), ("NVIDIA A100-SXM4-40GB", "a100-40gb", 1),
                           ("NVIDIA A100-SXM4-80GB", "a100", 1), ("NVIDIA H100 PCIe", "h100-pcie", 1),
                           ("NVIDIA GeForce RTX 5090", "5090", 1), ("rtx4090", "4090", 1), ("NVIDIA L40S", "l40s", 1),
                           ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada", 1), ("NVIDIA H200", "h200", 1),
                           ("NVIDIA GH200 480GB", "gh200", 1), ("NVIDIA B200", "b200", 1), ("H100-SXM", "h100", 1),
                           ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000", 1)):
        tally.check(run(path, name)["gpu"]["name"] == chip, f"{name} is {chip}")
    tally.check("80 GB" in run(path, "a100")["gpu"]["taken_as"], "a100 is that of 80 GB")
    for name, words in (("mi300x", "AMD are not covered"), ("AMD Instinct MI300X", "AMD are not covered"),
                        ("h101", "there is no such GPU"), ("sm90", "there is no such GPU"),
                        ("NVIDIA GeForce RTX 5090 Laptop GPU", "there is no such GPU"),
                        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "there is no such GPU")):
        done = tool.run("suggest", path, "--gpu", name, check=False)
        tally.check(done.returncode == 2 and words in done.stderr, f"{name}: {done.stderr}")
    if not os.path.exists("/proc/driver/nvidia/gpus"):
        done = tool.run("suggest", path, check=False)
        tally.check(done.returncode == 2 and "no --gpu is given" in done.stderr and "h100" in done.stderr, done.stderr)
    done = tool.run("suggest", path, "--gpu", "h100", "--engine", "deepgemm", check=False)
    tally.check(done.returncode == 2 and "vllm-tilepack" in done.stderr, done.stderr)


def measured(work):
    """Of a model with values: an error of each row, and the commands as text."""
    path = work.at("tiny")
    found = run(path, "h100", 2)
    for row in found["suggestions"]:
        tally.check(0.001 < row["error"]["relative"] < 0.2, f"{row['format']}: {row['error']}")
        tally.check("tensor-parallel-size" in " ".join(row["serve"]), "served on two")
    text = tool.run("suggest", path, "--gpu", "h100", "--gpus", "2").stdout
    # All but the path and the commands:
    tally.check(all(len(t) <= 100 for t in text.split("\n")[1:] if not t.startswith("     ")), "100 columns")
    for row in found["suggestions"]:
        tally.check(" ".join(row["serve"]) in text and " ".join(row["convert"]) in text, "the same commands")
    words = found["suggestions"][0]["convert"]
    words[words.index("-o") + 1] = work.at("made")
    done = tool.run(*words[1:])
    tally.check("serve it: vllm serve" in done.stdout, done.stdout)
    again = run(work.at("made"), "h100", 2)["suggestions"]
    tally.check(again[0]["source"] == "as it is" and again[0]["convert"] is None, "made: as it is")


def others(work):
    """Another server's words, and a source whose codes another format takes over."""
    experts = giants.make(work.path, "Qwen3-30B-A3B")
    found = run(experts, "h100", 8, "--no-sample", "--engine", "sglang")
    tally.check(found["suggestions"][0]["serve"][-4:] == ["--tp-size", "8", "--ep-size", "8"],
                "SGLang: experts of 768 are whole on 8 GPUs")
    tally.check(found["version"] == 1 and found["engine_version"] == "0.5", "versions of two things")
    tool.run("convert", work.at("tiny"), "-o", work.at("int8"), "--to", "int8-ct", "-q")
    first = run(work.at("int8"), "b200")["suggestions"][0]
    tally.check((first["format"], first["source"]) == ("w8a16-ct", "exact"), f"int8 on Blackwell: {first}")


def small(work, name, heads, kv, layers=2, inter=1536, store=giants.plain, hidden=768, **more):
    config = giants.sizes("LlamaForCausalLM", "llama", hidden, inter, layers, heads, kv, 128, 384, **more)
    return giants.write(work.at(name), lambda c: giants.llama(c, store), config)


def served_on(found):
    """GPUs of each row; its command says the same number."""
    for row in found["suggestions"]:
        words = [*row["serve"], "--tensor-parallel-size", "1"]
        tally.check(words[words.index("--tensor-parallel-size") + 1] == str(row["gpus"]), f"serve: {row['serve']}")
    return {row["gpus"] for row in found["suggestions"]}


def ranks(work):
    """The most GPUs, up to those that there are, that can divide a model; not the divisors of their number."""
    heads28, heads12 = small(work, "heads28", 28, 4), small(work, "heads12", 12, 12)
    for path, count, on in ((heads28, 8, 4), (heads28, 7, 4), (heads28, 5, 4), (heads28, 3, 2), (heads28, 2, 2),
                            (heads12, 3, 3), (heads12, 5, 4), (heads12, 7, 6), (heads12, 8, 6)):
        found = run(path, "l4", count, "--no-sample")
        says = {row.get("note", "") for row in found["suggestions"]}
        tally.check(served_on(found) == {on}, f"{path} on {count}: {served_on(found)}")
        tally.check(all(f"heads cannot be divided among {count} ranks" in note for note in says) == (on < count),
                    f"{path} on {count}: {says}")
        tally.check(("bytes_per_gpu" in found) == (on == count), f"{path} as it is on {count}")
        line = tool.run("suggest", path, "--gpu", "l4", "--gpus", str(count), "--no-sample").stdout.split("\n")[2]
        tally.check(line.startswith("as it is: ") and ("on each GPU" in line) == (on == count), line)
    tally.check("bytes_per_gpu" not in run(small(work, "odd", 12, 12, inter=1280), "l4", 3, "--no-sample"),
                "rows of an MLP that 3 do not divide")
    packed = small(work, "packed", 28, 4, store=giants.gptq, inter=1024, hidden=1024,
                   quantization_config=giants.MODELS["Llama-3-8B-GPTQ"][1]["quantization_config"])
    for count in (8, 4):
        found = run(packed, "l4", count, "--no-sample")
        first = found["suggestions"][0]
        tally.check(first["source"] == "as it is" and served_on(found) == {4}, f"as it is on 4 of {count}: {first}")
        tally.check(("bytes_per_gpu" in found) == (count == 4), f"a packed source as it is on {count}")


def too_large(work):
    """What does not fit names the fewest GPUs that serve it, whatever their number is now."""
    path = small(work, "large", 28, 4, layers=120, inter=28672, hidden=8192)
    for count in (1, 2, 3):
        found = run(path, "l4", count, "--no-sample", status=(1,))
        needs = {row["format"]: row.get("gpus") for row in found["others"]}
        tally.check(found["gpus_needed"] == 4 and needs.get("w4a16-ct") == 4 and needs.get("fp8-dynamic-ct") == 28,
                    f"on {count}: {needs}")
        text = tool.run("suggest", path, "--gpu", "l4", "--gpus", str(count), "--no-sample", check=False).stdout
        tally.check("it takes 4 of them" in text and "no number" not in text, text)
    found = run(path, "l4", 6, "--no-sample")
    tally.check(served_on(found) == {4}, "and 4 of 6 are taken")


def main():
    with tool.Workdir() as work:
        subprocess.run([sys.executable, os.path.join(ROOT, "samples", "gen_checkpoint.py"), work.at("tiny"),
                        "--preset", "tiny-mixtral", "--quiet"], check=True)
        measured(work)
        gpus(work)
        others(work)
        no_int8_first(work)
        ranks(work)
        too_large(work)
        golden(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
