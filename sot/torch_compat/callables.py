"""Functions that torch has wrapped: left alone, compiled, scripted."""
from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback as torch_compiles  # noqa: F401  None: not this thread
from torch.jit import _state as jit_state

from sot.torch_compat.global_state import in_mode


@functools.cache
def disabling_code() -> Any:
    """The code of the wrapper that torch puts around functions which torch.compile is to leave alone."""
    return torch._disable_dynamo(in_mode).__code__


def is_left_to_python(function: Any) -> bool:
    """Is it a function that torch, or a user with torch.compiler.disable, keeps from being compiled?"""
    return function.__code__ is disabling_code() or bool(getattr(function, "_torchdynamo_disable", False))


def compiled_original(function: Any) -> Any:
    """The function inside a wrapper of torch.compile, or None."""
    if getattr(function, "_torchdynamo_disable", False):
        return None
    return vars(function).get("_torchdynamo_orig_callable")


PYBIND_METHOD = type(vars(torch.jit.ScriptFunction)["__call__"])


def scripted_original(function: Any) -> Any:
    """The Python function that torch.jit.script has compiled; None for what torch.jit.trace has seen."""
    original = getattr(function, "_torchdynamo_inline", None)
    scripted = original is not None and jit_state._jit_caching_layer.get(original) == function.qualified_name
    return original if scripted else None
