"""Python code of the program that is not captured: kernels of operators (``torch.library.custom_op``) and
``warnings.showwarning``, which run while the graph runs, and what gets output later: handlers of ``logging``, and an
object in place of ``sys.stdout``.

The code of the frame that is not in the graph runs before or after all of it. So where such code may change an object
that the frame reads, Python calls the operator, prints or logs, between two graphs. What it may change is what it
reaches by the names in its code, without that of libraries.
"""
from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from io import IOBase
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.bytecode import decode
from sot.guards.guards import EqualsGuard, IsGuard, LengthGuard, TypeGuard
from sot.guards.origin import Attr, known
from sot.interpreter.objects.names_used import LEAVES, OBJECTS, held_by, names_used
from sot.support.errors import Break, Reason
from sot.support.lookups import own_dict
from sot.support.own_code import is_own
from sot.support.places import is_of_library
from sot.torch_compat.operators.with_numbers import kernel_of
from sot.values.constants import is_library

if TYPE_CHECKING:
    from sot.guards.origin import Origin
    from sot.interpreter.machine import Machine

LOGS_WARNINGS = vars(logging)["_showwarning"]       # in place of warnings.showwarning by logging.captureWarnings
NOT_CHANGED = (*LEAVES, ModuleType, type(None), complex)
STORES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "DELETE_ATTR", "DELETE_SUBSCR")
READING = ("copy", "count", "difference", "fromkeys", "get", "index", "intersection", "isdisjoint", "issubset",
           "issuperset", "items", "keys", "symmetric_difference", "union", "values")
METHODS = {name for kind in (list, dict, set, deque, bytearray) for name in dir(kind) if name[0] != "_"}
CHANGING = METHODS.union(("setattr", "delattr", "next", "setitem", "delitem", "exec", "eval")).difference(
    dir(bytes), READING)


def refuse(m: Machine, target: Any) -> None:
    """Break if the kernel of an operator may change what capture has read. What it reads from now on is asked, too."""
    kernel = kernel_of(target)
    if kernel is not None:
        refuse_changes(m, [kernel], f"{target}, whose Python code may change what the program reads,")


def refuse_handlers(m: Machine, logger: logging.Logger, origin: Origin | None = None) -> None:
    """Break if a handler or filter that gets the records of a logger may change what the function reads. The handlers
    and filters may be others later, so their numbers are guarded.
    """
    loggers = [*above(logger)]
    for each in loggers:
        origin = origin or known(each, each.name)
        m.guard(LengthGuard(Attr(origin, "handlers"), len(each.handlers)))
        m.guard(LengthGuard(Attr(origin, "filters"), len(each.filters)))
        m.guard(EqualsGuard(Attr(origin, "propagate"), each.propagate))
        m.guard(IsGuard(Attr(origin, "parent"), each.parent))
        origin = None
    handlers = [handler for each in loggers for handler in each.handlers]
    refuse_ours(m, [*loggers, *handlers, *(f for part in (*loggers, *handlers) for f in part.filters)],
                "logging by a handler of the program, which may change what is read,")


def above(logger: logging.Logger | None) -> Iterator[logging.Logger]:
    """A logger, and those whose handlers get its records, too."""
    while logger is not None:
        yield logger
        logger = logger.parent if logger.propagate else None


def refuse_stream(m: Machine, name: str) -> None:
    """Break if the object in place of a standard stream may change what the function reads."""
    stream = getattr(sys, name)
    m.guard(TypeGuard(Attr(known(sys, "sys"), name), type(stream)))
    refuse_ours(m, [stream], f"output to an object in place of sys.{name}, which may change what is read,")


def refuse_shower(m: Machine) -> None:
    """Break if a function of the program stands in place of ``warnings.showwarning``: it may raise. Break too if the
    warning is logged by a handler that may change what the function reads.
    """
    show = m.shows_warning
    if is_of_program(show):
        raise Break(Reason.SIDE_EFFECT, "a warning for a function of the program in place of warnings.showwarning")
    if show is LOGS_WARNINGS:
        refuse_handlers(m, logging.getLogger("py.warnings"))
    m.guard(IsGuard(Attr(known(warnings, "warnings"), "showwarning"), show))


def refuse_ours(m: Machine, parts: Iterable[Any], what: str) -> None:
    """Break if those parts that are of the program may change what the function reads."""
    if found := [*filter(is_of_program, parts)]:
        refuse_changes(m, found, what, may_print=True)


def refuse_changes(m: Machine, code: Iterable[Any], what: str, may_print: bool = False) -> None:
    """Break if functions or objects with methods may change what capture has read, or reads from now on.

    Arguments:
        what: what the message calls them.
        may_print: whether they may write output, because it keeps its order.
    """
    found = changed_by(code, may_print)
    if found is None or not found.keys().isdisjoint(m.by_id):
        raise Break(Reason.SIDE_EFFECT, what)
    if found:
        before, m.changed_uncaptured = m.changed_uncaptured, {**m.changed_uncaptured, **dict.fromkeys(found, what)}
        m.undoable(lambda: setattr(m, "changed_uncaptured", before))


def is_of_program(part: Any) -> bool:
    """Whether it is a function, or has a method, that no library defines."""
    found = [part] if isinstance(part, FunctionType) else [
        f for held in (own_dict(part), *map(vars, type(part).__mro__)) for f in (held or {}).values()
        if isinstance(f, FunctionType)]
    return not all(is_of_library(file) or is_own(file) for file in (f.__code__.co_filename for f in found))


def changed_by(code: Iterable[Any], may_print: bool) -> dict[int, Any] | None:
    """The objects that code may change; None if it writes output, sets variables that are not its own, or reaches
    too many objects.
    """
    objects, seen, todo = dict[int, Any](), set[int](), [*code]
    kinds: set[type] = set()        # of what may change
    while todo:
        found = todo.pop()
        kind = type(found)      # isinstance may run code of the program
        if id(found) in seen or issubclass(kind, NOT_CHANGED) or issubclass(kind, IOBase) and not is_of_program(found):
            continue
        seen.add(id(found))
        if kind is FunctionType:
            if not is_of_library(found.__code__.co_filename):
                if has_effects(found.__code__, may_print):
                    return None
                kinds |= changed_kinds(found.__code__)
                todo += held_by(found)
        elif issubclass(kind, type):
            todo += () if is_library(found.__module__) else vars(found).values()
        else:
            objects[id(found)] = found
            todo += gc.get_referents(found)
        if len(objects) > OBJECTS:
            return None
    return {key: found for key, found in objects.items() if issubclass(type(found), tuple(kinds))}


def has_effects(code: CodeType, may_print: bool) -> bool:
    """Whether code writes output by name, or sets global variables or those of a function around it."""
    return not may_print and ("print",) in names_used(code) or any(
        instr.op in ("STORE_GLOBAL", "DELETE_GLOBAL") or instr.op == "STORE_DEREF" and instr.arg in code.co_freevars
        for instr in decode(code).instrs) or any(has_effects(const, may_print) for const in codes_in(code))


def changed_kinds(code: CodeType) -> set[type]:
    """The types of which code may change an object: any, where it stores to one or calls something by a name that may
    change it; those that an operator like ``+=`` changes, where it has one. ``__init__`` stores in new objects.
    """
    instrs = [instr for instr in decode(code).instrs if not (code.co_name == "__init__" and instr.op == "STORE_ATTR")]
    found = {kind for const in codes_in(code) for kind in changed_kinds(const)}
    if any(instr.op in STORES for instr in instrs) or any(n in CHANGING or n.endswith("_") for n in code.co_names):
        found.add(object)
    if any(instr.op == "BINARY_OP" and instr.arg.endswith("=") for instr in instrs):
        found.update((list, set, torch.Tensor, np.ndarray))
    return found


def codes_in(code: CodeType) -> Iterator[CodeType]:
    return (const for const in code.co_consts if isinstance(const, CodeType))
