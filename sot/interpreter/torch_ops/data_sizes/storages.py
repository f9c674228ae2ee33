"""``x.untyped_storage()`` where the graph runs as it is: the graph asks the storage (see ``asked_in_graph.py``).

What only Python can do with a storage is a break. Python then reads it off the tensor, which has no other by then.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph.fake_rules import bytes_of, element_of
from sot.interpreter.control_flow import failures
from sot.interpreter.objects import tensor_facts
from sot.interpreter.torch_ops.data_sizes.asked_in_graph import answered, can_ask, is_made_here
from sot.interpreter.torch_ops.torch_calls import can_wait, read_later, torch_call
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat import functions
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.tensors import storage_id
from sot.values.base import ANSWERS, Const, Value
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

METHODS = {"nbytes": int, "size": int, "__len__": int, "data_ptr": int, "element_size": int, "is_shared": bool,
           "is_pinned": bool, "resizable": bool}


def of_storage(tensor: torch.Tensor, name: str) -> Any:
    """The target of the node that asks a storage."""
    return getattr(tensor.untyped_storage(), name)()


class StorageValue(Value):
    """The storage of a tensor."""

    pytype = torch.UntypedStorage

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor = tensor

    def load_attr(self, m: Any, name: str) -> Value:
        if name == "device":
            return Const(self.tensor.fake.device)
        if name in METHODS or name in ("resize_", "tolist"):
            return StorageMethod(self, name)
        raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{name}")

    def rebuild(self, e: Any) -> str:
        return e.variable(self, f"{e.value(self.tensor)}.untyped_storage()")

    def __str__(self) -> str:
        return f"the storage of {self.tensor}"


class StorageMethod(Value):
    def __init__(self, storage: StorageValue, name: str) -> None:
        self.storage, self.name = storage, name

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.name == "resize_" and not kwargs and len(args) == 1:
            return resize(m, self.storage, args[0])
        if self.name == "tolist" and not args and not kwargs:
            return listed(m, self.storage)
        if args or kwargs:
            raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{self.name}")
        return ask(m, self.storage, self.name)

    def rebuild(self, e: Any) -> str:
        return e.variable(self, f"{e.value(self.storage)}.{self.name}")

    def __str__(self) -> str:
        return f"{self.name} of {self.storage}"


def ask(m: Machine, storage: StorageValue, name: str) -> Value:
    if not can_ask(m, [storage.tensor]):
        raise Break(Reason.TENSOR_VALUE, f"untyped_storage().{name}")
    return answered(m, name, METHODS[name], of_storage, (storage.tensor.ref, name))


def resize_storage(tensor: torch.Tensor, size: int) -> None:
    """The target of the node."""
    tensor.untyped_storage().resize_(size)


def resize(m: Machine, storage: StorageValue, size: Value) -> Value:
    """``storage.resize_(size)``, for memory that the graph has made."""
    tensor, number = storage.tensor, size.real if isinstance(size, Const) else None
    if type(number) is not int or number < 0 or is_symbolic(tensor.fake) or not can_ask(m, [tensor]) or (
            not is_made_here(m, tensor)):
        raise Break(Reason.TENSOR_VALUE, "untyped_storage().resize_")
    held = tensor.fake.untyped_storage()
    before = held.nbytes()
    m.builder.run("call_function", resize_storage, (tensor.ref, number), {})
    m.undoable(lambda: held.resize_(before))
    change_made_here(m, "resize_", resize_storage, (tensor.ref, number), tensor)
    return storage


def change_made_here(m: Machine, name: str, target: Any, operands: tuple, tensor: TensorValue) -> None:
    """Record a change of memory that the graph has made, which the tensor's version does not show. It may raise."""
    m.builder.fake_mode.note_refusal()
    failures.expect(m, name)
    node = m.builder.record("call_function", target, operands, {}, None, m.stack_trace())
    written = m.array_memory.sharing({storage_id(tensor.fake)})
    node.meta.update(refuses=True, draws=False, changes=written)
    for shown in m.shown:
        shown.note_change(m, node, written)


def listed(m: Machine, storage: StorageValue) -> Value:
    """``storage.tolist()``, for the storage of an input: that of a fake may be shorter than the program's."""
    tensor = storage.tensor
    if tensor.ref.real is None or not can_ask(m, [tensor]) or tensor.fake.device.type != "cpu":
        raise Break(Reason.TENSOR_VALUE, "untyped_storage().tolist")
    size = tensor_facts.guarded(m, tensor, "storage_size")
    made = torch_call(m, "call_function", bytes_of, [tensor, Const(size)], {})
    assert isinstance(made, TensorValue)
    if not can_wait(m, "tolist", made):
        raise Break(Reason.TENSOR_VALUE, "untyped_storage().tolist")
    return read_later(m, "tolist", made)


@handles(torch_code.bytes_in)
def bytes_in(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The size of a storage. It is guarded for an input, so that an index can be compared with it."""
    storage, = args
    if not isinstance(storage, StorageValue):
        raise Break(Reason.OPAQUE_VALUE, f"the size of {storage}")
    if storage.tensor.ref.real is None:
        return ask(m, storage, "nbytes")
    return Const(tensor_facts.guarded(m, storage.tensor, "storage_size"))


@handles(torch_code.element_in)
def element_in(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    storage, dtype, index = args
    if not isinstance(storage, StorageValue) or storage.tensor.fake.device.type != "cpu" or dtype.constant(
            ).is_complex or not can_ask(m, [storage.tensor]):
        raise Break(Reason.TENSOR_VALUE, "an element of a storage")
    return torch_call(m, "call_function", element_of, [storage.tensor, dtype, index], {})


@ANSWERS.add((StorageValue, "len"))
def length(m: Machine, storage: StorageValue) -> Value:
    return ask(m, storage, "__len__")


@handles(torch.Tensor.untyped_storage)
def untyped_storage(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(tensor, TensorValue) or not can_ask(m, [tensor]):
        raise Break(Reason.TENSOR_VALUE, "untyped_storage")
    m.storages_read.add(id(tensor.ref.fake))
    return StorageValue(tensor)


def refuse_if_read(m: Machine, tensor: Value) -> None:
    """Break before a tensor gets another storage, if its storage has been read."""
    if isinstance(tensor, TensorValue) and id(tensor.ref.fake) in m.storages_read:
        raise Break(Reason.SIDE_EFFECT, "another storage for a tensor whose storage was read")


@handles(torch.Tensor.set_)
def set_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``y.set_(storage, offset, size, stride)`` is the same with a tensor that has the storage."""
    refuse_if_read(m, args[0])
    if len(args) == 5 and isinstance(args[1], StorageValue):
        args = [args[0], args[1].tensor, *args[2:]]
    return torch_call(m, "call_method", "set_", args, kwargs)


# ---- another storage by ``.data`` ------------------------------------------------------------------------------------
def assign_data(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """The target of the node of ``tensor.data = data``."""
    tensor.data = data


def set_data(m: Machine, tensor: TensorValue, data: TensorValue) -> None:
    """``tensor.data = data``: from now on it has the memory of ``data``. Its version does not change."""
    builder, (mine, its) = m.builder, (tensor.fake, data.fake)
    if m.modes or builder.region is not None or id(mine) in m.storages_read or any(
            is_symbolic(fake) or functions.is_in_transform(fake) for fake in (mine, its)):
        raise Break(Reason.SIDE_EFFECT, f"setting .data of {tensor}")
    if torch.is_inference_mode_enabled():       # the tensor of that memory has no version then, which torch relies on
        raise Break(Reason.SIDE_EFFECT, f"setting .data of {tensor} in inference mode")
    if "grad" in tensor.attrs and form_of(mine) != form_of(its):     # the gradient, which is set later, would not fit
        raise Break(Reason.SIDE_EFFECT, f"setting .data of {tensor} to another form, after its gradient,")
    failures.refuse_lasting(m, f"setting .data of {tensor}")
    if m.assumptions.compiles:
        return set_after_graph(m, tensor, data)
    before = mine.data
    try:
        builder.run("call_function", assign_data, (tensor.ref, data.ref), {})
    except RuntimeError as e:
        raise Break(Reason.OPERATION_FAILED, f"setting .data: {e}") from None
    m.undoable(lambda: assign_data(mine, before))
    torch.autograd.graph.increment_version(mine)    # of the fake, for code that looks for changes
    node = builder.record("call_function", assign_data, (tensor.ref, data.ref), {}, None, m.stack_trace())
    written = {storage_id(before), storage_id(its)}
    node.meta.update(draws=False, changes=written)
    for shown in m.shown:
        shown.note_change(m, node, written)
    builder.changes_traceless = True


def set_after_graph(m: Machine, tensor: TensorValue, data: TensorValue) -> None:
    """The same with a backend that compiles, which may return another tensor in its place, or change its memory.
    A tensor that the graph makes becomes another one. For an input Python sets ``.data`` after the graph. Until then
    operations get its new data (see ``TensorValue.current``), and a change of that is a break: the version would not
    rise.
    """
    mine, its = tensor.fake, data.fake
    is_input = tensor.ref.real is not None
    if has_own_code(tensor.pytype) or (form_of(mine) != form_of(its) if is_input
                                       else mine.requires_grad or tensor.pytype is not torch.Tensor) or any(
            shown.tensor is tensor for shown in m.shown):
        raise Break(Reason.SIDE_EFFECT, f"setting .data of {tensor}")
    if is_input and storage_id(mine) == storage_id(its) and mine.storage_offset() == its.storage_offset():
        return
    new, ref, attrs = torch_call(m, "call_function", getattr, [data, Const("data")], {}), tensor.ref, {**tensor.attrs}
    assert isinstance(new, TensorValue)
    if is_input:
        m.touch(tensor, lambda: setattr(tensor, "attrs", attrs))
        m.undoable(m.builder.moved.pop)
        m.builder.moved.append((ref, new.ref))
        tensor.attrs = {**attrs, "data": new}
    else:
        m.undoable(lambda: setattr(tensor, "ref", ref))
        tensor.ref = new.ref


def form_of(fake: torch.Tensor) -> tuple:
    return fake.shape, fake.stride(), fake.dtype, fake.device, fake.is_conj(), fake.is_neg(), fake.is_inference()
