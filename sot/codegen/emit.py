"""From values to Python source: the body of an emitted function.

The ``rebuild`` of a value writes it, and calls the emitter for its parts. ``Emitter`` ensures that each value is made
once. Existing objects are loaded before that, under their guards, before anything changes.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from keyword import iskeyword
from types import FunctionType
from typing import Any

from torch import fx

from sot.codegen import resume_points
from sot.codegen.names import Names, as_literal
from sot.graph import TensorRef
from sot.guards.origin import Origin
from sot.interpreter.trace import Trace
from sot.support.errors import NotRebuildable
from sot.values.base import ABSENT, Const, Lazy, Value
from sot.values.classes import is_in_made_class
from sot.values.constants import is_one_object
from sot.values.iterators import GeneratorValue
from sot.values.objects import DELETED, ObjectValue
from sot.values.objects.instances import dict_of
from sot.values.tensor import TensorValue


class Emitter:
    """Writes the code of an entry after its graph. ``Value.rebuild`` describes the calls."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.names = Names()
        self.lines: list[str] = []
        self.outputs: dict[int, tuple[TensorRef, str]] = {}     # outputs of the graph, by the id of their references
        self._memo: dict[int, str] = {}
        self._kept: list[Any] = []
        self._literals: dict[str, Any] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._positions: list[str] = []
        self._completing: set[int] = set()
        self._replayed: set[int] = set()
        self._changed = {id(value) for value in trace.mutated}

    # ---- names
    def fresh(self, prefix: str) -> str:
        return self.names.fresh(prefix)

    def ref(self, origin: Origin) -> str:
        """The variable that holds the value of an origin."""
        if self.trace.made_classes and is_in_made_class(origin, self.trace.made_classes):
            return origin.expr(self)        # of the class that is made anew
        return self.names.ref(origin)

    def const(self, value: object, hint: str = "k") -> str:
        """The name of an object that the entry holds. A class that the program makes is made anew."""
        made = self.trace.made_classes.get(id(value))
        if isinstance(value, Enum) and (of := self.trace.made_classes.get(id(type(value)))) is not None:
            is_member = value.name in type(value).__members__     # else it combines flags
            return f"{self.value(of)}[{value.name!r}]" if is_member else f"{self.value(of)}({value.value!r})"
        return self.names.const(value, hint) if made is None else self.value(made)

    def literal(self, value: Any) -> str:
        """Python's compiler makes one object of equal literals, but the program may have several."""
        text = as_literal(value)
        if text is not None and (is_one_object(value) or self._literals.setdefault(text, value) is value):
            return text
        if type(value) is tuple and self.trace.made_classes:
            return self.tuple_display("".join(self.literal(v) + ", " for v in value))
        return self.const(value)

    def constant(self, value: Any, place: Origin | None) -> str:
        """A constant that existed before: the object itself, because an equal one is another object for a program that
        asks ``is``, or looks for a NaN in a list.
        """
        if place is None or is_one_object(value) or (
                self.trace.made_classes and is_in_made_class(place, self.trace.made_classes)):
            return self.literal(value)
        return self.ref(place)

    def key(self, key: Any) -> str:
        return self.value(key) if isinstance(key, Value) else self.literal(key)

    def tuple_display(self, parts: Iterable[str]) -> str:
        """A new tuple. Python's compiler makes one object of a display of constants, but the program made several."""
        parts = [*parts]
        inner = "".join(f"{part}, " for part in parts)
        is_made = not parts or any(part.isidentifier() and not iskeyword(part) for part in parts)
        return f"({inner})" if is_made else f"tuple([{inner}])"

    # ---- values
    def value(self, value: Value | Lazy) -> str:
        """The expression of a value. An object is made once, however many references it has."""
        if isinstance(value, Lazy):
            return self.ref(value.origin)
        name = self._memo.get(id(value))
        if name is None:
            if value.origin is not None and not isinstance(value, Const):
                name = self.ref(value.origin)
            else:
                name = value.rebuild(self)
            self._memo[id(value)] = name
            self._kept.append(value)
        return name

    def line(self, text: str) -> None:
        self.lines.append(text)

    def variable(self, value: Value, expression: str) -> str:
        name = self.fresh("v")
        self.line(f"{name} = {expression}")
        self._memo[id(value)] = name
        self._kept.append(value)
        return name

    def later(self, fill: Callable[[], None]) -> None:
        """Fill an object once it exists, because its contents may refer to it."""
        self._later.append(fill)

    def flush(self) -> None:
        while self._later:
            self._later.popleft()()

    def abandon(self) -> None:
        """Drop the pending fills, which refer to this emitter and the trace."""
        self._later.clear()

    def complete(self, value: Value) -> None:
        """Fill an object, and write the changes that the trace has made to it, before the code that follows."""
        self.value(value)
        if id(value) in self._completing:
            raise NotRebuildable("an iterator in the dict that it iterates over")
        self._completing.add(id(value))
        self.flush()
        self._replay_one(value)
        self._completing.discard(id(value))

    # ---- tensors
    def output(self, ref: TensorRef) -> str:
        """The name of a result of the graph."""
        found = self.outputs.get(id(ref))
        if found is None:
            found = self.outputs[id(ref)] = (ref, f"o{len(self.outputs)}")
        return found[1]

    def output_before(self, node: fx.Node, ref: TensorRef) -> str:
        """The name of a copy of a tensor from before a node changes it."""
        return self.output(self.trace.graph.copy_before(node, ref))

    def tensor_with_attrs(self, value: TensorValue) -> str:
        name = self.output(value.ref)
        self.later(lambda: self.write_attrs(name, value))
        return name

    def write_attrs(self, name: str, value: TensorValue) -> None:
        """Write the attributes that the trace has set on a tensor, or deleted."""
        for key, held in value.attrs.items():
            if held is not DELETED:
                self.line(f"{name}.{key} = {self.value(held)}")
            elif value.real is not ABSENT:
                self.line(f"del {name}.{key}")

    # ---- objects
    def new_object(self, obj: ObjectValue) -> str:
        """An instance, made by the ``__new__`` of the first base that is not Python code."""
        base = next(c for c in obj.pytype.__mro__
                    if "__new__" in vars(c) and not isinstance(vars(c)["__new__"], (staticmethod, FunctionType)))
        args = "".join(f", {self.value(a)}" for a in obj.new_args)
        name = self.variable(obj, f"{self.const(base)}.__new__({self.const(obj.pytype)}{args})")
        self.fill_attrs(name, obj)
        obj.fill(self, name)
        return name

    def fill_attrs(self, name: str, obj: ObjectValue) -> None:
        def fill() -> None:
            if obj._attrs is not None:
                attrs = dict_of(name, obj.pytype)
                for key, held in obj._attrs.overlay.items():
                    if type(key) is not str:
                        raise NotRebuildable(f"{obj}, whose __dict__ has a key that is no string,")
                    if held is not DELETED:
                        self.line(f"{attrs}[{self.literal(key)}] = {self.value(held)}")
            for slot, held in obj.slots.items():
                self.line(f"object.__setattr__({name}, {slot!r}, {self.value(held)})")
        self.later(fill)

    def generator(self, value: GeneratorValue) -> str:
        return resume_points.generator(self, value, self.trace.shows_frames)

    # ---- mutations
    def set_position(self, iterator: str, index: int) -> None:
        """Advance an iterator over a list once all lists have their final contents, because it cannot pass the end."""
        self._positions.append(f"{iterator}.__setstate__({index})")

    def replay(self) -> None:
        """Write the changes that the trace has made to existing objects."""
        for value in self.trace.mutated:
            self._replay_one(value)
        for effect in self.trace.effects:
            effect(self)
            self.flush()
        self.lines += self._positions

    def _replay_one(self, value: Any) -> None:
        if value.real is not ABSENT and id(value) in self._changed and id(value) not in self._replayed:
            self._replayed.add(id(value))
            value.replay(self)
            self.flush()
