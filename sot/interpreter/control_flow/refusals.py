"""Operations that the program lets fail: sizes that do not fit, a position that does not exist.

Whether an operation refuses its arguments by their metadata is known from fake tensors, which often say it in other
words. So the operation itself is called, with small tensors of the same metadata, and its exception is the program's.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.interpreter.control_flow.failures import catches
from sot.interpreter.effects.torch_warnings import Shown, forget, put_down
from sot.interpreter.objects.tensor_facts import guarded
from sot.support.own_code import is_own
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.op_effects import TORCHS_OWN
from sot.torch_compat.tensors import storage_id
from sot.values.base import NotConstant

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

LIMIT = 1 << 20     # elements of all arguments
RAISED = (RuntimeError, IndexError, ValueError, TypeError)
OF_STORAGE = frozenset({"as_strided", "set_", "resize_", "view_as_real", "share_memory_", "pin_memory"})


def raise_as_called(m: Machine, name: str, call: Call) -> None:
    """Raise the exception of an operation in the program, if the program catches it and it depends on metadata only."""
    if m.modes or m.wrapped or m.has_data_sizes or name in OF_STORAGE or is_of_program(call[0]) or (
            is_own(m.frames[-1].native.co_filename) or not any(catches(frame) for frame in m.frames)):
        return
    found: dict[int, TensorRef] = {}
    try:
        first, second = (error_of(call, fill, found) for fill in (0, 1))
    except NotConstant:
        return
    if first is None or second is None or type(first) is not type(second) or first.args != second.args:
        return
    for ref in found.values():
        ref.see()
        if ref.fake.requires_grad and not is_leaf(m, ref):
            return
    m.throw(type(first), *first.args)


def is_leaf(m: Machine, ref: TensorRef) -> bool:
    """Whether a tensor is a leaf of autograd and no view, and not only its fake. It is guarded."""
    value = m.leaves.get(id(ref.fake))
    return value is not None and (
        ref.real is None or bool(guarded(m, value, "is_leaf")) and not guarded(m, value, "_is_view"))


def is_of_program(target: Any) -> bool:
    """Whether it is an operator that the program or a library has registered, whose code may do anything."""
    if not isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return False
    return str(target).partition(".")[0] not in TORCHS_OWN


def error_of(call: Call, fill: int, found: dict[int, TensorRef]) -> Exception | None:
    """The exception of an operation on tensors that are filled with a number."""
    made: dict[int, torch.Tensor] = {}
    target, args, kwargs = with_parts(call, lambda part: alike(part, fill, found, made))
    state = torch.get_rng_state()
    error: Exception | None = None
    warned: list[Shown] = []

    def note(shown: Shown) -> None:
        forget(shown)
        warned.append(shown)
    with put_down(note):
        try:
            getattr(args[0], target)(*args[1:], **kwargs) if isinstance(target, str) else target(*args, **kwargs)
        except Exception as e:      # noqa: BLE001 - one of another class is no refusal
            error = e.with_traceback(None)
    changed = any(t._version for t in made.values()) or not torch.equal(state, torch.get_rng_state())
    torch.set_rng_state(state)
    if error is None or changed or warned or type(error) not in RAISED or [type(a) for a in error.args] != [str]:
        return None
    return error


def with_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same nest of lists, tuples, dicts and slices with other parts. Each keeps its class, which messages name."""
    if type(value) in (list, tuple):
        return type(value)(with_parts(part, function) for part in value)
    if isinstance(value, tuple):
        parts = [with_parts(part, function) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if type(value) is dict:
        return {key: with_parts(part, function) for key, part in value.items()}
    if type(value) is slice:
        return slice(*(with_parts(part, function) for part in (value.start, value.stop, value.step)))
    return function(value)


def alike(part: Any, fill: int, found: dict[int, TensorRef], made: dict[int, torch.Tensor]) -> Any:
    """A tensor with the metadata of a tensor of the graph, or any other argument as it is."""
    if not isinstance(part, TensorRef):
        return part
    fake = part.fake
    if type(part) is not TensorRef or not isinstance(fake, torch.Tensor) or (
            fake.device.type != "cpu" or fake.layout is not torch.strided or fake.is_neg() or fake.is_conj()
            or fake.is_quantized or fake.is_inference()
            or fake.requires_grad and (refused(fake) or not fake.is_leaf)):
        raise NotConstant(part)     # autograd has rules of its own
    if id(part) not in made:
        found[id(part)] = part
        if len({storage_id(ref.fake) for ref in found.values()}) < len(found) or (
                sum(ref.fake.numel() for ref in found.values()) > LIMIT):
            raise NotConstant(part)
        with torch.inference_mode(False):       # else it has no version, and the change of one is not seen
            tensor = made[id(part)] = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).fill_(fill)
        tensor.requires_grad_(fake.requires_grad)
    return made[id(part)]
