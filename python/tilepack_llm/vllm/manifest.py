"""tilepack.json of a packed checkpoint: which weight has which format. No vllm.

safetensors' metadata does not reach a model's loader in vLLM; the manifest has the same
descriptors. What is kept here is small, because it travels to every worker.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..slices import Packed
from .support import MANIFEST_VERSION, Refused, check_format, check_inputs

FILE = "tilepack.json"

# Parameters that say how scales were found: they move no byte.
_HOW_FOUND = ("search", "signed", "importance")


_USUAL = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
}


def name_of(prefix: str) -> str:
    """The name of a unit: its module, and for a stack ":w13" or ":w2" behind that of its experts.

    prefix  of its tensors, as the manifest has it: "P.q_proj." or "P.experts.w13_"
    """
    if prefix.endswith("."):
        return prefix[:-1]
    module, _, part = prefix.rstrip("_").rpartition(".")
    return f"{module}:{part}"


def _size(value: Any) -> int:
    """A size as the library takes it; TypeError for what is none."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise TypeError(f"{str(value)[:40]!r} is no size")
    return value


def _word(value: Any) -> str:
    """A name or the value of a parameter; TypeError for what is none."""
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _packed(descriptor: Mapping[str, Any], name: str, prefix: str) -> Packed:
    e, n, k = map(_size, descriptor["box"])
    per = {
        out["suffix"]: (_size(out["per"][0]), _size(out["per"][1]))
        for out in descriptor["outputs"]
        if "per" in out
    }
    stacked = descriptor["rank"] == 3
    part = "part" in descriptor and _word(descriptor["part"])
    if not part and stacked and name.endswith((":w13", ":w13_bias")):
        part = "gated"
    params = {
        _word(key): _word(value)
        for key, value in descriptor["params"].items()
        if key not in _HOW_FOUND
    }
    bias = bool(descriptor.get("bias"))
    reordered = "rows" in descriptor
    return Packed(
        descriptor["format"], params, (e, n, k), stacked, per, part or None, bias, reordered, prefix
    )


def _check_bias(name: str, bias: Packed) -> None:
    """vLLM loads the bias of a linear layer as the parameter that it is, of the layer's rows."""
    if any(output.shape != bias.box[1:2] for output in bias.outputs.values()):
        raise Refused(
            f"{name}: the {bias.box[1]} numbers of a bias are padded, and vLLM loads no more",
            hint="convert with --exclude for this weight",
        )


def units(manifest: Mapping[str, Any], where: str) -> dict[str, Packed]:
    """{name: weight} of all packed weights.

    where  the file, for the message of a refusal
    Raises Refused for another version, a rank of `convert --tp`, and formats that vLLM has no
    kernel for.
    """
    if manifest.get("tilepack") != MANIFEST_VERSION:
        raise Refused(
            f"{where}: a manifest of version {manifest.get('tilepack')!r}, this plugin reads "
            f"{MANIFEST_VERSION}",
            hint="update tilepack-llm",
        )
    try:
        if manifest["request"].get("tp"):
            raise Refused(
                f"{where}: this is one rank of `convert --tp` of an earlier version",
                hint="convert the model again, whole: every rank of vLLM takes its slices from it",
            )
        found: dict[str, Packed] = {}
        for unit in manifest["units"]:
            descriptor = manifest["descriptors"][unit["desc"]]
            name = name_of(unit["prefix"])
            check_format(name, descriptor["format"], descriptor["version"])
            check_inputs(
                name, descriptor["format"], manifest["request"].get("weights_only") is not True
            )
            packed = _packed(descriptor, name, unit["prefix"])
            if packed.bias and not packed.stacked:
                _check_bias(name, packed)
            else:
                found[name] = packed
        return found
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise Refused(
            f"{where}: it is no manifest of tilepack ({error!r})", hint="run `tilepack verify`"
        ) from None


def path_of(model: str, revision: str | None) -> str:
    """The manifest of a directory, or of a repository of the hub: then it lies beside the weights
    once these were downloaded."""
    if os.path.isdir(model):
        return os.path.join(model, FILE)
    from huggingface_hub import hf_hub_download

    found: str = hf_hub_download(model, FILE, revision=revision)
    return found


def read(path: str) -> dict[str, Packed]:
    """units() of the checkpoint in a directory."""
    file = os.path.join(path, FILE) if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8") as text:
            manifest = json.load(text)
    except OSError as error:
        raise Refused(
            f"{file}: {error.strerror}", hint="a packed checkpoint has this file beside its weights"
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{file}: {error}", hint="run `tilepack verify`") from None
    if not isinstance(manifest, dict):
        raise Refused(f"{file}: it is no manifest of tilepack", hint="run `tilepack verify`")
    return units(manifest, file)


def parts_of(
    prefix: str, packed: Mapping[str, Packed], merged: Mapping[str, Sequence[str]]
) -> dict[str, Packed]:
    """The weights that a linear layer consists of: its own, or those merged into it; or none.

    merged  {"qkv_proj": ["q_proj", "k_proj", "v_proj"], ...}: vLLM's packed_modules_mapping,
            which some models lack, or have for their text and not for their images
    """
    if prefix in packed:
        return {prefix: packed[prefix]}
    names: list[str] = []
    found: dict[str, Packed] = {}
    for end, parts in (*merged.items(), *_USUAL.items()):
        if not found and (prefix == end or prefix.endswith("." + end)):
            names = [prefix[: len(prefix) - len(end)] + part for part in parts]
            found = {name: packed[name] for name in names if name in packed}
    if found and len(found) != len(names):
        missing = ", ".join(name for name in names if name not in found)
        raise Refused(
            f"{prefix}: {missing} is not packed, and vLLM holds {', '.join(names)} as one",
            hint="pack all of them or none",
        )
    if len({(p.format, tuple(sorted(p.parameters.items()))) for p in found.values()}) > 1:
        raise Refused(
            f"{prefix}: {', '.join(names)} have different formats or parameters, and vLLM holds "
            "them as one",
            hint="convert them to one format",
        )
    return found


def experts_of(prefix: str, packed: Mapping[str, Packed]) -> dict[str, Packed]:
    """{"w13": weight, "w2": weight} of a layer of experts, and "w13_bias" and "w2_bias" where they
    are there; empty when it is not packed."""
    parts = ("w13", "w2", "w13_bias", "w2_bias")
    found = {part: packed[f"{prefix}:{part}"] for part in parts if f"{prefix}:{part}" in packed}
    if not found:
        if any(name.startswith(prefix + ".") for name in packed):
            raise Refused(
                f"{prefix}: its experts are packed one by one", hint="convert without --no-stack"
            )
        for name, stack in packed.items():
            if name.startswith(prefix + ":"):
                raise Refused(
                    f"{name}: rows of gate and up are interleaved, and no kernel of vLLM takes "
                    f"them so in {stack.format}",
                    hint="convert the experts to a format for gpt-oss, such as mxfp4-marlin",
                )
        return {}
    if not {"w13", "w2"} <= set(found) or len({one.format for one in found.values()}) > 1:
        raise Refused(
            f"{prefix}: w13 and w2 must be packed, and in one format",
            hint="convert both to one format",
        )
    return found
