"""``torch.compile`` called by the program: a call of what it returns is a call of the original."""
from __future__ import annotations

from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import Value
from sot.values.callables import BoundMethod, FunctionValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

OPTIONS = frozenset({"fullgraph", "dynamic", "backend", "mode", "options", "disable"})


class Compiled(Value):
    """What torch.compile returns: of ``original``, or the decorator if that is None."""

    def __init__(self, original: Value | None, options: dict[str, Value]) -> None:
        self.original, self.options = original, options
        if original is None or not is_module(original):
            self.pytype = FunctionType

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.original is None:
            return torch_compile(m, args, {**self.options, **kwargs})
        return self.original.call(m, args, kwargs)

    def truth(self, m: Any) -> bool | None:
        return True if self.original is None or not is_module(self.original) else None

    def load_attr(self, m: Any, name: str) -> Value:
        if name != "__call__" or self.original is None:
            raise Break(Reason.UNSUPPORTED, f"reading {name} of {self}")
        return self

    def rebuild(self, e: Emitter) -> str:
        given = [e.value(self.original)] if self.original is not None else []
        given += [f"{name}={e.value(value)}" for name, value in self.options.items()]
        return e.variable(self, f"{e.const(torch.compile)}({', '.join(given)})")

    def __str__(self) -> str:
        return "what torch.compile returns"


def is_module(value: Value) -> bool:
    return issubclass(value.pytype, torch.nn.Module)


@handles(torch.compile)
def torch_compile(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    options = dict(kwargs)
    original = args[0] if len(args) == 1 else options.pop("model", None)
    if len(args) > 1 or not options.keys() <= OPTIONS or {"mode", "options"} <= options.keys():
        raise Break(Reason.OPERATION_FAILED, "torch.compile")
    if original is None or original.real is None:
        return Compiled(None, options)
    if isinstance(original, Compiled):
        original = original.original or original
    if not isinstance(original, FunctionValue) and not is_module(original) and not (
            isinstance(original, BoundMethod) and original.pytype is MethodType):
        raise Break(Reason.UNSUPPORTED, f"torch.compile of {original}")
    return Compiled(original, options)
