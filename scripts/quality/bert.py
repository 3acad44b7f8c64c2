"""The forward pass of a BERT-shaped sentence encoder, in numpy and float32.

MiniLM is one: learned positions, norms after the sums, GELU by the error function, the mean
over the tokens as the sentence. As in llama.py the matrices are looked up for each call.
"""
import numpy as np
from scipy.special import erf

LINEARS = ("attention.self.query", "attention.self.key", "attention.self.value",
           "attention.output.dense", "intermediate.dense", "output.dense")


def linear_names(config):
    """The matrices that are quantized."""
    return [f"encoder.layer.{i}.{part}.weight" for i in range(config["num_hidden_layers"])
            for part in LINEARS]


class Bert:
    """config as in config.json; tensors {name: float32}, the source's."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        self.heads = config["num_attention_heads"]

    def norm(self, name, x):
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True)
                     + np.float32(self.config["layer_norm_eps"]))
        return x * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def sentence(self, tokens, weights, observe=None):
        """tokens [length], with those that begin and end a sentence -> [hidden]. `weights`
        and `observe` as in llama.Llama.hidden."""
        def linear(name, x):
            if observe:
                observe(name + ".weight", x)
            return x @ weights[name + ".weight"].T + self.tensors[name + ".bias"]

        table = "embeddings.%s_embeddings.weight"
        x = (self.tensors[table % "word"][tokens] + self.tensors[table % "token_type"][0]
             + self.tensors[table % "position"][:len(tokens)])
        x = self.norm("embeddings.LayerNorm", x)
        for i in range(self.config["num_hidden_layers"]):
            layer = f"encoder.layer.{i}."
            q, k, v = (linear(f"{layer}attention.self.{part}", x)
                       for part in ("query", "key", "value"))
            mixed = linear(layer + "attention.output.dense", self.attention(q, k, v))
            x = self.norm(layer + "attention.output.LayerNorm", x + mixed)
            h = linear(layer + "intermediate.dense", x)
            h = h * (1 + erf(h * np.float32(0.5 ** 0.5))) / 2
            x = self.norm(layer + "output.LayerNorm", x + linear(layer + "output.dense", h))
        return x.mean(axis=0)

    def attention(self, q, k, v):
        length, hidden = q.shape
        q, k, v = (x.reshape(length, self.heads, -1).swapaxes(0, 1) for x in (q, k, v))
        scores = q @ k.swapaxes(1, 2) * np.float32((hidden // self.heads) ** -0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ v).swapaxes(0, 1).reshape(length, hidden)
