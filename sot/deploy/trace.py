"""One captured method: its graph, the sources of the graph's inputs, and the use of its outputs."""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from sot.deploy.arguments import containers
from sot.deploy.errors import SaveError
from sot.deploy.module import Captured, Condition, Plan, Source, Update
from sot.deploy.numbers import Leaf, is_of_tensors, is_roundable
from sot.deploy.sizes import line_at, line_of, refuse_values
from sot.deploy.state import FloatOf, IntOf, SavedState, tensors_of
from sot.deploy.structure import Shape, plain
from sot.driver.translator import Translator
from sot.frontend.api import Settings, StaticFunction
from sot.graph.refs import version_of
from sot.guards.guards import RelationGuard
from sot.guards.origin import Arg, Dim, Origin, root
from sot.guards.terms import Computed, Term, has_rounded, is_rounded, is_whole, leaves, term_text
from sot.reports.records import GuardRecord
from sot.support.errors import CaptureError, article
from sot.support.own_code import is_own
from sot.support.user_annotations import name_of
from sot.torch_compat.exporting.autocast import with_regions
from sot.torch_compat.exporting.integers import LARGEST_POWER, with_divisions
from sot.torch_compat.exporting.stores import with_views
from sot.torch_compat.tensors import storage_id

OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass
class Run:
    """One run of the captured graph."""

    module: GraphModule
    inputs: tuple
    outputs: tuple


class Recorder:
    """A backend that keeps the graph and its inputs, and leaves the model's tensors unchanged."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __call__(self, module: GraphModule, example_inputs: Any) -> Callable[..., tuple]:
        def run(*inputs: Any) -> tuple:
            with unchanged(inputs, written_in(module)):
                outputs = module.forward(*inputs)     # a call prints an error that it raises
            self.runs.append(Run(module, inputs, outputs))
            return outputs
        return run


def written_in(module: GraphModule) -> list[bool]:
    """For each input of a graph, whether it changes memory of the input in place, as its operations on fakes show."""
    fakes = [fake for node in module.graph.nodes if isinstance(fake := node.meta.get("example_value"), torch.Tensor)]
    changed = {storage_id(fake) for fake in fakes if version_of(fake)}
    inputs = [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
    return [isinstance(fake, torch.Tensor) and storage_id(fake) in changed for fake in inputs]


@contextmanager
def unchanged(values: Iterable[Any], written: Iterable[bool]) -> Iterator[None]:
    """Restore the contents of tensors afterwards, because running statistics change in train mode: batch norm writes
    without a new version, and so are restored all but parameters that are not ``written``. A buffer into which the
    graph writes what has a gradient loses that history again.
    """
    before = [(value, value.detach(), value.detach().clone(), value.requires_grad) for value, is_written in zip(
              values, written, strict=True) if isinstance(value, torch.Tensor) and (
              is_written or not isinstance(value, torch.nn.Parameter))]
    yield
    with torch.no_grad():
        for value, alias, content, has_gradient in before:
            if value.shape != alias.shape or value.stride() != alias.stride():      # t_() changes these
                value.as_strided_(alias.shape, alias.stride(), alias.storage_offset())
            if not value.is_inference() and not torch.equal(value, content):
                value.copy_(content)
            if value.requires_grad and not has_gradient:
                value.detach_()


@dataclass(frozen=True)
class Capture:
    """A captured method: a module, the shape of its result, the dropped effects, the guards, and the conditions on
    sizes that operators asked for. ``static``: why all sizes in it are constants, and the line, if they are.
    """

    module: Captured
    shape: Shape
    dropped: list[str]
    guards: list[GuardRecord]
    of_operators: list[Condition]
    static: str


def capture(fn: Callable[..., Any], owner: torch.nn.Module | None, args: tuple, kwargs: dict[str, Any],
            input_spec: Any) -> Capture:
    """Call ``fn(*args, **kwargs)`` once.

    Arguments:
        fn: a function, or a bound method of ``owner``.
        owner: the module whose parameters and buffers are the weights.
        input_spec: the arguments that are given, by name, and which of their sizes may differ; see ``to_static``.

    Raises SaveError if that is not one whole graph.
    """
    recorder, name = Recorder(), name_of(fn)
    target: Any = fn
    if owner is not None and fn == owner.forward:
        target = called(owner, inspect.signature(fn), input_spec)
    elif not hasattr(fn, "__code__"):
        target = called(fn, inspect.signature(fn), input_spec)
    state = SavedState(target.__code__, owner)
    settings = Settings(recorder, full_graph=True, input_spec=input_spec)
    translator = Translator(settings.compiler(), full_graph=True, strict=True, exits=state.write,
                            whole_graphs=True)
    call = StaticFunction(target, settings, translator)
    try:
        result = call(*args, **kwargs)
        graphs = call.graphs
        if len(recorder.runs) != 1 or len(graphs) != 1:
            raise SaveError("it has no operation on tensors" if not recorder.runs else
                            f"it is {max(len(graphs), len(recorder.runs))} graphs, not one")
        guards = [guard for record in call.captures for guard in record.guards]
        static = next((record.static for record in call.captures if record.static), "")
        refuse_values(guards, inspect.signature(fn).parameters)
        refuse_numpy(recorder.runs[0].module)
        description = Description(recorder.runs[0], graphs[0].origins, owner, containers((args, kwargs)), state,
                                  inputs_of(target, args, kwargs))
        value, kept = result
        captured, shape = description.captured(value, kept, guards, inspect.signature(fn))
    except CaptureError as e:
        raise SaveError(f"{name} cannot be saved: it is not captured whole. {e}") from e
    except SaveError as e:
        raise SaveError(f"{name} cannot be saved: {e}") from e
    finally:
        state.restore()
        call.end()
    return Capture(captured, shape, state.dropped, guards, description.conditions(guards, of_operators=True), static)


def inputs_of(target: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> tuple:
    """The inputs of the frame of a call, in the order of origins."""
    fn: Any = getattr(target, "__func__", target)
    owner = (target.__self__,) if fn is not target else ()      # type: ignore[attr-defined]
    bound = inspect.signature(fn, follow_wrapped=False).bind(*owner, *args, **kwargs)
    bound.apply_defaults()
    return tuple(bound.arguments[name] for name in fn.__code__.co_varnames if name in bound.arguments)


def refuse_numpy(module: GraphModule) -> None:
    """Raise SaveError if NumPy computes with what the file computes."""
    for node in module.graph.find_nodes(op="call_method", target="numpy"):
        raise SaveError(f"it computes with NumPy on a tensor{place_of(node)}, and a file has only operations of torch. "
                        f"Use torch's function of that name")


def place_of(node: Node) -> str:
    """The user's line of a node, in parentheses. For a number it is that of the operation that gets it."""
    frames = re.findall(r'File "([^<].*)", line (\d+)', node.meta.get("stack_trace") or "")
    place = [frame for frame in frames if not is_own(frame[0])]
    if place:
        return f" ({line_at(place[-1][0], int(place[-1][1]))})"
    return place_of(next(iter(node.users))) if node.users else ""


def called(target: Any, signature: inspect.Signature, given: Iterable[str]) -> FunctionType:
    """A function that calls a module with its hooks, or any callable. It has those of its parameters that are
    given.
    """
    parameters = [p.replace(default=p.empty, annotation=p.empty)
                  for p in signature.parameters.values() if p.name in given]
    signature = inspect.Signature(parameters)
    stars: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*{0}", inspect.Parameter.VAR_KEYWORD: "**{0}",
             inspect.Parameter.POSITIONAL_ONLY: "{0}"}
    starred = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    named = "{0}" if starred else "{0}={0}"     # parameters in between may be missing
    arguments = ", ".join(stars.get(p.kind, named).format(p.name) for p in parameters)
    name = type(target).__qualname__
    names: dict[str, Any] = {"self": target, "__name__": type(target).__module__}
    exec(compile(f"def forward{signature}: return self({arguments})", f"<{name}>", "exec"), names)
    return names["forward"]


class Description:
    """Finds the source of every input of a graph, and of every part of the result."""

    def __init__(self, run: Run, origins: tuple, owner: torch.nn.Module | None, arguments: Any,
                 state: SavedState, inputs: tuple) -> None:
        self.inputs = inputs
        self.run, self.origins, self.state = run, origins, state
        self.positions = {id(leaf): i for i, leaf in enumerate(pytree.tree_leaves(arguments))
                          if isinstance(leaf, torch.Tensor)}
        self.names = {id(tensor): name for name, tensor in tensors_of(owner)}
        self.transient = transient_of(owner)
        self.weights: dict[str, torch.Tensor] = {}
        self.tensors = {origin: value for origin, value in zip(origins, run.inputs, strict=True)
                        if isinstance(value, torch.Tensor)}
        self.outputs = {id(value): i for i, value in enumerate(run.outputs)}

    def captured(self, result: Any, kept: tuple, guards: Iterable[GuardRecord],
                 signature: inspect.Signature) -> tuple[Captured, Any]:
        """The module, and the shape of its result."""
        sources = [self.source(value, origin) for value, origin in zip(self.run.inputs, self.origins, strict=True)]
        results: list[Source] = []

        def leaf(value: Any) -> None:
            results.append(self.result(value))
        tree, shape = plain(result, leaf)
        updates = []
        for change, value in zip(self.state.kept, kept, strict=True):
            self.weight(change.name, change.before)
            updates.append(Update(change.name, self.result(value)))
        spec = pytree.tree_structure(tree, is_leaf=lambda part: part is None)
        plan = Plan(sources, results, spec, updates, self.conditions(guards), signature)
        graph = with_regions(with_divisions(with_views(self.run.module)))
        return Captured(graph, plan, self.weights, self.transient), shape

    def source(self, value: Any, origin: Any) -> Source:
        if id(value) in self.positions:
            return "argument", self.positions[id(value)]
        if origin in self.state.numbers and isinstance(value, torch.Tensor):     # graphs get floats as tensors
            return "weight", self.number(origin).key
        if isinstance(origin, Computed) and isinstance(value, torch.Tensor):
            return "float", self.float_term(origin)
        if isinstance(value, np.ndarray):       # torch.export makes constants of what is computed from it
            return "value", value
        if isinstance(value, torch.Tensor):
            name = self.names.setdefault(id(value), f"constant_{len(self.weights)}")
            return "weight", self.weight(name, value)
        return "number", self.number(origin)

    def weight(self, name: str, value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)
            self.transient.add(name)
        # what the model computed in an earlier call (weight_norm): no gradient reaches that
        self.weights.setdefault(name, value if value.is_leaf else value.detach())
        return name

    def number(self, term: Term) -> Term:
        """A term whose leaves are sources. Raises SaveError if one of them is neither a size nor state."""
        if isinstance(term, tuple):
            if term[0] == "**" and term[2] == 0.5:
                return self.number(("math.sqrt", term[1]))
            if term[0] == "**" and is_whole(term) and type(term[2]) is int and 0 < term[2] <= LARGEST_POWER:
                return self.number(reduce(lambda product, base: ("*", product, base), [term[1]] * term[2]))
            found = (term[0], *map(self.number, term[1:]))
            if not is_rounded(term):
                return found
            if is_roundable(found[1]):
                return Leaf("rounded", found)
            raise SaveError(f"it computes the number {term_text(term)}, and a file has no such function of numbers "
                            f"that vary. Compute it of a constant, or with integers")
        if not isinstance(term, Origin):
            return term
        if term in self.state.numbers:
            before = next(kept.before for kept in self.state.kept if kept.name == self.state.numbers[term])
            return Leaf("item", self.weight(self.state.numbers[term], before))
        if isinstance(term, Dim) and id(self.tensor(term.base)) in self.positions:
            return Leaf("size", (self.positions[id(self.tensor(term.base))], term.index))
        if isinstance(term, Computed):
            return self.number(term.term)
        raise SaveError(f"its graph takes the number {term}, which is no size of an argument. Pass it as a tensor, or "
                        f"save with one value of it")

    def float_term(self, origin: Computed) -> Term:
        """A float that the graph takes as a tensor. Raises SaveError if it is not computed with tensors."""
        term = self.number(origin)
        if is_of_tensors(term):
            return term
        placeholder = self.run.module.graph.find_nodes(op="placeholder")[self.origins.index(origin)]
        raise SaveError(f"it computes the number {term_text(origin.term)}{place_of(placeholder)}, and "
                        f"a file has no such function of numbers that vary. Compute it with tensors, or of a constant")

    def tensor(self, origin: Origin) -> torch.Tensor | None:
        """The tensor of an origin: an input of the graph, or an argument of which the graph needs only sizes."""
        if origin not in self.tensors and isinstance(root(origin), Arg):
            value = origin.read(self.inputs)
            if isinstance(value, torch.Tensor):
                self.tensors[origin] = value
        return self.tensors.get(origin)

    def conditions(self, guards: Iterable[GuardRecord], of_operators: bool = False) -> list[Condition]:
        """The conditions from the capture on sizes and kept numbers. torch.export itself ensures that a size is not 0
        or 1, checks the layout of tensors, and finds the conditions of operators, except those on rounded numbers: it
        has other words for these, so ``of_operators`` are only for messages.
        """
        found = []
        for record in guards:
            guard = record.guard
            if not isinstance(guard, RelationGuard) or isinstance(guard.left, Dim) and (
                    guard.symbol, guard.right) == (">=", 2):
                continue
            term: Term = (guard.symbol, guard.left, guard.right)
            if (guard.of_operator and not has_rounded(term)) is not of_operators:
                continue
            if all(isinstance(origin, Dim) and self.tensor(origin.base) is not None or origin in self.state.numbers
                   for origin in leaves(term)):
                term = self.number(term if guard.outcome else (OPPOSITE[guard.symbol], guard.left, guard.right))
                found.append(Condition(term, str(guard), line_of(record)))
        return found

    def result(self, value: Any) -> Source:
        """The source of a part of the result."""
        if id(value) in self.outputs:
            return "output", self.outputs[id(value)]
        if isinstance(value, torch.Tensor):
            return self.source(value, None)
        if isinstance(value, IntOf | FloatOf):
            return "number", self.number(value.term)
        if value is None or isinstance(value, bool | int | float):
            return "value", value
        raise SaveError(f"it returns {article(type(value).__qualname__)}; return tensors, numbers, text, None, and "
                        f"lists, tuples and dicts of them")


def transient_of(owner: torch.nn.Module | None) -> set[str]:
    """The names of tensors outside the model's state_dict."""
    state = owner.state_dict(keep_vars=True) if owner is not None else {}
    held = {id(value) for value in state.values()}
    return {name for name, value in tensors_of(owner) if id(value) not in held}
