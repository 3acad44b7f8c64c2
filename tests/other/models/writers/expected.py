"""What tilepack says of each checkpoint that a writer writes: see judge.py."""

FP8_ROWS = ("fp8-dynamic-ct", "fp8-marlin-channel")
FP8_ONE = ("fp8-tensor-ct", "fp8-dynamic-ct")
FP8_BLOCKS = ("fp8-ct", "fp8-deepseek", "fp8-marlin")
NVFP4 = ("nvfp4-ct", "nvfp4-marlin")
MXFP4 = ("mxfp4-ct", "mxfp4-marlin", "mxfp4-blocked")
MXFP8 = ("mxfp8-ct", "mxfp8-marlin", "mxfp8-blocked")
INT4 = ("w4a16-ct", "w4a16-marlin", "w4a16-machete")
INT8_GROUPS = ("w8a16-ct", "w8a16-marlin", "w8a16-machete")
INT8_ROWS = ("int8-ct", "w8a16-ct", "w8a16-marlin-channel")

EXACT = {
    "llm_compressor": {
        "W4A16": INT4, "W4A16_ASYM": ("w4a16-marlin",),
        "W4AFP8": ("w4a8-ct", *INT4), "W4A8": INT4, "W4A4": INT4,
        "W8A16": INT8_GROUPS, "W8A8": INT8_ROWS, "INT8": INT8_ROWS,
        "FP8": ("fp8-tensor-ct", *FP8_ROWS), "FP8_DYNAMIC": FP8_ROWS, "FP8_BLOCK": FP8_BLOCKS,
        "NVFP4": NVFP4, "NVFP4A16": NVFP4, "MXFP4": MXFP4, "MXFP4A16": MXFP4,
        "MXFP8": MXFP8, "MXFP8A16": MXFP8,
    },
    "nvidia": {
        "FP8_DEFAULT": FP8_ONE, "FP8_DEFAULT+FP8_KV": FP8_ONE, "FP8_DEFAULT+FP8_AFFINE_KV": FP8_ONE,
        "MAMBA_MOE_FP8_AGGRESSIVE": FP8_ONE, "MAMBA_MOE_FP8_CONSERVATIVE": FP8_ONE,
        "FP8_PER_CHANNEL_PER_TOKEN": ("fp8-dynamic-ct",),
        "FP8_2D_BLOCKWISE_WEIGHT_ONLY": ("fp8-ct", "fp8-deepseek"),
        **{name: ("nvfp4-marlin",) for name in (  # nvfp4-ct has the reciprocal of the global scale
            "NVFP4_DEFAULT", "NVFP4_DEFAULT+FP8_KV", "NVFP4_DEFAULT+NVFP4_KV", "NVFP4_MLP_ONLY",
            "NVFP4_OMLP_ONLY", "W4A16_NVFP4", "MAMBA_MOE_NVFP4_AGGRESSIVE", "MAMBA_MOE_NVFP4_CONSERVATIVE")},
        "MXFP4_DEFAULT": MXFP4, "MXFP4_MLP_WEIGHT_ONLY": MXFP4, "W4A8_MXFP4_FP8": MXFP4,
        "MXFP8_DEFAULT": MXFP8,
        "INT8_DEFAULT": (), "INT8_WEIGHT_ONLY": (),  # scales of F32, which no format of int8 has
    },
    "autoround": {
        "W4A16.auto_round": INT4, "W4A16.auto_gptq": ("gptq", *INT4), "W4A16.auto_awq": ("awq", *INT4),
        "W4A16.llm_compressor": INT4,
        "W4A16_ASYM.auto_round": ("awq", "w4a16-marlin"), "W4A16_ASYM.auto_gptq": ("gptq", "w4a16-marlin"),
        "W4A16_ASYM.auto_awq": ("awq", "w4a16-marlin"),
        "W8A16.auto_round": INT8_GROUPS, "W8A16.auto_gptq": INT8_GROUPS,
        "INT8.llm_compressor": INT8_ROWS, "FPW8A16.auto_round": ("fp8-tensor-ct",),
        **{f"{scheme}.{to}": formats for scheme, formats in (
            ("MXFP4", MXFP4), ("MXFP8", MXFP8), ("NVFP4", ("nvfp4-ct",)), ("FP8_BLOCK", FP8_BLOCKS),
            ("FP8_STATIC", FP8_ROWS)) for to in ("auto_round", "llm_compressor")},
        "MXFP4_RCEIL.auto_round": MXFP4,
    },
}
OTHER_BITS = (2, 3, 5, 6, 7)
REFUSED = {
    "llm_compressor": {f"W{bits}A{to}": f'"num_bits": {bits}' for bits in OTHER_BITS for to in (4, 8, 16)},
    "nvidia": {
        **{name: "scaled per column" for name in (
            "INT4_AWQ", "INT4_BLOCKWISE_WEIGHT_ONLY", "W4A8_AWQ_BETA")},
        "INT8_SMOOTHQUANT": "pre_quant_scale",
        "NVFP4_MLP_WEIGHT_ONLY": "groups of 32", "W4A8_NVFP4_FP8": "groups of 32",
    },
    "autoround": {"W2A16.auto_round": '"bits": 2', "W3A16.auto_round": '"bits": 3',
                  "MXINT4.auto_round": "MXINT4", "NVFP4_E5M3.auto_round": "of no format"},
}
ON_A_GPU = "must be a CUDA tensor"
UNWRITTEN = {
    "llm_compressor": {},
    "nvidia": {
        **{name: ON_A_GPU for name in ("NVFP4_AWQ_CLIP", "NVFP4_AWQ_FULL", "NVFP4_AWQ_LITE",
                                       "NVFP4_SVDQUANT_DEFAULT", "NVFP4_W4A4_WEIGHT_LOCAL_HESSIAN")},
        **{name: "requires triton" for name in ("NVFP4_FOUR_OVER_SIX", "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP")},
        "MXFP6_DEFAULT": "num_bits: (3, 2)", "MXINT8_DEFAULT": "not subscriptable",
        "NVFP4_EXPERTS_ONLY": "nothing would be quantized",
    },
    "autoround": {**{f"{scheme}.llm_compressor": "only support to export" for scheme in ("MXINT4", "INT4")},
                  "MXFP6.auto_round": "Only 4,8 bits"},
}
