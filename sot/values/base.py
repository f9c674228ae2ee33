"""The protocol of symbolic values, and the two simplest families: constants and lazily wrapped values.

A ``Value`` stands for one Python object of the captured program. It knows the type that the program sees (``pytype``).
If the object existed before the frame ran, the value has an ``origin``, and ``real`` is the object. Its methods are
the
operations of its family: ``load_attr``, ``call``, and those of containers. They return another Value, or ``ENTERED``
if the machine has pushed a frame of user code whose result will be the result.

An operation that a family does not support raises ``Break``. Python then executes it between two graphs.
"""
from __future__ import annotations

from collections.abc import Callable
from math import copysign, isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.guards.guards import EqualsGuard, TypeGuard, short
from sot.guards.origin import Origin
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.registry import Registry
from sot.values.constants import DTYPES_OF_PYTHON, GRAPH_CONSTANTS

if TYPE_CHECKING:
    from sot.support.tracebacks import Places
    from sot.values.protocols import Emitter, Machine


class _Marker:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


ENTERED: Any = _Marker("entered")      # the result will be that of the frame just pushed
ABSENT: Any = _Marker("absent")        # no such item or attribute


HOST_DEPTH = 200


class NotConstant(Exception):
    """The value is not a constant of the trace."""


class Answers(Registry[tuple[type, str], Callable[..., Any]]):
    """The operations on values that need the interpreter, by class of the value and by name. The interpreter adds the
    rows. A class without a row inherits that of its base.
    """

    def of(self, kind: type, question: str) -> Callable[..., Any]:
        row = self.get((kind, question))
        if row is None:
            row = next(self[base, question] for base in kind.__mro__ if (base, question) in self)
            self[kind, question] = row
        return row


ANSWERS = Answers("an answer")


class Value:
    """One object of the captured program."""

    origin: Origin | None = None
    real: Any = ABSENT
    pytype: type = object

    # ---- operations of the program
    def constant(self) -> Any:
        """The Python object, for values that are fully known and immutable; else raises NotConstant."""
        raise NotConstant(self)

    def host(self, m: Machine, depth: int = 0) -> Any:
        """A Python object equal to the value, which a pure function may read but not keep; else raises NotConstant.

        Unlike ``constant()`` it includes lists, dicts and sets. These are copies that must not be kept or changed.
        """
        raise NotConstant(self)

    def deeper(self, depth: int) -> int:
        """The depth inside a container. It is limited because C code may run out of stack."""
        if depth > HOST_DEPTH:
            raise NotConstant(self)
        return depth + 1

    def length(self, m: Machine) -> Value | None:
        """``len(value)`` of the builtin type, if it is known without running user code."""
        return None

    def len(self, m: Machine) -> Value:
        """``len(value)``"""
        return ANSWERS.of(type(self), "len")(m, self)

    def load_attr(self, m: Machine, name: str) -> Value:
        """``value.name``"""
        return ANSWERS.of(type(self), "load_attr")(m, self, name)

    def call(self, m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """``value(*args, **kwargs)``"""
        return ANSWERS.of(type(self), "call")(m, self, args, kwargs)

    def truth(self, m: Machine) -> bool | None:
        """``bool(value)`` if it is known without running user code, else None."""
        return None

    def items_list(self, m: Machine) -> list[Value] | None:
        """The elements that iteration yields, if they are known without running user code."""
        return None

    def iterate(self, m: Machine) -> Value | None:
        """``iter(value)``, or None if user code has to make it."""
        return ANSWERS.of(type(self), "iterate")(m, self)

    def backwards(self, m: Machine) -> Value:
        """``reversed(value)``, for a value whose class has a ``__reversed__`` or is a sequence."""
        return ANSWERS.of(type(self), "backwards")(m, self)

    def getitem(self, m: Machine, key: Value) -> Value:
        """``value[key]``"""
        return ANSWERS.of(type(self), "getitem")(m, self, key)

    def setitem(self, m: Machine, key: Value, value: Value) -> Value | None:
        """``value[key] = value``. A pushed frame drops its result."""
        return ANSWERS.of(type(self), "setitem")(m, self, key, value)

    def contains(self, m: Machine, item: Value) -> Value:
        """``item in value``: a bool, or ENTERED; then the truth of the frame's result counts."""
        return ANSWERS.of(type(self), "contains")(m, self, item)

    def load_slot(self, m: Machine, name: str) -> Value:
        """``value.name`` if a C descriptor stores it: a slot, or a field of a struct sequence."""
        return ANSWERS.of(type(self), "load_slot")(m, self, name)

    def load_computed(self, m: Machine, name: str) -> Value:
        """``value.name`` if C code computes it."""
        return ANSWERS.of(type(self), "load_computed")(m, self, name)

    def load_held(self, m: Machine, name: str) -> Value | Any:
        """The object's own attribute (in its ``__dict__``), or ABSENT."""
        return ANSWERS.of(type(self), "load_held")(m, self, name)

    def set_attr(self, m: Machine, name: str, value: Value | None) -> None:
        """``object.__setattr__(value, name, ...)``; ``object.__delattr__`` for None."""
        ANSWERS.of(type(self), "set_attr")(m, self, name, value)

    def key(self) -> Any:
        """A host object that stands for the value as a dict key or set member."""
        try:
            return self.constant()
        except NotConstant:
            pass
        hashing = self.pytype.__hash__
        if hashing is object.__hash__ and has_only_identity(self.pytype) or (
                hashing is torch.Tensor.__hash__):       # no two tensors have one hash
            return self if self.real is ABSENT else self.real
        raise Break(Reason.UNSUPPORTED, f"hashing {self}")

    # ---- arguments of the graph
    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        """The value as an argument of a tensor operation. ``found`` collects the tensors in it. With ``as_number``
        even a float may vary from call to call.
        """
        raise Break(Reason.OPAQUE_VALUE, f"{self} as an argument of a tensor operation")

    def array_argument(self, m: Machine) -> Any:
        """The value as an argument of an operation on arrays."""
        raise Break(Reason.OPAQUE_VALUE, f"{self} as an argument of NumPy")

    # ---- code generation
    def rebuild(self, e: Emitter) -> str:
        """The expression of the value in emitted code. The emitter calls this at most once per value."""
        raise NotRebuildable(f"{self} cannot be rebuilt")

    def __str__(self) -> str:
        return str(self.origin) if self.origin else f"a value of type {self.pytype.__qualname__}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


def is_written_exactly(number: complex) -> bool:
    """Whether ``repr`` is an expression for it. It is not for signed zeros, infinity and NaN."""
    parts = number.real, number.imag
    return all(map(isfinite, parts)) and not any(part == 0 and copysign(1, part) < 0 for part in parts)


class Const(Value):
    """An immutable Python object, known during capture: a number, a string, a class, a dtype, ..."""

    def __init__(self, value: Any, origin: Origin | None = None) -> None:
        self.real = value
        self.pytype = type(value)
        self.origin = origin

    @property
    def unguarded(self) -> Any:
        """The object, for operations that depend only on its type."""
        return self.real

    @property
    def place(self) -> Origin | None:
        """Where the object is that the program has here, if it existed before."""
        return self.origin if self.origin is not None and self.origin.is_place else None

    def constant(self) -> Any:
        return self.real

    def host(self, m: Machine, depth: int = 0) -> Any:
        return self.real

    def array_argument(self, m: Machine) -> Any:
        return ANSWERS.of(type(self), "array_argument")(m, self)

    def truth(self, m: Machine) -> bool | None:
        kind = type(self.real)
        if kind.__module__ in ("builtins", "numpy") or kind in TRUTHFUL or not (
                hasattr(kind, "__bool__") or hasattr(kind, "__len__")):
            return bool(self.real)
        return None

    def items_list(self, m: Machine) -> list[Value] | None:
        if isinstance(self.real, (str, bytes, range, frozenset, tuple)) and type(self.real).__module__ == "builtins":
            return [Const(v) for v in self.real]
        return None

    def key(self) -> Any:
        hash(self.real)
        return self.real

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        real = self.real
        if isinstance(real, np.number):     # also a float, whose repr is not Python source
            if isinstance(real, np.complexfloating) and not isinstance(real, complex):
                raise Break(Reason.OPAQUE_VALUE, f"{real!r}, of which torch takes the real part,")
            return real.item()
        if isinstance(real, slice):
            return slice(*(Const(part).graph_argument(m, found) for part in (real.start, real.stop, real.step)))
        if isinstance(real, complex) and not is_written_exactly(real):
            raise Break(Reason.OPAQUE_VALUE, f"{real!r}, which has no text as a constant,")
        if isinstance(real, GRAPH_CONSTANTS):
            return real
        if isinstance(real, type) and real in DTYPES_OF_PYTHON:
            return DTYPES_OF_PYTHON[real]
        return super().graph_argument(m, found, as_number)

    def rebuild(self, e: Emitter) -> str:
        return e.constant(self.real, self.place)

    def __str__(self) -> str:
        return short(self.real)


class LazyConst(Const):
    """A number or string that existed before. It is guarded when its value is read, not when it is passed on."""

    def __init__(self, m: Machine, value: Any, origin: Origin) -> None:
        self._machine: Machine | None = m
        self._value = value
        self.pytype = type(value)
        self.origin: Origin = origin

    @property
    def real(self) -> Any:
        if self._machine is not None:
            machine, self._machine = self._machine, None
            machine.guard(EqualsGuard(self.origin, self._value))
        return self._value

    @property
    def is_unread(self) -> bool:
        """Whether the program has not read the value yet."""
        return self._machine is not None

    @property
    def unguarded(self) -> Any:
        return self._value

    def rebuild(self, e: Emitter) -> str:
        return e.ref(self.origin) if self.is_unread else super().rebuild(e)

    def __str__(self) -> str:
        return str(self.origin)


TRUTHFUL: set[type] = set()

NONE = Const(None)
TRUE, FALSE = Const(True), Const(False)


def boolean(value: bool) -> Const:
    return TRUE if value else FALSE


class Lazy:
    """An item whose value is wrapped (and guarded) when it is first read. It is not a Value."""

    __slots__ = ("real", "origin")

    def __init__(self, real: Any, origin: Origin) -> None:
        self.real, self.origin = real, origin


class Null(Value):
    """The empty slot that CPython's calling convention keeps on the stack."""


NULL = Null()


class LastInstruction(Const):
    """The position where an exception was raised. CPython puts it below the exception on the stack, for RERAISE."""


class SavedException(Value):
    """The stack slot below a handled exception: the exception that was handled before."""

    def __init__(self, saved: Value | None) -> None:
        self.saved = saved


class TracebackValue(Value):
    """The traceback of an exception. It exists only if Python raises the exception. ``places``: the frames that it went
    through before; None for an exception that Python has raised.
    """

    pytype = TracebackType

    def __init__(self, places: Places | None) -> None:
        self.places = places

    def load_attr(self, m: Machine, name: str) -> Value:
        raise Break(Reason.UNSUPPORTED, "reading a traceback")

    def truth(self, m: Machine) -> bool | None:
        return True


def has_only_identity(kind: type) -> bool:
    """Whether an object of a class equals itself only."""
    return kind.__eq__ is object.__eq__ and kind.__ne__ is object.__ne__


class Opaque(Value):
    """An existing object that capture can pass on but not read."""

    def __init__(self, real: Any, origin: Origin | None) -> None:
        self.real, self.origin, self.pytype = real, origin, type(real)

    def rebuild(self, e: Emitter) -> str:
        return e.const(self.real)

    def refusal(self, what: str, reason: Reason = Reason.OPAQUE_VALUE) -> Break:
        """The break for an operation on it."""
        return Break(reason, what)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        raise self.refusal(f"{self} as an argument of a tensor operation")

    def truth(self, m: Machine) -> bool | None:
        if self.origin is None or hasattr(self.pytype, "__bool__") or hasattr(self.pytype, "__len__"):
            return None
        m.guard(TypeGuard(self.origin, self.pytype))
        return True

    def key(self) -> Any:
        if self.pytype.__hash__ is object.__hash__:
            return self.real
        return super().key()


class OtherTensor(Opaque):
    """Objects that cannot be in graphs: tensors of subclasses, sparse, quantized and nested tensors, NumPy arrays."""

    def __init__(self, real: Any, origin: Origin | None, kind: str) -> None:
        super().__init__(real, origin)
        self.kind = kind

    def refusal(self, what: str, reason: Reason = Reason.OPAQUE_VALUE) -> Break:
        return Break(Reason.OTHER_TENSOR, f"{self} is {self.kind}")


def constants(values: list[Value]) -> list[Any]:
    return [v.constant() for v in values]
