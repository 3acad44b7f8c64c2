"""What the tensors of a quantized weight mean, in float32, by the documents of their writers.

Shares nothing with tilepack but the order of two roundings of NVFP4: its scales are multiplied first.
"""
E2M1 = (0., .5, 1, 1.5, 2, 3, 4, 6)


def bits_of(words, bits, order=None):
    """[..., W] of int32 to [..., W * 32 / bits]: codes from the lowest bits on, in this order."""
    import torch

    shifts = torch.tensor([bits * i for i in order or range(32 // bits)])
    return ((words[..., None].long() >> shifts) & (2 ** bits - 1)).flatten(-2)


def of_fp4(packed):
    """Two codes to a byte, the first one in the low half."""
    import torch

    table = torch.tensor(E2M1 + tuple(-v for v in E2M1))
    return table[torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()]


def of_scale(scale):
    """E8M0 is stored as bytes; of torch's arithmetic only float32 is used."""
    import torch

    return torch.exp2(scale.float() - 127) if scale.dtype == torch.uint8 else scale.float()


def times(codes, scale):
    """One scale of each block: [], [N], [N,1], [N,K/G], [N/R,K/G] or [N/R,1,K/G,1]."""
    import torch

    scale = of_scale(scale)
    if scale.dim() == 4:
        scale = scale[:, 0, :, 0]
    if scale.dim() == 1 and scale.numel() > 1:
        scale = scale[:, None]
    if scale.dim() == 2:
        for axis in (0, 1):
            index = torch.arange(codes.shape[axis]) * scale.shape[axis] // codes.shape[axis]
            scale = scale.index_select(axis, index)
    return codes.float() * scale


def of_scaled(t):
    """t: {suffix: tensor} of one weight as ModelOpt and, by other names, llm-compressor store it;
    None of a plain one."""
    import torch

    codes, scale = t.get("weight_packed", t.get("weight")), t.get("weight_scale")
    scale = t.get("weight_scale_inv", scale)
    if scale is None:
        return None
    if "weight_scale_2" in t:
        scale = of_scale(scale) * t["weight_scale_2"].float()
    if "weight_global_scale" in t:
        scale = of_scale(scale) / t["weight_global_scale"].float()
    if codes.dtype == torch.int32:
        return times(bits_of(codes, 32 * codes.shape[1] // int(t["weight_shape"][1])) - 8, scale)
    return times(of_fp4(codes) if codes.dtype == torch.uint8 else codes, scale)


def of_packed(t, bits):
    """GPTQ, whose codes lie along K and whose zero points are stored less one; AutoAWQ, where both
    lie along N, in an order of its own."""
    import torch

    if t["qweight"].shape[1] == t["scales"].shape[1]:
        codes, order, add = bits_of(t["qweight"].T, bits), None, 1
    else:
        order, add = (0, 4, 1, 5, 2, 6, 3, 7), 0
        codes = bits_of(t["qweight"], bits, order).T
    zeros = bits_of(t["qzeros"], bits, order).T + add
    group = torch.arange(codes.shape[1]) * zeros.shape[1] // codes.shape[1]
    return (codes - zeros[:, group]).float() * t["scales"].float().T[:, group]


def of_file(path, decode):
    """{name of each packed weight: float32}; `decode` of {suffix: tensor}, None of a plain one."""
    import collections

    from safetensors.torch import load_file

    modules = collections.defaultdict(dict)
    for name, tensor in load_file(path).items():
        module, _, suffix = name.rpartition(".")
        modules[module][suffix] = tensor
    found = {name + ".weight": decode(parts) for name, parts in modules.items()}
    return {name: values.contiguous() for name, values in found.items() if values is not None}
