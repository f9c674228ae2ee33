"""``torch.autograd.Function``: one node of the graph, which runs the user's forward and backward unchanged.

The forward runs on fake tensors to find its results. If it changed anything but its context, the program would see the
change twice. So it is first executed symbolically. If that fails or finds side effects, there is a break.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx
from torch.nn.modules._functions import BackwardHookFunction

from sot.guards.assumptions import Part
from sot.interpreter.loop import trial
from sot.interpreter.objects import attributes
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import Const, Value
from sot.values.objects import ObjectValue, TupleValue
from sot.values.tensor import refuse_instances

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine

Function = torch.autograd.Function


@handles(getattr(vars(Function)["apply"], "__func__", vars(Function)["apply"]))      # C code since torch 2.15
def apply(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, inputs = args[0].real, args[1:]
    if kwargs or not isinstance(cls, type) or not issubclass(cls, Function):
        raise Break(Reason.OPAQUE_CALL, "autograd.Function.apply")
    if Part.FUNCTIONS in m.assumptions.plain:
        raise Break(Reason.GRADIENT, f"the backend cannot compile {cls.__name__}")
    refuse_instances(f"{cls.__name__}.apply", inputs)
    if cls is BackwardHookFunction:     # the module's hooks are put on this node
        if m.assumptions.compiles:
            raise Break(Reason.SIDE_EFFECT, "a backward hook of a module, which a compiling backend would not call,")
        m.builder.keeps_nodes = True
    new_style = cls.setup_context is not Function.setup_context
    context = ObjectValue(FunctionCtx)
    context.attrs.overlay["needs_input_grad"] = TupleValue([Const(needs_grad(v)) for v in inputs])
    forward = attributes.load_from_class(m, cls, "forward")
    result = trial(m, forward, inputs if new_style else [context, *inputs])
    if new_style:
        trial(m, attributes.load_from_class(m, cls, "setup_context"), [context, TupleValue(inputs), result])
    return torch_call(m, "call_function", node_target(cls), inputs, {})


def needs_grad(value: Value) -> bool:
    fake = getattr(value, "fake", None)
    return fake is not None and fake.requires_grad


def node_target(cls: type) -> Callable[..., Any]:
    """A plain function of the class's module, so that the printed graph refers to it by name."""
    def call(*args: Any) -> Any:
        return cls.apply(*args)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = f"{cls.__name__}_apply"
    call.__module__ = cls.__module__
    call.autograd_function = cls    # type: ignore[attr-defined]
    return call


def is_function_of_program(target: Any) -> bool:
    """Whether the target of a node calls an autograd function that the program defines."""
    return hasattr(target, "autograd_function")
