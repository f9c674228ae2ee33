"""``torch.autograd.grad`` and ``backward()`` in captured code.

Gradients are one operation, ``torch.autograd.grad``, on fake tensors and in the graph. ``backward()`` is that
operation for all leaves of the history. The results are accumulated as autograd does: the first becomes ``.grad``
(see ``first_gradients.py``), later ones are added in place. The fakes do not know a history that began before the
frame, so that is left to Python. So are some hooks in the history (see ``tensor_hooks.py``), and an
``autograd.Function`` whose backward is not captured: their Python code would run while the graph is built.
"""
from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.guards.assumptions import Part
from sot.interpreter.builtins.common import take, truth_of
from sot.interpreter.loop import evaluate
from sot.interpreter.objects.tensor_attributes import refuse_unkept
from sot.interpreter.objects.tensor_facts import guarded
from sot.interpreter.torch_ops.autograd import is_of_subgraphs
from sot.interpreter.torch_ops.gradients.first_gradients import Reached, first_gradient, is_unheld, known_tensors
from sot.interpreter.torch_ops.gradients.passes import running_pass
from sot.interpreter.torch_ops.hooks import tensor_hooks
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills.torch_code import drop_gradient
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.autograd_nodes import history
from sot.torch_compat.functions import is_tracked_by_transform
from sot.torch_compat.hooks import FRAMES_OF_BACKWARD
from sot.torch_compat.subclasses.sharded_modules import is_of_divided
from sot.values.base import FALSE, NONE, TRUE, Const, Value
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.tensor import TensorValue, refuse_instances

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from sot.interpreter.machine import Machine


@handles(torch.autograd.grad)
def grad(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    refuse_plain(m)
    outputs, inputs, *rest = take("grad", args, kwargs, "outputs", "inputs", "grad_outputs", "retain_graph",
                                  "create_graph", "only_inputs", "allow_unused", "is_grads_batched",
                                  "materialize_grads", required=2)
    if not truth_of(m, rest.pop(3), True):
        raise Break(Reason.UNSUPPORTED, "grad(only_inputs=False), which warns,")
    inputs = sequence_of(m, inputs)
    ends = tensors(m, inputs)
    known_leaves(m, tensors(m, outputs), ends[0].fake.grad_fn if len(ends) == 1 else None)
    tensor_hooks.refuse_hooked_ends(m, ends)
    names = ("grad_outputs", "retain_graph", "create_graph", "allow_unused", "is_grads_batched", "materialize_grads")
    given = {name: value for name, value in zip(names, rest, strict=True) if value is not None}
    return gradients_of(m, outputs, inputs, given)


@handles(torch.Tensor.backward)
def tensor_backward(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, gradient, retain, create, inputs = take("backward", args, kwargs, "self", "gradient", "retain_graph",
                                                   "create_graph", "inputs", required=1)
    return backward(m, self_, gradient, retain, create, inputs, FRAMES_OF_BACKWARD + 1)


@handles(torch.autograd.backward)
def autograd_backward(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    outputs, gradients, retain, create, old, inputs = take(
        "backward", args, kwargs, "tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs",
        required=1)
    if old is not None:
        raise Break(Reason.UNSUPPORTED, "backward(grad_variables=...)")
    return backward(m, outputs, gradients, retain, create, inputs)


def backward(m: Machine, outputs: Value, gradients: Value | None, retain: Value | None, create: Value | None,
             inputs: Value | None, hidden: int = FRAMES_OF_BACKWARD) -> Value:
    """Add the gradients of ``outputs`` to the ``.grad`` of the leaves, or of ``inputs``."""
    refuse_plain(m)
    creates = create is not None and create.truth(m) is not False
    if creates and not torch.is_grad_enabled():
        raise Break(Reason.UNSUPPORTED, "backward(create_graph=True) without gradients")
    below, hooked, nodes = hooked_leaves(m, tensors(m, outputs), None, runs_hooks=not creates)
    leaves = below
    if inputs is not None and inputs is not NONE:
        leaves = tensors(m, sequence_of(m, inputs))
    if not all(leaf.fake.is_leaf for leaf in leaves):
        raise Break(Reason.UNSUPPORTED, "backward() to tensors that are not leaves")
    if not leaves:
        raise Break(Reason.OPERATION_FAILED, "backward: no tensor requires grad")
    given = {"grad_outputs": gradients or NONE, "retain_graph": retain or NONE, "allow_unused": TRUE,
             "create_graph": TRUE if creates else FALSE}
    if hooked and leaves is not below:
        raise Break(Reason.GRADIENT, "it goes through hooks to some of the leaves")
    known = known_tensors(m.builder)
    ends = [*leaves, *(tensor for tensor in hooked if tensor not in leaves)]
    with tensor_hooks.order_of(ends) as order:
        found: list[Any] = gradients_of(m, outputs, TupleValue([*ends]), given).items_list(m) or []
    pairs = [(ends[i], found[i]) for i, _ in order]
    reached = [Reached(found[i].ref.fake, uses, ends[i].fake.is_leaf) for i, uses in order]
    unheld = () if creates else unheld_leaves(m, [end for end, _ in pairs], reached, known)
    with running_pass(m, nodes, hidden):
        tensor_hooks.accumulate_in_order(
            m, pairs, lambda leaf, gradient: accumulate(m, leaf, gradient, creates, unheld))
    tensor_hooks.keep_gradients(m)
    if creates:
        m.effect(lambda e: e.line(f"{e.const(warn_of_cycle)}()"))
    return NONE


def gradients_of(m: Machine, outputs: Value, inputs: Value, given: dict[str, Value]) -> Value:
    """The operation itself. On the fakes it also frees what autograd has saved, which a rollback cannot restore."""
    m.undoable(lambda: setattr(m.builder, "freed_in_vain", True))
    return torch_call(m, "call_function", torch.autograd.grad, [outputs, inputs], given)


def refuse_plain(m: Machine) -> None:
    if Part.GRADIENTS in m.assumptions.plain:
        raise Break(Reason.GRADIENT, m.assumptions.plain[Part.GRADIENTS])
    if any(is_of_divided(node.target) for node in m.builder.nodes):
        raise Break(Reason.GRADIENT, "it goes through modules that fully_shard has divided")


def unheld_leaves(m: Machine, ends: Sequence[TensorValue], reached: Sequence[Reached],
                  known: Container[int]) -> set[TensorValue]:
    """The leaves that can take their gradients. A hook of the leaf may keep the gradient."""
    return {end for i, end in enumerate(ends) if reached[i].is_leaf and is_unheld(reached, i, known)
            and not tensor_hooks.hooks_of(m, end, tensor_hooks.BEFORE)}


def accumulate(m: Machine, leaf: TensorValue, gradient: TensorValue, creates: bool,
               unheld: Container[TensorValue]) -> None:
    """Add a gradient to ``.grad``. Nothing is added in place if gradients can be differentiated."""
    before = leaf.load_attr(m, "grad")
    if before is NONE or before.real is None:
        arguments = [leaf, gradient, TRUE if leaf in unheld else FALSE]
        leaf.store_attr(m, "grad", torch_call(m, "call_function", first_gradient, arguments, {}))
    elif not isinstance(before, TensorValue):
        raise Break(Reason.UNSUPPORTED, f"backward() to {before}")
    elif creates:
        leaf.store_attr(m, "grad", torch_call(m, "call_function", operator.add, [before, gradient], {}))
    elif not before.fake.requires_grad:
        torch_call(m, "call_method", "add_", [before, gradient], {})
    else:
        raise Break(Reason.UNSUPPORTED, "backward() to a .grad that requires grad")


@handles(drop_gradient)
def dropped(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``p.grad = None`` in zero_grad. Codegen asks whether the frame has read the old gradient before."""
    p, = args
    if not isinstance(p, TensorValue):
        raise Break(Reason.UNSUPPORTED, f"zero_grad of {p}")
    unread = False
    if p.ref.real is not None and "grad" not in p.attrs:
        refuse_unkept(m, p)
        unread = id(p.ref.real.grad) not in m.by_id
    if p.load_attr(m, "grad") is not NONE:
        m.undoable(functools.partial(setattr, p, "drops_gradient", p.drops_gradient))
        p.drops_gradient |= unread and m.refusals.are_checked(m)
        p.store_attr(m, "grad", NONE)
    return NONE


def warn_of_cycle() -> None:
    """PyTorch warns once of ``backward(create_graph=True)``, which the graph does not call."""
    torch.zeros((), requires_grad=True).backward(create_graph=True)


def sequence_of(m: Machine, value: Value) -> Value:
    """A tensor, a list or a tuple as it is; what ``tuple`` makes of ``model.parameters()`` and other iterables."""
    if isinstance(value, (TensorValue, ListValue, TupleValue, DictValue)):
        return value
    return evaluate(m, Const(tuple), [value])


def tensors(m: Machine, value: Value) -> list[TensorValue]:
    """The tensors of an argument that is a tensor or a list of tensors."""
    found = value.items_list(m) if isinstance(value, (ListValue, TupleValue)) else [value]
    if not found or not all(isinstance(v, TensorValue) for v in found):
        raise Break(Reason.OPAQUE_VALUE, f"{value} as what is differentiated")
    return found  # type: ignore[return-value]


def known_leaves(m: Machine, outputs: list[TensorValue], end: Any) -> list[TensorValue]:
    """The leaves below ``outputs``, up to the node ``end``. Break if a leaf is not in the trace, or if it has hooks."""
    return hooked_leaves(m, outputs, end, runs_hooks=False)[0]


def hooked_leaves(m: Machine, outputs: list[TensorValue], end: Any, runs_hooks: bool) -> tuple[
        list[TensorValue], list[TensorValue], set[Any]]:
    """The same, the tensors that have hooks, which the caller runs if ``runs_hooks``, and the nodes of the history."""
    if all(is_tracked_by_transform(v.fake) for v in outputs):
        return [], [], set()       # its history began with the transform
    refuse_instances("a gradient", [*outputs, *m.leaves.values()])
    found: dict[int, TensorValue] = {}
    nodes = set()
    for leaf, node in history([v.fake for v in outputs], end):
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not is_of_subgraphs(node):
            raise Break(Reason.GRADIENT, "it goes through an autograd.Function")
        if node in m.builder.reentrant:
            if m.assumptions.interprets or "" in m.assumptions.plain_optimizers:
                raise Break(Reason.GRADIENT, "it goes through a reentrant checkpoint")
            m.of_compilers = True       # in a graph that runs as it is, ``torch.autograd.grad`` raises
        if leaf is not None and id(leaf) not in m.leaves:
            raise Break(Reason.GRADIENT, "its forward pass ran before this graph")
        if leaf is not None:
            found[id(leaf)] = m.leaves[id(leaf)]
        nodes.add(node)
    for given in found.values():
        if given.ref.real is not None and id(given.ref.fake) not in m.made_leaves:
            if not guarded(m, given, "takes_gradient"):
                raise Break(Reason.GRADIENT, f"{given} gets no gradient, as a view made without gradients")
    leaves = list(found.values())
    return leaves, tensor_hooks.hooked_tensors(m, leaves, nodes, runs_hooks), nodes


def shows_leaves(made: Mapping[int, TensorValue], outputs: list[TensorRef]) -> bool:
    """Whether the program gets a leaf that the graph has ``made`` (by the id of its fake), or a result below which
    there are only such leaves: a backend that compiles returns it without a history. Below other results the program
    cannot reach them, as for the inputs of a gradient penalty.
    """
    if any(leaf.ref.real is not None for leaf in made.values()):
        return True
    # the others are numbers
    tensors: list[torch.Tensor] = [ref.fake for ref in outputs if isinstance(ref.fake, torch.Tensor)]
    return bool(made) and any(are_of_graph(made, [leaf for leaf, _ in history([t]) if leaf is not None])
                              for t in tensors)


def are_of_graph(made: Mapping[int, TensorValue], leaves: list[torch.Tensor]) -> bool:
    return bool(leaves) and all(id(leaf) in made for leaf in leaves)
