"""Fused experts: the stacks w13 and w2 are the kernel's operands.

Ranks of tensor parallelism take their rows of both halves of w13 and their columns of w2, those
of expert parallelism their experts. After loading nothing moves: vLLM's own functions make the
kernel from the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.utils import is_weights_pre_processed

from ..errors import UnsupportedError
from ..slices import Output, Packed, columns_of_rank, runs
from .filling import Filling
from .refresh import refresh
from .staging import account, staging
from .support import STORED, Refused, check_boxes, check_inputs
from .tensors import (
    Place,
    check,
    check_dtype,
    constant,
    copy_tiles,
    parameter,
    rename,
)


def _joined(part: str, suffix: str) -> str:
    """The name of a tensor: of a bias that of its part."""
    return f"{part}_{suffix}" if suffix else part


class TilepackMoEMethod(FusedMoEMethodBase):  # type: ignore[misc]
    """What the formats share. Subclasses choose vLLM's backend and make its kernel."""

    supports_pre_processed_weights = True
    requires_device_loading = False
    names: Mapping[str, str] = {}  # suffix in the file -> behind "w13_" and "w2_" of the layer
    bias: str | None = None  # type of the biases that the kernel takes; None: it is given none
    padded = (1, 1)  # multiples to which vLLM pads hidden and intermediate sizes for the kernel

    def __init__(self, stored: dict[str, Packed], moe: Any, prefix: str) -> None:
        super().__init__(moe)
        self.stored, self.prefix = stored, prefix
        if getattr(moe, "w13_num_shards", 2) != 2:
            raise Refused(
                f"{prefix}: its experts have no gate, which this plugin does not serve",
                hint="convert with --exclude for the experts",
            )
        self._check_biases(bool(getattr(moe, "has_bias", False)))
        if stored["w13"].part == "up" and moe.activation.value != "swigluoai":
            raise Refused(
                f"{prefix}: rows of gate and up are interleaved in the checkpoint, and vLLM's "
                f"kernel for {moe.activation.value} does not take them so",
                hint="convert with --exclude for the experts",
            )
        self.backend, self.experts_cls = self.select(moe)

    def _check_biases(self, wanted: bool) -> None:
        biases = [packed for packed in self.stored.values() if packed.bias]
        types = {output.dtype for packed in biases for output in packed.outputs.values()}
        if types - {self.bias} or len(biases) != 2 * wanted:
            has = f"two in {self.bias}" if wanted and self.bias else "none"
            raise Refused(
                f"{self.prefix}: the checkpoint has {len(biases)} biases"
                f"{''.join(f' in {one}' for one in sorted(types))}, and vLLM's kernel for "
                f"{self.stored['w13'].format} gets {has} here",
                hint="convert with --exclude for the experts",
            )

    def select(self, moe: Any) -> tuple[Any, Any]:
        """vLLM's backend and class of experts; Refused when these bytes are not theirs."""
        raise NotImplementedError

    def maybe_roundup_sizes(self, *sizes: Any, **more: Any) -> tuple[int, int]:
        """What vLLM tells the kernel, and pads activations to."""
        hidden, inter = super().maybe_roundup_sizes(*sizes, **more)
        whole_hidden, whole_inter = self.padded
        return -(-hidden // whole_hidden) * whole_hidden, -(-inter // whole_inter) * whole_inter

    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        """How the kernel sees a tensor."""
        del suffix, box
        return data

    def other_backend(self, chosen: Any, wanted: str) -> Refused:
        return Refused(
            f"{self.prefix}: {self.stored['w13'].format} is for --moe-backend {wanted}, and vLLM "
            f"has chosen {getattr(chosen, 'value', chosen)}",
            hint=f"start it with --moe-backend {wanted}",
        )

    def create_weights(
        self,
        layer: torch.nn.Module,
        num_experts: int,
        hidden_size: int,
        intermediate_size_per_partition: int,
        params_dtype: torch.dtype,
        **_: Any,
    ) -> None:
        for packed in self.stored.values():
            check_dtype(self.prefix, packed, params_dtype)
        ranks, experts = self.moe.tp_size, self.moe.num_logical_experts
        if num_experts * self.moe.ep_size != experts and self.moe.ep_size > 1:
            raise Refused(
                f"{self.prefix}: {experts} experts do not divide among {self.moe.ep_size} ranks",
                hint="redundant experts are not served",
            )
        hidden, inter = (
            self.moe.hidden_dim_unpadded,
            self.moe.intermediate_size_per_partition_unpadded,
        )
        check_boxes(
            self.prefix,
            {part: packed.box for part, packed in self.stored.items()},
            self._boxes(experts, hidden, inter * ranks),
        )
        self.mine = self._of_sizes(num_experts, hidden, inter)
        self._check_padding(
            self._of_sizes(num_experts, hidden_size, intermediate_size_per_partition)
        )
        for name in ("w13_input_scale", "w2_input_scale"):
            layer.register_parameter(name, None)
        layer.weight_block_size = [128, 128]
        self.filling = Filling(self.prefix)
        for part, packed in self.mine.items():
            for output in self._outputs(packed).values():
                self._register(layer, part, output)

    def _boxes(self, experts: int, hidden: int, inter: int) -> dict[str, tuple[int, int, int]]:
        rows = {"w13": 2 * inter, "w2": hidden}
        columns = {"w13": hidden, "w2": inter}
        return {
            part: (experts, rows[part.removesuffix("_bias")], columns.get(part, 1))
            for part in self.stored
        }

    def _of_sizes(self, experts: int, hidden: int, inter: int) -> dict[str, Packed]:
        boxes = self._boxes(experts, hidden, inter)
        return {part: self.stored[part].of_size(box) for part, box in boxes.items()}

    def _check_padding(self, rounded: dict[str, Packed]) -> None:
        """Sizes that vLLM rounds up are those to which the format pads."""
        for part, packed in self.mine.items():
            wanted = {suffix: out.shape for suffix, out in self._outputs(rounded[part]).items()}
            for suffix, output in self._outputs(packed).items():
                if output.shape != wanted[suffix]:
                    raise Refused(
                        f"{self.prefix}: {part} is {list(packed.box)}, which vLLM rounds up to "
                        f"{list(rounded[part].box)}, and {packed.format} does not",
                        hint="convert the experts to another format",
                    )

    def _outputs(self, packed: Packed) -> dict[str, Output]:
        try:
            return {**packed.outputs, **packed.inputs}
        except UnsupportedError as error:
            raise Refused(
                f"{self.prefix}: {error.message}",
                hint=f"serve on another number of ranks than {self.moe.tp_size}",
            ) from None

    def _register(self, layer: torch.nn.Module, part: str, output: Output) -> None:
        made = parameter(output)
        name = _joined(part, output.suffix)
        made.weight_loader = self._loader(layer, part, output)
        layer.register_parameter(STORED + name, made)
        self.filling.expect(name, output)

    def tensors(self, layer: torch.nn.Module) -> Iterator[tuple[str, Callable[..., None]]]:
        """Each of them in the file, and what loads it."""
        for part, packed in self.stored.items():
            for suffix, stored in self._outputs(packed).items():
                yield packed.prefix + suffix, partial(self._take, layer, part, stored)

    def _take(self, layer: Any, part: str, stored: Output, tensor: torch.Tensor) -> None:
        check(f"{self.prefix}: {part}", stored, tensor)
        param = layer._parameters[STORED + _joined(part, stored.suffix)]
        param.weight_loader(param, tensor, stored)

    def _loader(self, layer: Any, part: str, output: Output) -> Callable[..., None]:
        def load(param: Any, tensor: torch.Tensor, stored: Output) -> None:
            if not self.filling.takes(_joined(part, output.suffix), param):
                return
            if output.grid is not None:
                self._copy(layer, part, (output, param.data), (stored, tensor))
            elif output.words is None:
                param.data.copy_(tensor)

        return load

    def _copy(
        self,
        layer: Any,
        part: str,
        to: tuple[Output, torch.Tensor],
        of: tuple[Output, torch.Tensor],
    ) -> None:
        packed, mine = self.stored[part], self.mine[part]
        if part == "w2_bias" and self.moe.tp_rank:
            to[1].zero_()  # vLLM adds up what the ranks have computed
            return
        local = [
            expert
            for expert in range(packed.box[0])
            if layer._map_global_expert_id_to_local_expert_id(expert) != -1
        ]
        try:
            for here, there in self._places(part, to[0], of[0], packed, mine):
                copy_tiles(to[1], here, of[1], there, runs(local))
        except UnsupportedError as error:
            raise Refused(
                f"{self.prefix}: {part}: {error.message}",
                hint=f"serve on another number of ranks than {self.moe.tp_size}",
            ) from None

    def _places(
        self, part: str, output: Output, stored: Output, packed: Packed, mine: Packed
    ) -> Iterator[tuple[Place, Place]]:
        """(where in the parameter, where in the file) of what this rank holds."""
        rank, ranks = self.moe.tp_rank, self.moe.tp_size
        (_, n, k), (_, full_n, full_k) = mine.box, packed.box
        if part in ("w2", "w2_bias"):
            columns = columns_of_rank(full_k, k, rank, ranks)
            yield (
                Place(output, mine.box, (0, n), (0, k)),
                Place(stored, packed.box, (0, n), columns),
            )
            return
        side_by_side = output.grid is not None and output.grid.stretches == 2
        if packed.part != "gated" or (ranks == 1 and not side_by_side):
            # The rows of gate and up are interleaved, or one rank has them all.
            yield (
                Place(output, mine.box, (0, n), (0, k)),
                Place(stored, packed.box, (rank * n, (rank + 1) * n), (0, k)),
            )
            return
        half, full_half = n // 2, full_n // 2
        for i in range(1 if side_by_side else 2):  # gate, up
            begin = i * full_half + rank * half
            yield (
                Place(output, mine.box, (i * half, (i + 1) * half), (0, k)),
                Place(stored, packed.box, (begin, begin + half), (0, k)),
            )

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """No byte moves."""
        if not is_weights_pre_processed():
            staging.flush()
            self._check_inputs()
            self.filling.check()
            self.filling.again()
            self._present(layer)
        self._make_kernel(layer)
        account.tell()

    def _make_kernel(self, layer: torch.nn.Module) -> None:
        """Of weights that are loaded anew the first kernel gets the values, and stays."""
        made, config = vars(self)["moe_kernel"], vars(self)["moe_quant_config"]
        self.moe_quant_config = self.get_fused_moe_quant_config(layer)
        self.moe_kernel = self.make_kernel(layer)
        if made is not None:
            refresh(made.fused_experts, self.moe_kernel.fused_experts)
            self.moe_kernel, self.moe_quant_config = made, config

    def _present(self, layer: torch.nn.Module) -> None:
        """Parameters under the names and in the views of the kernel, and its constants."""
        for part, packed in self.mine.items():
            for suffix, output in self._outputs(packed).items():
                name = _joined(part, suffix)
                data = layer._parameters[STORED + name].data
                if output.words is not None:
                    data.copy_(constant(output))
                data = self.view(suffix, data, packed.box)
                rename(layer, STORED + name, _joined(part, self.names.get(suffix, suffix)), data)

    def _check_inputs(self) -> None:
        inputs = {_joined(part, one) for part, packed in self.mine.items() for one in packed.inputs}
        missing = inputs.intersection(self.filling.missing())
        check_inputs(self.prefix, self.stored["w13"].format, not missing)

    def make_kernel(self, layer: Any) -> Any:
        raise NotImplementedError

    def apply(
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> Any:
        return self.moe_kernel.apply(
            hidden_states=x,
            w1=layer.w13_weight,
            w2=layer.w2_weight,
            topk_weights=topk_weights,
            topk_ids=topk_ids,
            activation=layer.activation,
            global_num_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
            apply_router_weight_on_input=layer.apply_router_weight_on_input,
            shared_experts=shared_experts,
            shared_experts_input=shared_experts_input,
        )

    def apply_monolithic(
        self,
        layer: Any,
        x: torch.Tensor,
        router_logits: torch.Tensor,
        input_ids: torch.Tensor | None = None,
    ) -> Any:
        """Kernels that route tokens themselves."""
        del input_ids
        return self.moe_kernel.apply_monolithic(
            x,
            layer.w13_weight,
            layer.w2_weight,
            router_logits,
            activation=layer.activation,
            global_num_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
            apply_router_weight_on_input=layer.apply_router_weight_on_input,
            num_expert_group=layer.num_expert_group,
            topk_group=layer.topk_group,
            e_score_correction_bias=layer.e_score_correction_bias,
            routed_scaling_factor=layer.routed_scaling_factor,
            routing_sink=layer.routing_sink,
        )
