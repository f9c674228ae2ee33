"""The state that a saved call leaves in Python: what a file keeps, and the effects that it drops.

A file contains tensors. These are the rules for everything that a call changes besides its graph:

* A number (int or float) that is an attribute of the model becomes a buffer, if it was a number before the call.
* A tensor that is a buffer or an attribute of the model becomes a buffer, if its new value, or its new ``.data``, has
  the same shape and dtype.
* Everything else (lists, dicts, other attributes, globals, prints, logging) is dropped, and one warning lists it. Each
  call of the file finds it in the state in which the model was saved.

``SavedState`` emits the exit of a trace under these rules: the entry returns the kept values besides its result.
"""
from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType
from typing import Any

import torch

from sot.codegen.emit import Emitter
from sot.codegen.exit import Exit, write_exit
from sot.deploy.errors import SaveError
from sot.guards.guards import EqualsGuard, IsGuard
from sot.guards.origin import Origin
from sot.guards.terms import Term
from sot.interpreter.trace import Returned, Trace
from sot.values.base import ABSENT, Const, Lazy, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber
from sot.values.objects import DELETED, DictValue, ListValue, ObjectValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.text import TextValue, VaryingText


class IntOf(int):
    """An int of the example call, with the term that computes it in other calls."""

    term: Term


class FloatOf(float):
    """The same as IntOf for a float."""

    term: Term


def number_of(value: DynamicNumber) -> IntOf | FloatOf:
    made: Any = (FloatOf if value.pytype is float else IntOf)(value.example)
    made.term = value.term
    return made


class SavedEmitter(Emitter):
    """Emits varying numbers with their terms, so that the result shows how they are computed."""

    def value(self, value: Value | Lazy) -> str:
        if isinstance(value, DynamicNumber) and value.varies:
            return self.const(number_of(value))
        if isinstance(value, DeferredScalar):
            raise SaveError(f"it returns a number ({value.pytype.__name__}) that depends on the values of a tensor, by "
                            ".item(), .tolist() or as a size of what unique() and the like select. Return a tensor")
        if isinstance(value, TextValue) or isinstance(value, VaryingText) and value.varies:
            raise SaveError("it returns text that differs from call to call. Return what the text is made of")
        return super().value(value)


@dataclass(frozen=True)
class Kept:
    """A part of the model's state that the call changes and the file keeps: its name, its old and its new value."""

    name: str
    before: Any
    value: Value


class SavedState:
    """Emits exits of a trace of the saved ``code``. ``kept`` and ``dropped`` are those of the last exit."""

    def __init__(self, code: CodeType | None, owner: torch.nn.Module | None) -> None:
        self.code = code
        self.modules: dict[int, str] = {}       # names of modules, by the ids of their dicts
        self.tensors = {id(tensor): name for name, tensor in tensors_of(owner)}
        for name, module in owner.named_modules() if owner is not None else ():
            for held in module.__dict__, module._buffers, module._parameters:
                self.modules[id(held)] = name
        self.kept: list[Kept] = []
        self.numbers: dict[Origin, str] = {}    # names of the kept numbers, by the origin that the program reads
        self.dropped: list[str] = []
        self._undo: list[Callable[[], None]] = []

    def write(self, trace: Trace) -> Exit:
        """The exit of a trace. It changes only what the result contains, and ``restore`` undoes that."""
        self.kept, self.numbers, self.dropped, self._undo = [], {}, [], []
        if trace.code is not self.code or not isinstance(trace.exit, Returned):
            return write_exit(trace)
        decided = {guard.origin for guard in trace.guards if isinstance(guard, EqualsGuard | IsGuard)}
        for value in trace.mutated:
            self.sort(value, decided)
        if trace.effects:
            self.dropped.append("printed and logged output")
        returned = reachable(trace.exit.value)
        mutated = tuple(value for value in trace.mutated if id(value) in returned and self.can_restore(value))
        result = TupleValue([trace.exit.value, TupleValue([kept.value for kept in self.kept])])
        return write_exit(replace(trace, exit=Returned(result), mutated=mutated, effects=()), SavedEmitter)

    def sort(self, value: Value, decided: set[Origin]) -> None:
        """Decide what is kept of a changed value."""
        if isinstance(value, DictValue) and all(is_as_before(value, key) for key in value.overlay):
            return
        if isinstance(value, TensorValue) and value.attrs.keys() == {"data"} and is_kept(
                value.ref.real, value.attrs["data"]) and id(value.ref.real) in self.tensors:
            self.kept.append(Kept(self.tensors[id(value.ref.real)], value.ref.real, value.attrs["data"]))
            return
        module = self.modules.get(id(value.base)) if isinstance(value, DictValue) else None
        if module is None or not isinstance(value, DictValue):
            self.dropped.append(spelled(str(value)))
            return
        for key, new in value.overlay.items():
            if is_as_before(value, key):
                continue
            name, before = f"{module}.{key}".lstrip("."), value.base.get(key, ABSENT)
            origin = value.item_origin(key)
            if is_kept(before, new):
                self.kept.append(Kept(name, before, new))
                if isinstance(before, int | float):
                    self.numbers[origin] = name
            else:
                self.dropped.append(f"self.{name}" + (
                    f" (which decides what the call computes: it stays {before!r})" if origin in decided else ""))

    def can_restore(self, value: Any) -> bool:
        """Record how to undo what the entry writes to an existing value. Returns False if it cannot be undone."""
        if isinstance(value, DictValue):
            self._undo.append(partial(refill, value.base, dict(value.base)))
        elif isinstance(value, ListValue) and isinstance(value.real, list | deque):
            self._undo.append(partial(refill, value.real, list(value.real)))
        else:
            return isinstance(value, ObjectValue) and not value.slots
        return True

    def restore(self) -> None:
        """Undo what the entry has written."""
        while self._undo:
            self._undo.pop()()


def tensors_of(owner: torch.nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter, buffer and attribute by its first name. A tensor with two names occurs once."""
    seen: set[int] = set()
    for prefix, module in owner.named_modules() if owner is not None else ():
        for key, value in [*module._parameters.items(), *module._buffers.items(), *module.__dict__.items()]:
            if isinstance(value, torch.Tensor) and id(value) not in seen:
                seen.add(id(value))
                yield f"{prefix}.{key}".lstrip("."), value


def refill(held: Any, content: Any) -> None:
    """Restore the contents of a dict, list or deque."""
    held.clear()
    (held.update if isinstance(held, dict) else held.extend)(content)


def is_as_before(changed: DictValue, key: Any) -> bool:
    """Whether a value was restored. Libraries set a flag during a call, and exchange weights (``functional_call``)."""
    new, before = changed.overlay[key], changed.base.get(key, ABSENT)
    if new is changed.loaded.get(key):
        return True
    if isinstance(new, DynamicNumber):
        return False
    if isinstance(new, Const):
        return new.unguarded is before
    return isinstance(new, ObjectValue) and new.real is before is not ABSENT


def is_kept(before: Any, new: Any) -> bool:
    if isinstance(before, torch.Tensor):
        return isinstance(new, TensorValue) and new.fake.dtype == before.dtype and (
            [*map(str, new.fake.shape)] == [*map(str, before.shape)])
    if type(before) not in (int, float) or new is DELETED:
        return False
    return isinstance(new, DynamicNumber) or isinstance(new, Const) and type(new.unguarded) is type(before)


def reachable(value: Any) -> set[int]:
    """The ids of the values in a result."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        value = pending.pop()
        if id(value) in seen or not isinstance(value, Value):
            continue
        seen.add(id(value))
        pending.extend(parts(value))
    return seen


def parts(value: Value) -> Iterator[Any]:
    if isinstance(value, TupleValue | ListValue):
        yield from value.items
    if isinstance(value, DictValue):
        yield from value.loaded.values()
        yield from value.overlay.values()
    if isinstance(value, ObjectValue):
        yield value._attrs
        yield from value.slots.values()


def spelled(text: str) -> str:
    """A value in the terms of the model's class: ``self.log`` for what the wrapper calls a global."""
    text = re.sub(r"^\S+ globals\['self'\]", "self", text)
    return re.sub(r"\._(?:modules|parameters|buffers)\['(\w+)'\]", r".\1", text).removesuffix(".__dict__")
