"""The truth of values, if a tensor may decide it."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from sot.bytecode.flow import JUMPS, asking, flow_of, ways
from sot.graph import NumberRef
from sot.graph.builder import has_changed
from sot.interpreter.builtins import operators
from sot.interpreter.builtins.common import no_keywords, take
from sot.interpreter.control_flow import failures, random_branches
from sot.interpreter.numpy_ops import numpy_functions
from sot.interpreter.torch_ops import known_values, overrides
from sot.interpreter.torch_ops.data_sizes import finite, graph_numbers, nonempty
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import operators as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.fake_tensors import DataDependentOutputException
from sot.values.arrays import ArrayValue
from sot.values.base import ANSWERS, ENTERED, Const, Value, boolean
from sot.values.deferred_scalars import DeferredScalar
from sot.values.objects import TupleValue
from sot.values.tensor import TensorBool, TensorNumber, TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def decide(m: Machine, value: Value) -> bool | TensorBool | Any:
    """``bool(value)``: the known truth, ENTERED, or a TensorBool if the branch becomes part of the graph. A branch
    with one side that raises always does.
    """
    if isinstance(value, ArrayValue):
        value = numpy_functions.item(m, value)
    if isinstance(value, DeferredScalar) and value.is_in_graph:
        return truth_of_number(m, value)
    if not isinstance(value, (TensorValue, TensorNumber)):
        drawn = random_branches.compared(m, "!=", value, Const(0)) if is_asked_by_jump(m) else None
        if drawn is None:
            return operators.truth(m, value)
        value = drawn
    if not m.assumptions.control_flow:
        try:
            return operators.truth(m, value)
        except Break as stop:
            if stop.reason is not Reason.TENSOR_TRUTH:
                raise
            if may_be_assertion(m) or random_branches.is_one(m, value):
                return as_truth(m, value)
            if (found := truth_if_finite(m, value)) is None:
                raise
            return found
    if isinstance(value, TensorValue) and value.fake.numel() == 1:
        try:
            return m.builder.run("call_function", bool, (value.ref,), {})
        except DataDependentOutputException:
            return as_truth(m, value)
    return as_truth(m, value) if isinstance(value, TensorNumber) else operators.truth(m, value)


@ANSWERS.add((TensorBool, "known_truth"))
def by_sizes(m: Machine, value: TensorBool) -> bool:
    """A truth that follows from sizes and constants is that of this call, and the graph asserts it for others."""
    found = None if isinstance(value.ref, NumberRef) else known_values.truth_by_sizes(m, value.ref)
    if found is None:
        raise Break(Reason.OPAQUE_VALUE, f"{value} as an argument of a tensor operation")
    text = f"a condition on sizes is {not found}, and was {found} when the program was captured"
    assert_tensor(m, TensorValue(value.ref), found, text)
    return found


def assert_tensor(m: Machine, value: Value, holds: bool, text: str) -> None:
    """An assertion node. It is computed on the CPU, because a failed assertion on a GPU ends the process."""
    if not holds:
        value = torch_call(m, "call_function", torch.logical_not, [value], {})
    if isinstance(value, TensorValue) and value.fake.device.type != "cpu":
        value = torch_call(m, "call_method", "cpu", [value], {})
    torch_call(m, "call_function", torch._assert_async, [value, Const(text)], {})


def truth_of_number(m: Machine, value: DeferredScalar) -> bool | TensorBool:
    """The truth of a number that depends on data, if it is known, or if one side of the branch raises."""
    if value.is_held and (known := graph_numbers.known_truth(m, value)) is not None:
        return known
    if graph_numbers.may_be(m) and may_be_assertion(m):
        return TensorBool(graph_numbers.as_truth(m, value).graph_number(m))
    if may_fail(m) and (guess := nonempty.truth_if_nonempty(m, value)) is not None:
        return guess
    if value.pytype is bool and graph_numbers.may_be(m) and not has_changed(m.builder) and (
            guess := finite.truth_if_finite(m, value.graph_number(m), None)) is not None:
        return guess
    raise value.needed()


def truth_if_finite(m: Machine, value: Value) -> bool | None:
    """The truth of a tensor that says whether values are finite, if a branch asks and the graph may raise here."""
    if not isinstance(value, TensorValue) or value.fake.dim() or value.fake.dtype is not torch.bool or (
            has_changed(m.builder)):
        return None
    return finite.truth_if_finite(m, None, value.ref)


def is_asked_by_jump(m: Machine) -> bool:
    frame = m.frames[-1]
    return frame.instrs[asking(frame.instrs, frame.last)].op in JUMPS


def may_be_assertion(m: Machine) -> bool:
    """Whether the truth is asked for a jump with one side that always raises, and whether the graph may raise here
    because Python can run the frame again.
    """
    frame = m.frames[-1]
    at = asking(frame.instrs, frame.last)
    if frame.instrs[at].op not in JUMPS or not may_fail(m):
        return False
    flow = flow_of(frame.native)
    returns = {flow.place[pc] in flow.unraised for pc in ways(frame.instrs, at)}
    return len(returns) == 2


def may_fail(m: Machine) -> bool:
    """Whether an assertion may be recorded here: Python can run the frame again if it fails."""
    return not (m.modes or m.builder.region is not None or m.watch is not None or has_changed(m.builder)
                or any(map(failures.catches, m.frames)))


def as_truth(m: Machine, value: Value) -> TensorBool:
    """The truth of a tensor with one element."""
    if isinstance(value, TensorBool):
        return value
    if isinstance(value, TensorNumber):
        value = TensorValue(value.ref)
    assert isinstance(value, TensorValue)
    result: Value = value
    if value.fake.dim():
        result = torch_call(m, "call_method", "reshape", [result, TupleValue([])], {})
    if value.fake.dtype is not torch.bool:
        result = torch_call(m, "call_method", "bool", [result], {})
    assert isinstance(result, TensorValue)
    return TensorBool(result.ref)


def inverted(m: Machine, truth: bool | Value) -> Value:
    """``not truth``, for the result of ``decide`` or its Value."""
    if isinstance(truth, TensorBool):
        made = torch_call(m, "call_function", torch.logical_not, [TensorValue(truth.ref)], {})
        assert isinstance(made, TensorValue)
        return TensorBool(made.ref)
    return boolean(not (truth.constant() if isinstance(truth, Value) else truth))


# ---- builtins -----------------------------------------------------------------------------------------------------
@handles(bool, operator.truth)
def bool_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    no_keywords("bool", kwargs)
    if not args:
        return boolean(False)
    if len(args) > 1:
        m.throw(TypeError, f"bool expected at most 1 argument, got {len(args)}")
    if isinstance(args[0], ArrayValue):
        number = numpy_functions.item(m, args[0])
        return graph_numbers.as_truth(m, number) if isinstance(number, DeferredScalar) else number
    result = truth(m, args[0])
    if not isinstance(result, TensorBool) or not isinstance(args[0], TensorValue) or args[0].ref is not result.ref:
        return result
    copied = torch_call(m, "call_method", "clone", [args[0]], {})    # the tensor may change later
    assert isinstance(copied, TensorValue)
    return TensorBool(copied.ref)


def truth(m: Machine, value: Value) -> Value | Any:
    """``bool(value)``, or ENTERED. If it depends on a tensor, it is read after the graph, unless a branch needs it."""
    if isinstance(value, DeferredScalar) and not value.is_array:
        return graph_numbers.as_truth(m, value)
    try:
        result = decide(m, value)
    except Break as stop:
        if stop.reason is not Reason.TENSOR_TRUTH or (later := truth_read_later(m, value)) is None:
            raise
        return later
    return result if result is ENTERED or isinstance(result, TensorBool) else boolean(result)


def truth_read_later(m: Machine, value: Value) -> Value | None:
    """``bool(tensor)`` as a number that is read after the graph, or None if the program may need it before."""
    if not isinstance(value, TensorValue) or value.fake.numel() != 1 or m.modes or overrides.asked(m, value):
        return None
    try:
        return torch_call(m, "call_method", "item", [TensorValue(as_truth(m, value).ref)], {})
    except Break:
        return None


def negated(m: Machine, value: Value) -> Value | Any:
    """``not value``, or ENTERED."""
    found = truth(m, value)
    if not isinstance(found, DeferredScalar):
        return found if found is ENTERED else inverted(m, found)
    known = graph_numbers.known_truth(m, found) if found.is_held else None
    return graph_numbers.inverted(m, found) if known is None else boolean(not known)


@handles(operator.not_)
def not_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result = negated(m, take("not_", args, kwargs, "a", required=1)[0])
    return m.enter(polyfill.not_, args) if result is ENTERED and m.frames.pop() else result
