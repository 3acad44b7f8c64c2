"""Bytes of packed tensors, from the files to parameters.

The library's loader reads boxes of tensors, of a layer of the model at a time: straight into a
parameter where tiles lie there as they lie in the file, and else into a buffer on the device, out
of which they are copied. The host copies nothing, and a rank reads its own tiles alone. The buffer
holds no more than the tiles of a layer, nor than PIECE unless one expert has more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from vllm.logger import init_logger

from .. import parts
from ..checkpoint import Checkpoint
from ..parts import Part
from ..slices import Cut

logger = init_logger("vllm.tilepack")  # below the logger that vLLM sets up

_ALIGN = 512  # bytes: of boxes in the buffer
PIECE = 256 << 20  # bytes of the buffer
_LAYER = re.compile(r".*?\.\d+(?=\.)")


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


@dataclass(frozen=True)
class Stored:
    """A tensor in the files of a checkpoint."""

    checkpoint: Checkpoint
    name: str
    part: Part

    @property
    def layer(self) -> str:
        """The layer of the model that it belongs to, as its name begins."""
        found = _LAYER.match(self.name)
        return found.group() if found else self.name.rpartition(".")[0]


def stored(checkpoint: Checkpoint) -> dict[str, Stored]:
    """All tensors by name."""
    tensors = checkpoint.tensors
    return {name: Stored(checkpoint, name, tensors.part(name)) for name in tensors}


def mark(tensor: torch.Tensor, source: Stored) -> None:
    """Lets the tensor that vLLM has mapped say where its bytes are. vLLM's models and layers hand
    on the same object."""
    tensor.tilepack = source


def source_of(tensor: torch.Tensor) -> Stored | None:
    """None for what was not marked: weights that are no file's."""
    found: Stored | None = getattr(tensor, "tilepack", None)
    return found


@dataclass(frozen=True)
class _Job:
    """Tiles that are still to come: of a box, for a view of a parameter's bytes."""

    source: Stored
    cut: Cut
    target: torch.Tensor

    @cached_property
    def direct(self) -> bool:
        return self.cut.lies_as(self.target.stride())

    @property
    def part(self) -> Part:
        return replace(self.source.part, whole=self.cut.whole, spans=self.cut.spans)

    @property
    def room(self) -> int:
        """Of the box in the buffer."""
        return 0 if self.direct else -(-self.cut.bytes // _ALIGN) * _ALIGN


class Staging:
    """What is to be read at once."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._jobs: list[_Job] = []
        self._room = 0

    def add(self, source: Stored, cut: Cut, target: torch.Tensor) -> None:
        """The target is filled by the next flush(), or before.

        target  bytes of a parameter, a view of the cut's shape
        """
        job = _Job(source, cut, target)
        if self._jobs and not self._takes(job):
            self.flush()
        self._jobs.append(job)
        self._room += job.room

    def _takes(self, job: _Job) -> bool:
        last = self._jobs[-1]
        alike = (
            job.source.checkpoint is last.source.checkpoint
            and job.source.layer == last.source.layer
            and job.target.device == last.target.device
        )
        return alike and self._room + job.room <= PIECE

    def flush(self) -> None:
        """Reads all of them."""
        jobs, room = self._jobs, self._room
        self.clear()
        if not jobs:
            return
        begin = time.monotonic()
        buffer = torch.empty(room, dtype=torch.uint8, device=jobs[0].target.device)
        places = list(_places(jobs))
        self._read(jobs, [buffer.data_ptr() + at for at in places])
        for job, at in zip(jobs, places):
            if not job.direct:
                cut = job.cut
                job.target.copy_(buffer.as_strided(cut.shape, cut.strides, at))
            account.copied += job.target.numel()
        account.seconds += time.monotonic() - begin

    def _read(self, jobs: list[_Job], staged: list[int]) -> None:
        device = jobs[0].target.get_device()  # -1 is the host, for the library too
        checkpoint = jobs[0].source.checkpoint
        parts.copy(
            checkpoint.handle,
            [job.part for job in jobs],
            [job.target.data_ptr() if job.direct else at for job, at in zip(jobs, staged)],
            device=device,
            stream=torch.cuda.current_stream(device).cuda_stream if device >= 0 else None,
            file=checkpoint.path,
        )


def _places(jobs: list[_Job]) -> Iterator[int]:
    """Where each box begins in the buffer."""
    at = 0
    for job in jobs:
        yield at
        at += job.room


staging = Staging()
