"""Elements that are selected by a number that varies: a place in a list, a key of a dict, or a name made of the number.

Such a number is a constant of the capture. Among a few elements each of them has its own capture. Among more of them
than a function has captures, Python selects the element from the third number on, between two graphs.
"""
from __future__ import annotations

from sot.support import settings
from sot.support.errors import Break, Reason
from sot.values.base import Value
from sot.values.numbers import DynamicNumber
from sot.values.text import VaryingText


def refuse_many(key: Value, elements: int) -> None:
    """Break if the number has been a constant in an earlier capture, and a capture for each element is too many."""
    if elements > settings.entries().of_function and was_constant(key):
        numbers = ", ".join(map(str, filter(was_constant, key.numbers))) if isinstance(key, VaryingText) else key
        raise Break(Reason.VARYING_NUMBER, f"{numbers} (it selects one of {elements} elements)")


def was_constant(key: Value) -> bool:
    if isinstance(key, VaryingText):
        return key.varies and any(map(was_constant, key.numbers))
    return isinstance(key, DynamicNumber) and key.was_constant
