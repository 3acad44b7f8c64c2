"""What vLLM's kernels read as it lies, on which GPU, and the sentences of refusal. No vllm."""

from __future__ import annotations

from dataclasses import dataclass

from .._formats import format_facts
from ..errors import UnsupportedError

VLLM = ("0.33",)  # minors that this was tested with
MANIFEST_VERSION = 1
STORED = "stored_"  # before the names of parameters of experts until they are loaded


class Refused(UnsupportedError):
    """This checkpoint cannot be served here; the text says why and what to do.

    No ValueError: vLLM's configuration would bury its sentence in the report of a validation.
    """


@dataclass(frozen=True)
class Support:
    """A format that vLLM's kernels read.

    version   of the format, as descriptors have it
    device    the GPUs that it is for
    first, last   their compute capabilities times ten
    linear, experts   which layers of it can be served
    """

    version: int
    device: str
    first: int
    last: int
    linear: bool = True
    experts: bool = False

    def runs_on(self, capability: int) -> bool:
        return self.first <= capability <= self.last


_AMPERE = ("A100 and later (SM80: A100, L40S, RTX 30 to RTX 50, H100, B200)", 80, 129)
_HOPPER = ("Hopper (SM90: H100, H200)", 90, 90)
_FP4_UNITS = ("Blackwell (SM100 and later: B200, GB200, RTX 50, RTX PRO 6000)", 100, 129)
_BLACKWELL = ("data-centre Blackwell (SM100: B200, GB200)", 100, 109)

SUPPORTED = {
    "w4a8-cutlass": Support(1, *_HOPPER, experts=True),
    "w4a16-machete": Support(1, *_HOPPER),
    "w8a16-machete": Support(1, *_HOPPER),
    "w4a16-humming": Support(1, *_HOPPER, linear=False, experts=True),
    "w4a8-humming": Support(1, *_HOPPER, linear=False, experts=True),
    "mxfp4-humming": Support(1, *_HOPPER, linear=False, experts=True),
    "fp8-deepgemm-sm100": Support(1, *_BLACKWELL, experts=True),
    "mxfp8-blocked": Support(1, *_BLACKWELL),
    "mxfp4-blocked": Support(1, *_BLACKWELL, experts=True),
    "mxfp4-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "mxfp4-cutlass-moe": Support(1, *_BLACKWELL, linear=False, experts=True),
    "mxfp4-triton-blackwell": Support(1, *_BLACKWELL, linear=False, experts=True),
    "mxfp4-triton-hopper": Support(1, *_HOPPER, linear=False, experts=True),
    "mxfp4-flashinfer-sm90": Support(1, *_HOPPER, linear=False, experts=True),
    "mxfp8-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "fp8-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "fp8-tensor-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "mxint4-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "nvfp4-trtllm": Support(1, *_BLACKWELL, linear=False, experts=True),
    "nvfp4-cutlass-moe": Support(1, *_FP4_UNITS, linear=False, experts=True),
    "nvfp4-vllm-cutlass": Support(1, *_FP4_UNITS, linear=False, experts=True),
    "nvfp4-cutedsl": Support(1, *_BLACKWELL, linear=False, experts=True),
    "w4a16-marlin": Support(1, *_AMPERE, experts=True),
    "w4a16-marlin-channel": Support(1, *_AMPERE, experts=True),
    "w8a16-marlin": Support(1, *_AMPERE, experts=True),
    "w8a16-marlin-channel": Support(1, *_AMPERE, experts=True),
    "fp8-marlin": Support(1, *_AMPERE, experts=True),
    "fp8-marlin-channel": Support(1, *_AMPERE, experts=True),
    "nvfp4-marlin": Support(1, *_AMPERE, experts=True),
    "nvfp4-marlin-64": Support(1, *_AMPERE, experts=True),
    "mxfp4-marlin": Support(1, *_AMPERE, experts=True),
    "mxfp8-marlin": Support(1, *_AMPERE, experts=True),
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


def check_linear(name: str, fmt: str) -> None:
    """Refuses a format whose kernels are for experts only."""
    if not SUPPORTED[fmt].linear:
        raise Refused(
            f"{name}: no kernel of vLLM for linear layers reads {fmt} as it lies",
            hint="convert with --include for the experts alone, or in a recipe that gives this "
            "weight another format",
        )


_WITHOUT_INPUTS = {"nvfp4": "nvfp4-marlin or nvfp4-ct", "fp8": "fp8-trtllm or fp8-dynamic-ct"}


def check_inputs(name: str, fmt: str, has_scales: bool) -> None:
    """Refuses experts without activation scales for kernels that take no others."""
    facts = format_facts(fmt)
    if "inputs" in facts and not has_scales:
        raise Refused(
            f"{name}: the checkpoint has no activation scales, and vLLM's kernel for {fmt} "
            "quantizes activations with those of the file",
            hint="convert a calibrated source, without --weights-only, or convert to "
            f"{_WITHOUT_INPUTS[facts['codec']]}, which need none",
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
