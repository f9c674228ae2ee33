"""Facts about tensors that capture relies on: methods that a program may replace, and properties without a tensor
guard.

A property is read off the real tensor and guarded. For a tensor that the trace has made, the fake tensor has the
answer. If that depends on an input, the input is guarded.
"""
from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from sot.graph.refs import version_of
from sot.graph.regions import if_else
from sot.guards.guards import IsGuard
from sot.guards.origin import ClassAttr, known
from sot.guards.tensor_guards import FactGuard
from sot.interpreter.objects.lookup import lookup
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.support.errors import Break, Reason
from sot.torch_compat.tensors import ask, storage_id
from sot.values.base import ABSENT, Value
from sot.values.tensor import BASIC, TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

ORIGINAL = {cls: dict(vars(cls)) for cls in BASIC}


def resolved(m: Machine, cls: type, name: str) -> tuple[Any, type]:
    """The method of a tensor class that capture has a rule for. It is guarded."""
    raw, owner = lookup(m, cls, name)
    if raw is not ABSENT and owner in ORIGINAL:     # C methods need no guard, because they cannot change
        m.guard(IsGuard(ClassAttr(known(owner, owner.__qualname__), name), raw))
    return raw, owner


def is_replaced(raw: Any, name: str) -> bool:
    """Whether it is a function that the program has put in place of a method of tensors."""
    return isinstance(raw, FunctionType) and not any(raw is known.get(name) for known in ORIGINAL.values())


def refuse_replaced(m: Machine, tensor: TensorValue, name: str) -> None:
    """Break if the program has replaced an operator of tensors with its own function."""
    if is_replaced(resolved(m, tensor.pytype, name)[0], name):
        raise Break(Reason.OPAQUE_CALL, f"{name} of tensors, which the program has replaced,")


def fact(m: Machine, tensor: TensorValue, name: str) -> Value:
    """``tensor.name`` or ``tensor.name()``, for one of the listed names."""
    if name == "storage_offset":
        return storage_offset(m, tensor)
    changed = has_changed(tensor)
    if tensor.ref.real is not None and (not changed or name == "is_leaf"):
        found = guarded(m, tensor, name)
        if not changed and not (m.retained and name == "retains_grad"):
            return wrap_new(m, found)
    if changed and name != "is_leaf" or tensor.ref.real is not None and m.retained and name == "retains_grad":
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of {tensor}, which has been changed,")
    return of_fake(m, tensor, name)


def guarded(m: Machine, tensor: TensorValue, name: str) -> Any:
    """The value of an input's property, which is guarded from now on."""
    if tensor.origin is None:
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of {tensor}")
    tensor.ref.see()
    real: Any = tensor.ref.real
    found = ask(real, name)
    m.guard(FactGuard(tensor.origin, name, found))
    return found


def storage_offset(m: Machine, tensor: TensorValue) -> Value:
    """The storage offset. That of a view of an input depends on the input's."""
    if m.places_unknown:
        raise Break(Reason.TENSOR_VALUE, "storage_offset")
    for other in inputs_sharing(m, tensor):
        guarded(m, other, "storage_offset")
    if tensor.ref.real is not None and not has_changed(tensor):
        return wrap_new(m, ask(tensor.ref.real, "storage_offset"))
    return of_fake(m, tensor, "storage_offset")


def of_fake(m: Machine, tensor: TensorValue, name: str) -> Value:
    tensor.ref.see()
    if name != "is_leaf":
        refuse_chosen(m, name)
    if m.has_data_sizes and storage_id(tensor.ref.fake) in m.symbols.unsure:
        graph_numbers.refuse_unsure(m, name, m.symbols.data.symbols_of(tensor.ref.fake))
    if name == "_is_view" and m.builder.fake_mode.has_symbols and is_part_of_unknown(m, tensor.ref.fake):
        raise Break(Reason.UNSUPPORTED, f"reading ._is_view of {tensor}, which is decomposed for sizes that vary,")
    return wrap_new(m, m.builder.run("call_function", ask, (tensor.ref, name), {}))


def is_part_of_unknown(m: Machine, fake: Any) -> bool:
    """Whether it is a view of a tensor that the program does not have. torch decomposes a product of a vector and a
    matrix so; its kernel makes no view.
    """
    base = fake._base
    return base is not None and not any(base is other for other in (
        *(node.meta.get("example_value") for node in m.builder.nodes), *(ref.fake for ref in m.builder.inputs)))


def refuse_chosen(m: Machine, name: str) -> None:
    """Break at a question on the history or the place of a tensor, which fakes do not know once a branch in the graph
    has chosen between two tensors.
    """
    if m.builder.modules and any(node.target is if_else for node in m.builder.nodes):
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor after a branch on a random number")


def inputs_sharing(m: Machine, tensor: TensorValue) -> Iterator[TensorValue]:
    """The inputs that share memory with a tensor, itself included if it is an input."""
    memory = storage_id(tensor.ref.fake)
    for _, value in [*m.by_id.values()]:
        if isinstance(value, TensorValue) and value.ref.real is not None and storage_id(value.ref.fake) == memory:
            yield value


def has_changed(tensor: TensorValue) -> bool:
    """Whether the trace has changed an input in place, or how autograd treats it."""
    ref = tensor.ref
    return ref.real is not None and (version_of(ref.fake) != ref.version
                                     or ref.fake.requires_grad != ref.real.requires_grad)
