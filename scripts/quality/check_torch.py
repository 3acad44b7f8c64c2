"""The forward passes, the checkpoint and the collector of `make quality` against transformers.

    check_torch.py DIR SMOLLM2 GGUF MINILM

DIR holds what main.py left there: checks.npz, calibration.txt and importance-plain.safetensors.
Prints one line of JSON; runs in the environment of torch.
"""
import json
import os
import subprocess
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM

SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../samples/importance.py")


def log_probabilities(model, tokens):
    logits = model(torch.from_numpy(tokens)[None]).logits[0, :-1]
    return torch.log_softmax(logits.double(), dim=-1).numpy()


def check_logits(checkpoint, tokens, numpy_ones):
    """Divergence of the two programs, and the perplexity of each."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ours, theirs = numpy_ones, log_probabilities(model, tokens)
    rows = np.arange(len(ours))
    return {"kl": float((np.exp(theirs) * (theirs - ours)).sum(-1).mean()),
            "largest": float(np.abs(theirs - ours).max()),
            "perplexity": [float(np.exp(-p[rows, tokens[1:]].mean())) for p in (ours, theirs)]}


def check_gguf(gguf, checkpoint):
    """Of the values that transformers decodes itself, those that differ from the checkpoint."""
    model = AutoModelForCausalLM.from_pretrained(
        os.path.dirname(gguf), gguf_file=os.path.basename(gguf), dtype=torch.float32)
    theirs = model.state_dict()
    ours = load_file(os.path.join(checkpoint, "model.safetensors"))
    differ = sum(int((theirs[name].to(torch.bfloat16) != t).sum()) for name, t in ours.items())
    return {"differ": differ, "values": sum(t.numel() for t in ours.values())}


def check_sentence(checkpoint, tokens, numpy_one):
    model = AutoModel.from_pretrained(checkpoint, dtype=torch.float32)
    theirs = model(torch.from_numpy(tokens)[None]).last_hidden_state[0].mean(0).numpy()
    return {"largest": float(np.abs(theirs - numpy_one).max() / np.abs(theirs).max())}


def check_importance(directory, checkpoint, window):
    """Largest relative difference between the sample's E[x^2] and numpy's."""
    out = os.path.join(directory, "importance-sample.safetensors")
    subprocess.run([sys.executable, SAMPLE, checkpoint, os.path.join(directory, "calibration.txt"),
                    out, "--window", str(window)], check=True, stdout=sys.stderr)
    theirs = load_file(out)
    ours = load_file(os.path.join(directory, "importance-plain.safetensors"))
    if set(theirs) != set(ours):
        raise SystemExit(f"the sample names other weights: {sorted(set(theirs) ^ set(ours))[:3]}")
    return {"largest": max(float(((theirs[n] - ours[n]).abs() / ours[n]).max()) for n in ours)}


def main(directory, smollm2, gguf, minilm):
    data = np.load(os.path.join(directory, "checks.npz"))
    with torch.no_grad():
        result = {
            "logits": check_logits(smollm2, data["tokens"], data["log_probabilities"]),
            "gguf": check_gguf(gguf, smollm2),
            "sentence": check_sentence(minilm, data["sentence"], data["embedding"]),
        }
    result["importance"] = check_importance(directory, smollm2, len(data["tokens"]))
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
