"""Steps of optimizers in captured code.

For a backend that compiles, torch.optim is executed in its form for torch.compile: the step counters stay tensors.
Where plain PyTorch computes with Python floats, the graph computes with float64 tensors, and the last bits differ. For
a backend that runs its graph unchanged, torch.optim is executed as it is, and the entry reads the counters
(``counters.py``). A step that would break the graph is left to Python.
"""
from __future__ import annotations

import operator
from contextlib import suppress
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from sot.graph.number_rules import rule_of
from sot.guards.origin import Inputs
from sot.interpreter.torch_ops.data_sizes.counters import OPTIMIZERS, step_function
from sot.interpreter.torch_ops.torch_calls import operation, torch_call
from sot.polyfills.torch_code import (
    adagrad_of_single_tensors,
    adam_of_single_tensors,
    leave_to_python,
    scaled_step,
    sgd_of_single_tensors,
    step_without_branches,
    with_gradients,
)
from sot.support.errors import Break, Reason
from sot.support.lookups import own_dict
from sot.support.registry import BY_CODE, HANDLERS, Handler, handles
from sot.torch_compat.callables import (
    CAPTURABLE,
    fused_adagrad,
    fused_adam,
    fused_sgd,
    gradient_wrapper_code,
    scaler_step,
    stack_of_counters,
    value_of_counter,
)
from sot.torch_compat.tensors import without_subclasses
from sot.values.base import Value
from sot.values.callables import FunctionValue, known_function
from sot.values.numbers import is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

NAMED_OTHERWISE = {"norm": torch.linalg.vector_norm}
# where the second operand is a number
OF_NUMBERS = {"maximum": torch.clamp_min, "minimum": torch.clamp_max}
BETTER = {"max": operator.gt, "min": operator.lt}


def follow(m: Machine, function: FunctionValue) -> None:
    """Enter a function of torch.optim, or raise the break before it."""
    outermost = step_function(m) or function.name
    left = m.assumptions.plain_optimizers
    for step in ("", outermost):
        if step in left:
            raise Break(Reason.OPTIMIZER, f"{function.name} of torch.optim: {left[step]}")
    if not m.assumptions.interprets:
        m.of_compilers = True


def compiled(m: Machine) -> str | None:
    """The same if it is executed in its form for a backend that compiles."""
    return step_function(m) if not m.assumptions.interprets else None


def set_gradients(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The setting around a step: gradients are off, except for a differentiable optimizer."""
    inner = function.closure[function.code.co_freevars.index("func")].get(m)
    return m.enter(with_gradients, [inner, *args], kwargs)


@handles(scaler_step)
def step_of_scaler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The step of a GradScaler. Plain PyTorch branches on an infinite gradient; a graph computes both outcomes."""
    known = len(args) > 1 and str(args[1].pytype.__module__).startswith(OPTIMIZERS)
    return m.enter(scaled_step if known and "" not in m.assumptions.plain_optimizers else scaler_step, args, kwargs)


@handles(leave_to_python)
def refuse(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Break(Reason.OPTIMIZER, "the first steps of torch.optim, which make its state")


def without_branches(step: Any) -> None:
    @handles(step)
    def call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function, form = known_function(m, step), kwargs.get("capturable")
        if form is None or form.constant() or compiled(m) is None:
            return m.enter(function, args, kwargs)
        return m.enter(step_without_branches, [function, *args], kwargs)


for _step in CAPTURABLE:
    without_branches(_step)


def of_kernel(step: Any, several: Any) -> None:
    @handles(step)
    def call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """A step in a kernel of its own, which a compiler gets as ``several`` operations. These round differently."""
        return m.enter(step if compiled(m) is None else several, args, kwargs)


for _fused, _several in ((fused_sgd, sgd_of_single_tensors), (fused_adam, adam_of_single_tensors),
                         (fused_adagrad, adagrad_of_single_tensors)):
    of_kernel(_fused, _several)


@handles(value_of_counter)
def counter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A number that a step reads off a tensor. In the form for compilers it stays in a float64 tensor."""
    if compiled(m) is None:
        return m.enter(value_of_counter, args, kwargs)
    (value,) = args
    return torch_call(m, "call_method", "double", [value], {}) if isinstance(value, TensorValue) else value


@handles(stack_of_counters)
def counters(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if compiled(m) is None:
        return m.enter(stack_of_counters, args, kwargs)
    (value,) = args
    return value


@handles(torch.Tensor.item)
def item(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if compiled(m) is None or kwargs or len(args) != 1 or not isinstance(args[0], TensorValue):
        return operation(m, torch.Tensor.item, args, kwargs)
    return torch_call(m, "call_method", "double", args, {})


def extreme(m: Machine, name: str, values: list[Value]) -> Value | None:
    """``min`` or ``max`` of numbers of which a step has some in tensors; None elsewhere. A NaN is no greater number."""
    if not any(isinstance(value, TensorValue) and value.fake.dim() == 0 for value in values) or compiled(m) is None:
        return None
    best, *others = values
    for value in others:
        better = torch_call(m, "call_function", BETTER[name], [value, best], {})
        best = torch_call(m, "call_function", torch.where, [better, value, best], {})
    return best


def applied(m: Machine, name: str, plain: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """One operation of a list."""
    bare = name.rstrip("_")
    if bare in OF_NUMBERS and not isinstance(args[1], TensorValue):
        plain, name = OF_NUMBERS[bare], name.replace(bare, OF_NUMBERS[bare].__name__)
    if not name.endswith("_"):
        return torch_call(m, "call_function", plain, args, kwargs)
    if hasattr(torch.Tensor, name):
        return torch_call(m, "call_method", name, args, kwargs)
    return torch_call(m, "call_method", "copy_", [args[0], torch_call(m, "call_function", plain, args, kwargs)], {})


def foreach(function: Any) -> Handler:
    """The handler of an operation on lists of tensors. In a step, and where a number varies that only the operation on
    one tensor takes as an input, it becomes one operation per tensor.
    """
    name = function.__name__.removeprefix("_foreach_")
    plain = NAMED_OTHERWISE.get(name) or getattr(torch, name.rstrip("_"), None)

    def call(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        lists = [v.items_list(m) if isinstance(v, (ListValue, TupleValue)) else None for v in args]
        length = max((len(found) for found in lists if found is not None), default=0)
        known = all(found is None or len(found) == length for found in lists)
        varies = rule_of(plain) is not None and any(map(is_dynamic, [*args, *kwargs.values()]))
        if plain is None or not known or m.assumptions.interprets or not (varies or compiled(m)):
            return torch_call(m, "call_function", function, args, kwargs)
        results = []
        for i in range(length):
            given, named = [v if found is None else found[i] for v, found in zip(args, lists, strict=True)], kwargs
            if name.startswith("addc") and len(given) > 3:
                named, given = {**kwargs, "value": given[3]}, given[:3]
            results.append(applied(m, name, plain, given, named))
        return ListValue(results) if name.endswith("_") else TupleValue(results)
    return call


for _operation in (getattr(torch, name) for name in dir(torch) if name.startswith("_foreach_")):
    HANDLERS[_operation] = foreach(_operation)
BY_CODE[gradient_wrapper_code()] = set_gradients


# ---- the first step of a training program ----------------------------------------------------------------------
def is_first_step(function: FunctionType, inputs: Inputs) -> bool:
    """Whether a call goes backward, and has an optimizer that has not made a step yet. Such a call makes what its
    guards say is missing (``undoes_its_guards``); this tells it before the capture, for optimizers that the function
    reaches by a name or by an attribute of an argument.
    """
    names = function.__code__.co_names
    if "backward" not in names:
        return False
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in inputs:
        with suppress(ValueError):      # an empty cell
            values.append(value.cell_contents if isinstance(value, CellType) else value)
    values += [part for value in values for name, part in (own_dict(value) or {}).items() if name in names]
    return any(map(is_unused, values))


def is_unused(value: object) -> bool:
    """Whether it is an optimizer without state, whose tensors have no gradients."""
    if not issubclass(type(value), torch.optim.Optimizer):
        return False
    parts = own_dict(value) or {}
    with without_subclasses():
        return not parts.get("state") and all(
            tensor.grad is None for group in parts.get("param_groups", ()) for tensor in group["params"])
