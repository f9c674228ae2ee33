"""The one module that touches private parts of torch.

Everything here has a public contract of ours; when torch moves something, only this file changes.
"""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard, TensorGuards
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

__all__ = ["DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "GlobalState", "TensorChecks", "UnsupportedOperatorException", "new_fake_mode", "quiet",
           "tensor_summary", "COMPILING_FLAGS", "PURE_STATE_READS", "STATE_SETTERS"]


class TensorChecks:
    """Checks a fixed number of tensors at once: type, dtype, device, sizes, strides, requires_grad, keys.

    Tensors must also be pairwise different objects. 50 ns a tensor.
    """

    def __init__(self, examples: Sequence[torch.Tensor]) -> None:
        free: Any = [[None] * t.dim() for t in examples]
        checks = TensorGuards(*examples, dynamic_dims_sizes=free, dynamic_dims_strides=free)
        self.check = checks.check


class GlobalState:
    """A snapshot of torch's global state, with ``check()`` (140 ns) and ``reason()``."""

    def __init__(self) -> None:
        self._guard = GlobalStateGuard()
        self.check = self._guard.check
        self.reason = self._guard.reason
        self._text = (f"grad {'on' if torch.is_grad_enabled() else 'off'}, default dtype {torch.get_default_dtype()}, "
                      f"autocast {'on' if torch.is_autocast_enabled('cpu') else 'off'}")

    def __str__(self) -> str:
        return self._text


def tensor_summary(t: torch.Tensor) -> str:
    """For example ``float32 tensor of shape (2, 3) on cpu, requires grad``."""
    extra = ", requires grad" if t.requires_grad else ""
    layout = "" if t.layout == torch.strided else f", {t.layout}"
    strides = f", strides {tuple(t.stride())}" if t.layout == torch.strided and not t.is_contiguous() else ""
    kind = f"{str(t.dtype)[6:]} {type(t).__name__.lower()}"
    return f"{kind} of shape {tuple(t.shape)} on {t.device}{strides}{layout}{extra}"


def new_fake_mode() -> FakeTensorMode:
    return FakeTensorMode(allow_non_fake_inputs=False)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the loggers that report errors of fake operations: to us those are ordinary outcomes."""
    loggers = [logging.getLogger("torch._subclasses.fake_tensor"), logging.getLogger("torch._prims_common")]
    before = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in zip(loggers, before, strict=True):
            log.setLevel(level)


COMPILING_FLAGS = tuple(f for f in (
    torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling,
    getattr(torch._utils, "is_compiling", None), getattr(torch._dynamo.external_utils, "is_compiling", None)
    if hasattr(torch, "_dynamo") else None) if f is not None)


def _setter_table() -> dict:
    """Setters of torch's global state, each with the reader that gives the argument that undoes it."""
    c = torch._C
    return {
        c._set_grad_enabled: lambda *a: (torch.is_grad_enabled(),),
        torch.set_autocast_enabled: lambda *a: (a[0], torch.is_autocast_enabled(a[0])) if len(a) == 2 else None,
        torch.set_autocast_dtype: lambda *a: (a[0], torch.get_autocast_dtype(a[0])),
        torch.set_autocast_cache_enabled: lambda *a: (torch.is_autocast_cache_enabled(),),
        c._set_default_dtype: lambda *a: (torch.get_default_dtype(),),
    }


STATE_SETTERS = _setter_table()

# Entering and leaving autocast regions: each with its inverse.
STATE_PAIRS = {torch.autocast_increment_nesting: torch.autocast_decrement_nesting,
               torch.autocast_decrement_nesting: torch.autocast_increment_nesting}

PURE_STATE_READS = frozenset({
    torch.is_grad_enabled, torch.get_default_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype,
    torch.is_autocast_cache_enabled, torch.is_inference_mode_enabled, torch._C._get_tracing_state,
    torch._C._is_torch_function_enabled, torch.are_deterministic_algorithms_enabled,
    torch.amp.is_autocast_available, torch._C._is_autocast_available, torch.is_autocast_cpu_enabled,
    torch._C._functorch.maybe_current_level,
})
