"""Libraries in plain Python that a model calls: a computer algebra system, a parser, a graph library.

Where a capture breaks within such a library, Python runs the rest of it, and the hook asks about each function that it
calls: hundreds of captures, each without a graph. So after a few of them the functions of a library are left to Python
where they are called without a tensor or a module. One graph among its captures, and a library is none of these.

A function of a library that checks types or shapes is called with tensors and computes none. So a function is left to
Python, too, after a few captures of it, or of what follows its breaks, without a graph.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import torch

from sot.bytecode.code_table import CodeTable
from sot.bytecode.resume_origin import whole_code
from sot.reports.records import Capture
from sot.support.places import is_installed

FRUITLESS = 8       # captures of a library, until it is left to Python
FRUITLESS_OF_FUNCTION = 4
DEEPEST = 2         # levels of containers in which a tensor is looked for


class PlainLibraries:
    """The results of capturing code of installed libraries, by package."""

    def __init__(self) -> None:
        self.fruitless: Counter[str] = Counter()
        self.fruitful: set[str] = set()
        self.functions = CodeTable(lambda code: Outcome())

    def leaves(self, function: FunctionType, inputs: Iterable[object]) -> bool:
        """Is a call left to Python, and those that come after it?"""
        if not is_installed(function.__code__.co_filename):
            return False
        package = package_of(function)
        return self.functions.of(whole_code(function.__code__)).is_poor or (
            self.fruitless[package] >= FRUITLESS and package not in self.fruitful and not has_work(inputs))

    def note(self, function: FunctionType, inputs: Iterable[object], record: Capture) -> None:
        """Note what has come of a capture."""
        if not is_installed(function.__code__.co_filename):
            return
        outcome = self.functions.of(whole_code(function.__code__))
        if record.graph is not None:
            self.fruitful.add(package_of(function))
            outcome.graphs += 1
            return
        outcome.fruitless += 1
        if not has_work(inputs):
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
    return any(issubclass(type(value), (torch.Tensor, torch.nn.Module))
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
