"""Elements of a tensor at a position that is in a tensor: ``x[i]``, where torch reads the value of ``i``.

The result is a view, as with a number. Only its offset in memory depends on the position, so on fakes the position is
0. A backend that compiles would need the value, so there it is a break.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import TensorRef
from sot.guards.draws import is_drawn
from sot.guards.terms import leaves
from sot.support.errors import Break, Reason
from sot.torch_compat.functions import is_in_transform
from sot.values.base import Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import arithmetic, compare, is_dynamic
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

READING, WRITING = frozenset(("getitem", "__getitem__")), frozenset(("setitem", "__setitem__"))
POSITIONS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8))      # other dtypes are masks


def element(tensor: torch.Tensor, key: Any) -> torch.Tensor:
    """The target of the node of ``tensor[key]``."""
    return tensor[key]


def set_element(tensor: torch.Tensor, key: Any, value: Any) -> None:
    """The target of the node of ``tensor[key] = value``."""
    tensor[key] = value


def is_position(part: Any) -> bool:
    if not isinstance(part, TensorRef) or not isinstance(part.fake, torch.Tensor):
        return False
    fake = part.fake
    return fake.dim() == 0 and fake.dtype in POSITIONS and not is_in_transform(fake)


def answer(m: Machine, name: str, args: tuple) -> tuple[Any, Call] | None:
    """The result on fakes, and the call to record; None for other calls, or if the backend compiles graphs."""
    if name not in READING | WRITING or m.assumptions.compiles or m.builder.region is not None or len(args) < 2:
        return None
    key = args[1]
    parts = key if isinstance(key, tuple) else (key,)
    if not any(map(is_position, parts)) or any(isinstance(p, slice) and any_tensor(p) for p in parts):
        return None
    at_zero = fx.node.map_aggregate(key, lambda part: 0 if is_position(part) else part)
    target = element if name in READING else set_element
    try:
        result = m.builder.run("call_function", target, (args[0], at_zero, *args[2:]), {})
    except Exception:  # noqa: BLE001 - Python will say what is wrong with it
        return None
    m.builder.fake_mode.note_refusal()
    m.places_unknown = True
    return result, (target, args, {})


def any_tensor(part: slice) -> bool:
    return any(isinstance(p, TensorRef) for p in (part.start, part.stop, part.step))


def with_tensors(key: Value, obj: TensorValue) -> Value:
    """The key, with a tensor in place of each deferred scalar that was read from it."""
    if isinstance(key, DeferredScalar):
        if not obj.fake.dim():
            raise key.needed()      # an exception, which says something else of a tensor
        return position(key)
    if isinstance(key, TupleValue) and any(isinstance(v, DeferredScalar) for v in key.items):
        return TupleValue([with_tensors(v, obj) if isinstance(v, DeferredScalar) else v for v in key.items])
    return key


def position(number: DeferredScalar) -> Value:
    """The unchanged tensor that a number is read from, if it is a position; else the number. A number that the graph
    has stays one: torch's fake of the tensor answers with the symbol of the number, which no subscript takes.
    """
    shown = number.reading.shown if number.reading is not None else None
    if shown is None or number.is_held or not is_position(shown.tensor.ref) or not shown.is_unchanged:
        return number
    return shown.tensor


# ---- positions that are numbers
def may_be_guarded(index: Value) -> bool:
    """Whether it is a number that is known before the graph, and not drawn."""
    return is_dynamic(index) and not any(map(is_drawn, leaves(index.term)))     # type: ignore[attr-defined]


def is_in_range(m: Machine, index: Value, size: int | torch.SymInt) -> bool:
    """Whether an index is in range, which is guarded."""
    end = Const(size) if isinstance(size, int) else m.symbolic(size)
    start = Const(-size) if isinstance(size, int) else arithmetic(m, "-", Const(0), end)
    return start is not None and bool(compare(m, ">=", index, start).real and compare(m, "<", index, end).real)


def guard_index(m: Machine, input: Any = None, dim: Any = None, index: Any = None) -> None:
    """Guard that the index of ``x.select(dim, index)`` is in range. Break if it is not."""
    if not may_be_guarded(index) or not isinstance(dim, Const) or not isinstance(input, TensorValue):
        return
    sizes = input.fake.shape
    if -len(sizes) <= dim.real < len(sizes) and not is_in_range(m, index, sizes[dim.real]):
        raise Break(Reason.OPERATION_FAILED, "select: an index out of range")
