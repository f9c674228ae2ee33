"""Lists that are longer at each call, because the program appends to them: their length, and their elements by number.

Nothing of a list is guarded before it is looked into. Once its length has differed from what a guard asked for, the
length is a number that varies, and an element that is read guards only that the list reaches so far.
"""
from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sot.guards.origin import Item, Length
from sot.values.base import Const, Value
from sot.values.numbers import arithmetic, compare, is_dynamic
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.values.objects import ListValue
    from sot.values.protocols import Machine


def length(m: Machine, value: ListValue) -> Value | None:
    """How many elements it has, if that varies and nobody has looked into it."""
    before = length_before(m, value)
    return before if before is None or not value.added else arithmetic(m, "+", before, Const(len(value.added)))


def length_before(m: Machine, value: ListValue) -> Value | None:
    open_ended = value.pytype is list or value.pytype is deque and not value.added
    if not (open_ended and value.is_open) or value.origin is None or not m.varies.number(Length(value.origin)):
        return None
    return m.varying_number(len(value.real), Length(value.origin))


def element(m: Machine, value: ListValue, key: Value) -> Value | None:
    """``value[key]`` of such a list, if the key is a constant and there is that element."""
    if not isinstance(key, Const) or key.pytype is not int or is_dynamic(key):
        return None
    before = length_before(m, value)
    if before is None:
        return None
    index = key.real
    if -len(value.added) <= index < 0:
        return m.settle_at(value.added, index)
    if index < 0:
        index += len(value.added)
    if not compare(m, ">=", before, Const(-index if index < 0 else index + 1)).real:
        return None
    assert value.origin is not None
    return wrap(m, value.real[index], Item(value.origin, index))
