"""vLLM's worker sleeps and wakes up, and loads weights anew, on a machine without a GPU.

Worker.sleep(), wake_up() and reload_weights() are vLLM's own. What a GPU's allocator does to memory
is done here, under the name of a backend as vLLM takes them: level 1 keeps all of it on the host,
level 2 loses it; it comes back at the same addresses, with whatever lies there.
"""
import torch
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

GARBAGE = 0xA5


def tensors(thing, seen, depth=4):
    """All tensors that an object of vLLM holds, and what is inside of it."""
    values = thing.values() if isinstance(thing, dict) else vars(thing).values()
    for value in list(values):
        if isinstance(value, torch.Tensor):
            yield value
        elif depth and id(value) not in seen and (
                isinstance(value, dict) or hasattr(value, "__dict__") and
                type(value).__module__.startswith(("vllm.", "triton_kernels.", "tilepack_llm."))):
            seen.add(id(value))
            yield from tensors(value, seen, depth - 1)


def memory(model):
    """Bytes of everything that the model, its layers and kernels hold, by address."""
    seen = {id(model)}
    found = [*model.parameters(), *model.buffers()]
    for module in model.modules():
        found += tensors(module, seen)
    storages = [one.untyped_storage() for one in found if not one.is_meta and one.numel()]
    return {one.data_ptr(): torch.empty(0, dtype=torch.uint8).set_(one) for one in storages}


class Memory(SleepModeBackend):
    model = None

    def suspend(self, level=1):
        held = memory(self.model)
        self.kept = {at: one.clone() for at, one in held.items()} if level == 1 else {}
        for one in held.values():
            one.fill_(GARBAGE)

    def resume(self, tags=None):
        held = memory(self.model)
        for at, one in self.kept.items():
            held[at].copy_(one)


class Runner(GPUModelRunner):
    def __init__(self, config, model):  # pylint: disable=super-init-not-called
        self.vllm_config, self.model = config, model

    def forget(self):
        """There are no requests."""
    reset_lora_state = reset_encoder_cache = reset_mm_cache = forget


class Sleeper(Worker):
    def __init__(self, config, model):  # pylint: disable=super-init-not-called
        self.vllm_config, self.model_config = config, config.model_config
        self.model_runner = Runner(config, model)
        self._sleep_saved_buffers, self._sleep_saved_draft_buffers = {}, {}
        self._sleep_saved_parameters = {}
        self._sleep_mode_backend = Memory()
        self._sleep_mode_backend.model = model


def sleep(config, model, levels):
    """Sleeps once for each level, and after level 2 loads the weights anew. Returns the names of
    parameters that did not lose their values while the worker slept."""
    torch.accelerator.get_memory_info = lambda *args: (1 << 30, 2 << 30)
    worker, awake = Sleeper(config, model), []
    for level in levels:
        worker.sleep(level)
        awake += [name for name, p in model.named_parameters()
                  if bool((p.data.contiguous().flatten().view(torch.uint8) != GARBAGE).any())]
        worker.wake_up(["weights"])
        if level == 2:
            worker.reload_weights()
    return awake
