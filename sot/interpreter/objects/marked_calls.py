"""Calls of functions that the user has marked with torch.compiler or torch._dynamo."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.origin import known
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.torch_compat.dynamo import marks
from sot.values.base import ABSENT, NONE, NotConstant, Value
from sot.values.callables import FunctionValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def marked_call(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a call that a mark decides, or None if there is no such mark."""
    real = function.real
    if marks.is_constant(real):
        return constant_result(m, real, args, kwargs)
    if marks.is_allowed(real):
        return torch_call(m, "call_function", real, args, kwargs)
    if marks.is_disallowed(real):
        raise Break(Reason.NOT_COMPILED, function.name)
    if marks.fixes_dimension(real) and str(m.frames[-1].namespace.get("__name__")).startswith("torch."):
        return NONE     # torch's own code makes the mark only for its compiler; plain Python makes none
    return None


def constant_result(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call the function now. The user declares that its result is always the same."""
    name = getattr(real, "__qualname__", str(real))
    try:
        given = [real_value(m, v) for v in args], {k: real_value(m, v) for k, v in kwargs.items()}
    except NotConstant:
        raise Break(Reason.NOT_COMPILED, f"{name}, whose result is constant but not its arguments,") from None
    try:
        result = _hook.plain(real)(*given[0], **given[1])
    except Exception as e:
        raise Break(Reason.OPERATION_FAILED, f"{name}: {e}") from None
    return wrap(m, result, known(result, f"the result of {name}"))


def real_value(m: Machine, value: Value) -> Any:
    """The object that a value stands for, if it exists already."""
    real = getattr(value, "real", ABSENT)
    return value.host(m) if real is ABSENT else real
