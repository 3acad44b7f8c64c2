"""Bytes of packed tensors, from the files to parameters.

The library's loader reads boxes of many tensors at a time: straight into a parameter where tiles
lie there as they lie in the file, and else into a buffer on the device, out of which they are
copied. The host copies nothing, and a rank reads its own tiles alone. The buffer holds a layer of
the model, at least LEAST and at most MOST, unless one expert has more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from vllm.logger import init_logger

from .. import parts
from ..checkpoint import Checkpoint
from ..parts import Part
from ..slices import Cut

logger = init_logger("vllm.tilepack")  # below the logger that vLLM sets up

_ALIGN = 512  # bytes: of boxes in the buffer
LEAST, MOST = 16 << 20, 128 << 20  # bytes of the buffer: each flush() takes a millisecond


@dataclass
class Account:
    """Bytes copied into parameters by this process, and the seconds of it.

    reading  tensors are still coming in
    """

    copied: int = 0
    seconds: float = 0.0
    reading: bool = False

    def tell(self) -> None:
        """One line for what was copied since the last one, when all is."""
        if self.copied and not self.reading:
            logger.info(
                "tilepack: %.2f GB copied into parameters in %.2f s, %.2f GB/s, nothing is "
                "processed",
                self.copied / 1e9,
                self.seconds,
                self.copied / 1e9 / max(self.seconds, 1e-9),
            )
            self.copied, self.seconds = 0, 0.0


account = Account()


class Stored(NamedTuple):
    """A tensor in the files of a checkpoint, by its number there."""

    checkpoint: Checkpoint
    number: int


class View(NamedTuple):
    """Of a tensor's bytes, as torch.as_strided() has it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def seen(self, tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.detach().view(-1).view(torch.uint8)
        return flat.as_strided(self.shape, self.strides, flat.storage_offset() + self.offset)


class Move(NamedTuple):
    """Tiles of a stored tensor, and where in a parameter they go.

    room  bytes of the box in the buffer; 0: they lie in the parameter as in the file
    """

    cut: Cut
    into: View
    room: int

    @classmethod
    def of(cls, cut: Cut, into: View) -> Move:
        room = 0 if cut.lies_as(into.strides) else -(-cut.bytes // _ALIGN) * _ALIGN
        return cls(cut, into, room)


def mark(tensor: torch.Tensor, source: Stored) -> None:
    """Lets the tensor that vLLM has mapped say where its bytes are. vLLM's models and layers hand
    on the same object."""
    tensor.tilepack = source


def source_of(tensor: torch.Tensor) -> Stored | None:
    """None for what was not marked: weights that are no file's."""
    found: Stored | None = getattr(tensor, "tilepack", None)
    return found


class _Job(NamedTuple):
    """What is still to come for a parameter."""

    source: Stored
    move: Move
    target: torch.Tensor

    @property
    def part(self) -> Part:
        cut = self.move.cut
        return Part(self.source.number, "U8", cut.spans, cut.shape, cut.whole)

    def address(self, staged: int) -> int:
        move = self.move
        return staged if move.room else self.target.data_ptr() + move.into.offset


class Staging:
    """What is to be read at once.

    room  bytes of the buffer, unless one expert has more
    """

    def __init__(self) -> None:
        self.room = MOST
        self.clear()

    def allow(self, room: int) -> None:
        self.room = min(max(room, LEAST), MOST)

    def clear(self) -> None:
        self._jobs: list[_Job] = []
        self._taken = 0

    def add(self, source: Stored, move: Move, target: torch.Tensor) -> None:
        """The target, a parameter, has the tiles after the next flush(), or before."""
        if self._jobs and not self._takes(source, move, target):
            self.flush()
        self._jobs.append(_Job(source, move, target))
        self._taken += move.room

    def _takes(self, source: Stored, move: Move, target: torch.Tensor) -> bool:
        last = self._jobs[-1]
        alike = source.checkpoint is last.source.checkpoint and target.device == last.target.device
        return alike and (not move.room or self._taken + move.room <= self.room)

    def flush(self) -> None:
        """Reads all of them."""
        jobs, taken = self._jobs, self._taken
        self.clear()
        if not jobs:
            return
        begin = time.monotonic()
        buffer = torch.empty(taken, dtype=torch.uint8, device=jobs[0].target.device)
        places = list(_places(jobs))
        self._read(jobs, [buffer.data_ptr() + at for at in places])
        for job, at in zip(jobs, places):
            cut, into, room = job.move
            if room:
                into.seen(job.target).copy_(buffer.as_strided(cut.shape, cut.strides, at))
            account.copied += cut.bytes
        account.seconds += time.monotonic() - begin

    def _read(self, jobs: list[_Job], staged: list[int]) -> None:
        device = jobs[0].target.get_device()  # -1 is the host, for the library too
        checkpoint = jobs[0].source.checkpoint
        parts.copy(
            checkpoint.handle,
            [job.part for job in jobs],
            [job.address(at) for job, at in zip(jobs, staged)],
            device=device,
            stream=torch.cuda.current_stream(device).cuda_stream if device >= 0 else None,
            file=checkpoint.path,
        )


def _places(jobs: list[_Job]) -> Iterator[int]:
    """Where each box begins in the buffer."""
    at = 0
    for job in jobs:
        yield at
        at += job.move.room


staging = Staging()
