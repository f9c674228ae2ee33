"""Libraries in plain Python that a model calls: a computer algebra system, a parser, a graph library.

Where a capture breaks within such a library, Python runs the rest of it, and the hook asks about each function that it
calls: hundreds of captures, each without a graph. So after a few of them the functions of a library are left to Python
where they are called without a tensor or a module. One graph among its captures, and a library is none of these.

A function of a library that checks types or shapes is called with tensors and computes none. So a function is left to
Python, too, after a few captures of it, or of what follows its breaks, without a graph. A function of the program is
left after more of them, and only where it is called without a tensor or a module: each capture has guards, which a
function of a few numbers pays for at every call.

If a capture breaks within a call of a library that has no tensor work, Python runs this call, not only the operation
that capture cannot follow: a visitor of syntax trees would break for each of its nodes, dozens of times in a call.
"""
from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from sot.bytecode.code_table import CodeTable
from sot.bytecode.resume_origin import whole_code
from sot.interpreter.frame import Frame
from sot.interpreter.machine import Machine
from sot.reports.records import Capture
from sot.support.lookups import own_dict
from sot.support.own_code import is_own
from sot.support.places import is_of_library
from sot.values.base import ABSENT, Const, Lazy, Opaque
from sot.values.objects import DELETED, DictValue, ListValue, ObjectValue, TupleValue

FRUITLESS = 8       # captures of a library, or of a function of the program, until it is left to Python
FRUITLESS_OF_FUNCTION = 4
DEEPEST = 2         # levels of containers in which a tensor is looked for
WORKING = (torch.Tensor, torch.nn.Module)
TORCH = os.path.join(Path(torch.__file__).parent, "")


class PlainLibraries:
    """The results of capturing code of installed libraries, by package."""

    def __init__(self) -> None:
        self.fruitless: Counter[str] = Counter()
        self.fruitful: set[str] = set()
        self.functions = CodeTable(lambda code: Outcome())

    def leaves(self, function: FunctionType, inputs: Iterable[object]) -> bool:
        """Is a call left to Python, and those that come after it?"""
        outcome = self.functions.of(whole_code(function.__code__))
        if not is_of_library(function.__code__.co_filename):
            return not outcome.graphs and outcome.fruitless >= FRUITLESS and not has_work(inputs)
        package = package_of(function)
        return outcome.is_poor or (
            self.fruitless[package] >= FRUITLESS and package not in self.fruitful and not has_work(inputs))

    def note(self, function: FunctionType, inputs: Iterable[object], record: Capture, on_tensors: bool) -> None:
        """Note what has come of a capture. ``on_tensors``: whether a capture of the function met an operation on a
        tensor. Graphs of the program may be of NumPy's numbers alone.
        """
        outcome, of_library = self.functions.of(whole_code(function.__code__)), is_of_library(
            function.__code__.co_filename)
        if record.graph is not None and (on_tensors or of_library):
            self.fruitful.add(package_of(function))
            outcome.graphs += 1
            return
        outcome.fruitless += 1
        if of_library and not has_work(inputs):
            self.fruitless[package_of(function)] += 1


@dataclass
class Outcome:
    """What has come of the captures of one function and of what follows its breaks."""

    graphs: int = 0
    fruitless: int = 0

    @property
    def is_poor(self) -> bool:
        return not self.graphs and self.fruitless >= FRUITLESS_OF_FUNCTION


def package_of(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__")).partition(".")[0]


def has_work(values: Iterable[Any], level: int = 0) -> bool:
    """Is there a tensor or a module among arguments? No code of theirs is run: an object may lie about its class."""
    return any(issubclass(type(value), WORKING)
               or level < DEEPEST and has_work(held(value), level + 1) for value in values)


def held(value: Any) -> Iterable[object]:
    """The elements of a builtin container or a cell; nothing for other objects."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return list(value)
    if kind is dict:
        return list(value.values())
    if kind is CellType:
        return held_by_cell(value)
    return ()


def held_by_cell(cell: CellType) -> Iterable[object]:
    try:
        return [cell.cell_contents]
    except ValueError:      # it is empty
        return ()


# ---- calls of libraries that a capture has followed ----


def depth_outside(machine: Machine) -> int:
    """The depth of the innermost frame outside of libraries without tensor work. At a break its call of such a library
    is Python's.
    """
    frames, outside = machine.frames, len(machine.frames) - 1
    for depth in range(outside, 0, -1):
        file = frames[depth].native.co_filename
        if is_own(file):
            continue
        if not is_of_library(file) or file.startswith(TORCH) or frames[depth - 1].mark.graph != machine.builder.mark():
            break
        if not any(map(may_compute, parameters(frames[depth]))):
            outside = depth - 1
    return outside


def parameters(frame: Frame) -> Iterable[Any]:
    """The arguments, as the function has left them."""
    code = frame.native
    flags = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount + flags]:
        yield frame.cells[name].contents if name in frame.cells else frame.locals.get(name, ABSENT)


def may_compute(value: Any, level: int = 0) -> bool:
    """Whether a library that is given this value could compute with tensors. Of functions and of objects with code of
    the program, capture does not know.
    """
    if value is ABSENT or isinstance(value, Const):
        return False
    if isinstance(value, (Lazy, Opaque)):
        return holds_work(value.real)
    if level > DEEPEST or not isinstance(value, ObjectValue) or issubclass(value.pytype, WORKING):
        return True
    if value.real is not ABSENT:
        return holds_work(value.real)
    if isinstance(value, (TupleValue, ListValue)):
        return any(may_compute(item, level + 1) for item in value.items)
    if isinstance(value, DictValue):
        return any(may_compute(item, level + 1) for item in value.overlay.values() if item is not DELETED)
    return not is_of_libraries(value.pytype) or any(
        may_compute(item, level + 1) for item in (*value.attrs.overlay.values(), *value.slots.values())
        if item is not DELETED)


def holds_work(value: Any) -> bool:
    if isinstance(value, (FunctionType, MethodType)) or not is_of_libraries(type(value)):
        return True
    return has_work([value, *(own_dict(value) or {}).values()])


def is_of_libraries(kind: type) -> bool:
    """Whether a class has been defined by Python itself or by a library."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return module is not None and (file is None or is_of_library(file)) and kind.__module__ != "__main__"
