"""Whether capture may run the code of a wrapper subclass on fake tensors.

The code runs once more than in plain Python, on other tensors. So it must have no effects, and its results must depend
on nothing that a guard does not compare. This is decided by reading the bytecode of all functions that it may call.
What is not known to be harmless is refused.
"""
from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from sot.bytecode import decode
from sot.guards.assumptions import Part
from sot.guards.guards import EqualsGuard, IsGuard
from sot.guards.guards import is_constant as is_compared
from sot.guards.origin import ClassAttr, Item, Origin, known
from sot.torch_compat.subclasses.names import OF_TORCH, known_names, overload_names
from sot.torch_compat.subclasses.wrappers import is_own_class_of_torch, makers
from sot.values.constants import is_library

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE",
                    "LOAD_BUILD_CLASS"})
SETTERS = frozenset({"__new__", "__init__", "__post_init__"})       # they write attributes of the new object
BUILTINS = frozenset({
    "isinstance", "issubclass", "type", "len", "zip", "map", "filter", "enumerate", "range", "list", "tuple", "dict",
    "set", "frozenset", "int", "float", "bool", "str", "slice", "getattr", "hasattr", "callable", "super", "sum", "min",
    "max", "any", "all", "abs", "round", "sorted", "reversed", "repr", "staticmethod", "classmethod", "property",
    "iter", "object", "NotImplemented", "NotImplementedError", "AssertionError", "RuntimeError", "ValueError",
    "TypeError", "IndexError", "KeyError", "AttributeError", "Exception"})
MODULES = frozenset({"torch", "math", "operator", "functools", "typing", "itertools"})
SCALARS = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout,
           torch.memory_format, type(Ellipsis), type(NotImplemented))
# Attributes that show what may differ between a fake and a tensor of the program, or that change something.
REFUSED = frozenset({"data_ptr", "untyped_storage", "storage", "storage_offset", "_version", "grad", "backward", "item",
                     "tolist", "numpy", "register_hook", "requires_grad_", "manual_seed", "set_rng_state", "save",
                     "is_compiling", "_cdata", "append", "extend", "insert", "pop", "remove", "clear", "update", "sort",
                     "setdefault", "popitem", "appendleft", "write", "reverse", "send", "put", "print"})


def is_trusted(module: str | None) -> bool:
    """Whether it is a module of a library whose functions have no effects here: torch's examples of classes have."""
    return is_library(module) and not str(module).startswith("torch.testing")


class Refused(Exception):
    """The code may have effects, or depend on something that is not guarded."""


@dataclasses.dataclass
class ClassCode:
    """What is known about a class: why its code is refused, or the globals that it reads, which are to be guarded."""

    refusal: str = ""
    reads: list[tuple[Origin, Any]] = dataclasses.field(default_factory=list)


def code_of(kind: type, instance: Any) -> ClassCode:
    """``instance``: one of the class, whose attributes the code may read."""
    reading = Reading(kind, {*vars(instance)} if instance is not None else None)
    try:
        for cls, name, raw in makers(kind):
            reading.member(cls, name, raw)
        if reading.adds and reading.has_sets:
            raise Refused(f"the code of {kind.__qualname__} may add to a set")
    except Refused as why:
        return ClassCode(str(why))
    return ClassCode("", reading.reads)


class Reading:
    """Reads the functions of a class, and those that they call."""

    def __init__(self, kind: type, attributes: set[str] | None) -> None:
        self.kind, self.attributes = kind, attributes
        self.seen: set[int] = set()
        self.reads: list[tuple[Origin, Any]] = []
        self.adds = self.has_sets = False

    def member(self, cls: type, name: str, raw: Any) -> None:
        raw = getattr(raw, "__func__", raw)
        if isinstance(raw, property):
            for part in (raw.fget, raw.fset):
                if part is not None:
                    self.member(cls, name, part)
        elif isinstance(raw, types.FunctionType):
            self.function(raw)
        else:
            self.object(raw, f"{cls.__qualname__}.{name}")

    def function(self, function: types.FunctionType) -> None:
        if id(function) in self.seen or is_trusted(function.__module__):
            return
        self.seen.add(id(function))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in codes_of(function.__code__):
            self.code(code, function, cells)

    def code(self, code: types.CodeType, function: types.FunctionType, cells: dict[str, types.CellType]) -> None:
        where = f"{function.__qualname__}, line {code.co_firstlineno},"
        before, own, imported = "", own_containers(code), torch
        instrs = decode(code).instrs
        for i, instr in enumerate(instrs):
            op, name = instr.op, str(instr.arg[0] if instr.op == "LOAD_SUPER_ATTR" else instr.arg)
            is_own = op == "STORE_SUBSCR" and is_item_of(own, instrs[max(0, i - 2):i])
            if op in STORES and not is_own or op == "STORE_DEREF" and name in cells or (
                    op == "STORE_ATTR" and not is_new_object(code, before)):
                raise Refused(f"{where} may change something: {op}")
            before = name if op == "LOAD_FAST" else ""
            if op in ("LOAD_GLOBAL", "LOAD_NAME"):
                self.name(name, function.__globals__, where)
            elif op in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
                self.object(cells[name].cell_contents, f"{where} {name}")
            elif op in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                self.attribute(name, where)
            elif op == "IMPORT_NAME":
                imported = self.imported(name, instrs[i - 2].arg, where)
            elif op == "IMPORT_FROM":
                self.object(vars(imported).get(name), f"{where} {name}")

    def imported(self, name: str, level: Any, where: str) -> types.ModuleType:
        """A module that the code imports. If it has been imported before, this has no effect."""
        found = sys.modules.get(name)
        if level != 0 or type(found) is not types.ModuleType or not is_trusted(name):
            raise Refused(f"{where} may change something: IMPORT_NAME")
        self.object(found, where)
        return found

    def name(self, name: str, namespace: dict, where: str) -> None:
        if name in namespace:
            held = namespace[name]
            if isinstance(held, SCALARS):
                self.reads.append((Item(known(namespace, "globals"), name), held))
            else:
                self.object(held, f"{where} {name}")
        elif name not in BUILTINS or not hasattr(builtins, name):
            raise Refused(f"{where} uses {name}")

    def attribute(self, name: str, where: str) -> None:
        """An attribute of an object that is not known. Where the class has one of that name, it may be meant."""
        for cls in self.kind.__mro__[:self.kind.__mro__.index(torch.Tensor)]:
            if name in vars(cls):
                raw = vars(cls)[name]
                if isinstance(raw, SCALARS):
                    self.reads.append((ClassAttr(known(cls, cls.__qualname__), name), raw))
                elif name not in SETTERS:
                    self.member(cls, name, raw)
                return
        self.adds = self.adds or name == "add"
        of_instance = self.attributes is None or name in self.attributes
        if name in REFUSED or not (of_instance or name in known_names() or name in overload_names()):
            raise Refused(f"{where} uses .{name}")

    def object(self, held: Any, where: str) -> None:
        if id(held) in self.seen or isinstance(held, (*SCALARS, *OF_TORCH)):
            return
        self.seen.add(id(held))
        if isinstance(held, types.FunctionType):
            self.seen.discard(id(held))
            self.function(held)
        elif isinstance(held, types.ModuleType):
            if held.__name__.partition(".")[0] not in MODULES:
                raise Refused(f"{where}, a module")
        elif isinstance(held, type):
            self.cls(held, where)
        elif type(held) in (dict, list, tuple, set, frozenset):     # a table of operations
            self.has_sets = self.has_sets or type(held) is set
            for item in [*held, *(held.values() if type(held) is dict else ())]:
                self.object(item, f"an item of {where}")
        elif not (is_library(type(held).__module__) and isinstance(held, (functools.partial, torch.Size))):
            raise Refused(f"{where}, an object of type {type(held).__qualname__}")

    def cls(self, held: type, where: str) -> None:
        if is_trusted(held.__module__) or held is self.kind or self.kind in held.__mro__:
            return
        for cls in held.__mro__:
            if not is_trusted(cls.__module__):
                for name in SETTERS:
                    if name in vars(cls):
                        self.member(cls, name, vars(cls)[name])


def is_new_object(code: types.CodeType, name: str) -> bool:
    """Whether a local variable is the object that a function makes: the ``self`` of ``__init__``, or a variable of
    ``__new__`` that is not its class.
    """
    is_first = name == next(iter(code.co_varnames), None)
    return bool(name) and code.co_name in SETTERS and is_first is (code.co_name != "__new__")


MAKES = frozenset({"BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_LIST"})


def own_containers(code: types.CodeType) -> set[str]:
    """The local variables that only ever hold a dict or list that the function has made: ``options = {}``, and the
    ``options`` of ``**options``.
    """
    instrs = decode(code).instrs
    stores = [(str(instr.arg), instrs[i - 1].op) for i, instr in enumerate(instrs) if instr.op == "STORE_FAST"]
    others = {name for name, made in stores if made not in MAKES} | {
        str(instr.arg) for instr in instrs if instr.op == "DELETE_FAST"}
    parameters = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)]
    named = code.co_varnames[len(parameters):len(parameters) + bool(code.co_flags & inspect.CO_VARKEYWORDS)]
    return {*(name for name, _ in stores), *named} - others - {*parameters}


def is_item_of(own: set[str], instrs: list[Any]) -> bool:
    """Whether these instructions load one of these variables and a key: ``options["device"] = ...``."""
    ops = [instr.op for instr in instrs]
    return ops in (["LOAD_FAST", "LOAD_CONST"], ["LOAD_FAST", "LOAD_FAST"]) and str(instrs[0].arg) in own


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions that it makes."""
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from codes_of(const)


MAY_OVERRIDE = frozenset({
    "__module__", "__doc__", "__qualname__", "__new__", "__init__", "__repr__", "__annotations__", "__dict__",
    "__weakref__", "__slotnames__",     # which pickle and copy leave there
    "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotations_cache__",
    "__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__",
    "__coerce_same_metadata_as_tangent__", "__coerce_tangent_metadata__", "__metadata_guard__"})


def overridden(kind: type) -> str:
    """A member of torch.Tensor that a class replaces and that capture reads as torch's own; "" if there is none."""
    for cls in kind.__mro__[:kind.__mro__.index(torch.Tensor)]:
        for name, raw in vars(cls).items() if not cls.__module__.startswith("torch.distributed.") else ():
            own = isinstance(raw, types.FunctionType) and (not name.startswith("__") or is_own_class_of_torch(kind))
            if name in ("__slots__", "__del__") or name not in MAY_OVERRIDE and hasattr(torch.Tensor, name) and not own:
                return name
    return ""


def refusal_of(m: Machine, kind: type, instance: Any) -> str:
    """Why capture does not follow instances of a class; "" if it does."""
    if Part.WRAPPERS in m.assumptions.plain:
        return f"which the backend cannot compile here ({m.assumptions.plain[Part.WRAPPERS]})"
    if kind not in m.wrapper_codes:
        name = overridden(kind)
        why = "its class has a metaclass" if type(kind) is not type(torch.Tensor) else name and f"it replaces {name}"
        m.wrapper_codes[kind] = ClassCode(why) if why else code_of(kind, instance)
    return m.wrapper_codes[kind].refusal


def admit(m: Machine, kind: type) -> None:
    """Guard what the code of a class reads."""
    for origin, held in m.wrapper_codes[kind].reads:
        m.guard(EqualsGuard(origin, held) if is_compared(held) else IsGuard(origin, held))
