"""Functions and modules of torch.jit. A function whose Python code is known is followed. Another one, of
``torch.jit.trace`` or a file, and a call of a module are one node for a backend that runs its graph as it is.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sot.guards.guards import IsGuard
from sot.guards.origin import Attr
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.callables import CALL_METHOD_OF_SCRIPT, CALL_SCRIPT, as_on_fakes, effect_of, scripted_original
from sot.values.base import ABSENT, Value
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


@handles(CALL_SCRIPT, CALL_METHOD_OF_SCRIPT)
def call_scripted(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    self_, *rest = args
    script = self_.real
    if script is ABSENT or self_.origin is None:
        raise Break(Reason.OPAQUE_CALL, str(self_))
    if (original := scripted_original(script)) is not None:
        return wrap(m, original, Attr(self_.origin, "_torchdynamo_inline")).call(m, rest, kwargs)
    if m.assumptions.compiles:
        raise Break(Reason.OPAQUE_CALL, f"{self_}, a script of torch.jit that the backend cannot compile,")
    if m.modes or (effect := effect_of(script)):
        raise Break(Reason.OPAQUE_CALL, f"{self_}, a script of torch.jit {'under a mode' if m.modes else effect},")
    m.guard(IsGuard(self_.origin, script))
    return torch_call(m, "call_function", node_target(script), rest, kwargs)


def node_target(script: Any) -> Callable[..., Any]:
    """A plain function, so that the printed graph refers to it by name."""
    def call(*args: Any, **kwargs: Any) -> Any:
        with as_on_fakes(args):
            return script(*args, **kwargs)
    call.__name__ = call.__qualname__ = f"script_{script.name}"
    call.__module__ = __name__
    call.is_opaque = True   # type: ignore[attr-defined]
    return call
