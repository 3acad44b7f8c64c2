"""`python -m tilepack_llm` and the command `tilepack`: this process becomes the program."""

from __future__ import annotations

import os
import sys

from ._files import program
from .errors import Error


def main() -> None:
    """Replaces this process by the program, with the same arguments. Does not return."""
    try:
        path = program()
        os.execv(path, ["tilepack", *sys.argv[1:]])
    except Error as error:
        sys.exit(f"tilepack: error: {error}")
    except OSError as error:
        sys.exit(f"tilepack: error: {path}: cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
