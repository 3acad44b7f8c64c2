"""vLLM believes that this machine has a GPU: a platform with a compute capability, properties of
a device, and the operators of loading that need one, in torch and numpy.

The operators are written from the text of what they do (formats/README.md for the layouts of
w4a8-cutlass and DeepGEMM's scales); they share no code with tilepack. `calls` counts them.
"""
import contextlib
import ctypes
import types

calls = {}
kernel_arguments = {}  # of the last call of cutlass_w4a8_mm

NAMES = {8: ("NVIDIA A100-SXM4-80GB", 108), 9: ("NVIDIA H200", 132), 10: ("NVIDIA B200", 148),
         12: ("NVIDIA GeForce RTX 5090", 170)}


class Stream:
    """Some models make one to run experts side by side."""


def answering(value):
    return classmethod(lambda cls, *args, **kwargs: value)


def become(capability):
    """Another GPU than that of platform(), before anything of it was asked for."""
    import torch
    import vllm.platforms
    from vllm.platforms.interface import DeviceCapability

    major, minor = divmod(capability, 10)
    name, processors = NAMES[major]
    for key, answer in {"get_device_capability": DeviceCapability(major, minor),
                        "get_device_name": name, "num_compute_units": processors}.items():
        setattr(type(vllm.platforms._current_platform), key, answering(answer))
    properties = torch.cuda.get_device_properties()
    properties.name, properties.major, properties.minor = name, major, minor
    properties.multi_processor_count = processors
    torch.cuda.get_device_capability = lambda device=None: (major, minor)
    torch.cuda.get_device_name = lambda device=None: name


def platform(driver, capability, ranks):
    """Before anything asks vLLM for its platform."""
    ctypes.CDLL(driver, mode=ctypes.RTLD_GLOBAL)
    import torch
    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    major, minor = divmod(capability, 10)
    name, processors = NAMES[major]
    answers = {
        "get_device_capability": DeviceCapability(major, minor), "get_device_name": name,
        "get_device_uuid": "GPU-0", "get_device_total_memory": 140 << 30,
        "is_fully_connected": True, "device_count": ranks, "is_pin_memory_available": False,
        "set_device": None, "num_compute_units": processors, "use_custom_allreduce": False,
        "get_device_communicator_cls":
            "vllm.distributed.device_communicators.base_device_communicator."
            "DeviceCommunicatorBase",
    }

    pretended = type("Pretended", (CudaPlatformBase,),
                     {key: answering(value) for key, value in answers.items()})
    vllm.platforms._current_platform = pretended()
    # It would look at each class of models in a process of its own, to spare this one CUDA.
    from vllm.model_executor.models import registry
    registry._run_in_subprocess = lambda function: function()
    properties = types.SimpleNamespace(
        name=name, major=major, minor=minor, multi_processor_count=processors,
        total_memory=140 << 30, warp_size=32, max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
        regs_per_multiprocessor=65536, L2_cache_size=50 << 20)
    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.get_device_capability = lambda device=None: (major, minor)
    torch.cuda.get_device_name = lambda device=None: name
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.Stream = Stream


def counted(name, function):
    def call(*args, **kwargs):
        calls[name] = calls.get(name, 0) + 1
        return function(*args, **kwargs)
    return call


def encode_and_reorder(packed):
    """int32 (E, N, K/8) of two's complement nibbles -> sign-index codes in the kernel's order:
    blocks of 16 rows and 32 columns, in which a thread's 16 codes are 8 bytes."""
    import numpy as np
    import torch

    e, n, words = packed.shape
    raw = packed.contiguous().numpy().view(np.uint8)
    nibbles = np.stack([raw & 15, raw >> 4], -1).reshape(e, n, words * 8)
    codes = np.where((nibbles == 0) | (nibbles >= 8), nibbles, 8 - nibbles).astype(np.uint8)
    blocks = codes.reshape(e, n // 16, 2, 8, words // 4, 2, 4, 4)  # n: 16 2 8, k: 32 2 4 4
    ordered = blocks.transpose(0, 4, 1, 3, 6, 5, 2, 7)
    pairs = np.ascontiguousarray(ordered).reshape(-1, 2)
    data = (pairs[:, 0] | pairs[:, 1] << 4).astype(np.uint8)
    return torch.from_numpy(data.view(np.int32).reshape(e, n, words).copy())


def reorder_dense(packed):
    """(K/8, N) with strides (1, K/8), as the dense operator takes and gives it."""
    return encode_and_reorder(packed.t()[None])[0].t()


def reorder_grouped(packed):
    import torch

    e, n, words = packed.shape
    layout = torch.tensor([[n // 16, words // 4, 32 * n]] * e, dtype=torch.int32)
    return encode_and_reorder(packed), layout


def pack_scales(scales):
    """Each e4m3 scale's multiples -8..-1, rounded to e4m3."""
    import torch

    multiples = scales.float().flatten()[:, None] * torch.arange(-8.0, 0.0)
    return multiples.to(torch.float8_e4m3fn).flatten()


def deepgemm_scales(sf, mn, k, recipe, num_groups=None, is_sfa=False):
    """sf, fp32 powers of two, one for recipe[1] of mn rows and 128 columns -> four exponents to a
    word, column by column, columns padded to four rows."""
    import torch

    del k, num_groups, is_sfa
    exponents = (sf.contiguous().view(torch.int32) >> 23).to(torch.uint8)
    exponents = exponents.repeat_interleave(recipe[1], dim=1)[:, :mn]
    count, words, padded = exponents.shape[0], -(-exponents.shape[2] // 4), -(-mn // 4) * 4
    out = torch.zeros(count, words, padded, 4, dtype=torch.uint8)
    for i in range(exponents.shape[2]):
        out[:, i // 4, :mn, i % 4] = exponents[:, :, i]
    return out.view(torch.int32).squeeze(-1).transpose(1, 2)[:, :mn]


def codes_of(words, bits):
    """int32 (.., K/n, N) with n codes of consecutive k in a word -> uint8 (.., K, N)."""
    import numpy as np

    count = 32 // bits
    words = words.contiguous().numpy().view(np.uint32)
    codes = np.stack([words >> (bits * i) & (1 << bits) - 1 for i in range(count)], axis=-2)
    shape = words.shape[:-2] + (words.shape[-2] * count, words.shape[-1])
    return codes.reshape(shape).astype(np.uint8)


def marlin_repack(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    """(K/n, N) -> (K/16, 16 N/n), by vLLM's own reference for its tests."""
    import torch
    from vllm.model_executor.layers.quantization.utils import marlin_utils_test

    codes = codes_of(b_q_weight, num_bits)
    assert codes.shape == (size_k, size_n) and not is_a_8bit
    order = marlin_utils_test.get_weight_perm(num_bits)
    return marlin_utils_test.marlin_weights(torch.from_numpy(codes), size_k, size_n, num_bits,
                                            order)


def marlin_moe_repack(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    import torch

    return torch.stack([marlin_repack(one, size_k, size_n, num_bits, is_a_8bit)
                        for one in b_q_weight])


def awq_moe_repack(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    """int32 (E, K, N/8), eight n to a word in AWQ's order: what marlin_moe_repack makes."""
    import numpy as np
    import torch
    from vllm.model_executor.layers.quantization.utils import marlin_utils_test

    assert num_bits == 4 and not is_a_8bit
    words = b_q_weight.contiguous().numpy().view(np.uint32)
    codes = np.stack([words >> (4 * place) & 15 for place in (0, 4, 1, 5, 2, 6, 3, 7)], axis=-1)
    codes = codes.reshape(-1, size_k, size_n).astype(np.uint8)
    order = marlin_utils_test.get_weight_perm(4)
    return torch.stack([marlin_utils_test.marlin_weights(torch.from_numpy(one), size_k, size_n, 4,
                                                         order) for one in codes])


def machete_prepack(b_q_weight, a_type, b_type, group_scales_type):
    """(K/n, N) -> the same shape: blocks of 64 rows of k and 128 columns, columns first. In a
    block, 16 columns in turn, a column's own 128 codes hold those of the column 8 further, too;
    of bytes, k goes in pairs, of nibbles the two columns do."""
    import numpy as np
    import torch

    del a_type, group_scales_type
    bits = b_type.size_bits
    codes = codes_of(b_q_weight, bits)  # K N
    k, n = codes.shape
    parts = codes.reshape(k // 64, 4, 2, 4, 2, n // 128, 8, 2, 8)  # K k3 k2 k1 k0 N n2 n1 n0
    inner = (1, 4, 2, 7) if bits == 4 else (1, 2, 7, 4)
    placed = np.ascontiguousarray(parts.transpose(0, 5, 6, 8, 3, *inner)).reshape(-1)
    if bits == 4:
        placed = placed[::2] | placed[1::2] << 4
    return torch.from_numpy(placed.view(np.int32).reshape(b_q_weight.shape).copy())


def block_interleave(scales):
    """uint8 (E, R, C) or (R, C) -> flat: 128 x 4 tiles, in which rows 32 apart lie side by side;
    zeros where R and C are no multiples."""
    import torch

    rows, columns = scales.shape[-2:]
    padded = torch.nn.functional.pad(scales, (0, -columns % 4, 0, -rows % 128))
    tiles = padded.reshape(-1, padded.shape[-2] // 128, 4, 32, padded.shape[-1] // 4, 4)
    return tiles.permute(0, 1, 4, 3, 2, 5).reshape(-1)


def interleave_for_hopper(weight, kind):
    """uint8 (E, N, K/2): 16 rows and 64 columns for a group of threads, whose words hold rows 8
    apart and columns 8 apart; the bits of three codes of a word stand where a bfloat16 has them,
    those of the fourth between."""
    import numpy as np
    import torch

    assert kind == "fp4"
    raw = weight.numpy()
    codes = np.stack([raw & 15, raw >> 4], -1).reshape(*raw.shape[:2], -1)  # E N K
    e, n, k = codes.shape
    parts = codes.reshape(e, n // 16, 2, 8, k // 64, 2, 2, 2, 4, 2)  # n: N 2 8, k: K 2 2 2 4 2
    words = parts.transpose(0, 1, 6, 3, 4, 5, 8, 7, 2, 9).reshape(-1, 8)
    out = np.zeros(words.shape[0], np.uint32)
    for place in range(8):
        code = words[:, place].astype(np.uint32)
        half, pair = place % 2 * 16, place // 2
        low, sign = code & 7, code >> 3
        if pair < 3:
            bits = low << 6 - 3 * pair | sign << 15 - 3 * pair
        else:
            bits = (low & 1) << 13 | low >> 1 << 10 | sign << 14
        out |= bits << half
    return torch.from_numpy(out.view(np.uint8).reshape(raw.shape).copy())


def quantize_fp8(values, scale):
    """e4m3 codes of values that are multiples of the scale."""
    import torch

    quotients = (values.float() / scale).clamp(-448, 448)
    return quotients.to(torch.float8_e4m3fn), scale


def record(name, arguments, rows, columns, dtype):
    import torch

    kernel_arguments.clear()
    kernel_arguments.update({"kernel": name, **arguments})
    return torch.zeros(rows, columns, dtype=dtype)


def record_kernel(**arguments):
    import torch

    return record("w4a8", arguments, arguments["a"].shape[0], arguments["b_q"].shape[1],
                  torch.bfloat16)


GEMM = ("a", "b_q_weight", "b_bias", "b_scales", "a_scales", "global_scale", "b_zeros",
        "workspace", "b_q_type_id")


def record_marlin(*args, **arguments):
    arguments = {**dict(zip(GEMM, args)), **arguments}
    return record("marlin", arguments, arguments["size_m"], arguments["size_n"],
                  arguments["a"].dtype)


def record_machete(**arguments):
    return record("machete", arguments, arguments["a"].shape[0], arguments["b_q"].shape[1],
                  arguments["a"].dtype)


def humming_repack(inputs, activation_bits, should_preprocess_for_int2fp=False,
                   use_packed_k_layout=False, **_):
    """int32 (E, N, K/8) of nibbles -> tiles of Humming's kernels (lib/refhumming.py)."""
    import refhumming
    import torch

    codes = codes_of(inputs.transpose(-1, -2), 4).swapaxes(-1, -2)
    codes = refhumming.for_fp8(codes) if should_preprocess_for_int2fp else codes
    return torch.from_numpy(refhumming.codes(codes, activation_bits, use_packed_k_layout))


def humming_unpack(words, bits):
    import numpy as np
    import torch

    codes = codes_of(words.transpose(-1, -2), bits).swapaxes(-1, -2)
    return torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int32))


def humming_pack(codes, bits):
    import numpy as np
    import torch

    assert bits == 4
    eights = codes.contiguous().numpy().astype(np.uint32).reshape(*codes.shape[:-1], -1, 8)
    words = sum(eights[..., i] << np.uint32(4 * i) for i in range(8))
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def humming():
    """Humming asks a compiled extension for the device, and compiles its operators for it."""
    import humming.device
    import humming.ops
    import humming.transform
    import torch

    h200 = types.SimpleNamespace(
        name="NVIDIA H200", is_ppu=False, sm_count=132, sm_version=90, sm_major=9, sm_minor=0,
        max_threads_per_block=1024, max_threads_per_sm=2048, max_registers_per_sm=65536,
        l2_cache_size=60 << 20, l2_cache_size_mb=60.0, l1_cache_size=256 << 10,
        default_smem_size=48 << 10, max_smem_size=227 << 10, max_smem_size_kb=227.0,
        memory_bandwidth_gbps=4800.0, tensorcore_tops={"float16": 989.0, "float8": 1979.0})
    extension = types.SimpleNamespace(_DeviceInfo=lambda index: h200)
    humming.device._get_device_info_extension = lambda: extension
    humming.device.get_device_index = lambda device=None: 0
    humming.device.DeviceInfo.__new__ = lambda cls, index=None: humming.device.current_device
    humming.ops.repack_weight = counted("repack", humming_repack)
    humming.ops.unpack_weight = humming_unpack
    humming.ops.pack_weight = humming_pack
    torch.cuda.device = lambda *args: contextlib.nullcontext()


def operators():
    """After vLLM was imported, before a model is built."""
    import torch
    import vllm._custom_ops as ops
    from flashinfer.quantization import fp4_quantization
    from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
    from vllm.model_executor.layers.quantization.utils import fp8_utils, marlin_utils

    ops.cutlass_encode_and_reorder_int4b = counted("reorder", reorder_dense)
    ops.cutlass_encode_and_reorder_int4b_grouped = counted("reorder", reorder_grouped)
    ops.cutlass_pack_scale_fp8 = counted("pack_scales", pack_scales)
    ops.cutlass_w4a8_mm = record_kernel
    ops.gptq_marlin_repack = counted("repack", marlin_repack)
    ops.gptq_marlin_moe_repack = counted("repack", marlin_moe_repack)
    ops.awq_marlin_moe_repack = counted("repack", awq_moe_repack)
    ops.machete_prepack_B = counted("prepack", machete_prepack)
    ops.machete_mm = record_machete
    ops.scaled_fp8_quant = counted("quantize", quantize_fp8)
    import flashinfer.fused_moe
    from triton_kernels.tensor_details import layout
    from vllm.platforms import current_platform
    flashinfer.fused_moe.interleave_moe_weights_for_sm90_mixed_gemm = counted(
        "interleave", interleave_for_hopper)
    layout.cuda_capability_geq = lambda major, minor=0: (
        current_platform.has_device_capability(major * 10 + minor))
    fp4_quantization.get_compute_capability = lambda device: (10, 0)
    module = types.SimpleNamespace(
        block_scale_interleave_sm100=counted("interleave", block_interleave))
    fp4_quantization.get_fp4_quantization_module = lambda architecture: module
    assert marlin_utils._marlin_gemm  # it has registered the operator
    torch.ops.vllm.marlin_gemm = record_marlin
    fp8_utils.transform_sf_into_required_layout = counted("transform", deepgemm_scales)
    humming()
    QuantFP8.forward_cuda = QuantFP8.forward_native
    torch.Tensor.is_cuda = property(lambda self: True)
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    torch.accelerator.current_device_index = lambda: torch.device("cpu")
    torch.accelerator.synchronize = lambda *args: None
    torch.accelerator.empty_cache = lambda *args: None
