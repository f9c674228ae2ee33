"""set and frozenset: construction and methods."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins import iteration, reductions
from sot.interpreter.builtins.common import ELEMENT, NOT_IMPLEMENTED, key_of, no_keywords, run_native, take
from sot.polyfills import containers as fill
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import ABSENT, NONE, Const, Value, boolean
from sot.values.numbers import is_among, is_dynamic
from sot.values.objects import ExceptionValue, MappingProxy, SetValue
from sot.values.objects.identities import IdentityNumber, refuse_among_others
from sot.values.objects.set_history import IN_PLACE, History, Key, Known, Listed, New, Step, View
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

Members = dict[Any, Value]


def both(name: str) -> list[Any]:
    """The method of set and of frozenset, where they have it."""
    return [vars(cls)[name] for cls in (set, frozenset) if name in vars(cls)]


def made_of(m: Machine, items: list[Value], kind: type = set) -> SetValue:
    members: Members = {}
    for item in items:
        members.setdefault(key_of(m, item, ELEMENT), item)
    return SetValue(members, kind)


def members_of(m: Machine, value: Value) -> Members | None:
    """The members of a set, frozenset, or view of keys or items; None for other values."""
    if isinstance(value, SetValue):
        return value.items
    if (isinstance(value, Const) and isinstance(value.real, frozenset)) or (
            isinstance(value, MappingProxy) and value.kind != "values"):
        return made_of(m, value.items_list(m) or []).items
    return None


def members_given(m: Machine, value: Value) -> Members | None:
    """The members that a set gets of a value; None if the value is an iterator of the program. Nothing depends on the
    order of another set here: the new set's history has it.
    """
    if (found := members_of(m, value)) is not None:
        return dict(found)
    items = iteration.known_items(m, value)
    return None if items is None else made_of(m, items).items


def source_of(m: Machine, value: Value, members: Members) -> History:
    """Something whose members, given here, a set gets. For sets and dicts CPython has ways of its own."""
    if isinstance(value, SetValue):
        return value.history_now(m)
    if isinstance(value, Const) and isinstance(value.real, frozenset):
        return Known(value.real)
    if isinstance(value, MappingProxy) and value.kind != "values" and value.of.pytype is dict:
        return View(value.kind, dict(members))
    return Listed(dict(members), dict if value.pytype is dict else list)


def mutable(value: Value) -> SetValue:
    if not isinstance(value, SetValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return value


def own_members(m: Machine, value: Value) -> Members:
    found = members_of(m, value)
    if found is None:
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return found


def result_type(value: Value) -> type:
    return frozenset if issubclass(value.pytype, frozenset) else set


# ---- construction
def _maker(kind: type) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        no_keywords(kind.__name__, kwargs)
        iterable, = take(kind.__name__, args, {}, "iterable")
        if iterable is None:
            return SetValue({}, kind)
        if kind is frozenset and iterable.pytype is frozenset:
            return iterable
        members = members_given(m, iterable)
        if members is None:
            return m.enter(fill.new_set if kind is set else fill.new_frozenset, [iterable])
        reductions.refuse_varying(m, [*members.values()], f"making a {kind.__name__} of")
        return SetValue(members, kind, history=New(kind, source_of(m, iterable, members)))
    return handler


HANDLERS[set], HANDLERS[frozenset] = _maker(set), _maker(frozenset)


@handles(set.__new__)
def set_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return SetValue({}, args[0].constant())


@handles(frozenset.__new__)
def frozenset_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, iterable = take("frozenset", args, kwargs, "cls", "iterable", required=1)
    items = [] if iterable is None else iteration.known_items(m, iterable)
    if items is None:
        raise Break(Reason.UNSUPPORTED, "a frozenset of an iterator")
    return made_of(m, items, cls.constant())


@handles(set.__init__)
def set_init(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, iterable = take("set.__init__", args, kwargs, "self", "iterable", required=1)
    target, members = mutable(self_), {} if iterable is None else members_given(m, iterable)
    if members is None:
        return m.enter(fill.set_init, [self_, iterable])
    if target.items or target.real is not ABSENT:
        target.change(m, {}, "set.clear")
    if members:
        target.change(m, members, "set.update", source_of(m, iterable, members))
    return NONE


# ---- members
@handles(set.add)
def add(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, item = take("add", args, kwargs, "self", "object", required=2)
    target, key = mutable(self_), key_of(m, item, ELEMENT)
    if target.real is not ABSENT:
        refuse_among_others(key)
    if key not in target.items:
        target.add(m, key, item)
    return NONE


@handles(set.discard)
def discard(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, item = take("discard", args, kwargs, "self", "object", required=2)
    _without(m, mutable(self_), wanted_key(m, item))
    return NONE


@handles(set.remove)
def remove(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, item = take("remove", args, kwargs, "self", "object", required=2)
    if not _without(m, mutable(self_), wanted_key(m, item)):
        raise PyRaise(ExceptionValue(KeyError, [item]))
    return NONE


def wanted_key(m: Machine, item: Value) -> Any:
    """The key to look for: a set stands for the frozenset of its members."""
    if isinstance(item, SetValue) and item.pytype.__hash__ is None:
        return frozenset(item.items)
    return key_of(m, item, ELEMENT)


def _without(m: Machine, target: SetValue, key: Any) -> bool:
    if key not in target.items:
        return False
    rest = dict(target.items)
    value = rest.pop(key)
    target.change(m, rest, "set.discard", Key(key, value))
    return True


@handles(set.pop)
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    target = mutable(take("pop", args, kwargs, "self", required=1)[0])
    if not target.items:
        m.throw(KeyError, "pop from an empty set")
    return target.pop(m)


@handles(set.clear)
def clear(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    mutable(take("clear", args, kwargs, "self", required=1)[0]).change(m, {}, "set.clear")
    return NONE


@handles(*both("copy"))
def copy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, = take("copy", args, kwargs, "self", required=1)
    if self_.pytype is frozenset:
        return self_
    members = dict(own_members(m, self_))
    return SetValue(members, set, history=Step(source_of(m, self_, members), "set.copy"))


@handles(*both("__len__"))
def length(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return wrap_new(m, len(own_members(m, args[0])))


@handles(*both("__iter__"))
def iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return iteration.elements_iterator(m, args[0])


@handles(*both("__contains__"))
def contains(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, item = take("__contains__", args, kwargs, "self", "object", required=2)
    if self_.real is not ABSENT:
        refuse_among_others(key_of(m, item, ELEMENT) if isinstance(item, IdentityNumber) else None)
    if isinstance(item, SetValue) and item.pytype is not frozenset:
        return boolean(frozenset(item.items) in own_members(m, self_))
    members = own_members(m, self_)
    known = is_among(m, item, members) if is_dynamic(item) else None
    return boolean(key_of(m, item, ELEMENT) in members if known is None else known)


# ---- operations: on members, for the method (any iterable) and the operator (sets only)
def union(a: Members, b: Members) -> Members:
    return {**a, **{k: v for k, v in b.items() if k not in a}}


def intersection(a: Members, b: Members) -> Members:
    """The intersection. Of equal members, Python keeps those of the smaller set."""
    small, large = (a, b) if len(b) > len(a) else (b, a)
    return {k: v for k, v in small.items() if k in large}


def difference(a: Members, b: Members) -> Members:
    return {k: v for k, v in a.items() if k not in b}


def symmetric_difference(a: Members, b: Members) -> Members:
    return {**difference(a, b), **difference(b, a)}


OPERATIONS = {"or": ("|", "union", "update", union),
              "and": ("&", "intersection", "intersection_update", intersection),
              "sub": ("-", "difference", "difference_update", difference),
              "xor": ("^", "symmetric_difference", "symmetric_difference_update", symmetric_difference)}


def _operator(symbol: str, operation: Callable, reflected: bool) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take("operator", args, kwargs, "self", "value", required=2)
        left, right = members_of(m, a), members_of(m, b)
        if left is None or right is None:
            return NOT_IMPLEMENTED
        if reflected:
            a, b, left, right = b, a, right, left
        history = Step(source_of(m, a, left), symbol, (source_of(m, b, right),))
        return SetValue(operation(left, right), result_type(a), history=history)
    return handler


def _in_place(symbol: str, operation: Callable) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take("operator", args, kwargs, "self", "value", required=2)
        right = members_of(m, b)
        if right is None:
            return NOT_IMPLEMENTED
        mutable(a).change(m, operation(mutable(a).items, right), symbol, source_of(m, b, right))
        return a
    return handler


def _method(name: str, operation: Callable, cls: type) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        no_keywords(name, kwargs)
        self_, *others = args
        if operation is symmetric_difference and len(others) != 1:
            raise Break(Reason.BAD_CALL, f"{name}()")
        given = [members_given(m, other) for other in others]
        members = own = dict(own_members(m, self_))
        sources = []
        for other, more in zip(others, given, strict=True):
            if more is None:
                return m.enter(fill.set_method, [self_, Const(name), *others])
            members = operation(members, more)
            sources.append(source_of(m, other, more))
        qualified = f"{cls.__name__}.{name}"
        if qualified not in IN_PLACE:
            return SetValue(members, result_type(self_), history=Step(source_of(m, self_, own), qualified, (*sources,)))
        mutable(self_).change(m, members, qualified, *sources)
        return NONE
    return handler


def _register() -> None:
    for short, (symbol, method, in_place, operation) in OPERATIONS.items():
        for cls in (set, frozenset):
            HANDLERS[vars(cls)[f"__{short}__"]] = _operator(symbol, operation, False)
            HANDLERS[vars(cls)[f"__r{short}__"]] = _operator(symbol, operation, True)
            HANDLERS[vars(cls)[method]] = _method(method, operation, cls)
        HANDLERS[vars(set)[f"__i{short}__"]] = _in_place(f"{symbol}=", operation)
        HANDLERS[vars(set)[in_place]] = _method(in_place, operation, set)
    for name, compare in COMPARISONS.items():
        for cls in (set, frozenset):
            HANDLERS[vars(cls)[name]] = _comparison(compare)
    for name, compare in (("issubset", COMPARISONS["__le__"]), ("issuperset", COMPARISONS["__ge__"]),
                          ("isdisjoint", lambda a, b: a.isdisjoint(b))):
        for cls in (set, frozenset):
            HANDLERS[vars(cls)[name]] = _test(name, compare)


COMPARISONS: dict[str, Callable] = {
    "__eq__": lambda a, b: a == b, "__ne__": lambda a, b: a != b, "__lt__": lambda a, b: a < b,
    "__le__": lambda a, b: a <= b, "__gt__": lambda a, b: a > b, "__ge__": lambda a, b: a >= b}


def _comparison(compare: Callable) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take("comparison", args, kwargs, "self", "value", required=2)
        left, right = members_of(m, a), members_of(m, b)
        if left is None or right is None:
            return NOT_IMPLEMENTED
        return boolean(compare(set(left), set(right)))
    return handler


def _test(name: str, compare: Callable) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self_, other = take(name, args, kwargs, "self", "other", required=2)
        members = members_given(m, other)
        if members is None:
            return m.enter(fill.set_method, [self_, Const(name), other])
        return boolean(compare(set(own_members(m, self_)), set(members)))
    return handler


_register()


@handles(set.__class_getitem__, frozenset.__class_getitem__)
def class_getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return run_native(m, types.GenericAlias, *(a.host(m) for a in args))
