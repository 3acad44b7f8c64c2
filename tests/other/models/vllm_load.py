"""Loads models and their conversions with vLLM's real loader, and compares every parameter.

    vllm_load.py DRIVER < JOBS

JOBS: lines of JSON, {"name", "source": DIR, "outputs": {FORMAT: DIR}, "plugged": {FORMAT: [STOCK, DIR]}};
with "gpu": "sm80" or "sm100" on such a one, else on SM90.
The source is loaded unquantized, then each output, strictly. What vLLM holds of a converted weight is
decoded (decode.py) and compared with the source's; everything else has to be equal. What the plug-in
hands to kernels has to be what stock vLLM makes of the interchange checkpoint STOCK, byte for byte.
Prints `@{"name", "gpu", "format", "worst", "converted"}` or, of the plug-in, "operands" in place of
these two, or "error".

vLLM is imported once; a process is forked off for each model, JOBS_AT_ONCE of them side by side.
"""
import json
import os
import signal
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "vllm"))
import compare as operands  # noqa: E402
import load  # noqa: E402
import pretend  # noqa: E402
import zoo  # noqa: E402
from decode import decoded  # noqa: E402

GPU = "sm90"
SECONDS = 1200  # for one model in all formats


def compare(source, params, widths):
    """(worst relative error, how many weights are converted)."""
    import torch

    worst, count = 0.0, 0
    for name, want in source.items():
        at = name[:-len("weight")] if name.endswith("weight") else name + "?"
        got = decoded(params, at, want.shape, widths.get(at))
        if got is None:
            if name not in params:
                raise ValueError(f"{name} is neither plain nor decoded")
            rows = next((rows for end, rows in zoo.PADDED.items() if name.endswith(end)), None)
            if not torch.equal(params[name][:rows], want[:rows]):
                raise ValueError(f"{name} is not the source's")
            continue
        want = want.float()
        error = ((got - want).norm() / want.norm()).item()
        if got.shape != want.shape or not error < 0.5:
            raise ValueError(f"{name}: {list(got.shape)} for {list(want.shape)}, error {error}")
        worst, count = max(worst, error), count + 1
    return worst, count


def options_of(path):
    """Of the engine, by what the model's attention is."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        keys = f.read()
    if '"index_topk"' in keys:  # sparse attention: its backend is chosen by the model
        return {"attention_backend": None}
    return {"attention_backend": "TRITON_MLA"} if '"kv_lora_rank"' in keys else {}


def built(path, strict, **options):
    """(configuration, model that has no weights yet)."""
    import vllm.platforms

    from vllm.v1.worker.workspace import init_workspace_manager

    init_workspace_manager("cpu")
    options = {**options_of(path), **options}
    if options.get("attention_backend", "") is None:
        vllm.platforms._current_platform.device_type = "cpu"  # it makes buffers there
    config = load.engine(path, 1, options, strict)
    try:
        return config, load.build(config, 1, 0, 20000 + os.getpid() % 10000)
    finally:
        vllm.platforms._current_platform.device_type = "cuda"


def parameters(path, strict):
    """({name: parameter}, {where a weight's parameters begin: rows of its parts})."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    config, model = built(path, strict)
    with set_current_vllm_config(config):
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    widths = {name + ".": module.logical_widths for name, module in model.named_modules()
              if getattr(module, "logical_widths", None)}
    return {name: p.detach() for name, p in model.named_parameters()}, widths


def handed(path, capability, out, **options):
    """Saves all operands of kernels."""
    import torch

    config, model = built(path, False, **options)
    moved = load.load(config, model)
    found = {}
    for name, module in model.named_modules():
        values = load.operands(module, getattr(module, "quant_method", None), capability, name)
        if values:
            found[name] = {key: load.plain(value) for key, value in values.items()}
    torch.save(found, out)
    return moved


class Job:
    """One model, in a process of its own."""

    def __init__(self, name, source, outputs, plugged=None, gpu=GPU, **_):
        self.gpu, self.name, self.source = gpu, name, source
        self.outputs, self.plugged, self.plain = outputs, plugged or {}, {}

    def tell(self, what, function, *args):
        try:
            found = function(*args)
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            text = " ".join(f"{type(error).__name__}: {error}".split())[:600]
            found = {"error": text}
        line = json.dumps({"name": self.name, "gpu": self.gpu, "format": what, **found})
        os.write(1, f"@{line}\n".encode())  # in one piece: another process writes, too
        return "error" not in found

    def of_source(self):
        self.plain = parameters(self.source, True)[0]
        return {}

    def of_output(self, fmt, path):
        # Strictly but where vLLM registers what nothing reads: scales of activations for NVFP4, biases
        # of experts for GPTQ.
        strict = fmt not in ("nvfp4-ct", "gptq") and self.name not in zoo.UNCOUNTED
        worst, count = compare(self.plain, *parameters(path, strict))
        if not count:
            raise ValueError("nothing is converted")
        return {"worst": worst, "converted": count}

    def of_plugin(self, fmt, stock, path):
        options = zoo.PLUGGED[fmt][1]
        with tempfile.TemporaryDirectory() as work:
            saved = [os.path.join(work, f"{side}.pt") for side in ("stock", "plugin")]
            handed(stock, int(self.gpu[2:]), saved[0], **options)
            moved = handed(path, int(self.gpu[2:]), saved[1])
            wrong, count, _ = operands.compare(*saved, "", "")
        if moved or wrong or not count:
            raise ValueError(f"{moved} bytes moved, {count} operands, {len(wrong)} differ: "
                             f"{'; '.join(wrong[:3])}")
        return {"operands": count}

    def run(self):
        if self.gpu != GPU:
            pretend.become(int(self.gpu[2:]))
        if self.tell("source", self.of_source):
            for fmt, path in self.outputs.items():
                self.tell(fmt, self.of_output, fmt, path)
            for fmt, (stock, path) in self.plugged.items():
                self.tell(fmt, self.of_plugin, fmt, stock, path)


def fork(line):
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(SECONDS)
    try:
        Job(**json.loads(line)).run()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # vLLM's threads have nothing to finish


def wait_for_one(running):
    pid, status = os.wait()
    line = json.loads(running.pop(pid))
    if status:
        print("@" + json.dumps({"name": line["name"], "gpu": line.get("gpu", GPU), "format": "source",
                                "error": f"its process ended with {status}"}), flush=True)


def main(driver):
    pretend.platform(driver, int(GPU[2:]), 1)
    import torch
    import vllm.model_executor.model_loader  # noqa: F401
    from vllm.plugins import load_general_plugins

    torch.set_num_threads(1)
    load_general_plugins()
    pretend.operators()
    running = {}
    for line in sys.stdin:
        if len(running) == int(os.environ.get("JOBS_AT_ONCE", "2")):
            wait_for_one(running)
        running[fork(line)] = line
    while running:
        wait_for_one(running)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
