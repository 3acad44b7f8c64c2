#!/usr/bin/env python3
"""Runs vLLM on a GPU, job by job, each in a process forked from one that has imported vLLM.

    jobs.py JOBS.json OUT [SECONDS]      no job is begun SECONDS (600) after the start

JOBS is a list of {"name", "do", "model", ...}; OUT/NAME.json gets what was measured, OUT/NAME.log
what the process said. `do` is
    load      builds the model and loads it, `rounds` times, by the function of vLLM's worker
    generate  vllm.LLM() and greedy tokens; `then`: "sleep" or "reload", and the tokens once more
    serve     `vllm serve`, and greedy tokens through /v1/completions
    products  what linear layers make of an identity, and experts of what they see, beside the
              checkpoint's decoded values
`args` are arguments of the engine, `cores` holds the process to as many processors, `timeout`
ends it, `env` has variables, `together` lets others run beside it. Nothing in vLLM is changed:
three of its functions are wrapped to be timed, and two of the plug-in.
"""
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import urllib.request

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
TOKENS = 32
TEXTS = ["The capital of France is", "Plants use light to", "In the year 1969 the first people",
         "A good recipe for bread begins with", "def fibonacci(n):\n", "The largest planet is",
         "She opened the door, and behind it", "To sort a list of numbers, one can"]
TOGETHER = 12
ARGS = {"enforce_eager": True, "max_model_len": 512, "skip_tokenizer_init": True,
        "dtype": "bfloat16", "enable_prefix_caching": False, "gpu_memory_utilization": 0.5,
        "kv_cache_memory_bytes": 1 << 30, "attention_backend": "TRITON_ATTN"}


class Clock:
    """Seconds and memory of wrapped functions, in the order in which they returned."""

    def __init__(self):
        self.steps, self.copying, self.flushing, self.flushes = [], 0.0, 0.0, 0

    def timed(self, name, function):
        import torch

        def call(*args, **kwargs):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.copying, self.flushing, self.flushes = 0.0, 0.0, 0
            begin = time.perf_counter()
            out = function(*args, **kwargs)
            torch.cuda.synchronize()
            self.steps.append({
                "step": name, "seconds": time.perf_counter() - begin, "copying": self.copying,
                "flushing": self.flushing, "flushes": self.flushes,
                "peak": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved(),
                "after": torch.cuda.memory_allocated()})
            return out
        return call

    def added(self, name, function):
        def call(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                setattr(self, name, getattr(self, name) + time.perf_counter() - begin)
                self.flushes += name == "flushing"
        return call

    def watch(self):
        import vllm.model_executor.model_loader.base_loader as base
        import vllm.model_executor.model_loader.default_loader as default
        from vllm.plugins import load_general_plugins

        load_general_plugins()
        base.process_weights_after_loading = self.timed("process",
                                                        base.process_weights_after_loading)
        for owner, name, step in ((default.DefaultModelLoader, "load_weights", "load"),
                                  (base.BaseModelLoader, "create_model", "create")):
            setattr(owner, name, self.timed(step, getattr(owner, name)))
        from tilepack_llm import parts
        from tilepack_llm.vllm import staging

        parts.copy = self.added("copying", parts.copy)
        staging.Staging.flush = self.added("flushing", staging.Staging.flush)


def engine_config(job):
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(model=job["model"], **{**ARGS, **job.get("args", {})}).create_engine_config()


def load(job, result, clock):
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader import get_model

    torch.cuda.set_device(0)
    rounds = []
    for i in range(job.get("rounds", 3)):
        config = engine_config(job)
        with set_current_vllm_config(config):
            if i == 0:
                init_distributed_environment(1, 0, f"tcp://127.0.0.1:{20000 + os.getpid() % 10000}",
                                             0, backend="nccl")
                initialize_model_parallel(1, 1)
            clock.steps = []
            model = get_model(vllm_config=config)
        rounds.append(clock.steps)
        del model, config
        gc.collect()
        torch.cuda.empty_cache()
    result["rounds"] = rounds


def prompts(model):
    """Token numbers of TEXTS; without a tokenizer any that are below every vocabulary's size."""
    if not os.path.exists(os.path.join(model, "tokenizer.json")):
        return [[1] + [(i * 37 + j * 11) % 30000 + 3 for j in range(24)] for i in range(len(TEXTS))]
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)(TEXTS).input_ids


def tokens(llm, asked):
    from vllm import SamplingParams

    wanted = SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=5, prompt_logprobs=1,
                            ignore_eos=True, detokenize=False)
    found = []
    for out in llm.generate([{"prompt_token_ids": ids} for ids in asked], wanted, use_tqdm=False):
        one = out.outputs[0]
        found.append({
            "ids": list(one.token_ids),
            "logprobs": [{str(t): lp.logprob for t, lp in step.items()} for step in one.logprobs],
            "prompt": [next(iter(step.values())).logprob if step else None
                       for step in out.prompt_logprobs]})
    return found


def generate(job, result, clock):
    import torch
    from vllm import LLM

    more = {"enable_sleep_mode": True} if job.get("then") == "sleep" else {}
    begin = time.perf_counter()
    llm = LLM(model=job["model"], **{**ARGS, **more, **job.get("args", {})})
    torch.cuda.synchronize()
    result["start"] = time.perf_counter() - begin
    result["rounds"] = [list(clock.steps)]
    asked = prompts(job["model"])
    result["outputs"] = tokens(llm, asked)
    if job.get("then") == "sleep":
        llm.sleep(level=1)
        llm.wake_up()
    elif job.get("then") == "reload":
        llm.collective_rpc("reload_weights")
    if job.get("then"):
        result["again"] = tokens(llm, asked)
        result["steps"] = clock.steps


def answered(url, body=None, timeout=120):
    """The JSON of an answer; None where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read() or "true")
    except OSError:
        return None


def completion(url, ids):
    """In the form of `tokens`, with texts of tokens for their numbers."""
    found = answered(url, {"model": "m", "prompt": ids, "max_tokens": TOKENS, "temperature": 0,
                           "logprobs": 5, "ignore_eos": True})["choices"][0]["logprobs"]
    return {"ids": found["tokens"], "logprobs": found["top_logprobs"], "prompt": []}


def serve(job, result, clock):
    del clock
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING")
    port, begin = 20000 + os.getpid() % 10000, time.perf_counter()
    # The tokenizer belongs to the server, which answers with text.
    given = {key: value for key, value in {**ARGS, **job.get("args", {}), "port": port}.items()
             if key != "skip_tokenizer_init"}
    words = [word for key, value in given.items() for word in flag(key, value)]
    with subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", job["model"],
                           "--served-model-name", "m", *words]) as server:
        try:
            base = f"http://127.0.0.1:{port}"
            while answered(base + "/health", timeout=2) is None:
                if server.poll() is not None:
                    raise RuntimeError(f"the server ended with {server.returncode}")
                time.sleep(0.1)
            result["answers"] = time.perf_counter() - begin
            result["outputs"] = [completion(base + "/v1/completions", ids)
                                 for ids in prompts(job["model"])]
        finally:
            server.terminate()


def flag(key, value):
    """Words of the command line for an argument of the engine."""
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return ["--" + ("" if value else "no-") + name]
    return ["--" + name, json.dumps(value) if isinstance(value, dict) else str(value)]


MERGED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def values_of(checkpoint, name):
    import torch

    return torch.from_numpy(checkpoint.values(name)).cuda()


def products_of(model, path):
    """[(name, largest difference, largest value)] of merged parts of linear layers of layer 0."""
    import tilepack_llm as tp
    import torch

    checkpoint, found = tp.open(path), []
    for name, module in model.named_modules():
        head, _, last = name.rpartition(".")
        if ".layers.0." not in name or not hasattr(module, "input_size_per_partition"):
            continue
        parts = [f"{head}.{part}" for part in MERGED.get(last, (last,))]
        if not all(part in checkpoint.weights for part in parts):
            continue
        wanted = torch.cat([values_of(checkpoint, part).reshape(-1, module.input_size_per_partition)
                            for part in parts])
        x = torch.eye(wanted.shape[1], dtype=torch.bfloat16, device="cuda")
        made = module.quant_method.apply(module, x, None).float().t()
        found.append((name, float((made - wanted).abs().max()), float(wanted.abs().max())))
    return found


def watch_experts(model):
    """Keeps what goes into the experts of layer 0, and what comes out, for `experts_of`."""
    for name, module in model.named_modules():
        if name.endswith(".layers.0.block_sparse_moe"):
            module.register_forward_pre_hook(
                lambda self, given: setattr(self, "given", given[0].clone()))
            module.register_forward_hook(
                lambda self, given, made: setattr(self, "made", made.clone()))


def mixed(x, gate, w13, w2):
    """What the two best experts of each token make of it, in float32."""
    import torch

    scores, experts = torch.softmax(x @ gate.t(), -1).topk(2, -1)
    scores, out = scores / scores.sum(-1, keepdim=True), torch.zeros_like(x)
    for expert in range(len(w13)):
        here, place = (experts == expert).nonzero(as_tuple=True)
        inner, up = (x[here] @ w13[expert].t()).chunk(2, -1)
        made = (torch.nn.functional.silu(inner) * up) @ w2[expert].t()
        out[here] += scores[here, place, None] * made
    return out


def experts_of(model, path):
    """[(name, size of the difference, size of the values)] of the experts of layer 0."""
    import tilepack_llm as tp

    checkpoint, found = tp.open(path), []
    for name, module in model.named_modules():
        if hasattr(module, "made"):
            w13, w2 = (values_of(checkpoint, f"{name}.experts.{part}") for part in ("w13", "w2"))
            wanted = mixed(module.given.float(), module.gate.weight.float(), w13, w2)
            found.append((name, float((module.made.float() - wanted).norm()), float(wanted.norm())))
    return found


def products(job, result, clock):
    import functools

    from vllm import LLM

    del clock
    llm, path = LLM(model=job["model"], **{**ARGS, **job.get("args", {})}), job.get("values", job["model"])
    result["products"] = llm.apply_model(functools.partial(products_of, path=path))[0]
    llm.apply_model(watch_experts)
    tokens(llm, prompts(job["model"])[:1])
    result["experts"] = llm.apply_model(functools.partial(experts_of, path=path))[0]


def run(job, out):
    log = os.open(f"{out}/{job['name']}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    result = {"name": job["name"], "ok": False}
    if job.get("cores"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:job["cores"]])
    try:
        os.environ.update(job.get("env", {}))
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        clock = Clock()
        clock.watch()
        {"load": load, "generate": generate, "serve": serve, "products": products}[job["do"]](job, result, clock)
        result["ok"] = True
    except BaseException as error:  # pylint: disable=broad-except
        traceback.print_exc()
        result["error"] = f"{type(error).__name__}: {str(error)[:600]}"
    with open(f"{out}/{job['name']}.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.stdout.flush()
    os._exit(0 if result["ok"] else 1)


class Running:
    """Jobs that were begun. One that is timed runs alone; others, `together`, some at a time."""

    def __init__(self, out):
        self.out, self.jobs = out, {}

    def fits(self, job):
        together = [job, *(one for one, _ in self.jobs.values())]
        return len(together) == 1 or (len(together) <= TOGETHER
                                      and all(one.get("together") for one in together))

    def begin(self, job):
        while not self.fits(job):
            self.wait()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run(job, self.out)
        self.jobs[pid] = (job, time.monotonic())

    def wait(self):
        """Until one has ended, by itself or by its timeout."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in self.jobs:
                break
            for pid, (job, begin) in self.jobs.items():
                if time.monotonic() - begin > job.get("timeout", 60):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        job, begin = self.jobs.pop(pid)
        print(f"{'ok  ' if status == 0 else 'FAIL'} {job['name']:32s} "
              f"{time.monotonic() - begin:6.1f} s", flush=True)


def main(jobs, out, seconds="600"):
    begin = time.monotonic()
    os.makedirs(out, exist_ok=True)
    import vllm  # noqa: F401
    from vllm import LLM, SamplingParams  # noqa: F401
    from vllm.v1.engine import llm_engine  # noqa: F401
    print(f"import vllm: {time.monotonic() - begin:.1f} s", flush=True)
    while not os.path.exists(jobs):
        time.sleep(0.2)  # the models are still being made
    with open(jobs, encoding="utf-8") as file:
        jobs = json.load(file)
    running = Running(out)
    for job in jobs:
        if time.monotonic() - begin > float(seconds):
            print("left out  " + job["name"], flush=True)
            continue
        running.begin(job)
    while running.jobs:
        running.wait()


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
