"""``torch.frombuffer`` of a buffer that the call has made: the graph makes a tensor of the same bytes.

From then on buffer and tensor have the same memory, so capture does not go on with the buffer itself.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sot.graph.fake_rules import of_buffer
from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import Const, Value
from sot.values.objects.hosted import BUFFERS, HostedValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

LIMIT = 1 << 16     # bytes that a graph keeps


@handles(torch.frombuffer)
def frombuffer(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    buffer, = take("frombuffer", args, {k: v for k, v in kwargs.items() if k == "buffer"}, "buffer", required=1)
    options = {k: v.constant() for k, v in kwargs.items() if k != "buffer"}
    if not isinstance(buffer, HostedValue) or not isinstance(buffer.hosted, BUFFERS) or buffer.is_lent or (
            m.modes or not m.assumptions.interprets or m.builder.region is not None):
        raise Break(Reason.OPAQUE_VALUE, f"{buffer} as the memory of a tensor")
    content = bytes(buffer.hosted)
    dtype, count, offset = (options.pop(name, default) for name, default in (
        ("dtype", None), ("count", -1), ("offset", 0)))
    try:
        torch.frombuffer(bytearray(content), dtype=dtype, count=count, offset=offset)
    except (TypeError, ValueError, RuntimeError) as e:
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    if any(options.values()) or len(content) > LIMIT:
        raise Break(Reason.OPAQUE_VALUE, f"{buffer} as the memory of a tensor")
    m.touch(buffer)
    buffer.is_lent = True
    return torch_call(m, "call_function", of_buffer, [
        Const(content.decode("latin-1")), Const(dtype), Const(count), Const(offset)], {})
