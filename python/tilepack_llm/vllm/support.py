"""What vLLM's kernels read as it lies, on which GPU, and the sentences of refusal. No vllm."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnsupportedError

VLLM = ("0.33",)  # minors that this was tested with
MANIFEST_VERSION = 1


class Refused(UnsupportedError):
    """This checkpoint cannot be served here; the text says why and what to do.

    No ValueError: vLLM's configuration would bury its sentence in the report of a validation.
    """


@dataclass(frozen=True)
class Support:
    """A format that vLLM's kernels read.

    version   of the format, as descriptors have it
    device    the GPU that it is for
    capability, family   its compute capability times ten: exactly, or every one of that family
    experts   its stacks of experts can be served too
    """

    version: int
    device: str
    capability: int
    family: bool
    experts: bool

    def runs_on(self, capability: int) -> bool:
        return (
            capability // 10 == self.capability // 10
            if self.family
            else (capability == self.capability)
        )


_HOPPER = ("Hopper (SM90: H100, H200)", 90, False)
_BLACKWELL = ("data-centre Blackwell (SM100: B200, GB200)", 100, True)

SUPPORTED = {
    "w4a8-cutlass": Support(1, *_HOPPER, True),
    "fp8-deepgemm-sm100": Support(1, *_BLACKWELL, True),
    "mxfp8-blocked": Support(1, *_BLACKWELL, False),
    "mxfp4-blocked": Support(1, *_BLACKWELL, True),
}


def check_version(version: str) -> None:
    """Refuses a vLLM whose internals this was not tested with."""
    if not any(version == minor or version.startswith(minor + ".") for minor in VLLM):
        raise Refused(
            f"vLLM {version}: this plugin was tested with {', '.join(VLLM)}",
            hint="install tilepack-llm[vllm], which takes such a version",
        )


def check_format(name: str, fmt: str, version: int) -> Support:
    """What is known of the format of the weight `name`; Refused when vLLM does not read it."""
    support = SUPPORTED.get(fmt)
    if support is None:
        raise Refused(
            f"{name}: no kernel of vLLM reads {fmt} as it lies",
            hint=f"convert to one of {', '.join(sorted(SUPPORTED))}, or to a format that stock "
            "vLLM loads (the ones whose names end in -ct)",
        )
    if version != support.version:
        raise Refused(
            f"{name}: {fmt} of version {version}, this plugin reads {support.version}",
            hint="update tilepack-llm, or convert again",
        )
    return support


def check_device(name: str, fmt: str, capability: int | None, device: str) -> None:
    """Refuses a format on a GPU whose kernels read other bytes."""
    support = SUPPORTED[fmt]
    if capability is None or not support.runs_on(capability):
        raise Refused(
            f"{name}: {fmt} is for {support.device}, and this is {device}",
            hint="convert the source to a format for this GPU",
        )


def check_boxes(
    prefix: str, stored: dict[str, tuple[int, int, int]], model: dict[str, tuple[int, int, int]]
) -> None:
    """Refuses a checkpoint whose weights have other sizes than the model asks for."""
    for part, box in model.items():
        if stored[part] != box:
            raise Refused(
                f"{prefix}: {part} is {list(stored[part])} in the checkpoint, and the model asks "
                f"for {list(box)}",
                hint="its config.json must be that of the converted source; sizes that vLLM "
                "rounds up for a backend need --moe-backend of another",
            )
