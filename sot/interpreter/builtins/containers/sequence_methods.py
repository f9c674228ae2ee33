"""Methods of lists, tuples and deques that add, remove, move and find elements."""
from __future__ import annotations

import collections
import operator
import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins import iteration, reductions
from sot.interpreter.builtins.common import (
    count_of,
    equal,
    index_of,
    is_none,
    note_identity,
    run_native,
    take,
    truth_of,
)
from sot.interpreter.builtins.containers.sequences import items_for, items_of, mutable, replace
from sot.interpreter.builtins.operators import compare
from sot.polyfills import containers as fill
from sot.polyfills import operators as polyfill
from sot.support.registry import handles
from sot.values.base import NONE, Const, NotConstant, Value, boolean
from sot.values.objects import ListValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:

    from sot.interpreter.machine import Machine

deque = collections.deque


# ---- methods of lists and deques
@handles(list.append, deque.append)
def append(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, value = take("append", args, kwargs, "self", "object", required=2)
    mutable(self_).extend(m, [value])
    return NONE


@handles(deque.appendleft)
def appendleft(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, value = take("appendleft", args, kwargs, "self", "object", required=2)
    target = mutable(self_)
    m.touch(target)
    target.items.insert(0, value)
    if target.maxlen is not None and len(target.items) > target.maxlen:
        target.items.pop()
    return NONE


@handles(list.extend, deque.extend)
def extend(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, iterable = take("extend", args, kwargs, "self", "iterable", required=2)
    found = items_for(m, self_, iterable)
    if found is None:
        return m.enter(fill.extend, [self_, iterable])
    mutable(self_).extend(m, list(found))
    return NONE


@handles(deque.extendleft)
def extendleft(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(fill.extendleft, take("extendleft", args, kwargs, "self", "iterable", required=2))


@handles(list.insert, deque.insert)
def insert(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, at, value = take("insert", args, kwargs, "self", "index", "object", required=3)
    target, index = mutable(self_), count_of(m, at)
    if target.maxlen is not None and len(target.items) >= target.maxlen:
        m.throw(IndexError, "deque already at its maximum size")
    m.touch(target)
    target.items.insert(index, value)
    return NONE


@handles(list.pop)
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, at = take("pop", args, kwargs, "self", "index", required=1)
    target, index = mutable(self_), -1 if at is None else count_of(m, at)
    if not target.items:
        m.throw(IndexError, "pop from empty list")
    index += len(target.items) if index < 0 else 0
    if not 0 <= index < len(target.items):
        m.throw(IndexError, "pop index out of range")
    value = m.settle_at(target.items, index)
    m.touch(target)
    del target.items[index]
    return value


@handles(deque.pop)
def deque_pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _pop_end(m, args, kwargs, -1)


@handles(deque.popleft)
def deque_popleft(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _pop_end(m, args, kwargs, 0)


def _pop_end(m: Machine, args: list[Value], kwargs: dict[str, Value], at: int) -> Value:
    target = mutable(take("pop", args, kwargs, "self", required=1)[0])
    if not target.items:
        m.throw(IndexError, "pop from an empty deque")
    value = m.settle_at(target.items, at)
    m.touch(target)
    del target.items[at]
    return value


@handles(deque.rotate)
def rotate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, steps = take("rotate", args, kwargs, "self", "n", required=1)
    items, count = items_of(m, self_), 1 if steps is None else count_of(m, steps)
    if items:
        count %= len(items)
        replace(m, mutable(self_), items[len(items) - count:] + items[:len(items) - count])
    return NONE


@handles(list.clear, deque.clear)
def clear(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    replace(m, mutable(take("clear", args, kwargs, "self", required=1)[0]), [])
    return NONE


@handles(list.copy, deque.copy, deque.__copy__)
def copy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_ = mutable(take("copy", args, kwargs, "self", required=1)[0])
    made = ListValue(list(items_of(m, self_)), list if issubclass(self_.pytype, list) else self_.pytype)
    made.maxlen = self_.maxlen
    return made


@handles(list.reverse, deque.reverse)
def reverse(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target = mutable(take("reverse", args, kwargs, "self", required=1)[0])
    replace(m, target, items_of(m, target)[::-1])
    return NONE


@handles(list.count, tuple.count, deque.count, operator.countOf)
def count(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, wanted = take("count", args, kwargs, "self", "value", required=2)
    items = iteration.known_items(m, self_)
    answers: list[Any] = [None] if items is None else [equal(m, v, wanted) for v in items]
    if None in answers:
        return m.enter(polyfill.count_in, [self_, wanted])
    return wrap_new(m, answers.count(True))


@handles(list.index, tuple.index, deque.index, operator.indexOf)
def index(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, wanted, start, stop = take("index", args, kwargs, "self", "value", "start", "stop", required=2)
    items = items_of(m, self_)
    first, last, _ = slice(start and index_of(m, start), stop and index_of(m, stop)).indices(len(items))
    for i in range(first, last):
        same = equal(m, items[i], wanted)
        if same is None:
            return m.enter(polyfill.index_in, [self_, wanted, Const(i), Const(last), Const("value not found")])
        if same:
            return wrap_new(m, i)
    return m.throw(ValueError, not_found(self_.pytype, described(m, wanted)))


@handles(polyfill.same_or_equal)
def same_or_equal(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    known = equal(m, *args)
    if known is not None:
        return boolean(known)
    note_identity(m, *args)
    return compare(m, "==", *args)


class Wanted:
    """A value that no sequence contains."""

    def __repr__(self) -> str:
        return "<wanted>"


def not_found(kind: type, what: str) -> str:
    """CPython's message when ``index`` finds nothing, which differs between versions."""
    try:
        empty: Any = next(base for base in (list, tuple, collections.deque) if issubclass(kind, base))()
        empty.index(Wanted())
    except ValueError as e:
        return str(e).replace("<wanted>", what)
    raise AssertionError("an empty sequence has nothing")


def described(m: Machine, value: Value) -> str:
    try:
        return repr(value.host(m))
    except NotConstant:
        return "value"


try:
    deque[int]().remove(0)
except ValueError as e:
    OF_DEQUE = str(e)       # the value is part of it before CPython 3.14


@handles(list.remove, deque.remove)
def remove(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, wanted = take("remove", args, kwargs, "self", "value", required=2)
    target, items = mutable(self_), items_of(m, self_)
    message = "list.remove(x): x not in list" if issubclass(target.pytype, list) else (
        OF_DEQUE.replace("0", described(m, wanted)))
    for i, item in enumerate(items):
        same = equal(m, item, wanted)
        if same is None:
            return m.enter(polyfill.remove_from, [self_, wanted, Const(message)])
        if same:
            m.touch(target)
            del target.items[i]
            return NONE
    return m.throw(ValueError, message)


@handles(list.sort)
def sort(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("sort", args, {}, "self", required=1)
    key, descending = take("sort", [], kwargs, "key", "reverse")
    items, known = items_of(m, self_), None
    if is_none(key):
        known = reductions.sorted_natively(m, items, truth_of(m, descending))
    if known is None:
        return m.enter(fill.sort_in_place, [self_, key or NONE, descending or boolean(False)])
    replace(m, mutable(self_), known)
    return NONE


@handles(list.__class_getitem__, tuple.__class_getitem__)
def class_getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return run_native(m, types.GenericAlias, *(a.host(m) for a in args))
