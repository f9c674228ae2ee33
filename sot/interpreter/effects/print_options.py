"""``torch.set_printoptions`` is followed: the options are attributes of an object of torch.

Text that shows tensors is made after the graph, when the object has other attributes than in the program. So it is made
with the options of the place where the program makes it.
"""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from sot.support.registry import handles
from sot.torch_compat.global_state import PRINT_OPTIONS
from sot.values.base import Value
from sot.values.callables import known_function
from sot.values.text import print_options
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(torch.set_printoptions)
def set_print_options(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Text from before the first change is made with the options of the call."""
    for shown in m.shown:
        if shown.options is None:
            shown.options = print_options(m, wrap_known(m, PRINT_OPTIONS))
            m.undoable(functools.partial(setattr, shown, "options", None))
    return m.enter(known_function(m, torch.set_printoptions), args, kwargs)
