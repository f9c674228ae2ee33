"""Origins: where a value of the captured frame came from.

An origin knows four things: how emitted code loads the value (``expr``), how to read it when a guard is explained
(``read``), how to print it in the user's spelling (``str``), and when two origins are the same (dataclass equality).
Emitted code is Python source. ``expr`` receives an ``emit`` object with ``ref(origin)`` (the variable that holds the
value of another origin) and ``const(object)`` (the name of an object that the emitted function holds).

``Inputs`` are the values that a hooked frame passes to its replacement: the arguments, then the closure's cells.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from contextvars import Token
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any, Protocol, TypeVar, dataclass_transform

import torch

from sot.guards.containers import hash_of_key, keys_of, same_key, stored_item, text_of_key
from sot.torch_compat.tensors import without_subclasses


class Emit(Protocol):
    def ref(self, origin: Origin) -> str: ...
    def const(self, value: object, hint: str = "k") -> str: ...


Inputs = tuple[Any, ...]


C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True)
def immutable(cls: C) -> C:
    """A data class that computes its hash once. Origins nest deeply, and they and guards are keys of every table of the
    capture.

    mypy refuses an assignment to a field. ``dataclass(frozen=True)`` refuses it at run time, too. That takes twice as
    long to make the class, of which an import of SOT makes sixty, and three times as long to make an instance.
    """
    made: Any = dataclass(unsafe_hash="__hash__" not in cls.__dict__, repr=False)(cls)
    compute = made.__hash__

    def __hash__(self: Any) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = compute(self)
        return found
    made.__hash__ = __hash__
    return made


@immutable
class Origin:
    """Base of all origins. ``cheap`` means that ``expr`` needs no variable. ``is_place`` means that an object is there;
    other origins make their value whenever they are read, so it has no identity.
    """

    cheap = False
    is_place = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def expr(self, emit: Emit) -> str:
        raise NotImplementedError

    def read(self, inputs: Inputs) -> object:
        raise NotImplementedError


@immutable
class Arg(Origin):
    """An argument of the frame, or a cell of its closure: item ``index`` of the inputs."""

    index: int
    name: str
    cheap = True
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"a{self.index}"

    def read(self, inputs: Inputs) -> object:
        return inputs[self.index]

    def __str__(self) -> str:
        return self.name


@immutable
class HandledOutside(Origin):
    """The exception that was being handled in the caller, or None."""

    def expr(self, emit: Emit) -> str:
        return f"{emit.const(sys.exception)}()"

    def read(self, inputs: Inputs) -> object:
        return sys.exception()

    def __str__(self) -> str:
        return "the exception that the caller handles"


def path(origin: Origin | None) -> Iterator[Origin]:
    """An origin and the origins on its path, back to the start."""
    while origin is not None:
        yield origin
        origin = getattr(origin, "base", None) or getattr(origin, "namespace", None)


def root(origin: Origin) -> Origin:
    """The start of an origin's path."""
    *_, start = path(origin)
    return start


class Gone:
    """Stands for a function or class that no longer exists: it has a name and no attributes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}, which is gone"


class ById:
    """Holds an object (functions and classes weakly) and compares it by identity, so that origins over it are
    hashable.
    """

    __slots__ = ("_value", "_id", "_name")

    def __init__(self, value: object) -> None:
        self._id, self._name = id(value), ""
        self._value: Any = value
        if isinstance(value, FunctionType | type):
            self._value, self._name = weakref.ref(value), value.__qualname__

    @property
    def value(self) -> Any:
        if not self._name:
            return self._value
        found = self._value()
        return Gone(self._name) if found is None else found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and self._id == other._id and self.value is other.value

    def __hash__(self) -> int:
        return self._id


class Held:
    """A field of an immutable class that holds functions and classes weakly."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            raise AttributeError(self.name)     # tells dataclass() that there is no default
        return owner.__dict__[self.name].value

    def __set__(self, owner: Any, value: object) -> None:
        owner.__dict__[self.name] = ById(value)


@immutable
class Known(Origin):
    """An object that the emitted code holds: a module, a class, a namespace."""

    held: ById
    label: str
    cheap = True
    is_place = True

    def expr(self, emit: Emit) -> str:
        return emit.const(self.held.value)

    def read(self, inputs: Inputs) -> object:
        return self.held.value

    def __str__(self) -> str:
        return self.label


def known(value: object, label: str) -> Known:
    return Known(ById(value), label)


@immutable
class Attr(Origin):
    """``base.name``"""

    base: Origin
    name: str
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.{self.name}"

    def read(self, inputs: Inputs) -> object:
        base = self.base.read(inputs)
        return gradient_of(base) if self.name == "grad" and isinstance(base, torch.Tensor) else getattr(base, self.name)

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


def gradient_of(value: torch.Tensor) -> object:
    """What is in ``.grad``. Torch warns of reading it where none is kept, and the program does not read it."""
    with without_subclasses():
        return value.grad if value.is_leaf or value.retains_grad else None


@immutable
class RawAttr(Attr):
    """``base.name``, ignoring a ``__getattribute__`` written in Python, because guards run no user code."""

    def expr(self, emit: Emit) -> str:
        return f"object.__getattribute__({emit.ref(self.base)}, {self.name!r})"

    def read(self, inputs: Inputs) -> object:
        return object.__getattribute__(self.base.read(inputs), self.name)


def attribute(base: Origin, name: str, cls: type) -> Attr:
    """The origin of an attribute of an instance of ``cls``."""
    return RawAttr(base, name) if isinstance(cls.__getattribute__, FunctionType) else Attr(base, name)


def index_of(key: object, keys: Iterable[object]) -> int:
    return next(i for i, found in enumerate(keys) if same_key(found, key))


@immutable
class Item(Origin):
    """``base[key]`` for a constant key. ``label`` replaces the spelling (for an attribute stored in a dict)."""

    base: Origin
    key: object
    label: str = ""
    is_place = True

    def expr(self, emit: Emit) -> str:
        key = repr(self.key) if type(self.key) in (int, str, bool) else emit.const(self.key)
        return f"{emit.ref(self.base)}[{key}]"

    def read(self, inputs: Inputs) -> object:
        return self.base.read(inputs)[self.key]  # type: ignore[index]

    def __str__(self) -> str:
        return self.label or f"{self.base}[{text_of_key(self.key)}]"

    def __hash__(self) -> int:
        return hash((self.base, hash_of_key(self.key)))

    def __eq__(self, other: object) -> bool:
        return (type(other) is type(self) and same_key(self.key, other.key)
                and (self.base, self.label) == (other.base, other.label))


@immutable
class RawItem(Item):
    """``base[key]``, ignoring an override of ``__getitem__`` in a dict or list subclass. ``kind`` is the base type."""

    kind: type = dict

    def expr(self, emit: Emit) -> str:
        key = repr(self.key) if type(self.key) in (int, str, bool) else emit.const(self.key)
        get = emit.const(stored_item) if self.kind is dict else f"{self.kind.__name__}.__getitem__"
        return f"{get}({emit.ref(self.base)}, {key})"

    def read(self, inputs: Inputs) -> object:
        get: Any = stored_item if self.kind is dict else self.kind.__getitem__  # type: ignore[index]
        return get(self.base.read(inputs), self.key)

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.kind is other.kind  # type: ignore[attr-defined]


@immutable
class KeyAt(Origin):
    """The ``index``-th key of a dict."""

    base: Origin
    index: int
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.const(keys_of)}({emit.ref(self.base)})[{self.index}]"

    def read(self, inputs: Inputs) -> object:
        return keys_of(self.base.read(inputs))[self.index]  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"key {self.index} of {self.base}"


@immutable
class Global(Origin):
    """A global variable, or the builtin of that name if the namespace has none."""

    namespace: Known
    name: str
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.namespace)}[{self.name!r}]"

    def read(self, inputs: Inputs) -> object:
        return self.namespace.held.value[self.name]

    def __str__(self) -> str:
        return self.name


@immutable
class CellContents(Origin):
    """The contents of a closure cell."""

    base: Origin
    name: str
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.cell_contents"

    def read(self, inputs: Inputs) -> object:
        cell = self.base.read(inputs)
        assert isinstance(cell, CellType)
        return cell.cell_contents

    def __str__(self) -> str:
        return self.name


@immutable
class ClassAttr(Origin):
    """A class attribute, before any binding."""

    base: Known
    name: str
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.__dict__[{self.name!r}]"

    def read(self, inputs: Inputs) -> object:
        return self.base.held.value.__dict__[self.name]

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@immutable
class Referent(Origin):
    """The object that a weak reference refers to."""

    base: Origin
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}()"

    def read(self, inputs: Inputs) -> object:
        return self.base.read(inputs)()  # type: ignore[operator]

    def __str__(self) -> str:
        return f"{self.base}()"


@immutable
class InContext(Origin):
    """The value of a context variable in the current context; ``Token.MISSING`` without one, whatever its default."""

    base: Origin
    is_place = True

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.get({emit.const(Token.MISSING)})"

    def read(self, inputs: Inputs) -> object:
        return self.base.read(inputs).get(Token.MISSING)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.base}.get()"


@immutable
class Length(Origin):
    """The number of elements of a list that grows from call to call."""

    base: Origin

    def expr(self, emit: Emit) -> str:
        return f"len({emit.ref(self.base)})"

    def read(self, inputs: Inputs) -> object:
        return len(self.base.read(inputs))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"len({self.base})"


@immutable
class Identity(Origin):
    """``id(base)``"""

    base: Origin

    def expr(self, emit: Emit) -> str:
        return f"id({emit.ref(self.base)})"

    def read(self, inputs: Inputs) -> object:
        return id(self.base.read(inputs))

    def __str__(self) -> str:
        return f"id({self.base})"


@immutable
class Address(Origin):
    """``base.data_ptr()``"""

    base: Origin

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.data_ptr()"

    def read(self, inputs: Inputs) -> object:
        return self.base.read(inputs).data_ptr()  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.base}.data_ptr()"


@immutable
class Element(Origin):
    """The number in a tensor of one element."""

    base: Origin

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.item()"

    def read(self, inputs: Inputs) -> object:
        return self.base.read(inputs).item()  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.base}.item()"


@immutable
class TensorPart(Origin):
    """A number in a tensor's layout, for one of its dimensions. It is read without ``__torch_function__``."""

    base: Origin
    index: int
    label: str = field(default="", compare=False)       # the user's name for it


@immutable
class Dim(TensorPart):
    """The size of a dimension."""

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.size({self.index})"

    def read(self, inputs: Inputs) -> object:
        with without_subclasses():
            return self.base.read(inputs).size(self.index)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return self.label or f"{self.base}.shape[{self.index}]"


@immutable
class Stride(TensorPart):
    """The stride of a dimension."""

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}.stride({self.index})"

    def read(self, inputs: Inputs) -> object:
        with without_subclasses():
            return self.base.read(inputs).stride(self.index)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return f"{self.base}.stride({self.index})"
