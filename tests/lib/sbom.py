"""Checks a bill of materials: sbom.py SPDX.json ARCHIVE PROGRAM.

Its form is SPDX 2.3, the checksum is that of the archive, and the libraries are those that the
program needs, in the versions that pkg-config knows; the C library and its parts are the
system's.
"""
import hashlib
import json
import re
import subprocess
import sys

MODULES = {"jansson": "jansson", "pcre2": "libpcre2-8", "zstd": "libzstd", "xxhash": "libxxhash",
           "nettle": "nettle"}
SYSTEM = r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux"


def needed(program):
    """The stems of the shared libraries: jansson of libjansson.so.4."""
    text = subprocess.run(["readelf", "-d", program], capture_output=True, text=True,
                          check=True).stdout
    names = re.findall(r"\(NEEDED\).*\[(.*?)\]", text)
    stems = {re.match(r"lib(.*?)\.so", name).group(1) for name in names
             if not re.match(SYSTEM, name)}
    return {re.sub(r"^pcre2-8$", "pcre2", stem) for stem in stems}


def check_form(document):
    """What the specification demands of the parts that are there."""
    assert document["spdxVersion"] == "SPDX-2.3" and document["dataLicense"] == "CC0-1.0"
    assert document["SPDXID"] == "SPDXRef-DOCUMENT" and document["name"]
    assert re.fullmatch(r"[a-z]+:[^#\s]+", document["documentNamespace"])
    creation = document["creationInfo"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", creation["created"])
    assert all(re.match(r"(Tool|Person|Organization): ", who) for who in creation["creators"])
    ids = [package["SPDXID"] for package in document["packages"]]
    assert len(set(ids)) == len(ids)
    for package in document["packages"]:
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"])
        assert package["name"] and package["versionInfo"] and package["downloadLocation"]
        assert package["filesAnalyzed"] is False and package["licenseDeclared"]
    for relation in document["relationships"]:
        assert relation["spdxElementId"] in ids + ["SPDXRef-DOCUMENT"]
        assert relation["relatedSpdxElement"] in ids
        assert relation["relationshipType"] in ("DESCRIBES", "DYNAMIC_LINK")


def main(path, archive, program):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    check_form(document)
    packages = {package["name"]: package for package in document["packages"]}
    source = packages.pop("tilepack")
    with open(archive, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    assert source["checksums"] == [{"algorithm": "SHA256", "checksumValue": found}]
    assert archive.endswith(source["packageFileName"])
    assert set(packages) == needed(program), (set(packages), needed(program))
    for name, package in packages.items():
        version = subprocess.run(["pkg-config", "--modversion", MODULES[name]],
                                 capture_output=True, text=True, check=True).stdout.strip()
        assert package["versionInfo"] == version, (name, package["versionInfo"], version)
    linked = {relation["relatedSpdxElement"] for relation in document["relationships"]
              if relation["relationshipType"] == "DYNAMIC_LINK"}
    assert linked == {package["SPDXID"] for package in packages.values()}


main(*sys.argv[1:])
