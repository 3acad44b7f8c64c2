"""vLLM's kernels for packed experts: which of its backends reads a format, and what it is made of.

Nothing is computed here. The backend is chosen by vLLM's own functions, told which one the bytes
are for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from ..slices import Packed
from .experts import TilepackMoEMethod
from .kernels import ZERO_POINTS, bits_of, group_of, has_zero_points
from .support import SUPPORTED, Refused


def kernel_parts(method: TilepackMoEMethod, layer: Any) -> dict[str, Any]:
    """What vLLM makes kernels of experts of, beside the backend."""
    return {
        "moe_quant_config": method.moe_quant_config,
        "moe_config": method.moe,
        "experts_cls": method.experts_cls,
        "routing_tables": layer._expert_routing_tables(),
    }


def mxfp4_kernel(method: TilepackMoEMethod, layer: Any) -> Any:
    """What vLLM runs MXFP4 experts with."""
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4

    kernel = mxfp4.make_mxfp4_moe_kernel(
        mxfp4_backend=method.backend, **kernel_parts(method, layer)
    )
    kernel.fused_experts.process_weights_after_loading(layer)
    return kernel


def fp8_kernel(method: TilepackMoEMethod, layer: Any) -> Any:
    """What vLLM runs FP8 and MXFP8 experts with."""
    from vllm.model_executor.layers.fused_moe.oracle import fp8

    return fp8.make_fp8_moe_kernel(fp8_backend=method.backend, **kernel_parts(method, layer))


class W4A8CutlassMoE(TilepackMoEMethod):
    names = {  # noqa: RUF012
        "weight_packed": "weight",
        "weight_group_scale": "weight_scale",
        "weight_layout": "b_strides",
    }

    def select(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import w4a8

        backend, experts = w4a8.select_w4a8_moe_backend(config=moe)
        if backend != w4a8.W4A8MoeBackend.CUTLASS:
            raise self.other_backend(backend, "cutlass")
        return backend, experts

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import w4a8

        return w4a8.make_w4a8_moe_quant_config(
            backend=self.backend,
            w1_scale=layer.w13_weight_scale.view(-1),
            w2_scale=layer.w2_weight_scale.view(-1),
            g1_alphas=layer.w13_weight_chan_scale,
            g2_alphas=layer.w2_weight_chan_scale,
            layer=layer,
        )

    def make_kernel(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import w4a8

        return w4a8.make_w4a8_moe_kernel(
            backend=self.backend,
            b_strides1=layer.w13_b_strides.data,
            b_strides2=layer.w2_b_strides.data,
            group_size=128,
            **kernel_parts(self, layer),
        )


class Mxfp4BlockedMoE(TilepackMoEMethod):
    names = {"weight_packed": "weight"}  # noqa: RUF012

    def select(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.experts.cutlass_moe import CutlassExpertsMxfp4
        from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend

        if moe.moe_backend not in ("auto", "cutlass"):
            raise self.other_backend(moe.moe_backend, "cutlass")
        if not CutlassExpertsMxfp4._supports_current_device():
            raise Refused(f"{self.prefix}: vLLM's CUTLASS kernel for MXFP4 is not for this GPU")
        # Stock compares with a backend of the W4A16 kernels only; it is what it passes here.
        return Mxfp4MoeBackend.MARLIN, CutlassExpertsMxfp4

    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        if suffix != "weight_scale":
            return data
        e, n, k = box
        if n % 128 or k % 128:
            raise Refused(
                f"{self.prefix}: vLLM's kernel takes N and K in multiples of 128, not {[n, k]}",
                hint="serve on fewer ranks",
            )
        return data.view(e, n, k // 32)

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.config import mxfp4_moe_quant_config

        return mxfp4_moe_quant_config(
            w1_scale=layer.w13_weight_scale, w2_scale=layer.w2_weight_scale
        )

    def make_kernel(self, layer: Any) -> Any:
        return mxfp4_kernel(self, layer)


class DeepGemmMoE(TilepackMoEMethod):
    names = {"weight_scale_packed": "weight_scale_inv"}  # noqa: RUF012

    def select(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import fp8
        from vllm.model_executor.layers.quantization.utils.quant_utils import (
            kFp8Dynamic128Sym,
            kFp8Static128BlockSym,
        )

        backend, experts = fp8.select_fp8_moe_backend(moe, kFp8Static128BlockSym, kFp8Dynamic128Sym)
        known = (fp8.Fp8MoeBackend.DEEPGEMM, fp8.Fp8MoeBackend.BATCHED_DEEPGEMM)
        if backend not in known:
            raise self.other_backend(backend, "deep_gemm")
        return backend, experts

    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        if suffix != "weight_scale_packed":
            return data
        return data.transpose(-1, -2)[..., : box[1], :]

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import fp8

        return fp8.make_fp8_moe_quant_config(
            fp8_backend=self.backend,
            w1_scale=layer.w13_weight_scale_inv,
            w2_scale=layer.w2_weight_scale_inv,
            a1_scale=None,
            a2_scale=None,
            block_shape=[128, 128],
            layer=layer,
        )

    def make_kernel(self, layer: Any) -> Any:
        return fp8_kernel(self, layer)


class ForcedMoE(TilepackMoEMethod):
    """Formats that are for one backend, whatever vLLM would choose by itself.

    backend_names  as --moe-backend has them; the first is the one that vLLM is told
    """

    backend_names: Sequence[str] = ("marlin",)

    @property
    def has_activation_scales(self) -> bool:
        return bool(self.stored["w13"].inputs)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        """vLLM's function of choice, of whose argument `moe` names the backend."""
        raise NotImplementedError

    def select(self, moe: Any) -> tuple[Any, Any]:
        if moe.moe_backend not in ("auto", *self.backend_names):
            raise self.other_backend(moe.moe_backend, self.backend_names[0])
        told = copy.copy(moe)
        if moe.moe_backend == "auto":
            told.moe_backend = self.backend_names[0]
        try:
            found: tuple[Any, Any] = self.choose(told)
        except (ValueError, NotImplementedError) as error:
            raise Refused(
                f"{self.prefix}: {error}", hint="convert the experts to another format"
            ) from None
        return found

    def activation(self, layer: Any) -> dict[str, Any]:
        """What the activation of a layer has beside its kind."""
        return {
            "gemm1_alpha": getattr(layer, "swiglu_alpha", None),
            "gemm1_beta": getattr(layer, "swiglu_beta", None),
        }


class IntegersMoE(ForcedMoE):
    """int4 and int8 with 16-bit activations."""

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from compressed_tensors.quantization import QuantizationArgs
        from vllm.model_executor.layers.fused_moe.oracle import int_wna16
        from vllm.model_executor.layers.quantization.utils import quant_utils as keys

        zeros = {has_zero_points(packed) for packed in self.stored.values()}
        bits = bits_of(self.stored["w13"])
        if len(zeros) > 1 or (zeros == {True} and bits == 8):
            raise Refused(
                f"{self.prefix}: vLLM's experts take zero points of int4, of w13 and w2 both",
                hint="convert with --exclude for the experts",
            )
        group = group_of(self.stored["w13"])
        key = keys.kInt8Static
        if bits == 4:
            key = keys.kInt4Static32 if group == 32 else keys.kInt4Static
        args = {"group_size": group, "strategy": "group"} if group > 0 else {"strategy": "channel"}
        chosen: tuple[Any, Any] = int_wna16.select_wna16_moe_backend(
            config=moe,
            weight_key=key,
            quant_config=QuantizationArgs(num_bits=bits, type="int", **args),
            may_have_zp=zeros == {True},
            may_have_bias=False,
            allow_tile_padding=True,
        )
        return chosen

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import int_wna16

        return int_wna16.make_wna16_moe_quant_config(
            w1_scale=layer.w13_weight_scale,
            w2_scale=layer.w2_weight_scale,
            group_size=group_of(self.stored["w13"]),
            num_bits=bits_of(self.stored["w13"]),
            w1_zp=getattr(layer, f"w13_{ZERO_POINTS}", None),
            w2_zp=getattr(layer, f"w2_{ZERO_POINTS}", None),
            gemm1_clamp_limit=getattr(layer, "swiglu_limit", None),
            **self.activation(layer),
        )

    def make_kernel(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import int_wna16

        return int_wna16.make_wna16_moe_kernel(backend=self.backend, **kernel_parts(self, layer))


class MarlinIntegersMoE(IntegersMoE):
    names = {"weight_packed": "weight"}  # noqa: RUF012


def humming_layer(
    method: TilepackMoEMethod,
    layer: Any,
    codes: str,
    scales: str | None = None,
    activations: str | None = None,
) -> None:
    """What vLLM leaves beside the tensors for Humming: types, groups, sizes with their padding.

    codes, scales, activations  names of Humming's types; None: 16 bits, as the model's
    """
    from humming.transform import prepare_layer_config
    from vllm import envs
    from vllm.utils.humming import HummingInputSchema, HummingWeightSchema

    if envs.VLLM_HUMMING_INPUT_QUANT_CONFIG:
        raise Refused(
            f"{method.prefix}: VLLM_HUMMING_INPUT_QUANT_CONFIG asks for other activations than "
            f"{method.stored['w13'].format} is for",
            hint="unset VLLM_HUMMING_INPUT_QUANT_CONFIG",
        )
    layer.weight_schemas, layer.input_schemas, layer.humming_configs = {}, {}, {}
    for part in ("w13", "w2"):
        packed = method.mine[part]
        weights = HummingWeightSchema(
            b_dtype=codes,
            bs_dtype=scales,
            weight_scale_group_size=group_of(packed),
            has_zero_point=has_zero_points(packed),
        )
        inputs = HummingInputSchema(a_dtype=activations)
        layer.weight_schemas[part], layer.input_schemas[part] = weights, inputs
        layer.humming_configs[part] = prepare_layer_config(
            shape_n=packed.box[1],
            shape_k=packed.box[2],
            weight_schema=weights,
            input_schema=inputs,
            num_experts=packed.box[0],
            pad_n_to_multiple=256,
            pad_k_to_multiple=128,
            has_bias=part + "_bias" in method.mine,
            torch_dtype=method.moe.in_dtype,
            device=getattr(layer, part + "_weight").device,
        )


class HummingIntegersMoE(IntegersMoE):
    names = {"weight_packed": "weight", ZERO_POINTS: "zero_point"}  # noqa: RUF012
    backend_names = ("humming",)

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.quantization.utils import humming

        humming_layer(self, layer, "uint4")
        return humming.get_humming_moe_quant_config(
            layer,
            gemm1_clamp_limit=getattr(layer, "swiglu_limit", None),
            **self.activation(layer),
        )


class W4A8HummingMoE(ForcedMoE):
    names = {"weight_packed": "weight"}  # noqa: RUF012
    backend_names = ("humming",)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import w4a8

        chosen: tuple[Any, Any] = w4a8.select_w4a8_moe_backend(config=moe)
        return chosen

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.quantization.utils import humming

        humming_layer(self, layer, "uint4", activations="float8e4m3")
        return humming.get_humming_moe_quant_config(layer)

    def make_kernel(self, layer: Any) -> Any:
        from vllm.model_executor.layers.quantization.utils import humming

        return humming.make_humming_moe_kernel(**kernel_parts(self, layer))


class Mxint4TrtllmMoE(IntegersMoE):
    """A kernel that vLLM takes only where a variable says so."""

    backend_names = ("flashinfer_trtllm",)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm import envs

        if not envs.VLLM_USE_FLASHINFER_MOE_INT4:
            raise Refused(
                f"{self.prefix}: vLLM does not take FlashInfer's kernel for mxint4-trtllm by "
                "itself",
                hint="start it with VLLM_USE_FLASHINFER_MOE_INT4=1 in the environment",
            )
        return super().choose(moe)


class Mxfp4MoE(ForcedMoE):
    """What vLLM makes the kernels of MXFP4 of."""

    bias = "BF16"

    def maybe_roundup_sizes(self, *sizes: Any, **more: Any) -> tuple[int, int]:
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4

        rounded: tuple[int, int] = mxfp4.mxfp4_round_up_hidden_size_and_intermediate_size(
            self.backend, *super().maybe_roundup_sizes(*sizes, **more)
        )
        return rounded

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4

        found: tuple[Any, Any] = mxfp4.select_mxfp4_moe_backend(moe)
        return found

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4

        return mxfp4.make_mxfp4_moe_quant_config(
            mxfp4_backend=self.backend,
            **self.scales(layer),
            w1_bias=getattr(layer, "w13_bias", None),
            w2_bias=getattr(layer, "w2_bias", None),
            layer=layer,
            **self.swiglu(),
        )

    def scales(self, layer: Any) -> dict[str, Any]:
        return {"w1_scale": layer.w13_weight_scale, "w2_scale": layer.w2_weight_scale}

    def swiglu(self) -> dict[str, float]:
        """The numbers of gpt-oss, which vLLM has in its method for that model alone."""
        if getattr(self.moe.activation, "value", "") != "swigluoai":
            return {}
        return {"gemm1_alpha": 1.702, "gemm1_beta": 1.0, "swiglu_limit": 7.0}

    def make_kernel(self, layer: Any) -> Any:
        return mxfp4_kernel(self, layer)


class Fp8MoE(ForcedMoE):
    """What vLLM makes the kernels of FP8 and MXFP8 of.

    block  rows and columns of a scale; None: all of a row or, with activation scales, of a weight
    """

    block: tuple[int, int] | None = (1, 32)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import mxfp8

        chosen: tuple[Any, Any] = mxfp8.select_mxfp8_moe_backend(moe)
        return chosen

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import fp8

        block = list(self.block) if self.block else None
        rows = block is None and not self.has_activation_scales
        layer.weight_block_size = block
        return fp8.make_fp8_moe_quant_config(
            fp8_backend=self.backend,
            w1_scale=layer.w13_weight_scale,
            w2_scale=layer.w2_weight_scale,
            a1_scale=layer.w13_input_scale,
            a2_scale=layer.w2_input_scale,
            block_shape=block,
            per_act_token_quant=rows,
            per_out_ch_quant=rows,
            swiglu_limit=getattr(layer, "swiglu_limit", None),
            layer=layer,
            **self.activation(layer),
        )

    def make_kernel(self, layer: Any) -> Any:
        return fp8_kernel(self, layer)


class Mxfp8MarlinMoE(Fp8MoE):
    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        del box
        return data.view(torch.float8_e8m0fnu) if suffix == "weight_scale" else data


class Mxfp4HummingMoE(Mxfp4MoE):
    backend_names = ("humming",)

    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        del box
        return data.view(torch.float8_e8m0fnu) if suffix == "weight_scale" else data

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        humming_layer(self, layer, "float4e2m1", "float8e8m0")
        return super().get_fused_moe_quant_config(layer)


class Mxfp4MarlinMoE(Mxfp4MoE):
    def view(self, suffix: str, data: torch.Tensor, box: tuple[int, int, int]) -> torch.Tensor:
        del box
        return data.view(torch.float8_e8m0fnu) if suffix == "weight_scale" else data


class Nvfp4MoE(ForcedMoE):
    """What vLLM makes the kernels of NVFP4 of. They quantize activations to 4 bits, with the
    file's scales, and multiply these into the global scales when they are made, in place."""

    supports_pre_processed_weights = False  # of which most kernels would multiply it twice

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import nvfp4
        from vllm.model_executor.layers.quantization.utils import quant_utils as keys

        found: tuple[Any, Any] = nvfp4.select_nvfp4_moe_backend(
            moe, keys.kNvfp4Static, keys.kNvfp4Dynamic if self.has_activation_scales else None
        )
        return found

    def get_fused_moe_quant_config(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import nvfp4

        return nvfp4.make_nvfp4_moe_quant_config(
            backend=self.backend,
            w13_scale=layer.w13_weight_scale,
            w2_scale=layer.w2_weight_scale,
            w13_scale_2=layer.w13_weight_scale_2,
            w2_scale_2=layer.w2_weight_scale_2,
            a13_scale=layer.w13_input_scale,
            a2_scale=layer.w2_input_scale,
            swiglu_limit=getattr(layer, "swiglu_limit", None),
            swiglu_alpha=getattr(layer, "swiglu_alpha", None),
            swiglu_beta=getattr(layer, "swiglu_beta", None),
            layer=layer,
            use_a16=not self.has_activation_scales,
        )

    def make_kernel(self, layer: Any) -> Any:
        from vllm.model_executor.layers.fused_moe.oracle import nvfp4

        kernel = nvfp4.make_nvfp4_moe_kernel(backend=self.backend, **kernel_parts(self, layer))
        kernel.fused_experts.process_weights_after_loading(layer)
        return kernel


class Nvfp4MarlinMoE(Nvfp4MoE):
    """Activations of 16 bits: their scales are none."""

    supports_pre_processed_weights = True


class Nvfp4TrtllmMoE(Nvfp4MoE):
    backend_names = ("flashinfer_trtllm",)
    padded = (256, 64)


class Nvfp4CutlassMoE(Nvfp4MoE):
    """Kernels that take gate and up one after the other, without padding between them."""

    backend_names = ("flashinfer_cutlass",)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        inter = moe.intermediate_size_per_partition
        if inter % 64:
            raise Refused(
                f"{self.prefix}: vLLM's kernel for {self.stored['w13'].format} takes intermediate "
                f"sizes in multiples of 64, not {inter}",
                hint="serve on fewer ranks, or convert the experts to another format",
            )
        return super().choose(moe)


class Nvfp4VllmCutlassMoE(Nvfp4CutlassMoE):
    backend_names = ("cutlass",)


class Nvfp4CutedslMoE(Nvfp4MoE):
    backend_names = ("flashinfer_cutedsl",)
    padded = (256, 64)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        backend, experts = super().choose(moe)
        if backend.value != "FLASHINFER_CUTEDSL":  # of batched activations, which takes other rows
            raise self.other_backend(backend, self.backend_names[0])
        return backend, experts


class Mxfp4TrtllmMoE(Mxfp4MoE):
    """Two kernels read these bytes; vLLM prefers 16-bit activations for gpt-oss alone."""

    bias = "F32"
    has_unpadded_output = True

    @property
    def backend_names(self) -> Sequence[str]:  # type: ignore[override]
        names = ("flashinfer_trtllm_afp8", "flashinfer_trtllm")
        return names[::-1] if self.moe.has_bias else names

    @property
    def skip_forward_padding(self) -> bool:
        return bool(self.backend.value == "FLASHINFER_TRTLLM_MXFP4_MXFP8")


class Mxfp4CutlassMoE(Mxfp4MoE):
    backend_names = ("flashinfer_cutlass_afp8",)


class Mxfp4Sm90MoE(Mxfp4MoE):
    backend_names = ("flashinfer_cutlass",)


class Mxfp4TritonMoE(Mxfp4MoE):
    """Kernels that take wrappers of triton_kernels around the bytes."""

    bias = "F32"
    backend_names = ("triton",)
    supports_pre_processed_weights = False

    def process_weights_after_loading(self, layer: Any) -> None:
        """The wrappers of codes are the layer's, and no parameters: loaded anew they stay."""
        names = ("w13_weight", "w2_weight")
        made = {name: vars(layer).pop(name) for name in names if name in vars(layer)}
        super().process_weights_after_loading(layer)
        for name, codes in made.items():
            codes.storage.data.copy_(getattr(layer, name).storage.data)
            setattr(layer, name, codes)

    def scales(self, layer: Any) -> dict[str, Any]:
        """vLLM's own function orders tensors that have no storage; the file's becomes theirs."""
        from vllm.model_executor.layers.fused_moe.oracle import mxfp4

        found = {}
        for part, key in (("w13", "w1_scale"), ("w2", "w2_scale")):
            e, n, k = self.mine[part].box
            empty = (
                torch.empty(e, n, k // per, dtype=torch.uint8, device="meta") for per in (2, 32)
            )
            codes, flex, scale = mxfp4._swizzle_mxfp4(*empty)
            for wrapper, name in ((codes, f"{part}_weight"), (scale, f"{part}_weight_scale")):
                like, stored = wrapper.storage.data, layer._parameters.pop(name).data
                if like.numel() != stored.numel():
                    raise Refused(
                        f"{self.prefix}: triton_kernels keep {name} in {like.numel()} bytes, and "
                        f"{self.stored[part].format} in {stored.numel()}"
                    )
                wrapper.storage.data = torch.as_strided(stored, like.shape, like.stride())
            setattr(layer, f"{part}_weight", codes)
            found[key] = mxfp4.PrecisionConfig(
                **mxfp4._mx_scale_kwargs(scale), flex_ctx=mxfp4.FlexCtx(rhs_data=flex)
            )
        return found


class Mxfp8TrtllmMoE(Fp8MoE):
    backend_names = ("flashinfer_trtllm",)
    padded = (256, 128)


class Fp8BlocksMoE(Fp8MoE):
    """Scales of blocks of 128x128."""

    block = (128, 128)
    names = {"weight_scale_inv": "weight_scale"}  # noqa: RUF012

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import fp8
        from vllm.model_executor.layers.quantization.utils import quant_utils as keys

        chosen: tuple[Any, Any] = fp8.select_fp8_moe_backend(
            moe, keys.kFp8Static128BlockSym, keys.kFp8Dynamic128Sym
        )
        return chosen


class Fp8TrtllmMoE(Fp8BlocksMoE):
    backend_names = ("flashinfer_trtllm",)


class Fp8RowsMarlinMoE(Fp8MoE):
    """Scales of rows."""

    block = None

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import fp8
        from vllm.model_executor.layers.quantization.utils import quant_utils as keys

        chosen: tuple[Any, Any] = fp8.select_fp8_moe_backend(
            moe, keys.kFp8StaticChannelSym, keys.kFp8DynamicTokenSym
        )
        return chosen


class Fp8TensorTrtllmMoE(Fp8MoE):
    """One scale for a weight, and one for all activations."""

    block = None
    backend_names = ("flashinfer_trtllm",)
    padded = (1, 16)

    def choose(self, moe: Any) -> tuple[Any, Any]:
        from vllm.model_executor.layers.fused_moe.oracle import fp8
        from vllm.model_executor.layers.quantization.utils import quant_utils as keys

        chosen: tuple[Any, Any] = fp8.select_fp8_moe_backend(
            moe, keys.kFp8StaticTensorSym, keys.kFp8StaticTensorSym
        )
        return chosen


_METHODS: dict[str, type[TilepackMoEMethod]] = {
    "w4a8-cutlass": W4A8CutlassMoE,
    "mxfp4-blocked": Mxfp4BlockedMoE,
    "fp8-deepgemm-sm100": DeepGemmMoE,
    "mxfp4-trtllm": Mxfp4TrtllmMoE,
    "mxfp4-cutlass-moe": Mxfp4CutlassMoE,
    "mxfp4-flashinfer-sm90": Mxfp4Sm90MoE,
    "mxfp4-triton-hopper": Mxfp4TritonMoE,
    "mxfp4-triton-blackwell": Mxfp4TritonMoE,
    "mxfp8-trtllm": Mxfp8TrtllmMoE,
    "fp8-trtllm": Fp8TrtllmMoE,
    "fp8-tensor-trtllm": Fp8TensorTrtllmMoE,
    "w4a16-marlin": MarlinIntegersMoE,
    "w4a16-marlin-channel": MarlinIntegersMoE,
    "w8a16-marlin": MarlinIntegersMoE,
    "w8a16-marlin-channel": MarlinIntegersMoE,
    "w4a16-humming": HummingIntegersMoE,
    "w4a8-humming": W4A8HummingMoE,
    "mxfp4-humming": Mxfp4HummingMoE,
    "mxint4-trtllm": Mxint4TrtllmMoE,
    "fp8-marlin": Fp8BlocksMoE,
    "fp8-marlin-channel": Fp8RowsMarlinMoE,
    "nvfp4-trtllm": Nvfp4TrtllmMoE,
    "nvfp4-cutlass-moe": Nvfp4CutlassMoE,
    "nvfp4-vllm-cutlass": Nvfp4VllmCutlassMoE,
    "nvfp4-cutedsl": Nvfp4CutedslMoE,
    "nvfp4-marlin": Nvfp4MarlinMoE,
    "nvfp4-marlin-64": Nvfp4MarlinMoE,
    "mxfp4-marlin": Mxfp4MarlinMoE,
    "mxfp8-marlin": Mxfp8MarlinMoE,
}


def experts_method(stored: dict[str, Packed], moe: Any, prefix: str) -> TilepackMoEMethod:
    """The method for a layer of packed experts; Refused where vLLM has no kernel for them."""
    fmt = stored["w13"].format
    if not SUPPORTED[fmt].experts:
        raise Refused(
            f"{prefix}: no kernel of vLLM for experts reads {fmt} as it lies",
            hint="convert the experts to "
            + " or ".join(name for name in _METHODS if name.startswith(fmt.split("-")[0] + "-")),
        )
    return _METHODS[fmt](stored, moe, prefix)
