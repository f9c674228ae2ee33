"""The scope: which code is translated. It is the user's code, without excluded modules and compiled backward
passes.
"""
from __future__ import annotations

import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import numpy as np
import torch

from sot import _hook
from sot.support import user_annotations
from sot.support.own_code import FOLDERS
from sot.support.places import STDLIB, is_installed
from sot.torch_compat.dynamo.marks import disables_all

TORCH = os.path.join(Path(torch.__file__).parent, "")
LAYERS = os.path.join(TORCH, "nn", "modules", "")
ROOTS = (TORCH, os.path.join(Path(np.__file__).parent, ""), *FOLDERS)
# torch.compile while it compiles; a compiled backward pass, which autograd calls, and the code that compiles that.
COMPILERS = tuple(os.path.join(TORCH, *path) for path in (
    ("_functorch", "_aot_autograd", ""), ("_functorch", "aot_autograd.py"), ("_inductor", ""),
    ("_dynamo", "convert_frame.py")))
GENERATED = "<string>"      # the file of methods that dataclasses are given
OVERRIDES = ("__torch_function__", "__torch_dispatch__")     # torch calls these once per operation


@dataclass(frozen=True)
class Scope:
    """The modules that a translator is for, by dotted name. Without ``include``, all modules but those of
    ``exclude``.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, module: str) -> bool:
        return not is_in(module, self.exclude) and (not self.include or is_in(module, self.include))

    def note(self) -> str:
        """What to tell of names in ``include`` of which the program has imported nothing. Empty if there are none."""
        missing = [name for name in self.include if not any(is_in(module, (name,)) for module in [*sys.modules])]
        if not missing:
            return ""
        return f"nothing was translated in {', '.join(missing)}: the program has imported no such module"

    def leaves_alone(self, code: CodeType, module: str, callback: _hook.Callback) -> bool:
        """Whether this code is not to be translated. Then the hook does not ask about it again: for any translator, or
        for this one.
        """
        if code.co_name in OVERRIDES or runs_at_any_time(code) or code.co_filename.startswith(COMPILERS) or (
                disables_all(code)):
            _hook.leave_alone(code)
        elif not is_users(code, module):
            _hook.skip(code)
        elif user_annotations.is_ignored(module) or not self.covers(module):
            _hook.skip(code, callback)
        else:
            return False
        return True


EVERYTHING = Scope()


def is_users(code: CodeType, module: str) -> bool:
    """Whether this is code to translate. torch, the standard library and this package are not."""
    file = code.co_filename
    if module == "sot" or module.startswith("sot."):
        return False
    if file.startswith(LAYERS):
        return not file.endswith("module.py")
    if file.startswith(ROOTS) or file.startswith("<frozen") or file == GENERATED and is_in(module, ("torch", "numpy")):
        return False
    return not file.startswith(STDLIB) or is_installed(file)


def is_in(module: str, modules: tuple[str, ...]) -> bool:
    """Whether a module, by its dotted name, is one of these modules or inside one of them."""
    return any(module == name or module.startswith(f"{name}.") for name in modules)


def runs_at_any_time(code: CodeType) -> bool:
    """Whether the garbage collector calls this code, which can be at any time."""
    return any(getattr(callback, "__code__", None) is code for callback in gc.callbacks)
