#!/usr/bin/env python3
"""python_options.py TILEPACK

Prints python/tilepack_llm/_options.py: the options that the functions of the Python package take,
of what type and what for, from what the program TILEPACK says of its own. A test compares.
"""
import re
import subprocess
import sys

# What is an argument of the function here, or is about printing.
OTHERWISE = {"output", "against", "dry-run", "json", "quiet", "verbose", "progress", "progress-fd",
             "color", "help"}
COMMANDS = ("convert", "unpack", "verify", "compare", "diff", "suggest")
# Of values by the word that stands for them in the help; of all others a text.
TYPES = {"N": "int", "LEVEL": "int", "SIZE": "int | str", "FILE": "Path", "SRC": "Path",
         "KEY=VALUE": "Mapping[str, str]"}
HEAD = '''"""The options of the program's commands, '-' written as '_': generated from its own table by
scripts/python_options.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
'''


def options(program, command):
    """(name, value or "", may stand alone, text) of each option in the help of a command."""
    done = subprocess.run([program, "help", command], check=True, capture_output=True, text=True)
    found = []
    for line in done.stdout.partition("\nExamples:")[0].split("\n"):
        start = re.match(r" +(?:-\w, )?--([a-z][a-z-]*)(?:(\[=| )([A-Z][^ \]]*)\]?)?(?:  +(.*))?$", line)
        if start:
            name, joint, value, text = start.groups()
            found.append([name, value or "", joint == "[=", text or ""])
        elif found and line.startswith(" " * 20):
            found[-1][3] = f"{found[-1][3]} {line.strip()}".strip()
    return [option for option in found if option[0] not in OTHERWISE]


def annotation(value, alone, text):
    if not value:
        return "bool"
    kind = "Path" if text.endswith("or a file") else TYPES.get(value, "str")
    if "repeatable" in text and "Mapping" not in kind:
        kind = f"Iterable[{kind}]"
    return f"bool | {kind}" if alone else kind


def literal(text):
    """As a formatter of Python writes it."""
    return f"'{text}'" if '"' in text else f'"{text}"'


def main():
    print(HEAD)
    every = {command: options(sys.argv[1], command) for command in COMMANDS}
    for command, rows in every.items():
        print(f"\nclass {command.title()}Options(TypedDict, total=False):")
        print(f'    """The options of `tilepack {command}`."""\n')
        for name, value, alone, text in rows:
            print(f"    {name.replace('-', '_')}: {annotation(value, alone, text)}")
        print()
    print("\n# What the program's help says of each.\nLINES: dict[str, dict[str, str]] = {")
    for command, rows in every.items():
        print(f'    "{command}": {{')
        for name, _, _, text in rows:
            entry = f'        "{name.replace("-", "_")}": {literal(text)},'
            if len(entry) > 100:
                print(f'        "{name.replace("-", "_")}": (')
                words, line = text.split(" "), ""
                for i, word in enumerate(words):
                    piece = word + (" " if i + 1 < len(words) else "")
                    if len(literal(line + piece)) > 100 - 12:
                        print(f"            {literal(line)}")
                        line = ""
                    line += piece
                print(f"            {literal(line)}\n        ),")
            else:
                print(entry)
        print("    },")
    print("}")


main()
