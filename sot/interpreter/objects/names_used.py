"""The names that a Python function looks up, when capture calls it and keeps the result.

The result is the same at the next call if the function finds the same objects under these names: globals, builtins and
attributes of modules. The same holds for the functions that it finds there.

``may_reach`` follows the names and the objects behind them further, to decide whether the function can see a change
that is pending. ``is_of_arguments`` decides whether the function computes with its arguments only.
"""
from __future__ import annotations

import builtins
import gc
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from sot.bytecode import decode
from sot.bytecode.code_table import CodeTable
from sot.guards.guards import HasKeyGuard, IsGuard
from sot.guards.origin import Global, Item, known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

DEPTH = 3       # of functions that call each other
OBJECTS = 20_000    # that may_reach looks at
ANY_NAME = frozenset({"__import__", "eval", "exec", "globals", "locals", "vars"})   # builtins that look up any name
FOR_TYPES = frozenset(f"__{name}__" for name in (       # in dicts of objects, for type checkers
    "annotations", "annotate", "annotate_func", "annotations_cache", "orig_bases", "parameters"))
OF_TYPES = frozenset({"typing", "typing_extensions"})       # modules whose objects hold nothing else of a program
COMPUTING = frozenset({"builtins", "math", "operator"})     # modules whose functions have no state
LEAVES = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, CodeType, str, int, float, bytes)


def names_used(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The globals of a code object, each with the attributes that are read directly off it."""
    return _used.of(code)


def _names_used(code: CodeType) -> tuple[tuple[str, ...], ...]:
    found: dict[tuple[str, ...], None] = {}
    path: tuple[str, ...] = ()
    for instr in decode(code).instrs:
        if instr.op in ("LOAD_GLOBAL", "LOAD_NAME"):
            path = (instr.arg,)
        elif instr.op in ("LOAD_ATTR", "LOAD_METHOD") and path:
            path = (*path, instr.arg)
        else:
            if path:
                found[path] = None
            path = ()
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found.update(dict.fromkeys(names_used(const)))
    return tuple(found)


_used = CodeTable(_names_used)


def guard_names(m: Machine, function: FunctionType, depth: int = DEPTH) -> None:
    """Guard the objects that a function finds under its names."""
    if depth == 0 or id(function) in m.names_guarded:
        return
    m.names_guarded.add(id(function))
    for path in names_used(function.__code__):
        for found in guard_path(m, function.__globals__, path):
            if isinstance(found, FunctionType):
                guard_names(m, found, depth - 1)


def guard_path(m: Machine, namespace: dict, path: tuple[str, ...]) -> Iterator[Any]:
    """Guard a global or builtin, and the attributes below it as long as they belong to modules. Yields the objects."""
    name, *attributes = path
    if name in namespace:
        origin: Any = Global(known(namespace, str(namespace.get("__name__"))), name)
        found = namespace[name]
    else:
        m.guard(HasKeyGuard(known(namespace, str(namespace.get("__name__"))), name, False))
        if not hasattr(builtins, name):
            return
        origin, found = Global(known(vars(builtins), "builtins"), name), getattr(builtins, name)
    m.guard(IsGuard(origin, found))
    yield found
    for attribute in attributes:
        if not isinstance(found, ModuleType) or attribute not in vars(found):
            return
        held, found = vars(found), vars(found)[attribute]
        m.guard(IsGuard(Item(known(held, str(held.get("__name__"))), attribute), found))
        yield found


def may_reach(roots: Iterable[Any], objects: Iterable[Any]) -> bool:
    """Whether code of the program that gets only ``roots`` may read or change one of ``objects``.

    Functions are followed by the names in their code, other objects by what they refer to. The answer is True where
    a name cannot be known, or where too many objects can be reached.
    """
    wanted, seen, todo = {id(o) for o in objects}, dict[int, Any](), [*roots]
    while wanted and todo:
        found = todo.pop()
        kind = type(found)      # isinstance may run code of the program
        if id(found) in wanted or issubclass(kind, ModuleType) or len(seen) > OBJECTS:
            return True
        if issubclass(kind, LEAVES) or id(found) in seen:
            continue
        seen[id(found)] = found
        if (kind is FunctionType or issubclass(kind, type)) and found.__module__ in OF_TYPES:
            continue
        if kind is FunctionType:
            if not knows_its_names(found.__code__):
                return True
            todo += held_by(found)
        elif issubclass(kind, type):
            todo += (part for base in type.mro(found) for part in parts_of(vars(base)))
        elif kind in (classmethod, staticmethod):      # its dict has the annotations
            todo.append(found.__func__)
        else:
            todo += parts_of(found) if kind is dict else gc.get_referents(found)
    return False


def held_by(function: FunctionType) -> Iterator[Any]:
    """What a function has at hand: its defaults, attributes and cells, and what it finds under its names."""
    yield from (function.__defaults__, function.__kwdefaults__, function.__dict__, function.__closure__)
    for path in names_used(function.__code__):
        yield from ends_of(function.__globals__, path)


def is_of_arguments(function: FunctionType, depth: int = DEPTH) -> bool:
    """Whether a function of the program looks up nothing with a state: only such functions, and builtin ones."""
    if depth == 0 or function.__closure__ or not knows_its_names(function.__code__) or not all(
            d is None or isinstance(d, LEAVES) for d in function.__defaults__ or ()):
        return False
    return all(
        is_of_arguments(found, depth - 1) if type(found) is FunctionType
        else (type(found) is BuiltinFunctionType or isinstance(found, type)) and (
            found.__module__ in COMPUTING or isinstance(found, type) and issubclass(found, Exception))
        for path in names_used(function.__code__) for found in ends_of(function.__globals__, path))


def parts_of(held: Mapping[Any, Any]) -> Iterator[Any]:
    """The keys and values of a dict, which may be that of an object. Without what is for type checkers."""
    for key, value in held.items():
        if not (type(key) is str and key in FOR_TYPES):
            yield from (key, value)


def knows_its_names(code: CodeType) -> bool:
    """Whether a code object looks up only names that are written in it, and imports nothing."""
    return all(instr.op != "IMPORT_NAME" for instr in decode(code).instrs) and not any(
        path[0] in ANY_NAME for path in names_used(code)) and all(
        knows_its_names(const) for const in code.co_consts if isinstance(const, CodeType))


def ends_of(namespace: dict, path: tuple[str, ...]) -> Iterator[Any]:
    """The object under the longest part of a path that goes through modules; none if a name is missing."""
    name, *attributes = path
    found = namespace.get(name, vars(builtins).get(name))
    for attribute in attributes:
        if not isinstance(found, ModuleType):
            break
        found = vars(found).get(attribute)
    yield found
