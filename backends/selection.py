"""Which backend `"auto"` is, and what `"triton"` needs."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .eager import eager
from .errors import BackendUnavailableError
from .triton import availability

BACKENDS = logging.getLogger("sot.backends")


def check_triton() -> None:
    """Raise BackendUnavailableError, with the reason, where the Triton backend cannot run anything."""
    if not availability.kernel_device():
        raise BackendUnavailableError(
            f"backend 'triton' needs a CUDA device and the package triton, and {availability.obstacle()}. "
            "Use 'eager' or 'auto'; to run kernels on the CPU, slowly, install triton and set TRITON_INTERPRET=1 "
            "before Python starts."
        )


def triton(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Fused Triton kernels, forward and backward; operators that have none are called."""
    check_triton()
    return importlib.import_module("sot.backends.triton.compiler").compiled(gm, example_inputs)


def auto(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Triton for graphs on a CUDA device, if it works here; otherwise the graph as it is."""
    if not any(isinstance(v, torch.Tensor) and v.device.type == "cuda" for v in example_inputs):
        BACKENDS.debug("auto: eager, because the graph has no CUDA tensor")
    elif reason := availability.obstacle():
        BACKENDS.debug("auto: eager, because %s", reason)
    else:
        return triton(gm, example_inputs)
    return eager(gm, example_inputs)
