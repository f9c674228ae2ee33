"""Symbols for numbers that depend on data: torch calls them unbacked. Private, like all of torch's symbolic shapes.

An operation such as ``nonzero`` or ``item`` makes a new symbol. torch has no example of it, so it raises where the
program's way depends on one, or assumes what can be checked later (a runtime assertion).
"""
from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from sympy.core.relational import Relational
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_unbacked_symbols,
    statically_known_true,
)

__all__ = ["GuardOnDataDependentSymNode", "admitted", "assertions", "depends_on_data", "is_about_data",
           "is_known_true", "symbols_of", "text_of", "value_for"]


def assertions(env: ShapeEnv, taken: set[int]) -> list[Any]:
    """What torch has assumed to be true, but for the assertions whose ids are in ``taken``, to which they are added."""
    if env.num_deferred_runtime_asserts == len(taken):
        return []
    every = [each for several in env.deferred_runtime_asserts.values() for each in several]
    new = [each for each in every if id(each) not in taken]
    taken.update(map(id, new))
    return [each.expr for each in new]


@contextlib.contextmanager
def admitted(mode: FakeTensorMode) -> Iterator[None]:
    """While this is entered, operations may make symbols for what depends on data. Otherwise they raise."""
    env: Any = mode.shape_env
    before = env.settings
    env.settings = dataclasses.replace(before, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        env.settings = before
        env.pending_fresh_unbacked_symbols.clear()      # of the compiler that would look for them


def symbols_of(value: Any) -> set[Any]:
    """The symbols of data in a symbolic number, or in the sizes of a tensor."""
    if isinstance(value, torch.Tensor):
        return {s for n in value.shape if not isinstance(n, int) for s in free_unbacked_symbols(n)}
    return set() if isinstance(value, int | float | torch.nn.Module) else set(free_unbacked_symbols(value))


def depends_on_data(value: Any) -> bool:
    return bool(symbols_of(value))


def is_about_data(error: Exception) -> bool:
    """Whether an operation on fakes without symbols has failed because the sizes of its result depend on data."""
    return isinstance(error, DataDependentOutputException | DynamicOutputShapeException)


def is_known_true(truth: Any) -> bool:
    """Whether a symbolic truth follows from what is known of its symbols."""
    return bool(statically_known_true(truth))


def text_of(truth: Any) -> str:
    """What torch assumes, for people: ``u0 == 6``."""
    return f"{truth.lhs} {truth.rel_op} {truth.rhs}" if isinstance(truth, Relational) else str(truth)


def value_for(number: Any, of_data: int, env: ShapeEnv) -> Any:
    """The value of a symbolic number if all symbols of data had the value ``of_data``, and others that of the call."""
    if not isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool):
        return number
    expr = number.node.expr
    data = free_unbacked_symbols(number)
    values = {s: of_data if s in data else env.backed_var_to_val[s] for s in expr.free_symbols}
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)]
    return kind(expr.xreplace(values))
