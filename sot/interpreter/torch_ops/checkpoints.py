"""``torch.utils.checkpoint``: the function becomes a subgraph, and a node calls torch's own checkpoint with it.

So the node saves memory, draws random numbers again, and passes gradients as the program does. When AOTAutograd traces
the graph, the node marks its operations, and the backward graph recomputes them; a graph that goes backward itself has
``compiled_graphs/recomputation.py``. The function runs again in the backward pass, so it must change only objects that
it has made.
"""
from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointFunction, checkpoint

from sot.graph import TensorRef
from sot.graph.regions import Region
from sot.guards.guards import IsGuard
from sot.interpreter.builtins.functional import parts_of
from sot.interpreter.control_flow.higher_order import follow_call
from sot.interpreter.control_flow.join import keep_states, refuse_symbols
from sot.interpreter.control_flow.results import tensors_of, with_tensors
from sot.interpreter.control_flow.speculate import Refusal, Start
from sot.interpreter.loop import evaluate
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.functions import is_traced, recomputed
from sot.torch_compat.tensors import is_plain
from sot.values.base import ABSENT, FALSE, NONE, TRUE, Const, Value
from sot.values.callables import FunctionValue, known_function
from sot.values.objects import ListValue, TupleValue
from sot.values.objects.partials import PartialValue
from sot.values.tensor import TensorValue, refuse_instances

if TYPE_CHECKING:
    from torch import fx

    from sot.interpreter.machine import Machine

OTHER_OPTIONS = frozenset(("determinism_check", "debug", "early_stop"))
# entries of ``meta`` of a subgraph: the context_fn of the call, and the function that a trace calls with the subgraph
CONTEXT, TRACED = "_checkpoint_context_fn", "traced"


def run_checkpointed(subgraph: fx.GraphModule, args: tuple, others: tuple, reentrant: bool, preserve: bool) -> Any:
    """The target of the node. ``args`` were arguments in the program, ``others`` are the other tensors that the
    function uses.
    """
    if not is_traced():
        return run_as_it_is(subgraph, args, others, reentrant, preserve)
    if torch.compiler.is_exporting():
        return subgraph(*args, *others)
    if TRACED in subgraph.meta:
        return subgraph.meta[TRACED](subgraph, *args, *others)
    return recomputed(subgraph, *args, *others, use_reentrant=False)


def run_as_it_is(subgraph: fx.GraphModule, args: tuple, others: tuple, reentrant: bool, preserve: bool) -> Any:
    """The target of a node that is not compiled: the function draws other random numbers when it runs again."""
    selected = {"context_fn": subgraph.meta[CONTEXT]} if CONTEXT in subgraph.meta else {}
    # Not the module itself, because a call of it prints what it raises.
    return checkpoint(lambda *given: subgraph.forward(*given, *others), *args, use_reentrant=reentrant,
                      preserve_rng_state=preserve, **selected)


def is_reentrant_checkpoint(node: fx.Node) -> bool:
    """Whether a node of a graph is a checkpoint that goes backward inside of the backward pass."""
    return node.target in (run_checkpointed, run_as_it_is) and bool(node.args[3])


@handles(checkpoint)
def call_checkpoint(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Without gradients, a plain call of the function. With gradients, a node, or a break."""
    kwargs = dict(kwargs)
    reentrant, preserve = kwargs.pop("use_reentrant", None), kwargs.pop("preserve_rng_state", TRUE)
    context = context_of(m, kwargs.pop("context_fn", NONE))
    if not args or reentrant is None or {reentrant.pytype, preserve.pytype} != {bool} or OTHER_OPTIONS & kwargs.keys():
        raise Break(Reason.NOT_COMPILED, "checkpoint")
    function, *given = args
    options = bool(reentrant.constant()), bool(preserve.constant())
    if options[0] and (kwargs or context is not None):
        raise Break(Reason.NOT_COMPILED, "checkpoint with keywords")
    if not torch.is_grad_enabled():
        return function.call(m, given, kwargs)
    if options[0] and not any(isinstance(a, TensorValue) and a.fake.requires_grad for a in given):
        return without_gradients(m, function, given)
    if m.modes:
        raise Break(Reason.NOT_COMPILED, "checkpoint in a mode of functions")
    if options[0] and m.builder.region is not None and m.builder.region.is_in_reentrant:
        if m.assumptions.compiles:
            raise Break(Reason.NOT_COMPILED, "a checkpoint that warns, because gradients are off in a reentrant one,")
        m.builder.keeps_nodes = True
    refuse_instances("checkpoint", given)
    start = Start(m, m.frames[-1])
    try:
        return Checkpoint(m, given, *options, context).record(function, kwargs)
    except Refusal as e:
        start.restore()
        raise Break(Reason.UNSUPPORTED, f"checkpoint ({e})") from None


def context_of(m: Machine, value: Value) -> Any:
    """The function that returns the contexts in which the checkpointed function runs, or None. The node calls it. A
    partial or a function that the program has just made is made again, of parts that are known.
    """
    if isinstance(value, Const):
        return value.constant()
    if value.real is not ABSENT:
        if value.origin is not None:
            m.guard(IsGuard(value.origin, value.real))
        return value.real
    if isinstance(value, PartialValue) and value.pytype is functools.partial and not value.has_attrs:
        function, given, named = parts_of(m, value)
        return functools.partial(context_of(m, function), *(context_of(m, v) for v in given),
                                 **{name: context_of(m, v) for name, v in named.items()})
    if type(value) in (ListValue, TupleValue) and value.pytype in (list, tuple):
        return value.pytype(context_of(m, v) for v in value.items_list(m) or ())
    if isinstance(value, FunctionValue) and not (value.closure or value.defaults or value.kwdefaults or value.attrs):
        return types.FunctionType(value.code, value.namespace, value.name)
    raise Break(Reason.NOT_COMPILED, f"checkpoint with {value} as its context_fn, which the program has just made,")


def without_gradients(m: Machine, function: Value, given: list[Value]) -> Value:
    """A reentrant checkpoint of tensors that need no gradient. Its results have none, and torch warns."""
    context = evaluate(m, known_function(m, torch_code.unused_context), [])
    run = known_function(m, CheckpointFunction.forward)
    result = evaluate(m, run, [context, function, FALSE, *given])
    for value in result.items_list(m) or () if type(result) is TupleValue else [result]:
        if not isinstance(value, TensorValue) or value.real is not ABSENT or value in given or value.fake.requires_grad:
            raise Break(Reason.UNSUPPORTED, f"checkpoint with the result {value}")
    return result


class Checkpoint:
    """One checkpoint call, as a node."""

    def __init__(self, m: Machine, args: list[Value], reentrant: bool, preserve: bool, context: Any = None) -> None:
        self.m, self.args, self.options = m, args, (reentrant, preserve)
        self.reentrant, self.context = reentrant, context
        self.region = Region(m.builder)
        self.region.is_reentrant = reentrant
        self.results: list[TensorRef] = []

    def record(self, function: Value, kwargs: dict[str, Value]) -> Value:
        m, region = self.m, self.region
        refuse_symbols(m)
        end = follow_call(m, function, self.args, region, kwargs)
        if end.touched:
            touch = next(iter(end.touched.values()))
            raise Refusal(f"{touch.where} changes {touch.value}, which was there before")
        assert end.value is not None
        self.results = tensors_of(m, end.value)
        given = [a.ref for a in self.args if isinstance(a, TensorValue)]
        self.check(given)
        for ref in given:
            region.node_of(ref)
        others = [ref for ref in region.used() if not any(ref is g for g in given)]
        name = region.close(self.results, [*given, *others], "checkpoint")
        if self.context is not None:
            m.builder.modules[name].meta[CONTEXT] = self.context
        fakes = tuple(ref.fake for ref in self.results)
        draws = any(n.meta.get("draws") for n in region.nodes)
        target = run_checkpointed if self.options[1] or not draws else run_as_it_is
        node = m.builder.record("call_function", target,
                                (m.builder.subgraph(name), tuple(given), tuple(others), *self.options), {}, fakes,
                                m.stack_trace())
        node.meta["draws"] = draws
        keep_states(m, [end])
        if self.reentrant:
            m.builder.reentrant |= {fake.grad_fn for fake in fakes}
        made = [TensorValue(m.builder.adopt(m.builder.item(node, i, fake), fake)) for i, fake in enumerate(fakes)]
        return with_tensors(m, end.value, [*made])

    def check(self, given: list[TensorRef]) -> None:
        """Refuse a call for which the node would behave differently from the program."""
        if torch.is_inference_mode_enabled() or any(ref.fake.is_inference() for ref in given):
            raise Refusal("autograd saves its arguments, and refuses inference tensors")     # fakes do not
        if not self.results:
            raise Refusal("it returns no tensor")
        if len({id(ref) for ref in given}) < len(given):
            raise Refusal("it receives a tensor twice")
        for ref in self.results:
            if not self.region.is_inside(ref) or self.region.sharing(ref):
                raise Refusal("it returns one of its arguments, or a view of one")
        grads = [ref.fake.requires_grad for ref in self.results]
        if any(not is_plain(ref.real) for ref in self.region.used()):
            raise Refusal("it uses an instance of a subclass of Tensor")
        if self.reentrant and not (all(grads) and any(ref.fake.requires_grad for ref in given)):
            raise Refusal("no gradient flows through it")
