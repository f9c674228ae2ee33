"""Operations with a float that may differ from call to call.

The metadata of a result does not depend on such a float. Where the graph runs as it is, the operation gets the float.
A backend that compiles would make it a constant of the compiled graph, so its graph gets a 0-d tensor. Some
operations take that in place of the number (``TAKE_TENSORS``). Others have a rule: the same computation, written so
that the number may be a tensor.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sot.graph.number_operators import with_tensors
from sot.torch_compat.inductor.own_functions import traced_by_its_arguments
from sot.torch_compat.operators.with_numbers import floats_of, names_of, operator_of_program

TAKE_TENSORS = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "pow", "remainder", "mod", "floordiv", "floor_divide", "lt", "le",
    "gt", "ge", "eq", "ne", "clamp", "clamp_min", "clamp_max", "fill", "masked_fill", "lerp", "getitem", "setitem",
    "select", "batch_norm", "tensor", "as_tensor", "full", "full_like", "new_full", "clip", "where", "addcmul",
    "addcdiv", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy", "special_xlog1py",
    "copysign", "index_fill", "special_zeta")
    for name in (n, "i" + n, "r" + n))
# These make a tensor of a number themselves: a number of any size is an operand. ``alpha`` of add and sub is none.
OF_ANY_SIZE = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "remainder", "mod", "floordiv", "floor_divide", "lt", "le", "gt",
    "ge", "eq", "ne", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy",
    "special_xlog1py", "copysign", "special_zeta", "getitem", "select", "tensor", "as_tensor")
    for name in (n, "i" + n, "r" + n))
HALF = torch.float16, torch.bfloat16


class NotWritten(Exception):
    """The rule does not cover this form of the operation."""


@dataclass(frozen=True)
class Rule:
    """``function`` computes the operation with tensors in place of ``numbers``. These are names of its parameters, each
    with the values around which the operation itself does something else. They are in ascending order.
    """

    function: Callable[..., Any]
    numbers: Mapping[str, tuple[float, ...]]
    of_program: torch._ops.OpOverload | None = None     # its numbers stay in double precision

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters)

    def places(self, args: tuple | list, kwargs: Mapping[str, Any]) -> Iterator[tuple[int | str, tuple[float, ...]]]:
        """The arguments that may be numbers that vary, by position or name, each with its special values."""
        given: list[tuple[str, int | str]] = [*zip(self.names, range(len(args)), strict=False)]
        given += ((name, name) for name in kwargs)
        return ((place, self.numbers[name]) for name, place in given if name in self.numbers)


RULES: dict[Any, Rule] = {}     # by function, or by the name of a method


def rule(*targets: Any, **numbers: tuple[float, ...]) -> Callable[[Callable], Callable]:
    """A decorator for the rule of these operations."""
    def add(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(targets, Rule(traced_by_its_arguments(function), numbers)))
        return function
    return add


def takes_tensors(target: Any) -> bool:
    return name_of(target) in TAKE_TENSORS or hasattr(target, "layout")


def name_of(target: Any) -> str:
    return (target if isinstance(target, str) else getattr(target, "__name__", "")).strip("_")


def is_operand(target: Any, place: int | str) -> bool:
    """Whether a number there may be of any size."""
    return name_of(target) in OF_ANY_SIZE and place != "alpha"


def knows_nan(target: Any) -> bool:
    """Whether a number that is NaN may mean something else than a tensor does: until torch 2.12 no bound at all."""
    return name_of(target) in ("clamp", "clip")


def is_of_lists(target: Any) -> bool:
    """Whether it is an operation on lists of tensors. For a backend that compiles it becomes one on each tensor."""
    return str(getattr(target, "__name__", "")).startswith(("_foreach_", "_fused_"))


def rule_of(target: Any) -> Rule | None:
    if isinstance(target, str) or getattr(target, "__hash__", None):
        return RULES.get(target) or rule_of_program(operator_of_program(target))
    return None


@functools.cache
def rule_of_program(operator: torch._ops.OpOverload | None) -> Rule | None:
    """The rule of an operator that a program or a library has registered."""
    if operator is None or not (floats := floats_of(operator)):
        return None
    names = names_of(operator)
    return Rule(with_tensors(operator), {names[i]: () for i in floats}, operator)


def only_if(holds: bool) -> None:
    if not holds:
        raise NotWritten


def wide(x: Tensor) -> Tensor:
    """The operand of an operation that computes in single precision and rounds once."""
    return x.float() if x.dtype in HALF else x
