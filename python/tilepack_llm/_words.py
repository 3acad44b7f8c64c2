"""Options and operands of a call as the words that the program takes."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from ._options import Path

# Other words for an option, which people know from other libraries.
SYNONYMS = {"format": "to"}


def text(path: str | bytes | os.PathLike[Any]) -> str:
    """A text or the name of a file, without what a class of its own would make of it: an f-string
    gives the name of an Enum's member in some versions of Python, and not its value."""
    return str.__str__(os.fsdecode(path))


def _value(name: str, value: Any) -> str:
    """A text, a number or the name of a file as the program takes it; nothing has its repr()."""
    if isinstance(value, (str, bytes, os.PathLike)):
        return text(value)
    try:
        if not isinstance(value, bool):
            return str(operator.index(value))
    except TypeError:
        pass
    raise TypeError(f"{name}: {value!r} is neither a text, nor a whole number, nor a file's name")


def _values(name: str, value: Any) -> list[str]:
    """The option once, or once for each that it is given."""
    if name == "set" and isinstance(value, Mapping):
        return [f"{_value(name, key)}={_value(name, value[key])}" for key in value]
    if isinstance(value, (bytearray, memoryview)):  # their items are numbers, which nobody means
        raise TypeError(f"{name}: {value!r} is no text: bytes() of it would be")
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, os.PathLike)):
        return [_value(name, item) for item in value]
    return [_value(name, value)]


def _known_name(name: str, options: Mapping[str, Any], known: type) -> str:
    """The option of that name; a name that is none of `known` is a TypeError."""
    meant = SYNONYMS.get(name, name)
    if meant not in known.__annotations__:
        near = difflib.get_close_matches(name, [*known.__annotations__, *SYNONYMS], 1)
        more = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"there is no option {name!r}{more}")
    if meant != name and meant in options:
        raise TypeError(f"{name!r} is another word for {meant!r}, and both are given")
    return meant


def words(options: Mapping[str, Any], known: type) -> list[str]:
    """Options as the program takes them. True for one that wants a value is a TypeError, as the
    next word would become its value."""
    made: list[str] = []
    for given, value in options.items():
        name = _known_name(given, options, known)
        option = "--" + name.replace("_", "-")
        if value is True and "bool" in str(known.__annotations__[name]):
            made.append(option)
        elif value is not False and value is not None:
            made += [f"{option}={one}" for one in _values(name, value)]
    return made


def operands(*paths: Path) -> list[str]:
    """What stands behind the options."""
    return ["--", *(text(path) for path in paths)]
