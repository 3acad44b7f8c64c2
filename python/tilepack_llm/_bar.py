"""A line that shows how far a command is, where somebody looks: on a terminal, in a notebook."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .commands import Progress

_WIDTH = 24
_LINE = 100


def is_watched(out: TextIO | None) -> bool:
    """Standard error is a terminal, or this is a notebook, whose kernel shows it."""
    if out is None:
        return False
    if out.isatty():
        return True
    shell = sys.modules.get("IPython")
    kernel = shell.get_ipython() if shell else None
    return type(kernel).__name__ == "ZMQInteractiveShell"


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1000
    return f"{count:.3g} TB"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


class Bar:
    """A callback for progress: `convert  42%|#####     | 3.1 GB/7.4 GB [00:03<00:05] item`."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out if out is not None else sys.stderr
        self.start = time.monotonic()
        self.shown = 0

    def __call__(self, step: Progress) -> None:
        past = time.monotonic() - self.start
        share = min(step.done / step.total, 1.0) if step.total else 0.0
        left = _clock(past * (1 - share) / share) if share else "?"
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH)
        text = (
            f"{step.command} {share:4.0%}|{bar}| {_size(step.done)}/{_size(step.total)} "
            f"[{_clock(past)}<{left}] {step.item}"
        )[:_LINE]
        self.out.write("\r" + text.ljust(self.shown))
        self.out.flush()
        self.shown = len(text)

    def close(self) -> None:
        """Ends the line, where there is one."""
        if self.shown:
            self.out.write("\n")
            self.out.flush()
        self.shown = 0
