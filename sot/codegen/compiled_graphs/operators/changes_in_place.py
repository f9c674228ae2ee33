"""Changes in place that AOTAutograd traces otherwise than PyTorch makes them, in a graph that is compiled.

- ``y.transpose_(0, 1)``, ``y.unsqueeze_(0)``: results that are views of ``y`` are computed by the views that led to it
  without the change. They have the wrong shape, or the gradient of other elements. The graph makes a view instead,
  which later operations use in place of the tensor.
- ``y.cumsum_(0)`` of a ``y`` that is transposed: it becomes ``cumsum``, whose result is contiguous, so ``y`` gets other
  strides, and a view of it may not exist any more. The graph copies the result to ``y`` instead.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.torch_compat.fake_tensors import FakeTensor, is_symbolic

VIEWS = frozenset(("as_strided_", "squeeze_", "swapaxes_", "swapdims_", "t_", "transpose_", "unsqueeze_"))
OTHER_MEANING = frozenset(("bernoulli_",))      # the operation that is not in place draws with other probabilities


class Changes:
    """The changes of a graph, which can be undone."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.nodes = [*module.graph.nodes]
        self.before: dict[fx.Node, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}
        self.added: list[fx.Node] = []

    def keep(self, node: fx.Node) -> None:
        self.before.setdefault(node, (node.target, node.args, node.kwargs))

    def view(self, at: int, node: fx.Node, tensor: fx.Node, name: str) -> None:
        self.keep(node)
        node.target = name
        for user in self.nodes[at + 1:]:
            if tensor in user.all_input_nodes:
                self.keep(user)
                user.replace_input_with(tensor, node)

    def copy(self, node: fx.Node, tensor: fx.Node, name: str) -> None:
        self.keep(node)
        with self.module.graph.inserting_before(node):
            made = self.module.graph.call_method(name, node.args, node.kwargs)
        made.meta = {name: value for name, value in node.meta.items() if name != "changes"}
        self.added.append(made)
        node.target, node.args, node.kwargs = "copy_", (tensor, made), {}

    def undo(self) -> None:
        for node, (target, args, kwargs) in self.before.items():
            node.target, node.args, node.kwargs = target, args, kwargs
        for node in self.added:
            self.module.graph.erase_node(node)
        if self.before:
            self.module.recompile()


def restate_changes(module: fx.GraphModule) -> Callable[[], None]:
    """Restate the changes in place of a graph. The result undoes this.

    An input of which the graph changes the shape stays as it is, because that shows outside of the graph.
    """
    changes = Changes(module)
    for at, node in enumerate(changes.nodes):
        name, tensor = node.target, node.args[0] if node.args else None
        if node.op != "call_method" or not isinstance(name, str) or not isinstance(tensor, fx.Node) or (
                not name.endswith("_") or name.endswith("__")):
            continue
        if name in VIEWS:
            if tensor.op not in ("placeholder", "get_attr"):
                changes.view(at, node, tensor, name[:-1])
        elif name not in OTHER_MEANING and has_other_strides(node, tensor.meta.get("example_value"), name[:-1]):
            changes.copy(node, tensor, name[:-1])
    if changes.before:
        module.recompile()
    return changes.undo


def has_other_strides(node: fx.Node, tensor: Any, name: str) -> bool:
    """Whether an operation that is not in place has a result like the tensor that ``node`` changes, but with other
    strides.
    """
    if not isinstance(tensor, FakeTensor) or is_symbolic(tensor) or tensor.is_contiguous() or not hasattr(tensor, name):
        return False
    try:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda given: given.meta["example_value"])
        with tensor.fake_mode, torch.no_grad():
            result = getattr(tensor, name)(*args[1:], **kwargs)
    except Exception:  # noqa: BLE001 - without an answer the operation stays as it is
        return False
    return isinstance(result, torch.Tensor) and (result.dtype, result.shape) == (tensor.dtype, tensor.shape) and (
        result.stride() != tensor.stride())
