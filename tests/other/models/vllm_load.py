"""Loads models and their conversions with vLLM's real loader, and compares every parameter.

    vllm_load.py DRIVER CAPABILITY < JOBS

JOBS: lines of JSON, {"name", "source": DIR, "outputs": {FORMAT: DIR}}. The source is loaded
unquantized, then each output, strictly. What vLLM holds of a converted weight is decoded, from its
names and dtypes alone, and compared with the source's; everything else has to be equal.
Prints `@{"name", "format", "worst", "converted"}`, or "error" in place of the figures.
"""
import json
import os
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "vllm"))
import load  # noqa: E402
import pretend  # noqa: E402
import zoo  # noqa: E402

E2M1 = (0, .5, 1, 1.5, 2, 3, 4, 6)


def spread(scales, shape, blocks):
    """One scale of each block, for each element; the last blocks may be cut."""
    for axis in (-2, -1):
        scales = scales.repeat_interleave(blocks[axis], dim=axis)
    return scales[..., :shape[-2], :shape[-1]]


def codes_of_int(packed, bits):
    import torch

    shifts = torch.arange(0, 32, bits)
    codes = (packed[..., None] >> shifts) & (2 ** bits - 1)
    return codes.flatten(-2).float() - 2 ** (bits - 1)


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


def of_whole(scale, codes):
    """One scale of each weight: of parts that vLLM holds as one they must agree."""
    parts = scale.float().reshape(codes.shape[0] if codes.dim() == 3 else 1, -1)
    if not (parts == parts[:, :1]).all():
        raise ValueError(f"scales of the parts differ: {parts.tolist()}")
    return codes * (parts[:, :1, None] if codes.dim() == 3 else parts[0, 0])


def decoded(params, at, columns):
    """float32 of the weight whose parameters begin with `at`; None if it is not converted."""
    import torch

    words = params.get(at + "qweight")
    if words is not None and words.dim() == 2 and 8 * words.shape[0] == columns:  # GPTQ
        codes = codes_of_int(words.T.contiguous(), 4)
        return codes * spread(params[at + "scales"].float().T, codes.shape,
                              {-2: 1, -1: columns // params[at + "scales"].shape[0]})
    packed, plain = params.get(at + "weight_packed"), params.get(at + "weight")
    scale = params.get(at + "weight_scale_inv", params.get(at + "weight_scale"))
    if packed is not None:
        codes = (codes_of_int(packed, 32 * packed.shape[-1] // columns)
                 if packed.dtype == torch.int32 else codes_of_fp4(packed))
    elif plain is not None and plain.dtype == torch.float8_e4m3fn:
        codes = plain.float()
    else:
        return None
    if plain is not None and scale.dim() < codes.dim():
        return of_whole(scale, codes)
    n, k = scale.shape[-2:]
    blocks = {-2: 1 if n == codes.shape[-2] else 128,
              -1: 128 if n != codes.shape[-2] else codes.shape[-1] // k}
    return codes * spread(powers(scale), codes.shape, blocks) / divisor(params, at, codes)


def compare(source, params):
    """(worst relative error, how many weights are converted)."""
    import torch

    worst, count = 0.0, 0
    for name, want in source.items():
        at = name[:-len("weight")] if name.endswith("weight") else name + "?"
        got = decoded(params, at, want.shape[-1])
        if got is None:
            if name not in params:
                raise ValueError(f"{name} is neither plain nor decoded")
            if not torch.equal(params[name], want):
                raise ValueError(f"{name} is not the source's")
            continue
        want = want.float()
        error = ((got - want).norm() / want.norm()).item()
        if got.shape != want.shape or not error < 0.5:
            raise ValueError(f"{name}: {list(got.shape)} for {list(want.shape)}, error {error}")
        worst, count = max(worst, error), count + 1
    return worst, count


def parameters(path, strict):
    import vllm.platforms
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        keys = f.read()
    backend = {"attention_backend": "TRITON_MLA"} if '"kv_lora_rank"' in keys else {}
    if '"index_topk"' in keys:  # sparse attention: its backend is chosen by the model
        backend = {"attention_backend": None}
        vllm.platforms._current_platform.device_type = "cpu"  # it makes buffers there
    config = load.engine(path, 1, backend, strict)
    try:
        model = load.build(config, 1, 0, 29777)
    finally:
        vllm.platforms._current_platform.device_type = "cuda"
    with set_current_vllm_config(config):
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    return {name: p.detach() for name, p in model.named_parameters()}


def job(name, source, outputs, **_):
    def tell(what, function):
        try:
            found = function()
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())[:600]
            found = {"error": text}
        print("@" + json.dumps({"name": name, "format": what, **found}), flush=True)
        return found

    def of_source():
        plain.update(parameters(source, True))
        return {}

    def of_output(fmt, path):
        # Strictly but for NVFP4, of whose activations vLLM registers scales that nothing reads.
        strict = fmt != "nvfp4-ct" and name not in zoo.UNCOUNTED
        worst, count = compare(plain, parameters(path, strict))
        if not count:
            raise ValueError("nothing is converted")
        return {"worst": worst, "converted": count}

    plain = {}
    if "error" in tell("source", of_source):
        return
    for fmt, path in outputs.items():
        tell(fmt, lambda fmt=fmt, path=path: of_output(fmt, path))


def main(driver, capability):
    pretend.platform(driver, int(capability), 1)
    import torch

    torch.set_num_threads(1)
    pretend.operators()
    for line in sys.stdin:
        job(**json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
