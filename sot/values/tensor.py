"""Tensors: a reference into the graph. Attributes and methods become nodes or constants."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.guards.origin import Origin
from sot.support.errors import Break, Reason
from sot.torch_compat.functions import DISABLED
from sot.values.base import ANSWERS, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sot.values.protocols import Emitter, Machine

# Attributes that are operations.
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


BASIC = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def overrides_operations(kind: type) -> bool:
    """Is it a class of tensors that torch asks for its ``__torch_function__``?"""
    return kind not in BASIC and (
        getattr(kind, "__torch_function__", None) is not DISABLED)


def refuse_instances(what: str, values: Iterable[Value]) -> None:
    """A break where a tensor among these is of such a class: it is not asked for all of ``what``."""
    for value in values:
        if isinstance(value, TensorValue) and overrides_operations(value.pytype):
            raise Break(Reason.UNSUPPORTED, f"{what} of an instance of {value.pytype.__qualname__}")


class TensorValue(Value):
    """A tensor; ``pytype`` is what ``type(x)`` gives: Tensor, Parameter, Buffer or a subclass."""

    def __init__(self, ref: TensorRef, pytype: type = torch.Tensor, origin: Origin | None = None) -> None:
        self.ref, self.pytype, self.origin = ref, pytype, origin
        if ref.real is not None:
            self.real = ref.real
        self.attrs: dict[str, Value] = {}

    @property
    def fake(self) -> torch.Tensor:
        """For its dtype, shape and the like, on which what is captured depends from now on."""
        self.ref.see()
        return self.ref.fake

    def key(self) -> Any:
        self.ref.see()
        return self if self.ref.real is None else self.ref.real

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        found[id(self.ref.fake)] = self
        return self.ref

    def store_attr(self, m: Machine, name: str, value: Value | None) -> None:
        """Write ``.grad``, ``.data`` or an attribute of the user's; ``None`` deletes it."""
        ANSWERS.of(type(self), "store_attr")(m, self, name, value)

    def truth(self, m: Machine) -> bool | None:
        return ANSWERS.of(type(self), "truth")(m, self)

    def items_list(self, m: Machine) -> list[Value] | None:
        return ANSWERS.of(type(self), "items_list")(m, self)

    def rebuild(self, e: Emitter) -> str:
        if self.ref.real is not None:
            return e.output(self.ref)
        if self.pytype not in (torch.Tensor, torch.nn.Parameter):      # what the graph gives is a Tensor or a Parameter
            e.line(f"{e.output(self.ref)}.__class__ = {e.const(self.pytype)}")
        return e.tensor_with_attrs(self) if self.attrs else e.output(self.ref)

    def replay(self, e: Emitter) -> None:
        e.write_attrs(e.value(self), self)

    def __str__(self) -> str:
        return str(self.origin) if self.origin else f"a tensor of shape {tuple(self.ref.fake.shape)}"


class GradFn(Value):
    """The ``grad_fn`` of a tensor: that there is one, and of what type, is known."""

    def __init__(self, tensor: TensorValue) -> None:
        self.tensor, self.pytype = tensor, type(tensor.fake.grad_fn)

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        raise Break(Reason.UNSUPPORTED, "hashing a grad_fn")

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.value(self.tensor)}.grad_fn")

    def __str__(self) -> str:
        return f"the grad_fn of {self.tensor}"


class TensorNumber(Value):
    """A number of Python whose value is that of a 0-d tensor; made where branches on tensors go into the graph."""

    def __init__(self, ref: TensorRef, pytype: type) -> None:
        self.ref, self.pytype = ref, pytype

    def truth(self, m: Machine) -> bool | None:
        raise Break(Reason.TENSOR_TRUTH)

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.output(self.ref)}.item()")

    def __str__(self) -> str:
        return f"{self.pytype.__name__} that depends on a tensor"


class TensorBool(TensorNumber):
    """A bool of Python, likewise."""

    def __init__(self, ref: TensorRef) -> None:
        super().__init__(ref, bool)


def see_both(a: Value, b: Value) -> None:
    """Two values have been compared by identity: an operation may give its argument back, if that is of some dtype."""
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        a.ref.see()
        b.ref.see()


def is_tensor(value: Value) -> bool:
    return isinstance(value, TensorValue)

