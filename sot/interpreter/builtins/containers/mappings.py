"""dict, OrderedDict, defaultdict and their views: construction and methods."""
from __future__ import annotations

import collections
import types
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins import iteration
from sot.interpreter.builtins.common import (
    NOT_IMPLEMENTED,
    call_slot,
    equal,
    hosts,
    is_none,
    key_of,
    overridden,
    run_native,
    slot,
    take,
    truth_of,
)
from sot.interpreter.builtins.containers import sets
from sot.interpreter.builtins.containers.lookups import refuse_many
from sot.polyfills import containers as fill
from sot.polyfills import operators as polyfill
from sot.support.errors import Break, PyRaise, Reason
from sot.support.registry import HANDLERS, handles, polyfills
from sot.values.base import ABSENT, FALSE, NONE, Const, Value, boolean
from sot.values.numbers import KEY_LIMIT, NUMBER_TYPES, is_among, is_dynamic
from sot.values.objects import DictValue, ExceptionValue, MappingProxy, ReadOnlyDict, SetValue, TupleValue
from sot.values.objects.set_history import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

OrderedDict, defaultdict = collections.OrderedDict, collections.defaultdict
VIEWS = ("keys", "values", "items")
EMPTY: tuple[Any, ...] = ({}, OrderedDict())
VIEW_TYPES = {kind: [type(getattr(made, kind)()) for made in EMPTY] for kind in VIEWS}


def table_of(value: Value) -> DictValue:
    if not isinstance(value, DictValue):
        raise Break(Reason.OPAQUE_VALUE, str(value))
    return value


def both(name: str) -> list[Any]:
    """The method of dict, and those of OrderedDict and defaultdict if they override it."""
    return [vars(cls)[name] for cls in (dict, OrderedDict, defaultdict) if name in vars(cls)]


def key_error(key: Value) -> Any:
    raise PyRaise(ExceptionValue(KeyError, [key]))


# ---- construction and filling
@handles(dict)
def new_dict(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    other, = take("dict", args, {}, "other")
    made = DictValue(dict)
    if other is not None and not merge(m, made, other):
        return m.enter(fill.new_dict, [other, keywords(kwargs)])
    for name, value in kwargs.items():
        made.set(m, name, value)
    return made


def keywords(kwargs: dict[str, Value]) -> DictValue:
    made = DictValue(dict)
    made.overlay.update(kwargs)
    return made


def merge(m: Machine, table: DictValue, other: Value) -> bool:
    """Copy a mapping or an iterable of pairs into a dict, if that needs no user code."""
    if isinstance(other, DictValue):
        odd = issubclass(other.pytype, OrderedDict) and (overridden(m, other, "keys") or overridden(
            m, other, "__getitem__"))
        if overridden(m, other, "__iter__") or odd:
            return False
        for key in other.keys(m):
            table.set(m, key, other.get(m, key), other.key_value(m, key))
        return True
    if not isinstance(other, Const) and slot(m, other, "keys") is not None:
        return False
    pairs = None if isinstance(other, iteration.GeneratorValue) else iteration.known_items(m, other)
    if pairs is None:
        return False
    flat = [iteration.known_items(m, pair) for pair in pairs]
    if any(pair is None for pair in flat):
        raise Break(Reason.UNSUPPORTED, "a dict of pairs that are not known")
    for i, pair in enumerate(flat):
        assert pair is not None
        if len(pair) != 2:
            m.throw(ValueError, f"dictionary update sequence element #{i} has length {len(pair)}; 2 is required")
        table.set(m, key_of(m, pair[0]), pair[1], pair[0])
    return True


@handles(dict.__new__, OrderedDict.__new__, defaultdict.__new__)
def dict_new(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return DictValue(args[0].constant())


@handles(dict.__init__, dict.update)
def dict_update(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Both methods ignore an override of ``__setitem__``."""
    self_, other = take("update", args, {}, "self", "other", required=1)
    table = table_of(self_)
    if other is not None and not merge(m, table, other):
        return m.enter(fill.update_plain, [self_, other, keywords(kwargs)])
    for name, value in kwargs.items():
        table.set(m, name, value)
    return NONE


@handles(OrderedDict.__init__, OrderedDict.update)
def ordered_update(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Fill with ``self[key] = value``."""
    self_, other = take("update", args, {}, "self", "other", required=1)
    if overridden(m, self_, "__setitem__"):
        return m.enter(fill.update_by_setitem, [self_, other or NONE, keywords(kwargs)])
    return dict_update(m, args, kwargs)


@handles(OrderedDict)
def new_ordered(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = DictValue(OrderedDict)
    if args and not merge(m, made, args[0]):
        return m.enter(fill.new_ordered, [args[0], keywords(kwargs)])
    dict_update(m, [made], kwargs)
    return made


@handles(defaultdict)
def new_defaultdict(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = DictValue(defaultdict)
    if len(args) > 1 and not merge(m, made, args[1]):
        return m.enter(fill.new_defaultdict, [args[0], args[1], keywords(kwargs)])
    made.default_factory = None if not args or is_none(args[0]) else args[0]
    dict_update(m, [made], kwargs)
    return made


@handles(defaultdict.__init__)
def defaultdict_init(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, *rest = args
    m.touch(self_)
    table_of(self_).default_factory = None if not rest or is_none(rest[0]) else rest[0]
    return dict_update(m, [self_, *rest[1:]], kwargs)


def _fromkeys(cls: type) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        iterable, value = take("fromkeys", args, kwargs, "iterable", "value", required=1)
        # an iterator gives its items only once
        items = None if cls is defaultdict else iteration.known_items(m, iterable)
        if items is None:
            return m.enter(fill.fromkeys, [Const(cls), iterable, value or NONE])
        made = DictValue(cls)
        for item in items:
            made.set(m, key_of(m, item), value or NONE, item)
        return made
    return handler


for _cls in (dict, OrderedDict, defaultdict):
    HANDLERS[_cls.fromkeys] = _fromkeys(_cls)


# ---- items
def is_key(m: Machine, table: DictValue, number: Any) -> bool | None:
    """Whether a number that varies is a key; None if the number itself is needed to know."""
    return is_among(m, number, table.keys(m)) if len(table.base) <= KEY_LIMIT else None


def value_under(m: Machine, table: DictValue, key: Value) -> Any:
    """The value under a key, or ABSENT. A number that varies stays one if the values under all numbers are equal
    constants.
    """
    if is_dynamic(key):
        known = is_key(m, table, key)
        if known is False:
            return ABSENT
        if known:
            found = [table.get(m, k) for k in table.keys(m) if isinstance(k, NUMBER_TYPES)]
            if all(isinstance(v, Const) and not is_dynamic(v) and v.real is found[0].real for v in found):
                return found[0]
    refuse_many(key, dict.__len__(table.base))
    return table.get(m, key_of(m, key))


@handles(*both("__getitem__"))
def getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__getitem__", args, kwargs, "self", "key", required=2)
    found = value_under(m, table_of(self_), key)
    if found is not ABSENT:
        return found
    if self_.pytype in (dict, OrderedDict):
        key_error(key)
    missing = slot(m, self_, "__missing__")
    if missing is None:
        key_error(key)
    return call_slot(m, self_, "__missing__", [key])  # type: ignore[return-value]


@handles(defaultdict.__missing__)
def default_missing(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__missing__", args, kwargs, "self", "key", required=2)
    table = table_of(self_)
    factory = table.slots.get("default_factory", table.default_factory)
    if is_none(factory):
        key_error(key)
    if isinstance(factory, Const) and factory.real in (list, dict, set, int, float, str, tuple):
        value = factory.call(m, [], {})
        if not overridden(m, self_, "__setitem__"):
            table.set(m, key_of(m, key), value, key)
            return value
    return m.enter(fill.missing_from_factory, [self_, key])


@handles(*both("__setitem__"))
def setitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, value = take("__setitem__", args, kwargs, "self", "key", "value", required=3)
    table_of(self_).set(m, key_of(m, key), value, key)
    return NONE


@handles(*both("__delitem__"))
def delitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__delitem__", args, kwargs, "self", "key", required=2)
    table, real = table_of(self_), key_of(m, key)
    if table.get(m, real) is ABSENT:
        key_error(key)
    table.delete(m, real)
    return NONE


@handles(*both("__contains__"))
def contains(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key = take("__contains__", args, kwargs, "self", "key", required=2)
    table = table_of(self_)
    known = is_key(m, table, key) if is_dynamic(key) else None
    return boolean(table.get(m, key_of(m, key)) is not ABSENT if known is None else known)


@handles(*both("get"))
def get(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, default = take("get", args, kwargs, "self", "key", "default", required=2)
    found = value_under(m, table_of(self_), key)
    return (default or NONE) if found is ABSENT else found


@handles(*both("pop"))
def pop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, default = take("pop", args, kwargs, "self", "key", "default", required=2)
    table = table_of(self_)
    asks_for_hash = key.pytype.__hash__ is not None or issubclass(self_.pytype, OrderedDict) or table.keys(m)
    found = table.get(m, real := key_of(m, key)) if asks_for_hash else ABSENT
    if found is ABSENT:
        return key_error(key) if default is None else default
    table.delete(m, real)
    return found


@handles(*both("setdefault"))
def setdefault(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, default = take("setdefault", args, kwargs, "self", "key", "default", required=2)
    table, real = table_of(self_), key_of(m, key)
    found = table.get(m, real)
    if found is ABSENT:
        found = default or NONE
        table.set(m, real, found, key)
    return found


@handles(*both("popitem"))
def popitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    ordered = issubclass(args[0].pytype, OrderedDict)
    self_, last = [*take("popitem", args, kwargs, "self", *["last"] * ordered, required=1), None][:2]
    table = table_of(self_)
    keys = table.keys(m)
    if not keys:
        m.throw(KeyError, "popitem(): dictionary is empty" if self_.pytype is not OrderedDict
                else "dictionary is empty")
    key = keys[-1 if truth_of(m, last, True) else 0]
    pair = TupleValue([table.key_value(m, key), table.get(m, key)])
    table.delete(m, key)
    return pair


@handles(*both("clear"))
def clear(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    table = table_of(take("clear", args, kwargs, "self", required=1)[0])
    for key in table.keys(m):
        table.delete(m, key)
    return NONE


@handles(OrderedDict.move_to_end)
def move_to_end(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, key, last = take("move_to_end", args, kwargs, "self", "key", "last", required=2)
    table, real = table_of(self_), key_of(m, key)
    if table.get(m, real) is ABSENT:
        key_error(key)
    moving = [real] if truth_of(m, last, True) else [k for k in table.keys(m) if k != real]
    for k in moving:
        value, name = table.get(m, k), table.key_value(m, k)
        table.delete(m, k)
        table.set(m, k, value, name)
    return NONE


# ---- copies and operators
@handles(dict.copy)
def copy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return copied(m, table_of(take("copy", args, kwargs, "self", required=1)[0]), dict)


def copied(m: Machine, table: DictValue, kind: type) -> DictValue:
    made = DictValue(kind)
    for key in table.keys(m):
        made.set(m, key, table.get(m, key), table.key_value(m, key))
    return made


@handles(OrderedDict.copy, defaultdict.copy, defaultdict.__copy__)
def copy_as_class(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    table = table_of(take("copy", args, kwargs, "self", required=1)[0])
    if table.pytype not in (OrderedDict, defaultdict):
        return m.enter(fill.copy_ordered if issubclass(table.pytype, OrderedDict) else fill.copy_default, [table])
    made = copied(m, table, table.pytype)
    made.default_factory = table.slots.get("default_factory", table.default_factory)
    return made


def _union(reflected: bool) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self_, other = take("__or__", args, kwargs, "self", "other", required=2)
        if not isinstance(self_, DictValue) or not isinstance(other, DictValue):
            return NOT_IMPLEMENTED
        first, second = (other, self_) if reflected else (self_, other)
        kind = self_.pytype if self_.pytype in (dict, OrderedDict, defaultdict) else dict
        if self_.pytype is not kind and issubclass(self_.pytype, (OrderedDict, defaultdict)) or (
                overridden(m, first, "__iter__")):      # then C copies it by its methods
            raise Break(Reason.UNSUPPORTED, f"{self_} | ...")
        made = copied(m, first, kind)
        made.default_factory = self_.default_factory
        if not merge(m, made, second):
            raise Break(Reason.UNSUPPORTED, f"... | {other}")
        return made
    return handler


for _raw in both("__or__"):
    HANDLERS[_raw] = _union(False)
for _raw in both("__ror__"):
    HANDLERS[_raw] = _union(True)


@handles(*both("__ior__"))
def update_by_or(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, other = take("__ior__", args, kwargs, "self", "other", required=2)
    if overridden(m, self_, "__setitem__") or not merge(m, table_of(self_), other):
        raise Break(Reason.UNSUPPORTED, f"{self_} |= {other}")
    return self_


def _comparison(wanted: bool) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        a, b = take("__eq__", args, kwargs, "self", "other", required=2)
        if not isinstance(a, DictValue) or not isinstance(b, DictValue):
            return NOT_IMPLEMENTED
        in_order = issubclass(a.pytype, OrderedDict) and issubclass(b.pytype, OrderedDict)
        keys, others = a.keys(m), b.keys(m)
        if (keys != others) if in_order else (len(keys) != len(others) or any(b.get(m, k) is ABSENT for k in keys)):
            return boolean(not wanted)
        known: bool | None = True
        for key in keys:
            same = equal(m, a.get(m, key), b.get(m, key))
            if same is False and known:
                return boolean(not wanted)
            known = known if same else None
        if known is None:
            return m.enter(polyfill.equal_dicts if wanted else polyfill.different_dicts, [a, b])
        return boolean(wanted)
    return handler


for _name, _wanted in (("__eq__", True), ("__ne__", False)):
    for _raw in both(_name):
        HANDLERS[_raw] = _comparison(_wanted)


# ---- iteration and views
@handles(*both("__len__"), *(vars(t)["__len__"] for ts in VIEW_TYPES.values() for t in ts if "__len__" in vars(t)))
def length(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_ = args[0]
    return (self_.of if isinstance(self_, MappingProxy) else table_of(self_)).length(m)


@handles(*both("__iter__"), *(vars(t)["__iter__"] for ts in VIEW_TYPES.values() for t in ts))
def iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return iteration.elements_iterator(m, args[0])


@handles(*both("__reversed__"), *(vars(t)["__reversed__"] for ts in VIEW_TYPES.values() for t in ts))
def reverse_iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_ = args[0]
    return iteration.elements_backwards(m, self_ if isinstance(self_, MappingProxy) else table_of(self_))


def _view(kind: str) -> Callable:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        table = table_of(take(kind, args, kwargs, "self", required=1)[0])
        made = MappingProxy(kind, table)
        made.pytype = VIEW_TYPES[kind][issubclass(table.pytype, OrderedDict)]
        return made
    return handler


for _kind in VIEWS:
    for _raw in both(_kind):
        HANDLERS[_raw] = _view(_kind)


@handles(*(vars(t)["__contains__"] for ts in VIEW_TYPES.values() for t in ts if "__contains__" in vars(t)))
def view_contains(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    view, item = take("__contains__", args, kwargs, "self", "item", required=2)
    if not isinstance(view, MappingProxy):
        raise Break(Reason.OPAQUE_VALUE, str(view))
    if view.kind == "keys":
        return boolean(view.of.get(m, key_of(m, item)) is not ABSENT)
    pair = iteration.known_items(m, item) if isinstance(item, (TupleValue, Const)) else None
    if view.kind == "items" and pair is not None and len(pair) == 2:
        value = view.of.get(m, key_of(m, pair[0]))
        same = FALSE if value is ABSENT else equal(m, value, pair[1])
        if same is not None:
            return boolean(same is True)
    return m.enter(polyfill.contains, [view, item])


LIKE_SETS: Any = (set, frozenset, *VIEW_TYPES["keys"], *VIEW_TYPES["items"])
ORDERS = {"__eq__": polyfill.views_equal, "__ne__": polyfill.views_differ, "__lt__": polyfill.view_less,
          "__le__": polyfill.view_within, "__gt__": polyfill.view_greater, "__ge__": polyfill.view_around}


SYMBOLS = {f"__{short}__": symbol for short, (symbol, *_) in sets.OPERATIONS.items()}


def _set_operation(name: str, with_sets: Callable) -> None:
    """``keys & other`` and the like, computed by the operation of sets."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        view, other = take(name, args, kwargs, "self", "other", required=2)
        if name in ORDERS:
            if not issubclass(other.pytype, LIKE_SETS):
                return NOT_IMPLEMENTED
            if hosts(m, [view, other]) is None:
                return m.enter(ORDERS[name], [view, other])
        items = iteration.known_items(m, other)
        if items is None:
            raise Break(Reason.UNSUPPORTED, f"a set operation of {view} and {other}")
        own, given = as_set(m, view), sets.made_of(m, items)
        result = with_sets(m, [own, given], {})
        if isinstance(result, SetValue):
            result.history = Step(sets.source_of(m, view, own.items), SYMBOLS[name],
                                  (sets.source_of(m, other, given.items),))
        return result
    for kind in ("keys", "items"):
        for view_type in VIEW_TYPES[kind]:
            if name in vars(view_type):
                HANDLERS[vars(view_type)[name]] = handler


def as_set(m: Machine, view: Value) -> SetValue:
    return sets.made_of(m, view.items_list(m) or [])


for _name in ("__and__", "__or__", "__sub__", "__xor__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
              "isdisjoint"):
    _set_operation(_name, HANDLERS[getattr(set, _name)])


@handles(types.MappingProxyType)
def mapping_proxy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    of, = take("mappingproxy", args, kwargs, "mapping", required=1)
    if not isinstance(of, DictValue) or of.pytype not in (dict, OrderedDict):
        raise Break(Reason.UNSUPPORTED, f"a mappingproxy of {of}")
    return ReadOnlyDict(of)


@handles(*(cls.__class_getitem__ for cls in (dict, OrderedDict, defaultdict)))
def class_getitem(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return run_native(m, types.GenericAlias, *(a.host(m) for a in args))


polyfills(collections._count_elements)(fill.count_elements)  # type: ignore[attr-defined]
