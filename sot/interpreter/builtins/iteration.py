"""Iteration: ``iter``, ``next`` and the functions that consume iterables.

If the elements are known without user code, handlers work on them at once. Everything else is a polyfill that iterates
like user code.
"""
from __future__ import annotations

import collections
import enum
import itertools
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.bytecode import TUPLE_ASKS_LENGTH
from sot.guards.guards import IsGuard
from sot.guards.origin import ClassAttr, known
from sot.guards.terms import leaves
from sot.interpreter.builtins.common import (
    call_slot,
    foldable,
    has_own_index,
    index_of,
    is_native,
    is_none,
    no_keywords,
    overridden,
    run_native,
    slot,
    take,
    truth_of,
)
from sot.interpreter.entering import make_generator
from sot.interpreter.frame import NEXT, NEXT_DEFAULT, PUSH_ITERATOR
from sot.interpreter.objects import attributes
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.suspension import resume_generator, throw_into
from sot.interpreter.torch_ops.overrides import asked
from sot.polyfills import iteration as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import ABSENT, ANSWERS, ENTERED, NONE, Const, Opaque, Value, boolean
from sot.values.callables import known_function
from sot.values.constants import cannot_change
from sot.values.iterators import (
    CombinedIterator,
    DictIterator,
    GeneratorValue,
    IteratorValue,
    RangeIterator,
    ReversedIterator,
    SequenceIterator,
)
from sot.values.numbers import VaryingRange, is_dynamic
from sot.values.objects import DictValue, ExceptionValue, ListValue, MappingProxy, SetValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

LIMIT = 100_000         # greatest number of elements that are listed at once
LIST_ITERATOR: Any = type(iter([]))
DEQUE_ITERATOR: Any = type(iter(collections.deque()))
CONTAINERS = (ListValue, TupleValue, DictValue, SetValue)


def generator(m: Machine, function: Callable[..., Any], *args: Value) -> Value:
    """A generator of a polyfill's generator function, before its start."""
    return make_generator(m, known_function(m, function), list(args), {})


# ---- iterators ----------------------------------------------------------------------------------------------
def elements_iterator(m: Machine, value: Value) -> IteratorValue:
    """An iterator over the elements of a builtin container. An override of ``__iter__`` is ignored."""
    return ANSWERS.of(type(value), "elements_iterator")(m, value)


@ANSWERS.add((ListValue, "elements_iterator"))
def list_iterator(m: Machine, value: ListValue) -> IteratorValue:
    return SequenceIterator(value, value.items, LIST_ITERATOR if issubclass(value.pytype, list) else DEQUE_ITERATOR)


@ANSWERS.add((TupleValue, "elements_iterator"))
def tuple_iterator(m: Machine, value: TupleValue) -> IteratorValue:
    return SequenceIterator(value, value.items, type(iter(())))


@ANSWERS.add((DictValue, "elements_iterator"))
def keys_iterator(m: Machine, value: DictValue) -> IteratorValue:
    return DictIterator("keys", value, value.keys(m))


@ANSWERS.add((SetValue, "elements_iterator"))
def members_iterator(m: Machine, value: SetValue) -> IteratorValue:
    return SequenceIterator(value, value.items_list(m) or [], type(iter(set())))


@ANSWERS.add((MappingProxy, "elements_iterator"), (MappingProxy, "iterate"))
def view_iterator(m: Machine, value: MappingProxy) -> IteratorValue:
    return DictIterator(value.kind, value.of, value.of.keys(m))


@ANSWERS.add((Value, "elements_iterator"))
def items_iterator(m: Machine, value: Value) -> IteratorValue:
    items = value.items_list(m)
    if items is None:
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return SequenceIterator(value, items, type(iter("")))


@ANSWERS.add((Value, "iterate"))
def iterate_by_user_code(m: Machine, value: Value) -> Value | None:
    return None


@ANSWERS.add((IteratorValue, "iterate"), (GeneratorValue, "iterate"))
def iterate_itself(m: Machine, value: Value) -> Value | None:
    return value


@ANSWERS.add(*((kind, "iterate") for kind in CONTAINERS))
def iterate_container(m: Machine, value: Value) -> Value | None:
    return None if overridden(m, value, "__iter__") else elements_iterator(m, value)


@ANSWERS.add((TensorValue, "iterate"))
def iterate_rows(m: Machine, value: TensorValue) -> Value | None:
    if value.fake.dim() == 0:
        m.throw(TypeError, "iteration over a 0-d tensor")
    if has_another_length(m, value):
        raise Break(Reason.LOOP, "a different number of times from call to call")
    return SequenceIterator(None, value.items_list(m) or [], type(iter(())))


def has_another_length(m: Machine, tensor: TensorValue) -> bool:
    """Whether a loop over its rows was captured and later calls had a different number of rows."""
    rows: Any = tensor.fake.shape[0]
    return m.varies.loops and isinstance(rows, torch.SymInt) and not m.varies.specialized.isdisjoint(
        leaves(m.symbols.term(rows)))


@ANSWERS.add((Const, "iterate"))
def iterate_constant(m: Machine, value: Const) -> Value | None:
    real = value.real
    if type(real) is range:
        return RangeIterator(real)
    if isinstance(real, enum.EnumMeta) and foldable(value, "__iter__"):
        return SequenceIterator(None, [Const(member) for member in list[Any](real)], type(iter(())))
    if isinstance(real, (str, bytes, tuple, frozenset)) and foldable(value, "__iter__"):
        return SequenceIterator(value, [Const(v) for v in real], type(iter(real)))
    return None


def get_iter(m: Machine, value: Value) -> Value:
    """``iter(value)``"""
    found = value.iterate(m)
    if found is not None:
        return found
    if isinstance(value, Opaque):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    if issubclass(value.pytype, np.generic):
        raise Break(Reason.OPERATION_FAILED, f"iteration over {value}, a NumPy number")
    result = call_slot(m, value, "__iter__", [])
    if result is ENTERED:
        m.frames[-1].on_return = PUSH_ITERATOR
    elif result is not None and slot(m, result, "__next__") is None:
        m.throw(TypeError, f"iter() returned non-iterator of type {result.pytype.__name__!r}")
    if result is not None:
        return result
    if slot(m, value, "__getitem__") is None or "__iter__" in _blocked(value):
        m.throw(TypeError, f"{value.pytype.__name__!r} object is not iterable")
    return generator(m, polyfill.by_index, value)


def _blocked(value: Value) -> list[str]:
    """Special methods that a class sets to None to say that it does not support them."""
    return [name for name in ("__iter__",) if getattr(value.pytype, name, ABSENT) is None]


def known_items(m: Machine, value: Value) -> list[Value] | None:
    """The elements of an iterable if no user code is needed, else None. An iterator is exhausted by this."""
    if isinstance(value, TensorValue):
        if asked(m, value):
            raise Break(Reason.UNSUPPORTED, f"what asks {value} for its length, which its class may override,")
        return value.items_list(m)
    if isinstance(value, (*CONTAINERS, MappingProxy)):
        return None if overridden(m, value, "__iter__") else value.items_list(m)
    iterator = value.iterate(m)
    return drain(m, iterator) if isinstance(iterator, IteratorValue) else None


def listed_items(m: Machine, value: Value) -> list[Value] | None:
    """The elements that a list takes from an iterable, as by ``known_items``. It also asks the iterable for its length,
    so None if that is code of a class.
    """
    return None if isinstance(value, CONTAINERS) and overridden(m, value, "__len__") else known_items(m, value)


def tuple_items(m: Machine, value: Value) -> list[Value] | None:
    """The elements that a tuple takes from an iterable."""
    return listed_items(m, value) if TUPLE_ASKS_LENGTH else known_items(m, value)


def is_iterable(m: Machine, value: Value) -> bool:
    return slot(m, value, "__iter__") is not None or slot(m, value, "__getitem__") is not None


def drain(m: Machine, iterator: IteratorValue) -> list[Value]:
    """The remaining elements of an iterator."""
    if isinstance(iterator, SequenceIterator) and not iterator.ended and iterator.size is None:
        found = [m.settle_at(iterator.items, i) for i in range(iterator.index, len(iterator.items))]
        m.touch(iterator)
        iterator.index, iterator.ended = len(iterator.items), True
        return found
    found = []
    while (item := iterator.step(m)) is not ABSENT:
        found.append(item)
        if len(found) > LIMIT:
            raise Break(Reason.TOO_LONG, str(LIMIT))
    return found


@handles(iter)
def iter_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("iter", kwargs)
    if len(args) == 2:
        return generator(m, polyfill.until_sentinel, *args)
    return get_iter(m, *take("iter", args, kwargs, "object", required=1))


@handles(polyfill.has_own_iter)
def has_own_iter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    method, owner = lookup(m, args[0].pytype, "__iter__")
    if is_native(method):
        return boolean(False)
    if method is not ABSENT and not cannot_change(owner):
        m.guard(IsGuard(ClassAttr(known(owner, owner.__qualname__), "__iter__"), method))
    return boolean(not isinstance(method, types.FunctionType) or method.__code__.co_code != polyfill.ITSELF)


@handles(next)
def next_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterator, default = take("next", args, kwargs, "iterator", "default", required=1)
    if isinstance(iterator, GeneratorValue) and iterator.frame is not None:
        resume_generator(m, iterator, NONE, NEXT if default is None else NEXT_DEFAULT, default)
        return ENTERED
    if isinstance(iterator, (IteratorValue, GeneratorValue)):
        value = iterator.step(m) if isinstance(iterator, IteratorValue) else ABSENT
        if value is not ABSENT:
            return value
        return m.throw(StopIteration) if default is None else default
    if isinstance(iterator, Opaque):
        raise Break(Reason.OPAQUE_ITERATOR, iterator.pytype.__qualname__)
    if slot(m, iterator, "__next__") is None:
        m.throw(TypeError, f"{iterator.pytype.__name__!r} object is not an iterator")
    if default is not None:
        return m.enter(polyfill.next_or_default, [iterator, default])
    return attributes.call_special(m, iterator, "__next__", [], {})


# ---- generators -----------------------------------------------------------------------------------------------
GENERATOR: Any = type((lambda: (yield))())


LIKE_GENERATORS: tuple[Any, ...] = (GENERATOR, map, filter, zip, enumerate, *(
    v for v in vars(itertools).values() if isinstance(v, type) and hasattr(v, "__next__")))


@handles(*(kind.__iter__ for kind in LIKE_GENERATORS))
def generator_iter(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[0]


EMPTY: tuple[Any, ...] = ([], (), "", {}, range(0), set(), {}.values(), {}.items(), collections.deque())


@handles(*(kind.__next__ for kind in (*LIKE_GENERATORS, *(type(iter(v)) for v in EMPTY))))
def generator_next(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return next_(m, args, kwargs)


@handles(GENERATOR.send)
def generator_send(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, sent = take("send", args, kwargs, "self", "value", required=2)
    if not isinstance(self_, GeneratorValue):
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    if self_.frame is None:
        m.throw(StopIteration)
    if not self_.started and sent is not NONE:
        m.throw(TypeError, "can't send non-None value to a just-started generator")
    resume_generator(m, self_, sent, NEXT)
    return ENTERED


@handles(GENERATOR.throw)
def generator_throw(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Raise where the generator is suspended. (type, value, traceback) is the older form of the arguments."""
    self_, kind, value, _ = take("throw", args, kwargs, "self", "type", "value", "traceback", required=2)
    if not isinstance(self_, GeneratorValue):
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    exception = kind if is_none(value) else value
    if isinstance(exception, Const) and isinstance(exception.real, type):
        return m.enter(polyfill.throw_class, [self_, exception])
    if not isinstance(exception, ExceptionValue):
        raise Break(Reason.UNSUPPORTED, "generator.throw of this")
    throw_into(m, self_, exception, NEXT)
    return ENTERED


@handles(GENERATOR.close)
def generator_close(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("close", args, kwargs, "self", required=1)
    if not isinstance(self_, GeneratorValue):
        raise Break(Reason.OPAQUE_VALUE, str(self_))
    if self_.frame is None:
        return NONE
    if not self_.started or self_.frame.instrs[self_.frame.last].handler < 0:
        m.touch(self_)
        self_.frame = None
        return NONE
    return m.enter(polyfill.close_generator, [self_])


# ---- range, enumerate, zip, reversed ----------------------------------------------------------------------------
@handles(range)
def range_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("range", kwargs)
    if not 1 <= len(args) <= 3:
        raise Break(Reason.BAD_CALL, "range()")
    if any(has_own_index(m, a) for a in args):
        return m.enter(polyfill.range_, args)
    if any(map(is_dynamic, args)) and all(a.pytype is int for a in args) and not (
            len(args) == 3 and (is_dynamic(args[2]) or args[2].real == 0)):
        return VaryingRange(m, args)
    return run_native(m, range, *(index_of(m, a) for a in args))


@handles(enumerate)
def enumerate_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, start = take("enumerate", args, kwargs, "iterable", "start", required=1)
    first = 0 if start is None else index_of(m, start)
    iterator = iterable.iterate(m)
    if isinstance(iterator, IteratorValue):
        return CombinedIterator(enumerate, [iterator], first)
    if iterator is not None:
        return generator(m, polyfill.enumerated, iterator, wrap_new(m, first))
    return m.enter(polyfill.enumerate_, [iterable, wrap_new(m, first)])


@handles(zip)
def zip_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    strict = truth_of(m, *take("zip", [], kwargs, "strict"))
    iterators = iterators_of(m, args)
    if iterators is None:
        return m.enter(polyfill.zip_strictly if strict else polyfill.zip_, args)
    if all(isinstance(i, IteratorValue) for i in iterators) and not strict:
        return CombinedIterator(zip, iterators)  # type: ignore[arg-type]
    return generator(m, polyfill.zipped_strictly if strict else polyfill.zipped, TupleValue(iterators))


def iterators_of(m: Machine, values: list[Value]) -> list[Value] | None:
    """An iterator over each value, if no user code is needed to make them."""
    found = []
    for value in values:
        iterator = value.iterate(m)
        if iterator is None:
            return None
        found.append(iterator)
    return found


@handles(map)
def map_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("map", kwargs)
    if len(args) < 2:
        m.throw(TypeError, "map() must have at least two arguments.")
    function, *iterables = args
    iterators = iterators_of(m, iterables)
    if iterators is None:
        return m.enter(polyfill.map_, args)
    if len(iterators) == 1:
        return generator(m, polyfill.mapped, function, iterators[0])
    return generator(m, polyfill.mapped_many, function, TupleValue(iterators))


@handles(filter)
def filter_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, iterable = take("filter", args, kwargs, "function", "iterable", required=2)
    iterator = iterable.iterate(m)
    if iterator is None:
        return m.enter(polyfill.filter_, args)
    if is_none(function) or (isinstance(function, Const) and function.real is bool):
        return generator(m, polyfill.filtered_by_truth, iterator)
    return generator(m, polyfill.filtered, function, iterator)


@handles(reversed)
def reversed_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("reversed", args, kwargs, "sequence", required=1)
    if lookup(m, value.pytype, "__reversed__")[0] is None:
        m.throw(TypeError, f"{value.pytype.__name__!r} object is not reversible")
    return value.backwards(m)


@ANSWERS.add((Value, "backwards"))
def by_its_method(m: Machine, value: Value) -> Value:
    if slot(m, value, "__reversed__") is not None:
        return call_slot(m, value, "__reversed__", [])  # type: ignore[return-value]
    if slot(m, value, "__getitem__") is None or slot(m, value, "__len__") is None:
        m.throw(TypeError, f"{value.pytype.__name__!r} object is not reversible")
    return m.enter(polyfill.reversed_, [value])


@ANSWERS.add(*((kind, "backwards") for kind in (ListValue, TupleValue, DictValue, MappingProxy)))
def container_backwards(m: Machine, value: Value) -> Value:
    if slot(m, value, "__reversed__") is not None and overridden(m, value, "__reversed__"):
        return call_slot(m, value, "__reversed__", [])  # type: ignore[return-value]
    items = known_items(m, value)
    if items is None or overridden(m, value, "__getitem__"):
        return by_its_method(m, value)
    if overridden(m, value, "__len__") and not isinstance(value, ListValue):
        raise Break(Reason.UNSUPPORTED, f"reversed() of {value}, which has a length of its own,")
    if isinstance(value, (DictValue, MappingProxy)):
        return elements_backwards(m, value)
    if isinstance(value, ListValue) and issubclass(value.pytype, list):
        return ReversedIterator(value)
    return SequenceIterator(None, items[::-1], reversed)


def elements_backwards(m: Machine, value: DictValue | MappingProxy) -> IteratorValue:
    """An iterator over a dict, or over a view of one, that begins at the last key."""
    kind, table = ("keys", value) if isinstance(value, DictValue) else (value.kind, value.of)
    return DictIterator(kind, table, table.keys(m), reversed)


@ANSWERS.add((SetValue, "backwards"))
def members_backwards(m: Machine, value: SetValue) -> Value:
    if slot(m, value, "__reversed__") is not None:
        return call_slot(m, value, "__reversed__", [])  # type: ignore[return-value]
    return m.throw(TypeError, f"{value.pytype.__name__!r} object is not reversible")


@ANSWERS.add((Const, "backwards"))
def constant_backwards(m: Machine, value: Const) -> Value:
    real = value.real
    if isinstance(real, enum.EnumMeta) and foldable(value, "__reversed__"):
        return SequenceIterator(None, [Const(member) for member in list[Any](real)][::-1], reversed)
    if type(real) is range:
        return RangeIterator(real[::-1])
    items = known_items(m, value)
    if items is not None and not overridden(m, value, "__getitem__"):
        return SequenceIterator(None, items[::-1], reversed)
    return by_its_method(m, value)
