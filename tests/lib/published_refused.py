"""What people publish and nothing here reads: it is refused by its name.

The numbers are of no use, only names, dtypes, shapes and what is said of them. `words` of a row
are two patterns that the error must match: as it is, and without a description, where nothing but
names, dtypes and shapes of tensors tell.
"""
import json

import numpy as np

import stfile
from published import BLOCK, Row, llama, sizes
from published_fp8 import diffusion, modelopt
from published_four import ct, int_weights
from stfile import Tensor, tensor


class Of:
    """Tensors of random bits for one weight [n,k]."""

    def __init__(self, rng):
        self.rng = rng

    def bits(self, dtype, *shape):
        width = np.dtype(stfile.BITS[dtype]).itemsize
        count = int(np.prod(shape, dtype=np.int64)) * width
        return Tensor(dtype, shape, self.rng.integers(0, 256, count, dtype=np.uint8).tobytes())

    def numbers(self, dtype, *shape):
        values = self.rng.standard_normal(shape) * 0.02
        return Tensor(dtype, shape, stfile.from_f32(dtype, np.float32(values)).data)

    def integers(self, dtype, *values):
        return tensor(dtype, np.array(values, dtype=stfile.BITS[dtype]))

    def text(self, content):
        data = json.dumps(content).encode()
        return Tensor("U8", (len(data),), data)


def packed(c, make):
    """A Llama of which all linear weights are what `make(Of, n, k)` says, by suffixes of S."""
    def pack(c, name, n, k):
        for suffix, made in make(Of(c.rng), n, k).items():
            c.tensors[name + suffix] = made
    llama(c, pack)


def of_transformers(c, make, method, **said):
    packed(c, make)
    c.config = sizes(quantization_config={"quant_method": method, **said})


# ---- one function a kind -------------------------------------------------------

def bitsandbytes_nf4(of, n, k):
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [n, k],
             "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.05}
    return {".weight": of.bits("U8", n * k // 2, 1),
            ".weight.absmax": of.bits("U8", n * k // 64),
            ".weight.nested_absmax": of.numbers("F32", n * k // 64 // 256),
            ".weight.nested_quant_map": of.numbers("F32", 256),
            ".weight.quant_map": of.numbers("F32", 16),
            ".weight.quant_state.bitsandbytes__nf4": of.text(state)}


def bitsandbytes_int8(of, n, k):
    return {".weight": of.bits("I8", n, k), ".SCB": of.numbers("F32", n),
            ".weight_format": Tensor("U8", (), b"\0")}


def hqq(of, n, k):
    return {".W_q": of.bits("U8", n * k // 64 // 2, 64),
            ".scale": of.numbers("F16", n * k // 64, 1),
            ".zero": of.numbers("F16", n * k // 64, 1),
            ".nbits": Tensor("I64", (), np.int64(4).tobytes()),
            ".group_size": Tensor("I64", (), np.int64(64).tobytes()),
            ".shape": of.integers("I64", n, k)}


def aqlm(of, n, k):
    return {".codes": of.bits("I16", n, k // 8, 1), ".codebooks": of.numbers("F16", 1, 256, 1, 8),
            ".scales": of.numbers("F16", n, 1, 1, 1)}


def exl3(of, n, k):
    return {".trellis": of.bits("I16", k // 16, n // 16, 64), ".suh": of.numbers("F16", k),
            ".svh": of.numbers("F16", n)}


def quip(of, n, k):
    return {".Qidxs": of.bits("I16", n, k // 8), ".SU": of.numbers("F16", k),
            ".SV": of.numbers("F16", n), ".Wscale": of.numbers("F32"),
            ".codebook_id": of.integers("I64", 0)}


def quanto(of, n, k):
    return {".weight._data": of.bits("I8", n, k), ".weight._scale": of.numbers("BF16", n, 1),
            ".input_scale": of.numbers("F32"), ".output_scale": of.numbers("F32")}


def quanto_int4(of, n, k):
    groups = n * k // 128
    return {".weight._data._data": of.bits("U8", groups // 2, 128),
            ".weight._scale": of.numbers("BF16", 1, groups),
            ".weight._shift": of.numbers("BF16", 1, groups)}


def torchao(of, n, k):
    return {"._weight_qdata": of.bits("I8", n, k), "._weight_scale": of.numbers("BF16", n, 1),
            "._weight_zero_point": of.bits("I8", n, 1)}


def torchao_int4(of, n, k):
    return {"._weight_qdata": of.bits("U8", n, k // 2),
            "._weight_scale": of.numbers("BF16", k // 128, n),
            "._weight_zero_point": of.numbers("BF16", k // 128, n)}


def vptq(of, n, k):
    return {".indices": of.bits("I32", 1, n, k // 16),
            ".centroids.weight": of.numbers("F16", 1, 1024),
            ".perm": tensor("U16", np.arange(k, dtype=np.uint16))}


def nunchaku_weight(of, n, k):
    return {".qweight": of.bits("I8", n, k // 2), ".wscales": of.numbers("BF16", k // 64, n),
            ".proj_down": of.numbers("BF16", k, 32), ".proj_up": of.numbers("BF16", n, 32),
            ".smooth_factor": of.numbers("BF16", k), ".smooth_factor_orig": of.numbers("BF16", k)}


def sparse_24(of, n, k):
    return {".compressed": of.numbers("BF16", n, k // 2), ".bitmask": of.bits("U8", n, k // 8),
            ".shape": of.integers("I64", n, k)}


def sparse_24_fp8(of, n, k):
    return {".compressed": of.bits("F8_E4M3", n, k // 2), ".bitmask": of.bits("U8", n, k // 8),
            ".shape": of.integers("I64", n, k), ".weight_scale": of.numbers("BF16", n, 1)}


def marlin_24(of, n, k):
    return {".weight_packed": of.bits("I32", k // 32, 2 * n), ".meta": of.bits("I16", n, k // 16),
            ".scale_packed": of.numbers("F16", k // BLOCK, n)}


def awq_modelopt(of, n, k):
    """Two rows to a byte."""
    return {".weight": of.bits("U8", n // 2, k), ".weight_scale": of.numbers("BF16", n, k // 128),
            ".pre_quant_scale": of.numbers("BF16", k)}


def awq8_modelopt(of, n, k):
    return awq_modelopt(of, n, k) | {".weight_scale_2": of.numbers("F32"),
                                     ".input_scale": of.numbers("F32")}


def smooth_modelopt(of, n, k):
    return {".weight": of.bits("I8", n, k), ".weight_scale": of.numbers("F32", n),
            ".input_scale": of.numbers("F32"), ".pre_quant_scale": of.numbers("BF16", k)}


def nvfp4_of_32(of, n, k):
    return {".weight": of.bits("U8", n, k // 2),
            ".weight_scale": tensor("F8_E4M3", of.rng.integers(8, 0x7F, (n, k // 32)).astype(
                np.uint8)), ".weight_scale_2": of.numbers("F32")}


def ct_of_3_bits(of, n, k):
    return {".weight_packed": of.bits("I32", n, k * 3 // 32),
            ".weight_scale": of.numbers("BF16", n, k // BLOCK),
            ".weight_shape": tensor("I64", np.array([n, k], dtype=np.int64))}


def gptq_of_3_bits(of, n, k):
    return {".qweight": of.bits("I32", k * 3 // 32, n), ".scales": of.numbers("F16", k // BLOCK, n),
            ".qzeros": of.bits("I32", k // BLOCK, n * 3 // 32)}


def mlx_affine(of, n, k):
    return {".weight": of.bits("U32", n, k // 8), ".scales": of.numbers("BF16", n, k // 64),
            ".biases": of.numbers("BF16", n, k // 64)}


def mlx_mxfp4(of, n, k):
    return {".weight": of.bits("U32", n, k // 8), ".scales": of.bits("U8", n, k // 32)}


# ---- whole checkpoints ---------------------------------------------------------

def mlx(c, make, group, **more):
    packed(c, make)
    said = {"group_size": group, "bits": 4, **more}
    c.config = sizes(quantization=said, quantization_config=said)
    c.meta = c.bare_meta = {"format": "mlx"}


def torchao_said(c, make, kind):
    of_transformers(c, make, "torchao", quant_type={"default": {"_type": kind, "_version": 2}})
    names = [name.removesuffix("._weight_qdata") for name in c.tensors if "_qdata" in name]
    c.meta = {"format": "pt", **{name + ".weight": json.dumps({"_type": kind}) for name in names}}


def nunchaku(c):
    """One file; the description stands in its metadata."""
    def pack(c, name, n, k):
        for suffix, made in nunchaku_weight(Of(c.rng), n, k).items():
            c.tensors[name + suffix] = made
    diffusion(c, pack, "transformer_blocks.")
    c.meta = {"model_class": "NunchakuFluxTransformer2dModel", "quantization_config": json.dumps(
        {"method": "svdquant", "weight": {"dtype": "int4", "scale_dtype": None, "group_size": 64},
         "activation": {"dtype": "int4", "scale_dtype": None, "group_size": 64}})}


def convrot(c, markers=True):
    """The columns are rotated in groups; the marker alone says it."""
    said = {"format": "int8_tensorwise", "convrot": True, "convrot_groupsize": 256}

    def pack(c, name, n, k):
        of = Of(c.rng)
        c.tensors |= {name + ".weight": of.bits("I8", n, k),
                      name + ".weight_scale": of.numbers("F32", n, 1)}
        if markers:
            c.tensors[name + ".comfy_quant"] = of.text(said)
    diffusion(c, pack)
    if not markers:
        layers = {name.removesuffix("_scale").removesuffix(".weight"): said
                  for name in c.tensors if name.endswith(".weight_scale")}
        c.meta = {"_quantization_metadata": json.dumps({"format_version": "1.0",
                                                        "layers": layers})}


def sparse(c, make, form, **more):
    packed(c, make)
    c.config = sizes(quantization_config=ct(form, None, sparsity_config={
        "format": "sparse-24-bitmask", "sparsity_structure": "2:4", "targets": ["Linear"],
        "ignore": ["lm_head"], "global_sparsity": 0.5}, **more))


def marlin(c):
    packed(c, marlin_24)
    c.config = sizes(quantization_config=ct("marlin-24", int_weights(4, BLOCK)))


def modelopt_said(c, make, algorithm, **more):
    packed(c, make)
    said, c.beside["hf_quant_config.json"] = modelopt(algorithm, ["lm_head"], **more)
    c.config = sizes(quantization_config=said)


def ct_said(c, make, bits):
    packed(c, make)
    c.config = sizes(quantization_config=ct("pack-quantized", int_weights(bits, BLOCK)))


def gguf(c):
    """Nothing but a file of another kind."""
    c.raw["model-Q4_K_M.gguf"] = b"GGUF" + (3).to_bytes(4, "little") + bytes(80)
    c.config = sizes()
    c.file = None


ROWS = (
    Row("bitsandbytes-nf4", of_transformers, words=("bitsandbytes",) * 2, make=bitsandbytes_nf4,
        method="bitsandbytes", load_in_4bit=True, load_in_8bit=False, bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True, bnb_4bit_quant_storage="uint8",
        llm_int8_skip_modules=["lm_head"]),
    Row("bitsandbytes-int8", of_transformers, words=("bitsandbytes",) * 2,
        make=bitsandbytes_int8, method="bitsandbytes", load_in_4bit=False, load_in_8bit=True,
        llm_int8_skip_modules=["lm_head"]),
    Row("mlx", mlx, words=("MLX",) * 2, make=mlx_affine, group=64),
    Row("mlx-mxfp4", mlx, words=("MLX",) * 2, make=mlx_mxfp4, group=32, mode="mxfp4"),
    Row("hqq", of_transformers, words=("HQQ",) * 2, make=hqq, method="hqq",
        quant_config={"weight_quant_params": {"nbits": 4, "group_size": 64}}),
    Row("aqlm", of_transformers, words=("AQLM",) * 2, make=aqlm, method="aqlm",
        in_group_size=8, out_group_size=1, num_codebooks=1, nbits_per_codebook=8),
    Row("exl3", of_transformers, words=("EXL3",) * 2, make=exl3, method="exl3", bits=4.0,
        head_bits=6),
    Row("quip", of_transformers, words=("QuIP",) * 2, make=quip, method="quip", codebook="E8P12"),
    Row("quanto", of_transformers, words=("quanto",) * 2, make=quanto, method="quanto",
        weights="int8", activations=None),
    Row("quanto-int4", of_transformers, words=("quanto",) * 2, make=quanto_int4, method="quanto",
        weights="int4", activations=None),
    Row("torchao", torchao_said, words=("torchao",) * 2, make=torchao,
        kind="Int8WeightOnlyConfig"),
    Row("torchao-int4", torchao_said, words=("torchao",) * 2, make=torchao_int4,
        kind="Int4WeightOnlyConfig"),
    Row("vptq", of_transformers, words=("VPTQ",) * 2, make=vptq, method="vptq",
        config_for_layers={}),
    Row("nunchaku", nunchaku, words=("nunchaku|SVDQuant",) * 2),
    Row("sparse-24", sparse, words=("sparse|2:4",) * 2, make=sparse_24, form="dense"),
    Row("sparse-24-fp8", sparse, words=("sparse|2:4",) * 2, make=sparse_24_fp8,
        form="float-quantized"),
    Row("marlin-24", marlin, words=("marlin-24|sparse|2:4",) * 2),
    Row("ct-3-bits", ct_said, words=('"num_bits": 3: .*so many bits', "weight_shape"),
        make=ct_of_3_bits, bits=3),
    Row("gptq-3-bits", of_transformers, words=('"bits": 3: .*so many bits', "codes"),
        make=gptq_of_3_bits, method="gptq", bits=3, group_size=BLOCK, sym=True, desc_act=False),
    Row("gguf", gguf, words=("GGUF (is|file)",) * 2),
    Row("modelopt-w4a16-awq", modelopt_said, words=("W4A16_AWQ", "pre_quant_scale|ModelOpt"),
        make=awq_modelopt, algorithm="W4A16_AWQ", group_size=BLOCK, has_zero_point=False,
        pre_quant_scale=True),
    Row("modelopt-w4a8-awq", modelopt_said, words=("W4A8_AWQ", "pre_quant_scale|ModelOpt"),
        make=awq8_modelopt, algorithm="W4A8_AWQ", group_size=BLOCK, has_zero_point=False,
        pre_quant_scale=True),
    Row("modelopt-w8a8-sq", modelopt_said,
        words=("pre_quant_scale", "pre_quant_scale|ModelOpt|SmoothQuant"), make=smooth_modelopt,
        algorithm="W8A8_SQ_PER_CHANNEL"),
    Row("modelopt-nvfp4-32", modelopt_said, words=("NVFP4.*32|32.*NVFP4",) * 2, make=nvfp4_of_32,
        algorithm="NVFP4", group_size=32),
    Row("comfy-int8-convrot", convrot, words=("convrot|rotat",) * 2),
    Row("comfy-int8-convrot-metadata", convrot, words=("convrot|rotat",), markers=False),
)
