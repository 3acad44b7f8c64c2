"""What vLLM calls the layers of packed weights, which of them it does not load, and which models
it refuses. No vllm.

The facts are those of engines/vllm-tilepack.json, by which `convert` says who serves a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from ..commands import engine
from ..slices import Packed
from .support import Refused

ENGINE = "vllm-tilepack"

Value = TypeVar("Value")


@cache
def _facts() -> dict[str, Any]:
    return engine(ENGINE)


def as_built(packed: Mapping[str, Value], types: Collection[str]) -> dict[str, Value]:
    """{name of a layer in vLLM: value} of a checkpoint's names.

    types  of the model: model_type of its config.json, and of its parts
    """
    found = dict(packed)
    for rule in _facts().get("names", ()):
        kind, in_file, in_vllm = rule.split()
        if kind in types:
            found = {name.replace(in_file, in_vllm): value for name, value in found.items()}
    return found


def _pattern(words: str) -> re.Pattern[str]:
    """Of models/README.md: '*' for any characters but a dot, '^' and '$' for the ends."""
    inner = re.escape(words.removeprefix("^").removesuffix("$")).replace(r"\*", "[^.]*")
    return re.compile("^" * words.startswith("^") + inner + "$" * words.endswith("$"))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(_pattern(words).search(name) for words in patterns)


def is_skipped(name: str) -> bool:
    """Whether vLLM leaves the module of a checkpoint out."""
    return _matches(name, _facts().get("skips", ()))


def check_order(packed: Mapping[str, Packed], types: Collection[str]) -> None:
    """Refuses rows that vLLM moves when it loads plain ones, and that lie as in the file."""
    for rule in _facts().get("reorders", ()):
        kind, module = rule.split()
        for name, weight in packed.items():
            if kind in types and _matches(name, [module]) and not weight.reordered:
                raise Refused(
                    f"{name}: vLLM takes its rows in another order than that of the model's file, "
                    "which they have here",
                    hint="convert the model again with this version of tilepack",
                )


def check_family(packed: Iterable[str], types: Collection[str]) -> None:
    """Refuses models of a type that vLLM is known not to load, or modules of them."""
    for rule in _facts()["families"]:
        if rule["verdict"] != "refused" or not set(types) & set(rule.get("types", ())):
            continue
        for name in packed:
            if _matches(name.partition(":")[0], rule.get("modules", ("",))):
                raise Refused(
                    f"{name}: of this model vLLM does not load it packed: {rule['says']}",
                    hint="convert with --exclude for these weights",
                )
