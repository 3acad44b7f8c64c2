#!/usr/bin/env python3
"""The verdicts of plans: who reads what, on which GPUs, or why nobody does.

62 pairs of model and format against engines.json beside this file; a change of one rule of each kind
through --engine-file; the conditions --engine, --gpu and --gpus; what is kept for readers that permute
rows. Models are made here, small, as their families name their tensors.

usage: engines.py [--write]   (writes engines.json anew; look at the differences)"""
import copy
import json
import os
import re
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

GOLDEN = os.path.join(HERE, "engines.json")
INSTALL = ('make wheel && pip install "$(ls build/dist/tilepack_llm-*_$(uname -m).whl)[vllm]"'
           "  # in a checkout of tilepack")
tally = tool.Tally()


def layers(*names):
    return {f"model.layers.0.{name}.weight": shape for name, shape in names}


ATTENTION = (("self_attn.q_proj", (256, 256)), ("self_attn.k_proj", (128, 256)),
             ("self_attn.v_proj", (128, 256)), ("self_attn.o_proj", (256, 256)))
MLP = (("mlp.gate_proj", (512, 256)), ("mlp.up_proj", (512, 256)), ("mlp.down_proj", (256, 512)))


def experts(prefix, inter=512, names=("gate_proj", "up_proj", "down_proj"), hidden=256):
    gate, up, down = names
    return tuple((f"{prefix}.experts.{e}.{name}", shape) for e in range(2) for name, shape in
                 ((gate, (inter, hidden)), (up, (inter, hidden)), (down, (hidden, inter))))


SIZES = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 512,
         "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128}
ENDS = {"model.embed_tokens.weight": (64, 256), "lm_head.weight": (64, 256)}
MODELS = {  # model_type: (tensors, further keys of config.json)
    "llama": layers(*ATTENTION, *MLP),
    "mixtral": layers(*ATTENTION, ("block_sparse_moe.gate", (2, 256)),
                      *experts("block_sparse_moe", names=("w1", "w3", "w2"))),
    "qwen3_moe": layers(*ATTENTION, ("mlp.gate", (2, 256)), *experts("mlp", inter=768)),
    "minimax_m2": layers(*ATTENTION, ("block_sparse_moe.gate", (2, 256)),
                         *experts("block_sparse_moe", names=("w1", "w3", "w2"))),
    "deepseek_v3": layers(("self_attn.q_a_proj", (256, 256)), ("self_attn.kv_a_proj_with_mqa", (576, 256)),
                          ("self_attn.q_b_proj", (384, 256)), ("self_attn.o_proj", (256, 256)),
                          ("mlp.gate", (2, 256)), *experts("mlp")),
    "falcon": {f"transformer.h.0.{name}.weight": shape for name, shape in
               (("self_attention.query_key_value", (512, 256)), ("self_attention.dense", (256, 256)),
                ("mlp.dense_h_to_4h", (512, 256)), ("mlp.dense_4h_to_h", (256, 512)))},
    "bloom": {f"transformer.h.0.{name}.weight": shape for name, shape in
              (("self_attention.query_key_value", (768, 256)), ("self_attention.dense", (256, 256)),
               ("mlp.dense_h_to_4h", (512, 256)), ("mlp.dense_4h_to_h", (256, 512)))},
    "llama4_text": layers(*ATTENTION, *((f"feed_forward.{n[4:]}", s) for n, s in MLP)),
    "glm4": layers(*ATTENTION, ("mlp.gate_up_proj", (1024, 256)), ("mlp.down_proj", (256, 512))),
    "glm4_moe": layers(*ATTENTION, ("mlp.gate", (2, 256)), *experts("mlp")),
    "stablelm": layers(*ATTENTION, *MLP),
    "mistral3": {f"language_model.{n}": s for n, s in layers(*ATTENTION, *MLP).items()},
    "gpt_oss": {**layers(*ATTENTION, ("mlp.router", (2, 256))),
                "model.layers.0.mlp.experts.gate_up_proj": (2, 256, 1024),
                "model.layers.0.mlp.experts.down_proj": (2, 512, 256)},
}
# Each with formats of both kinds that it is read in, that it is not, and that nobody serves.
PAIRS = [(model, fmt) for model, formats in {
    "llama": "w4a16-ct w8a16-ct fp8-tensor-ct fp8-deepseek int8-ct gptq w4a8-cutlass fp8-1x128 mxfp8-torchao3d "
             "fp8-deepgemm-sm90 mxfp4-triton-hopper w4a8-flashinfer-sm90",
    "mixtral": "w4a16-ct w8a16-ct fp8-tensor-ct fp8-ct int8-ct nvfp4-ct w4a8-cutlass w4a16-machete mxfp8-trtllm "
               "mxfp4-marlin w4a8-int8-marlin-channel",
    "qwen3_moe": "gptq w4a8-ct mxfp4-triton-hopper fp8-deepseek",
    "minimax_m2": "w4a16-ct w4a16-marlin mxfp4-marlin",
    "deepseek_v3": "w4a8-ct w4a8-cutlass fp8-dynamic-ct fp8-deepseek",
    "falcon": "w4a16-ct mxfp8-ct w4a16-marlin mxfp8-marlin fp8-marlin-channel",
    "bloom": "w4a16-ct int8-ct w4a16-marlin",
    "llama4_text": "w4a16-ct gptq awq fp8-ct w4a16-marlin mxfp4-marlin",
    "glm4": "w4a16-ct gptq awq",
    "glm4_moe": "gptq",
    "stablelm": "w4a16-ct gptq w4a16-marlin",
    "mistral3": "fp8-deepseek fp8-ct",
    "gpt_oss": "mxfp4-ct mxfp4-marlin mxfp4-triton-hopper mxfp4-trtllm w4a16-ct"}.items() for fmt in formats.split()]


def make(work, model, config=None, tensors=None):
    path = work.at(model)
    if not os.path.exists(path):
        os.makedirs(path)
        shapes = {**ENDS, **(tensors or MODELS[model])}
        stfile.save(os.path.join(path, "model.safetensors"),
                    {n: stfile.from_f32("BF16", np.ones(s, np.float32)) for n, s in shapes.items()})
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**SIZES, "model_type": model, **(config or {})}, f)
    return path


def plan(path, fmt, *options, status=0):
    done = tool.run("plan", path, "--to", fmt, "--json", *options, check=False)
    found = json.loads(done.stdout)
    if done.returncode != status:
        raise SystemExit(f"{path} {fmt} {options}: status {done.returncode}: {done.stderr}")
    return found


def verdict(found):
    """What is worth a line in the golden file."""
    readers = {r["engine"]: " ".join(r["gpus"]) or f"no: {r['weight']}: {r['why']}" for r in found["readers"]
               if r["kind"] != "kernels"}
    reasons = sorted({k["reason"] for k in found["kept"] if k.get("reason") and ("vLLM" in k["reason"])})
    return {"serve": " ".join(found["serve"]["command"]) if "serve" in found else None,
            "unserved": found.get("unserved"), "readers": readers, **({"kept": reasons} if reasons else {})}


def golden(work):
    """And the text of plan says the same first."""
    found = {f"{model} {fmt}": verdict(plan(make(work, model), fmt, "--requantize")) for model, fmt in PAIRS}
    if "--write" in sys.argv:
        with open(GOLDEN, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)
            f.write("\n")
    with open(GOLDEN, encoding="utf-8") as f:
        want = json.load(f)
    tally.check(len(want) == 62 and set(want) == set(found), f"{len(want)} pairs")
    for name, is_now in found.items():
        tally.check(want.get(name) == is_now, f"{name}: {'' if want.get(name) == is_now else is_now}")
    for model, fmt in PAIRS[::7]:
        first = tool.run("plan", work.at(model), "--to", fmt).stdout.split("\n")[0]
        says = found[f"{model} {fmt}"]
        tally.check(first.startswith("read by ") if says["serve"] else first == says["unserved"],
                    f"{model} {fmt}: the text begins with it: {first}")


def edits(engine, key, index=None, **change):
    """A copy with another value, or with members of one rule changed; None takes one away."""
    made = copy.deepcopy(engine)
    if index is None:
        made.update({key: change["value"]})
        return made
    rule = made[key][index]
    for word, value in change.items():
        if value is None:
            rule.pop(word, None)
        else:
            rule[word] = value
    return made


def rule(engine, key, **wanted):
    """The index of the rule that has these members."""
    return next(i for i, r in enumerate(engine[key]) if all(r.get(k) == v for k, v in wanted.items()))


def changes(work):
    """One rule of each kind, changed: the verdict changes."""
    ours = {name: json.loads(tool.run("engines", name, "--json").stdout)["engines"][0]
            for name in ("vllm", "vllm-tilepack", "transformers")}
    vllm, plugin, hf = ours["vllm"], ours["vllm-tilepack"], ours["transformers"]
    yes, no = True, False
    reads = rule(vllm, "reads", formats=["w4a8-ct"])
    llama, moe = make(work, "llama"), make(work, "mixtral")
    cases = [  # what, engine, changed, model, format, options, verdict before and after
        ("a GPU of a row", vllm, edits(vllm, "reads", reads, gpus=["sm80"]), llama, "w4a8-ct", ("--gpu", "h100"), yes, no),
        ("what a row takes", vllm, edits(vllm, "reads", reads, takes=["linear"]), moe, "w4a8-ct", (), yes, no),
        ("the formats of a row", vllm, edits(vllm, "reads", reads, formats=["awq"]), llama, "w4a8-ct", (), yes, no),
        ("what is built plain", vllm, edits(vllm, "plain", value=[{"modules": ["o_proj$"], "says": "it builds it plain"}]),
         llama, "w4a16-ct", (), yes, no),
        ("a size", vllm, edits(vllm, "sizes", rule(vllm, "sizes", formats=["w4a8-ct"], dim="K"), multiple=192),
         moe, "w4a8-ct", (), yes, no),
        ("a size of a rank", vllm, edits(vllm, "sizes", rule(vllm, "sizes", dim="N", divided=True), multiple=512),
         llama, "fp8-deepseek", ("--gpus", "2"), yes, no),
        ("a setting", vllm, edits(vllm, "families", rule(vllm, "families", set={"group": "channel"}), set={"group": "32"}),
         moe, "w8a16-ct", ("--set", "group=channel", "--gpu", "h100"), no, yes),
        ("GPUs of a rule", vllm, edits(vllm, "families", rule(vllm, "families", set={"group": "channel"}), gpus=None),
         moe, "w8a16-ct", ("--set", "group=channel", "--gpu", "a100"), yes, no),
        ("refused", vllm, edits(vllm, "families", rule(vllm, "families", models=["mistral3"]), models=["llama"]),
         make(work, "mistral3"), "fp8-deepseek", (), no, yes),
        ("wrong", hf, edits(hf, "families", rule(hf, "families", formats=["nvfp4-ct"], of=["experts"]), of=["head"]),
         moe, "nvfp4-ct", (), no, yes),
        ("all models but one", plugin, edits(plugin, "families", rule(plugin, "families", but=["gpt_oss"]), but=["mixtral"]),
         moe, "mxfp4-triton-hopper", ("--include", "experts"), no, yes),
        ("what is alike", vllm, edits(vllm, "alike", value=["fused"]), moe, "w4a16-ct",
         ("--exclude", "experts[.]0[.]"), no, yes),
        ("what is fused", vllm, edits(vllm, "alike", value=["experts"]), llama, "w4a16-ct",
         ("--exclude", "q_proj", "--merged", "convert"), no, yes),
        ("what it skips", vllm, edits(vllm, "skips", value=["gate$"]), moe, "w4a16-ct",
         ("--include", "gate|experts|_proj"), no, yes),
        ("a head", vllm, edits(vllm, "reads", rule(vllm, "reads", formats=["w4a8-ct"]), takes=["linear", "experts"]),
         llama, "w4a8-ct", ("--include", "lm_head|_proj"), yes, no),
    ]
    for what, engine, changed, model, fmt, options, before, after in cases:
        file = work.at("own.json")
        with open(file, "w", encoding="utf-8") as f:
            json.dump({**changed, "name": "own"}, f)
        for name, good in ((engine["name"], before), ("own", after)):
            plan(model, fmt, *options, "--engine", name, "--engine-file", file, status=0 if good else 4)
        tally.check(True, f"{what}: the verdict changes")
    commands(work, plugin, llama)
    keeps(work, vllm, llama)


def commands(work, plugin, llama):
    """The words of the command, what is installed, and the package in config.json."""
    file = work.at("own.json")
    with open(file, "w", encoding="utf-8") as f:
        json.dump({**plugin, "name": "a", "serve": ["acme", "DST", "go"], "parallel": ["-n", "N"], "install": "get it"}, f)
    found = plan(llama, "w4a16-marlin", "--engine-file", file, "--engine", "a", "--gpus", "2", "--gpu", "a100")
    tally.check(found["serve"] == {"engine": "a", "command": ["acme", "DST", "go", "-n", "2"], "install": "get it"},
                f"the command of a file: {found['serve']}")
    moe = make(work, "mixtral")
    found = plan(moe, "fp8-deepgemm-sm100")
    tally.check(found["serve"]["command"] == ["vllm", "serve", "DST", "--moe-backend", "deep_gemm"] and
                found["serve"]["install"] == INSTALL, "words behind, and what is needed")
    tally.check(plan(llama, "fp8-deepgemm-sm100")["serve"]["command"] == ["vllm", "serve", "DST"],
                "only where experts are in it")
    found = plan(moe, "mxint4-trtllm", "--include", "experts")
    tally.check(found["serve"]["command"][:2] == ["env", "VLLM_USE_FLASHINFER_MOE_INT4=1"], "words before")


def keeps(work, vllm, llama):
    """A rule with the verdict kept, and one about parts that are merged."""
    file = work.at("own.json")
    extra = {"models": ["llama"], "modules": ["o_proj$"], "verdict": "kept", "says": "it turns rows"}
    merged = {"formats": ["w4a16-ct"], "multiple": 384, "of": "whole", "says": "it merges 384 rows"}
    with open(file, "w", encoding="utf-8") as f:
        json.dump({**vllm, "name": "own", "families": vllm["families"] + [extra], "merged": [merged]}, f)
    found = plan(llama, "w4a16-ct", "--engine-file", file)
    why = {k["name"]: k.get("reason", "") for k in found["kept"]}
    tally.check(why.get("model.layers.0.self_attn.o_proj.weight") == "it turns rows" and
                "own" in {r["engine"] for r in found["readers"] if r["gpus"]}, "a rule keeps a weight")
    tally.check("it merges 384 rows" in why.get("model.layers.0.self_attn.q_proj.weight", ""),
                "and one keeps a merged set")
    asked = tool.run("plan", llama, "--to", "w4a16-ct", "--engine-file", file, "--include", "o_proj")
    tally.check("vLLM (0.33): it turns rows" in asked.stderr, "--include converts it, with a warning")
    plan(llama, "w4a16-ct", "--engine-file", file, "--include", "o_proj", "--engine", "own", status=4)


def conditions(work):
    """Nothing is written where the condition does not hold."""
    llama, moe, out = make(work, "llama"), make(work, "qwen3_moe"), work.at("out")
    for options, says in (
            (("w4a8-cutlass", "--gpu", "a100"), "which it reads on sm90 alone"),
            (("mxfp4-triton-hopper", "--gpu", "h100"), "is a linear layer"),
            (("fp8-1x128", "--gpu", "h100"), "no server reads this format"),
            (("w4a16-ct", "--engine", "sglang"), "it knows none of its formats"),
            (("fp8-deepseek", "--gpus", "3"), "cannot be divided among 3 ranks")):
        done = tool.run("convert", llama, "-o", out, "--to", *options, check=False)
        tally.check(done.returncode == 4 and says in done.stderr and not os.path.exists(out), f"{options}: {says}")
    for gpus, good in ((1, True), (3, False), (8, False)):  # 768 / 3 is 256: 2 heads are not divided by 3
        done = tool.run("plan", moe, "--to", "w4a8-cutlass", "--gpu", "h100", "--gpus", gpus, check=False)
        tally.check((done.returncode == 0) == good, f"experts of 768 on {gpus} GPUs: {done.stderr}")
    done = tool.run("plan", moe, "--to", "w4a8-cutlass", "--gpu", "h100", "--gpus", 2, check=False)
    tally.check(done.returncode == 4 and "in multiples of 256" in done.stderr, "experts of 384 to a rank")
    big = make(work, "eight", {"model_type": "qwen3_moe", "num_attention_heads": 8, "num_key_value_heads": 4},
               layers(("self_attn.q_proj", (1024, 256)), ("self_attn.k_proj", (512, 256)),
                      ("self_attn.v_proj", (512, 256)), ("self_attn.o_proj", (256, 1024)), ("mlp.gate", (2, 256)),
                      *experts("mlp", inter=768)))
    for fmt, gpus, good in (("w4a8-cutlass", 8, False), ("fp8-deepseek", 2, True), ("fp8-deepseek", 8, False),
                            ("fp8-dynamic-ct", 8, True), ("w4a8-ct", 4, False)):
        done = tool.run("plan", big, "--to", fmt, "--gpus", gpus, check=False)
        tally.check((done.returncode == 0) == good, f"{fmt} of 768 on {gpus} GPUs: {done.stderr}")
    heads(work)
    tally.check(tool.run("plan", llama, "--to", "fp8-1x128", "--strict", check=False).returncode == 0,
                "--strict alone asks for no server")
    tally.check(tool.run("plan", llama, "--to", "fp8-1x128", "--engine", "deepgemm").returncode == 0,
                "kernels can be asked for")


def heads(work):
    """Ranks divide the heads of attention, whatever its weights are; that is said of the model, once."""
    def attention(of, kv):
        shapes = layers(("self_attn.q_proj", (128 * of, 256)), ("self_attn.k_proj", (128 * kv, 256)),
                        ("self_attn.v_proj", (128 * kv, 256)), ("self_attn.o_proj", (256, 128 * of)),
                        ("mlp.gate_proj", (3072, 256)), ("mlp.up_proj", (3072, 256)), ("mlp.down_proj", (256, 3072)))
        return make(work, f"heads-{of}-{kv}", {"model_type": "llama", "num_attention_heads": of,
                                               "num_key_value_heads": kv}, shapes)
    plain = ("--exclude", "self_attn")
    for of, kv, options, gpus, kind in (
            (28, 4, ("fp8-dynamic-ct", "--engine", "vllm", "--gpu", "l4"), 8, "28 attention"),
            (28, 4, ("fp8-dynamic-ct", *plain), 8, "28 attention"), (28, 4, ("fp8-dynamic-ct",), 3, "28 attention"),
            (28, 4, ("fp8-deepseek", "--engine", "sglang"), 8, "28 attention"),
            (28, 4, ("fp8-dynamic-ct",), 4, None), (28, 4, ("fp8-dynamic-ct", *plain), 4, None),
            (28, 4, ("fp8-dynamic-ct", *plain, "--expert-parallel"), 8, "28 attention"),
            (12, 6, ("fp8-dynamic-ct",), 4, "6 key-value"), (12, 6, ("fp8-dynamic-ct",), 6, None),
            (12, 6, ("fp8-dynamic-ct",), 12, None), (12, 6, ("fp8-dynamic-ct",), 24, "12 attention"),
            (28, 4, ("fp8-deepseek", "--engine", "trtllm"), 8, "28 attention"),
            (28, 4, ("fp8-1x128", "--engine", "deepgemm"), 8, None)):
        done = tool.run("plan", attention(of, kv), "--to", *options, "--gpus", gpus, check=False)
        says = f"its {kind} heads cannot be divided among {gpus} ranks"
        tally.check((done.returncode == 4 and says in done.stderr) if kind else done.returncode == 0,
                    f"{of} and {kv} heads, {options} on {gpus}: {done.stderr}")


def undescribed(work):
    """What no server finds out."""
    bare = make(work, "bare", tensors=MODELS["llama"])
    os.remove(os.path.join(bare, "config.json"))
    diffusers = make(work, "diffusers", tensors=MODELS["llama"])
    with open(os.path.join(diffusers, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"_class_name": "FluxTransformer2DModel", "num_layers": 1}, f)
    for path, says in ((bare, "there is no config.json"), (diffusers, "config.json names no model")):
        found = plan(path, "w4a16-ct")
        tally.check("serve" not in found and says in found["unserved"], f"unserved: {found['unserved']}")
        text = tool.run("plan", path, "--to", "w4a16-ct").stdout
        tally.check(says in text.split("\n")[0], "and plan says it first")
        text = tool.run("convert", path, "-o", work.at("made"), "--to", "w4a16-ct", "--force").stdout
        tally.check("serve it" not in text, "and there is no line")
        card = open(os.path.join(work.at("made"), "README.md"), encoding="utf-8").read()
        tally.check("vllm serve" not in card and says in card, "nor in the card")
        done = tool.run("plan", path, "--to", "w4a16-ct", "--gpu", "h100", check=False)
        tally.check(done.returncode == 4 and says in done.stderr, "nor on a GPU")
    done = tool.run("convert", make(work, "llama"), "-o", work.at("one.safetensors"), "--to", "w4a16-ct", "--json")
    found = json.loads(done.stdout)
    tally.check("serve" not in found and "a single file" in found["unserved"], "a single file")


def strangers(work):
    """A model that no file knows is promised to nobody, unless its names and sizes are known ones."""
    usual, turned = MODELS["llama"], layers(*ATTENTION[:3], ("self_attn.o_proj", (512, 256)), *MLP)
    odd = {name.replace("mlp.gate_proj", "mlp.alpha"): shape for name, shape in usual.items()}
    for name, tensors, good in (("usual", usual, True), ("odd", odd, False), ("turned", turned, False)):
        found = plan(make(work, f"strange-{name}", {"model_type": "foonet"}, tensors), "w4a16-ct")
        tally.check(("serve" in found) == good, f"{name} names of an unknown model: {found.get('unserved')}")
        tally.check(good or "nothing is known of its model_type" in found["unserved"], f"{name}: says why")


def counts():
    """What `ran` says in words is what it lists."""
    for engine in json.loads(tool.run("engines", "--json").stdout)["engines"]:
        for run in engine.get("ran", []):
            for said in re.findall(r"\b(all|[0-9]+)(?: of)? 13 interchange formats", run["says"]) if run.get("formats") else ():
                several = re.search(r"\band (\d+ )?of\b", run["says"])
                tally.check(several or len(run["formats"]) == (13 if said == "all" else int(said)),
                            f"{engine['name']}: {run['models']}: {run['says']}, and lists {len(run['formats'])}")


def main():
    with tool.Workdir() as work:
        counts()
        strangers(work)
        golden(work)
        changes(work)
        conditions(work)
        undescribed(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
