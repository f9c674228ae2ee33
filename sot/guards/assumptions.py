"""What a capture assumes about later calls, and how it restarts when an assumption is wrong.

A capture starts with ``Assumptions``. If one of them is wrong, it raises ``RestartCapture`` with what it has learnt.
The frame is then captured again with ``assumptions | restart.learnt``.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from enum import Enum
from functools import cached_property
from types import CodeType
from typing import Any

import torch

from sot.guards.origin import Arg, Dim, Item, Origin, Stride, immutable
from sot.support import user_annotations
from sot.torch_compat.dynamo.marks import dynamic_dims, static_dims

Point = tuple[CodeType, int]    # a code object and the index of an instruction


class Part(Enum):
    """A part of programs that some backends cannot compile. It is left to Python then."""

    GRADIENTS = "backward()"
    FUNCTIONS = "calls of autograd functions that the program defines"
    CHANGES = "changes of weights in place, after an operation that has saved the weight for the backward pass"
    INFERENCE = "torch.inference_mode()"
    WRAPPERS = "operations on instances of wrapper subclasses of Tensor"
    SIZES = "operations with sizes and numbers that depend on data"
    ANOMALIES = "anomaly mode, around operations whose results have a history"
    EMPTY = "branches that only a size of zero decides, if the size depends on data"
    BRANCHES = "branches that random numbers decide"


@immutable
class Variation:
    """The sizes, strides and numbers that may differ from call to call.

    Arguments:
        origins: the sizes, strides and numbers that may differ.
        everything: whether all sizes and numbers that are reached from the arguments may differ.
        named: for the tensors of an ``input_spec``, by their spelling: per dimension a name, None, or a fixed int.
        constant: numbers that stay constants in any case.
        specialized: numbers that became constants and then differed at the next call. A loop over a range that may
            differ then stays a loop whose body is captured separately, and reading the value of a float is a break.
        marks: whether the marks of ``mark_dynamic`` count. torch._dynamo.mark_static always counts.
    """

    origins: frozenset[Origin] = frozenset()
    everything: bool = False
    named: Mapping[str, tuple] = field(default_factory=dict)
    constant: frozenset[Origin] = frozenset()
    specialized: frozenset[Origin] = frozenset()
    marks: bool = True

    @property
    def loops(self) -> bool:
        return bool(self.specialized)

    def number(self, origin: Origin) -> bool:
        return origin in self.origins or (self.everything and from_arguments(origin) and origin not in self.constant)

    def dims(self, origin: Origin, real: torch.Tensor) -> dict[int, Dim]:
        """The dimensions of a tensor that may differ. Sizes 0 and 1 are excluded, because they are always
        constants.
        """
        if isinstance(real, torch.nn.Parameter):
            return {}
        marked = getattr(real, user_annotations.MARK, frozenset()) | dynamic_dims(real) if self.marks else ()
        if not (self.origins or self.everything or self.named or marked):
            return {}
        names = self.named.get(str(origin), ()) if self.named else ()
        everything = self.everything and from_arguments(origin)
        found = {}
        fixed = static_dims(real) - (marked or frozenset())
        for i, size in enumerate(real.shape):
            name = names[i] if i < len(names) else 0
            dim = Dim(origin, i, name if isinstance(name, str) else "")
            varies = everything or not isinstance(name, int) or i in marked or dim in self.origins
            if size > 1 and i not in fixed and varies:
                found[i] = dim
        return found

    def strides(self, origin: Origin, real: torch.Tensor) -> dict[int, Stride]:
        found = (Stride(origin, i) for i, stride in enumerate(real.stride()) if stride > 1) if self.origins else ()
        return {s.index: s for s in found if s in self.origins}


STATIC = Variation(marks=False)


def from_arguments(origin: Origin) -> bool:
    """Whether it is an argument, or an item of one, and not part of an object or a module."""
    while isinstance(origin, Item):
        origin = origin.base
    return isinstance(origin, Arg)


@immutable
class Assumptions:
    """The assumptions of a capture. ``|`` joins two. The default assumes that every size and number is a constant
    until it differs, and that the graph runs unchanged.

    Arguments:
        varying: sizes, strides, numbers and strings that have differed from call to call.
        constant: numbers that are constants for the backend, whether they differ or not.
        specialized: see ``Variation``.
        everything, named: see ``Variation``.
        static: whether all sizes and numbers are constants, because torch cannot trace the frame with symbols.
        compiles: whether the backend compiles its graphs. Such graphs lose the leaves, hooks, checkpoints and NumPy
            calls that they contain.
        control_flow: whether branches on tensors become part of the graph.
        refused: the branches that do not, by the place of the jump, with the reason.
        left_to_python: loops (by their first instructions) and calls that run long without an operation.
        varying_calls: calls of functions that break, and have computed a structure by then (drawn examples) of which
            other parts are one object at each call.
        unfinished: the calls of collectives for whose end another piece of the program waits.
        timed: the calls of collectives for which the program waits with a timeout.
        plain: what is left to Python because the backend cannot compile it, with the reason.
        plain_optimizers: the steps of optimizers that are left to Python, by name, with the reason; "" stands for all.
        interprets: whether the backend is known to run its graphs as they are. Steps of optimizers then compute as
            plain PyTorch does, with Python's floats, and Python calls the hooks of weights.
        read_at_once: the places where a number is read off a tensor and its value is needed before the graph has run.
        reads_numbers: the places of operations that need the value of an integer that may differ.
        needs_numbers: the operations that compiled graphs cannot do with a tensor in place of a float.
        waits: the places where a coroutine is awaited that has suspended, or cannot be followed.
        told: whether ``torch.compiler.is_compiling()`` is true for the program, as under torch.compile.
        imported: the parts of libraries that were imported for this capture, with the names read from them.
    """

    varying: frozenset[Origin] = frozenset()
    constant: frozenset[Origin] = frozenset()
    specialized: frozenset[Origin] = frozenset()
    everything: bool = False
    named: Mapping[str, tuple] = field(default_factory=dict)
    static: bool = False
    compiles: bool = False
    control_flow: bool = False
    refused: Mapping[Point, str] = field(default_factory=dict)
    left_to_python: frozenset[Point] = frozenset()
    varying_calls: frozenset[Point] = frozenset()
    unfinished: frozenset[Point] = frozenset()
    timed: frozenset[Point] = frozenset()
    plain: Mapping[Part, str] = field(default_factory=dict)
    plain_optimizers: Mapping[str, str] = field(default_factory=dict)
    interprets: bool = False
    read_at_once: frozenset[Point] = frozenset()
    reads_numbers: frozenset[Point] = frozenset()
    needs_numbers: frozenset[str] = frozenset()
    waits: frozenset[Point] = frozenset()
    told: bool = False
    imported: frozenset[tuple[str, tuple[str, ...]]] = frozenset()

    def __or__(self, other: Assumptions) -> Assumptions:
        return Assumptions(**{f.name: getattr(self, f.name) | getattr(other, f.name) for f in fields(self)})

    @cached_property
    def variation(self) -> Variation:
        return STATIC if self.static else Variation(
            self.varying - self.constant, self.everything, self.named, self.constant, self.specialized)

    @property
    def of_file(self) -> bool:
        """Whether the graph is for a file of ``sot.save``, which is without Python."""
        return Part.EMPTY in self.plain

    @property
    def of_code(self) -> Assumptions:
        """The assumptions that hold for one code object: its numbers, and what its backend cannot compile."""
        return Assumptions(varying=self.varying, constant=self.constant, specialized=self.specialized,
                           plain=self.plain, waits=self.waits)

    @property
    def of_program(self) -> Assumptions:
        """The assumptions that hold for every capture: those on the backend, and those on code that other code may
        inline.
        """
        return Assumptions(compiles=self.compiles, left_to_python=self.left_to_python, read_at_once=self.read_at_once,
                           varying_calls=self.varying_calls, unfinished=self.unfinished, timed=self.timed,
                           plain_optimizers=self.plain_optimizers, interprets=self.interprets,
                           reads_numbers=self.reads_numbers, needs_numbers=self.needs_numbers)


class RestartCapture(Exception):
    """An assumption was wrong. The frame must be captured again with what was ``learnt`` in addition."""

    def __init__(self, why: str, **learnt: Any) -> None:
        super().__init__(why)
        self.learnt = Assumptions(**learnt)

    @classmethod
    def without(cls, part: Part, why: str) -> RestartCapture:
        """Python runs this part from now on."""
        return cls(why, plain={part: why})
