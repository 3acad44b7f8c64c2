"""The forward pass of a Llama-shaped language model, in numpy and float32.

SmolLM2 is one: RMS norms, rotary positions by halves (the order of Hugging Face), grouped
key and value heads, SiLU-gated feed-forward, the embedding as the head. A matrix of weights
is looked up for each call, so that the same model runs with the weights of any format; the
embedding, the head and the norms are always those of the source. No cache, no sampling.
"""
import numpy as np

LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
           "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def linear_names(config):
    """The matrices that are quantized."""
    return [f"model.layers.{i}.{part}.weight" for i in range(config["num_hidden_layers"])
            for part in LINEARS]


def from_pairs(weight, heads):
    """Rows of q or k from the order of llama.cpp, where the two numbers that a rotation mixes
    lie beside each other, to that of Hugging Face, where they are half a head apart."""
    n, k = weight.shape
    return weight.reshape(heads, n // heads // 2, 2, k).swapaxes(1, 2).reshape(n, k)


def rms_norm(x, gain, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * gain


def rotations(length, head_dim, theta):
    """cos and sin [length, head_dim / 2] of each position."""
    speed = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle = np.arange(length)[:, None] * speed
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotate(x, cos, sin):
    """x [..., length, head_dim], the first half of a head with the second."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def causal_softmax(scores):
    length = scores.shape[-1]
    scores[..., np.triu(np.ones((length, length), dtype=bool), 1)] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


class Llama:
    """config as in config.json; tensors {name: float32}, the source's."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim = config["hidden_size"] // self.heads

    def hidden(self, tokens, weights, observe=None):
        """tokens [windows, length] -> [windows, length, hidden] after the last norm.
        `weights` gives every matrix that is quantized; `observe(name, x)` sees what each of
        them is multiplied with, as [positions, K]."""
        def linear(name, x):
            flat = x.reshape(-1, x.shape[-1])
            if observe:
                observe(name + ".weight", flat)
            return (flat @ weights[name + ".weight"].T).reshape(*x.shape[:-1], -1)

        def norm(name, x):
            return rms_norm(x, self.tensors[name + ".weight"], self.config["rms_norm_eps"])

        turn = rotations(tokens.shape[1], self.head_dim, self.config["rope_theta"])
        x = self.tensors["model.embed_tokens.weight"][tokens]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            h = norm(layer + "input_layernorm", x)
            q, k, v = (linear(f"{layer}self_attn.{p}_proj", h) for p in "qkv")
            x = x + linear(layer + "self_attn.o_proj", self.attention(q, k, v, turn))
            h = norm(layer + "post_attention_layernorm", x)
            gate, up = (linear(f"{layer}mlp.{p}_proj", h) for p in ("gate", "up"))
            x = x + linear(layer + "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)
        return norm("model.norm", x)

    def attention(self, q, k, v, turn):
        batch, length = q.shape[:2]

        def heads(x, count):
            return x.reshape(batch, length, count, self.head_dim).transpose(0, 2, 1, 3)

        q, k = rotate(heads(q, self.heads), *turn), rotate(heads(k, self.kv_heads), *turn)
        k, v = (np.repeat(x, self.heads // self.kv_heads, axis=1)
                for x in (k, heads(v, self.kv_heads)))
        scores = q @ k.transpose(0, 1, 3, 2) * np.float32(self.head_dim ** -0.5)
        mixed = causal_softmax(scores) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(batch, length, -1)

    def logits(self, hidden):
        return hidden @ self.tensors["model.embed_tokens.weight"].T
