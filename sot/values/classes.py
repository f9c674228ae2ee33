"""Classes that the program makes, and the descriptors that their bodies make.

A class statement makes another class at every call. Capture executes it with a *stand-in*: a real class with the same
bases and names, made once, so that lookup, ``isinstance`` and the MRO are CPython's own. Its functions are empty
shells, and ``ClassValue.members`` says what they stand for. The stand-in never leaves the capture: guards on it are
dropped (``Machine.guard``), and emitted code makes the class anew in place of the stand-in (``Emitter.const``).
"""
from __future__ import annotations

import abc
import functools
import types
from typing import TYPE_CHECKING, Any

from sot import _hook
from sot.guards.origin import root
from sot.support.errors import NotRebuildable, article
from sot.values.base import Const, Value
from sot.values.constants import is_library
from sot.values.objects import DELETED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sot.guards.guards import Guard
    from sot.guards.origin import Origin
    from sot.values.protocols import Emitter, Machine

Step = tuple[Any, dict[str, Any]]      # a decorator, and its options

DESCRIPTORS = (property, staticmethod, classmethod, functools.cached_property)


def is_hook(raw: Any) -> bool:
    """Whether it is code of the program, which capture has executed already."""
    function = getattr(raw, "__func__", raw)
    return isinstance(function, types.FunctionType) and not is_library(function.__module__)


def has_hook(bases: tuple[type, ...]) -> bool:
    return any(is_hook(base.__init_subclass__) for base in bases)


def names_itself(member: Any) -> bool:
    """Whether making a class calls a ``__set_name__`` of the program for this member."""
    return is_hook(getattr(type(member), "__set_name__", None))


SILENT: dict[type, type] = {}
LAYOUT = ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")


def silent_base(bases: tuple[type, ...]) -> type:
    """A first base, while a class is made, whose hook keeps those of the other bases from being called. It has the
    layout of the others, because CPython then lets the class have other bases.
    """
    kind: Any = next(base for base in bases if base is not object)
    while kind.__base__ is not None and all(getattr(kind, n) == getattr(kind.__base__, n) for n in LAYOUT):
        kind = kind.__base__
    below: Any = kind.__base__ or object
    if not is_library(below.__module__):
        raise TypeError(f"{below.__qualname__} has a layout of its own")
    if below not in SILENT:
        meta: Any = type(below)
        SILENT[below] = meta("Silent", (below,), {"__init_subclass__": lambda cls, **kwargs: None})
    return SILENT[below]


def silent_class(meta: Any, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
    """A class that is made without a call of the program's hooks."""
    make = abc.ABCMeta.__new__ if issubclass(meta, abc.ABCMeta) else type.__new__
    hooked = has_hook(bases)
    made = make(meta, name, (silent_base(bases), *bases) if hooked else bases, {
        key: None if names_itself(member) else member for key, member in body.items()})
    if hooked:
        vars(type)["__bases__"].__set__(made, bases)
    for key, member in body.items():
        if names_itself(member):
            type.__setattr__(made, key, member)
    return made


SILENT_CLASS = _hook.plain(silent_class)


class ClassValue(Const):
    """A class made during capture. ``real`` is its stand-in; ``members`` is the namespace that its body has left."""

    def __init__(self, stand_in: type, bases: tuple[type, ...], members: dict[str, Value]) -> None:
        super().__init__(stand_in)
        self.bases, self.body = bases, members
        self.members = members
        self.refers_to_itself = False       # by the cell of ``__class__`` and ``super()``
        self.written: dict[str, Value] = {}     # by statements after the body
        self.steps: list[Step] = []     # the decorators that have completed it before these

    def member(self, name: str) -> Value | None:
        """The class attribute of a name; None for attributes that ``type`` itself adds."""
        found = self.written.get(name) or self.members.get(name)
        return None if found is DELETED else found

    def write(self, m: Machine, name: str, value: Value, shell: Any) -> None:
        """``cls.name = value``"""
        m.touch(self, self._undo(name))
        self.written[name] = value
        type.__setattr__(self.real, name, shell)

    def delete(self, m: Machine, name: str) -> None:
        """``del cls.name``"""
        m.touch(self, self._undo(name))
        self.written[name] = DELETED
        type.__delattr__(self.real, name)

    def complete(self, m: Machine, step: Step) -> None:
        """Note that a decorator has completed the stand-in."""
        before = self.members

        def undo() -> None:
            self.steps.pop()
            self.members = before
        m.touch(self, undo)
        self.steps.append(step)
        self.members = without_fields(before)

    def _undo(self, name: str) -> Callable[[], None]:
        before, had = self.written.get(name), name in vars(self.real)
        shell = vars(self.real).get(name)

        def undo() -> None:
            if before is None:
                self.written.pop(name, None)
            else:
                self.written[name] = before
            if had:
                type.__setattr__(self.real, name, shell)
            else:
                type.__delattr__(self.real, name)
        return undo

    def replay(self, e: Emitter) -> None:
        """Nothing: ``rebuild`` makes the class in its final state, and it does not exist before."""

    def rebuild(self, e: Emitter) -> str:
        bases = "".join(e.const(b) + ", " for b in self.bases)
        body = ", ".join(f"{name!r}: {e.value(v)}" for name, v in self.body.items())
        made = e.variable(self, f"{e.const(SILENT_CLASS)}({e.const(self.pytype)}, {self.real.__name__!r}, ({bases}), "
                                f"{{{body}}})")
        for function, kwargs in self.steps:
            self.fill_annotations(e)
            e.line(f"{e.const(_hook.plain(function))}({made}, **{e.const(kwargs)})")
        e.later(lambda: self._fill(e, made))
        return made

    def fill_annotations(self, e: Emitter) -> None:
        """Write the annotations before the decorator that reads them."""
        if (annotations := self.body.get("__annotations__")) is not None:
            e.complete(annotations)

    def _fill(self, e: Emitter, made: str) -> None:
        for name, value in self.written.items():
            if value is DELETED:
                e.line(f"type.__delattr__({made}, {name!r})" if name in self.body else "pass")
                continue
            e.line(f"type.__setattr__({made}, {name!r}, {e.value(value)})")

    def __str__(self) -> str:
        return f"class {self.real.__qualname__}"


class CalledClassValue(ClassValue):
    """A class that a function of a library makes of constants, such as a named tuple. Its stand-in is made by the same
    call."""

    def __init__(self, maker: Callable[..., type], args: tuple, kwargs: dict[str, Any]) -> None:
        super().__init__(maker(*args, **kwargs), (), {})
        self.maker, self.args, self.kwargs = maker, args, kwargs

    def rebuild(self, e: Emitter) -> str:
        made = e.variable(self, f"{e.const(_hook.plain(self.maker))}(*{e.const(self.args)}, **{e.const(self.kwargs)})")
        e.later(lambda: self._fill(e, made))
        return made


class LibraryClassValue(ClassValue):
    """An enum, a named tuple or a function of autograd. ``members`` are what the metaclass has left of the body."""

    def rebuild(self, e: Emitter) -> str:
        if (annotations := self.body.get("__annotations__")) is not None:
            e.complete(annotations)
        bases = "".join(e.const(b) + ", " for b in self.bases)
        body = ", ".join(f"{name!r}: {e.value(v)}" for name, v in self.body.items())
        made = e.variable(self, f"{e.const(_hook.plain(new_class))}({self.real.__name__!r}, ({bases}), {{{body}}})")
        e.later(lambda: self._fill(e, made))
        return made


def new_class(name: str, bases: tuple[Any, ...], body: dict[str, Any]) -> type:
    """A class as a class statement makes it, whose body leaves these names."""
    def fill(namespace: dict[str, Any]) -> None:
        for key, value in body.items():     # the namespace of an enum looks at each of them
            namespace[key] = value
    return types.new_class(name, bases, {}, fill)


class ReplacedClassValue(ClassValue):
    """The class that a decorator of a library makes of a class of the program: a dataclass with slots.

    Arguments:
        stand_in: what the decorator has made of the stand-in.
        made: the class of the program.
        step: the decorator, and its options.
    """

    def __init__(self, stand_in: type, made: ClassValue, step: Step) -> None:
        super().__init__(stand_in, made.bases, without_fields(made.members))
        self.made, self.step = made, step

    def rebuild(self, e: Emitter) -> str:
        function, kwargs = self.step
        e.value(self.made)
        self.made.fill_annotations(e)
        made = e.variable(self, f"{e.const(_hook.plain(function))}({e.value(self.made)}, **{e.const(kwargs)})")
        e.later(lambda: self._fill(e, made))
        return made


def without_fields(members: dict[str, Value]) -> dict[str, Value]:
    """The members that a decorator leaves as they are: a dataclass has defaults in place of fields."""
    return {name: value for name, value in members.items() if not isinstance(value, MemberValue)}


class MemberValue(Value):
    """An object in the body of a class for the decorator that completes it: the field of a dataclass.

    Arguments:
        function: makes it.
        pytype: its class.
        kwargs: the arguments of the function.
    """

    def __init__(self, function: Callable[..., Any], pytype: type, kwargs: dict[str, Value]) -> None:
        self.function, self.pytype, self.kwargs = function, pytype, kwargs

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        given = ", ".join(f"{name}={e.value(value)}" for name, value in self.kwargs.items())
        return e.variable(self, f"{e.const(self.function)}({given})")

    def __str__(self) -> str:
        return article(self.pytype.__name__)


class DescriptorValue(Value):
    """A property, static method, class method or cached property over functions; ``parts`` are its arguments."""

    def __init__(self, kind: type, parts: list[Value]) -> None:
        self.pytype, self.parts = kind, parts

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        if self.pytype not in DESCRIPTORS:
            raise NotRebuildable(str(self))
        return e.variable(self, f"{e.const(self.pytype)}({', '.join(e.value(p) for p in self.parts)})")

    def __str__(self) -> str:
        return article(self.pytype.__name__)


def is_of_made_class(guard: Guard, made_classes: Mapping[int, ClassValue]) -> bool:
    """Whether the guard is about a class that the captured program itself makes."""
    return hasattr(guard, "origin") and is_in_made_class(guard.origin, made_classes)


def is_in_made_class(origin: Origin, made_classes: Mapping[int, ClassValue]) -> bool:
    """Whether an origin leads to a part of the stand-in of such a class, or of a method that a library gave it."""
    start = getattr(root(origin), "held", None)
    if start is None or id(start.value) in made_classes:
        return start is not None
    return isinstance(start.value, types.FunctionType) and any(
        start.value is part for made in made_classes.values() for part in vars(made.real).values())
