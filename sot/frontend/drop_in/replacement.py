"""SOT_REPLACE_TORCH_COMPILE=1: torch.compile is sot.compile, for the program and for every library that it uses.

torch.compile is replaced as soon as torch has been imported, so ``from torch import compile`` finds sot.compile.
Module.compile and torch.compiler.compile call it as well. torch itself still uses its own torch.compile:
FlexAttention, control flow and export need torch's own front end.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

COMPILE = "sot.frontend.drop_in.compile_"
OF_TORCH = ("torch.nn.modules.module", "torch.compiler")    # these pass on the request of their caller


def replace_torch_compile() -> None:
    """Replace torch.compile by sot.compile."""
    theirs = torch.compile
    if hasattr(theirs, "torchs_own"):
        return

    @functools.wraps(theirs)
    def compile(model: Any = None, **arguments: Any) -> Any:
        if is_torchs(str(sys._getframe(1).f_globals.get("__name__"))):
            return theirs(model, **arguments)
        return import_module(COMPILE).compile(model, **arguments)
    compile.torchs_own = theirs     # type: ignore[attr-defined]
    torch.compile = compile


def torchs_own_compile() -> Callable[..., Any]:
    """The original torch.compile, replaced or not."""
    return getattr(torch.compile, "torchs_own", torch.compile)


def is_torchs(caller: str) -> bool:
    """Whether this is a module of torch that compiles something itself."""
    return (caller == "torch" or caller.startswith("torch.")) and caller not in OF_TORCH
