"""itertools: computed at once if all elements are known and consumed, else as generators."""
from __future__ import annotations

import functools
import inspect
import itertools
import operator
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins import iteration
from sot.interpreter.builtins.common import count_of, fits, index_of, is_none, no_keywords, take, throw_like
from sot.interpreter.builtins.iteration import generator, known_items
from sot.polyfills.modules import itertools_ as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import NONE, Const, NotConstant, Value, boolean
from sot.values.iterators import CountIterator, ListedIterator, SequenceIterator
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known, wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine


# ---- counting ---------------------------------------------------------------------------------------------------
@handles(itertools.count)
def count(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    start, step = take("count", args, kwargs, "start", "step")
    first, by = start or Const(0), step or Const(1)
    try:
        begin, increment = first.constant(), by.constant()
        if isinstance(begin, (int, float)) and isinstance(increment, (int, float)):
            if isinstance(begin, int) and isinstance(increment, int) and increment == 1 and fits(begin):
                begin = int(begin)      # C counts itself, and yields no instance of a subclass
            return CountIterator(itertools.count, begin, increment)
    except NotConstant:
        pass
    if isinstance(first, TensorValue) or isinstance(by, TensorValue):
        return generator(m, polyfill.count, first, by)
    raise Break(Reason.UNSUPPORTED, f"itertools.count of {first}")


@handles(itertools.repeat)
def repeat(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, times = take("repeat", args, kwargs, "object", "times", required=1)
    return CountIterator(itertools.repeat, value, limit=None if times is None else max(0, count_of(m, times)))


# ---- everything at once: combinations ---------------------------------------------------------------------------
def _listed(m: Machine, rows: Any, make: Any, parts: list[Value]) -> Value:
    """The rows of ``make(*parts)``, as Values."""
    kind = type(rows)
    found = list(itertools.islice(rows, iteration.LIMIT + 1))
    if len(found) > iteration.LIMIT:
        raise Break(Reason.TOO_LONG, str(iteration.LIMIT))
    return ListedIterator(make, parts, [TupleValue(list(row)) for row in found], kind)


def _pools(m: Machine, iterables: list[Value]) -> list[list[Value]] | None:
    pools = [known_items(m, v) for v in iterables]
    return None if any(p is None for p in pools) else pools  # type: ignore[return-value]


@handles(itertools.product)
def product(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    times, = take("product", [], kwargs, "repeat")
    pools = _pools(m, args)
    if pools is None:
        return m.enter(polyfill.product, [TupleValue(args), times or Const(1)])
    repeat = 1 if times is None else count_of(m, times)
    if repeat < 0:
        m.throw(ValueError, "repeat argument cannot be negative")
    return _listed(m, itertools.product(*pools, repeat=repeat), functools.partial(itertools.product, repeat=repeat),
                   [TupleValue(pool) for pool in pools])


def _choosing(native: Any, function: Any) -> None:
    @handles(native)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        iterable, r = take(native.__name__, args, kwargs, "iterable", "r", required=1)
        pools = _pools(m, [iterable])
        if pools is None:
            return m.enter(function, [iterable, r or NONE])
        if is_none(r) and native is not itertools.permutations:
            raise Break(Reason.BAD_CALL, f"{native.__name__}()")
        size = len(pools[0]) if r is None or is_none(r) else count_of(m, r)
        if size < 0:
            m.throw(ValueError, "r must be non-negative")
        return _listed(m, native(pools[0], size), native, [TupleValue(pools[0]), Const(size)])


_choosing(itertools.permutations, polyfill.permutations)
_choosing(itertools.combinations, polyfill.combinations)
_choosing(itertools.combinations_with_replacement, polyfill.combinations_with_replacement)


# ---- one iterable, lazily ---------------------------------------------------------------------------------------
NAMED = (itertools.accumulate, itertools.groupby)       # the parameters of the others have no names


def _lazily(native: Any, function: Any, at: int, *parameters: str, required: int, defaults: tuple = ()) -> None:
    """Register ``function``, a generator function that takes an iterator in place of argument number ``at``."""
    @handles(native)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) > 2 or (kwargs and native not in NAMED):
            raise Break(Reason.BAD_CALL, f"{native.__name__}()")
        given = take(native.__name__, args, kwargs, *parameters, required=required)
        given = [defaults[i] if v is None else v for i, v in enumerate(given)]
        iterator = given[at].iterate(m)
        if iterator is None:
            return m.enter(polyfill.over, [wrap_known(m, function), Const(at), *given])
        given[at] = iterator
        return generator(m, function, *given)


_lazily(itertools.accumulate, polyfill.accumulate, 0, "iterable", "func", "initial", required=1,
        defaults=(None, Const(operator.add), NONE))
_lazily(itertools.cycle, polyfill.cycle, 0, "iterable", required=1)
_lazily(itertools.takewhile, polyfill.takewhile, 1, "predicate", "iterable", required=2)
_lazily(itertools.dropwhile, polyfill.dropwhile, 1, "predicate", "iterable", required=2)
_lazily(itertools.starmap, polyfill.starmap, 1, "function", "iterable", required=2)
_lazily(itertools.filterfalse, polyfill.filterfalse, 1, "function", "iterable", required=2)
_lazily(itertools.pairwise, polyfill.pairwise, 0, "iterable", required=1)
_lazily(itertools.groupby, polyfill.groupby, 0, "iterable", "key", required=1, defaults=(None, NONE))
_lazily(itertools.chain.from_iterable, polyfill.chained, 0, "iterable", required=1)


@handles(itertools.chain)
def chain(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("chain", kwargs)
    return generator(m, polyfill.chained, SequenceIterator(TupleValue(args), args, type(iter(()))))


@handles(itertools.islice)
def islice(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("islice", kwargs)
    if not 2 <= len(args) <= 4:
        raise Break(Reason.BAD_CALL, "islice()")
    if not all(is_none(v) or hasattr(v.pytype, "__index__") for v in args[1:]):
        raise Break(Reason.BAD_CALL, "islice()")
    limits = [None if is_none(v) else index_of(m, v) for v in args[1:]]
    try:
        itertools.islice((), *limits)       # checks them
    except ValueError as e:
        return throw_like(m, e)
    start, stop, step = (None, *limits, None) if len(limits) == 1 else (*limits, None)[:3]
    iterator = args[0].iterate(m)
    rest = [wrap_new(m, start or 0), NONE if stop is None else wrap_new(m, stop), wrap_new(m, step or 1)]
    if iterator is None:
        return m.enter(polyfill.over, [wrap_known(m, polyfill.islice), Const(0), args[0], *rest])
    return generator(m, polyfill.islice, iterator, *rest)


@handles(itertools.compress)
def compress(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    data, selectors = take("compress", args, kwargs, "data", "selectors", required=2)
    return m.enter(polyfill.compress, [data, selectors])


@handles(itertools.zip_longest)
def zip_longest(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    fill, = take("zip_longest", [], kwargs, "fillvalue")
    return m.enter(polyfill.zip_longest, [TupleValue(args), fill or NONE])


@handles(itertools.tee)
def tee(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, n = take("tee", args, kwargs, "iterable", "n", required=1)
    return m.enter(polyfill.tee, [iterable, n or Const(2)])


def _batched(native: Any) -> Callable:
    keywords = {"strict"} & inspect.signature(native).parameters.keys()     # since 3.13, and by name only

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        others = {name: value for name, value in kwargs.items() if name not in keywords}
        iterable, n = take("batched", args, others, "iterable", "n", required=2)
        return m.enter(polyfill.batched, [iterable, n, kwargs.get("strict", boolean(False))])
    return handler


if hasattr(itertools, "batched"):
    HANDLERS[itertools.batched] = _batched(itertools.batched)
