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
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sot.torch_compat.inductor.own_functions import traced_by_its_arguments
from sot.torch_compat.op_effects import TORCHS_OWN

TAKE_TENSORS = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "pow", "remainder", "mod", "floordiv", "floor_divide", "lt", "le",
    "gt", "ge", "eq", "ne", "clamp", "clamp_min", "clamp_max", "fill", "masked_fill", "lerp", "getitem", "setitem",
    "select", "batch_norm", "tensor", "as_tensor", "full", "full_like", "new_full", "clip", "where", "addcmul",
    "addcdiv", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy", "special_xlog1py",
    "copysign", "index_fill", "special_zeta", "new_tensor", "greater", "greater_equal", "less", "less_equal",
    "not_equal", "isin", "linalg_pinv", "linalg_matrix_rank", "scalar_tensor", "asarray",
    *(f"special_{kind}_polynomial_{letter}" for kind, letters in (
        ("chebyshev", "tuvw"), ("shifted_chebyshev", "tuvw"), ("hermite", ("h", "he")), ("laguerre", "l"),
        ("legendre", "p")) for letter in letters))
    for name in (n, "i" + n, "r" + n))
# These make a tensor of a number themselves: a number of any size is an operand. ``alpha`` of add and sub is none.
OF_ANY_SIZE = frozenset(name for n in (
    "add", "sub", "mul", "truediv", "div", "rsub", "remainder", "mod", "floordiv", "floor_divide", "lt", "le", "gt",
    "ge", "eq", "ne", "true_divide", "divide", "multiply", "subtract", "fmod", "xlogy", "special_xlogy",
    "special_xlog1py", "copysign", "special_zeta", "getitem", "select", "tensor", "as_tensor", "greater",
    "greater_equal", "less", "less_equal", "not_equal")
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
    of_program: torch._ops.OpOverload | None = None
    in_double: bool = False     # its numbers stay in double precision, also next to tensors of another
    within: Mapping[str, tuple[float, float]] = field(default_factory=dict)     # outside, they stay constants
    ordered: tuple[str, ...] = ()       # two numbers: the operation refuses a first one that is above the second
    arguments: Mapping[str, Any] | None = None      # names and defaults of an operator, which may be words of Python

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.function).parameters if self.arguments is None else self.arguments)

    def default(self, name: str) -> Any:
        if self.arguments is not None:
            return self.arguments[name]
        return inspect.signature(self.function).parameters[name].default

    def places(self, args: tuple | list, kwargs: Mapping[str, Any]) -> Iterator[tuple[int | str, str]]:
        """The arguments that may be numbers that vary, by position or name, each with the name in ``numbers``."""
        return ((place, name) for name, place in self.given(args, kwargs).items() if name in self.numbers)

    def given(self, args: tuple | list, kwargs: Mapping[str, Any]) -> dict[str, int | str]:
        """The positions or names of the arguments, by parameter."""
        return {**dict(zip(self.names, range(len(args)), strict=False)), **{name: name for name in kwargs}}


RULES: dict[Any, Rule] = {}     # by function, or by the name of a method


def rule(*targets: Any, in_double: bool = False, within: Mapping[str, tuple[float, float]] | None = None,
         ordered: tuple[str, ...] = (), **numbers: tuple[float, ...]) -> Callable[[Callable], Callable]:
    """A decorator for the rule of these operations. A parameter ``inplace`` of the rule does nothing by itself: its
    result is put in the place of ``input``.
    """
    def add(function: Callable) -> Callable:
        traced = traced_by_its_arguments(or_in_place(function))
        found = Rule(traced, numbers, in_double=in_double, within=within or {}, ordered=ordered)
        RULES.update(dict.fromkeys(targets, found))
        return function
    return add


def also_in_place(of: Any, *targets: Any) -> None:
    """These operations put the result of the one that has the rule ``of`` in the place of its first argument."""
    known = RULES[of]

    @functools.wraps(known.function)
    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return in_place(known.function, input, args, kwargs)
    change.__name__ = f"{known.function.__name__}_"
    RULES.update(dict.fromkeys(targets, replace(known, function=traced_by_its_arguments(change))))


def or_in_place(function: Callable) -> Callable:
    """The function, with its result in the place of ``input`` if ``inplace`` is true."""
    names = [*inspect.signature(function).parameters]
    if "inplace" not in names:
        return function

    @functools.wraps(function)
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if dict(zip(names[1:], args, strict=False), **kwargs).get("inplace"):
            return in_place(function, input, args, kwargs)
        return function(input, *args, **kwargs)
    return call


def in_place(function: Callable, input: Tensor, args: tuple, kwargs: Mapping[str, Any]) -> Tensor:
    """The gradient may need what was there before."""
    given = input.clone() if input.requires_grad else input
    result = function(given, *args, **kwargs)
    return input if result is given else input.copy_(result)


def takes_tensors(target: Any) -> bool:
    return operation_of(target) in TAKE_TENSORS or hasattr(target, "layout")


def operation_of(target: Any) -> str:
    """The name of an operation, whichever overload of it is called, and whether in place."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket if target.namespace in TORCHS_OWN else ""
    return (target if isinstance(target, str) else getattr(target, "__name__", "")).strip("_")


def is_operand(target: Any, place: int | str) -> bool:
    """Whether a number there may be of any size."""
    return operation_of(target) in OF_ANY_SIZE and place != "alpha"


def knows_nan(target: Any) -> bool:
    """Whether a number that is NaN may mean something else than a tensor does: until torch 2.12 no bound at all."""
    return operation_of(target) in ("clamp", "clip")


def is_of_lists(target: Any) -> bool:
    """Whether it is an operation on lists of tensors. For a backend that compiles it becomes one on each tensor."""
    return str(getattr(target, "__name__", "")).startswith(("_foreach_", "_fused_"))


def only_if(holds: bool) -> None:
    if not holds:
        raise NotWritten


def wide(x: Tensor) -> Tensor:
    """The operand of an operation that computes in single precision and rounds once."""
    return x.float() if x.dtype in HALF else x
