"""The selection of `"auto"`, the requirements of `"triton"`, and the modes of both."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends.dynamo import DynamoBackend
from sot.backends.eager import eager
from sot.backends.errors import BackendUnavailableError
from sot.backends.triton import availability
from sot.support.settings import KERNELS, TRACING, CompileTime

BACKENDS = logging.getLogger("sot.backends")
MODES = {
    "reduce-overhead": "records CUDA graphs",
    "max-autotune": "measures block sizes",
}


def check_triton(mode: str = "default") -> None:
    """Raise BackendUnavailableError, with the reason, where the Triton backend cannot run anything."""
    device = availability.kernel_device()
    if not device:
        raise BackendUnavailableError(
            f"backend 'triton' needs a CUDA device and the package triton, and {availability.obstacle()}. "
            "Use 'eager' or 'auto'; to run kernels on the CPU, slowly, install triton and set TRITON_INTERPRET=1 "
            "before Python starts."
        )
    if mode in MODES and device != "cuda":
        raise BackendUnavailableError(
            f"mode {mode!r} of backend 'triton' {MODES[mode]} and needs a CUDA device: Triton's interpreter has none. "
            "Remove the mode."
        )


@dataclass(frozen=True)
class Triton:
    """Fused Triton kernels, forward and backward. Operators without a kernel are called."""

    mode: str = "default"

    @property
    def name(self) -> str:
        return "triton"

    @property
    def modes(self) -> Mapping[str, Callable[..., Any]]:
        return {mode: Triton(mode) for mode in MODES}

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        check_triton(self.mode)
        return importlib.import_module("sot.backends.triton.compiler").compiled(gm, example_inputs, self.mode)


@dataclass(frozen=True)
class Auto:
    """Triton for graphs on a CUDA device, if it works here. Otherwise the graph runs unchanged, in any mode."""

    mode: str = "default"

    @property
    def name(self) -> str:
        return "auto"

    @property
    def modes(self) -> Mapping[str, Callable[..., Any]]:
        return {mode: Auto(mode) for mode in MODES}

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        reason = self.why_eager(example_inputs)
        if not reason:
            return Triton(self.mode)(gm, example_inputs)
        BACKENDS.debug("auto: eager, because %s%s", reason,
                       f"; mode {self.mode!r} is ignored" if self.mode in MODES else "")
        return eager(gm, example_inputs)

    @staticmethod
    def why_eager(example_inputs: Sequence[Any]) -> str:
        """Why Triton is not used for a graph with these inputs; empty if it is used."""
        if not any(isinstance(v, torch.Tensor) and v.device.type == "cuda" for v in example_inputs):
            return "the graph has no CUDA tensor"
        return availability.obstacle()


triton, auto = Triton(), Auto()


def is_known_to_compile(backend: Any) -> bool:
    """Whether a backend is known to compile graphs, which takes long."""
    return isinstance(backend, DynamoBackend | Triton)


def compile_time(backend: Any) -> CompileTime:
    """The time that a backend is expected to take. Nothing is expected of one that is not known to compile."""
    if not is_known_to_compile(backend):
        return CompileTime()
    return KERNELS if getattr(backend, "makes_kernels", True) else TRACING


def is_known_to_interpret(backend: Any) -> bool:
    """Whether a backend is known to run every graph unchanged."""
    return backend is eager or isinstance(backend, Auto) and bool(not torch.cuda.is_available())
