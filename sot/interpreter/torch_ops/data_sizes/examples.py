"""Examples of sizes that depend on data, on which a result found with symbols is tried out.

For a size that may be 0 or 1, or a number that may be -1, torch guesses: two sizes are not broadcast, a dimension is
not squeezed. So each operation on such sizes is run again on fakes with a few sizes. Where the result is another one
than that found with symbols, the graph has to compare them at each call.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from sot.graph import NumberRef, TensorRef
from sot.graph.fake_rules import RULES
from sot.torch_compat.fake_tensors import FakeTensorMode
from sot.torch_compat.tensors import storage_id

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

SIZES, NUMBERS = (0, 1, 7), (-1, 0, 1, 3)   # for all symbols at once
DIVISIBLE = 24      # the value for an operation that refuses the last of these


class NoExample(Exception):
    """There is no tensor of these sizes."""


class Examples(NamedTuple):
    """What examples say about a result that was found with symbols.

    Arguments:
        agree: whether they have its sizes.
        differ: the values of the symbols for which they have others; None if these may be any.
        are_views: whether they are views where the result is one.
        have_strides: whether they have its strides.
        raise_too: whether the operation raises for some that are possible.
    """

    agree: bool
    differ: tuple[int, ...] | None
    are_views: bool
    have_strides: bool
    raise_too: bool


def compared(m: Machine, kind: str, call: Call, result: Any, numbers: bool) -> Examples:
    """Compare a result with examples. ``numbers``: whether the operation is given a number that depends on data."""
    refs: list[TensorRef] = []
    fx.node.map_aggregate(call[1:], lambda v: refs.append(v) if isinstance(v, TensorRef) else None)
    symbolic = [n for ref in refs for n in (ref.fake.shape if isinstance(ref.fake, torch.Tensor) else (ref.fake,))]
    is_view = bool(memory_of(tensors_in(result)) & memory_of(ref.fake for ref in refs))
    values, differ, views, strides = NUMBERS if numbers else SIZES, list[int](), True, True
    tried, has_own_sizes, raises = list[int](), False, False
    for value in (*values, DIVISIBLE):
        given: dict[int, torch.Tensor] = {}
        if value == DIVISIBLE and values[-1] in tried:
            break
        try:
            got = run(m, kind, call, value, given)
        except Exception as error:  # noqa: BLE001 - the graph raises as well, and Python runs the frame
            has_own_sizes = has_own_sizes or m.symbols.data.is_about_data(error)
            raises = raises or not isinstance(error, NoExample) and not m.symbols.data.is_about_data(error) and (
                m.symbols.data.is_possible(symbolic, value, m.symbols.env))
            continue
        tried.append(value)
        if not same_sizes(m, result, got, value):
            differ.append(value)
        views = views and is_view is bool(memory_of(tensors_in(got)) & memory_of(given.values()))
        strides = strides and all(same_strides(m, mine, its, value) for mine, its in zip(
            tensors_in(result), tensors_in(got), strict=False))
    is_usual = bool(tried) and tried[-1] in (values[-1], DIVISIBLE)
    is_known = values[-1] not in differ and DIVISIBLE not in differ if tried else has_own_sizes
    return Examples(bool(tried) and not differ, (*differ,) if is_known else None, views, strides and is_usual,
                    raises)


def memory_of(fakes: Iterable[Any]) -> set[int]:
    return {storage_id(fake) for fake in fakes if isinstance(fake, torch.Tensor)}


def tensors_in(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from tensors_in(item)


def run(m: Machine, kind: str, call: Call, value: int, given: dict[int, torch.Tensor]) -> Any:
    """The result of an operation on fakes whose sizes are numbers."""
    target, args, kwargs = call
    mode = m.symbols.examples = m.symbols.examples or FakeTensorMode()

    def example(ref: Any) -> Any:
        if not isinstance(ref, TensorRef):
            return ref
        if isinstance(ref, NumberRef) or not isinstance(ref.fake, torch.Tensor):
            return ref.real if ref.real is not None else number(m, ref.fake, value)
        if id(ref) not in given:
            given[id(ref)] = tensor(m, ref.fake, value)
        return given[id(ref)]

    with mode, torch.no_grad():
        args, kwargs = fx.node.map_aggregate((args, kwargs), example)
        if kind == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        rule: Any = RULES.get(target, target)
        return rule(*args, **kwargs)


def number(m: Machine, symbolic: Any, value: int) -> Any:
    return m.symbols.data.value_for(symbolic, value, m.symbols.env)


def tensor(m: Machine, fake: torch.Tensor, value: int) -> torch.Tensor:
    sizes, strides = ([number(m, n, value) for n in numbers] for numbers in (fake.shape, fake.stride()))
    if any(n < 0 for n in (*sizes, *strides)):
        raise NoExample
    return torch.empty_strided(sizes, strides, dtype=fake.dtype, device=fake.device)


def same_sizes(m: Machine, result: Any, got: Any, value: int) -> bool:
    """Whether an example's result has the sizes of that with symbols."""
    if isinstance(result, (tuple, list)) and isinstance(got, (tuple, list)):
        return len(result) == len(got) and all(same_sizes(m, a, b, value) for a, b in zip(result, got, strict=True))
    if isinstance(result, torch.Tensor) and isinstance(got, torch.Tensor):
        return [number(m, n, value) for n in result.shape] == [*got.shape]
    return number(m, result, value) == got


def same_strides(m: Machine, result: torch.Tensor, got: torch.Tensor, value: int) -> bool:
    """Whether an example has the strides of a result with symbols."""
    return result.layout is not torch.strided or [number(m, n, value) for n in result.stride()] == [*got.stride()]
