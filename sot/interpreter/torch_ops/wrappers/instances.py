"""Instances of wrapper subclasses: those that exist, those that the program makes, and their inner tensors."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.guards.guards import TypeGuard
from sot.guards.origin import Attr, Origin
from sot.guards.wrappers.forms import WrapperGuard, same
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers.code_of_classes import admit, refusal_of
from sot.support.errors import Break, Reason
from sot.torch_compat.subclasses.wrappers import flatten, is_wrapper, other_attributes
from sot.values.base import ABSENT, Const, OtherTensor, Value
from sot.values.constants import is_constant, is_library
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_attr, wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


OF_CONTEXT = frozenset({"placements", "device_mesh"})   # of a DTensor: they follow from its context


def existing(m: Machine, real: torch.Tensor, origin: Origin) -> Value:
    """An instance that existed before. Its fake holds fakes of its inner tensors."""
    kind = type(real)
    why = refusal_of(m, kind, real)
    fake = None
    if not why:
        try:
            fake = m.builder.fake_mode.from_tensor(real, static_shapes=True)
            why = difference(real, fake)
        except Exception as e:  # noqa: BLE001 - of the class's code
            why = f"its fake cannot be made: {str(e).partition(chr(10))[0]}"
    if why or fake is None:
        m.guard(TypeGuard(origin, kind))
        return OtherTensor(real, origin, f"an instance of {kind.__qualname__}, a subclass of Tensor ({why})")
    admit(m, kind)
    m.guard(WrapperGuard(origin, WrapperGuard.form_of(real)))
    ref = m.builder.input(real, str(origin), fake)
    value = TensorValue(ref, kind, origin)
    if fake.is_leaf and fake.requires_grad:
        m.leaves[id(fake)] = value
    m.input_origins[id(ref)] = origin
    return value


def difference(real: torch.Tensor, fake: Any) -> str:
    """Why a fake does not stand for an instance; "" if it does."""
    if type(fake) is not type(real):
        return "its fake is of another class"
    if not same(flatten(real), flatten(fake)):
        return "its __tensor_unflatten__ makes an instance with another context"
    mine, its = other_attributes(real), other_attributes(fake)
    names = [name for name in {**mine, **its} if name not in mine or name not in its or not same(mine[name], its[name])]
    return f"its attribute .{names[0]} is not part of what __tensor_flatten__ returns" if names else ""


def construct(m: Machine, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``cls(...)``: one node, which makes the instance."""
    why = refusal_of(m, cls, None)
    if m.modes:
        why = "under a mode, which may see how it is made"
    if why or id(cls) in m.made_classes:
        raise Break(Reason.OPAQUE_CALL, f"{cls.__qualname__} ({why or 'made in this call'})")
    made = as_torch(m, maker(cls), args, kwargs)
    if made.pytype is not cls:
        raise Break(Reason.OPAQUE_CALL, cls.__qualname__)
    note_parts(m, made.fake, [*args, *kwargs.values()])     # type: ignore[attr-defined]
    return made


def maker(cls: type) -> Callable[..., Any]:
    """A plain function that makes instances, so that the printed graph refers to it by name."""
    def make(*args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)
    make.__name__ = make.__qualname__ = cls.__name__
    make.__module__ = __name__ if is_library(cls.__module__) else cls.__module__    # torch's is looked up in torch
    return make


def as_torch(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Record a call that torch's overrides do not see."""
    asking, m.asks_classes = m.asks_classes, False
    modes, m.modes = m.modes, ()
    try:
        return torch_call(m, "call_function", target, args, kwargs)
    finally:
        m.asks_classes, m.modes = asking, modes


def note_parts(m: Machine, fake: torch.Tensor, given: list[Value]) -> None:
    """Of the tensors that an instance is made of, it may hold some: reading them gives the same object."""
    known = {id(value.ref.fake): value for value in given if isinstance(value, TensorValue)}
    for name in flatten(fake)[0]:
        part = getattr(fake, name)
        if id(part) in known:
            keep_part(m, part, known[id(part)])


def keep_part(m: Machine, fake: torch.Tensor, value: Value) -> None:
    if id(fake) not in m.parts:
        m.parts[id(fake)] = fake, value
        m.undoable(lambda: m.parts.pop(id(fake)))


def attribute(m: Machine, tensor: TensorValue, name: str) -> Value | None:
    """An attribute that the instance itself holds: an inner tensor, or a constant; None for another one."""
    fake = tensor.fake
    if not is_wrapper(fake):
        return None
    if name in OF_CONTEXT and hasattr(type(fake), name):
        return wrap_known(m, getattr(fake, name))
    if name not in flatten(fake)[0]:
        if name not in vars(fake):
            return None
        held = vars(fake)[name]
        if tensor.ref.real is not None:
            return wrap_attr(m, tensor, name, vars(tensor.ref.real)[name]) if name in vars(tensor.ref.real) else None
        if not is_constant(held):
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of {tensor}")
        return Const(held)
    part = getattr(fake, name)
    if id(part) not in m.parts:
        keep_part(m, part, read_part(m, tensor, name))
    return m.parts[id(part)][1]


def read_part(m: Machine, tensor: TensorValue, name: str) -> Value:
    """An inner tensor: the result of a node. That of an instance that existed before is the program's own object."""
    real = getattr(tensor.ref.real, name) if isinstance(tensor.ref.real, torch.Tensor) else ABSENT
    if real is not ABSENT and id(real) in m.by_id:
        return wrap_attr(m, tensor, name, real)
    made = as_torch(m, getattr, [tensor, Const(name)], {})
    assert isinstance(made, TensorValue)
    if real is ABSENT or tensor.origin is None:
        return made
    origin = Attr(tensor.origin, name)
    value = TensorValue(TensorRef(made.ref.fake, made.ref.node, real, str(origin)), made.pytype, origin)
    m.by_id[id(real)] = real, value
    m.undoable(lambda: m.by_id.pop(id(real)))
    return value
