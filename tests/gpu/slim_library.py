#!/usr/bin/env python3
"""Makes a CUDA shared library small enough to carry to a machine without network.

    slim_library.py IN OUT [ARCH]

The machine code of other GPUs than ARCH (90), and all PTX, is overwritten with zeros, which
compress to nothing; names are stripped where `strip` is there. Host code, and the kernels of
ARCH, stay as they were shipped: the copy is for tests of exactly those.

A fat binary is a row of containers: magic 0xBA55ED50, version, size of the header, size of what
follows. In it entries lie one behind the other: kind (2: machine code), size of the header at
byte 4, size of the code at byte 8, architecture at byte 28.
"""
import re
import shutil
import struct
import subprocess
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
MACHINE_CODE = 2


def fat_section(path):
    """(offset, size) of .nv_fatbin in the file."""
    table = subprocess.run(["readelf", "-SW", path], check=True, capture_output=True, text=True)
    row = re.search(r"\.nv_fatbin\s+PROGBITS\s+\w+\s+(\w+)\s+(\w+)", table.stdout)
    if not row:
        raise SystemExit(f"{path}: holds no CUDA code (no section .nv_fatbin)")
    return int(row[1], 16), int(row[2], 16)


def entries(data, offset, size):
    """(offset, size, kind, architecture) of the code of each entry of the section."""
    at = data.find(MAGIC, offset, offset + size)
    while at >= 0:
        _, _, header, length = struct.unpack_from("<IHHQ", data, at)
        entry, end = at + header, at + header + length
        while entry < end:
            kind, _, header, length = struct.unpack_from("<HHIQ", data, entry)
            arch, = struct.unpack_from("<I", data, entry + 28)
            yield entry + header, length, kind, arch
            entry += header + length
        at = data.find(MAGIC, end, offset + size)


def main(source, target, arch="90"):
    with open(source, "rb") as file:
        data = bytearray(file.read())
    kept = dropped = 0
    for at, length, kind, its in list(entries(data, *fat_section(source))):
        if kind == MACHINE_CODE and its == int(arch):
            kept += length
        else:
            data[at:at + length] = bytes(length)
            dropped += length
    with open(target, "wb") as file:
        file.write(data)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
    print(f"{target}: {kept} bytes of code for sm_{arch} kept, {dropped} zeroed")
    return 0 if kept else 1


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__.strip())
    sys.exit(main(*sys.argv[1:]))
