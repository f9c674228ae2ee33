"""One method, captured whole: its graph, where the graph's inputs come from, and what is made of its outputs."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from sot.deploy.errors import SaveError
from sot.frontend.api import Settings, StaticFunction
from sot.guards.origin import Dim
from sot.support.errors import CaptureError, article
from sot.support.user_annotations import name_of

Source = tuple[str, Any]    # "argument", position; "size", (position, dimension); "weight", name; "value", it


@dataclass
class Run:
    """One run of the captured graph."""

    module: GraphModule
    inputs: tuple
    outputs: tuple


class Captured(torch.nn.Module):
    """A captured method as a module of its own: weights under the names they had, and the graph."""

    def __init__(self, graph: GraphModule, sources: list[Source], results: list[Source], spec: Any,
                 weights: dict[str, torch.Tensor], signature: inspect.Signature) -> None:
        super().__init__()
        self.graph, self.sources, self.results, self.spec = graph, sources, results, spec
        for name, tensor in weights.items():
            set_weight(self, name, tensor)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self.run(args, kwargs)
        forward.__signature__ = signature       # type: ignore[attr-defined]
        self.forward = forward

    def run(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        inputs = [self.get(source, leaves) for source in self.sources]
        outputs = self.graph(*inputs)
        results = [outputs[key] if kind == "output" else self.get((kind, key), leaves) for kind, key in self.results]
        return pytree.tree_unflatten(results, self.spec)

    def get(self, source: Source, leaves: list[Any]) -> Any:
        kind, key = source
        if kind == "argument":
            return leaves[key]
        if kind == "size":
            return leaves[key[0]].shape[key[1]]
        if kind == "weight":
            path, _, name = key.rpartition(".")
            return getattr(self.get_submodule(path), name)
        return key


def set_weight(root: torch.nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Put a weight under its dotted name, with plain modules for the parts of the name."""
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, torch.nn.Module())
        root = root._modules[part]      # type: ignore[assignment]
    if isinstance(tensor, torch.nn.Parameter):
        root.register_parameter(last, tensor)
    else:
        root.register_buffer(last, tensor)


def capture(fn: Callable[..., Any], owner: torch.nn.Module | None, args: tuple, kwargs: dict[str, Any],
            input_spec: Any) -> Captured:
    """Call ``fn(*args, **kwargs)`` once and answer what was captured. Raises SaveError if that is not one whole graph.

    Arguments:
        fn: a function, or a bound method of ``owner``.
        owner: the module whose parameters and buffers are the weights.
        input_spec: the arguments that are given, by name, and which of their sizes may differ; see ``to_static``.
    """
    runs: list[Run] = []

    def backend(module: GraphModule, example_inputs: Any) -> Callable[..., tuple]:
        def run(*inputs: Any) -> tuple:
            outputs = module(*inputs)
            runs.append(Run(module, inputs, outputs))
            return outputs
        return run

    target = called(owner, input_spec) if owner is not None and fn == owner.forward else fn
    call = StaticFunction(target, Settings(backend, full_graph=True, input_spec=input_spec))
    name = name_of(fn)
    try:
        result = call(*args, **kwargs)
    except CaptureError as e:
        raise SaveError(f"{name} cannot be saved: it is not captured whole. {e}") from e
    graphs, effects = call.graphs, [effect for c in call.captures for effect in c.effects]
    if not runs or len(graphs) != 1:
        raise SaveError(f"{name} cannot be saved: " + (
            "it has no operation on tensors" if not runs else f"it is {len(graphs)} graphs, not one"))
    if effects:
        raise SaveError(f"{name} cannot be saved: beside its graph it changes {', '.join(effects)}, and a "
                        f"file has no place for that. Change tensors in place (buffer.add_(1)), or do it outside")
    return described(name, runs[0], graphs[0].origins, owner, (args, kwargs), result, inspect.signature(fn))


def called(module: torch.nn.Module, given: Iterable[str]) -> FunctionType:
    """A function that calls a module, with its hooks, and has the parameters of its forward that are given."""
    parameters = [p.replace(default=p.empty, annotation=p.empty)
                  for p in inspect.signature(module.forward).parameters.values() if p.name in given]
    signature = inspect.Signature(parameters)
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*{0}", inspect.Parameter.VAR_KEYWORD: "**{0}",
             inspect.Parameter.KEYWORD_ONLY: "{0}={0}"}
    arguments = ", ".join(stars.get(p.kind, "{0}").format(p.name) for p in parameters)
    name = type(module).__qualname__
    names: dict[str, Any] = {"module": module, "__name__": type(module).__module__}
    exec(compile(f"def forward{signature}: return module({arguments})", f"<{name}>", "exec"), names)
    return names["forward"]


def described(name: str, run: Run, origins: tuple, owner: torch.nn.Module | None, arguments: Any, result: Any,
              signature: inspect.Signature) -> Captured:
    """Say of every input and every part of the result where it comes from."""
    leaves = pytree.tree_leaves(arguments)
    positions = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    names = {id(tensor): weight for weight, tensor in weights_of(owner)}
    weights: dict[str, torch.Tensor] = {}
    tensor_origins = {origin: value for origin, value in zip(origins, run.inputs, strict=True)
                      if isinstance(value, torch.Tensor)}

    def source(value: Any, origin: Any) -> Source:
        if id(value) in positions:
            return "argument", positions[id(value)]
        if isinstance(value, torch.Tensor):
            weight = names.get(id(value), f"constant_{len(weights)}")
            weights[weight] = value
            return "weight", weight
        if isinstance(origin, Dim) and id(tensor_origins.get(origin.base)) in positions:
            return "size", (positions[id(tensor_origins[origin.base])], origin.index)
        raise SaveError(f"{name} cannot be saved: its graph takes the number {origin}, which is no size of an "
                        f"argument. Pass it as a tensor, or save with one value of it")

    sources = [source(value, origin) for value, origin in zip(run.inputs, origins, strict=True)]
    outputs = {id(value): i for i, value in enumerate(run.outputs)}
    found, spec = pytree.tree_flatten(result)
    results: list[Source] = []
    for value in found:
        if id(value) in outputs:
            results.append(("output", outputs[id(value)]))
        elif isinstance(value, torch.Tensor):
            results.append(source(value, None))
        elif value is None or isinstance(value, bool | int | float):
            results.append(("value", value))
        else:
            raise SaveError(f"{name} cannot be saved: it returns {article(type(value).__qualname__)}; return tensors, "
                            f"numbers, None, and lists, tuples and dicts of them")
    return Captured(run.module, sources, results, spec, weights, signature)


def weights_of(owner: torch.nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter and buffer by its first name; what has two names is there once."""
    if owner is not None:
        yield from owner.named_parameters()
        yield from owner.named_buffers()
