"""What the program and the library say, in words of Python: `to="FORMAT"` for `--to FORMAT`,
`tilepack_llm.verify()` for 'tilepack verify'.

The options and their values are those of _options.py. What no function here has stays as it is:
it is to be typed in a shell.
"""

from __future__ import annotations

import re
from functools import cache

from . import _options

# Commands that are functions of this package, and those of which their help is meant.
FUNCTIONS = {
    **{command: command for command in _options.LINES},
    "plan": "plan",
    "formats": "formats",
}
_PLACEHOLDER = r"[A-Z][A-Z/,=]*(?![a-z])"
_FORMAT = r"[a-z]+[a-z0-9-]*\d[a-z0-9-]*|awq|gptq"


@cache
def _values() -> dict[str, str]:
    """{option: a pattern of the values that texts name, "" of one that takes none}."""
    found = {
        "to": f"{_PLACEHOLDER}|{_FORMAT}",
        "set": r"\w+=\w+|KEY=VALUE",
        "against": _PLACEHOLDER,
    }
    for command, lines in _options.LINES.items():
        kinds = getattr(_options, f"{command.title()}Options").__annotations__
        for name, line in lines.items():
            words = re.search(r"\[([a-z0-9|]+)\]$", line)
            flag = str(kinds[name]) in ("bool", "ForwardRef('bool')") or "'bool'," in str(
                kinds[name]
            )
            kind = "" if flag else _PLACEHOLDER + (f"|{words[1]}" if words else "")
            found.setdefault(name, kind)
    return found


def _option(name: str, tail: str) -> str:
    """The words for an option, and what follows it in the text."""
    pattern = _values()[name]
    if not pattern:
        return f"{name}=True{tail}"
    value = re.match(rf"[ =]({pattern})(?![\w-])", tail)
    if not value:
        return name + tail
    key, _, setting = value[1].partition("=")
    given = f'{{"{key}": "{setting}"}}' if name == "set" else f'"{value[1]}"'
    return f"{name}={given}{tail[value.end() :]}"


def _command(found: re.Match[str]) -> str:
    name, rest = found["command"], found["rest"].strip()
    if name in FUNCTIONS and rest == "--help":
        return f"help(tilepack_llm.{FUNCTIONS[name]})"
    return found[0] if name not in FUNCTIONS or rest else f"tilepack_llm.{FUNCTIONS[name]}()"


_COMMAND = re.compile(r"""(?P<quote>['`])tilepack (?P<command>[a-z]+)(?P<rest>[^'`]*)(?P=quote)""")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")


def spoken(text: str) -> str:
    """A message or a hint for who reads it in Python."""
    parts, at = [], 0
    for command in _COMMAND.finditer(text):
        parts += [_options_of(text[at : command.start()]), _command(command)]
        at = command.end()
    return "".join([*parts, _options_of(text[at:])])


def _options_of(text: str) -> str:
    found = list(_OPTION.finditer(text))
    made = text[: found[0].start()] if found else text
    for i, option in enumerate(found):
        end = found[i + 1].start() if i + 1 < len(found) else len(text)
        name = option[1].replace("-", "_")
        known = name in _values()
        tail = text[option.end() : end]
        made += _option(name, tail) if known else text[option.start() : end]
    return made
