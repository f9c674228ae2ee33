"""Guards on tensors and on NumPy arrays.

The guard depends on how capture has used the tensor. ``TensorGuard`` compares everything that operations depend on.
``AnyTensorGuard`` is for a weight that only went into operations of a graph that PyTorch runs one by one.
``ValuesGuard`` is for integer tensors whose values were read, ``ConstantGuard`` for weights that a compiler has taken
for constants.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from sot._hook import plain
from sot.guards.guards import Guard, TypeGuard, short
from sot.guards.origin import Dim, Emit, Inputs, Origin, Stride, TensorPart, immutable
from sot.support.errors import article
from sot.torch_compat.tensors import (
    Layout,
    TensorChecks,
    ask,
    plain_tensor,
    rule_of_changes,
    shared_memory,
    tensor_spec,
    tensor_summary,
)


@immutable
class TensorGuard(Guard):
    """A tensor has this type, dtype, device, shape, strides, requires_grad and dispatch keys."""

    summary: str
    checks: TensorChecks
    layout: Layout     # sizes and strides, None for those that may differ

    @classmethod
    def of(cls, origin: Origin, example: torch.Tensor, layout: Layout | None = None) -> TensorGuard:
        found = layout or (tuple(example.shape), tuple(example.stride()))
        return cls(origin, tensor_summary(example, found[0]), TensorChecks([example], [found]), found)

    def changed(self, value: object) -> Iterator[tuple[TensorPart, int]]:
        """The sizes that differ in a tensor of the same rank, or else the strides, each with its expected value."""
        sizes, strides = self.layout
        value = plain_tensor(value)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.dim() != len(sizes):
            return
        found: list[tuple[TensorPart, int]] = [
            (Dim(self.origin, i), was) for i, (was, now) in enumerate(zip(sizes, value.shape, strict=True))
            if was not in (now, None)]
        yield from found
        for i, (was, now) in enumerate(zip(strides, value.stride(), strict=True)):
            if not found and was is not None and was != now and min(was, now) > 1:
                yield Stride(self.origin, i), was

    def spec(self, example: torch.Tensor) -> Any:
        """What the guard program compares a tensor with; None if it cannot."""
        return tensor_spec(example, self.layout)

    def holds(self, value: object) -> bool:
        return bool(self.checks.check(value))

    def differs(self, inputs: Inputs) -> list[TensorPart]:
        """The sizes and strides that have changed."""
        try:
            return [part for part, _ in self.changed(self.origin.read(inputs))]
        except Exception:  # noqa: BLE001 - the value may be anything now
            return []

    def explain(self, inputs: Inputs) -> str | None:
        try:
            value = self.origin.read(inputs)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as e:
            return f"expected {self}, but it is gone ({type(e).__name__}: {e})"
        if self.holds(value):
            return None
        if not isinstance(value, torch.Tensor):
            return f"expected {self}, got {short(value)}"
        changed = ", ".join(f"{part} was {was}" for part, was in self.changed(value))
        return f"expected {self}, got {tensor_summary(value)}{f' ({changed})' if changed else ''}"

    def __str__(self) -> str:
        return f"{self.origin} is {article(self.summary)}"

    def __hash__(self) -> int:
        return hash(self.origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorGuard) and self.origin == other.origin


def facts_of_sparse(tensor: torch.Tensor) -> tuple:
    """What operations on a sparse tensor depend on, but for the number of its elements."""
    blocks = tensor.values().shape[-2 - tensor.dense_dim():] if tensor.layout in BLOCKED else ()
    coalesced = tensor.is_coalesced() if tensor.is_sparse else None
    return (tensor.layout, tensor.dtype, tensor.device, tuple(tensor.shape), tensor.requires_grad, tensor.is_leaf,
            tensor.sparse_dim(), tensor.dense_dim(), coalesced, tuple(blocks), tensor.is_inference())


BLOCKED = torch.sparse_bsr, torch.sparse_bsc


def is_such_sparse(value: Any, facts: tuple) -> bool:
    return type(value) is torch.Tensor and value.layout is facts[0] and facts_of_sparse(value) == facts


IS_SUCH_SPARSE = plain(is_such_sparse)


@immutable
class SparseGuard(Guard):
    """A sparse tensor has this layout, dtype, device and shape. How many elements it has is a number of the graph."""

    facts: tuple

    def test(self, emit: Emit) -> str:
        return f"{emit.const(IS_SUCH_SPARSE)}({emit.ref(self.origin)}, {emit.const(self.facts)})"

    def holds(self, value: object) -> bool:
        return is_such_sparse(value, self.facts)

    def seen(self, value: object) -> str:
        return tensor_summary(value) if isinstance(value, torch.Tensor) else short(value)

    def __str__(self) -> str:
        layout, dtype, device, shape, *_ = self.facts
        return f"{self.origin} is a tensor of {dtype} with the layout {layout} and the shape {shape} on {device}"


@immutable
class AnyTensorGuard(TypeGuard):
    """A tensor of this exact class, with any dtype, shape and device. The captured graph is right for all of them."""

    def __str__(self) -> str:
        return f"{self.origin} is any {getattr(self.cls, '__qualname__', self.cls)}"


@immutable
class ValuesGuard(Guard):
    """A tensor of integers has these values."""

    values: torch.Tensor
    after_tensors = True

    def test(self, emit: Emit) -> str:
        return f"{emit.const(torch.equal)}({emit.ref(self.origin)}, {emit.const(self.values)})"

    def holds(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == self.values.dtype and torch.equal(value, self.values)

    def explain(self, inputs: Inputs) -> str | None:
        found = super().explain(inputs)
        with contextlib.suppress(AttributeError, KeyError, IndexError, TypeError, ValueError):
            value = self.origin.read(inputs)
            if found and isinstance(value, torch.Tensor) and value.shape == self.values.shape:
                return f"expected {self}, got {short(value.tolist())}"
        return found

    def __str__(self) -> str:
        return f"the values of {self.origin} are {short(self.values.tolist())}"

    def __hash__(self) -> int:
        return hash(self.origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValuesGuard) and self.origin == other.origin


@immutable
class ConstantGuard(Guard):
    """A weight is the same tensor, and nothing has changed it in place."""

    tensor: torch.Tensor
    version: int
    after_tensors = True

    def test(self, emit: Emit) -> str:
        tensor = emit.ref(self.origin)
        return f"{tensor} is {emit.const(self.tensor)} and {tensor}._version == {self.version}"

    def holds(self, value: object) -> bool:
        return value is self.tensor and self.tensor._version == self.version

    def seen(self, value: object) -> str:
        return "new values" if value is self.tensor else f"another object: {short(value)}"

    def __str__(self) -> str:
        return f"{self.origin} is the constant of the compiled graph"

    def __hash__(self) -> int:
        return hash(self.origin)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantGuard) and self.origin == other.origin


ASK = plain(ask)


@immutable
class FactGuard(Guard):
    """A tensor's property with a name in ``ASKED`` has this value."""

    name: str
    value: object

    def test(self, emit: Emit) -> str:
        return f"{emit.const(ASK)}({emit.ref(self.origin)}, {self.name!r}) == {self.value!r}"

    def holds(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and bool(ask(value, self.name) == self.value)

    def seen(self, value: object) -> str:
        return short(ask(value, self.name)) if isinstance(value, torch.Tensor) else short(value)

    def __str__(self) -> str:
        return f"{self.origin}.{self.name} == {self.value}"


RULE_OF_CHANGES = plain(rule_of_changes)


@immutable
class ChangeGuard(Guard):
    """Autograd has this rule for changes of a tensor in place."""

    rule: str
    after_tensors = True

    def test(self, emit: Emit) -> str:
        return f"{emit.const(RULE_OF_CHANGES)}({emit.ref(self.origin)}) == {self.rule!r}"

    def holds(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and rule_of_changes(value) == self.rule

    def seen(self, value: object) -> str:
        return rule_of_changes(value) if isinstance(value, torch.Tensor) else short(value)

    def __str__(self) -> str:
        return f"{self.origin} is a {self.rule} to autograd"


SHARED_MEMORY = plain(shared_memory)


@immutable
class MemoryGuard(Guard):
    """Tensors share memory with the first ``count`` as described by ``shared``. A compiled graph that changes these
    depends on it.
    """

    others: tuple[Origin, ...]
    count: int
    shared: tuple
    after_tensors = True

    def test(self, emit: Emit) -> str:
        tensors = ", ".join(emit.ref(o) for o in (self.origin, *self.others))
        return f"{emit.const(SHARED_MEMORY)}({self.count}, {tensors}) == {self.shared!r}"

    def explain(self, inputs: Inputs) -> str | None:
        try:
            tensors: Any = [o.read(inputs) for o in (self.origin, *self.others)]
            found = shared_memory(self.count, *tensors)
        except Exception as e:  # noqa: BLE001 - the value may be anything now
            return f"expected that {self}, but it is gone ({type(e).__name__}: {e})"
        return None if found == self.shared else f"expected that {self}, which no longer holds"

    def __str__(self) -> str:
        names = (self.origin, *self.others)
        pairs = [f"{names[i]} with {names[place[0]]}" for i, place in enumerate(self.shared) if place is not None]
        if not pairs:
            changed = ", ".join(map(str, names[:self.count]))
            return f"{changed} and {', '.join(map(str, names[self.count:])) or 'each other'} share no memory"
        return f"of {', '.join(map(str, names))} only these share memory: {', '.join(pairs)}"


OWNS_DATA = 4       # a flag of arrays that has no influence on results


def layout_of(array: Any) -> tuple:
    """What a guard on a NumPy array compares."""
    return array.dtype, array.shape, array.strides, array.flags.num & ~OWNS_DATA


@immutable
class ArrayGuard(Guard):
    """A NumPy array has this layout: dtype, shape, strides and flags."""

    layout: tuple

    def test(self, emit: Emit) -> str:
        ref, (dtype, shape, strides, flags) = emit.ref(self.origin), self.layout
        return (f"{ref}.dtype == {emit.const(dtype)} and {ref}.shape == {shape!r} and {ref}.strides == {strides!r} "
                f"and {ref}.flags.num & {~OWNS_DATA} == {flags}")

    def holds(self, value: object) -> bool:
        return layout_of(value) == self.layout

    def seen(self, value: object) -> str:
        return text_of_layout(layout_of(value), self.layout)

    def __str__(self) -> str:
        return f"{self.origin} is {text_of_layout(self.layout, self.layout)}"


def text_of_layout(layout: tuple, expected: tuple) -> str:
    """A description of a layout. Strides and flags are named only if dtype and shape match and they do not."""
    dtype, shape, strides, flags = layout
    text = f"an array of {dtype} and shape {shape}"
    return text if layout[:2] != expected[:2] or layout == expected else f"{text}, strides {strides}, flags {flags}"
