"""Symbols for numbers that depend on data: torch calls them unbacked. Private, like all of torch's symbolic shapes.

An operation such as ``nonzero`` or ``item`` makes a new symbol. torch has no example of it, so it raises where the
program's way depends on one, or assumes what can be checked later (a runtime assertion).
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import (
    CallMethodKey,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    free_unbacked_symbols,
    statically_known_true,
)
from torch.utils._pytree import SequenceKey
from torch.utils._sympy.symbol import SymT, symbol_is_type

__all__ = ["GuardOnDataDependentSymNode", "admitted", "assertions", "bindings", "depends_on_data", "if_nonempty",
           "is_about_data", "is_known_true", "is_possible", "is_same", "may_be_zero", "symbols_of",
           "takes_integers_only", "text_of", "value_for", "within"]


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
    env.settings = replace(before, allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        env.settings = before
        env.pending_fresh_unbacked_symbols.clear()      # of the compiler that would look for them


def symbols_of(value: Any) -> set[Any]:
    """The symbols of data in a symbolic number, or in the sizes of a tensor."""
    if isinstance(value, torch.Tensor):
        return {s for n in value.shape if not isinstance(n, int) for s in free_unbacked_symbols(n)}
    return set() if isinstance(value, int | float | complex | torch.nn.Module) else set(free_unbacked_symbols(value))


def depends_on_data(value: Any) -> bool:
    return bool(symbols_of(value))


Path = tuple[Any, ...]


def bindings(value: Any, known: set[Any], path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """The symbols of data that are a part of a result, but for those in ``known``, to which they are added. Each has
    torch's path to it.
    """
    if isinstance(value, torch.SymInt | torch.SymFloat):
        symbol = getattr(value.node, "_expr", None)      # a ragged size has none
        if symbol is not None and symbol.is_Symbol and symbol not in known and free_unbacked_symbols(symbol):
            known.add(symbol)
            yield symbol, path
    elif isinstance(value, torch.Tensor) and value.layout is torch.strided:
        for method in ("size", "stride"):
            for dim, number in enumerate(getattr(value, method)()):
                yield from bindings(number, known, (*path, CallMethodKey(method), SequenceKey(dim)))
        yield from bindings(value.storage_offset(), known, (*path, CallMethodKey("storage_offset")))
    elif isinstance(value, tuple | list):
        for i, part in enumerate(value):
            yield from bindings(part, known, (*path, SequenceKey(i)))


def within(mode: FakeTensorMode, found: dict[Any, Path]) -> dict[Any, Path]:
    """The same with symbols of this mode. A mode that does not have them gets one for each."""
    env: Any = mode.shape_env
    if not mode.static_shapes:
        return found
    made = {(env.create_unbacked_symfloat if symbol_is_type(symbol, SymT.UNBACKED_FLOAT) else
             env.create_unbacked_symint)().node._expr: path for symbol, path in found.items()}
    env.pending_fresh_unbacked_symbols.clear()
    return made


def is_about_data(error: Exception) -> bool:
    """Whether an operation on fakes without symbols has failed because the sizes of its result depend on data."""
    return isinstance(error, DataDependentOutputException | DynamicOutputShapeException)


def takes_integers_only(error: Exception) -> bool:
    """Whether an operation on fakes has failed because its kernel takes no symbols."""
    return "expected to contain only concrete integers" in str(error)


def is_known_true(truth: Any) -> bool:
    """Whether a symbolic truth follows from what is known of its symbols."""
    return bool(statically_known_true(truth))


def if_nonempty(truth: torch.SymBool) -> bool | None:
    """A symbolic truth if no size in it is zero; None if that does not decide it, or if it has other data."""
    expr, data = truth.node.expr, symbols_of(truth)
    env: Any = truth.node.shape_env
    if not data or any(env.var_to_range[symbol].lower < 0 for symbol in data):
        return None
    positive = {symbol: sympy.Dummy(integer=True, nonnegative=True) + 1 for symbol in data}
    found = expr.xreplace(positive)
    return bool(found) if found in (sympy.true, sympy.false) else None


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


def is_possible(numbers: list[Any], of_data: int, env: ShapeEnv) -> bool:
    """Whether all symbols of data in these numbers may have the value ``of_data``, as far as torch knows."""
    symbols = set[Any]().union(*map(symbols_of, numbers))
    known = dict.fromkeys(symbols, of_data) | env.backed_var_to_val
    return all(of_data in env.var_to_range[s] for s in symbols) and not any(
        each.expr.xreplace(known) == sympy.false for s in symbols for each in env.deferred_runtime_asserts.get(s, ()))


def may_be_zero(size: Any) -> bool:
    """Whether a symbolic size that is not zero in the captured call may be zero in another one."""
    expr, env = size.node.expr, size.node.shape_env
    return not (expr.is_Symbol and env.var_to_range[expr].lower > 0) and size.node.hint != 0 and not is_known_true(
        size != 0)


def is_same(number: Any, other: Any) -> bool:
    """Whether a number is symbolic, and the same as another one."""
    return isinstance(number, torch.SymInt) and number.node.expr == other.node.expr
