#!/usr/bin/env python3
"""Makes a CUDA shared library small enough to carry to a machine without network.

    slim_library.py IN OUT [ARCH]

The machine code of other GPUs than ARCH (90) is overwritten with zeros, which compress to nothing,
and so is PTX where code of ARCH lies beside it; names are stripped where `strip` is there. Host
code, and the kernels of ARCH, stay as they were shipped: the copy is for tests of exactly those.
Some of vLLM's Marlin kernels reach ARCH 90 as PTX alone, which the driver compiles.

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


def containers(data, offset, size):
    """[(offset, size, kind, architecture)] of the entries of each container of the section."""
    at = data.find(MAGIC, offset, offset + size)
    while at >= 0:
        _, _, header, length = struct.unpack_from("<IHHQ", data, at)
        entry, end, found = at + header, at + header + length, []
        while entry < end:
            kind, _, header, length = struct.unpack_from("<HHIQ", data, entry)
            arch, = struct.unpack_from("<I", data, entry + 28)
            found.append((entry + header, length, kind, arch))
            entry += header + length
        yield found
        at = data.find(MAGIC, end, offset + size)


def is_kept(entry, container, arch):
    """Code of the architecture, or PTX for it where the container holds none."""
    _, _, kind, its = entry
    if kind == MACHINE_CODE:
        return its == arch
    return its <= arch and not any(k == MACHINE_CODE and a == arch for _, _, k, a in container)


def main(source, target, arch="90"):
    with open(source, "rb") as file:
        data = bytearray(file.read())
    kept = dropped = 0
    for container in list(containers(data, *fat_section(source))):
        for entry in container:
            at, length = entry[:2]
            if is_kept(entry, container, int(arch)):
                kept += length
            else:
                data[at:at + length] = bytes(length)
                dropped += length
    with open(target, "wb") as file:
        file.write(data)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
    print(f"{target}: {kept} bytes for sm_{arch} kept, {dropped} zeroed")
    return 0 if kept else 1


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__.strip())
    sys.exit(main(*sys.argv[1:]))
