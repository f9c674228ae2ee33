"""A lowered graph: buffers, and the steps that fill them, in order. It prints as the body of a function.

A step is a ``Kernel``, a ``Group`` of kernels, or an ``Extern``: a call of one ATen operator. A tensor is a ``View``
of a buffer, so operators that only rearrange elements need no step.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from sot.graph.kernels.ir import Kernel, Memory
from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.sizes import Number
from sot.torch_compat.op_effects import TORCHS_OWN


@dataclasses.dataclass(frozen=True)
class Buffer:
    """Memory for one tensor. ``alias`` names the inputs and buffers whose memory it may share."""

    name: str
    dtype: torch.dtype
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    device: torch.device
    alias: tuple[str, ...] = ()

    @property
    def extent(self) -> Number:
        """The number of elements from the first to the last."""
        return extent(self.shape, self.strides)

    @property
    def nbytes(self) -> Number:
        """The bytes of the elements themselves, each counted once."""
        distinct = [n for n, s in zip(self.shape, self.strides, strict=True) if s != 0]
        return product(distinct) * self.dtype.itemsize

    @property
    def memory(self) -> Memory:
        return Memory(NAMES[self.dtype], self.extent)

    def view(self) -> View:
        return View(self.name, self.shape, self.strides, 0, self.dtype, self.device)


@dataclasses.dataclass(frozen=True)
class View:
    """A tensor: its elements are at ``offset + sum(axis * stride)`` of a buffer."""

    buffer: str
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number
    dtype: torch.dtype
    device: torch.device

    def __str__(self) -> str:
        at = f" + {self.offset}" if self.offset != 0 else ""
        return f"{self.buffer}{at} as {list(self.shape)} by {list(self.strides)}"


@dataclasses.dataclass(frozen=True)
class Extern:
    """A call of an operator. ``outputs`` are its results in order, None for an unused one. With an argument ``out`` the
    result is stored there, in a part of the buffer.
    """

    target: Any
    args: tuple
    kwargs: dict[str, Any]
    outputs: tuple[str | None, ...]
    many: bool                      # whether the result is a tuple or list
    note: str = ""

    def read(self) -> frozenset[str]:
        return frozenset(v.buffer for v in views((self.args, self.kwargs)))

    def written(self) -> frozenset[str]:
        return frozenset(name for name in self.outputs if name)

    @property
    def into(self) -> View | None:
        """The part of a buffer that the result is stored in."""
        return self.kwargs.get("out")

    def changed(self) -> frozenset[str]:
        """The buffers of which only some places are stored to."""
        return frozenset({self.into.buffer} if self.into else ())

    def __str__(self) -> str:
        args = [str(a) for a in self.args] + [f"{k}={v}" for k, v in self.kwargs.items()]
        return f"{', '.join(map(str, self.outputs))} = {self.target}({', '.join(args)})"


@dataclasses.dataclass(frozen=True)
class Group:
    """Independent kernels that are launched as one."""

    kernels: tuple[Kernel, ...]

    @property
    def buffers(self) -> dict[str, Memory]:
        return {name: memory for kernel in self.kernels for name, memory in kernel.buffers.items()}

    def read(self) -> frozenset[str]:
        return frozenset().union(*(k.read() for k in self.kernels))

    def written(self) -> frozenset[str]:
        return frozenset().union(*(k.written() for k in self.kernels))

    def changed(self) -> frozenset[str]:
        return frozenset().union(*(k.changed() for k in self.kernels))

    def __str__(self) -> str:
        return "\n\n".join([f"together: {', '.join(k.name for k in self.kernels)}", *map(str, self.kernels)])


Step = Kernel | Extern | Group
Effect = tuple[Any, tuple[str | None, ...]]      # an operator, and the buffers of its results


@dataclasses.dataclass
class Program:
    """``outputs`` contains views, numbers and None, in the order of the graph's results. ``symbols`` says how a size
    that varies is found: an input, or ``input.shape[0]``. ``apart`` has the positions of results that are views of
    whole inputs. Each is an object of its own, because AOTAutograd changes the shape of an input itself
    (``x.unsqueeze_(0)``) after the graph.
    """

    inputs: list[str]
    constants: dict[str, torch.Tensor]
    buffers: dict[str, Buffer]
    steps: list[Step]
    outputs: tuple
    symbols: dict[str, str] = dataclasses.field(default_factory=dict)
    apart: frozenset[int] = frozenset()

    def kept(self) -> frozenset[str]:
        """The buffers that live on after the program has run."""
        return frozenset(self.inputs) | self.constants.keys() | {v.buffer for v in views(self.outputs)}

    def kernels(self) -> list[Kernel]:
        """All kernels, including those in groups."""
        found: list[Kernel] = []
        for step in self.steps:
            found += step.kernels if isinstance(step, Group) else [step] if isinstance(step, Kernel) else []
        return found

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.steps), f"return {', '.join(map(str, self.outputs))}"])


def has_effect(step: Step) -> bool:
    """Whether a step does more than write its buffers: draw random numbers, assert, communicate, print. The effects of
    a foreign operator are unknown. Steps with effects run in the program's order.
    """
    if not isinstance(step, Extern):
        return False
    target = step.target
    return (not isinstance(target, torch._ops.OpOverload) or target.namespace not in TORCHS_OWN
            or torch.Tag.nondeterministic_seeded in target.tags or not any(step.outputs))


def allocates(step: Step) -> bool:
    """Whether it does nothing but allocate memory."""
    schema = getattr(getattr(step, "target", None), "_schema", None)
    return schema is not None and schema.name.removeprefix("aten::") in (
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")


def effects_of(program: Program) -> list[Effect]:
    """The calls of operators with effects, in order, each with the names of its results."""
    return [(step.target, step.outputs) for step in program.steps if isinstance(step, Extern) and has_effect(step)]


def views(value: Any) -> Iterator[View]:
    """The views in nested arguments."""
    found: list[View] = []
    fx.node.map_aggregate(value, lambda v: found.append(v) if isinstance(v, View) else None)
    return iter(found)


def product(sizes: Any) -> Number:
    total: Number = 1
    for size in sizes:
        total *= size
    return total


def extent(shape: tuple[Number, ...], strides: tuple[Number, ...]) -> Number:
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def is_dense(shape: tuple[Number, ...], strides: tuple[Number, ...]) -> bool:
    """Whether every element has its own place, without gaps."""
    expected: Number = 1
    for stride, size in sorted((s, n) for n, s in zip(shape, strides, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True
