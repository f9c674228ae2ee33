"""Changes in place of which AOTAutograd makes something else than PyTorch. A graph that is compiled restates them.

- ``y.transpose_(0, 1)``, ``y.unsqueeze_(0)``: AOTAutograd computes results that are views of ``y`` as if ``y`` had its
  old shape. They have the wrong shape, or the gradient of other elements. The graph makes a view instead, and later
  operations use the view in place of ``y``.
- ``y.cumsum_(0)`` of a transposed ``y``: AOTAutograd replaces ``y`` by the result of ``cumsum``, which is contiguous.
  So ``y`` has other strides, and ``y.flatten()`` may not be a view any more. A trace of the graph copies the result to
  ``y``. Where PyTorch runs a part of the graph, it changes ``y`` as in the program: a copy would change what ``cumsum``
  has saved for its gradient.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx

from sot.torch_compat.operators.overlaps import Layout
from sot.torch_compat.subclasses.collectives import TRACED
from sot.torch_compat.symbolic_shapes import example_of

VIEWS = frozenset(("as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"))
OTHER_MEANING = frozenset(("bernoulli_",))      # Tensor.bernoulli draws with the tensor's own probabilities


def restate_changes(module: fx.GraphModule) -> Callable[[], None]:
    """Restate the changes in place of a graph and of its subgraphs. The result undoes this.

    An input whose shape the graph changes stays as it is, because the program sees that change.
    """
    undo = ExitStack()
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            undo.callback(restated(part).undo)
    return undo.close


def changes_shape_of_input(module: fx.GraphModule) -> bool:
    """Whether the graph changes the shape of an input in place, as in ``y.t_()``. AOTAutograd then takes the input for
    the beginning of its memory.
    """
    return any(method_of(node.target) in VIEWS and isinstance(tensor := (*node.args, None)[0], fx.Node)
               and tensor.op == "placeholder" for node in module.graph.nodes)


def restated(module: fx.GraphModule) -> Restated:
    graph = Restated(module)
    for at, node in enumerate(graph.nodes):
        name, tensor = method_of(node.target), node.args[0] if node.args else None
        if not name.endswith("_") or name.endswith("__") or not isinstance(tensor, fx.Node):
            continue
        if name in VIEWS:
            if tensor.op not in ("placeholder", "get_attr"):
                graph.make_view(at, node, tensor, name[:-1])
        elif name not in OTHER_MEANING and has_other_strides(node, tensor, name[:-1]):
            graph.copy(node, name)
    if graph.before:
        module.recompile()
    return graph


def method_of(target: Any) -> str:
    """The name of a method of tensors, also where an operator or ``torch.Tensor``'s own method is called."""
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    return target if isinstance(target, str) else getattr(target, "__name__", "")


class Restated:
    """A graph whose changes are restated, which can be undone."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.nodes = [*module.graph.nodes]
        self.before: dict[fx.Node, tuple[Any, ...]] = {}

    def keep(self, node: fx.Node) -> None:
        self.before.setdefault(node, (node.op, node.target, node.args, node.kwargs))

    def make_view(self, at: int, node: fx.Node, tensor: fx.Node, name: str) -> None:
        self.keep(node)
        node.op, node.target = "call_method", name
        for user in self.nodes[at + 1:]:
            if tensor in user.all_input_nodes:
                self.keep(user)
                user.replace_input_with(tensor, node)

    def copy(self, node: fx.Node, name: str) -> None:
        self.keep(node)
        node.op, node.target = "call_function", copying(name)

    def undo(self) -> None:
        for node, (op, target, args, kwargs) in self.before.items():
            node.op, node.target, node.args, node.kwargs = op, target, args, kwargs
        if self.before:
            self.module.recompile()


@functools.cache
def copying(name: str) -> Callable[..., torch.Tensor]:
    """The method ``name``, which changes a tensor, with a copy to the tensor in a trace."""
    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not isinstance(tensor, TRACED):
            return getattr(tensor, name)(*args, **kwargs)
        return tensor.copy_(getattr(tensor, name[:-1])(*args, **kwargs))

    method.__name__ = name
    return method


def has_other_strides(node: fx.Node, tensor: fx.Node, name: str) -> bool:
    """Whether the method ``name`` has a result like the tensor that ``node`` changes, but with other strides."""
    try:
        changed = without_memory(tensor)
        if changed.is_contiguous():
            return False
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), without_memory)
        with torch.no_grad():
            result = getattr(changed, name)(*args[1:], **kwargs)
    except Exception:  # noqa: BLE001 - without an answer the operation stays as it is
        return False
    return isinstance(result, torch.Tensor) and (result.dtype, result.shape) == (changed.dtype, changed.shape) and (
        result.stride() != changed.stride())


def without_memory(node: fx.Node) -> Any:
    """The value of a node in the call that is captured; a tensor without memory, of the same layout."""
    value = node.meta["example_value"]
    if not isinstance(value, torch.Tensor):
        return example_of(value) if isinstance(value, torch.SymInt | torch.SymFloat) else value
    layout = Layout.of(value)
    assert layout is not None
    return torch.empty_strided(layout.shape, layout.strides, dtype=value.dtype, device="meta")
