"""``nn.TransformerEncoder`` with a padding mask, where PyTorch drops the padding: see ``graph/padded_encoders.py``.

The library's code is executed like user code, on a stand-in for the nested tensor. Whether the padding of all
sequences is on the right is read off the mask. The graph assumes so. If that fails often, Python reads it.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import padded_encoders as nodes
from sot.interpreter.control_flow import failures
from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.data_sizes.graph_numbers import Guess, Mismatch, here, may_be
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import TRUE, Const, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

FACTS = frozenset(("dtype", "device", "requires_grad", "layout"))


class WithoutPadding(Value):
    """A nested tensor of sequences without their padding. ``padded`` is a node whose fake has the padding."""

    pytype = torch.Tensor

    def __init__(self, padded: TensorValue, keep: Value) -> None:
        self.padded, self.keep = padded, keep

    def load_attr(self, m: Any, name: str) -> Value:
        if name in FACTS:
            return Const(getattr(self.padded.fake, name))
        if name == "is_nested":
            return TRUE
        if name in ("dim", "to_padded_tensor"):
            return MethodOfNested(self, name)
        raise self.refusal(name)

    def refusal(self, what: str, reason: Reason = Reason.OTHER_TENSOR) -> Break:
        return Break(Reason.OTHER_TENSOR, f"{self} is a nested tensor")

    def graph_argument(self, m: Any, found: dict[int, Any], as_number: bool = False) -> Any:
        raise self.refusal("")

    def rebuild(self, e: Any) -> str:
        return e.value(self.padded)

    def __str__(self) -> str:
        return "the sequences without their padding"


class MethodOfNested(Value):
    def __init__(self, nested: WithoutPadding, name: str) -> None:
        self.nested, self.name = nested, name

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.name == "dim" and not args and not kwargs:
            return Const(3)
        if kwargs or len(args) != 2 or self.name == "dim" or args[0].constant() != 0.0:
            raise self.nested.refusal(self.name)
        return torch_call(m, "call_function", nodes.with_padding, [self.nested.padded, self.nested.keep, args[1]], {})

    def rebuild(self, e: Any) -> str:
        return e.variable(self, f"{e.value(self.nested)}.{self.name}")

    def __str__(self) -> str:
        return f"{self.name} of {self.nested}"


def assert_padded_right(x: torch.Tensor, keep: torch.Tensor, text: str) -> None:
    """The target of the node that checks what the graph assumes."""
    if not nodes.is_padded_right(x, keep):
        raise Mismatch(text)


@handles(torch._nested_tensor_from_mask_left_aligned)
def is_left_aligned(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    name, point = "_nested_tensor_from_mask_left_aligned", here(m)
    if kwargs or len(args) != 2 or not all(isinstance(v, TensorValue) for v in args) or (
            not may_be(m) or point in m.assumptions.read_at_once or any(overrides.asked(m, v) for v in args)):
        return torch_call(m, "call_function", torch._nested_tensor_from_mask_left_aligned, args, kwargs)
    text = f"padding on the right at {m.position()}"
    m.guesses[text] = Guess(name, m.user_position()[:2], frozenset({point}))
    m.builder.fake_mode.may_refuse = True
    failures.expect(m, name, is_ours=True)
    x, keep = args
    m.builder.record_check(assert_padded_right, (x.ref, keep.ref, text), m.stack_trace())   # type: ignore[attr-defined]
    return TRUE


@handles(torch._nested_tensor_from_mask)
def nested_from_mask(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    check = kwargs.get("mask_check")
    if len(args) != 2 or kwargs.keys() != {"mask_check"} or check is None or check.constant() is not False:
        return torch_call(m, "call_function", torch._nested_tensor_from_mask, args, kwargs)
    made = torch_call(m, "call_function", nodes.without_padding, args, {})
    assert isinstance(made, TensorValue)
    return WithoutPadding(made, args[1])


@handles(torch._transformer_encoder_layer_fwd)
def encoder_layer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    nested = args[0] if args else None
    if not isinstance(nested, WithoutPadding):
        return torch_call(m, "call_function", torch._transformer_encoder_layer_fwd, args, kwargs)
    if kwargs or any(value.constant() is not None for value in args[-2:]):
        raise nested.refusal("")
    made = torch_call(m, "call_function", nodes.encoder_layer, [nested.padded, nested.keep, *args[1:]], {})
    assert isinstance(made, TensorValue)
    return WithoutPadding(made, nested.keep)
