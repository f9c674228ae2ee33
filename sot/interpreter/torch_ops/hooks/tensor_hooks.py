"""Hooks on tensors: ``register_hook`` and ``register_post_accumulate_grad_hook``. Hooks on nodes of autograd.

The node adds a placeholder for the hook, on the tensor and at the moment of the program's call. The hook may use
values that the graph computes, so it is made after the graph and then replaces the placeholder. A backend that
compiles the graph would lose the placeholder, so there it is a break.

If the backward pass is part of the graph, hooks are executed as code of the program: in autograd's order, with the
gradients that the graph computes. A backend that runs its graph as it is would call hooks that a leaf had before once
more, unless they are called after the gradient is added, so there the backward pass is a break. A hook on a tensor
that is no leaf may look at the gradient, but not replace it, unless autograd calls it itself: one on a tensor of the
graph, of which the program cannot tell when it runs, is in its place from the start.
"""
from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from sot.graph.refs import version_of
from sot.guards.guards import IsGuard, LengthGuard
from sot.guards.origin import Attr
from sot.interpreter.builtins.common import take
from sot.interpreter.loop import evaluate
from sot.interpreter.torch_ops.hooks import node_hooks
from sot.interpreter.torch_ops.hooks.quiet_functions import quiet_function
from sot.interpreter.torch_ops.torch_calls import operation, torch_call, transformed
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.hooks import no_hook_ids_taken, take_back
from sot.values.base import NONE, Const, Value
from sot.values.callables import BoundMethod, known_function
from sot.values.objects import ListValue, ObjectValue
from sot.values.tensor import GradFn, TensorValue, refuse_instances
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

numbers = itertools.count()
BEFORE, AFTER = "_backward_hooks", "_post_accumulate_grad_hooks"    # the gradient is added to ``.grad``
SEEN = "gradient_seen"      # the mark of nodes
ON_NODE = ""    # a hook on the node of the tensor
KINDS = {"register_hook": BEFORE, "register_post_accumulate_grad_hook": AFTER}


class Places(threading.local):
    """Handles of the placeholders that the last graph has added, by the number of the node."""

    def __init__(self) -> None:
        self.handles: dict[int, RemovableHandle] = {}


places = Places()


def nothing_yet(*args: Any) -> None:
    """The placeholder of a hook."""


def make_place(tensor: torch.Tensor, method: str, number: int) -> None:
    """The target of the node in the graph."""
    places.handles[number] = getattr(tensor, method)(nothing_yet)


def make_place_on_node(tensor: torch.Tensor, method: str, number: int) -> None:
    """The same for a hook on the ``grad_fn`` of a tensor."""
    places.handles[number] = getattr(tensor.grad_fn, method)(nothing_yet)


def placing(hook: Callable[..., Any]) -> Callable[..., None]:
    """The target of a node that adds the hook itself."""
    def make_place_of_hook(tensor: torch.Tensor, method: str, number: int) -> None:
        places.handles[number] = getattr(tensor, method)(hook)
    make_place_of_hook.hook = hook      # type: ignore[attr-defined]
    return make_place_of_hook


def is_place(target: Any) -> bool:
    """Whether the target of a node adds a hook to a tensor."""
    return target is make_place or hasattr(target, "hook")


def remove_from_place(number: int) -> None:
    """The target of a node that removes a hook which is in its place."""
    places.handles[number].remove()


def put_hook(number: int, hook: Any) -> RemovableHandle:
    """Replace a placeholder by its hook, unless it was removed. Returns the program's handle."""
    handle = places.handles.pop(number)
    if (hooks := handle.hooks_dict_ref()) is not None and handle.id in hooks:
        hooks[handle.id] = hook
    return handle


def remove_places() -> None:
    """Remove the placeholders after the graph has failed, because Python will run the frame from its start."""
    while places.handles:
        take_back(places.handles.popitem()[1])


class HookHandle(ObjectValue):
    """The handle of an added hook."""

    def __init__(self, number: int, hook: Value, tensor: TensorValue | None, kind: str, is_placed: bool) -> None:
        super().__init__(RemovableHandle)
        self.number, self.hook, self.tensor, self.kind = number, hook, tensor, kind
        self.is_placed = is_placed      # autograd calls the hook also in backward passes of the graph
        self.results: Sequence[TensorValue] = ()        # of the node that has the hook, if the hook can be executed
        self.version = 0 if tensor is None else version_of(tensor.ref.fake)

    def load_attr(self, m: Any, name: str) -> Value:
        if name == "remove":
            return BoundMethod(Const(RemovableHandle.remove), self, name)
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of the handle of a hook")

    def remove(self, m: Machine) -> Value:
        if self.is_placed:
            node = m.builder.record("call_function", remove_from_place, (self.number,), {}, None, m.stack_trace())
            node.meta["draws"] = False
        m.effect(lambda e: e.line(f"{e.value(self)}.remove()"))
        if self in m.added_hooks:
            before, m.added_hooks = m.added_hooks, [each for each in m.added_hooks if each is not self]
            m.undoable(lambda: setattr(m, "added_hooks", before))
        return NONE

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(put_hook)}({self.number}, {e.value(self.hook)})")

    def __str__(self) -> str:
        return "the handle of a hook"


def show_gradient(tensor: TensorValue) -> None:
    """Mark the node of a tensor whose gradient the program sees after the graph, with others maybe. A compiled graph
    is one node of autograd: its results would have only the gradients that come from outside of it.
    """
    if tensor.ref.node is not None and not tensor.fake.is_leaf:
        tensor.ref.node.meta[SEEN] = True


@handles(torch.Tensor.register_hook)
def register_hook(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, hook = take("register_hook", args, kwargs, "self", "hook", required=2)
    return add(m, "register_hook", tensor, hook)


@handles(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate_grad_hook(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, hook = take("register_post_accumulate_grad_hook", args, kwargs, "self", "hook", required=2)
    if isinstance(tensor, TensorValue) and not tensor.fake.is_leaf:
        raise Break(Reason.OPERATION_FAILED, "register_post_accumulate_grad_hook of a tensor that is not a leaf")
    return add(m, "register_post_accumulate_grad_hook", tensor, hook)


def add(m: Machine, method: str, tensor: Value, hook: Value) -> Value:
    if not isinstance(tensor, TensorValue) or m.modes or transformed(tensor):
        raise Break(Reason.UNSUPPORTED, f"{method} under a mode or a transform")
    refuse_instances(method, [tensor])
    if not tensor.fake.requires_grad:
        raise Break(Reason.OPERATION_FAILED, f"{method} of a tensor that does not require grad")
    if m.assumptions.compiles:
        show_gradient(tensor)
        raise Break(Reason.SIDE_EFFECT, f"{method}, whose hook a backend that compiles would not call,")
    kind = KINDS[method]
    is_first = not any(handle.tensor is tensor and not handle.is_placed for handle in m.added_hooks)
    if kind == BEFORE and is_first and tensor.ref.real is None and not tensor.fake.is_leaf and (
            function := quiet_function(m, hook)) is not None:
        return placed(m, placing(function), method, tensor, hook, kind, True)
    return placed(m, make_place, method, tensor, hook, kind)


def placed(m: Machine, target: Any, method: str, tensor: TensorValue, hook: Value, kind: str,
           is_placed: bool = False) -> HookHandle:
    """The handle of a hook, for which the graph gets the node of a placeholder."""
    if m.builder.region is not None:
        raise Break(Reason.BRANCH, f"{m.position()}: {method}")
    number = next(numbers)
    node = m.builder.record("call_function", target, (tensor.ref, method, number), {}, None, m.stack_trace())
    node.meta["draws"] = False
    m.hooked = True
    handle = HookHandle(number, hook, tensor, kind, is_placed)
    before, m.added_hooks = m.added_hooks, [*m.added_hooks, handle]
    m.undoable(lambda: setattr(m, "added_hooks", before))
    m.effect(lambda e: e.value(handle))
    return handle


class MethodOfNode(Value):
    """``register_hook`` or ``register_prehook`` of the ``grad_fn`` of a tensor."""

    def __init__(self, node: GradFn, method: str) -> None:
        self.node, self.method = node, method

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        tensor, node = self.node.tensor, self.node
        if len(args) != 1 or kwargs or node.path or tensor.fake.grad_fn is not node.node:
            raise Break(Reason.UNSUPPORTED, f"{self.method} of a node below the grad_fn of a tensor")
        if m.modes or transformed(tensor):
            raise Break(Reason.UNSUPPORTED, f"{self.method} under a mode or a transform")
        m.builder.keeps_nodes = True
        handle = placed(m, make_place_on_node, self.method, tensor, args[0], ON_NODE)
        if self.method == "register_hook":
            handle.results = node_hooks.results_of(m, node.node)
        return handle


@handles(torch.Tensor.retain_grad)
def retain_grad(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.assumptions.compiles and isinstance(args[0], TensorValue):
        show_gradient(args[0])
    result = operation(m, torch.Tensor.retain_grad, args, kwargs)
    before, m.retained = m.retained, [*m.retained, args[0]]     # type: ignore[list-item]
    m.undoable(lambda: setattr(m, "retained", before))
    m.hooked = True
    return result


# ---- hooks in a backward pass that is part of the graph
def hooked_tensors(m: Machine, leaves: Sequence[TensorValue], nodes: Container[Any],
                   runs_hooks: bool) -> list[TensorValue]:
    """The tensors in a history that have hooks. Break if the hooks cannot be executed."""
    followed = [handle for handle in m.added_hooks if not handle.is_placed]
    on_nodes = node_hooks.in_history(followed, nodes)
    if on_nodes and not runs_hooks:
        raise Break(Reason.GRADIENT, "it goes through a node that has hooks")
    followed = [handle for handle in followed if handle.kind != ON_NODE]
    before = [leaf for leaf in leaves if has_hooks(m, leaf)]
    added = {id(handle.tensor): handle.tensor for handle in followed if handle.tensor is not None and (
        handle.tensor in leaves or handle.tensor.ref.fake.grad_fn in nodes
        or version_of(handle.tensor.ref.fake) != handle.version)}
    if any(handle.is_placed and id(handle.tensor) in added for handle in m.added_hooks):
        raise Break(Reason.GRADIENT, "a hook gets a gradient that another hook has changed")
    if (before or added) and not runs_hooks or before and not can_follow(m, before):
        raise Break(Reason.GRADIENT, "it goes through hooks")
    if m.retained and not runs_hooks:
        raise Break(Reason.GRADIENT, "it goes through tensors that retain their gradient")
    if any(version_of(tensor.ref.fake) != handle.version for handle in followed
           if (tensor := handle.tensor) is not None):
        raise Break(Reason.GRADIENT, "a tensor with a hook was changed")
    added.update((id(tensor), tensor) for handle in on_nodes for tensor in handle.results)
    return [*before, *(tensor for tensor in added.values() if tensor not in before)]


def refuse_hooked_ends(m: Machine, ends: Sequence[TensorValue]) -> None:
    """Break if autograd calls hooks of tensors up to which it computes gradients."""
    if any(has_hooks(m, end) or any(handle.tensor is end and not handle.is_placed for handle in m.added_hooks)
           for end in ends):
        raise Break(Reason.GRADIENT, "it ends at a tensor with hooks")


def has_hooks(m: Machine, leaf: TensorValue) -> bool:
    """Whether a leaf had hooks before. That it has no others is guarded: the graph would not call them, or twice."""
    real = leaf.ref.real
    if real is None or leaf.origin is None:
        return False
    found = [getattr(real, name) for name in (BEFORE, AFTER)]
    for name, hooks in zip((BEFORE, AFTER), found, strict=True):
        origin = Attr(leaf.origin, name)
        m.guard(IsGuard(origin, None) if hooks is None else LengthGuard(origin, len(hooks)))
    return any(found)


def can_follow(m: Machine, leaves: Sequence[TensorValue]) -> bool:
    """Whether hooks that leaves had before are executed. The capture ends if the backend turns out to run its graph
    as it is.
    """
    if m.assumptions.interprets:
        return not any(getattr(leaf.ref.real, BEFORE) for leaf in leaves)
    if "" in m.assumptions.plain_optimizers:
        return False
    m.of_compilers = True
    return True


def keep_gradients(m: Machine) -> None:
    """After a backward pass in the graph: ``.grad`` of the tensors that retain their gradient, which autograd sets."""
    for tensor in m.retained:
        fake, before = tensor.ref.fake, tensor.attrs
        if fake.grad is None or fake.is_leaf:
            continue
        if isinstance(held := before.get("grad"), TensorValue) and held.ref.fake is fake.grad:
            continue
        m.undoable(functools.partial(setattr, fake, "grad", None))
        m.undoable(functools.partial(setattr, tensor, "attrs", before))
        tensor.attrs = {**before, "grad": torch_call(m, "call_function", getattr, [tensor, Const("grad")], {})}


@contextlib.contextmanager
def order_of(ends: Sequence[TensorValue]) -> Iterator[list[tuple[int, int]]]:
    """The list of the indices of tensors, in the order in which autograd reaches them during the backward pass, each
    with the uses of the gradient.
    """
    order: list[tuple[int, int]] = []
    with no_hook_ids_taken():
        handles = [end.fake.register_hook(lambda gradient, i=i: order.append((i, gradient._use_count())))
                   for i, end in enumerate(ends) if end.fake.requires_grad]
    try:
        yield order
    finally:
        for handle in handles:
            handle.remove()


def accumulate_in_order(m: Machine, pairs: Sequence[tuple[TensorValue, TensorValue]],
                        accumulate: Callable[[TensorValue, TensorValue], None]) -> None:
    """Add gradients to the leaves, and execute hooks."""
    before = [version_of(leaf.ref.fake) for leaf, _ in pairs]
    for i, (leaf, gradient) in enumerate(pairs):
        if version_of(leaf.ref.fake) != before[i]:
            raise Break(Reason.GRADIENT, "a hook changes a weight that is still needed")
        if not leaf.ref.fake.is_leaf:
            show(m, leaf, gradient)
            node_hooks.run(m, leaf, pairs, i)
            continue
        accumulate(leaf, through_hooks(m, leaf, gradient))
        if hooks := hooks_of(m, leaf, AFTER):
            made = evaluate(m, known_function(m, torch_code.call_after_gradient), [ListValue(hooks), leaf])
            if not (isinstance(made, Const) and made.constant() is True):
                raise Break(Reason.OPERATION_FAILED, "a hook that runs after the gradient, and returns something")


def show(m: Machine, tensor: TensorValue, gradient: TensorValue) -> None:
    """Execute the hooks of a tensor that is no leaf. The gradients of others are computed already."""
    version = version_of(gradient.ref.fake)
    if through_hooks(m, tensor, gradient) is not gradient or version_of(gradient.ref.fake) != version:
        raise Break(Reason.GRADIENT, "a hook changes the gradient of a tensor that is no leaf")


def through_hooks(m: Machine, leaf: TensorValue, gradient: TensorValue) -> TensorValue:
    """The gradient that the hooks of a leaf make of it."""
    if not (hooks := hooks_of(m, leaf, BEFORE)):
        return gradient
    made = evaluate(m, known_function(m, torch_code.call_with_gradient), [ListValue(hooks), gradient])
    if not isinstance(made, TensorValue) or (made.fake.shape, made.fake.dtype, made.fake.device) != (
            gradient.fake.shape, gradient.fake.dtype, gradient.fake.device):
        raise Break(Reason.OPERATION_FAILED, "a hook that returns another kind of gradient")
    return made


def hooks_of(m: Machine, leaf: TensorValue, name: str) -> list[Value]:
    """The hooks of one kind, in their order."""
    real: dict[int, Any] | None = getattr(leaf.ref.real, name, None)
    added = [handle.hook for handle in m.added_hooks if handle.tensor is leaf and handle.kind == name
             and not handle.is_placed]
    if not real or leaf.origin is None:
        return added
    table = wrap(m, real, Attr(leaf.origin, name))
    items = evaluate(m, known_function(m, torch_code.values_of), [table])
    return [*(items.items_list(m) or []), *added]
