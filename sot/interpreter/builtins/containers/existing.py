"""Containers that existed before the frame. A list, tuple or deque is guarded by its length, a set by its elements, and
a dict by the keys that are read. The methods of a class of the program are not called.
"""
from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.guards.containers import length_of
from sot.guards.guards import EqualsGuard, LengthGuard
from sot.guards.origin import Attr, Item, Length, Origin, RawItem
from sot.support.errors import Break, Reason
from sot.values.base import Lazy, Opaque, Value
from sot.values.constants import compares_by_python, is_constant
from sot.values.objects import DictValue, ListValue, SetValue, TupleValue
from sot.values.wrapping import wrap, wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

OF_SETS = tuple(name for name in vars(set) if name.startswith("__") and name not in ("__init__", "__new__"))


def lazies(m: Machine, real: Any, origin: Origin, kind: type) -> list:
    m.guard(LengthGuard(origin, length_of(real)))
    exact = type(real) in (list, tuple)
    elements = enumerate(kind.__iter__(real))  # type: ignore[attr-defined]
    return [Lazy(v, Item(origin, i) if exact else RawItem(origin, i, kind=kind)) for i, v in elements]


def refuse_restless(m: Machine, origin: Origin) -> None:
    """Break if the elements of a list are read whose length has differed at several calls."""
    if Length(origin) in m.varies.specialized:
        raise Break(Reason.VARYING_NUMBER, str(Length(origin)))


def existing_list(m: Machine, real: list, origin: Origin) -> Value:
    def load() -> list:
        refuse_restless(m, origin)
        return lazies(m, real, origin, list)
    return ListValue([], type(real), real, origin, load)


def existing_tuple(m: Machine, real: tuple, origin: Origin) -> Value:
    if type(real) is tuple and m.varies.number(Length(origin)):
        return TupleValue([], tuple, real, origin, lambda: lazies(m, real, origin, tuple))
    return TupleValue(lazies(m, real, origin, tuple), type(real), real, origin)


def existing_dict(m: Machine, real: dict, origin: Origin) -> Value:
    value = DictValue(type(real), real, origin)
    if isinstance(real, collections.defaultdict):
        value.default_factory = wrap(m, real.default_factory, Attr(origin, "default_factory"))
    return value


def existing_set(m: Machine, real: set, origin: Origin) -> Value:
    kind = type(real)
    if kind not in (set, frozenset) and any(isinstance(getattr(kind, n), types.FunctionType) for n in OF_SETS):
        return Opaque(real, origin)     # a guard would call them
    if not all(type(v) is types.FunctionType or (is_constant(v) and not compares_by_python(v)) for v in real):
        return Opaque(real, origin)
    kept: Any = real
    if kind is not frozenset:
        kept = set.__new__(kind)    # the class may have a constructor of its own
        set.update(kept, real)
    m.guard(EqualsGuard(origin, kept))
    return SetValue({v: wrap_known(m, v) for v in real}, kind, real, origin)


def existing_deque(m: Machine, real: collections.deque, origin: Origin) -> Value:
    m.guard(EqualsGuard(Attr(origin, "maxlen"), real.maxlen))

    def load() -> list:
        refuse_restless(m, origin)
        m.guard(LengthGuard(origin, length_of(real)))
        return [Lazy(v, Item(origin, i)) for i, v in enumerate(real)]
    value = ListValue([], type(real), real, origin, load)
    value.maxlen = real.maxlen
    return value


WRAPPERS: dict[type, Callable] = {
    list: existing_list, tuple: existing_tuple, dict: existing_dict, set: existing_set, frozenset: existing_set,
    collections.deque: existing_deque}
