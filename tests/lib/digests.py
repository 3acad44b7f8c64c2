"""SHA-256 by Python's hashlib, for tests/cli/digest.sh.

digests.py path PATH              the line that `tilepack digest` must print
digests.py manifest DIR           every file of the manifest has the SHA-256 of its bytes
digests.py forge|strip|spoil DIR FILE   a manifest with right XXH3 hashes in which FILE's
                                  hash follows its contents, its digest stays; is gone; is none
"""
import hashlib
import json
import os
import subprocess
import sys

from own_hash import signed, xxh3


def of_file(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def of_path(path):
    if not os.path.isdir(path):
        return of_file(path)
    names = []
    for folder, folders, files in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        names += [os.path.relpath(os.path.join(folder, name), path) for name in files
                  if not name.startswith(".")]
    text = b"".join(f"{of_file(os.path.join(path, name))}  {name}\n".encode()
                    for name in sorted(names, key=os.fsencode))
    return hashlib.sha256(text).hexdigest()


def check_manifest(directory):
    with open(os.path.join(directory, "tilepack.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    assert manifest["request"]["digest"] == "sha256"
    assert {entry["name"] for entry in manifest["files"]} == {
        name for name in os.listdir(directory) if name != "tilepack.json"}
    for entry in manifest["files"]:
        assert entry["sha256"] == of_file(os.path.join(directory, entry["name"])), entry["name"]


def leaf_hash(data):
    """The file's hash of formats/README.md, for files of at most one leaf."""
    leaves = bytes.fromhex(xxh3(data)) if data else b""
    return xxh3(len(data).to_bytes(8, "little") + leaves)


def change(how, directory, name):
    path = os.path.join(directory, "tilepack.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    entry, = [entry for entry in manifest["files"] if entry["name"] == name]
    if how == "strip":
        del entry["sha256"]
    elif how == "spoil":
        entry["sha256"] = entry["sha256"][:-1] + "G"
    else:
        with open(os.path.join(directory, name), "rb") as file:
            entry["xxh3"] = leaf_hash(file.read())
    with open(path, "wb") as file:
        file.write(signed(manifest))


if sys.argv[1] == "path":
    print("sha256:" + of_path(sys.argv[2]))
elif sys.argv[1] == "manifest":
    check_manifest(sys.argv[2])
else:
    change(*sys.argv[1:])
