"""Numbers in tensors of one element that follow from inputs by simple arithmetic: counters.

The entry reads such a number before the graph, and guards decisions instead of the number. These are an integer that
counts calls (``num_batches_tracked``), once it has changed, and every number that a step of an optimizer keeps in a
tensor, if the backend runs its graph as it is: the graph changes the tensor, Python computes with the number, and both
round alike.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import fx

from sot.bytecode.resume_origin import source
from sot.graph import NumberRef, TensorRef
from sot.graph.nodes import name_of
from sot.guards.origin import Element
from sot.guards.terms import FUNCTIONS, Computed
from sot.interpreter.torch_ops.known_values import NotKnown, has_other_states, slice_of
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.global_state import AUTOCAST_NESTING, AUTOCAST_SETTERS, SET_GRAD
from sot.torch_compat.tensors import is_plain, storage_id
from sot.values.base import Const, Value, boolean
from sot.values.numbers import DynamicNumber, applied, arithmetic, compare, is_dynamic, within
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

COUNT_LIMIT = 1 << 50        # of what a counter has, and of a step: sums of these do not overflow
READS = frozenset(("bool", "item", "int", "float"))
ARITHMETIC = {"add": "+", "iadd": "+", "sub": "-", "isub": "-"}
OF_FLOATS = {**ARITHMETIC, "mul": "*", "imul": "*"}
OF_LISTS = {"foreach_add": "+", "foreach_mul": "*"}
COMPARING = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
FLOATS = (torch.float32, torch.float64)
MADE = {"zeros": 0.0, "ones": 1.0}
OPTIMIZERS = "torch.optim."
HARMLESS = (SET_GRAD, *AUTOCAST_SETTERS, *AUTOCAST_NESTING)     # autocast leaves the arithmetic below as it is


def step_function(m: Machine) -> str | None:
    """The outermost function of torch.optim that is being executed."""
    for frame in m.frames[1:]:
        if frame.function is not None and str(frame.namespace.get("__name__")).startswith(OPTIMIZERS):
            return frame.function.name
    return None


def counter(m: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The number that is read off a tensor that counts. None for another tensor, or if the number may be read after
    the graph.
    """
    (tensor, *rest) = args or (None,)
    if name not in READS or rest or kwargs or not isinstance(tensor, TensorValue) or is_symbolic(
            tensor.fake) or tensor.fake.numel() != 1:
        return None
    point = source(m.frames[-1].native, m.frames[-1].last)
    of_step = m.assumptions.interprets and step_function(m) is not None
    if not of_step and (not m.varies.origins or name != "bool" and point not in m.assumptions.read_at_once):
        return None
    try:
        value = Counting(m, of_step).number(tensor.ref)
    except NotKnown:
        return None
    if isinstance(value, tuple):
        value = compare(m, *value)
    if name == "bool":
        return boolean(bool(value.truth(m)))
    return value if name in ("item", value.pytype.__name__) or value.pytype is bool else applied(m, name, value)


class Counting:
    """The numbers of a trace up to here. ``of_step``: whether a step of an optimizer asks."""

    def __init__(self, m: Machine, of_step: bool) -> None:
        self.m, self.of_step = m, of_step
        self.env: dict[Any, Any] = {}

    def number(self, ref: TensorRef) -> Any:
        """The number of a tensor at this point of the trace: a Value, or a comparison of two."""
        m = self.m
        if m.modes or has_other_states(m, HARMLESS):
            raise NotKnown
        tensors = {given.node: given for given in m.builder.inputs if not isinstance(given, NumberRef)}
        numbers: dict[Any, NumberRef] = {
            given.node: given for given in m.builder.inputs if isinstance(given, NumberRef)}
        needed = slice_of(m, [ref.node], numbers) if ref.node is not None else set()
        sources = [tensors[node] for node in needed if node in tensors] or [ref][:ref.node is None]
        if not all(isinstance(source.fake, torch.Tensor) for source in sources):
            raise NotKnown      # an array
        if len({storage_id(source.fake) for source in sources}) < len(sources):
            raise NotKnown      # a change of one changes another
        self.env = {given.node: self.element(given) for given in sources}
        self.env |= {node: self.given(given) for node, given in numbers.items() if node in needed}
        for node in m.builder.nodes:
            if node in needed and node not in self.env:
                self.env[node] = self.result(node)
        if ref.node not in self.env:     # it was made outside of a branch that is being made
            raise NotKnown
        return self.env[ref.node]

    def given(self, ref: NumberRef) -> Value:
        """A number that the graph gets."""
        origin, example = self.m.input_origins.get(id(ref)), cast(float, ref.real)
        if origin is None:
            raise NotKnown
        return DynamicNumber(self.m, example, origin.term if isinstance(origin, Computed) else origin)

    def element(self, ref: TensorRef) -> Value:
        """The number in an input. It is a varying one if that has changed, or belongs to a step."""
        m, origin, real = self.m, self.m.input_origins.get(id(ref)), ref.real
        if origin is None or not isinstance(real, torch.Tensor) or not is_plain(real) or real.numel() != 1:
            raise NotKnown
        if Element(origin) in m.varies.constant:
            raise NotKnown
        if self.of_step and real.dtype in FLOATS and not real.requires_grad:
            return m.varying_number(real.item(), Element(origin))
        if real.dtype is not torch.int64 or origin not in m.varies.origins:
            raise NotKnown
        number = m.varying_number(real.item(), Element(origin))
        if not within(m, number, -COUNT_LIMIT, COUNT_LIMIT):
            raise NotKnown
        return number

    def result(self, node: fx.Node) -> Any:
        """The number that an operation computes. One in place changes its operand, too."""
        name = name_of(node).strip("_")
        fake = node.meta.get("example_value")
        if self.of_step and isinstance(node.args[0] if node.args else None, (list, tuple)):
            return self.change_list(node, name)
        if name in COMPARING and node.all_input_nodes:
            fake = node.all_input_nodes[0].meta.get("example_value")
        if self.of_step and not (isinstance(fake, torch.Tensor) and fake.dtype is torch.int64):
            result = self.of_floats(node, name, fake)
        else:
            result = of_ints(self.m, node, name, self.operands(node.args))
        if node.meta.get("changes") and isinstance(node.args[0], fx.Node):
            self.env[node.args[0]] = result
        return result

    def change_list(self, node: fx.Node, name: str) -> None:
        """An operation on a list of tensors in place."""
        if name not in OF_LISTS or len(node.args) != 2 or node.kwargs.get("alpha", 1) != 1 or (
                not node.meta.get("changes")):
            raise NotKnown
        targets, other = node.args
        for i, target in enumerate(targets):    # type: ignore[arg-type]
            operand = other[i] if isinstance(other, (list, tuple)) else other
            self.env[target] = self.combined(OF_LISTS[name], target.meta["example_value"], (target, operand))

    def operands(self, args: tuple) -> list[Value]:
        found = [self.env.get(v) if isinstance(v, fx.Node) else Const(v) for v in args
                 if isinstance(v, fx.Node) or type(v) in (int, float)]
        if None in found or len(found) != len(args):
            raise NotKnown
        return found    # type: ignore[return-value]

    def of_floats(self, node: fx.Node, name: str, fake: Any) -> Any:
        """A number of float32 or float64, rounded as torch rounds it."""
        if not isinstance(fake, torch.Tensor) or fake.dtype not in FLOATS or fake.numel() != 1:
            raise NotKnown
        if name in MADE:
            return Const(MADE[name])
        if set(node.kwargs) <= {"dtype", "device"} and name in ("tensor", "as_tensor") and len(node.args) == 1 and not (
                is_tensor(node.args[0])):
            return self.rounded(self.operands(node.args)[0], fake.dtype)
        if node.kwargs:
            raise NotKnown
        if name in ("copy", "clone"):   # not a view: a change of its memory would not show
            return self.rounded(self.operands(node.args)[-1], fake.dtype)
        if name not in OF_FLOATS or len(node.args) != 2:
            raise NotKnown
        return self.combined(OF_FLOATS[name], fake, node.args)

    def combined(self, symbol: str, fake: torch.Tensor, args: tuple) -> Value:
        if fake.dtype not in FLOATS or fake.numel() != 1:
            raise NotKnown
        values = [value if is_tensor(arg) else self.rounded(value, fake.dtype)
                  for arg, value in zip(args, self.operands(args), strict=True)]
        return self.rounded(self.arithmetic(symbol, *values), fake.dtype)

    def arithmetic(self, symbol: str, a: Value, b: Value) -> Value:
        if not (is_dynamic(a) or is_dynamic(b)):
            return Const(a.constant() + b.constant() if symbol == "+" else a.constant() - b.constant()
                         if symbol == "-" else a.constant() * b.constant())
        result = arithmetic(self.m, symbol, a, b)
        if result is None:
            raise NotKnown
        return result

    def rounded(self, value: Value, dtype: torch.dtype) -> Value:
        name = "float32" if dtype is torch.float32 else "float"
        if is_dynamic(value):
            result = applied(self.m, name, value)
            if result is None:
                raise NotKnown
            return result
        return Const(FUNCTIONS[name](value.constant()))


def is_tensor(arg: Any) -> bool:
    return isinstance(arg, fx.Node) and isinstance(arg.meta.get("example_value"), torch.Tensor)


def of_ints(m: Machine, node: fx.Node, name: str, values: list[Value]) -> Any:
    if node.kwargs or len(values) != 2 or any(
            not is_dynamic(v) and (type(v.constant()) is not int or abs(v.constant()) > COUNT_LIMIT) for v in values):
        raise NotKnown
    if name in COMPARING:
        return (COMPARING[name], *values)
    result = arithmetic(m, ARITHMETIC[name], *values) if name in ARITHMETIC else None
    if result is None:
        raise NotKnown
    return result
