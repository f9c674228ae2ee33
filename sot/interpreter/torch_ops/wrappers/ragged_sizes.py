"""What a program reads off a tensor, if sizes of ragged dimensions may be among it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.torch_compat.subclasses.wrappers import is_ragged
from sot.values.base import Value
from sot.values.objects import TupleValue
from sot.values.tensor import RaggedSize, TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def read(m: Machine, tensor: TensorValue, found: Any) -> Value:
    """The Value of a size, of a tuple with sizes, or of anything else."""
    if is_ragged(found):
        return RaggedSize(tensor, found)
    if isinstance(found, tuple) and any(map(is_ragged, found)):
        return TupleValue([read(m, tensor, size) for size in found], type(found))
    return wrap_new(m, found)
