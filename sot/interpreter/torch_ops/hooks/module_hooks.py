"""Adding and removing hooks of modules, as torch does it in Python: numbered handles and weak references.

The number of a handle made during capture differs at every call. It is a value that is determined when the entry runs,
and equals only itself.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.hooks import RemovableHandle

from sot.interpreter.torch_ops.hooks.tensor_hooks import HookHandle
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.hooks import take_hook_id
from sot.values.base import ABSENT, NONE, Value
from sot.values.objects import DictValue, ListValue, ObjectValue, TupleValue
from sot.values.objects.references import WeakReference

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter


class HookId(Value):
    """The number of a new handle."""

    pytype = int

    def key(self) -> Any:
        return self

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.const(take_hook_id)}()")

    def __str__(self) -> str:
        return "the number of a new hook"


@handles(RemovableHandle.__init__)
def new_handle(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``RemovableHandle(hooks, extra_dict=...)``"""
    handle, hooks = args
    extra = kwargs.get("extra_dict", NONE)
    others = [extra] if isinstance(extra, DictValue) else m.settle(extra.items) if isinstance(extra, ListValue) else []
    if not isinstance(handle, ObjectValue) or handle.real is not ABSENT or not all(
            isinstance(d, DictValue) for d in (hooks, *others)):
        raise Break(Reason.SIDE_EFFECT, "adding a hook")
    number = HookId()
    m.effect(lambda e: e.value(number))     # the handle takes a number, even if the program does not read it
    for name, value in (("hooks_dict_ref", WeakReference(hooks)), ("id", number),
                        ("extra_dict_ref", TupleValue([WeakReference(d) for d in others]))):
        handle.attrs.set(m, name, value)
    return NONE


@handles(RemovableHandle.remove)
def remove_hook(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Capture would guard the number of an existing handle, which differs at the next call."""
    if isinstance(args[0], HookHandle):
        return args[0].remove(m)
    if args[0].real is not ABSENT:
        raise Break(Reason.SIDE_EFFECT, "removing a hook")
    return m.enter(RemovableHandle.remove, args, kwargs)


