"""Guards that may be read one by one when a call is explained, without running code of the program.

The guard program stops at the first guard that fails. An explanation goes on, but a part of an object must not be read
when the object has another class than in the captured call: ``v[0]`` and ``v.k`` may be the program's methods there.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from sot.guards.guards import EqualsGuard, Guard, IsGuard, TypeGuard
from sot.guards.origin import Inputs, Origin
from sot.guards.tensor_guards import AnyTensorGuard, TensorGuard
from sot.guards.terms import leaves


def readable(guards: Iterable[Guard], inputs: Inputs) -> Iterator[Guard]:
    """The guards, in order, except further ones on objects of another class, and those on their parts."""
    others: dict[Origin, bool] = {}     # whether this, or an object that it is a part of, has another class

    def is_of_other(origin: Origin) -> bool:
        found = others.get(origin)
        if found is None:
            found = others[origin] = any(map(is_of_other, parents(origin)))
        return found
    for guard in guards:
        if others and any(map(is_of_other, origins_of(guard))):
            continue
        yield guard
        if has_other_class(guard, inputs):
            others = {origin: True for origin, found in others.items() if found} | {guard.origin: True}


def origins_of(guard: Guard) -> Iterator[Origin]:
    for part in vars(guard).values():
        yield from (o for o in (part if type(part) is tuple else (part,)) if isinstance(o, Origin))
        yield from leaves(part) if type(part) is tuple and part and type(part[0]) is str else ()


def parents(origin: Origin) -> Iterator[Origin]:
    """The origins that it is read from."""
    for part in vars(origin).values():
        yield from (o for o in (part if type(part) is tuple else (part,)) if isinstance(o, Origin))


def has_other_class(guard: Guard, inputs: Inputs) -> bool:
    expected: Any = None
    if isinstance(guard, TypeGuard):
        expected = guard.cls
    elif isinstance(guard, IsGuard | EqualsGuard):
        expected = type(guard.value)
    is_tensor = isinstance(guard, TensorGuard | AnyTensorGuard)
    if expected is None and not is_tensor:
        return False
    try:
        found = type(guard.origin.read(inputs))
    except Exception:  # noqa: BLE001 - it is gone, and so are its parts
        return True
    return not issubclass(found, torch.Tensor) if is_tensor else found is not expected
