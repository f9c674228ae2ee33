"""What torch's own hooks ask the engine of autograd while a backward pass runs: the number of the pass, and whether it
runs a node (``register_multi_grad_hook``).
"""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.functions import number_of_pass, will_run_node
from sot.values.base import Const, Value, boolean
from sot.values.constants import is_library
from sot.values.objects.references import PassNumber
from sot.values.tensor import GradFn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sot.interpreter.machine import Machine


@contextlib.contextmanager
def running_pass(m: Machine, nodes: set[Any], hidden: int) -> Iterator[None]:
    """While hooks of a backward pass through these nodes of fakes are executed."""
    before, m.running_pass = m.running_pass, PassNumber(nodes, len(m.frames), hidden)
    try:
        yield
    finally:
        m.running_pass = before


@handles(number_of_pass)
def number(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.running_pass is None:
        return Const(-1)
    if not is_library(m.frames[-1].namespace.get("__name__")):      # the type of the number shows
        raise Break(Reason.UNSUPPORTED, "the number of a backward pass that is part of the graph")
    return m.running_pass


@handles(will_run_node)
def will_run(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if m.running_pass is None or len(args) != 1 or kwargs or not isinstance(args[0], GradFn):
        raise Break(Reason.UNSUPPORTED, "whether a backward pass runs a node")
    return boolean(args[0].node in m.running_pass.nodes)
