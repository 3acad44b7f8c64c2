"""Four bits and integers as they are published: the second table of the storages, and the places
where a description may stand."""
import numpy as np

import refquant as rq
from published import (ATTENTION, BLOCK, EXPERTS, HIDDEN, LAYERS, MLP, VOCAB, Row, always, blocks,
                       experts, fp8_codes, frame, linears, llama, moe_sizes, one, scales_of, sizes)
from published_fp8 import (LAST_O, STACK_HIDDEN, STACK_INTER, modelopt, not_last_o, quark,
                           quark_spec, stack_model, stack_sizes)
from stfile import Tensor, tensor

WHOLE = 2.0 ** -9   # a global scale of which a divisor is as exact as a multiplier


# ---- FP4 -----------------------------------------------------------------------

def fp4(rng, shape):
    """(codes two to a byte along the last side, the first in the low half; their values)"""
    codes = rng.integers(0, 16, shape, dtype=np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, rq.E2M1[codes]


def mxfp4(suffix):
    """S + suffix, and S.weight_scale."""
    def pack(c, name, n, k):
        codes, values = fp4(c.rng, (n, k))
        scale, numbers = scales_of(c.rng, (n, k // 32), "U8")
        c.pack(name + ".weight", {name + suffix: tensor("U8", codes),
                                  name + ".weight_scale": scale},
               values * np.repeat(numbers, 32, axis=1))
    return pack


def mxfp8(c, name, n, k):
    codes, values = fp8_codes(c.rng, (n, k))
    scale, numbers = scales_of(c.rng, (n, k // 32), "U8")
    c.pack(name + ".weight", {name + ".weight": tensor("F8_E4M3", codes),
                              name + ".weight_scale": scale},
           values * np.repeat(numbers, 32, axis=1))


def block_scales(rng, shape):
    codes = rng.integers(8, 0x7F, shape, dtype=np.uint8)
    return codes, rq.E4M3[codes]


def nvfp4_ct(c, name, n, k):
    codes, values = fp4(c.rng, (n, k))
    scale, numbers = block_scales(c.rng, (n, k // 16))
    divisor = np.array([1 / WHOLE], dtype=np.float32)
    c.pack(name + ".weight", {name + ".weight_packed": tensor("U8", codes),
                              name + ".weight_scale": tensor("F8_E4M3", scale),
                              name + ".weight_global_scale": tensor("F32", divisor)},
           values * np.repeat(numbers / divisor[0], 16, axis=1))
    c.number(name + ".input_global_scale", shape=(1,))


def nvfp4_modelopt(c, name, n, k):
    codes, values = fp4(c.rng, (n, k))
    scale, numbers = block_scales(c.rng, (n, k // 16))
    whole = np.array(WHOLE, dtype=np.float32)
    c.pack(name + ".weight", {name + ".weight": tensor("U8", codes),
                              name + ".weight_scale": tensor("F8_E4M3", scale),
                              name + ".weight_scale_2": Tensor("F32", (), whole.tobytes())},
           values * np.repeat(numbers * whole, 16, axis=1))
    c.number(name + ".input_scale")


def gpt_oss_stack(c, name, n, k, joint, transposed):
    codes, values = fp4(c.rng, (EXPERTS, n, k))
    scale, numbers = scales_of(c.rng, (EXPERTS, n, k // 32), "U8")
    values = values * np.repeat(numbers, 32, axis=2)
    c.pack(name, {name + joint + "blocks": Tensor("U8", (EXPERTS, n, k // 32, 16),
                                                  codes.tobytes()),
                  name + joint + "scales": scale},
           np.swapaxes(values, 1, 2) if transposed else values)


def gpt_oss(c):
    """As on the hub; plain, a stack of these models is [E,K,N]."""
    frame(c)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        linears(c, None, at + "self_attn.", ATTENTION, lambda _: False)
        c.keep(at + "mlp.router.weight", EXPERTS, HIDDEN)
        for name, n, k in (("gate_up_proj", 512, HIDDEN), ("down_proj", HIDDEN, 256)):
            gpt_oss_stack(c, f"{at}mlp.experts.{name}", n, k, "_", True)
            c.keep(f"{at}mlp.experts.{name}_bias", EXPERTS, n)
            c.biases.add(f"{at}mlp.experts.{name}_bias")
    c.config = moe_sizes("gpt_oss", "GptOssForCausalLM", num_local_experts=EXPERTS,
                         quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
                             "model.layers.*.self_attn", "model.layers.*.mlp.router",
                             "model.embed_tokens", "lm_head"]})
    c.config["intermediate_size"] = 256


def gpt_oss_original(c):
    """The folder original/: other names, [E,N,K] in its model too, and no description."""
    for name in ("embedding", "unembedding"):
        c.keep(name + ".weight", VOCAB, HIDDEN)
    c.keep("norm.scale", HIDDEN)
    for layer in range(LAYERS):
        at = f"block.{layer}."
        c.keep(at + "attn.norm.scale", HIDDEN)
        c.keep(at + "attn.sinks", 4)
        for name, n, k in (("attn.qkv", 512, HIDDEN), ("attn.out", HIDDEN, 256),
                           ("mlp.gate", EXPERTS, HIDDEN)):
            c.keep(f"{at}{name}.weight", n, k)
            c.keep(f"{at}{name}.bias", n)
        c.keep(at + "mlp.norm.scale", HIDDEN)
        for name, n, k in (("mlp1", 512, HIDDEN), ("mlp2", HIDDEN, 256)):
            gpt_oss_stack(c, f"{at}mlp.{name}_weight", n, k, ".", False)
            c.keep(f"{at}mlp.{name}_bias", EXPERTS, n)
            c.biases.add(f"{at}mlp.{name}_bias")
    c.config = {"num_hidden_layers": LAYERS, "num_experts": EXPERTS, "experts_per_token": 2,
                "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 256,
                "swiglu_limit": 7.0, "head_dim": 64, "num_attention_heads": 4,
                "num_key_value_heads": 2, "sliding_window": 128, "initial_context_length": 4096,
                "rope_theta": 150000, "rope_scaling_factor": 32.0, "rope_ntk_alpha": 1,
                "rope_ntk_beta": 32}


def quark_mxfp4(c):
    llama(c, mxfp4(".weight"), chosen=not_last_o)
    spec = quark_spec("fp4", "per_group", ch_axis=-1, group_size=32, symmetric=None,
                      scale_format="e8m0", observer_cls="PerBlockMXObserver")
    c.config = sizes(quantization_config=quark(spec, spec | {"is_dynamic": True},
                                               ["lm_head", LAST_O]))


# ---- AutoRound -----------------------------------------------------------------

PLAIN = {"bits": 16, "data_type": "float"}


def auto_round(bits, group, data_type, packing, **more):
    return {"quant_method": "auto-round", "bits": bits, "group_size": group, "sym": True,
            "data_type": data_type, "packing_format": packing, "autoround_version": "0.9.5",
            "block_name_to_quantize": "model.layers", "extra_config": {LAST_O: PLAIN},
            "enable_quanted_input": False} | more


def auto_round_floats(c, pack, bits, group, data_type):
    llama(c, pack, chosen=not_last_o)
    c.config = sizes(quantization_config=auto_round(
        bits, group, data_type, "auto_round:llm_compressor", act_bits=bits, act_group_size=group,
        act_data_type=data_type, act_dynamic=True, act_sym=True))


def signed(scales, rng):
    """AutoRound's scales of symmetric weights may be negative."""
    return (scales * rng.choice([-1, 1], scales.shape)).astype(np.float16)


def integers(c, n, k, bits, group, zeros=False, negative=False):
    """(codes, zero points and F16 scales of each group, values: no reader's rounding is in them)"""
    middle = 1 << bits - 1
    codes = c.rng.integers(0, 2 * middle, (n, k)).astype(np.uint8)
    zero = np.full((n, k // group), middle)
    if zeros:
        zero = c.rng.integers(1, 2 * middle, zero.shape)
    scales = scales_of(c.rng, zero.shape, "F16")[1].astype(np.float16)
    if negative:
        scales = signed(scales, c.rng)
    difference = codes.astype(np.float32) - np.repeat(zero, group, axis=1).astype(np.float32)
    values = difference * np.repeat(scales.astype(np.float32), group, axis=1)
    return codes, zero.astype(np.uint8), scales, values


def words(values, bits):
    """Codes along the last side in words of 32 bits, the first lowest."""
    each = 32 // bits
    parts = values.astype(np.uint32).reshape(*values.shape[:-1], -1, each)
    shifts = (np.arange(each) * bits).astype(np.uint32)
    return np.ascontiguousarray(np.bitwise_or.reduce(parts << shifts, axis=-1)).view(np.int32)


def gptq(bits=4, group=BLOCK, version=1, order=True, **kind):
    """Version 1 stores zero points less one."""
    def pack(c, name, n, k):
        codes, zero, scales, values = integers(c, n, k, bits, group, **kind)
        stored = zero - 1 if version == 1 else zero
        made = {name + ".qweight": tensor("I32", words(codes, bits).T),
                name + ".qzeros": tensor("I32", words(np.ascontiguousarray(stored.T), bits)),
                name + ".scales": tensor("F16", scales.T)}
        if order:
            made[name + ".g_idx"] = tensor("I32", (np.arange(k) // group).astype(np.int32))
        c.pack(name + ".weight", made, values)
    return pack


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]   # the column of each four bits of a word


def awq_words(values):
    return words(values.reshape(len(values), -1, 8)[:, :, AWQ_ORDER].reshape(values.shape), 4)


def awq(group=BLOCK, **kind):
    def pack(c, name, n, k):
        codes, zero, scales, values = integers(c, n, k, 4, group, **kind)
        c.pack(name + ".weight", {
            name + ".qweight": tensor("I32", awq_words(np.ascontiguousarray(codes.T))),
            name + ".qzeros": tensor("I32", awq_words(np.ascontiguousarray(zero.T))),
            name + ".scales": tensor("F16", scales.T)}, values)
    return pack


def auto_round_integers(c, bits=4, packing="auto_round:auto_gptq", pack=None):
    llama(c, pack or gptq(bits, negative=True), chosen=not_last_o)
    c.config = sizes(quantization_config=auto_round(bits, BLOCK, "int", packing))


# ---- GPTQ, AWQ -----------------------------------------------------------------

def gptq_config(sym, version=1, **more):
    return {"bits": 4, "group_size": BLOCK, "desc_act": False, "sym": sym, "lm_head": False,
            "checkpoint_format": "gptq" if version == 1 else "gptq_v2", "pack_dtype": "int32",
            "meta": {"quantizer": ["gptqmodel:2.2.0"]}} | more


def gptq_model(c, version, zeros, beside=False, chosen=always, head=False, said=()):
    """beside: only quantize_config.json says it."""
    pack = gptq(version=version, zeros=zeros)
    llama(c, pack, chosen=chosen)
    if head:
        c.plain.discard("lm_head.weight")
        del c.tensors["lm_head.weight"]
        pack(c, "lm_head", VOCAB, HIDDEN)
    said = gptq_config(not zeros, version, **dict(said))
    c.config = sizes()
    if beside:
        c.beside["quantize_config.json"] = said
    else:
        c.config["quantization_config"] = {"quant_method": "gptq", **said}


def gptq_dynamic(c):
    """o_proj is plain, down_proj has 8 bits and groups of 64."""
    frame(c)
    eight, four = gptq(8, 64), gptq()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        linears(c, four, at + "self_attn.", ATTENTION, lambda name: "o_proj" not in name)
        linears(c, lambda c, name, n, k: (eight if "down" in name else four)(c, name, n, k),
                at + "mlp.", MLP)
    c.config = sizes(quantization_config={"quant_method": "gptq", **gptq_config(
        True, dynamic={"-:.*o_proj": {}, "+:.*down_proj": {"bits": 8, "group_size": 64}})})


def awq_beside(c):
    llama(c, awq(zeros=True))
    c.config = sizes()
    c.beside["quant_config.json"] = {"zero_point": True, "q_group_size": BLOCK, "w_bit": 4,
                                     "version": "GEMM"}


# ---- compressed-tensors --------------------------------------------------------

def ct_int(bits=4, group=BLOCK):
    def pack(c, name, n, k):
        made, values = ct_parts(c, (n, k), bits, group)
        c.pack(name + ".weight", {f"{name}.weight_{part}": t for part, t in made.items()}, values)
    return pack


def ct_parts(c, shape, bits, group):
    """Tensors packed, scale, shape of a weight or of a stack."""
    middle = 1 << bits - 1
    codes = c.rng.integers(0, 2 * middle, shape).astype(np.uint8)
    scale, numbers = scales_of(c.rng, (*shape[:-1], shape[-1] // group), "BF16")
    made = {"packed": tensor("I32", words(codes, bits)), "scale": scale,
            "shape": tensor("I64", np.array(shape, dtype=np.int64))}
    return made, (codes.astype(np.float32) - middle) * np.repeat(numbers, group, axis=-1)


def ct(form, weights, inputs=None, ignore=("lm_head",), **more):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": list(ignore),
            "quantization_status": "compressed", "kv_cache_scheme": None, "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": weights,
                            "input_activations": inputs, "output_activations": None}}} | more


def int_weights(bits, group):
    return {"num_bits": bits, "type": "int", "strategy": "group" if group else "channel",
            "group_size": group, "symmetric": True, "dynamic": False, "actorder": None}


def int8_rows(dtype, shape):
    def pack(c, name, n, k):
        codes = c.rng.integers(-128, 128, (n, k)).astype(np.int8)
        scale, numbers = scales_of(c.rng, shape(n), dtype)
        c.pack(name + ".weight", {name + ".weight": tensor("I8", codes),
                                  name + ".weight_scale": scale},
               codes.astype(np.float32) * numbers.reshape(n, 1))
    return pack


def w8a8(c, dtype="BF16"):
    llama(c, int8_rows(dtype, lambda n: (n, 1)), chosen=not_last_o)
    c.config = sizes(quantization_config=ct(
        "int-quantized", int_weights(8, None), {
            "num_bits": 8, "type": "int", "strategy": "token", "symmetric": True, "dynamic": True},
        ["lm_head", LAST_O]))


def modelopt_int8(c, algorithm, static):
    """One scale to a row, in a vector; W8A8 without SmoothQuant has the name that it has with it."""
    pack = int8_rows("F32", lambda n: (n,))

    def with_inputs(c, name, n, k):
        pack(c, name, n, k)
        if static:
            c.add(name + ".input_scale", tensor("F32", np.array(0.02, dtype=np.float32)))
    llama(c, with_inputs, chosen=not_last_o)
    said, c.beside["hf_quant_config.json"] = modelopt(algorithm, ["lm_head", LAST_O])
    c.config = sizes(quantization_config=said)


def ct_stacks(c):
    """llm-compressor 0.12 left the experts of a layer in one tensor."""
    frame(c)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        linears(c, ct_int(), at + "self_attn.", ATTENTION)
        c.keep(at + "mlp.gate.weight", EXPERTS, HIDDEN)
        for name, n, k in (("gate_up_proj", 512, HIDDEN), ("down_proj", HIDDEN, 256)):
            made, values = ct_parts(c, (EXPERTS, n, k), 4, BLOCK)
            whole = f"{at}mlp.experts.{name}"
            c.pack(whole, {f"{whole}_{part}": t for part, t in made.items()}, values)
    c.config = moe_sizes(quantization_config=ct(
        "pack-quantized", int_weights(4, BLOCK) | {"actorder": "static"}, None,
        ["lm_head", "re:.*mlp.gate$"]))


def ct_compression_config(c):
    """The word of 2024."""
    llama(c, ct_int(), chosen=not_last_o)
    c.config = sizes(compression_config=ct("pack-quantized", int_weights(4, BLOCK), None,
                                           ["lm_head", LAST_O]))


def ct_inside_text_config(c):
    """Experts alone, in groups of 32: Kimi K2.5."""
    experts(c, ct_int(group=32))
    text = moe_sizes(quantization_config=ct("pack-quantized", int_weights(4, 32), None, [
        "lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]))
    c.config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
                "torch_dtype": "bfloat16", "text_config": text}


# ---- ModelOpt ------------------------------------------------------------------

def nvfp4_stack(c, name, n, k, whole, transposed):
    """[E,N,K/2], or turned over once it was packed along K: [E,K/2,N], with block scales
    [E,K/16,N]. A global scale to an expert, or one for all."""
    codes, values = fp4(c.rng, (EXPERTS, n, k))
    scale, numbers = block_scales(c.rng, (EXPERTS, n, k // 16))
    factors = np.asarray(whole, dtype=np.float32)
    values = values * np.repeat(numbers * factors.reshape(-1, 1, 1), 16, axis=2)
    if transposed:
        codes, scale, values = (np.swapaxes(x, 1, 2) for x in (codes, scale, values))
    c.pack(name, {name: tensor("U8", codes), name + "_weight_scale": tensor("F8_E4M3", scale),
                  name + "_weight_scale_2": Tensor("F32", factors.shape, factors.tobytes())},
           values)
    c.number(name + "_input_scale")


def wholes(c, each, exact):
    """Global scales; exact: powers of two, which a divisor says as well."""
    shape = (EXPERTS,) if each else ()
    if exact:
        return np.exp2(c.rng.integers(-12, -8, shape))
    return c.rng.uniform(1e-4, 1e-3, shape)


def nvfp4_fill(each, exact, transposed=False, inside="experts."):
    def fill(c, at):
        for name, n, k in (("gate_up_proj", 2 * STACK_INTER, STACK_HIDDEN),
                           ("down_proj", STACK_HIDDEN, STACK_INTER)):
            nvfp4_stack(c, f"{at}{inside}{name}", n, k, wholes(c, each, exact), transposed)
    return fill


def nvfp4_config(excluded):
    said, beside = modelopt("NVFP4", excluded)
    group = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    said["config_groups"] = {"group_0": {"targets": ["Linear"], "weights": group,
                                         "input_activations": group}}
    beside["quantization"]["group_size"] = 16
    return said, beside


def modelopt_nvfp4_stacks(c, each, exact, attention=False):
    """Qwen3.5-VL: [E,N,K/2]. attention: packed as well, one by one."""
    stack_model(c, "model.language_model.", nvfp4_modelopt if attention else None,
                nvfp4_fill(each, exact))
    c.keep("model.visual.blocks.0.attn.qkv.weight", 3 * 128, 128)
    excluded = ["lm_head", "model.visual*", *(() if attention else ("*self_attn*",)), "*mlp.gate"]
    said, c.beside["hf_quant_config.json"] = nvfp4_config(excluded)
    c.config = {"architectures": ["Qwen3_5MoeForConditionalGeneration"],
                "model_type": "qwen3_5_moe", "torch_dtype": "bfloat16",
                "text_config": stack_sizes("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM"),
                "vision_config": {"depth": 1, "hidden_size": 128}, "quantization_config": said}


def modelopt_llama4(c, exact):
    """Quantized along K and turned over again, as the model has its stacks: [E,K/2,N]."""
    prefix = "language_model.model."
    frame(c, prefix, "language_model.lm_head.weight", STACK_HIDDEN)
    fill = nvfp4_fill(False, exact, transposed=True)
    for layer in range(LAYERS):
        at = f"{prefix}layers.{layer}."
        linears(c, None, at + "self_attn.", {"q_proj": (512, STACK_HIDDEN),
                                             "k_proj": (128, STACK_HIDDEN),
                                             "v_proj": (128, STACK_HIDDEN),
                                             "o_proj": (STACK_HIDDEN, 512)}, lambda _: False)
        fill(c, at + "feed_forward.")
        c.keep(at + "feed_forward.router.weight", EXPERTS, STACK_HIDDEN)
        linears(c, nvfp4_modelopt, at + "feed_forward.shared_expert.", {
            "gate_proj": (STACK_INTER, STACK_HIDDEN), "up_proj": (STACK_INTER, STACK_HIDDEN),
            "down_proj": (STACK_HIDDEN, STACK_INTER)})
    c.keep("vision_model.patch_embedding.linear.weight", 128, 128)
    said, c.beside["hf_quant_config.json"] = nvfp4_config(
        ["vision_model*", "multi_modal_projector*", "*lm_head", "*self_attn*", "*router"])
    text = stack_sizes("llama4_text", "Llama4ForCausalLM", num_local_experts=EXPERTS)
    text["intermediate_size"] = STACK_INTER
    c.config = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4",
                "torch_dtype": "bfloat16", "text_config": text,
                "vision_config": {"model_type": "llama4_vision_model", "hidden_size": 128},
                "quantization_config": said}


def modelopt_nvfp4_experts(c):
    """One by one, as most are."""
    experts(c, nvfp4_modelopt)
    said, c.beside["hf_quant_config.json"] = nvfp4_config(["lm_head", "*self_attn*", "*mlp.gate"])
    c.config = moe_sizes(quantization_config=said)


def modelopt_mixed(c):
    """MIXED_PRECISION: a list of layers with the method of each; o_proj is in none."""
    frame(c)
    layers = {}
    whole = one(".weight_scale", also=(".input_scale",))

    def pack(c, name, n, k):
        if ".mlp." in name:
            nvfp4_modelopt(c, name, n, k)
            layers[name] = {"quant_algo": "NVFP4", "group_size": 16}
        else:
            whole(c, name, n, k)
            layers[name] = {"quant_algo": "FP8"}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        linears(c, pack, at + "self_attn.", ATTENTION, lambda name: "o_proj" not in name)
        linears(c, pack, at + "mlp.", MLP)
    said, c.beside["hf_quant_config.json"] = modelopt("MIXED_PRECISION", ["lm_head"],
                                                      quantized_layers=layers)
    c.config = sizes(quantization_config=said)


# ---- the rows ------------------------------------------------------------------

FOUR_AND_EIGHT = [{"match": "down_proj", "to": "w8a16-ct"},
                  {"match": "(q|k|v|gate|up)_proj", "to": "w4a16-ct"}]
MIXED = [{"match": r"\.mlp\.", "to": "nvfp4-ct"},
         {"match": "(q|k|v)_proj", "to": "fp8-tensor-ct"}]
ATTENTION_ONLY = {"modules_in_block_to_quantize": [
    ["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]}

ROWS = (
    Row("gpt-oss", gpt_oss, ["mxfp4-marlin", "mxfp4-trtllm", "mxfp4-ct"]),
    Row("gpt-oss-original", gpt_oss_original, ["mxfp4-marlin", "mxfp4-ct"]),
    Row("quark-mxfp4", quark_mxfp4, ["mxfp4-ct"]),
    Row("autoround-mxfp4", auto_round_floats, ["mxfp4-ct", "mxfp4-marlin"], same=".",
        pack=mxfp4(".weight_packed"), bits=4, group=32, data_type="mx_fp"),
    Row("autoround-mxfp8", auto_round_floats, ["mxfp8-ct"], same=".", pack=mxfp8, bits=8,
        group=32, data_type="mx_fp"),
    Row("autoround-fp8-blocks", auto_round_floats, ["fp8-deepseek", "fp8-ct"], bits=8, group=[BLOCK, BLOCK],
        pack=blocks(BLOCK, BLOCK, ".weight_scale_inv", "BF16"), data_type="fp"),
    Row("autoround-fp8-static", auto_round_floats, ["fp8-dynamic-ct"], bits=8, group=-1, data_type="fp",
        pack=blocks(1, 0, ".weight_scale", "BF16", lambda rows, _: (rows,))),
    Row("autoround-mxint4", auto_round_floats, words=("MXINT4",), pack=mxfp4(".weight_packed"), bits=4,
        group=32, data_type="mx_int"),
    Row("autoround-nvfp4", auto_round_floats, ["nvfp4-ct"], same=".", pack=nvfp4_ct, bits=4,
        group=16, data_type="nv_fp"),
    Row("autoround-int4", auto_round_integers, ["gptq", "w4a16-ct", "w4a16-marlin"], same="."),
    Row("autoround-int4-v2", auto_round_integers, ["gptq", "w4a16-ct"],
        packing="auto_round:gptqmodel", pack=gptq(version=2, negative=True)),
    Row("autoround-int4-awq", auto_round_integers, ["awq", "w4a16-ct"], same=".",
        packing="auto_round:auto_awq", pack=awq(negative=True)),
    Row("autoround-int8", auto_round_integers, ["w8a16-ct", "w8a16-marlin"], bits=8),
    Row("gptq-v2", gptq_model, ["gptq", "w4a16-ct"], version=2, zeros=False),
    Row("gptq-v2-zeros", gptq_model, ["gptq", "w4a16-marlin"], version=2, zeros=True),
    Row("gptq-zeros", gptq_model, ["gptq"], same=".", version=1, zeros=True),
    Row("gptq-beside-only", gptq_model, ["gptq"], version=2, zeros=True, beside=True),
    Row("gptq-attention-only", gptq_model, ["gptq", "w4a16-ct"], same=".", version=1,
        zeros=False, chosen=lambda name: "self_attn" in name, said=ATTENTION_ONLY),
    Row("gptq-lm-head", gptq_model, ["gptq", "w4a16-ct"], same=".", version=1, zeros=False,
        head=True, said={"lm_head": True}),
    Row("gptq-dynamic", gptq_dynamic, [FOUR_AND_EIGHT]),
    Row("awq-beside-only", awq_beside, ["awq"], same="."),
    Row("ct-w8a8", w8a8, ["int8-ct", "w8a16-ct", "w8a16-marlin-channel"], same="."),
    Row("ct-w8a8-f16", w8a8, ["int8-ct"], same=".", dtype="F16"),
    Row("ct-w8a8-f32", w8a8, [], same=".", dtype="F32"),
    Row("modelopt-int8", modelopt_int8, [], algorithm="W8A16", static=False),
    Row("modelopt-int8-static", modelopt_int8, [], algorithm="W8A8_SQ_PER_CHANNEL", static=True),
    Row("ct-stacks", ct_stacks, ["w4a16-ct"], same="self_attn"),
    Row("ct-compression-config", ct_compression_config, ["w4a16-ct"], same="."),
    Row("ct-inside-text-config", ct_inside_text_config, ["w4a16-ct"], same="."),
    Row("modelopt-nvfp4-experts", modelopt_nvfp4_experts, ["nvfp4-ct", "nvfp4-cutlass-moe"]),
    Row("modelopt-nvfp4-stacks", modelopt_nvfp4_stacks, ["nvfp4-ct"], each=True, exact=True),
    Row("modelopt-nvfp4-stacks-beside", modelopt_nvfp4_stacks, ["nvfp4-ct"], each=False,
        exact=True, attention=True),
    Row("modelopt-nvfp4-stacks-any", modelopt_nvfp4_stacks, ["nvfp4-cutlass-moe"], each=True,
        exact=False),
    Row("modelopt-nvfp4-llama4", modelopt_llama4, ["nvfp4-ct"], exact=True),
    Row("modelopt-nvfp4-llama4-any", modelopt_llama4, [], exact=False),
    Row("modelopt-mixed", modelopt_mixed, [MIXED]),
)
