"""What a backend that compiles loses or cannot trace: sparse tensors, packed sequences, and marks of tensors.

A graph is cut around the operations (``pieces.py``). Where it cannot be cut, the capture starts again, knowing that the
backend compiles its graph: then they are breaks.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import TensorRef
from sot.graph.fake_rules import is_sparse, on_packed, recurrence
from sot.graph.padded_encoders import NODES as NODES_OF_ENCODERS
from sot.graph.regions import shares_memory
from sot.interpreter.objects import tensor_facts
from sot.support.errors import Break, Reason
from sot.torch_compat import functions
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.op_effects import is_contiguous_or_false, number_of_places
from sot.torch_compat.operators.layouts import order_of
from sot.values.base import TRUE, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

OF_ENCODERS = frozenset(NODES_OF_ENCODERS)


def refuse_arguments(m: Machine, name: str, call: Call, found: dict[int, TensorValue]) -> None:
    """Break at an operation that a compiled graph cannot have, by its node or its arguments."""
    if not m.assumptions.compiles:
        return
    if name == "retain_grad" and not any(v.fake.is_leaf for v in found.values()):
        raise Break(Reason.SIDE_EFFECT, name)
    if name == "detach_" and any(v.fake.requires_grad and v.ref.real is not None for v in found.values()):
        raise Break(Reason.SIDE_EFFECT, "detach_ of a tensor from outside")
    if call[0] is on_packed:
        raise Break(Reason.NOT_COMPILED, f"{call[1][0]}, which reads values that are not known at capture,")
    if call[0] is recurrence:
        raise Break(Reason.NOT_COMPILED, f"{call[1][0]} of many steps, or of a length that varies,")
    if call[0] in OF_ENCODERS:
        raise Break(Reason.OTHER_TENSOR, "the encoder makes a nested tensor of a padded batch")
    for value in found.values():
        if is_sparse(value.fake):
            raise Break(Reason.OTHER_TENSOR, f"{value} is a sparse tensor")


def refuse_results(m: Machine, name: str, result: Any, found: dict[int, TensorValue]) -> None:
    """Break at results that a compiled graph does not return unchanged."""
    if m.builder.fake_mode.is_refused and not m.assumptions.interprets:
        raise Break(Reason.OPERATION_FAILED, f"{name} does not take these dtypes")
    if not m.assumptions.compiles:
        return
    if m.builder.fake_mode.has_own_layout and not (isinstance(result, torch.Tensor) and order_of(result)):
        raise Break(Reason.NOT_COMPILED, f"{name}, whose result compilers lay out differently in memory,")
    for tensor in result if isinstance(result, (tuple, list)) else (result,):
        if is_new_leaf(tensor, found):
            raise Break(Reason.UNSUPPORTED, f"{name}, which makes a leaf that requires grad,")
        if is_sparse(tensor):
            raise Break(Reason.OTHER_TENSOR, f"a result of {name} is a sparse tensor")
        if is_view_of_new_data(tensor, found):
            raise Break(Reason.UNSUPPORTED, f"{name}, which makes a view, after a change of .data,")


def require_grad(tensor: TensorValue, requires_grad: Value = TRUE) -> Value:
    """A backend drops a graph's changes of ``requires_grad``. Break, unless nothing changes."""
    if tensor.fake.requires_grad is not requires_grad.constant():
        raise Break(Reason.SIDE_EFFECT, "requires_grad_")
    return tensor


def is_view_of_new_data(tensor: Any, found: dict[int, TensorValue]) -> bool:
    """Whether it has the memory of a tensor whose ``.data`` Python sets after the graph. Its base and its version would
    be others.
    """
    moved = [value.current().ref.fake for value in found.values() if value.current() is not value]
    return bool(moved) and isinstance(tensor, torch.Tensor) and id(tensor) not in found and any(
        shares_memory(tensor, fake) for fake in moved)


def is_new_leaf(tensor: Any, found: dict[int, TensorValue]) -> bool:
    return (isinstance(tensor, torch.Tensor) and id(tensor) not in found and tensor.requires_grad
            and not refused(tensor)
            and tensor.is_leaf and not tensor._is_view() and not functions.is_in_transform(tensor))


def refuse_places(m: Machine, name: str, tensor: Value | None, call: Call) -> None:
    """Break at an operation on places in memory, if the input there does not begin at the start of its memory, or does
    not have all of these places. The cache of Inductor takes a graph that was compiled for another storage offset, and
    a compiled graph writes only to the elements of its inputs.
    """
    if m.assumptions.interprets:
        return
    if not isinstance(tensor, TensorValue):
        raise Break(Reason.UNSUPPORTED, f"{name} with its input as a keyword")
    inputs = [*tensor_facts.inputs_sharing(m, tensor)]
    if any(tensor_facts.guarded(m, value, "storage_offset") for value in inputs):
        raise Break(Reason.UNSUPPORTED, f"{name} of a tensor with a storage offset")
    args, kwargs = fx.node.map_aggregate(call[1:], lambda part: part.fake if isinstance(part, TensorRef) else part)
    values = [part for part in args[1:] if not isinstance(part, torch.Tensor)]      # what is scattered
    places = number_of_places(*values, **{key: part for key, part in kwargs.items() if key != "src"})
    for value in inputs:
        has_all: Any = places <= value.fake.numel()
        if isinstance(has_all, torch.SymBool):
            has_all = m.symbols.data.is_known_true(has_all)
        if not (has_all and is_contiguous_or_false(value.fake)):
            raise Break(Reason.UNSUPPORTED, f"{name} of a part of a tensor's memory")
