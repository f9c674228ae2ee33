"""Numbers that kernels read from memory, because they are known only when the graph runs.

Each is put on the device of the kernels once: a float that varies, which needs all its bits, and a number in a tensor
of the CPU, such as the steps that an optimizer has counted.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.program import Extern, View
from sot.graph.kernels.sizes import Real
from sot.graph.lowering.symbols import Like

if TYPE_CHECKING:
    from sot.graph.lowering.driver import Lowering


def number_of(lowering: Lowering, number: Real) -> View:
    """A tensor with a float that varies. It has all bits of the float, unlike an argument of a kernel."""
    return _placed(lowering, number, torch.ops.aten.full.default, ([], number), {"dtype": torch.float64}, torch.float64)


def is_number_of_cpu(value: Any) -> bool:
    return isinstance(value, View) and value.shape == () and value.device.type == "cpu" and value.dtype in NAMES


def moved(lowering: Lowering, number: View) -> View:
    """The copy of a number of the CPU. No one waits for it: CUDA copies so few bytes before the call returns."""
    lowering.materialize((number,))
    return _placed(lowering, number, torch.ops.aten._to_copy.default, (number,), {"non_blocking": True}, number.dtype)


def _placed(lowering: Lowering, number: Real | View, target: Any, args: tuple, how: dict[str, Any], dtype: torch.dtype,
            ) -> View:
    key = number, lowering.place
    if key not in lowering.numbers:
        name = f"number_{len(lowering.numbers)}"
        like = Like((), (), dtype, lowering.place, torch.strided, 0, 0)
        lowering.numbers[key] = lowering.buffer(name, like).view()
        lowering.program.steps.append(Extern(target, args, how | {"device": lowering.place}, (name,), False,
                                             lowering.note))
    return lowering.numbers[key]
