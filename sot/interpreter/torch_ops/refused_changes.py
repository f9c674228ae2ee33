"""Changes in place that a graph would not make as the program does: of views whose elements share memory, such as those
of ``unfold``, of weights that a backward pass needs, of tensors outside of a branch, of empty tensors that grow.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.graph.refs import version_of
from sot.graph.rewrite.patterns import IN_PLACE
from sot.guards.assumptions import Part, RestartCapture
from sot.support.errors import Break, Reason
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.graphs import expression
from sot.torch_compat.operators.overlaps import is_expanded, may_overlap
from sot.torch_compat.tensors import storage_id
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sot.graph import TensorRef
    from sot.interpreter.machine import Machine
    from sot.values.base import Value

KEEPS_SHAPE = frozenset({"setitem", *(operation.__name__ for operation in IN_PLACE)})


def refuse_changes(m: Machine, name: str, values: Collection[TensorValue], found: list[TensorRef],
                   changed: list[TensorRef]) -> None:
    """Break where a graph would not change ``changed`` of the tensors ``found`` as the program does, or where they must
    not change. ``values`` are the program's tensors.
    """
    builder = m.builder
    if any(has_other_form(value, value.attrs["grad"]) for value in values if "grad" in value.attrs):
        raise Break(Reason.SIDE_EFFECT, f"{name}, which changes the shape of a tensor after its gradient,")
    if changed and any(version_of(new.fake) != new.version for _, new in builder.moved):
        raise Break(Reason.UNSUPPORTED, f"{name} in place, after a change of .data,")
    point = next((owner for ref, version, owner in builder.tied if version_of(ref.fake) != version), None)
    if point is not None:
        why = f"{m.position()}: {name} changes a tensor that one side only passes on"
        raise RestartCapture(why, refused={point: why})
    region = builder.region
    if region is not None and (region.changed() or builder.fake_mode.changes_unversioned) and not (
            region.is_plain and not any(ref.fake.requires_grad for ref in found if ref in changed)):
        raise Break(Reason.BRANCH, f"{m.position()}: {name} changes a tensor from outside the branch in place")
    if any(ref.fake.layout is torch.strided and is_expanded(ref.fake) for ref in changed):
        # the kernels raise, or give a warning, which would name a line of the graph
        raise Break(Reason.UNSUPPORTED, f"{name} of an expanded tensor in place")
    if not m.assumptions.interprets and (builder.fake_mode.changes_what_it_reads or any(map(has_overlap, changed))):
        raise Break(Reason.UNSUPPORTED, f"{name} in place of memory that it also reads, or that a tensor has twice,")
    if Part.CHANGES in m.assumptions.plain and any(ref.fake.requires_grad and ref.fake.is_leaf for ref in changed):
        raise Break(Reason.UNSUPPORTED, f"{name} of a weight whose value a backward pass needs, with this backend,")
    refuse_growth(name, found if builder.fake_mode.changes_unversioned else changed)


def has_other_form(tensor: TensorValue, gradient: Value) -> bool:
    """Whether a gradient, which is set after the graph, does not fit the tensor any more."""
    return isinstance(gradient, TensorValue) and [*map(expression, gradient.fake.shape)] != [
        *map(expression, tensor.fake.shape)]


def refuse_growth(name: str, changed: list[TensorRef]) -> None:
    """Break at an operator that changes an empty tensor: it may resize the tensor, which fakes do not show. Operations
    in place do not (``x.add_(y)``, ``x += y``, ``x[i] = y``).
    """
    if not (name.endswith("_") or name in KEEPS_SHAPE) and any(
            ref.fake.layout is torch.strided and not is_symbolic(ref.fake) and 0 in ref.fake.shape for ref in changed):
        raise Break(Reason.UNSUPPORTED, f"{name}, which may resize an empty tensor,")


def has_overlap(ref: TensorRef) -> bool:
    """Whether elements share memory in a tensor, or in one of which it is a view by way of the graph."""
    return any(map(may_overlap, with_views_below(ref)))


def with_views_below(ref: TensorRef) -> Iterator[torch.Tensor]:
    node = ref.node
    yield ref.fake
    while node is not None and node.all_input_nodes:
        node = node.all_input_nodes[0]
        below = node.meta.get("example_value")
        if isinstance(below, torch.Tensor):     # no list of views
            if storage_id(below) != storage_id(ref.fake):
                return
            yield below
