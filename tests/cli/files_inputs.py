"""Checkpoints as they are published, for files.sh: files_inputs.py FOLDER makes them;
files_inputs.py same A NAME B NAME compares a tensor of two files."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import numpy as np  # noqa: E402
import stfile  # noqa: E402

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
RNG = np.random.default_rng(38)


def text(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))


def weights(*names, shape=(128, 128), dtype=np.float32):
    return {name: RNG.standard_normal(shape).astype(dtype) * dtype(0.05) for name in names}


def save(path, values):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    kinds = {2: "BF16", 4: "F32", 8: "F64"}
    stfile.save(path, {k: stfile.tensor(kinds[v.itemsize], v) for k, v in values.items()})


def layer(i):
    return [f"blocks.{i}.attn.to_q.weight", f"blocks.{i}.ff.net.weight"]


def sharded(folder, name, index, edit=None, extra=None):
    """Two shards NAME % number of which the index tells, and the index's map after edit()."""
    shards = [weights(*layer(i)) for i in range(2)]
    names = [name % (i + 1) for i in range(2)]
    weight_map = {k: names[i] for i, shard in enumerate(shards) for k in shard}
    for shard, more in zip(shards, extra(shards) if extra else ({}, {})):
        shard.update(more)
    for file, shard in zip(names, shards):
        save(f"{folder}/{file}", shard)
    if edit:
        edit(weight_map)
    text(f"{folder}/{index}", {"metadata": {"total_size": 1}, "weight_map": weight_map})
    text(f"{folder}/config.json", CONFIG)


def sets(to):
    """Sets of files by the names of diffusers and Mistral."""
    name = "diffusion_pytorch_model"
    sharded(f"{to}/diffusers", name + "-%05d-of-00002.safetensors",
            name + ".safetensors.index.json")
    sharded(f"{to}/variant", name + ".fp16-%05d-of-00002.safetensors",
            name + ".safetensors.index.fp16.json")
    sharded(f"{to}/mistral", "consolidated-%05d-of-00002.safetensors",
            "consolidated.safetensors.index.json")
    save(f"{to}/both/{name}.safetensors", weights(*layer(0)))
    save(f"{to}/both/{name}.fp16.safetensors", weights(*layer(1)))
    text(f"{to}/both/config.json", CONFIG)


def odds(to):
    """Indexes that do not say what the shards hold."""
    def build(folder, **how):
        sharded(f"{to}/{folder}", "model-%05d-of-00002.safetensors",
                "model.safetensors.index.json", **how)
    first, second = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))
    twin, other = layer(0)[0], layer(1)[0]
    build("unlisted", extra=lambda s: (weights("inv_freq", shape=(32,)), {}))
    build("twice", extra=lambda s: ({}, weights(twin)))
    build("elsewhere", edit=lambda m: m.update({twin: second, other: first}))
    build("absent", edit=lambda m: m.update({"x.weight": first, "y.weight": second}))
    build("dotted", edit=lambda m: m.update({k: "./" + v for k, v in m.items()}))


def companions(to):
    """A model with weights beside it."""
    save(f"{to}/companions/model.safetensors", weights(*layer(0)))
    text(f"{to}/companions/config.json", CONFIG)
    for folder in ("", "vision-lora/"):
        save(f"{to}/companions/{folder}adapter_model.safetensors", weights("q.lora_A.weight"))
        text(f"{to}/companions/{folder}adapter_config.json", {})
    text(f"{to}/companions/spk_dict.pt", "voices")
    text(f"{to}/companions/optimizer.pt", "moments")


def f64(to):
    """The same values as F64 and as what numpy makes of them, with ties and what is too small."""
    values = weights(*layer(0), dtype=np.float64)
    odd = values[layer(0)[0]]
    odd[0, :8] = [1 + 2.0**-24, 1 + 3 * 2.0**-24, -1 - 2.0**-24, 2.0**-149, 2.0**-150, 1e-60,
                  -0.0, 2.0**-126 * (1 + 2.0**-24)]
    save(f"{to}/f64/model.safetensors", values)
    save(f"{to}/f32/model.safetensors", {k: v.astype(np.float32) for k, v in values.items()})
    odd[1, 1] = 1e39
    save(f"{to}/f64-large/model.safetensors", values)
    for folder in ("f64", "f32", "f64-large"):
        text(f"{to}/{folder}/config.json", CONFIG)


def null(to):
    """A header that says of its metadata that there is none."""
    save(f"{to}/null/model.safetensors", weights(*layer(0)))
    text(f"{to}/null/config.json", CONFIG)
    path = f"{to}/null/model.safetensors"
    with open(path, "rb") as f:
        data = f.read()
    size = int.from_bytes(data[:8], "little")
    header = {**json.loads(data[8:8 + size]), "__metadata__": None}
    line = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(line).to_bytes(8, "little") + line + data[8 + size:])


def main(words):
    if words[0] == "same":
        a, b = (stfile.load(path)[0][name] for path, name in (words[1:3], words[3:5]))
        return a.data != b.data or a.shape != b.shape
    for make in (sets, odds, companions, f64, null):
        make(words[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
