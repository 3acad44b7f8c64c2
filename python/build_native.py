"""The build hook of the wheel: runs the Makefile and puts the program and the library into it.

TILEPACK_MAKE      further words for make: CC=..., LIBS=..., NVCC= (scripts/wheel.sh sets them)
TILEPACK_BUILD     where make puts what it makes (build/wheel)
TILEPACK_LICENSES  a folder of the licences of what is linked in statically
TILEPACK_PLATFORM  of the wheel's tag, where the compiler is one for another machine

An editable install builds nothing: it finds what `make` has put into build/.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _make(root: Path, build: Path, version: str) -> list[Path]:
    """Builds; the program and the shared library."""
    made = [build / "tilepack", build / f"libtilepack.so.{version}"]
    words = ["make", f"-j{os.cpu_count() or 1}", f"BUILD={build}"]
    words += shlex.split(os.environ.get("TILEPACK_MAKE", ""))
    subprocess.run([*words, *map(str, made)], cwd=root, check=True)
    return made


class NativeBuildHook(BuildHookInterface[Any]):  # type: ignore[misc]
    """Called by hatchling before it writes a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if not sys.platform.startswith("linux"):
            raise SystemExit("tilepack-llm is for Linux only")
        root = Path(self.root)
        build = Path(os.environ.get("TILEPACK_BUILD") or root / "build" / "wheel")
        program, library = _make(root, build, self.metadata.version)
        include: dict[str, str] = build_data["force_include"]
        include[str(program)] = "tilepack_llm/native/tilepack"
        include[str(library)] = "tilepack_llm/native/libtilepack.so"
        licenses = os.environ.get("TILEPACK_LICENSES")
        if licenses:
            include[licenses] = "tilepack_llm/native/licenses"
        platform = os.environ.get("TILEPACK_PLATFORM") or sysconfig.get_platform()
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + platform.replace("-", "_").replace(".", "_")
