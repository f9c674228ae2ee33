"""Functions of the program that a node calls while the graph runs: hooks that autograd calls.

They run before the effects of the frame, and not in their place between these. So only a function for which this makes
no difference is such a target: its code names parts of torch and a few builtins, and stores nothing outside of its
variables.
"""
from __future__ import annotations

import builtins
from types import CellType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from sot.bytecode import decode
from sot.bytecode.frame_layout import GENERATORS
from sot.guards.guards import IsGuard
from sot.interpreter.objects.names_used import ends_of, guard_names, names_used
from sot.interpreter.torch_ops.torch_calls import is_operation
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import FunctionValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

QUIET = frozenset((isinstance, len, int, float, bool, tuple, list, dict, range, type, zip, min, max))
KNOWN = (int, float, str, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
ANNOTATIONS = frozenset(("__annotations__", "__annotate__"))     # CPython 3.14 has a function that makes them
STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "STORE_NAME", "DELETE_ATTR",
          "DELETE_SUBSCR", "DELETE_GLOBAL", "DELETE_DEREF", "DELETE_NAME", "IMPORT_NAME", "MAKE_FUNCTION",
          "LOAD_BUILD_CLASS")


def quiet_function(m: Machine, hook: Value) -> FunctionType | None:
    """The function of a hook; None if the program could tell when it is called."""
    made = hook.real if isinstance(hook, FunctionValue) and hook.real is not ABSENT else made_of(m, hook)
    if not isinstance(made, FunctionType) or not is_quiet(made):
        return None
    if hook.real is not ABSENT and hook.origin is not None:
        m.guard(IsGuard(hook.origin, made))
    guard_names(m, made)
    return made


def made_of(m: Machine, hook: Value) -> FunctionType | None:
    """A function like one that the call has made, if all that it holds are constants. Annotations are left out."""
    if not isinstance(hook, FunctionValue) or hook.attrs is not None or hook.fields.keys() - ANNOTATIONS:
        return None
    cells = [cell.get(m) for cell in hook.closure]
    given, named = m.settle([*hook.defaults]), dict(hook.kwdefaults)
    if not all(type(value) is Const for value in (*cells, *given)) or named:
        return None
    return FunctionType(hook.code, hook.namespace, hook.name.rpartition(".")[2], tuple(v.real for v in given) or None,
                        tuple(CellType(value.real) for value in cells))


def is_quiet(function: FunctionType) -> bool:
    """Whether it makes no difference when it is called."""
    code = function.__code__
    return not code.co_flags & GENERATORS and not any(
        instr.op in STORES for instr in decode(code).instrs) and not any(
        isinstance(const, CodeType) for const in code.co_consts) and all(
        is_known(held) for held in (*held_by(function), *(o for path in names_used(code)
                                                          for o in ends_of(function.__globals__, path))))


def held_by(function: FunctionType) -> tuple[Any, ...]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return *cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()


def is_known(held: Any) -> bool:
    if isinstance(held, ModuleType):
        return held is torch or held.__name__.startswith("torch.")
    if getattr(builtins, getattr(held, "__name__", ""), None) is held:
        return held in QUIET
    return isinstance(held, KNOWN) or held is torch.Tensor or is_operation(held)
