"""The nodes that autograd records: the history of a tensor, whether its saved tensors have been freed, and the node of
a compiled graph.
"""
from __future__ import annotations

import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from sot import _hook
from sot.torch_compat import native

FREED = "backward through the graph a second time"      # of the error when a freed tensor is used
USES_BY_AUTOGRAD = 3    # of a gradient that nothing else holds, in a hook that ``torch.autograd.grad`` calls


def history(outputs: list[torch.Tensor], end: Any = None) -> Iterator[tuple[torch.Tensor | None, Any]]:
    """The autograd nodes in the history of tensors, up to the node ``end``, each with its leaf if it has one."""
    outputs = [t for t in outputs if not refused(t)]
    yield from ((t, None) for t in outputs if t.grad_fn is None and t.requires_grad)
    todo: list[Any] = [t.grad_fn for t in outputs]
    seen = {None, end}
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            yield getattr(node, "variable", None), node
            todo += [n for n, _ in node.next_functions]


def refused(tensor: torch.Tensor) -> bool:
    """Whether autograd refuses to return the history of a tensor: of some views whose base was changed in place."""
    try:
        tensor.grad_fn  # noqa: B018 - it may raise
    except RuntimeError:
        return True
    return False


def node_above(tensor: torch.Tensor) -> Any:
    """The node of autograd that has made a tensor; None if none has, or if autograd refuses to return it."""
    return None if refused(tensor) else tensor.grad_fn


def is_freed(node: Any) -> bool:
    """Whether a backward pass has freed the saved tensors of this node. A second backward pass then raises."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                getattr(node, name)
            except RuntimeError as error:
                return FREED in str(error)
    return False


def saves_tensors(node: Any) -> bool:
    """Whether this node has saved tensors. A backward pass frees them."""
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return True
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:    # they have been freed
                return True
            if any(isinstance(v, torch.Tensor) for v in (value if isinstance(value, (tuple, list)) else (value,))):
                return True
    return False


def spent_leaves(tensor: torch.Tensor) -> list[torch.Tensor] | None:
    """The leaves below a tensor through which no second backward pass can go; None if one can."""
    if refused(tensor) or tensor.grad_fn is None:
        return None
    found = [*history([tensor])]
    if not any(is_freed(node) for _, node in found):
        return None
    return [leaf for leaf, _ in found if leaf is not None]


# ---- the node of a compiled graph -------------------------------------------------------------------------------

CALL = "_sot_call"      # on such a node: the call that made it

Gradients = list[torch.Tensor | None]
Ask = Callable[[Any, Any, Gradients, Callable[[Gradients], Any]], Any]
AskWhole = Callable[[Any, Gradients, set[int], bool], dict[int, torch.Tensor | None]]


def compiled_node(result: torch.Tensor) -> Any:
    """The node that a graph of AOTAutograd has given to this result; None if it has none of its own."""
    node = result.grad_fn
    return node if hasattr(getattr(node, "_forward_cls", None), "_aot_id") else None


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of which this one is a view, for autograd."""
    return tensor._base


def edges_below(tensor: torch.Tensor, ends: Container[Any]) -> Iterator[Any]:
    """The edges where the history of a tensor ends: at ``ends``, or at leaves."""
    todo, seen = [edge_of(tensor)], set()
    while todo:
        edge = todo.pop()
        if edge in ends or isinstance(edge[0], int):
            yield edge
        elif edge[0] not in seen:
            seen.add(edge[0])
            todo += [edge_to(*e) for e in edge[0].next_functions if e[0] is not None]


def edges_inside(tensors: Iterable[torch.Tensor]) -> set[Any]:
    """The edges in the history of tensors below their own nodes."""
    todo: list[Any] = [tensor.grad_fn for tensor in tensors]
    edges, seen = set[Any](), {*todo}
    while todo:
        for node, number in todo.pop().next_functions:
            edges.add((node, number))
            if node is not None and node not in seen:
                seen.add(node)
                todo.append(node)
    return edges


def edge_of(tensor: torch.Tensor) -> tuple[Any, int]:
    """Where the gradient of a tensor goes: a node and the number of its result, or a leaf by its identity."""
    return (id(tensor), 0) if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_nr)


def edge_to(node: Any, number: int) -> tuple[Any, int]:
    leaf = getattr(node, "variable", None)
    return (node, number) if leaf is None else (id(leaf), 0)


def number_of(node: Any) -> int:
    """The number of a node in the order in which autograd has made them."""
    number: int = node._sequence_nr()
    return number


def has_backward_hooks(leaf: torch.Tensor) -> bool:
    """Whether autograd calls functions of Python when the gradient of a leaf arrives."""
    return bool(leaf._backward_hooks or leaf._post_accumulate_grad_hooks)


def any_has_hooks(inputs: tuple, leaves: tuple[int, ...]) -> bool:
    """The same for any of the inputs with these indices."""
    tensors = native.module("tensors")
    if tensors is not None and not tensors.may_have_hooks(inputs, leaves):
        return False
    return any(has_backward_hooks(inputs[i]) for i in leaves)


def passing_on(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with the same memory and versions. Its node of autograd passes on the gradient itself."""
    with torch.enable_grad():
        alias: torch.Tensor = torch.ops.aten.alias.default(tensor)
        return alias


def wanted_edges(node: Any) -> list[tuple[int, tuple[Any, int]]]:
    """Which arguments of a compiled graph get a gradient, by their index, and where it goes."""
    edges = [edge_to(*e) for e in node.next_functions if e[0] is not None]
    return list(zip((i for i, needed in enumerate(node.needs_input_grad) if needed), edges, strict=True))


def hooks_of(tensor: torch.Tensor) -> dict[int, Callable[..., Any]]:
    """The hooks of a tensor that has got some, by their number. ``register_hook`` and handles change this dict."""
    hooks: dict[int, Callable[..., Any]] = tensor._backward_hooks   # type: ignore[assignment]
    return hooks


def ask_before_backward(node: Any, call: Any, ask: Ask) -> None:
    """Let ``ask(node, call, gradients, backward)`` do the backward pass of a node; ``backward`` is the compiled one.
    A result without a gradient has None there. If ``call.takes_hooks(result)``, the node calls no hooks of that
    result.
    """
    node.set_materialize_grads(False)
    setattr(node, CALL, call)
    made = node._forward_cls
    if CALL not in vars(made):
        setattr(made, CALL, True)
        made.backward = staticmethod(_asking(made.backward, ask))
        type(node)._register_hook_dict = _register_hook_dict


def _register_hook_dict(node: Any, tensor: torch.Tensor) -> None:
    """What ``Tensor.register_hook`` calls for the first hook of a tensor."""
    call = getattr(node, CALL, None)
    if call is None or not call.takes_hooks(tensor):
        torch._C._FunctionBase._register_hook_dict(node, tensor)


def _asking(backward: Callable[..., Any], ask: Ask) -> Callable[..., Any]:
    def asking(node: Any, *given: Any) -> Any:
        call = getattr(node, CALL, None)
        if call is None:
            return backward(node, *given)
        keeps = torch._C._autograd._get_current_graph_task_keep_graph()
        if not keeps:
            delattr(node, CALL)     # with the inputs that it holds
        boxed = len(given) == 1 and isinstance(given[0], list)      # since torch 2.13

        def compiled(gradients: Gradients) -> Any:
            with saved_tensors_restored(node) if keeps else nullcontext():
                return backward(node, gradients) if boxed else backward(node, *gradients)
        return ask(node, call, given[0] if boxed else [*given], compiled)
    return asking


@contextmanager
def saved_tensors_restored(node: Any) -> Iterator[None]:
    """Let a backward pass keep the graph: Inductor's code may write into saved tensors that nothing else needs
    ("donated buffers"), and refuses a pass after which they are needed again.
    """
    about = node._forward_cls.metadata
    donated = [i - about.num_symints_saved_for_bw for i in getattr(about, "bw_donated_idxs", None) or ()]
    saved = [*node.saved_tensors, *getattr(node, "_tensors_no_vc_check", ())] if donated else []
    copies = [(saved[i], saved[i].clone()) for i in donated]
    # since torch 2.13 the compiled code runs in the context of the call of ``backward``
    context = torch._C._get_obj_in_tls("context") if torch._C._is_key_in_tls("context") else None
    run: Any = operator.call if context is None else context.run
    settings: Any = torch._functorch.config
    without_check = settings.patch(donated_buffer=False)
    run(without_check.__enter__)
    try:
        yield
    finally:
        run(without_check.__exit__, None, None, None)
    for tensor, copy in copies:
        tensor.data.copy_(copy)     # without a new version


def ask_for_gradients(ask: AskWhole) -> None:
    """Let ``ask(call, gradients, numbers, create_graph)`` tell ``torch.autograd.grad`` the gradients of results of a
    compiled graph: those with these ``numbers`` at its node for which ``call.hides(number)``. ``gradients`` has what
    arrives at the node. The answer leaves out a result of which only that is known.
    """
    engine: Callable[..., Any] = torch.autograd._engine_run_backward
    if isinstance(engine, _hook.Choice):
        return

    def choose(outputs: Any, given: Any, keep: bool, create_graph: bool, inputs: Sequence[Any] = (), *unused: bool,
               **options: Any) -> Any:
        hidden: dict[Any, dict[int, int]] = defaultdict(dict)       # by node, the inputs with their numbers
        for i, (node, number) in enumerate(map(_end_of, () if options.get("accumulate_grad") else inputs)):
            if hasattr(node, CALL) and getattr(node, CALL).hides(number):
                hidden[node][i] = number
        return functools.partial(_run_with_whole, engine, ask, hidden) if hidden else engine
    # A function around the engine would be a frame more for those who look at the stack: warnings of hooks do.
    torch.autograd._engine_run_backward = _hook.Choice(choose)


def _run_with_whole(engine: Callable[..., Any], ask: AskWhole, hidden: Mapping[Any, Mapping[int, int]], outputs: Any,
                    given: Any, keep: bool, create_graph: bool, inputs: Sequence[Any], *unused: bool,
                    **options: Any) -> Any:
    calls = [(getattr(node, CALL), places, len(node._input_metadata)) for node, places in hidden.items()]
    edges = [GradientEdge(node, i) for node in hidden for i in range(len(node._input_metadata))]
    found = [*engine(outputs, given, keep, create_graph, (*inputs, *edges), True, **options)]
    found, arrived = found[:len(inputs)], iter(found[len(inputs):])
    for call, places, results in calls:
        whole = ask(call, [*islice(arrived, results)], {*places.values()}, create_graph)
        for i, number in places.items():
            found[i] = whole.get(number, found[i])
    if unused != (True,) and any(gradient is None for gradient in found):
        _raise_for_unused(engine, found)
    return tuple(found)


def _end_of(tensor: Any) -> tuple[Any, int]:
    return (tensor.node if isinstance(tensor, GradientEdge) else tensor.grad_fn), tensor.output_nr


def _raise_for_unused(engine: Callable[..., Any], found: Sequence[torch.Tensor | None]) -> None:
    """Raise PyTorch's exception for a tensor to which no gradient goes."""
    used, other = torch.zeros((), requires_grad=True), torch.zeros((), requires_grad=True)
    inputs = tuple(other if gradient is None else used for gradient in found)
    engine((used,), (torch.ones(()),), False, False, inputs, False, accumulate_grad=False)


def zeros_for(node: Any, number: int, needed: bool) -> torch.Tensor:
    """Zeros in place of the gradient of a result, without memory unless they are ``needed``."""
    about = node._input_metadata[number]
    zero = torch.zeros(about.shape if needed else (), dtype=about.dtype, device=about.device)
    return zero if needed else zero.expand(about.shape)
