"""What of a layer's parameters was loaded, and when a layer is complete.

vLLM fills a layer once or, with reload_weights, again in a running server. Then it calls every
loader twice: first with parameters that have no memory, to count the elements that come in, and
when all have come with ones of new memory.
"""

from __future__ import annotations

import torch
from vllm.config import get_current_vllm_config

from ..slices import Output
from .support import Refused


class Filling:
    """Rows of parameters that are still to come. Made while vLLM builds the model."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.dummy = get_current_vllm_config().load_config.load_format == "dummy"
        self._outputs: dict[str, Output] = {}
        self._rows: dict[str, int] = {}
        self.again()

    def expect(self, name: str, output: Output, rows: int = 1) -> None:
        """A parameter that comes in parts of so many rows, all together."""
        self._outputs[name], self._rows[name] = output, rows

    def again(self) -> None:
        """All is still to come."""
        self._loaded: dict[str, int] = {}
        self._announced: dict[str, int] = {}

    def begun(self, name: str) -> bool:
        return name in self._loaded

    def takes(self, name: str, param: torch.Tensor, rows: int = 1) -> bool:
        """Whether rows are to be copied into a parameter now, or are only counted.

        The first ones find all padding in it: what no part fills is what the file has there.
        """
        if param.is_meta:
            self._announce(name, param, rows)
            return False
        fill = self._outputs[name].fill
        if fill is not None and not self.begun(name):
            param.data.view(-1).view(torch.uint8).fill_(fill)
        self._loaded[name] = self._loaded.get(name, 0) + rows
        return True

    def _announce(self, name: str, param: torch.Tensor, rows: int) -> None:
        """vLLM counts the elements of copies; the last rows bring them to those of `param`."""
        before = self._announced.get(name, 0)
        self._announced[name] = before + rows
        first, last = (param.numel() * n // self._rows[name] for n in (before, before + rows))
        announced = torch.empty(last - first, device="meta")
        announced.copy_(torch.empty_like(announced))

    def missing(self) -> list[str]:
        """Parameters that are not filled; none where dummy weights were asked for."""
        if self.dummy and not self._loaded:
            return []
        return [name for name, rows in self._rows.items() if self._loaded.get(name, 0) < rows]

    def check(self) -> None:
        """Refuses a layer that is not complete."""
        if missing := self.missing():
            raise Refused(
                f"{self.where}: the checkpoint does not fill {', '.join(sorted(missing))}",
                hint="run `tilepack verify`",
            )
