"""The names that a library's Python function looks up, when capture calls it and keeps the result.

The result is the same at the next call if the function finds the same objects under these names: globals, builtins and
attributes of modules. The same holds for the functions that it finds there.
"""
from __future__ import annotations

import builtins
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from sot.bytecode import decode
from sot.bytecode.code_table import CodeTable
from sot.guards.guards import HasKeyGuard, IsGuard
from sot.guards.origin import Global, Item, known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

DEPTH = 3       # of functions that call each other


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
