"""Linear layers: parameters of the stored shape, filled with tiles of one or several parts.

Merged layers (qkv_proj, gate_up_proj) take their parts one by one, or as the file has them
merged; ranks take their rows or columns. After loading nothing moves: parameters get the names
and the views that vLLM's kernel looks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from vllm.model_executor.layers.linear import LinearMethodBase
from vllm.model_executor.utils import is_weights_pre_processed

from ..errors import UnsupportedError
from ..slices import Output, Packed, Span, columns_of_rank, rows_of_rank
from .filling import Filling
from .kernels import LINEAR, Asked
from .staging import account, staging
from .support import Refused, check_linear
from .tensors import Place, check, check_dtype, copy_tiles, parameter, rename


class Rows(NamedTuple):
    """Rows of a layer on this rank, and of the file's weight that they are."""

    here: Span
    there: Span


def _joined(rows: list[Rows]) -> list[Rows]:
    """The same with those as one that follow each other here and there: on one rank all."""
    found: list[Rows] = []
    for here, there in rows:
        if found and (found[-1].here[1], found[-1].there[1]) == (here[0], there[0]):
            found[-1] = Rows((found[-1].here[0], here[1]), (found[-1].there[0], there[1]))
        else:
            found.append(Rows(here, there))
    return found


def _wholes(layer: Any, sizes: list[int], ranks: int) -> list[int]:
    """Rows of vLLM's parts on all ranks, of which several may share heads of k and v."""
    heads = [getattr(layer, f"total_num_{kind}heads", 0) for kind in ("", "kv_", "kv_")]
    if len(sizes) != len(heads) or not all(heads):
        return [size * ranks for size in sizes]
    widths = (layer.head_size, layer.head_size, getattr(layer, "v_head_size", layer.head_size))
    return [count * width for count, width in zip(heads, widths)]


def _count_of(wholes: list[int], rows: int) -> int:
    """How many of vLLM's parts the rows of a weight are, beginning with the first."""
    for count in range(1, len(wholes) + 1):
        if sum(wholes[:count]) == rows:
            return count
    raise UnsupportedError(f"its parts lie merged in the file, in {rows} rows")


class TilepackLinearMethod(LinearMethodBase):  # type: ignore[misc]
    """parts: the packed weights of the layer, in the order of its rows."""

    supports_pre_processed_weights = True
    requires_device_loading = False

    def __init__(self, parts: list[Packed], prefix: str) -> None:
        self.parts, self.prefix = parts, prefix

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        fmt = self.parts[0].format
        check_linear(self.prefix, fmt)
        self.sizes, self.rank, self.ranks = output_partition_sizes, layer.tp_rank, layer.tp_size
        n, k = sum(output_partition_sizes), input_size_per_partition
        layer.output_size_per_partition, layer.input_size_per_partition = n, k
        self.wholes = _wholes(layer, self.sizes, self.ranks)
        layer.weight_block_size = [128, 128]  # what vLLM's kernels for block FP8 look up
        self._refuse_unless(self._checked, input_size)
        self.mine = self._refuse_unless(self.parts[0].matrix_of_size, (1, n, k))
        outputs = self._refuse_unless(lambda: self.mine.outputs)
        check_dtype(self.prefix, self.mine, params_dtype)
        self.kernel = LINEAR[fmt].make(
            Asked(self.prefix, self.mine, (output_size, input_size), params_dtype)
        )
        self.filling = Filling(self.prefix)
        for output in outputs.values():
            if output.words is None:  # constants the kernel makes by itself
                made = parameter(output)
                made.weight_loader = self._loader(output)
                layer.register_parameter(output.suffix, made)
                self.filling.expect(output.suffix, output, n)

    def _refuse_unless(self, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return work(*arguments)
        except UnsupportedError as error:
            if isinstance(error, Refused):
                raise
            hint = (
                f"serve on another number of ranks than {self.ranks}, or convert to another format"
            )
            raise Refused(f"{self.prefix}: {error.message}", hint=hint) from None

    def _checked(self, input_size: int) -> None:
        """The stored parts against what the model asks for."""
        for packed in self.parts:
            if packed.stacked or packed.box[2] != input_size:
                raise Refused(
                    f"{self.prefix}: the checkpoint has {list(packed.box)}, and the model takes "
                    f"{input_size} input features",
                    hint="its config.json must be that of the converted source",
                )
        self.places = self._places()

    def _places(self) -> list[list[Rows]]:
        """Of each part where its rows belong. A part that the file has merged is several of
        vLLM's, one after the other."""
        places, taken, at = [], 0, 0
        for packed in self.parts:
            own = len(self.parts) == len(self.sizes)
            count = 1 if own else _count_of(self.wholes[taken:], packed.box[1])
            rows, begin = [], 0
            for i, size in enumerate(self.sizes[taken : taken + count], taken):
                whole = packed.box[1] if count == 1 else self.wholes[i]
                first, last = rows_of_rank(whole, size, self.rank, self.ranks)
                rows.append(Rows((at, at + size), (begin + first, begin + last)))
                at, begin = at + size, begin + whole
            places.append(_joined(rows))
            taken += count
        return places

    def tensors(self, layer: torch.nn.Module) -> Iterator[tuple[str, Callable[..., None]]]:
        """Each of them in the file, and what loads it."""
        for part, packed in enumerate(self.parts):
            for suffix, stored in packed.outputs.items():
                yield packed.prefix + suffix, partial(self._take, layer, part, stored)

    def _take(
        self, layer: torch.nn.Module, part: int, stored: Output, tensor: torch.Tensor
    ) -> None:
        check(self.prefix, stored, tensor)
        if stored.words is None:
            param = layer._parameters[stored.suffix]
            param.weight_loader(param, tensor, part)

    def _loader(self, output: Output) -> Callable[..., None]:
        def load(param: Any, tensor: torch.Tensor, part: int) -> None:
            self._refuse_unless(self._load, output, param, tensor, part)

        return load

    def _load(self, output: Output, param: torch.Tensor, tensor: torch.Tensor, part: int) -> None:
        packed = self.parts[part]
        for rows in self.places[part]:
            if self.mine.per.get(output.suffix) == (0, 0):
                tensor = tensor.to(param.device, copy=True)  # one number, which is compared
                self._check_same(output, param, tensor)
            mine = rows.here[1] - rows.here[0]
            if not self.filling.takes(output.suffix, param, mine) or output.grid is None:
                continue
            k = self.mine.box[2]
            columns = columns_of_rank(packed.box[2], k, self.rank, self.ranks)
            copy_tiles(
                param.data,
                Place(output, self.mine.box, rows.here, (0, k)),
                tensor,
                Place(packed.outputs[output.suffix], packed.box, rows.there, columns),
            )

    def _check_same(self, output: Output, param: torch.Tensor, tensor: torch.Tensor) -> None:
        """The kernel takes one number for all parts: a later one must have that of the first."""
        if param.is_meta or not self.filling.begun(output.suffix):
            return
        if not torch.equal(param, tensor):
            raise Refused(
                f"{self.prefix}: its parts have other numbers in {output.suffix}, and vLLM holds "
                "them as one",
                hint="convert them together, from a source whose global scales they share",
            )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """No byte moves."""
        if is_weights_pre_processed():
            return
        staging.flush()
        self.filling.check()
        self.filling.again()
        support = LINEAR[self.parts[0].format]
        for suffix, output in self.mine.outputs.items():
            if output.words is None:
                data = support.view(suffix, layer._parameters[suffix].data, self.mine.box)
                rename(layer, suffix, support.names.get(suffix, suffix), data)
        support.ready(layer, self.kernel)
        account.tell()

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.kernel.apply_weights(layer, x, bias)
