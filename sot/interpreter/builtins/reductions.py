"""Reductions of iterables (sum, math.prod, any, all, min, max) and sorting: at once over known elements, else by
polyfills.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import comparable_hosts, fold, is_none, run_native, take, truth_of
from sot.interpreter.builtins.iteration import known_items, listed_items
from sot.interpreter.objects import optimizers
from sot.polyfills import iteration as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, Value, boolean
from sot.values.numbers import DynamicNumber, is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

MANY = 4                # greatest number of varying numbers whose order is guarded
COMPARISONS = 1000      # greatest number of comparisons by code of the program in a sort


# ---- reductions -------------------------------------------------------------------------------------------------
@handles(sum)
def sum_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, start = take("sum", args, kwargs, "iterable", "start", required=1)
    items = known_items(m, iterable)
    start = start or wrap_new(m, 0)
    if items is None:
        return m.enter(polyfill.sum_, [iterable, start])
    count = 0
    if isinstance(start, Const) and not is_dynamic(start):
        while count < len(items) and isinstance(items[count], Const) and not is_dynamic(items[count]):
            count += 1
        start = run_native(m, sum, [v.real for v in items[:count]], start.real)
    return m.enter(polyfill.sum_, [TupleValue(items[count:]), start]) if count < len(items) else start


@handles(math.prod)
def prod(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start = kwargs.get("start", Const(1))
    if len(args) != 1 or not kwargs.keys() <= {"start"}:
        raise Break(Reason.OPAQUE_CALL, "math.prod")
    items = known_items(m, args[0])
    iterable = args[0] if items is None else TupleValue(items)
    return fold(m, math.prod, [iterable], kwargs) or m.enter(polyfill.product_, [iterable, start])


@handles(math.fsum)
def fsum(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = known_items(m, *args) if len(args) == 1 and not kwargs else []
    if items is None:
        return m.enter(polyfill.of_list, [Const(math.fsum), args[0]])
    found = fold(m, math.fsum, args, kwargs)
    if found is None:
        raise Break(Reason.OPAQUE_CALL, "math.fsum")
    return found


@handles(any)
def any_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _quantify(m, take("any", args, kwargs, "iterable", required=1)[0], True)


@handles(all)
def all_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _quantify(m, take("all", args, kwargs, "iterable", required=1)[0], False)


def _quantify(m: Machine, iterable: Value, decisive: bool) -> Value:
    items = known_items(m, iterable)
    if items is None:
        return m.enter(polyfill.any_ if decisive else polyfill.all_, [iterable])
    for i, item in enumerate(items):
        truth = item.truth(m) if isinstance(item, Const) else None
        if truth is None:
            return m.enter(polyfill.any_ if decisive else polyfill.all_, [TupleValue(items[i:])])
        if truth is decisive:
            return boolean(decisive)
    return boolean(not decisive)


@handles(min)
def min_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _extreme(m, "min", min, polyfill.smallest, args, kwargs)


@handles(max)
def max_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _extreme(m, "max", max, polyfill.largest, args, kwargs)


def _extreme(m: Machine, name: str, native: Any, function: Any, args: list[Value],
             kwargs: dict[str, Value]) -> Value:
    key, default = take(name, [], kwargs, "key", "default")
    if not args:
        m.throw(TypeError, f"{name} expected at least 1 argument, got 0")
    if len(args) > 1 and default is not None:
        m.throw(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
    items = args if len(args) > 1 else known_items(m, args[0])
    given = boolean(default is not None)
    if items is None:
        return m.enter(function, [args[0], key or NONE, given, default or NONE])
    if not items:
        return default or run_native(m, native, [])     # this raises
    if is_none(key):
        if m.of_compilers and (best := optimizers.extreme(m, name, items)) is not None:
            return best
        found = comparable_hosts(m, items)
        if found is not None:
            index = run_native(m, lambda: found.index(native(found)))
            return _same_kind(items, found, index.constant(), native)
    return m.enter(function, [TupleValue(items), key or NONE, given, default or NONE])


def _same_kind(items: list[Value], found: list, index: int, native: Any) -> Value:
    """The element that ``min`` or ``max`` of the host values selects, by identity."""
    best = native(found)
    return next((v for v, real in zip(items, found, strict=True) if real is best), items[index])


def refuse_varying(m: Machine, items: list[Value], what: str) -> None:
    """Break if many of the numbers vary, because the result would hold only for their order."""
    if sum(isinstance(v, DynamicNumber) and v.varies for v in items) > MANY:
        raise Break(Reason.UNSUPPORTED, f"{what} many numbers that change from call to call")


# ---- sorting ------------------------------------------------------------------------------------------------------
def sorted_natively(m: Machine, items: list[Value], reverse: bool) -> list[Value] | None:
    """The elements in order if they are constants, else None."""
    refuse_varying(m, items, "sorting")
    found = comparable_hosts(m, items)
    if found is None:
        return None
    order = sorting_order(m, found, reverse)
    return [items[i] for i in order]


def sorting_order(m: Machine, found: list, reverse: bool) -> list[int]:
    try:
        return sorted(range(len(found)), key=found.__getitem__, reverse=reverse)
    except TypeError as e:
        return m.throw(TypeError, str(e))


@handles(sorted)
def sorted_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, = take("sorted", args, {}, "iterable", required=1)
    key, reverse = take("sorted", [], kwargs, "key", "reverse")
    items = listed_items(m, iterable)
    if items is not None and is_none(key):
        found = sorted_natively(m, items, truth_of(m, reverse))
        if found is not None:
            return ListValue(found)
    if items is not None:
        iterable = TupleValue(items)
    return m.enter(polyfill.sorted_, [iterable, key or NONE, reverse or boolean(False)])


@handles(polyfill.sort_order)
def sort_order(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The order of keys: computed at once if they are constants."""
    keys, reverse, order = args
    found = comparable_hosts(m, known_items(m, keys) or [])
    if found is None:
        return m.enter(polyfill.compared_order, args)
    indices = sorting_order(m, found, truth_of(m, reverse))
    m.touch(order)
    order.items = [Const(i) for i in indices]       # type: ignore[attr-defined]
    return NONE


class Asked(Exception):
    """``list.sort`` compares two keys, whose indices are the arguments."""


class Numbered:
    """Stands for a key. Comparisons take the answers in turn."""

    def __init__(self, index: int, answers: Iterator[bool]) -> None:
        self.index, self.answers = index, answers

    def __lt__(self, other: Numbered) -> bool:
        for answer in self.answers:
            return answer
        raise Asked(self.index, other.index)


@handles(polyfill.sorting_step)
def sorting_step(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Sort again from the start with the answers so far, so each version of Python compares what it would compare."""
    count, reverse, answers = args
    given = [answer.constant() for answer in known_items(m, answers) or []]
    if len(given) > COMPARISONS:
        raise Break(Reason.UNSUPPORTED, "sorting many objects by their own comparison")
    left, order, pair = iter(given), [*range(count.constant())], None
    try:
        order.sort(key=lambda i: Numbered(i, left), reverse=truth_of(m, reverse))
    except Asked as e:
        pair = e.args
    return wrap_new(m, (pair, order))
