"""A captured method as a module that torch.export accepts."""
from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from sot.deploy.numbers import Leaf, as_tensor, rounded, with_tensors
from sot.guards.symbols import on_numbers
from sot.guards.terms import COMPARISONS, Term

# "argument", position; "weight", name; "output", position; "number" or "float", term; "value", it
Source = tuple[str, Any]


@dataclass(frozen=True)
class Update:
    """The new value of a buffer after a call."""

    name: str
    source: Source


@dataclass(frozen=True)
class Condition:
    """A term that must be true for the graph to be right, in the user's spelling, and the line that needed it."""

    term: Term
    text: str
    line: str


@dataclass(frozen=True)
class Plan:
    """How to call a captured graph and use its outputs.

    Arguments:
        sources: the sources of the graph's inputs.
        results: the sources of the leaves of the result.
        spec: the structure of the result.
        updates: the updates of buffers after the graph.
        conditions: the conditions on sizes and kept numbers under which the graph is right.
        signature: the signature of the method.
    """

    sources: list[Source]
    results: list[Source]
    spec: Any
    updates: list[Update]
    conditions: list[Condition]
    signature: inspect.Signature


class Captured(torch.nn.Module):
    """The graph, and its weights under their names. ``transient`` are the names of weights outside the state_dict. The
    attributes of this class have names that no model uses.
    """

    def __init__(self, graph: GraphModule, plan: Plan, weights: dict[str, torch.Tensor], transient: set[str]) -> None:
        super().__init__()
        self._sot_graph, self._sot_plan = graph, plan
        for name, tensor in weights.items():
            set_weight(self, name, tensor, name not in transient)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return run(self, args, kwargs)
        forward.__signature__ = plan.signature       # type: ignore[attr-defined]
        self.__dict__["forward"] = forward


def run(module: Captured, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of a captured module."""
    plan = module._sot_plan
    call = Call(module, pytree.tree_leaves((args, kwargs)))
    call.require(plan.conditions)
    call.outputs = module._sot_graph(*map(call.get, plan.sources))
    replaced = {update.name for update in plan.updates}
    results = [call.get(source).clone() if source[0] == "weight" and source[1] in replaced else call.get(source)
               for source in plan.results]
    call.update(plan.updates)
    return pytree.tree_unflatten(results, plan.spec)


class Call:
    """One call of a captured module: reads its sources."""

    def __init__(self, module: Captured, leaves: list[Any]) -> None:
        self.module, self.leaves = module, leaves
        self.outputs: tuple = ()
        self.items: dict[Any, Any] = {}

    def get(self, source: Source) -> Any:
        kind, key = source
        if kind == "argument":
            return self.leaves[key]
        if kind == "weight":
            return weight_of(self.module, key)
        if kind == "output":
            return self.outputs[key]
        if kind == "float":
            return as_tensor(key, self.number)
        return self.number(key) if kind == "number" else key

    def number(self, term: Term) -> Any:
        if isinstance(term, tuple):
            return on_numbers(term[0])(*map(self.number, term[1:]))
        if not isinstance(term, Leaf):
            return term
        if term.kind == "size":
            position, dimension = term.key
            return self.leaves[position].shape[dimension]
        if term.key not in self.items:
            self.items[term.key] = (rounded(term.key, self.number) if term.kind == "rounded" else
                                    weight_of(self.module, term.key).item())
        return self.items[term.key]

    def require(self, conditions: Iterable[Condition]) -> None:
        """Pass the branches that Python has taken to torch.export, which does not see them."""
        for condition in conditions:
            symbol, left, right = condition.term
            text = f"it was saved for {condition.text}, as the program asks at {condition.line}"
            if with_tensors(left, right):
                held = COMPARISONS[symbol](as_tensor(left, self.number), as_tensor(right, self.number))
                torch._assert_async(held, text)
            else:
                torch._check(self.number(condition.term), lambda text=text: text)

    def update(self, updates: Iterable[Update]) -> None:
        """Write the state after the call. All values are computed before any is written."""
        found = [(weight_of(self.module, update.name), self.get(update.source)) for update in updates]
        found = [(buffer, value.clone() if isinstance(value, torch.Tensor) else
                  torch.full((), value, dtype=buffer.dtype)) for buffer, value in found]
        for buffer, value in found:
            (buffer.detach() if isinstance(buffer, torch.nn.Parameter) else buffer).copy_(value)


def weight_of(module: torch.nn.Module, name: str) -> torch.Tensor:
    path, _, last = name.rpartition(".")
    return getattr(module.get_submodule(path), last)


def set_weight(root: torch.nn.Module, name: str, tensor: torch.Tensor, persistent: bool = True) -> None:
    """Store a weight under its dotted name, with plain modules for the parts of the name."""
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]      # type: ignore[assignment]
    if isinstance(tensor, torch.nn.Parameter):
        root._parameters[last] = tensor     # register_parameter refuses names of our methods
        return
    root._buffers[last] = tensor
    if not persistent:
        root._non_persistent_buffers_set.add(last)
