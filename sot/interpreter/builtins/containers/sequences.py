"""list, tuple and deque: construction and methods. Also torch.Size and named tuples, which are tuples."""
from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.builtins import iteration
from sot.interpreter.builtins.common import (
    NOT_IMPLEMENTED,
    comparable_hosts,
    count_of,
    fits,
    has_own_index,
    index_of,
    is_none,
    no_keywords,
    run_native,
    take,
)
from sot.interpreter.builtins.containers import subscript
from sot.interpreter.builtins.containers.lookups import refuse_many
from sot.interpreter.builtins.operators import COMPARE, equality
from sot.polyfills import containers as fill
from sot.polyfills import operators as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import NONE, Const, Value
from sot.values.iterators import ReversedIterator, SequenceIterator, SliceValue
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

deque = collections.deque
BASES = {list: "list", tuple: "tuple", deque: "deque"}
REVERSED_DEQUE: Any = type(reversed(deque()))
COUNT_LIMIT = 1_000_000     # greatest number of elements that ``*`` makes
NO_DEFAULT: Any = object()


def mutable(value: Value) -> ListValue:
    if not isinstance(value, ListValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return value


def items_of(m: Machine, value: Value) -> list[Value]:
    """The elements of a list, deque or tuple. An override of ``__iter__`` is ignored."""
    found = value.items_list(m)
    if found is None:
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return found


def replace(m: Machine, target: ListValue, items: list[Value]) -> None:
    """Replace the contents of a list or deque. A deque keeps the last ``maxlen``."""
    m.touch(target)
    target.items = items
    target.drop_first()


def items_for(m: Machine, target: Value, value: Value) -> list[Value] | None:
    """The elements that a list or a deque takes from an iterable. A deque does not ask it for its length."""
    return iteration.listed_items(m, value) if issubclass(target.pytype, list) else iteration.known_items(m, value)


# ---- construction
@handles(list)
def new_list(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("list", kwargs)
    if not args:
        return ListValue([])
    found = iteration.listed_items(m, args[0]) if len(args) == 1 else None
    return m.enter(fill.listed, args) if found is None else ListValue(list(found))


@handles(tuple)
def new_tuple(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("tuple", kwargs)
    if not args:
        return TupleValue([])
    if args[0].pytype is tuple and len(args) == 1:
        return args[0]
    found = iteration.tuple_items(m, args[0]) if len(args) == 1 else None
    return m.enter(fill.new_tuple, args) if found is None else TupleValue(list(found))


@handles(tuple.__new__)
def tuple_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The function that a named tuple's ``__new__`` calls."""
    cls, iterable = take("tuple.__new__", args, kwargs, "cls", "iterable", required=1)
    kind = cls.constant()
    if iterable is None:
        return TupleValue([], kind)
    found = iteration.tuple_items(m, iterable)
    if found is None:
        return m.enter(fill.new_tuple_of, [cls, iterable])
    return TupleValue(list(found), kind)


@handles(torch.Size)
def new_size(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = args[0] if args else TupleValue([])
    found = iteration.known_items(m, items) if len(args) < 2 and not kwargs else None
    if found is None or not all(isinstance(v, Const) and issubclass(v.pytype, int) for v in found):
        raise Break(Reason.TENSOR_VALUE, "torch.Size")
    return TupleValue(list(found), torch.Size)


@handles(torch.Size.numel)
def size_numel(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return run_native(m, torch.Size.numel, torch.Size(args[0].host(m)))


@handles(list.__new__)
def list_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue([], args[0].constant())


@handles(list.__init__)
def list_init(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, iterable = take("list.__init__", args, kwargs, "self", "iterable", required=1)
    found = [] if iterable is None else iteration.listed_items(m, iterable)
    if found is None:
        return m.enter(fill.list_init, [self_, iterable])
    if found or mutable(self_).items:
        replace(m, mutable(self_), list(found))
    return NONE


@handles(deque)
def new_deque(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    iterable, maxlen = take("deque", args, kwargs, "iterable", "maxlen")
    made = ListValue([], deque)
    made.maxlen = None if is_none(maxlen) else count_of(m, maxlen)
    found = [] if iterable is None else iteration.known_items(m, iterable)
    if found is None:
        return m.enter(fill.new_deque, [iterable, maxlen or NONE])
    made.items = list(found) if made.maxlen is None else list(found)[max(0, len(found) - made.maxlen):]
    return made


@handles(deque.__new__)
def deque_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue([], args[0].constant())


@handles(deque.__init__)
def deque_init(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, iterable, maxlen = take("deque.__init__", args, kwargs, "self", "iterable", "maxlen", required=1)
    found = [] if iterable is None else iteration.known_items(m, iterable)
    if found is None:
        raise Break(Reason.UNSUPPORTED, "deque.__init__ of an iterator")
    m.touch(self_)
    mutable(self_).maxlen = None if is_none(maxlen) else count_of(m, maxlen)
    replace(m, mutable(self_), list(found))
    return NONE


# ---- items
def position(m: Machine, key: Value, length: int, what: str) -> int:
    if not isinstance(key, TensorValue) and not hasattr(key.pytype, "__index__"):
        kind = key.pytype.__name__
        m.throw(TypeError, f"sequence index must be integer, not {kind!r}" if what == "deque" else
                f"{what.split()[0]} indices must be integers or slices, not {kind}")
    refuse_many(key, length)
    index = index_of(m, key)
    if not fits(index):
        m.throw(IndexError, "cannot fit 'int' into an index-sized integer")
    if index < 0:
        index += length
    if not 0 <= index < length:
        m.throw(IndexError, f"{what} index out of range")
    return index


def as_slice(m: Machine, key: Value) -> slice | None:
    """The slice that a key is, with int parts, or None if the key is no slice."""
    if isinstance(key, Const):
        parts: list[Any] | None = ([Const(p) for p in (key.real.start, key.real.stop, key.real.step)]
                                   if key.pytype is slice else None)
    else:
        parts = key.slice_parts if isinstance(key, SliceValue) else None
    if parts is None:
        return None
    if not all(is_none(p) or isinstance(p, TensorValue) or hasattr(p.pytype, "__index__") for p in parts):
        m.throw(TypeError, "slice indices must be integers or None or have an __index__ method")
    cut = slice(*(None if is_none(p) else index_of(m, p) for p in parts))
    if cut.step == 0:
        m.throw(ValueError, "slice step cannot be zero")
    return cut


def cut_of(m: Machine, sequence: Value, key: Value) -> slice | None:
    """The slice that a key is, if the sequence takes slices."""
    cut = as_slice(m, key)
    if cut is not None and issubclass(sequence.pytype, deque):
        m.throw(TypeError, "sequence index must be integer, not 'slice'")
    return cut


def stored_at(m: Machine, target: ListValue, key: Value) -> int:
    """The index of an element that is set or deleted."""
    return position(m, key, len(target.items), "deque" if issubclass(target.pytype, deque) else "list assignment")


@handles(list.__getitem__, tuple.__getitem__, torch.Size.__getitem__, deque.__getitem__)
def getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__getitem__", args, kwargs, "self", "key", required=2)
    if has_own_index(m, key):
        return m.enter(polyfill.item_by_index, [self_, key])
    cut = cut_of(m, self_, key)
    if isinstance(self_, (ListValue, TupleValue)) and cut is None:
        if (found := self_.element(m, key)) is not None:
            return found
        what = next(name for base, name in BASES.items() if issubclass(self_.pytype, base))
        return m.settle_at(self_.items, position(m, key, len(self_.items), what))
    items = items_of(m, self_)
    if cut is None:
        return items[position(m, key, len(items), "tuple")]
    if issubclass(self_.pytype, list):
        return ListValue(items[cut])
    if self_.pytype is tuple and cut.indices(len(items)) == (0, len(items), 1):
        return self_
    return TupleValue(items[cut], torch.Size if self_.pytype is torch.Size else tuple)


@handles(list.__setitem__, deque.__setitem__)
def setitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, value = take("__setitem__", args, kwargs, "self", "key", "value", required=3)
    target, cut = mutable(self_), cut_of(m, self_, key)
    if cut is None:
        target.set_item(m, stored_at(m, target, key), value)
        return NONE
    new = iteration.known_items(m, value)
    if new is None:
        return m.enter(fill.set_slice, [self_, key, value])
    m.touch(target)
    try:
        target.items[cut] = list(new)
    except ValueError as e:
        m.throw(ValueError, str(e))
    return NONE


@handles(list.__delitem__, deque.__delitem__)
def delitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__delitem__", args, kwargs, "self", "key", required=2)
    target, cut = mutable(self_), cut_of(m, self_, key)
    at: Any = stored_at(m, target, key) if cut is None else cut
    m.touch(target)
    del target.items[at]
    return NONE


HANDLERS[list.__contains__] = HANDLERS[tuple.__contains__] = HANDLERS[deque.__contains__] = (
    subscript.contains_in_sequence)


@handles(list.__len__, tuple.__len__, deque.__len__)
def length(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    varying = args[0].length(m) if isinstance(args[0], (ListValue, TupleValue)) else None
    return wrap_new(m, len(items_of(m, args[0]))) if varying is None else varying


@handles(list.__iter__, tuple.__iter__, deque.__iter__)
def iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return iteration.elements_iterator(m, args[0])


@handles(list.__reversed__, deque.__reversed__)
def reverse_iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if issubclass(args[0].pytype, list):
        return ReversedIterator(mutable(args[0]))
    return SequenceIterator(None, items_of(m, args[0])[::-1], REVERSED_DEQUE)


# ---- operators
def same_kind(a: Value, b: Value) -> bool:
    return any(issubclass(a.pytype, base) and issubclass(b.pytype, base) for base in BASES)


@handles(list.__add__, tuple.__add__, deque.__add__, *(
    [torch.Size.__add__] if torch.Size.__add__ is not tuple.__add__ else []))
def add(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    a, b = take("__add__", args, kwargs, "self", "value", required=2)
    if not same_kind(a, b):
        name = next(name for base, name in BASES.items() if issubclass(a.pytype, base))
        m.throw(TypeError, f'can only concatenate {name} (not "{b.pytype.__name__}") to {name}')
    items = items_of(m, a) + items_of(m, b)
    if a.pytype is b.pytype is tuple and len(items) in (len(items_of(m, a)), len(items_of(m, b))):
        return b if len(items) == len(items_of(m, b)) else a
    if issubclass(a.pytype, tuple):
        size = torch.Size in (a.pytype, b.pytype) and type(torch.Size([1]) + (2,)) is torch.Size
        size = size and all(isinstance(v, Const) and issubclass(v.pytype, int) for v in items)
        return TupleValue(items, torch.Size if size and a.pytype is torch.Size else tuple)
    made = ListValue(items, list if issubclass(a.pytype, list) else a.pytype)
    if issubclass(a.pytype, deque):
        made.maxlen = mutable(a).maxlen
        made.items = made.items[max(0, len(items) - made.maxlen):] if made.maxlen is not None else items
    return made


if "__radd__" in vars(torch.Size):
    @handles(torch.Size.__radd__)
    def size_radd(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """``(1,) + torch.Size(...)``, which is a torch.Size in newer torch."""
        b, a = take("__radd__", args, kwargs, "self", "value", required=2)
        if not issubclass(a.pytype, tuple):
            return NOT_IMPLEMENTED
        items = items_of(m, a) + items_of(m, b)
        return TupleValue(items, type((1,) + torch.Size([1])))


@handles(list.__iadd__, deque.__iadd__)
def iadd(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, other = take("__iadd__", args, kwargs, "self", "value", required=2)
    found = items_for(m, self_, other)
    if found is None:
        return m.enter(fill.extended, [self_, other])
    mutable(self_).extend(m, list(found))
    return self_


def repeated(m: Machine, value: Value, count: Value) -> list[Value]:
    items, times = items_of(m, value), index_of(m, count)
    if not fits(times):
        m.throw(OverflowError, "cannot fit 'int' into an index-sized integer")
    if len(items) * times > COUNT_LIMIT:
        raise Break(Reason.UNSUPPORTED, f"{value} times {times}")
    return items * times


@handles(list.__mul__, list.__rmul__, tuple.__mul__, tuple.__rmul__, deque.__mul__, deque.__rmul__)
def multiply(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, count = take("__mul__", args, kwargs, "self", "value", required=2)
    if not hasattr(count.pytype, "__index__"):
        return NOT_IMPLEMENTED
    items = repeated(m, self_, count)
    if self_.pytype is tuple and len(items) == len(items_of(m, self_)):
        return self_
    if issubclass(self_.pytype, tuple):
        kind = type(torch.Size([1]) * 2) if self_.pytype is torch.Size else tuple
        return TupleValue(items, kind)
    made = ListValue(items, list if issubclass(self_.pytype, list) else self_.pytype)
    made.maxlen = mutable(self_).maxlen
    return made


for _name in ("__mul__", "__rmul__"):
    HANDLERS[getattr(torch.Size, _name)] = multiply


@handles(list.__imul__, deque.__imul__)
def imul(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, count = take("__imul__", args, kwargs, "self", "value", required=2)
    if not hasattr(count.pytype, "__index__"):
        return NOT_IMPLEMENTED
    replace(m, mutable(self_), repeated(m, self_, count))
    return self_


def comparison(symbol: str) -> Callable:
    function = COMPARE[symbol][0]

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take("comparison", args, kwargs, "self", "value", required=2)
        if not same_kind(a, b):
            return NOT_IMPLEMENTED
        if symbol in ("==", "!="):
            return equality(m, a, b, symbol == "==")
        found = comparable_hosts(m, [TupleValue(items_of(m, a)), TupleValue(items_of(m, b))])
        if found is not None:
            return run_native(m, function, *found)
        return m.enter(polyfill.ordered_sequences, [a, b, Const(function), Const(function)])
    return handler


for _operator, (_function, _method, _reflected) in COMPARE.items():
    HANDLERS.add(*(getattr(_kind, _method) for _kind in (list, tuple, deque, torch.Size)))(comparison(_operator))
