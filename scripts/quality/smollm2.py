"""SmolLM2's GGUF file as a Hugging Face checkpoint in bf16, and its tokenizer.

The gguf package reads the file and decodes its blocks; the values are rounded to bf16, and
that is the source of everything that is measured.
"""
import json
import os

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import figures
import llama


def field(reader, key):
    return reader.fields[key].contents()


def config_of(reader):
    """config.json of the model."""
    def get(key):
        return field(reader, "llama." + key)

    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "hidden_size": get("embedding_length"), "intermediate_size": get("feed_forward_length"),
            "num_hidden_layers": get("block_count"),
            "num_attention_heads": get("attention.head_count"),
            "num_key_value_heads": get("attention.head_count_kv"),
            "max_position_embeddings": get("context_length"),
            "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
            "rope_theta": get("rope.freq_base"), "vocab_size": get("vocab_size"),
            "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
            "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
            "hidden_act": "silu", "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


def tensors_of(reader, config):
    """{name of Hugging Face: bf16 array}."""
    stored = {t.name: t for t in reader.tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    wanted = ["model.embed_tokens.weight", "model.norm.weight", *llama.linear_names(config)]
    wanted += [f"model.layers.{i}.{norm}.weight" for i in range(config["num_hidden_layers"])
               for norm in ("input_layernorm", "post_attention_layernorm")]
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    out = {}
    for name in sorted(wanted):
        tensor = stored.pop(names.get_name(name, (".weight",)))
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        part = name.split(".")[-2]
        if part in heads:
            values = llama.from_pairs(values, heads[part])
        out[name] = np.ascontiguousarray(values).astype(ml_dtypes.bfloat16)
    if stored:
        raise SystemExit(f"smollm2.py: tensors that have no place: {sorted(stored)}")
    return out


def tokenizer_of(reader):
    """Byte-level BPE; digits stand alone, which is what "smollm" means in the file."""
    if field(reader, "tokenizer.ggml.pre") != "smollm":
        raise SystemExit("smollm2.py: another tokenizer than this script knows")
    tokens = {token: i for i, token in enumerate(field(reader, "tokenizer.ggml.tokens"))}
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(tokens, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True),
         pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def write_checkpoint(directory, config, tensors):
    os.makedirs(directory, exist_ok=True)
    save_file(tensors, os.path.join(directory, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out, indent=2)


def prepare(path, source, padded, multiple):
    """Writes the checkpoint `source` with its tokenizer, and `padded`, whose matrices have
    zero rows and columns up to a multiple; returns (config, {name: float32}, tokenizer)."""
    reader = gguf.GGUFReader(path)
    config = config_of(reader)
    tensors = tensors_of(reader, config)
    tokenizer = tokenizer_of(reader)
    write_checkpoint(source, config, tensors)
    tokenizer.save(os.path.join(source, "tokenizer.json"))
    with open(os.path.join(source, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast"}, out)
    linear = set(llama.linear_names(config))
    write_checkpoint(padded, config, {
        name: figures.pad(values, multiple) if name in linear else values
        for name, values in tensors.items()})
    return config, {name: t.astype(np.float32) for name, t in tensors.items()}, tokenizer
