"""FP8 as it is published: the first table of the storages."""
import json

import numpy as np

import refquant as rq
import stfile
from published import (BLOCK, EXPERTS, HIDDEN, INTER, LAYERS, VOCAB, Row, blocks, fp8_codes, frame,
                       linears, llama, moe_sizes, one, scales_of, sizes, without_scale)
from stfile import Tensor, tensor

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}


def not_last_o(name):
    """The one linear weight of a Llama that is left plain, to be seen."""
    return not name.endswith(f"layers.{LAYERS - 1}.self_attn.o_proj")


LAST_O = f"model.layers.{LAYERS - 1}.self_attn.o_proj"


# ---- DeepSeek ------------------------------------------------------------------

def deepseek_v3(c, dtype="F32"):
    llama(c, blocks(BLOCK, BLOCK, ".weight_scale_inv", dtype), chosen=not_last_o)
    c.config = sizes("qwen3", "Qwen3ForCausalLM", quantization_config={
        **FP8, "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": ["lm_head", LAST_O]})


def other_blocks(c, block, dtype="F32", suffix=".weight_scale_inv"):
    llama(c, blocks(*block, suffix, dtype), chosen=not_last_o)
    c.config = sizes(quantization_config={**FP8, "weight_block_size": list(block),
                                          "modules_to_not_convert": ["lm_head", LAST_O]})


def mxfp4_bytes(dtype="I8"):
    """Two e2m1 codes to a byte, the first in the low half; a scale to 32 columns."""
    def pack(c, name, n, k):
        codes = c.rng.integers(0, 16, (n, k), dtype=np.uint8)
        scale, numbers = scales_of(c.rng, (n, k // 32), "F8_E8M0")
        held = rq.pack_pairs(codes)
        c.pack(name + ".weight", {
            name + ".weight": Tensor(dtype, (n, k) if dtype == "F4" else held.shape,
                                     held.tobytes()),
            name + ".scale": scale}, rq.E2M1[codes] * np.repeat(numbers, 32, axis=1))
    return pack


DSV4_ATTENTION = {"wq_a": (128, HIDDEN), "wq_b": (256, 128), "wkv": (128, HIDDEN),
                  "wo_a": (256, 128), "wo_b": (HIDDEN, 256)}
EXPERT = {"w1": (256, HIDDEN), "w2": (HIDDEN, 256), "w3": (256, HIDDEN)}
DENSE = {"match": r"attn\.(w|indexer\.wq_b)|shared_experts|mtp\.0\.[eh]_proj"}


def deepseek_v4_experts(to, dense="fp8-deepseek"):
    """The rules of a recipe: routed experts, and the rest of what is packed."""
    return [{"match": r"ffn\.experts\.", "to": to}, {**DENSE, "to": dense}]


def block_v4(c, at, dense, expert):
    """One layer, with what of it is plain."""
    linears(c, dense, at + "attn.", DSV4_ATTENTION)
    linears(c, dense, at + "attn.indexer.", {"wq_b": (256, 128)})
    c.keep(at + "attn.indexer.weights_proj.weight", 16, HIDDEN)
    for name in ("wkv", "wgate"):
        c.keep(f"{at}attn.compressor.{name}.weight", 128, HIDDEN)
    c.keep(at + "attn.attn_sink", 4, dtype="F32")
    c.keep(at + "hc_attn_fn", 24, 4 * HIDDEN, dtype="F32")
    for name in ("attn_norm", "ffn_norm"):
        c.keep(f"{at}{name}.weight", HIDDEN)
    c.keep(at + "ffn.gate.weight", EXPERTS, HIDDEN)
    for e in range(EXPERTS):
        linears(c, expert, f"{at}ffn.experts.{e}.", EXPERT)
    linears(c, dense, at + "ffn.shared_experts.", EXPERT)


def deepseek_v4(c, expert_dtype="fp4", dtype="I8", block=BLOCK, scale="F8_E8M0", ids="I32",
                bare=False):
    """bare: two weights of the MTP block are FP8 without a scale."""
    dense = blocks(block, block, ".scale", scale)
    expert = mxfp4_bytes(dtype) if expert_dtype == "fp4" else dense
    for name in ("embed", "head"):
        c.keep(name + ".weight", VOCAB, HIDDEN)
    c.keep("norm.weight", HIDDEN)
    for layer in range(LAYERS):
        block_v4(c, f"layers.{layer}.", dense, expert)
    chosen = c.rng.integers(0, EXPERTS, (VOCAB, 2)).astype(stfile.BITS[ids])
    c.keep_as("layers.0.ffn.gate.tid2eid", tensor(ids, chosen))
    c.keep("layers.1.ffn.gate.bias", EXPERTS, dtype="F32")
    if bare:
        for name in ("e_proj", "h_proj"):
            without_scale()(c, f"mtp.0.{name}.weight", HIDDEN, HIDDEN)
    c.config = moe_sizes("deepseek_v4", "DeepseekV4ForCausalLM", quantization_config={
        **FP8, "scale_fmt": "ue8m0", "weight_block_size": [block, block]})
    c.config |= {"n_routed_experts": EXPERTS, "n_shared_experts": 1, "num_nextn_predict_layers": 1}
    if expert_dtype:
        c.config["expert_dtype"] = expert_dtype


# ---- Mistral -------------------------------------------------------------------

def mistral_hf(c, dtype="BF16", shape=()):
    """A scale of the whole weight that multiplies, though its name says `inv`."""
    llama(c, one(".weight_scale_inv", dtype, shape, also=(".activation_scale",)),
          "language_model.model.", not_last_o)
    c.tensors["language_model.lm_head.weight"] = c.tensors.pop("lm_head.weight")
    c.plain = c.plain - {"lm_head.weight"} | {"language_model.lm_head.weight"}
    vision = "vision_tower.transformer.layers.0."
    linears(c, None, vision + "attention.", {"q_proj": (128, 128)}, lambda _: False)
    c.keep("multi_modal_projector.linear_1.weight", HIDDEN, 128)
    c.config = {"architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3",
                "dtype": "bfloat16", "text_config": sizes("ministral3", "Ministral3ForCausalLM"),
                "vision_config": {"model_type": "pixtral", "hidden_size": 128,
                                  "num_hidden_layers": 1},
                "quantization_config": {
                    "quant_method": "fp8", "activation_scheme": "static", "dequantize": False,
                    "weight_block_size": None, "modules_to_not_convert": [
                        "model.vision_tower", "model.multi_modal_projector", "lm_head",
                        "model.language_model.layers.1.self_attn.o_proj"]}}


NATIVE = {"attention.wq": (256, HIDDEN), "attention.wk": (128, HIDDEN),
          "attention.wv": (128, HIDDEN), "attention.wo": (HIDDEN, 256),
          "feed_forward.w1": (INTER, HIDDEN), "feed_forward.w2": (HIDDEN, INTER),
          "feed_forward.w3": (INTER, HIDDEN)}


def mistral_native(c, dtype="BF16"):
    for name in ("tok_embeddings", "output"):
        c.keep(name + ".weight", VOCAB, HIDDEN)
    c.keep("norm.weight", HIDDEN)
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        linears(c, one(".qscale_weight", dtype, also=(".qscale_act",)), at, NATIVE)
        for name in ("attention_norm", "ffn_norm"):
            c.keep(f"{at}{name}.weight", HIDDEN)
    c.keep("vision_encoder.transformer.layers.0.attention.wq.weight", 128, 128)
    c.file, c.meta = "consolidated.safetensors", {}
    c.beside["params.json"] = {
        "dim": HIDDEN, "n_layers": LAYERS, "head_dim": 64, "hidden_dim": INTER, "n_heads": 4,
        "n_kv_heads": 2, "norm_eps": 1e-5, "vocab_size": VOCAB,
        "quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR"}}


# ---- one scale to a row --------------------------------------------------------

def fbgemm(c):
    rows = blocks(1, 0, ".weight_scale")

    def pack(c, name, n, k):
        rows(c, name, n, k)
        c.add(name + ".input_scale_ub", tensor("F32", np.array([1200], dtype=np.float32)))
    llama(c, pack, chosen=lambda name: ".mlp." in name)
    c.config = sizes(quantization_config={
        "quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": [
            *(f"model.layers.{i}.self_attn.{x}_proj" for i in range(LAYERS) for x in "qkvo"),
            "lm_head"]})


def modelopt(algorithm, excluded, **more):
    """(quantization_config, hf_quant_config.json)"""
    producer = {"name": "modelopt", "version": "0.43.0"}
    return ({"quant_algo": algorithm, "quant_method": "modelopt", "producer": producer,
             "ignore": excluded, **more},
            {"producer": producer, "quantization": {
                "quant_algo": algorithm, "kv_cache_quant_algo": None,
                "exclude_modules": excluded, **more}})


def modelopt_fp8(c, algorithm, rows, columns, shape):
    llama(c, blocks(rows, columns, ".weight_scale", "F32", shape), chosen=not_last_o)
    said, beside = modelopt(algorithm, ["lm_head", LAST_O])
    c.config = sizes(quantization_config=said)
    c.beside["hf_quant_config.json"] = beside


def modelopt_beside(c):
    """Of 2024: config.json says nothing."""
    llama(c, one(".weight_scale", also=(".input_scale",)), chosen=lambda name: ".mlp." in name)
    c.config = sizes()
    c.beside["hf_quant_config.json"] = modelopt("FP8", ["lm_head", "model.layers.*.self_attn*"])[1]


def quark_spec(dtype, scheme, **more):
    return {"dtype": dtype, "is_dynamic": False, "qscheme": scheme, "ch_axis": None,
            "group_size": None, "symmetric": True, "round_method": "half_even",
            "scale_type": "float", "observer_cls": "PerTensorMinMaxObserver", **more}


def quark(weight, inputs, exclude, kv=(), **more):
    return {"quant_method": "quark", "quant_mode": "eager_mode", "exclude": exclude,
            "algo_config": None, "softmax_quant_spec": None,
            "global_quant_config": {"weight": weight, "input_tensors": inputs,
                                    "output_tensors": None, "bias": None, "target_device": None},
            "layer_quant_config": {}, "layer_type_quant_config": {}, "kv_cache_quant_config": {},
            "export": {"kv_cache_group": list(kv), "min_kv_scale": 0.0, "pack_method": "reorder",
                       "weight_format": "real_quantized", "weight_merge_groups": None}, **more}


def quark_ptpc(c, shape):
    llama(c, blocks(1, 0, ".weight_scale", "F32", shape), chosen=not_last_o)
    c.config = sizes(quantization_config=quark(
        quark_spec("fp8_e4m3", "per_channel", ch_axis=0),
        quark_spec("fp8_e4m3", "per_channel", ch_axis=1, is_dynamic=True), ["lm_head", LAST_O]))


def quark_fp8(c):
    """k and v have the scales of the KV cache."""
    llama(c, one(".weight_scale", also=(".input_scale",)), chosen=not_last_o)
    spec = quark_spec("fp8_e4m3", "per_tensor")
    layers = {}
    for layer in range(LAYERS):
        for name in ("k_proj", "v_proj"):
            at = f"model.layers.{layer}.self_attn.{name}"
            c.number(at + ".output_scale")
            c.may_stay |= {at + ".output_scale", f"model.layers.{layer}.self_attn.{name[0]}_scale",
                           f"model.layers.{layer}.self_attn.attn.{name[0]}_scale"}
            layers["*" + name] = {"weight": spec, "input_tensors": spec, "output_tensors": spec,
                                  "bias": None, "target_device": None}
    said = quark(spec, spec, ["lm_head", LAST_O], ("*k_proj", "*v_proj"))
    c.config = sizes(quantization_config=said | {
        "layer_quant_config": layers,
        "kv_cache_quant_config": {name: {"output_tensors": spec} for name in layers}})


# ---- stacks of experts ---------------------------------------------------------

STACK_HIDDEN, STACK_INTER = 512, 128   # so that no side of a stack is as long as another


def fp8_stack(c, name, shape, suffix, dtype, scale_shape=None):
    """[E,A,B] with blocks in the same orientation, or one scale to an expert."""
    codes, values = fp8_codes(c.rng, shape)
    grid = scale_shape or (shape[0], *(rq.ceil_div(side, BLOCK) for side in shape[1:]))
    scale, numbers = scales_of(c.rng, grid, dtype)
    factor = numbers.reshape(-1, 1, 1) if scale_shape else rq.spread(
        numbers, BLOCK, BLOCK, *shape[1:])
    c.pack(name, {name: tensor("F8_E4M3", codes), name + suffix: scale}, values * factor)


def stacks(c, at, transposed, suffix="_scale_inv", dtype="F32", scale_shape=None, also=()):
    """transposed: [E,K,N], as a model computes with them."""
    for name, n, k in (("gate_up_proj", 2 * STACK_INTER, STACK_HIDDEN),
                       ("down_proj", STACK_HIDDEN, STACK_INTER)):
        shape = (EXPERTS, k, n) if transposed else (EXPERTS, n, k)
        fp8_stack(c, f"{at}experts.{name}", shape, suffix, dtype, scale_shape)
        for extra in also:
            c.number(f"{at}experts.{name}{extra}", dtype, scale_shape)


def stack_model(c, prefix, attention, fill):
    frame(c, prefix, hidden=STACK_HIDDEN)
    for layer in range(LAYERS):
        at = f"{prefix}layers.{layer}."
        linears(c, attention, at + "self_attn.", {
            "q_proj": (512, STACK_HIDDEN), "k_proj": (128, STACK_HIDDEN),
            "v_proj": (128, STACK_HIDDEN), "o_proj": (STACK_HIDDEN, 512)},
            lambda _: attention is not None)
        c.keep(at + "mlp.gate.weight", EXPERTS, STACK_HIDDEN)
        fill(c, at + "mlp.")


def stack_sizes(*names, **more):
    return moe_sizes(*names, inter=STACK_INTER, **more) | {
        "hidden_size": STACK_HIDDEN, "num_attention_heads": 8}


def qwen3_vl_moe(c, transposed, dtype="F32", attention=True):
    stack_model(c, "model.language_model.",
                blocks(BLOCK, BLOCK, ".weight_scale_inv", dtype) if attention else None,
                lambda c, at: stacks(c, at, transposed, dtype=dtype))
    c.keep("model.visual.blocks.0.attn.qkv.weight", 3 * 128, 128)
    text = stack_sizes("qwen3_vl_moe_text", "Qwen3VLMoeTextModel")
    c.config = {"architectures": ["Qwen3VLMoeForConditionalGeneration"],
                "model_type": "qwen3_vl_moe", "text_config": text, "torch_dtype": "bfloat16",
                "vision_config": {"depth": 1, "hidden_size": 128},
                "quantization_config": {
                    **FP8, "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": [
                        "lm_head", "model.visual.blocks.0.attn.qkv", *(
                            f"model.language_model.layers.{i}.mlp.gate" for i in range(LAYERS))]}}


def hy_v4(c):
    stack_model(c, "model.", blocks(BLOCK, BLOCK, ".weight_scale_inv"),
                lambda c, at: stacks(c, at, False))
    c.config = stack_sizes("hy_v4", "HYV4ForCausalLM", quantization_config={
        **FP8, "weight_block_size": [BLOCK, BLOCK], "modules_to_not_convert": ["lm_head"]})


def mistral_small_4(c, shape):
    """One scale to an expert, static activation scales."""
    stack_model(c, "model.", one(".weight_scale_inv", "BF16", also=(".activation_scale",)),
                lambda c, at: stacks(c, at, False, dtype="BF16", scale_shape=shape,
                                     also=("_activation_scale",)))
    c.config = stack_sizes("mistral4", "Mistral4ForCausalLM", quantization_config={
        "quant_method": "fp8", "activation_scheme": "static", "dequantize": False,
        "weight_block_size": None, "modules_to_not_convert": [
            "lm_head", *(f"model.layers.{i}.mlp.gate" for i in range(LAYERS))]})


# ---- diffusion -----------------------------------------------------------------

DIFFUSION = {"img_attn.qkv": (3 * HIDDEN, HIDDEN), "img_attn.proj": (HIDDEN, HIDDEN),
             "img_mlp.0": (4 * HIDDEN, HIDDEN), "img_mlp.2": (HIDDEN, 4 * HIDDEN)}


def diffusion(c, pack, prefix="model.diffusion_model."):
    """One file without a config.json."""
    for layer in range(LAYERS):
        linears(c, pack, f"{prefix}double_blocks.{layer}.", DIFFUSION)
        for name, (n, _) in DIFFUSION.items():
            c.keep(f"{prefix}double_blocks.{layer}.{name}.bias", n)
    c.keep(prefix + "img_in.weight", HIDDEN, 64)
    c.file, c.alone = "diffusion_fp8.safetensors", True


def comfy_scaled(c, codes="F8_E4M3", conv=False):
    prefix = "model.diffusion_model."
    diffusion(c, one(".scale_weight", codes=codes, also=(".scale_input",)), prefix)
    if conv:
        name = prefix + "input_blocks.1.0.in_layers.2"
        shape = (64, 32, 3, 3)
        stored, values = fp8_codes(c.rng, shape, codes)
        scale, number = scales_of(c.rng, ())
        c.pack(name + ".weight", {name + ".weight": tensor(codes, stored),
                                  name + ".scale_weight": scale}, values * number)
    c.add(prefix + "scaled_fp8", Tensor(codes, (2,), bytes(2)))


def bare(codes):
    """`pack` of models, for weights that are numbers of eight bits."""
    cast = without_scale(codes)
    return lambda c, name, n, k: cast(c, name + ".weight", n, k)


def fp8_cast(c, codes="F8_E4M3", conv=False):
    diffusion(c, bare(codes))
    if conv:
        without_scale(codes)(c, "model.diffusion_model.out.2.weight", 4, 32, 3, 3)


def marked(c, word, markers, described):
    """What says how a ComfyUI weight is stored: a tensor beside each, or the file's metadata."""
    names = [name.removesuffix(".weight") for name in c.truth]
    if markers:
        for name in names:
            text = json.dumps({"format": word}).encode()
            c.add(name + ".comfy_quant", Tensor("U8", (len(text),), text))
    if described:
        layers = {name: {"format": word} for name in names}
        c.meta = {"_quantization_metadata": json.dumps({"format_version": "1.0",
                                                        "layers": layers})}


def comfy_fp8(c, markers=True, described=False):
    diffusion(c, one(".weight_scale", also=(".input_scale",)))
    marked(c, "float8_e4m3fn", markers, described)


def tiles(scales, rows=128, columns=4):
    """[N,G] -> the same in tiles of 128 rows by 4 columns, each in 32 lines of 4 rows by 4
    columns, and zeros where a tile is not full."""
    padded = rq.pad_to(scales, rows, columns)
    n, g = padded.shape
    five = padded.reshape(n // 128, 4, 32, g // 4, 4)
    return np.ascontiguousarray(five.transpose(0, 3, 2, 1, 4)).reshape(n, g)


def comfy_nvfp4_weight(c, name, n, k):
    """The first of two codes in the high half."""
    codes = c.rng.integers(0, 16, (n, k), dtype=np.uint8)
    scales = c.rng.integers(8, 0x7F, (n, k // 16), dtype=np.uint8)
    whole, number = scales_of(c.rng, ())
    c.pack(name + ".weight", {
        name + ".weight": tensor("U8", codes[:, ::2] << 4 | codes[:, 1::2]),
        name + ".weight_scale": tensor("F8_E4M3", tiles(scales)),
        name + ".weight_scale_2": whole},
        rq.E2M1[codes] * np.repeat(rq.E4M3[scales] * number, 16, axis=1))


def comfy_mxfp8_weight(c, name, n, k):
    codes, values = fp8_codes(c.rng, (n, k))
    scale, numbers = scales_of(c.rng, (n, k // 32), "U8")
    c.pack(name + ".weight", {
        name + ".weight": tensor("F8_E4M3", codes),
        name + ".weight_scale": tensor("U8", tiles(scale.bits))},
        values * np.repeat(numbers, 32, axis=1))


def comfy_tiles(c, word, pack, markers=True):
    diffusion(c, pack)
    marked(c, word, markers, True)

# ---- the rows ------------------------------------------------------------------

ROWS = (
    Row("deepseek-v3", deepseek_v3, ["fp8-deepseek"], same="."),
    Row("deepseek-v3-bf16", deepseek_v3, ["fp8-ct", "fp8-deepseek"], dtype="BF16"),
    Row("blocks-256", other_blocks, ["fp8-deepseek"], block=(256, 256)),
    Row("blocks-64", other_blocks, [], block=(64, 64)),
    Row("blocks-32", other_blocks, [], block=(32, 32)),
    Row("blocks-128x64", other_blocks, [], block=(128, 64)),
    Row("blocks-1x128", other_blocks, [], block=(1, 128)),
    Row("blocks-32-e8m0", other_blocks, ["mxfp8-ct"], block=(32, 32), dtype="F8_E8M0",
        suffix=".scale"),
    Row("deepseek-v4", deepseek_v4, [
        deepseek_v4_experts("mxfp4-marlin"),
        deepseek_v4_experts("mxfp4-trtllm", "fp8-trtllm"),
        deepseek_v4_experts("mxfp4-megamoe", "fp8-deepgemm-sm100")]),
    Row("deepseek-v4-f4", deepseek_v4, [deepseek_v4_experts("mxfp4-marlin")], dtype="F4"),
    Row("deepseek-v4.1", deepseek_v4, [deepseek_v4_experts("mxfp4-marlin", "mxfp8-ct")],
        block=32),
    Row("deepseek-v4-base", deepseek_v4, ["fp8-deepseek"], expert_dtype="fp8", scale="F32",
        ids="I64"),
    Row("deepseek-v4-sgl", deepseek_v4, ["fp8-deepseek"], expert_dtype=None, scale="F32",
        bare=True),
    Row("mistral-hf", mistral_hf, ["fp8-tensor-ct"]),
    Row("mistral-hf-f32", mistral_hf, ["fp8-tensor-ct"], dtype="F32"),
    Row("mistral-hf-1", mistral_hf, ["fp8-tensor-ct"], shape=(1,)),
    Row("mistral-native", mistral_native, ["fp8-tensor-ct"]),
    Row("mistral-native-f32", mistral_native, ["fp8-tensor-ct"], dtype="F32"),
    Row("fbgemm", fbgemm, ["fp8-dynamic-ct"]),
    Row("modelopt-fp8-pb-wo", modelopt_fp8, ["fp8-deepseek"], algorithm="FP8_PB_WO", rows=BLOCK,
        columns=BLOCK, shape=lambda rows, columns: (rows, 1, columns, 1)),
    Row("modelopt-fp8-per-channel", modelopt_fp8, ["fp8-dynamic-ct"],
        algorithm="FP8_PER_CHANNEL_PER_TOKEN", rows=1, columns=0, shape=lambda rows, _: (rows,)),
    Row("modelopt-fp8", modelopt_fp8, ["fp8-tensor-ct", "fp8-tensor-trtllm"], algorithm="FP8", rows=0, columns=0,
        shape=lambda *_: ()),
    Row("modelopt-fp8-1x1", modelopt_fp8, ["fp8-tensor-ct"], algorithm="FP8", rows=0, columns=0,
        shape=lambda *_: (1, 1)),
    Row("modelopt-fp8-beside-only", modelopt_beside, ["fp8-tensor-ct"]),
    Row("quark-ptpc", quark_ptpc, ["fp8-dynamic-ct"], shape=lambda rows, _: (rows,)),
    Row("quark-ptpc-1xN", quark_ptpc, ["fp8-dynamic-ct"], shape=lambda rows, _: (1, rows)),
    Row("quark-fp8", quark_fp8, ["fp8-tensor-ct"]),
    Row("qwen3-vl-moe-fp8", qwen3_vl_moe, ["fp8-deepseek"], same="self_attn", transposed=True),
    Row("qwen3-vl-moe-fp8-bf16", qwen3_vl_moe, ["fp8-ct"], transposed=True, dtype="BF16"),
    Row("qwen3-vl-moe-fp8-saved", qwen3_vl_moe, ["fp8-deepseek"], same="self_attn",
        transposed=False),
    Row("qwen3-vl-moe-fp8-experts-only", qwen3_vl_moe, ["fp8-deepseek"], transposed=True,
        attention=False),
    Row("hy-v4-stacks", hy_v4, ["fp8-deepseek"], same="self_attn"),
    Row("mistral-small-4", mistral_small_4, ["fp8-tensor-ct"], shape=(EXPERTS,)),
    Row("mistral-small-4-Ex1x1", mistral_small_4, ["fp8-tensor-ct"], shape=(EXPERTS, 1, 1)),
    Row("comfy-scaled", comfy_scaled, ["fp8-tensor-ct"]),
    Row("comfy-scaled-e5m2", comfy_scaled, [], codes="F8_E5M2"),
    Row("comfy-scaled-conv", comfy_scaled, [], conv=True),
    Row("fp8-cast", fp8_cast, ["fp8-tensor-ct"]),
    Row("fp8-cast-e5m2", fp8_cast, [], codes="F8_E5M2"),
    Row("fp8-cast-conv", fp8_cast, [], conv=True),
    Row("fp8-cast-e5m2-conv", fp8_cast, [], codes="F8_E5M2", conv=True),
    Row("comfy-fp8", comfy_fp8, ["fp8-tensor-ct"]),
    Row("comfy-fp8-metadata", comfy_fp8, ["fp8-tensor-ct"], markers=False, described=True),
    Row("comfy-fp8-both", comfy_fp8, ["fp8-tensor-ct"], described=True),
    Row("comfy-nvfp4", comfy_tiles, ["nvfp4-comfy"], word="nvfp4", pack=comfy_nvfp4_weight),
    Row("comfy-nvfp4-metadata", comfy_tiles, ["nvfp4-comfy"], word="nvfp4",
        pack=comfy_nvfp4_weight, markers=False),
    Row("comfy-mxfp8", comfy_tiles, ["mxfp8-comfy"], word="mxfp8", pack=comfy_mxfp8_weight),
    Row("comfy-mxfp8-metadata", comfy_tiles, ["mxfp8-comfy"], word="mxfp8",
        pack=comfy_mxfp8_weight, markers=False),
)
