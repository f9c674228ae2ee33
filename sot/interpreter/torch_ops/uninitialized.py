"""The first call of a lazy module, where the graph runs as it is: a node gives the parameter its memory and its class.

Until then a parameter has no shape, and capture knows of it only what ``materialize`` needs. Nothing undoes the node.
So an exception of the graph after it leaves the function (see ``failures``).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from sot.guards.guards import EqualsGuard, IsGuard, TypeGuard
from sot.guards.origin import Attr, Origin
from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops.data_sizes.storages import set_data
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import Const, Value
from sot.values.callables import BoundMethod
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

BECOMES: dict[type, type] = {UninitializedParameter: torch.nn.Parameter, UninitializedBuffer: torch.Tensor}


class UninitializedTensor(TensorValue):
    """A parameter or buffer that may not have its memory yet."""

    @property
    def waits(self) -> bool:
        return self.pytype in BECOMES

    def load_attr(self, m: Any, name: str) -> Value:
        if not self.waits:
            return super().load_attr(m, name)
        if name == "materialize":
            return BoundMethod(Const(UninitializedParameter.materialize), self, name)
        if name == "__class__":
            return wrap_known(m, self.pytype)
        raise self.refusal(f"reading {name} of {self}")

    def graph_argument(self, m: Any, found: dict[int, Any], as_number: bool = False) -> Any:
        if self.waits:
            raise self.refusal(f"an operation on {self}")
        return super().graph_argument(m, found, as_number)

    def store_attr(self, m: Any, name: str, value: Value | None) -> None:
        if self.waits:
            raise self.refusal(f"setting {name} of {self}")
        super().store_attr(m, name, value)

    def refusal(self, what: str) -> Break:
        return Break(Reason.UNSUPPORTED, f"{what}, which is not initialized,")


def existing(m: Machine, real: Any, origin: Origin) -> Value:
    """The Value of an uninitialized parameter or buffer. Its class would ask for its shape, so a tensor like it is
    what the fake is made of.
    """
    kind = type(real)
    for guard in (IsGuard(origin, real), TypeGuard(origin, kind), EqualsGuard(Attr(origin, "dtype"), real.dtype),
                  EqualsGuard(Attr(origin, "device"), real.device),
                  EqualsGuard(Attr(origin, "requires_grad"), real.requires_grad)):
        m.guard(guard)
    like: torch.Tensor = torch.empty(0, dtype=real.dtype, device=real.device)
    if kind is UninitializedParameter:
        like = torch.nn.Parameter(like, real.requires_grad)
    ref = m.builder.input(real, str(origin), m.builder.fake_mode.from_tensor(like, static_shapes=True))
    value = UninitializedTensor(ref, kind, origin)
    if ref.fake.requires_grad:
        m.leaves[id(ref.fake)] = value
    m.input_origins[id(value.ref)] = origin
    return value


def initialized(tensor: Any) -> None:
    """The target of the node that changes the class."""
    if type(tensor) in BECOMES:
        tensor.__class__ = tensor.cls_to_become


@handles(UninitializedParameter.materialize)
def materialize(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, shape, device, dtype = take("materialize", args, kwargs, "self", "shape", "device", "dtype", required=2)
    if not isinstance(self_, UninitializedTensor) or not self_.waits:
        raise Break(Reason.UNSUPPORTED, f"materialize of {self_}")
    fake = self_.fake
    given = {"device": device or Const(fake.device), "dtype": dtype or Const(fake.dtype)}
    data = torch_call(m, "call_function", torch.empty, [shape], given)
    set_data(m, self_, data)    # type: ignore[arg-type]
    kind = self_.pytype
    m.undoable(lambda: setattr(self_, "pytype", kind))
    self_.pytype = BECOMES[kind]
    node = m.builder.record("call_function", initialized, (self_.ref,), {}, None, m.stack_trace())
    node.meta["draws"] = False
    return Const(None)


@handles(LazyModuleMixin._infer_parameters)
def infer_parameters(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.assumptions.compiles:
        raise Break(Reason.SIDE_EFFECT, "the first call of a lazy module")
    return m.enter(torch_code.infer_parameters, args, kwargs)
