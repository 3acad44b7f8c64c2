"""Small checkpoints as publishers write them, with the values that they mean.

A function fills a Checkpoint: names, dtypes, shapes and the words of config.json are the
publisher's, codes and scales are random, and the values are decoded here, in numpy alone. The
tables of rows, one for each storage, stand in published_fp8.py, published_four.py and, of what is
refused, published_refused.py.
"""
import json
import os

import numpy as np

import refquant as rq
import stfile
from stfile import Tensor, tensor

BLOCK = 128
E5M2 = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)
TABLES = {"F8_E4M3": rq.E4M3, "F8_E5M2": E5M2}


# ---- rows ----------------------------------------------------------------------

class Row:
    """`fill(checkpoint, **arguments)`; `to`: for each format that can take all codes over, its
    name, options of `convert`, or a list of rules of a recipe; `same`: a pattern of weights that
    are stored as such a format has them, which may be copied; `words`: of what is refused,
    patterns that the error must match, with a description and without."""

    def __init__(self, name, fill, to=(), same=None, words=None, **arguments):
        self.name, self.fill, self.to, self.same = name, fill, to, same
        self.words, self.arguments = words, arguments

    def checkpoint(self):
        made = Checkpoint(self.name)
        self.fill(made, **self.arguments)
        return made


# ---- checkpoints ---------------------------------------------------------------

class Checkpoint:
    """`tensors` by their names in the file; of them `plain` stay as they are, and `parts` are
    those of a packed weight, by its plain name, of which `truth` has the values. All others go
    with the codes: activation scales, and markers, which are `stale` in any other form. Those in
    `may_stay` are of use without codes, too; `biases`, which are plain, may be laid out with their
    weights."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(list(seed.encode()))
        self.tensors, self.parts, self.truth = {}, {}, {}
        self.plain, self.biases, self.may_stay, self.stale = set(), set(), set(), set()
        # config.json, other JSON files and bytes by the names of their files
        self.config, self.beside, self.raw = {}, {}, {}
        self.file, self.alone = "model.safetensors", False
        self.meta = self.bare_meta = None   # of the file, and where it must not describe it

    def pack(self, name, made, values):
        """A packed weight: its tensors, and its values under the name that it has plain."""
        self.tensors |= made
        self.parts[name] = set(made)
        self.truth[name] = np.asarray(values, dtype=np.float32)

    def keep(self, name, *shape, dtype="BF16"):
        """A plain tensor."""
        values = self.rng.standard_normal(shape) * 0.02
        self.keep_as(name, stfile.from_f32(dtype, values.astype(np.float32)))

    def keep_as(self, name, made):
        self.tensors[name] = made
        self.plain.add(name)

    def add(self, name, made):
        """A tensor that means nothing to the reader of another form."""
        self.tensors[name] = made
        self.stale.add(name)

    def number(self, name, dtype="F32", shape=()):
        """An activation scale or the like."""
        value = np.full(shape, self.rng.uniform(0.01, 0.05), dtype=np.float32)
        self.tensors[name] = Tensor(dtype, shape, stfile.from_f32(dtype, value).data)

    def write(self, folder):
        """Writes all files; the path that is handed to the command."""
        os.makedirs(folder)
        if self.file:
            stfile.save(os.path.join(folder, self.file), self.tensors, self.meta)
        files = self.beside | ({"config.json": self.config} if self.config else {})
        texts = {name: json.dumps(content, indent=2).encode() for name, content in files.items()}
        for name, content in (self.raw | texts).items():
            with open(os.path.join(folder, name), "wb") as f:
                f.write(content)
        return os.path.join(folder, self.file) if self.alone else folder


# ---- models --------------------------------------------------------------------

HIDDEN, INTER, VOCAB, LAYERS, EXPERTS = 256, 512, 64, 2, 4
ATTENTION = {"q_proj": (256, HIDDEN), "k_proj": (128, HIDDEN), "v_proj": (128, HIDDEN),
             "o_proj": (HIDDEN, 256)}
MLP = {"gate_proj": (INTER, HIDDEN), "up_proj": (INTER, HIDDEN), "down_proj": (HIDDEN, INTER)}
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"))


def sizes(model_type="llama", architecture="LlamaForCausalLM", **more):
    """config.json of a model of these sizes."""
    return {"architectures": [architecture], "model_type": model_type, "hidden_size": HIDDEN,
            "intermediate_size": INTER, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 64, "vocab_size": VOCAB, "hidden_act": "silu",
            "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", **more}


def moe_sizes(model_type="qwen3_moe", architecture="Qwen3MoeForCausalLM", inter=256, **more):
    return sizes(model_type, architecture, moe_intermediate_size=inter, num_experts=EXPERTS,
                 num_experts_per_tok=2, decoder_sparse_step=1, mlp_only_layers=[],
                 norm_topk_prob=True, **more)


def frame(c, prefix="model.", head="lm_head.weight", hidden=HIDDEN):
    """What is plain in every checkpoint."""
    c.keep(prefix + "embed_tokens.weight", VOCAB, hidden)
    c.keep(prefix + "norm.weight", hidden)
    if head:
        c.keep(head, VOCAB, hidden)
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            c.keep(f"{prefix}layers.{layer}.{norm}.weight", hidden)


def always(_):
    return True


def linears(c, pack, at, shapes, chosen=always):
    """Weights `at` a module: those that are chosen by their names are packed."""
    for name, (n, k) in shapes.items():
        if chosen(at + name):
            pack(c, at + name, n, k)
        else:
            c.keep(f"{at}{name}.weight", n, k)


def llama(c, pack, prefix="model.", chosen=always):
    """Two layers of attention and MLP. Without a rule the last o_proj stays plain."""
    frame(c, prefix)
    for layer in range(LAYERS):
        at = f"{prefix}layers.{layer}."
        linears(c, pack, at + "self_attn.", ATTENTION, chosen)
        linears(c, pack, at + "mlp.", MLP, chosen)


def experts(c, pack, prefix="model.", inter=256, attention=None):
    """Experts one by one, a plain router, attention plain unless it has its own form."""
    frame(c, prefix)
    for layer in range(LAYERS):
        at = f"{prefix}layers.{layer}."
        linears(c, attention, at + "self_attn.", ATTENTION, lambda _: attention is not None)
        c.keep(at + "mlp.gate.weight", EXPERTS, HIDDEN)
        for e in range(EXPERTS):
            linears(c, pack, f"{at}mlp.experts.{e}.", {
                "gate_proj": (inter, HIDDEN), "up_proj": (inter, HIDDEN),
                "down_proj": (HIDDEN, inter)})


# ---- codes ---------------------------------------------------------------------

def fp8_codes(rng, shape, dtype="F8_E4M3"):
    """Any but infinite ones and NaN: (codes, their values)."""
    table = TABLES[dtype]
    codes = rng.choice(np.flatnonzero(np.isfinite(table)).astype(np.uint8), shape)
    return codes, table[codes]


def scales_of(rng, shape, dtype="F32"):
    """(Tensor, its values): of any mantissa that the dtype has."""
    if dtype in ("F8_E8M0", "U8"):
        bits = rng.integers(112, 126, shape, dtype=np.uint8)
        return Tensor(dtype, shape, bits.tobytes()), rq.e8m0_value(bits)
    values = rng.uniform(0.5, 1.0, shape) * np.exp2(rng.integers(-12, -8, shape))
    stored = stfile.from_f32(dtype, np.asarray(values, dtype=np.float32))
    return Tensor(dtype, shape, stored.data), stored.f32().reshape(shape)


def blocks(rows, columns, suffix, dtype="F32", shape=None, codes="F8_E4M3"):
    """FP8 with a scale to so many rows and columns (0: all), stored in the shape that `shape`
    makes of [rows, columns], beside S.weight under S + suffix."""
    def pack(c, name, n, k):
        bn, bk = rows or n, columns or k
        grid = rq.ceil_div(n, bn), rq.ceil_div(k, bk)
        stored, values = fp8_codes(c.rng, (n, k), codes)
        scale, numbers = scales_of(c.rng, shape(*grid) if shape else grid, dtype)
        c.pack(name + ".weight", {name + ".weight": tensor(codes, stored), name + suffix: scale},
               values * rq.spread(numbers.reshape(grid), bn, bk, n, k))
    return pack


def one(suffix, dtype="F32", shape=(), codes="F8_E4M3", also=()):
    """FP8 with one scale to a weight, and with activation scales of the suffixes `also`."""
    whole = blocks(0, 0, suffix, dtype, lambda *_: shape, codes)

    def pack(c, name, n, k):
        whole(c, name, n, k)
        for suffix_also in also:
            c.number(name + suffix_also, dtype, shape)
    return pack


def without_scale(codes="F8_E4M3"):
    """FP8 whose numbers are the values."""
    def pack(c, name, *shape):
        stored, values = fp8_codes(c.rng, shape, codes)
        c.pack(name, {name: tensor(codes, stored)}, values)
    return pack
