#!/usr/bin/env python3
"""json_schemas.py PAGE FOLDER [--check]

Makes FOLDER/COMMAND.json, a JSON Schema of what each command prints under --json, of the tables of
PAGE (docs/json.md): a row for each key, its type, and when it is there. With --check, says which
differ instead (status 1).
"""
import json
import os
import re
import sys

PARTS = ("What several commands say", "Exit statuses")
TYPES = {"text": {"type": "string"}, "count": {"type": "integer", "minimum": 0},
         "number": {"type": "number"}, "yes/no": {"type": "boolean"}, "null": {"type": "null"},
         "open": {}, "object": {"type": "object"}}


def kind(text):
    """The schema of a word of the column `type`; objects get their members later."""
    words = [word.strip() for word in re.split(r",? or |, ", text)]
    if len(words) > 1:
        found = [kind(word) for word in words]
        types = [one["type"] for one in found]
        return {key: value for one in found for key, value in one.items()} | {"type": types}
    listed = re.fullmatch(r"list of (\w+)", words[0])
    if listed and listed[1] == "files":
        named = {"type": "object", "properties": {"name": TYPES["text"]}, "required": ["name"]}
        return {"type": "array", "items": named}
    if listed:
        return {"type": "array", "items": dict(TYPES[listed[1]])}
    return dict(TYPES[words[0]])


def tables(text):
    """{section: {subsection or "": rows}}, a row of (key, type, when, meaning)."""
    found, section, part = {}, None, ""
    for line in text.split("\n"):
        if line.startswith("## "):
            section, part = line[3:], ""
        elif line.startswith("### "):
            part = line[4:]
        elif line.startswith("| ") and not line.startswith("| key ") and section:
            found.setdefault(section, {}).setdefault(part, []).append(
                [cell.strip() for cell in line[1:-1].split("|")])
    return found


def flat(rows, shared, at=""):
    """With the rows of the sections that are linked in their places: (path, type, when, meaning)."""
    for key, *rest in rows:
        link = re.fullmatch(r"\[(\w+)\]\(#\w+\)(?: of `(.*)`)?", key)
        if link:
            yield from flat(shared[link[1]], shared, f"{link[2]}." if link[2] else "")
        else:
            yield (at + key.strip("`"), *rest)


def inner(schema, step):
    """The schema of the elements, or of the object, behind a step of a path."""
    return schema["items"] if step.endswith("[]") else schema


def schema_of(rows):
    top = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    for path, text, when, meaning in rows:
        *parents, name = path.split(".")
        at = top
        for parent in parents:
            at = inner(at["properties"][parent.removesuffix("[]")], parent)
        at.setdefault("properties", {})
        at.setdefault("required", [])
        at["additionalProperties"] = False
        made = kind(text)
        about = meaning + (f" (there if: {when})" if when else "")
        at["properties"][name] = {**({"description": about} if about else {}), **made}
        if not when:
            at["required"].append(name)
    return top


def schemas(page):
    found = tables(page)
    shared = found[PARTS[0]]
    made = {}
    error = schema_of(flat(found["error"][""], shared))
    for command, variants in found.items():
        if command in PARTS:
            continue
        ways = [schema_of(flat(rows, shared)) for rows in variants.values()]
        made[command] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"tilepack {command} --json" if command != "error" else "any command that fails",
            **(error if command == "error" else {"anyOf": [*ways, error]})}
    return made


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        made = schemas(file.read())
    different = 0
    for command, schema in made.items():
        path = os.path.join(sys.argv[2], f"{command}.json")
        text = json.dumps(schema, indent=1) + "\n"
        if "--check" not in sys.argv:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            if file.read() != text:
                different = 1
                print(f"{path} is another; run: scripts/json_schemas.py {sys.argv[1]} {sys.argv[2]}")
    extra = {name for name in os.listdir(sys.argv[2])} - {f"{command}.json" for command in made}
    if extra:
        print(f"{sys.argv[2]}: of no command: {sorted(extra)}")
    return different or bool(extra)


if __name__ == "__main__":
    sys.exit(main())
