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
    engine: str
    gpu: str
    gpus: int
    expert_parallel: bool
    format_file: Iterable[Path]
    engine_file: Iterable[Path]
    include: Iterable[str]
    exclude: Iterable[str]
    merged: str
    plain: str
    strict: bool
    no_stack: bool
    stacks: str
    model_file: Path
    quantizer_file: Iterable[Path]
    search: str
    signed: bool
    importance: Path
    requantize: bool
    weights_only: bool | str
    nonfinite: str
    if_exists: str
    force: bool
    shard_size: int | str
    zstd: bool | int
    digest: str
    copy: Iterable[str]
    follow_links: bool
    part: str
    jobs: int
    device: str
    max_memory: int | str
    gpu_memory: int | str


class UnpackOptions(TypedDict, total=False):
    """The options of `tilepack unpack`."""

    to: str
    quantizer_file: Iterable[Path]
    if_exists: str
    force: bool
    shard_size: int | str
    copy: Iterable[str]
    follow_links: bool
    dtype: str
    jobs: int
    max_memory: int | str


class VerifyOptions(TypedDict, total=False):
    """The options of `tilepack verify`."""

    format_file: Iterable[Path]
    engine_file: Iterable[Path]
    quantizer_file: Iterable[Path]
    importance: Path
    strict: bool
    device: str
    jobs: int


class CompareOptions(TypedDict, total=False):
    """The options of `tilepack compare`."""

    format_file: Iterable[Path]
    engine_file: Iterable[Path]
    include: Iterable[str]
    exclude: Iterable[str]
    merged: str
    plain: str
    stacks: str
    model_file: Path
    quantizer_file: Iterable[Path]
    to: Iterable[str]
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
        "engine": "fail before the work unless this engine reads the result",
        "gpu": "fail before the work unless the result is served on this GPU",
        "gpus": "fail unless it is served on N GPUs, by tensor parallelism",
        "expert_parallel": "with --gpus: give each GPU whole experts instead of parts of all",
        "format_file": "also know the format that FILE describes; repeatable",
        "engine_file": "also know the engine that FILE describes; repeatable",
        "include": "convert only tensors whose name matches; repeatable",
        "exclude": "keep tensors whose name matches as they are; repeatable",
        "merged": (
            "sets (q, k, v or gate, up) that the engine cannot merge (default: keep) [keep|convert]"
        ),
        "plain": (
            "weights that the quantizer of the source left plain (default: keep) [keep|convert]"
        ),
        "strict": "fail when a weight cannot be converted, instead of keeping it",
        "no_stack": "leave the experts of a layer apart instead of stacking them",
        "stacks": "how stacks of experts lie in the source [enk|ekn]",
        "model_file": "read what is known of the model from FILE",
        "quantizer_file": "also know the quantizer that FILE describes; repeatable",
        "search": "take the best of several scales for each block [none|mse|w4a8]",
        "signed": "with --search: allow negative scales (int4 only)",
        "importance": "with --search: how to weigh errors: magnitude, none, or a file",
        "requantize": "allow lossy conversion of weights that are already quantized",
        "weights_only": (
            "write no activation scales, or none of weights whose name matches (alone: .*)"
        ),
        "nonfinite": "NaN and infinite weights: an error, or kept (default: refuse) [refuse|keep]",
        "if_exists": "what to do if DST exists [skip|fail|replace]",
        "force": "replace what is at DST; the same as --if-exists replace",
        "shard_size": "largest size of an output shard (default: 5GB)",
        "zstd": "write seekable .safetensors.zst files (alone: 1)",
        "digest": "list the SHA-256 of every file in the manifest (default: none) [none|sha256]",
        "copy": "also copy these files, which hold weights; repeatable",
        "follow_links": "copy files that are links to outside the directory",
        "part": "do share I of P (1/4 ... 4/4); 'merge' finishes",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
        "device": "device to work on: auto, cpu, cuda, cuda:all or cuda:I[,I...] (default: auto)",
        "max_memory": "most host memory to use in all, 32MiB or more",
        "gpu_memory": "most memory to use on each GPU",
    },
    "unpack": {
        "to": "format to write; 'tilepack formats' lists them",
        "quantizer_file": "also know the quantizer that FILE describes; repeatable",
        "if_exists": "what to do if DST exists [skip|fail|replace]",
        "force": "replace what is at DST; the same as --if-exists replace",
        "shard_size": "largest size of an output shard (default: 5GB)",
        "copy": "also copy these files, which hold weights; repeatable",
        "follow_links": "copy files that are links to outside the directory",
        "dtype": "element type of the plain weights (default: as in the source) [bf16|f32]",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
        "max_memory": "most host memory to use in all, 32MiB or more",
    },
    "verify": {
        "format_file": "also know the format that FILE describes; repeatable",
        "engine_file": "also know the engine that FILE describes; repeatable",
        "quantizer_file": "also know the quantizer that FILE describes; repeatable",
        "importance": "with --against: the file of importance it was converted with",
        "strict": "also fail on added files, a changed README.md, or nothing to prove",
        "device": (
            "device for --against: auto, cpu, cuda, cuda:all or cuda:I[,I...] (default: auto)"
        ),
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
    "compare": {
        "format_file": "also know the format that FILE describes; repeatable",
        "engine_file": "also know the engine that FILE describes; repeatable",
        "include": "convert only tensors whose name matches; repeatable",
        "exclude": "keep tensors whose name matches as they are; repeatable",
        "merged": (
            "sets (q, k, v or gate, up) that the engine cannot merge (default: keep) [keep|convert]"
        ),
        "plain": (
            "weights that the quantizer of the source left plain (default: keep) [keep|convert]"
        ),
        "stacks": "how stacks of experts lie in the source [enk|ekn]",
        "model_file": "read what is known of the model from FILE",
        "quantizer_file": "also know the quantizer that FILE describes; repeatable",
        "to": "a format to compare; repeatable (default: all that are written)",
        "full": "measure all values instead of a sample",
        "html": "also write a page, a file named *.html, that needs nothing else",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
    "diff": {
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
    "suggest": {
        "engine_file": "also know the engine that FILE describes; repeatable",
        "engine": "engine that serves it (default: vllm)",
        "gpu": "GPU that it is served on: h100, or what nvidia-smi prints",
        "gpus": "number of these GPUs (default: 1)",
        "no_sample": "measure no errors: read headers only",
        "jobs": "worker threads (default: $TILEPACK_JOBS, else the usable CPUs)",
    },
}
