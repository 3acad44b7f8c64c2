"""The options of the program's commands, '-' written as '_': generated from its own table by
scripts/python_options.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypedDict, Union

Path = Union[str, "os.PathLike[str]"]


class ConvertOptions(TypedDict, total=False):
    """The options of `tilepack convert`."""

    to: str
    set: Mapping[str, str]
    recipe: Path
    search: str
    signed: bool
    importance: Path
    include: Iterable[str]
    exclude: Iterable[str]
    no_stack: bool
    format_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    engine_file: Iterable[Path]
    model_file: Path
    stacks: str
    merged: str
    plain: str
    strict: bool
    follow_links: bool
    copy: Iterable[str]
    nonfinite: str
    requantize: bool
    weights_only: bool | str
    shard_size: int | str
    zstd: bool | int
    digest: str
    part: str
    force: bool
    if_exists: str
    engine: str
    gpu: str
    gpus: int
    expert_parallel: bool
    jobs: int
    device: str
    max_memory: int | str
    gpu_memory: int | str


class UnpackOptions(TypedDict, total=False):
    """The options of `tilepack unpack`."""

    to: str
    quantizer_file: Iterable[Path]
    follow_links: bool
    copy: Iterable[str]
    dtype: str
    shard_size: int | str
    force: bool
    if_exists: str
    jobs: int
    max_memory: int | str


class VerifyOptions(TypedDict, total=False):
    """The options of `tilepack verify`."""

    importance: Path
    format_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    engine_file: Iterable[Path]
    strict: bool
    jobs: int
    device: str


class CompareOptions(TypedDict, total=False):
    """The options of `tilepack compare`."""

    to: Iterable[str]
    include: Iterable[str]
    exclude: Iterable[str]
    format_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    engine_file: Iterable[Path]
    model_file: Path
    stacks: str
    merged: str
    plain: str
    full: bool
    html: Path
    jobs: int


class DiffOptions(TypedDict, total=False):
    """The options of `tilepack diff`."""

    jobs: int


class SuggestOptions(TypedDict, total=False):
    """The options of `tilepack suggest`."""

    engine_file: Iterable[Path]
    engine: str
    gpu: str
    gpus: int
    no_sample: bool
    jobs: int


# What the program's help says of each.
LINES: dict[str, dict[str, str]] = {
    "convert": {
        "to": "format to write; 'tilepack formats' lists them",
        "set": "choose a parameter of the format; repeatable",
        "recipe": "take formats per tensor from a JSON recipe",
        "search": (
            "try several scales for each block, take the best (default: none) [none|mse|w4a8]"
        ),
        "signed": "with --search: allow negative scales (int4 only)",
        "importance": "with --search: what errors count: magnitude, none, or a file",
        "include": "convert only tensors whose name matches; repeatable",
        "exclude": "keep tensors whose name matches as they are; repeatable",
        "no_stack": "leave the experts of a layer apart instead of stacking them",
        "format_file": "a format of one's own is in FILE; repeatable",
        "quantizer_file": "whose checkpoints are read is in FILE, too; repeatable",
        "engine_file": "who reads what is written is in FILE, too; repeatable",
        "model_file": "take the facts of the model from FILE",
        "stacks": "how stacks of experts lie in the source [enk|ekn]",
        "merged": (
            "what to do about parts that the reader cannot merge (default: keep) [keep|convert]"
        ),
        "plain": "what to do about what a quantizer left plain (default: keep) [keep|convert]",
        "strict": "fail when a weight cannot be converted, instead of keeping it",
        "follow_links": "copy files that are links to outside the directory",
        "copy": "copy these files along, though they are weights; repeatable",
        "nonfinite": "what to do about NaN and infinite weights (default: refuse) [refuse|keep]",
        "requantize": "allow lossy conversion of weights that are already quantized",
        "weights_only": (
            "write no activation scales, or none of weights whose name matches (alone: .*)"
        ),
        "shard_size": "largest size of an output shard (default: 5GB)",
        "zstd": "write seekable .safetensors.zst files (alone: 1)",
        "digest": "list the SHA-256 of every file in the manifest (default: none) [none|sha256]",
        "part": "do share I of P (1/4 ... 4/4); 'merge' finishes",
        "force": "replace what is at DST; the same as --if-exists replace",
        "if_exists": "what to do if DST exists [skip|fail|replace]",
        "engine": "it has to be read by this engine, else nothing is written (exit status 4)",
        "gpu": "it has to be served on this GPU, else nothing is written (exit status 4)",
        "gpus": "it has to be served on so many GPUs that divide each layer (tensor parallel)",
        "expert_parallel": "with --gpus: experts are divided by their number, and each is whole",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
        "device": "where to work: auto, cpu, cuda, cuda:all or cuda:I[,I...] (default: auto)",
        "max_memory": "most host memory to use in all, 32MiB or more",
        "gpu_memory": "most memory to use on each GPU",
    },
    "unpack": {
        "to": "format to write; 'tilepack formats' lists them",
        "quantizer_file": "whose checkpoints are read is in FILE, too; repeatable",
        "follow_links": "copy files that are links to outside the directory",
        "copy": "copy these files along, though they are weights; repeatable",
        "dtype": "element type of the plain weights (default: as in the source) [bf16|f32]",
        "shard_size": "largest size of an output shard (default: 5GB)",
        "force": "replace what is at DST; the same as --if-exists replace",
        "if_exists": "what to do if DST exists [skip|fail|replace]",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
        "max_memory": "most host memory to use in all, 32MiB or more",
    },
    "verify": {
        "importance": "with --against: the file of importance it was converted with",
        "format_file": "a format of one's own is in FILE; repeatable",
        "quantizer_file": "whose checkpoints are read is in FILE, too; repeatable",
        "engine_file": "who reads what is written is in FILE, too; repeatable",
        "strict": "added files, a changed README.md and nothing to prove are differences",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
        "device": (
            "with --against: where to derive: auto, cpu, cuda, cuda:all or cuda:I[,I...] (default: "
            "auto)"
        ),
    },
    "compare": {
        "to": "a format to compare; repeatable (default: all that are written)",
        "include": "convert only tensors whose name matches; repeatable",
        "exclude": "keep tensors whose name matches as they are; repeatable",
        "format_file": "a format of one's own is in FILE; repeatable",
        "quantizer_file": "whose checkpoints are read is in FILE, too; repeatable",
        "engine_file": "who reads what is written is in FILE, too; repeatable",
        "model_file": "take the facts of the model from FILE",
        "stacks": "how stacks of experts lie in the source [enk|ekn]",
        "merged": (
            "what to do about parts that the reader cannot merge (default: keep) [keep|convert]"
        ),
        "plain": "what to do about what a quantizer left plain (default: keep) [keep|convert]",
        "full": "measure all values instead of a sample",
        "html": "also write a page, a file named *.html, that needs nothing else",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
    "diff": {
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
    "suggest": {
        "engine_file": "who reads what is written is in FILE, too; repeatable",
        "engine": "what is to serve it (default: vllm)",
        "gpu": "on which GPU: h100, or what nvidia-smi calls it",
        "gpus": "on how many of them (default: 1)",
        "no_sample": "measure no errors: read headers only",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
}
