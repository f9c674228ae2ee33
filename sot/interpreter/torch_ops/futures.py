"""``torch.jit.fork`` of Python code, which runs it at once. Its future is ready.

torch copies lists and dicts that a future holds, and refuses other objects. So a result that is no tensor is a break.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import take
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.callables import Future, fork, wait
from sot.values.base import TRUE, Const, Value
from sot.values.callables import BoundMethod
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


class ReadyFuture(Value):
    """A future that has its result."""

    pytype = Future

    def __init__(self, result: TensorValue) -> None:
        self.result = result

    def load_attr(self, m: Any, name: str) -> Value:
        if name not in METHODS:
            raise Break(Reason.UNSUPPORTED, f"{name} of a future")
        return BoundMethod(Const(METHODS[name]), self, name)

    def truth(self, m: Any) -> bool | None:
        return True

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(fork)}({e.const(torch_code.itself)}, {e.value(self.result)})")


@handles(fork)
def fork_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.enter(torch_code.forked, args, kwargs)


@handles(torch_code.ready)
def ready(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    result, = args
    if not isinstance(result, TensorValue):
        raise Break(Reason.UNSUPPORTED, f"a future of {result}")
    return ReadyFuture(result)


@handles(wait, torch_code.result_of)
def result_of(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    future, = take("wait", args, kwargs, "future", required=1)
    if not isinstance(future, ReadyFuture):
        raise Break(Reason.SIDE_EFFECT, f"waiting for {future}")
    return future.result


@handles(torch_code.is_done)
def is_done(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("done", args[1:], kwargs)
    return TRUE


METHODS = {"wait": torch_code.result_of, "value": torch_code.result_of, "done": torch_code.is_done}
