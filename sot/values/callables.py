"""Functions, bound methods, cells and super objects."""
from __future__ import annotations

from types import (
    BuiltinMethodType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from sot.guards.guards import SameGuard
from sot.guards.origin import Attr, CellContents, Item, Origin, known
from sot.support.errors import Break, NotRebuildable, Reason
from sot.values.base import ABSENT, Const, Lazy, Value
from sot.values.objects import TupleValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.values.objects import ObjectValue
    from sot.values.protocols import Emitter, Machine


class CellValue(Value):
    """A closure cell. ``contents`` is a Value, a Lazy to be wrapped, or ABSENT when the cell is empty."""

    pytype = CellType

    def __init__(self, name: str, contents: Value | Lazy = ABSENT, real: CellType | Any = ABSENT,
                 origin: Origin | None = None) -> None:
        self.name, self.contents, self.real, self.origin = name, contents, real, origin

    @classmethod
    def existing(cls, m: Machine, name: str, real: CellType, origin: Origin) -> CellValue:
        """The cell of a closure. Functions that share a cell share its Value."""
        if id(real) in m.by_id:
            found = m.by_id[id(real)][1]
            assert isinstance(found, CellValue) and found.origin is not None
            if found.origin != origin:
                m.guard(SameGuard(origin, found.origin))
            return found
        try:
            contents = Lazy(real.cell_contents, CellContents(origin, name))
        except ValueError:
            contents = ABSENT
        made = cls(name, contents, real, origin)
        m.by_id[id(real)] = (real, made)
        return made

    def get(self, m: Machine) -> Value:
        contents = self.contents
        if isinstance(contents, Lazy):
            contents = self.contents = wrap(m, contents.real, contents.origin)
        return contents

    def set(self, m: Machine, value: Value | Any) -> None:
        m.touch(self)
        self.contents = value

    def snapshot(self) -> Any:
        before = self.contents

        def undo() -> None:
            self.contents = before
        return undo

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        cell = e.variable(self, "CellType()")
        if self.contents is not ABSENT and not isinstance(self.contents, FilledByType):
            e.later(lambda: e.line(f"{cell}.cell_contents = {e.value(self.contents)}"))
        return cell

    def replay(self, e: Emitter) -> None:
        """Write the final contents to the existing cell."""
        if self.contents is ABSENT:
            e.line(f"del {e.value(self)}.cell_contents")
        else:
            e.line(f"{e.value(self)}.cell_contents = {e.value(self.contents)}")


class FilledByType(Value):
    """The namespace of a class that does not exist yet. ``type`` stores it in the cell ``__classdict__``. Any use of
    it is a break.
    """

    pytype = dict

    def __str__(self) -> str:
        return "the namespace of a class"


class MadeGlobals(dict):
    """Stands for a dict of the call in which ``exec`` or ``eval`` runs code. ``value`` has the names."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value = value


class FunctionValue(Value):
    """A Python function: an existing one (``real``), or one made during capture.

    ``defaults``, ``kwdefaults`` and ``closure`` hold Values; for an existing function they are wrapped
    lazily, below its origin. ``is_wrapped``: whether Python calls it through functions that capture leaves out.
    """

    pytype = FunctionType
    is_wrapped = False

    def __init__(self, code: CodeType, namespace: dict, *, name: str | None = None, real: Any = ABSENT,
                 origin: Origin | None = None) -> None:
        self.code, self.namespace, self.real, self.origin = code, namespace, real, origin
        self.name = name or code.co_name
        self.defaults: tuple = ()
        self.made_defaults: Value | None = None     # the tuple that contained them
        self.kwdefaults: dict[str, Any] = {}
        self.made_kwdefaults: Any = None        # their dict, once the program has read it
        self.closure: tuple[CellValue, ...] = ()
        self.annotations: Value | None = None
        self.attrs: ObjectValue | None = None
        # attributes written outside ``__dict__``: ``__name__``, ``__doc__``, ...
        self.fields: dict[str, Value] = {}

    @classmethod
    def existing(cls, m: Machine, real: FunctionType, origin: Origin) -> FunctionValue:
        self = cls(real.__code__, real.__globals__, name=real.__qualname__, real=real, origin=origin)
        base = Attr(origin, "__defaults__")
        self.defaults = tuple(Lazy(v, Item(base, i)) for i, v in enumerate(real.__defaults__ or ()))
        if real.__defaults__:
            self.made_defaults = TupleValue([*self.defaults], tuple, real.__defaults__, base)
        named = Attr(origin, "__kwdefaults__")
        self.kwdefaults = {k: Lazy(v, Item(named, k)) for k, v in (real.__kwdefaults__ or {}).items()}
        cells = Attr(origin, "__closure__")
        self.closure = tuple(
            CellValue.existing(m, name, cell, Item(cells, i))
            for i, (name, cell) in enumerate(zip(real.__code__.co_freevars, real.__closure__ or (), strict=True)))
        return self

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self if self.real is ABSENT else self.real

    def rebuild(self, e: Emitter) -> str:
        if self.real is not ABSENT:
            return e.const(self.real)
        cells = "".join(e.value(c) + ", " for c in self.closure)
        name, names = self.name.rpartition(".")[2], self.namespace
        namespace = e.value(names.value) if isinstance(names, MadeGlobals) else e.const(names)
        made = e.variable(self, f"FunctionType({e.const(self.code)}, {namespace}, {name!r}, None, ({cells}))")
        if self.made_defaults is not None:
            e.line(f"{made}.__defaults__ = {e.value(self.made_defaults)}")
        if self.made_kwdefaults is not None:
            e.line(f"{made}.__kwdefaults__ = {e.value(self.made_kwdefaults)}")
        elif self.kwdefaults:
            pairs = ", ".join(f"{k!r}: {e.value(v)}" for k, v in self.kwdefaults.items())
            e.line(f"{made}.__kwdefaults__ = {{{pairs}}}")
        if self.annotations is not None:
            e.line(f"{made}.__annotations__ = {e.value(self.annotations)}")
        if self.name != self.code.co_qualname:
            e.line(f"{made}.__qualname__ = {self.name!r}")
        for field, value in self.fields.items():
            e.line(f"{made}.{field} = {e.value(value)}")
        if self.attrs is not None:
            mark = self.attrs.attrs.overlay.get("__isabstractmethod__")
            if isinstance(mark, Value):     # type() reads it when it makes the class, before all is filled in
                e.line(f"{made}.__isabstractmethod__ = {e.value(mark)}")
            e.fill_attrs(made, self.attrs)
        return made

    def __str__(self) -> str:
        return f"function {self.name}"


class BoundMethod(Value):
    """``function`` bound to ``self_``."""

    def __init__(self, function: Value, self_: Value, name: str, origin: Origin | None = None) -> None:
        self.function, self.self_, self.name, self.origin = function, self_, name, origin
        self.pytype = MethodType if isinstance(function, FunctionValue) else (
            MethodWrapperType if isinstance(function.real, WrapperDescriptorType) else BuiltinMethodType)

    def as_constant(self) -> Value:
        """A method of a constant as Python's method object; any other method unchanged."""
        parts = self.function, self.self_
        if not all(type(part) is Const for part in parts) or not isinstance(
                parts[0].real, (WrapperDescriptorType, MethodDescriptorType)):
            return self
        return Const(parts[0].real.__get__(parts[1].real))

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(m, [self.self_, *args], kwargs)

    def load_attr(self, m: Machine, name: str) -> Value:
        if name == "__self__":
            return self.self_
        if name == "__func__" and isinstance(self.function, FunctionValue):
            return self.function
        if name == "__call__":
            return self
        if name == "__qualname__" and self.pytype is BuiltinMethodType:     # of the object's class, not of the method's
            owner = self.self_ if issubclass(self.self_.pytype, type) else self.self_.load_attr(m, "__class__")
            return Const(f"{owner.load_attr(m, name).constant()}.{self.name}")
        if name in vars(MethodType) and name not in ("__doc__", "__class__"):
            raise Break(Reason.UNSUPPORTED, f"reading {name} of a bound method")
        return self.function.load_attr(m, name)

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        raise Break(Reason.UNSUPPORTED, "hashing a bound method")

    def rebuild(self, e: Emitter) -> str:
        owner = e.value(self.self_)
        if not isinstance(self.function, Const):
            return e.variable(self, f"MethodType({e.value(self.function)}, {owner})")
        raw = self.function.real
        if isinstance(raw, ClassMethodDescriptorType):
            return e.variable(self, f"{e.const(raw)}.__get__(None, {owner})")
        if hasattr(type(raw), "__get__"):       # not by name: the class may override the bound function
            return e.variable(self, f"{e.const(raw)}.__get__({owner}, {e.const(type)}({owner}))")
        if isinstance(self.self_, Const) and isinstance(self.self_.real, type):
            first = next((vars(c)[self.name] for c in self.self_.real.__mro__ if self.name in vars(c)), None)
            if isinstance(first, (classmethod, staticmethod, FunctionType)):
                raise NotRebuildable(f"{self}, which a subclass overrides")
        return e.variable(self, f"{owner}.{self.name}")

    def __str__(self) -> str:
        return f"{self.self_}.{self.name}"


class SuperValue(Value):
    """``super(cls, self_)``"""

    pytype = super

    def __init__(self, cls: type, self_: Value) -> None:
        self.cls, self.self_ = cls, self_

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"super({e.const(self.cls)}, {e.value(self.self_)})")


def known_function(m: Machine, real: Callable[..., Any]) -> FunctionValue:
    """A function of this package or of a library, whose code and defaults need no guard."""
    assert isinstance(real, FunctionType)
    value = FunctionValue(real.__code__, real.__globals__, name=real.__qualname__, real=real)
    value.defaults = tuple(Const(v) for v in real.__defaults__ or ())
    value.kwdefaults = {k: Const(v) for k, v in (real.__kwdefaults__ or {}).items()}
    value.closure = tuple(CellValue.existing(m, name, cell, known(cell, name)) for name, cell in zip(
        real.__code__.co_freevars, real.__closure__ or (), strict=True))
    return value
