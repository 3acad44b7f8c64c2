"""What vLLM holds of a converted weight, before its kernels process it, as float32 values.

decoded() reads names, dtypes and sizes of parameters alone, and shares no code with tilepack or vLLM.
Weights are [N,K], of experts [E,N,K].
"""
E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6)
# Columns of AWQ's eight codes of a word, from its lowest bits on.
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def spread(scales, shape, blocks):
    """One scale of each block, for each element; the last blocks may be cut."""
    for axis in (-2, -1):
        scales = scales.repeat_interleave(blocks[axis], dim=axis)
    return scales[..., :shape[-2], :shape[-1]]


def codes_of(words, bits):
    """Unsigned codes of words of 32 bits, along the last dimension."""
    import torch

    shifts = torch.arange(0, 32, bits)
    return ((words[..., None] >> shifts) & (2 ** bits - 1)).flatten(-2)


def codes_of_fp4(packed):
    import torch

    nibbles = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    values = torch.tensor(E2M1 + tuple(-v for v in E2M1))
    return values[nibbles]


def powers(scales):
    import torch

    return torch.exp2(scales.float() - 127) if scales.dtype == torch.uint8 else scales.float()


def divisor(params, at, codes):
    """NVFP4's second scale, of each expert; parts that vLLM holds as one must agree."""
    found = params.get(at + "weight_global_scale")
    if found is None:
        return 1
    found = found.float().reshape(codes.shape[0] if codes.dim() == 3 else 1, -1)
    if not (found == found[:, :1]).all():
        raise ValueError(f"{at}: global scales of the parts differ: {found.tolist()}")
    return found[:, :1, None] if codes.dim() == 3 else found[0, 0]


def of_parts(scales, shape, widths):
    """One scale of each part of a weight that vLLM holds as one, for each row. A matrix that is one in
    the file, too, has its scale in the first place, and no positive ones behind it."""
    import torch

    scales = scales.float().reshape(*shape[:-2], -1)
    parts = scales.shape[-1]
    if parts > 1 and (scales[..., 1:] <= 0).all():
        scales = scales[..., :1].expand_as(scales)
    if not widths or len(widths) != parts:
        widths = [shape[-2] // parts] * parts
    if sum(widths) != shape[-2]:
        raise ValueError(f"{parts} scales for parts of {widths} rows of {shape[-2]}")
    return scales.repeat_interleave(torch.tensor(widths), dim=-1)[..., None]


def of_gptq(params, at, shape):
    """K/8 or K/4 words to a column, one scale and zero point to a group of K; those of AutoGPTQ are
    stored one too low."""
    import torch

    words, scales, zeros = (params[at + end] for end in ("qweight", "scales", "qzeros"))
    bits = 32 * words.shape[-2] // shape[-1]
    codes = codes_of(words.transpose(-1, -2), bits)
    group = shape[-1] // scales.shape[-2]
    order = params.get(at + "g_idx")
    if order is not None and order.numel() and not torch.equal(
            order, (torch.arange(shape[-1]) // group).to(order.dtype).expand_as(order)):
        raise ValueError(f"{at}g_idx is another order than that of the columns")
    zero = codes_of(zeros, bits) + 1
    blocks = {-2: 1, -1: group}
    return ((codes - spread(zero.transpose(-1, -2), shape, blocks)).float()
            * spread(scales.float().transpose(-1, -2), shape, blocks))


def of_awq(params, at, shape):
    """[K,N/8] words of eight columns, one scale and zero point to a group of K."""
    import torch

    def columns(words):
        eights = codes_of(words, 4).unflatten(-1, (-1, 8))
        return eights[..., torch.argsort(torch.tensor(AWQ))].flatten(-2).transpose(-1, -2)

    scales = params[at + "scales"]
    blocks = {-2: 1, -1: shape[-1] // scales.shape[-2]}
    return ((columns(params[at + "qweight"])
             - spread(columns(params[at + "qzeros"]), shape, blocks)).float()
            * spread(scales.float().transpose(-1, -2), shape, blocks))


def of_words(packed, scale, shape):
    """Codes with an offset, along K; the kernels of experts have [E,K,N]."""
    bits = 32 * packed.numel() // shape.numel()
    if packed.shape[-2] != shape[-2]:
        packed, scale = packed.transpose(-1, -2), scale.transpose(-1, -2)
    codes = codes_of(packed, bits).float() - 2 ** (bits - 1)
    return codes * spread(scale.float(), shape, {-2: 1, -1: shape[-1] // scale.shape[-1]})


def decoded(params, at, shape, widths=None):
    """The weight [N,K] or [E,N,K] whose parameters begin with `at`; None if it is not converted.
    `widths`: the rows of each of the parts that vLLM holds as one."""
    import torch

    words = params.get(at + "qweight")
    if words is not None:
        return (of_awq if words.shape[-2] == shape[-1] else of_gptq)(params, at, shape)
    packed, plain = params.get(at + "weight_packed"), params.get(at + "weight")
    scale = params.get(at + "weight_scale_inv", params.get(at + "weight_scale"))
    if packed is not None and packed.dtype == torch.int32:
        return of_words(packed, scale, shape)
    if packed is not None:
        codes = codes_of_fp4(packed)
    elif plain is not None and plain.dtype in (torch.float8_e4m3fn, torch.int8):
        codes = plain.float()
    else:
        return None
    if plain is not None and scale.dim() < codes.dim():
        return codes * of_parts(scale, codes.shape, widths)
    n, k = scale.shape[-2:]
    blocks = {-2: 1 if n == codes.shape[-2] else 128,
              -1: 128 if n != codes.shape[-2] else codes.shape[-1] // k}
    return codes * spread(powers(scale), codes.shape, blocks) / divisor(params, at, codes)
