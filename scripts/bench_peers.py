#!/usr/bin/env python3
"""The same job by other programs, beside `cp` and tilepack, in one run.

    bench_peers.py --program build/tilepack --dir build/bench [--rounds 3] [--job NAME]...

Measures what it finds, and says what that is: llm-compressor, where the Python that runs
this script can import it (its model_free_ptq, on the CPU, with as many workers as there are
shards and processors), and llama-quantize, where it is on the PATH and this Python can import
gguf. Neither is installed by anything here. DIR/src is the checkpoint that bench.sh makes; it
is in the page cache. llama-quantize gets the same weights as a GGUF file of bf16, made once
and not counted. Job by job, in turns:
    cp --reflink=never of the input, and sync -f
    the peer, and sync -f
    tilepack convert to the format that is the same job, or the nearest, fsync on
llama-quantize also quantizes embeddings and output, 0.26 GB more; only tilepack hashes what it
writes. The time of a peer is that of its process: for llm-compressor with its imports, whose
time alone is given too. Medians are compared. Writes peers.md and peers.json below DIR.
"""
import importlib.metadata
import importlib.util
import json
import os
import shutil
import statistics
import sys

import numpy as np

import measure

# Name of the job, the peer, its word for it, the format of tilepack.
JOBS = [
    ("FP8_BLOCK", "llm-compressor", "FP8_BLOCK", "fp8-ct"),
    ("W4AFP8", "llm-compressor", "W4AFP8", "w4a8-ct"),
    ("MXFP8", "llm-compressor", "MXFP8", "mxfp8-ct"),
    ("Q8_0", "llama-quantize", "Q8_0", "fp8-deepseek"),
    ("Q4_0", "llama-quantize", "Q4_0", "w4a8-ct"),
]
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
IMPORT = "from llmcompressor import model_free_ptq"
COMPRESS = IMPORT + """
import sys
model_free_ptq(sys.argv[1], sys.argv[2], scheme=sys.argv[3], max_workers=int(sys.argv[4]),
               device="cpu", ignore=["lm_head", "re:.*embed_tokens"])
"""


# ---- what there is ----------------------------------------------------------------------

def found():
    """{peer: what it is} of those that can be run here."""
    def importable(name):
        return importlib.util.find_spec(name) is not None

    peers = {}
    if importable("llmcompressor"):
        peers["llm-compressor"] = ", ".join(
            f"{name} {importlib.metadata.version(name)}"
            for name in ("llmcompressor", "compressed-tensors", "torch"))
    quantize = shutil.which("llama-quantize")
    if quantize and importable("gguf"):
        peers["llama-quantize"] = f"{quantize}, gguf {importlib.metadata.version('gguf')}"
    return peers


# ---- the checkpoint as GGUF -------------------------------------------------------------

def tensors_of(path):
    """(name, shape, bytes) of a safetensors file."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:8 + size].tobytes())
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["shape"], data[8 + size + begin:8 + size + end]


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
           "model.norm.weight": "output_norm.weight"}


def gguf_name(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def write_gguf(source, path):
    """Rows of q and k stay in the order of the source: nobody will run the model."""
    import gguf  # pylint: disable=import-outside-toplevel,import-error
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_block_count(config["num_hidden_layers"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_rope_dimension_count(config["head_dim"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    out.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for file in measure.files_of(source):
        for name, shape, data in tensors_of(file):
            if len(shape) == 1:
                wide = data.view(np.uint16).astype(np.uint32) << 16
                out.add_tensor(gguf_name(name), wide.view(np.float32))
            else:
                out.add_tensor(gguf_name(name), data.reshape(shape[0], -1),
                               raw_dtype=gguf.GGMLQuantizationType.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


# ---- turns ------------------------------------------------------------------------------

class Bench:
    def __init__(self, opt):
        self.opt = opt
        self.source = os.path.join(opt.dir, "src")
        self.out = os.path.join(opt.dir, "out")
        self.gguf = os.path.join(opt.dir, "src.gguf")
        self.cpus = len(measure.processors())
        self.workers = min(self.cpus, len(measure.files_of(self.source)))

    def timed(self, *args, env=None):
        """A command that writes self.out, with what it takes until that is on the disk."""
        if os.path.isdir(self.out):
            shutil.rmtree(self.out)
        done = measure.run(*args, env=env)
        sync = measure.run("sync", "-f", self.opt.dir)
        files = measure.files_of(self.out) if os.path.isdir(self.out) else [self.out]
        result = {"seconds": done.seconds + sync.seconds, "cpu": done.cpu, "memory": done.memory,
                  "bytes": measure.bytes_of(files)}
        if os.path.isdir(self.out):
            shutil.rmtree(self.out)
        else:
            os.unlink(self.out)
        return result

    def peer(self, peer, word):
        if peer == "llama-quantize":
            return self.timed("llama-quantize", self.gguf, self.out, word, str(self.cpus))
        return self.timed(sys.executable, "-c", COMPRESS, self.source, self.out, word,
                          str(self.workers), env={**os.environ, **OFFLINE})

    def turn(self, peer, word, fmt):
        return {"cp": self.timed("cp", "-r", "--reflink=never", self.source, self.out),
                "peer": self.peer(peer, word),
                "tilepack": self.timed(self.opt.program, "convert", self.source, "-o", self.out,
                                       "--to", fmt, "--device", "cpu", "--jobs", str(self.cpus),
                                       "--search", "none", "--quiet")}

    def run(self, peers):
        result = {"peers": peers, "rounds": self.opt.rounds, "processors": self.cpus, "jobs": {}}
        jobs = [job for job in JOBS
                if job[1] in peers and (not self.opt.job or job[0] in self.opt.job)]
        if any(job[1] == "llama-quantize" for job in jobs):
            write_gguf(self.source, self.gguf)
        if any(job[1] == "llm-compressor" for job in jobs):
            result["import_seconds"] = statistics.median(
                measure.run(sys.executable, "-c", IMPORT, env={**os.environ, **OFFLINE}).seconds
                for _ in range(self.opt.rounds))
        self.timed("cp", "-r", "--reflink=never", self.source, self.out)  # first touch
        for name, peer, word, fmt in jobs:
            turns = [self.turn(peer, word, fmt) for _ in range(self.opt.rounds)]
            result["jobs"][name] = {"program": peer, "format": fmt} | {
                side: {key: statistics.median(t[side][key] for t in turns)
                       for key in turns[0][side]} for side in turns[0]}
        if os.path.exists(self.gguf):
            os.unlink(self.gguf)
        return result


def table(result):
    columns = ["time", "/ cp", "CPU s", "memory", "output"]
    rows = [["job", *columns, "tilepack", *columns, "times as fast"]]
    for name, job in result["jobs"].items():
        row = [f"{job['program']} {name}"]
        for side in ("peer", "tilepack"):
            one = job[side]
            row += [f"{one['seconds']:.2f} s", f"{one['seconds'] / job['cp']['seconds']:.2f}",
                    f"{one['cpu']:.1f}", f"{one['memory'] / 2**20:.0f} MiB",
                    f"{one['bytes'] / 1e9:.2f} GB"]
            if side == "peer":
                row.append(f"`{job['format']}`")
        rows.append(row + [f"{job['peer']['seconds'] / job['tilepack']['seconds']:.1f}"])
    lines = [f"{peer}: {what}" for peer, what in result["peers"].items()]
    if "import_seconds" in result:
        lines.append(f"llm-compressor imports itself in {result['import_seconds']:.1f} s, which "
                     "is in its times.")
    lines.append(f"{result['processors']} processors; medians of {result['rounds']} rounds in "
                 "turns with `cp --reflink=never`; `sync -f` after each.")
    return "\n\n".join(lines) + "\n\n" + measure.table(*rows)


def main(argv):
    p = measure.options(__doc__, rounds=3)
    p.add_argument("--job", action="append", choices=[job[0] for job in JOBS],
                   help="default: all whose peer is found")
    opt = p.parse_args(argv)
    peers = found()
    for name in dict.fromkeys(job[1] for job in JOBS):
        print(f"{name}: {peers.get(name, 'not found')}")
    if not peers:
        raise SystemExit("bench_peers.py: nothing to compare with: install llmcompressor for this "
                         "Python, or gguf for it and llama-quantize on the PATH")
    result = Bench(opt).run(peers)
    measure.save(opt.dir, "peers", table(result), result)


if __name__ == "__main__":
    main(sys.argv[1:])
