"""``torch.func`` and forward-mode differentiation: torch's own Python code is executed symbolically.

A transform enters a level, wraps its arguments for it, calls the user's function, unwraps the result and leaves the
level. Levels are changes of torch's state. Wrapping and unwrapping are operations, on fake tensors and in the graph.
All code in between is ordinary capture. A break inside a transform moves out to its call, because levels end with the
graph.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.torch_handlers import set_state
from sot.support.registry import handles
from sot.torch_compat import functions
from sot.torch_compat.global_state import exit_dual_level, level_function
from sot.torch_compat.hooks import refuse_saved_tensors_hooks
from sot.values.base import NONE, Value
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine


def _operation(target: Callable[..., Any]) -> None:
    @handles(target)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        m.wrapped |= {id(value.fake): value for value in args if isinstance(value, TensorValue)}
        return unwrapped(m, torch_call(m, "call_function", target, args, kwargs))


def unwrapped(m: Machine, result: Value) -> Value:
    """torch may unwrap a value to the very tensor that was wrapped."""
    if isinstance(result, TupleValue):
        return TupleValue([unwrapped(m, item) for item in m.settle(result.items)], result.pytype)
    return m.wrapped.get(id(result.fake), result) if isinstance(result, TensorValue) else result


WRAPPING = ("_add_batch_dim", "_remove_batch_dim", "_wrap_for_grad", "_unwrap_for_grad", "_make_dual", "_unpack_dual")
for _target in (*map(level_function, WRAPPING), functions.set_requires_grad, *functions.functional_tensor_functions):
    _operation(_target)


def _question(reader: Callable[..., Any]) -> None:
    @handles(reader)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        tensor, = args
        return wrap_new(m, reader(tensor.fake if isinstance(tensor, TensorValue) else tensor.constant()))


for _reader in functions.TRANSFORM_READERS:
    _question(_reader)


@handles(level_function("_exit_dual_level"))
def leave_dual_level(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return set_state(m, exit_dual_level, [kwargs["level"]])


@handles(functions.disable_saved_tensors_hooks)
def disable_hooks(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return set_state(m, refuse_saved_tensors_hooks, args[:1])


@handles(functions.enable_saved_tensors_hooks)
def enable_hooks(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return set_state(m, refuse_saved_tensors_hooks, [NONE])


@handles(functions.refusal_of_saved_tensors_hooks)
def refusal_of_hooks(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return wrap_new(m, functions.refusal_of_saved_tensors_hooks())


@handles(functions.check_functional)
def check_functional(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NONE     # of what torch has just wrapped


@handles(functions.load_decompositions)
def load_decompositions(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    functions.load_decompositions()
    return NONE


