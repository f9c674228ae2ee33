"""Hooks on nodes of autograd in a backward pass that is part of the graph: those by which torch calls the backward
hooks of modules.

Such a node passes on what it gets, so the gradients of its results are all that its hooks see. Each result is an end
of the pass. The hooks are executed when the pass has reached all results, and may not replace a gradient: those below
are computed already.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.graph.refs import version_of
from sot.interpreter.loop import evaluate
from sot.support.errors import Break, Reason
from sot.values.base import NONE, Value
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from sot.interpreter.machine import Machine


def note(m: Machine, inputs: Sequence[Value], result: Value) -> None:
    """Remember the results of a BackwardHookFunction, of which each has a gradient."""
    results = [v for v in result.items_list(m) or () if isinstance(v, TensorValue)]
    if all(isinstance(v, TensorValue) and v.fake.requires_grad for v in (*inputs, *results)):
        before, m.passed_through = m.passed_through, [*m.passed_through, results]
        m.undoable(lambda: setattr(m, "passed_through", before))


def results_of(m: Machine, node: Any) -> Sequence[TensorValue]:
    return next((results for results in m.passed_through if results[0].fake.grad_fn is node), ())


def in_history(handles: Sequence[Any], nodes: Container[Any]) -> list[Any]:
    """The handles of hooks on nodes of a history. Break if the hooks cannot be executed, or if it is not known whether
    the pass goes through their nodes.
    """
    found = []
    for handle in handles:
        if handle.tensor is None or handle.kind:
            continue
        if any(version_of(tensor.ref.fake) != handle.version for tensor in handle.results or [handle.tensor]):
            raise Break(Reason.GRADIENT, "a tensor with a hook on its node was changed")
        if handle.tensor.ref.fake.grad_fn in nodes:
            found.append(handle)
            if not handle.results:
                raise Break(Reason.GRADIENT, "it goes through a node that has hooks")
    return found


def run(m: Machine, tensor: TensorValue, pairs: Sequence[tuple[TensorValue, TensorValue]], i: int) -> None:
    """Execute the hooks of the node of a tensor whose gradient is that of ``pairs[i]``, if it is the node's last."""
    handles = [handle for handle in m.added_hooks if tensor in handle.results]
    if not handles:
        return
    results = handles[0].results
    reached = {id(end): gradient for end, gradient in pairs}
    if any(id(result) not in reached for result in results):
        raise Break(Reason.GRADIENT, "it goes through a node that has hooks, but not through all of its results")
    if any(end in results for end, _ in pairs[i + 1:]):
        return
    gradients = [reached[id(result)] for result in results]
    versions = [version_of(gradient.ref.fake) for gradient in gradients]
    for handle in handles:
        made = evaluate(m, handle.hook, [TupleValue([*gradients]), TupleValue([*gradients])])
        kept = [*gradients] if made is NONE or made.real is None else made.items_list(m) if (
            type(made) is TupleValue) else []
        if kept is None or len(kept) != len(gradients) or any(
                a is not b for a, b in zip(kept, gradients, strict=True)) or versions != [
                version_of(gradient.ref.fake) for gradient in gradients]:
            raise Break(Reason.GRADIENT, "a hook of a node changes a gradient")
