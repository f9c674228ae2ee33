"""NumPy arrays and numbers: references into the graph, as tensors are.

NumPy itself computes when the graph runs. Capture knows a ``Layout`` of each value, which decides NumPy's answers
about dtype and shape. The answers are taken from a specimen, an array of that layout which is full of ones.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import fx

from sot.graph import TensorRef
from sot.guards.guards import TypeGuard
from sot.guards.origin import Length, Origin
from sot.guards.tensor_guards import ArrayGuard, layout_of
from sot.support.errors import Break, Reason
from sot.values.base import OtherTensor, Value
from sot.values.constants import SCALARS

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine

CASTS_BY_TYPE = int(np.__version__.partition(".")[0]) >= 2      # before NumPy 2, casts depend on the values of numbers
SIZE_LIMIT = 1 << 28        # greatest size of a specimen, in bytes
VIEWS = frozenset(("T", "mT", "real", "imag"))


@dataclass(frozen=True)
class Layout:
    """What is known of an array or a number. For a number ``kind`` is its type, and its shape is empty."""

    kind: type
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    writeable: bool = False

    @classmethod
    def of(cls, value: Any) -> Layout | None:
        """The layout, or None for values that graphs do not support: objects, text, structures, foreign byte orders,
        long doubles.
        """
        kind = type(value)
        if kind in SCALARS:
            return cls(kind, value.dtype)
        if kind is not np.ndarray or value.dtype.type not in SCALARS or not value.dtype.isnative:
            return None
        if value.dtype.metadata is not None or not value.flags.aligned:
            return None
        found = cls(kind, value.dtype, value.shape, value.strides, value.flags.writeable)
        return found if sum(found.extent()) <= SIZE_LIMIT else None

    @property
    def is_array(self) -> bool:
        return self.kind is np.ndarray

    def extent(self) -> tuple[int, int]:
        """The number of bytes before the first element, and from it on."""
        steps = [] if 0 in self.shape else [s * (n - 1) for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(-s for s in steps if s < 0), sum(s for s in steps if s > 0) + self.dtype.itemsize

    def specimen(self, fill: int = 1, writeable: bool = False) -> Any:
        """An array or a number with this layout. NumPy refuses to write to it unless the caller allows writing."""
        if not self.is_array:
            return self.kind(fill)
        before, after = self.extent()
        memory = np.full(-(-(before + after) // self.dtype.itemsize), fill, self.dtype)
        made: np.ndarray = np.ndarray(self.shape, self.dtype, memory, before, self.strides)
        made.flags.writeable = writeable and self.writeable
        return made


METADATA: dict[str, Callable[[Layout], Any]] = {
    "shape": lambda a: a.shape, "strides": lambda a: a.strides, "dtype": lambda a: a.dtype,
    "ndim": lambda a: len(a.shape), "size": lambda a: prod(a.shape), "itemsize": lambda a: a.dtype.itemsize,
    "nbytes": lambda a: prod(a.shape) * a.dtype.itemsize,
}


class ArrayRef(TensorRef):
    """A NumPy array or number in the graph. ``memory`` is shared with other arrays; ``value`` is its Value."""

    __slots__ = ("layout", "memory", "value")

    def __init__(self, layout: Layout, memory: Any = None, node: fx.Node | None = None, real: Any = None,
                 label: str = "") -> None:
        self.node, self.real, self.label, self.version = node, real, label, 0
        self.layout, self.memory = layout, memory
        self.value: Value | None = None
        self.fake: Any = layout if layout.is_array else layout.kind(1).item()

    @property
    def example(self) -> Layout:
        """The layout, also for a number: a compiler would take it for a Python number, and make it a constant."""
        return self.layout


class ArrayValue(Value):
    """An array, or a number that NumPy returns. The layout of an existing one is guarded when it is read."""

    def __init__(self, pytype: type, ref: ArrayRef | None = None) -> None:
        self.pytype, self._ref = pytype, ref
        if ref is not None:
            ref.value = self

    @classmethod
    def existing(cls, m: Machine, real: Any, origin: Origin) -> ArrayValue:
        value = cls(type(real))
        value.real, value.origin, value.machine = real, origin, m
        return value

    machine: Machine | None = None

    @property
    def ref(self) -> ArrayRef:
        if self._ref is None:
            assert self.machine is not None
            self._ref = existing_ref(self.machine, self)
        return self._ref

    @property
    def layout(self) -> Layout:
        return self.ref.layout

    @property
    def is_array(self) -> bool:
        return self.pytype is np.ndarray

    def refusal(self) -> Break:
        what = "a NumPy array" if self.is_array else "a number of NumPy"
        return Break(Reason.OTHER_TENSOR, f"{self} is {what}")

    def array_argument(self, m: Machine) -> ArrayRef:
        return self.ref

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        """A NumPy number, which is a Python number for a tensor operation."""
        if not as_number or self.is_array or self.pytype is np.bool_ or not may_call_numpy(m):
            raise self.refusal()
        return self.ref

    def truth(self, m: Machine) -> bool | None:
        raise self.refusal()

    def rebuild(self, e: Emitter) -> str:
        return e.output(self.ref)

    def __str__(self) -> str:
        if self.origin is not None:
            return str(self.origin)
        return f"an array of shape {self.layout.shape}" if self.is_array else f"a number of type {self.pytype.__name__}"


def existing_ref(m: Machine, value: ArrayValue) -> ArrayRef:
    """The reference to an array or number that exists before the graph runs. Guards its layout."""
    origin, layout = value.origin, Layout.of(value.real)
    assert origin is not None
    if layout is None or Length(origin) in m.varies.specialized:
        raise OtherTensor(value.real, origin, "a NumPy array").refusal("")
    m.guard(ArrayGuard(origin, layout_of(value.real)) if layout.is_array else TypeGuard(origin, value.pytype))
    made = ArrayRef(layout, m.array_memory.outside, None, value.real, str(origin))
    made.value = value
    m.input_origins[id(made)] = origin
    return made


def may_call_numpy(m: Machine) -> bool:
    """Whether the graph may call NumPy."""
    return CASTS_BY_TYPE and not m.assumptions.compiles and m.builder.region is None and m.watch is None and not m.modes
