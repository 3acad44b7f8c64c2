"""The language models that are quantized: out of GGUF files, with what they see and say.

A GGUF file holds 4 to 8 bits of each weight, and a format whose levels lie as they do would look
better than it is. So each decoded value gets noise as wide as a step of its block, and what that
gives in bf16 is the source of everything. transformers decodes the files and runs the models.
"""
import argparse
import importlib.util
import os
import shutil
import zlib

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
import tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import figures

MULTIPLE = 128  # of N and K, which every format of linear layers takes
WINDOW, SEEN, RANK = 320, 512, 64  # tokens of a window that is predicted, and calibrated with
CALIBRATION, GRADIENTS = 16, 4  # windows
HERE = os.path.dirname(os.path.abspath(__file__))
# Bytes of a block of each type of GGUF: those of its codes, and what is in some of them when all
# codes are 1 and the rest is 0.
CODES = {"Q4_1": ((4, 20), (4, 20), 0x11), "Q5_0": ((2, 22), (6, 22), 0x11),
         "Q8_0": ((2, 34), (2, 34), 1), "Q4_K": ((16, 144), (16, 144), 0x11),
         "Q6_K": ((0, 192), (0, 128), 0x11)}


def sample(name):
    """samples/NAME.py, a program, as a module."""
    path = os.path.join(HERE, "../../samples", name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- the source -------------------------------------------------------------------------

def steps(decode, data, kind):
    """How far the levels of each value's block are apart."""
    codes, ones, one = CODES[kind.name]
    blocks = data.reshape(-1, gguf.GGML_QUANT_SIZES[kind][1]).copy()
    blocks[:, slice(*codes)] = 0
    none = decode(blocks.reshape(data.shape), kind)
    blocks[:, slice(*ones)] = one
    return np.abs(decode(blocks.reshape(data.shape), kind) - none)


def dithered(decode):
    """gguf.dequantize, with noise that a tensor's own bytes determine: transformers decodes several at
    a time, in any order."""
    def run(data, kind):
        values = decode(data, kind)
        if kind.name in ("F32", "F16", "BF16"):
            return values
        rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(data)))
        noise = rng.random(values.shape, dtype=np.float32) - np.float32(0.5)
        return values + noise * steps(decode, data, kind)
    return run


def scored_tokenizer(tokens, scores, begin):
    """One of SentencePiece's, whose GGUF has scores in place of merges, which transformers does not
    make of them for Gemma: any two tokens that are a third together merge, the best score first."""
    number = {token: i for i, token in enumerate(tokens)}
    merges = [(scores[number[token]], left, right) for token in tokens for cut in range(1, len(token))
              if (left := token[:cut]) in number and (right := token[cut:]) in number]
    merges.sort(key=lambda m: (-m[0], number[m[1]], number[m[2]]))
    made = tokenizers.Tokenizer(tokenizers.models.BPE(
        number, [m[1:] for m in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{tokens[begin]} $A", special_tokens=[(tokens[begin], begin)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=tokens[begin])


def tokenizer_of(path):
    fields = gguf.GGUFReader(path).fields
    if fields["tokenizer.ggml.model"].contents() != "llama":
        return AutoTokenizer.from_pretrained(os.path.dirname(path),
                                             gguf_file=os.path.basename(path))
    return scored_tokenizer(*(fields["tokenizer.ggml." + key].contents()
                              for key in ("tokens", "scores", "bos_token_id")))


def make_source(path, directory):
    """The checkpoint in bf16, with its tokenizer."""
    decode, folder = gguf.dequantize, os.path.dirname(path)
    gguf.dequantize = dithered(decode)  # transformers calls it
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=os.path.basename(path), dtype=torch.float32)
    finally:
        gguf.dequantize = decode
    model.hf_quantizer = None  # it is a plain model now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.to(torch.bfloat16).save_pretrained(directory + ".new")
    tokenizer_of(path).save_pretrained(directory + ".new")
    os.rename(directory + ".new", directory)


def make_matrices(source, directory, names):
    """What is converted: the matrices alone, with zero rows and columns up to a multiple, for
    formats that want one."""
    os.makedirs(directory + ".new")
    shutil.copy(os.path.join(source, "config.json"), directory + ".new")
    tensors = load_file(os.path.join(source, "model.safetensors"))
    save_file({name: padded(tensors[name]) for name in names},
              os.path.join(directory + ".new", "model.safetensors"), {"format": "pt"})
    os.rename(directory + ".new", directory)


def padded(tensor, dims=2):
    """Zeros behind the first dimensions, up to a multiple; the last one may be ranks."""
    missing = [-size % MULTIPLE for size in tensor.shape[:dims]]
    if not any(missing):
        return tensor.contiguous()
    out = tensor.new_zeros([size + more for size, more in zip(tensor.shape, missing)]
                           + list(tensor.shape[dims:]))
    out[tuple(slice(size) for size in tensor.shape)] = tensor
    return out


# ---- a model ----------------------------------------------------------------------------

def text(name):
    with open(os.path.join(HERE, name + ".txt"), encoding="utf-8") as f:
        return "\n\n".join(figures.paragraphs(f.read()))


class Subject:
    """label; checkpoint, the directory that is converted; source {name: float32[N,K]}; files
    of what --importance takes: mean squares alone, and with moments."""

    def __init__(self, label, models, directory, windows):
        self.label, self.plain = label, os.path.join(directory, "source")
        if not os.path.isdir(self.plain):
            make_source(os.path.join(models, label, "model.gguf"), self.plain)
        self.model = AutoModelForCausalLM.from_pretrained(self.plain, dtype=torch.float32).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(self.plain)
        head = self.model.get_output_embeddings()
        self.linears = {name + ".weight": module for name, module in self.model.named_modules()
                        if isinstance(module, torch.nn.Linear) and module is not head}
        self.source = {name: module.weight.detach().numpy().copy()
                       for name, module in self.linears.items()}
        self.checkpoint = os.path.join(directory, "matrices")
        if not os.path.isdir(self.checkpoint):
            make_matrices(self.plain, self.checkpoint, self.source)
        with open(os.path.join(models, "news", "text.txt"), encoding="utf-8") as f:
            news = f.read()
        self.calibration = self.windows(text("calibration") + "\n\n" + news, SEEN)
        self.tokens = self.windows(text("evaluation"), WINDOW)[:windows]
        self.files = {kind: os.path.join(directory, kind + ".safetensors")
                      for kind in ("importance", "moments", "gradients")}
        self.reference = [self.predictions(window) for window in self.tokens]
        self.perplexity = figures.perplexity(np.concatenate(
            [figures.surprise(p, window[1:].numpy())
             for p, window in zip(self.reference, self.tokens)]))

    def windows(self, words, length):
        """[windows, length], each behind what the tokenizer begins a text with."""
        begin = self.tokenizer("").input_ids
        tokens = self.tokenizer(words, add_special_tokens=False).input_ids
        body = figures.windows(tokens, length - len(begin))
        return torch.from_numpy(np.concatenate(
            [np.broadcast_to(np.array(begin, dtype=np.int64), (len(body), len(begin))), body], 1))

    def file(self, kind):
        """The path of a file of what --importance takes, or what else the option may be."""
        if kind in self.files and not os.path.exists(self.files[kind]):
            self.collect_gradients() if kind == "gradients" else self.collect()
        return self.files.get(kind, kind)

    def collect_gradients(self):
        """The mean squares, and those of the gradients of outputs."""
        h = load_file(self.file("importance"))
        with torch.enable_grad():
            found = sample("gradients").gradients(self.model, self.calibration[:GRADIENTS])
        save_file(h | {name + ".gradient": found[name + ".gradient"] for name in self.source},
                  self.files["gradients"])

    def collect(self):
        module, opt = sample("moments"), argparse.Namespace(rank=RANK, least=0)
        found = module.results(module.collect(self.model, self.calibration[:CALIBRATION], opt), opt)
        h = {name: padded(found[name], 1) for name in self.source}
        save_file(h, self.files["importance"])
        save_file(h | {name + ".v": padded(found[name + ".v"], 1) for name in self.source},
                  self.files["moments"])

    # ---- what it says --------------------------------------------------------------------

    def predictions(self, window):
        """Log-probabilities [tokens - 1, vocabulary] of what follows each token."""
        with torch.no_grad():
            hidden = self.model.base_model(window[None], use_cache=False).last_hidden_state[0, :-1]
            return torch.log_softmax(self.model.get_output_embeddings()(hidden), -1).numpy()

    def put(self, values):
        for name, module in self.linears.items():
            module.weight.data.copy_(torch.from_numpy(values[name]))

    def measure(self, values):
        """KL of each prediction against the source's, in nats; perplexity; signal to noise."""
        self.put(values)
        kl, surprise = [], []
        for reference, window in zip(self.reference, self.tokens):
            changed = self.predictions(window)
            kl += figures.divergence(reference, changed).tolist()
            surprise += figures.surprise(changed, window[1:].numpy()).tolist()
        self.put(self.source)
        return {"kl": [float(f"{x:.5g}") for x in kl], "perplexity": figures.perplexity(surprise),
                "snr": float(np.mean([figures.snr_db(w, values[name])
                                      for name, w in self.source.items()]))}

    def facts(self):
        return {"perplexity": self.perplexity, "windows": len(self.tokens), "positions": sum(map(len, self.reference)),
                "matrices": len(self.source), "weights": sum(w.size for w in self.source.values()),
                "calibration": self.calibration[:CALIBRATION].numel()}
