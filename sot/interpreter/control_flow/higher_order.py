"""Calls of ``torch.cond`` and ``while_loop`` in the program: their functions are executed into subgraphs."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.graph.regions import WHILE_TRUE, Region, While
from sot.interpreter.builtins.common import take
from sot.interpreter.control_flow.join import cond, given, keep_states, merged_contents, take_results, with_grad
from sot.interpreter.control_flow.merge_values import CONTENTS, Differ, Merge, Pair, fake_result
from sot.interpreter.control_flow.predicates import as_truth
from sot.interpreter.control_flow.results import is_alike, tensors_of, with_tensors
from sot.interpreter.control_flow.speculate import RETURNED, End, Refusal, Start, ended
from sot.interpreter.frame import BRANCH
from sot.interpreter.loop import run
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.functions import nested_region, while_loop
from sot.values.base import ENTERED, Const, Value
from sot.values.tensor import TensorNumber, TensorValue, refuse_instances

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def follow_call(m: Machine, function: Value, args: list[Value], region: Region,
                kwargs: dict[str, Value] | None = None) -> End:
    """Execute a call into a subgraph, and restore the machine afterwards. Raises Refusal."""
    frame = m.frames[-1]
    start = Start(m, frame)
    m.watch = []
    with region:
        result = function.call(m, args, kwargs or {})
        if result is not ENTERED:
            end = End(start, RETURNED, result)
        else:
            m.frames[-1].on_return = BRANCH
            end = ended(start, run(m))
    start.restore()
    end.keep_made([*m.frames, args, function])
    if end.kind != RETURNED:
        raise Refusal(f"a function raises: {end.text}")
    return end


def refusing(name: str) -> Any:
    """Turn a Refusal into a break: Python then calls torch's function."""
    def decorate(handler: Any) -> Any:
        def refuse(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
            frame = m.frames[-1]
            if (why := m.assumptions.refused.get((frame.native, frame.last))) is not None:
                raise Break(Reason.BRANCH, f"{why}, after {name}")
            start = Start(m, frame)
            try:
                return handler(m, args, kwargs)
            except (Refusal, Differ) as e:
                start.restore()
                raise Break(Reason.BRANCH, f"{e}, in {name}") from None
        return refuse
    return decorate


@handles(torch.cond)
@refusing("torch.cond")
def call_cond(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    test, if_true, if_false, operands = take("cond", args, kwargs, "pred", "true_fn", "false_fn", "operands",
                                             required=3)
    given_ = [] if operands is None else operands.items_list(m) or []
    refuse_instances("torch.cond", [test, *given_])
    if isinstance(test, Const):
        return (if_true if test.constant() else if_false).call(m, given_, {})
    truth = as_truth(m, test)
    regions = [Region(m.builder), Region(m.builder)]
    ends = [follow_call(m, function, given_, region)
            for function, region in zip((if_true, if_false), regions, strict=True)]
    frame, merge = m.frames[-1], Merge(m, truth)
    value = merge.value(ends[0].value, ends[1].value, "the value returned")
    contents = merged_contents(m, frame, merge, ends)
    cond(m, frame, truth, merge.pairs, regions, is_written=True)
    keep_states(m, ends)
    for container, held in contents:
        CONTENTS[type(container)].write(m, container, held)
    return value


@handles(while_loop)
@refusing("while_loop")
def call_while_loop(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    condition, body, carried = take("while_loop", args, kwargs, "cond_fn", "body_fn", "carried_inputs", required=3)
    refuse_instances("while_loop", carried.items_list(m) or [])
    first = tensors_of(m, carried)
    if not first:
        raise Refusal("the loop carries no tensor")
    grads = [ref.fake.requires_grad for ref in first]
    while True:
        loop = WrittenLoop(m, carried, first, grads)
        results = loop.follow(condition, body)
        needed = [torch.is_grad_enabled() and (g or r.fake.requires_grad) for g, r in zip(grads, results, strict=True)]
        if needed == grads:
            return loop.emit(results)
        grads = needed


class WrittenLoop:
    """A ``while_loop`` of the program."""

    def __init__(self, m: Machine, carried: Value, first: list[TensorRef], grads: list[bool]) -> None:
        self.m, self.carried, self.first = m, carried, first
        self.regions = [Region(m.builder), Region(m.builder)]
        for region in self.regions:
            for ref, grad in zip(first, grads, strict=True):
                region.parameter(TensorRef(fake_result(m, ref.fake, grad)), "carried")
            region.initial = self.first

    def arguments(self, refs: list[TensorRef]) -> list[Value]:
        """The structure that the loop carries, with these tensors."""
        return with_tensors(self.m, self.carried, [TensorValue(ref) for ref in refs]).items_list(self.m) or []

    def follow(self, condition: Value, body: Value) -> list[TensorRef]:
        """Execute one iteration. ``self.truth`` is the truth of the condition; the result is that of the body."""
        m, (decider, round_) = self.m, self.regions
        truth = follow_call(m, condition, self.arguments(decider.parameters), decider).value
        if not isinstance(truth, (TensorValue, TensorNumber)):
            raise Refusal("the condition does not depend on a tensor")
        with decider:
            self.truth = as_truth(m, truth)
        value = follow_call(m, body, self.arguments(round_.parameters), round_).value
        if value is None or not is_alike(m, value, self.carried):
            raise Refusal("the body does not return what it receives")
        self.returned = value
        refs = tensors_of(m, value)
        merge = Merge(m, self.truth)
        for i, (ref, result) in enumerate(zip(round_.parameters, refs, strict=True)):
            merge.value(TensorValue(ref), TensorValue(result), f"carried input {i}")
        return refs

    def emit(self, results: list[TensorRef]) -> Value:
        m, frame = self.m, self.m.frames[-1]
        decider, round_ = self.regions
        point = frame.native, frame.last
        truth = Pair(None, self.truth.ref, TensorRef(self.truth.ref.fake))
        decision = given(m, decider, [truth], 1, self.truth, point)
        refs = [TensorRef(ref.fake) for ref in round_.parameters]
        pairs = [Pair(None, result, ref) for result, ref in zip(results, refs, strict=True)]
        outs = given(m, round_, pairs, 1, self.truth, point)
        operands = list({id(ref): ref for region in self.regions for ref in region.used()}.values())
        initial = with_grad(m, self.first, round_.parameters, operands)
        names = [decider.close(decision, operands, WHILE_TRUE, alone=True), round_.close(outs, operands, "body")]
        modules = [m.builder.subgraph(name) for name in names]
        node = m.builder.record("call_function", While, (*modules, tuple(initial), tuple(operands)), {},
                                tuple(ref.fake for ref in refs), m.stack_trace())
        take_results(m, node, refs, [*operands, *refs])
        return with_tensors(m, self.returned, [TensorValue(ref) for ref in refs])


@handles(nested_region)
def call_nested_region(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """torch.compiler.nested_compile_region: the region becomes part of the graph, as any function does."""
    return args[0].call(m, args[1:], kwargs)
