"""Class statements: the body runs as a frame with a namespace, which then becomes a class.

See ``sot/values/classes.py`` for the treatment of a class that does not exist yet.
"""
from __future__ import annotations

import abc
import builtins
import contextlib
import enum
import functools
import types
import typing
from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.builtins.common import take
from sot.interpreter.frame import CLASS, Frame
from sot.interpreter.loop import evaluate
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.wrapping import is_plain_class, is_written_in_python
from sot.polyfills import builtin as polyfill
from sot.support.errors import Break, Reason, Skip, article
from sot.support.registry import handles
from sot.values.base import ABSENT, NONE, Const, LazyConst, NotConstant, Value
from sot.values.callables import CellValue, FilledByType, FunctionValue, known_function
from sot.values.classes import (
    DESCRIPTORS,
    ClassValue,
    DescriptorValue,
    LibraryClassValue,
    MemberValue,
    has_hook,
    is_hook,
    names_itself,
    new_class,
    silent_class,
)
from sot.values.constants import is_library
from sot.values.objects import DictValue, ObjectValue, TupleValue
from sot.values.objects.partials import CachedFunction

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

METACLASSES = (type, abc.ABCMeta)
# These make a class of constants and of functions that they do not call.
LIBRARY_METACLASSES = (enum.EnumMeta, type(types.resolve_bases((typing.NamedTuple,))[0]),
                       type(torch.autograd.Function))
# They would call these functions.
CALLED_BY_LIBRARY = frozenset({"__new__", "__init__", "__init_subclass__", "__set_name__", "_missing_", "_ignore_",
                               "_generate_next_value_"})
# type reads these when it makes a class, and the compiler writes them: the stand-in has them as they are
READ_BY_TYPE = frozenset({"__slots__", "__doc__", "__module__", "__qualname__", "__static_attributes__"})


class Shell:
    """Represents a value that is not a function in a stand-in."""


@handles(builtins.__build_class__)
def build_class(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Run the body of a class statement. ``finish`` makes the class from its namespace."""
    body, name, *bases = args
    if not isinstance(body, FunctionValue):
        raise Break(Reason.CLASS_BODY, "")
    if {*body.code.co_cellvars} & {*body.code.co_freevars}:
        raise Break(Reason.CLASS_BODY, " which has a local and a free variable of the same name")
    for base in bases:
        refuse_base(base)
    parents = tuple(base.real for base in bases)
    keywords = {key: value for key, value in kwargs.items() if key != "metaclass"}
    if any(map(is_of_library, parents)) and kwargs:
        raise Break(Reason.CLASS_BODY, " with keywords")
    meta = type if any(map(is_of_library, parents)) else metaclass_of(kwargs.get("metaclass"), parents)
    names: Any = DictValue(dict)
    prepare, _ = lookup(m, meta, "__prepare__")
    if prepare is not vars(type)["__prepare__"]:
        names = evaluate(m, known_function(m, polyfill.prepared), [
            Const(meta), name, TupleValue(list(bases)), table_of(keywords)], raises=True)
        if not isinstance(names, DictValue) or names.pytype is not dict or names.real is not ABSENT:
            raise Break(Reason.CLASS_BODY, f" in the namespace {names}")
    result = m.enter(body, [])
    frame = m.frames[-1]
    frame.on_return, frame.names = CLASS, names
    frame.default = (name.constant(), parents, meta, keywords)
    return result


def table_of(values: dict[str, Value]) -> DictValue:
    made = DictValue(dict)
    made.overlay.update(values)
    return made


def metaclass_of(given: Value | None, bases: tuple[type, ...]) -> Any:
    """The metaclass that makes a class below these bases."""
    if given is not None and not (isinstance(given, Const) and isinstance(given.real, type)):
        raise Break(Reason.CLASS_BODY, f" with the metaclass {given}")
    winner = type if given is None else given.real
    for kind in map(type, bases):
        if issubclass(kind, winner):
            winner = kind
        elif not issubclass(winner, kind):
            raise Break(Reason.CLASS_BODY, " with metaclasses that contradict each other")
    refuse_metaclass(winner)
    return winner


def refuse_metaclass(kind: Any) -> None:
    """Break for a metaclass that is not made of Python functions of the program."""
    own = [c for c in kind.__mro__ if c not in (type, object)] if issubclass(kind, type) else [object]
    if kind not in METACLASSES and any(
            c not in METACLASSES and (is_library(c.__module__) or not is_written_in_python(c) or "mro" in vars(c))
            for c in own):
        raise Break(Reason.CLASS_BODY, f" with the metaclass {kind.__qualname__}")


def refuse_base(base: Value) -> None:
    """Break for a base that controls how its subclasses are made."""
    cls = base.real
    if is_of_library(cls):
        return
    if not isinstance(cls, type):
        raise Break(Reason.CLASS_BODY, f" with the base {base}")
    refuse_metaclass(type(cls))
    if hasattr(cls.__init_subclass__, "__func__") and not is_hook(cls.__init_subclass__):
        raise Break(Reason.CLASS_BODY, f" below {cls.__qualname__}, which has an __init_subclass__")
    if issubclass(cls, torch.Tensor):
        raise Break(Reason.CLASS_BODY, " of tensors")


def is_of_library(base: Any) -> bool:
    """Whether a base has a metaclass that makes a class of constants."""
    return base is typing.NamedTuple or type(base) in LIBRARY_METACLASSES


def finish(m: Machine, frame: Frame) -> Value:
    """The class that a body describes. A metaclass of the program is called, and may do other things."""
    names = frame.names
    assert names is not None
    name, bases, meta, keywords = frame.default
    if meta in METACLASSES or any(map(is_of_library, bases)):
        return class_from(m, meta, name, bases, names, keywords, frame.code.code)
    if "__classcell__" in names.keys(m):    # a metaclass may lose or replace it, and Python checks that afterwards
        raise Break(Reason.CLASS_BODY, f" with the metaclass {meta.__qualname__} and methods that refer to the class")
    return Const(meta).call(m, [Const(name), TupleValue([Const(base) for base in bases]), names], keywords)


def class_from(m: Machine, meta: Any, name: str, bases: tuple[Any, ...], names: DictValue,
               keywords: dict[str, Value], body: types.CodeType | None = None) -> Value:
    """The class that ``type.__new__`` makes of a namespace."""
    members: dict[str, Value] = {key: names.get(m, key) for key in names.keys(m)}
    cell, namespace = members.pop("__classcell__", None), members.pop("__classdictcell__", None)
    if cell is not None and not isinstance(cell, CellValue):
        raise Break(Reason.CLASS_BODY, " with something else as its __classcell__")
    shells = {key: shell(m, key, value) for key, value in members.items()}
    if isinstance(namespace, CellValue) and (body is None or reads_namespace(body)):
        namespace.set(m, FilledByType())
        members["__classdictcell__"], shells["__classdictcell__"] = namespace, types.CellType()
    of_library = any(map(is_of_library, bases))
    if of_library and "__init_subclass__" in members:
        raise Break(Reason.CLASS_BODY, " whose body customizes how classes are made")
    made = class_of_library(m, name, bases, members, shells) if of_library else class_of(
        m, meta, name, bases, members, shells)
    if isinstance(cell, CellValue):
        cell.set(m, made)
        made.refers_to_itself = True
    return made if of_library else with_hooks(m, made, keywords)


def with_hooks(m: Machine, made: ClassValue, keywords: dict[str, Value]) -> Value:
    """The class, after the hooks of its members and its bases."""
    named: list[Value] = [TupleValue([value, Const(key)]) for key, value in made.members.items()
                          if isinstance(value, ObjectValue) and is_hook(getattr(value.pytype, "__set_name__", None))]
    if not named and not keywords and not has_hook(made.bases):
        return made
    return m.enter(polyfill.call_hooks, [made, TupleValue(named), table_of(keywords)])


def called(m: Machine, args: list[Value]) -> Value:
    """``type(name, bases, namespace)``"""
    bases = args[1].items_list(m) if args[1].pytype is tuple else None
    if bases is None or not all(isinstance(base, Const) for base in bases):
        raise Break(Reason.CLASS_BODY, "")
    meta = metaclass_of(None, tuple(base.real for base in bases))
    return new_type(m, [Const(meta), *args], {}) if meta in METACLASSES else Const(meta).call(m, args, {})


@handles(type.__new__, abc.ABCMeta.__new__)
def new_type(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    meta, name, bases, names = take("type.__new__", args, {}, "metaclass", "name", "bases", "namespace", required=4)
    if not isinstance(name, Const) or not isinstance(names, DictValue) or names.pytype is not dict:
        raise Break(Reason.CLASS_BODY, "")
    parents = bases.items_list(m)
    if bases.pytype is not tuple or parents is None or type(name.real) is not str:
        raise Break(Reason.CLASS_BODY, "")
    for base in parents:
        refuse_base(base)
        if is_of_library(base.real):
            raise Break(Reason.CLASS_BODY, f" with the base {base}")
    kind = metaclass_of(meta, tuple(base.constant() for base in parents))
    by_statement = "__qualname__" in names.keys(m)
    special = [key for key in names.keys(m) if type(key) is not str or not by_statement and key in READ_BY_TYPE]
    if special or kind is not meta.constant():
        raise Break(Reason.CLASS_BODY, f" with {special[0]} in its namespace" if special else "")
    space = table_of({key: names.get(m, key) for key in names.keys(m)})
    if "__module__" not in space.overlay:
        space.overlay["__module__"] = Const(m.frames[-1].namespace.get("__name__", "__main__"))
    return class_from(m, kind, name.real, tuple(base.real for base in parents), space, kwargs)


@handles(type.__init__)
def init_type(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("type.__init__", args, {}, "cls", "name", "bases", "namespace", required=4)
    return NONE


def class_of(m: Machine, meta: Any, name: str, bases: tuple[type, ...], members: dict[str, Value],
             shells: dict[str, Any]) -> ClassValue:
    """A class, with a stand-in that has shells for its members."""
    try:
        stand_in = silent_class(meta, name, bases, shells)
    except (TypeError, ValueError) as e:
        raise Break(Reason.CLASS_BODY, f", which fails: {e}") from None
    made = m.made_classes[id(stand_in)] = ClassValue(stand_in, bases, members)
    return made


def class_of_library(m: Machine, name: str, bases: tuple[Any, ...], members: dict[str, Value],
                     shells: dict[str, Any]) -> ClassValue:
    """An enum, a named tuple or a function of autograd, whose metaclass replaces or adds members."""
    classes = {c for base in bases for c in getattr(base, "__mro__", ())}
    if any(name in vars(c) for c in classes if not is_library(c.__module__) for name in CALLED_BY_LIBRARY):
        raise Break(Reason.CLASS_BODY, " whose bases customize how members are made")
    for key, value in members.items():
        if key in CALLED_BY_LIBRARY or isinstance(shells[key], Shell) and key != "__annotations__":
            raise Break(Reason.CLASS_BODY, f" with {value} as {key}")
    try:
        stand_in = new_class(name, bases, shells)
    except Exception as e:  # noqa: BLE001 - Python will raise it
        raise Break(Reason.CLASS_BODY, f", which fails: {e}") from None
    made = m.made_classes[id(stand_in)] = LibraryClassValue(stand_in, bases, members)
    made.members = {key: value for key, value in members.items() if vars(stand_in).get(key) is shells[key]}
    return made


def reads_namespace(body: types.CodeType) -> bool:
    """Whether a function of the body, for example one that computes annotations, reads the class namespace later."""
    return any("__classdict__" in const.co_freevars for const in body.co_consts if isinstance(const, types.CodeType))


def shell(m: Machine, name: str, value: Value) -> Any:
    """The member of the stand-in for a value."""
    if isinstance(value, FunctionValue):
        return function_shell(m, value)
    if isinstance(value, DescriptorValue):
        return value.pytype(*(shell(m, name, part) for part in value.parts))
    if isinstance(value, MemberValue):
        return value.function(**{key: shell(m, key, part) for key, part in value.kwargs.items()})
    if name == "__annotations__":
        with contextlib.suppress(NotConstant):
            return value.host(m)
    if name in READ_BY_TYPE and isinstance(value, (Const, TupleValue)):
        return value.constant()
    if isinstance(value, Const) and not isinstance(value, LazyConst):
        held = value.real
    elif isinstance(value, ObjectValue) and is_plain_class(value.pytype):
        held = value.real if value.real is not ABSENT else object.__new__(value.pytype)
        m.by_id[id(held)] = (held, value)
    elif isinstance(value, CachedFunction):
        held = functools.lru_cache(int)
        m.by_id[id(held)] = (held, value)
    else:
        held = Shell()
        refuse_descriptor(value)
        m.by_id[id(held)] = (held, value)
    if hasattr(type(held), "__set_name__") and not names_itself(held):
        raise Break(Reason.CLASS_BODY, f" with the descriptor {name}")
    return held


def refuse_descriptor(value: Value) -> None:
    if any(hasattr(value.pytype, name) for name in ("__set_name__", "__get__", "__set__", "__delete__")):
        raise Break(Reason.CLASS_BODY, f" with {value}")


def function_shell(m: Machine, value: FunctionValue) -> types.FunctionType:
    """A function that is never called and that leads to the Value."""
    if value.real is not ABSENT:
        return value.real
    cells = tuple(types.CellType() for _ in value.closure)
    made = types.FunctionType(value.code, value.namespace, None, None, cells)
    if value.attrs is not None and (mark := value.attrs.attrs.get(m, "__isabstractmethod__")) is not ABSENT:
        made.__isabstractmethod__ = mark.constant()  # type: ignore[attr-defined]
    m.by_id[id(made)] = (made, value)
    return made


def store(m: Machine, made: ClassValue, name: str, value: Value | None) -> None:
    """``cls.name = value`` of a class made during capture."""
    if name == "__bases__":     # this updates all subclasses, including unreferenced ones
        raise Skip(Reason.SIDE_EFFECT, f"setting .{name} of {made}")
    if name.startswith("__") or isinstance(made, LibraryClassValue) or value is None and name not in vars(made.real):
        raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {made}")
    if value is None:
        made.delete(m, name)
        return
    made.write(m, name, value, shell(m, name, value))


# ---- descriptors ------------------------------------------------------------------------------------------
def _makes(kind: type, parameters: tuple[str, ...]) -> None:
    @handles(kind)
    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        parts = take(kind.__name__, args, kwargs, *parameters, required=1)
        parts = [p for p in parts if p is not None]
        if not all(isinstance(p, FunctionValue) or p is NONE for p in parts):
            raise Break(Reason.UNSUPPORTED, article(f"{kind.__name__} of an object that is not a Python function"))
        return DescriptorValue(kind, parts)


for _kind in DESCRIPTORS:
    _makes(_kind, ("fget", "fset", "fdel") if _kind is property else ("function",))


def _replaces(descriptor: Any, index: int) -> None:
    @handles(descriptor)
    def replace(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self_, function = take(descriptor.__name__, args, kwargs, "self", "function", required=2)
        if not isinstance(self_, DescriptorValue):
            raise Break(Reason.OPAQUE_CALL, f"property.{descriptor.__name__}")
        parts = [*self_.parts, *[NONE] * (3 - len(self_.parts))]
        parts[index] = function
        return DescriptorValue(property, parts)


for _i, _descriptor in enumerate((property.getter, property.setter, property.deleter)):
    _replaces(_descriptor, _i)
