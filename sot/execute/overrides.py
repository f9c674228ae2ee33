"""``__torch_function__`` of modes: while one is active, each operation on tensors is a call of the user's code.

The stack of modes is the trace's own: no mode is active while the graph is built or runs. What an operation would
hand to ``__torch_function__`` (the function, its arguments) is found by running it under a mode that takes notes and
stops it; then the user's method is followed, with the modes below it on the stack, as torch does.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from sot.errors import Break, Reason
from sot.execute.builtins.registry import handles
from sot.graph import NumberRef, TensorRef
from sot.polyfills import torch_code
from sot.symbols import ShapesMustBeStatic
from sot.values.base import NONE, Const, Value, boolean
from sot.values.callables import known_function
from sot.values.objects import DictValue, ListValue, TupleValue

if TYPE_CHECKING:
    from sot.emit import Emitter
    from sot.execute.machine import Machine
    from sot.values.tensor import TensorValue


class Noted(Exception):
    """An operation was stopped where it would have called ``__torch_function__``."""


class Notes(TorchFunctionMode):
    """Remembers what the first operation hands over, and stops it."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.function, self.types, self.args, self.kwargs = func, types, args, kwargs or {}
        raise Noted


def through_modes(m: Machine, kind: str, target: Any, args: Any, kwargs: Any,
                  found: dict[int, TensorValue]) -> Value | None:
    """The result of an operation when modes are active; None if it does not ask them."""
    notes, twins = Notes(), {}

    def twin(ref: Any) -> Any:
        if not isinstance(ref, TensorRef):
            return ref
        if isinstance(ref, NumberRef):
            raise ShapesMustBeStatic("a number that varies, for a mode of __torch_function__")
        value = found[id(ref.fake)]
        made = stand_in(ref.fake, value.pytype)
        twins[id(made)] = (made, value)
        return made
    args, kwargs = fx.node.map_aggregate((args, kwargs), twin)
    try:
        with notes:
            getattr(args[0], target)(*args[1:], **kwargs) if kind == "call_method" else target(*args, **kwargs)
        return None
    except Noted:
        pass
    given = [value_of(m, v, twins) for v in (notes.types, notes.args, notes.kwargs)]
    result = m.evaluate(known_function(m, torch_code.through_mode), [m.wrap_known(notes.function), *given])
    if isinstance(result, Const) and result.real is NotImplemented:
        raise Break(Reason.OPERATION_FAILED, "NotImplemented from __torch_function__")
    return result


def stand_in(fake: torch.Tensor, pytype: type) -> torch.Tensor:
    """A tensor of the type that the program sees, which a fake is not; nothing is computed with it."""
    made = torch.empty(fake.shape, dtype=fake.dtype, device="meta", requires_grad=fake.requires_grad)
    return made if pytype is torch.Tensor else torch.Tensor._make_subclass(pytype, made, fake.requires_grad)


def value_of(m: Machine, real: Any, found: dict[int, tuple[torch.Tensor, TensorValue]]) -> Value:
    """The Value of an argument that torch has handed over."""
    if isinstance(real, torch.Tensor):
        return found[id(real)][1]
    if isinstance(real, (tuple, list)):
        items = [value_of(m, v, found) for v in real]
        return TupleValue(items) if isinstance(real, tuple) else ListValue(items)
    if isinstance(real, dict):
        made = DictValue(dict)
        made.overlay.update({k: value_of(m, v, found) for k, v in real.items()})
        return made
    return m.wrap_new(real)


# ---- the stack
@handles(torch._C._push_on_torch_function_stack)
def push(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    before = m.modes
    m.undoable(lambda: setattr(m, "modes", before))
    m.modes = (*before, args[0])
    return NONE


@handles(torch._C._pop_torch_function_stack)
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    before = m.modes
    if not before:
        raise Break(Reason.OPERATION_FAILED, "there is no mode to leave")
    m.undoable(lambda: setattr(m, "modes", before))
    m.modes = before[:-1]
    return before[-1]


@handles(torch._C._len_torch_function_stack)
def count(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return Const(len(m.modes))


@handles(torch._C._get_function_stack_at)
def at(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.modes[args[0].constant()]


@handles(torch._C._is_torch_function_mode_enabled, torch.overrides.has_torch_function,
         torch.overrides.has_torch_function_unary, torch.overrides.has_torch_function_variadic)
def overrides(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Tensor subclasses are not captured, so only modes override what gets here."""
    return boolean(bool(m.modes))


def write_modes(e: Emitter) -> None:
    """Enter the modes in which capture stopped, for the code that goes on."""
    for mode in e.machine.modes:
        e.line(f"{e.const(torch._C._push_on_torch_function_stack)}({e.value(mode)})")
