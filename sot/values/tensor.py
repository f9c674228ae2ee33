"""Tensors: a reference into the graph. Attributes and methods become nodes or constants."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.graph.refs import version_of
from sot.guards.guards import HasKeyGuard
from sot.guards.origin import Attr, Origin
from sot.support.errors import Break, Reason
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.functions import DISABLED
from sot.values.base import ABSENT, NONE, Const, Value
from sot.values.callables import BoundMethod
from sot.values.objects import DELETED
from sot.values.wrapping import wrap_attr, wrap_known, wrap_new

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sot.values.protocols import Emitter, Machine

# Attributes that are metadata: read off the fake tensor, as constants.
METADATA = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_cpu", "layout",
                      "is_sparse", "is_quantized", "is_meta", "is_mps", "is_xla", "is_mkldnn", "is_nested", "is_leaf",
                      "itemsize", "nbytes", "is_sparse_csr", "is_xpu", "is_vulkan", "is_ipu", "is_mtia", "is_maia",
                      "output_nr", "retains_grad"})
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

    def load_attr(self, m: Machine, name: str) -> Value:
        if self.pytype not in BASIC and (not hasattr(torch.Tensor, name) or name == "__torch_function__"):
            return self._load_of_subclass(m, name)
        if name in self.attrs:
            held = self.attrs[name]
            return self._no_attribute(m, name) if held is DELETED else held
        if overrides_operations(self.pytype) and (answer := self._through_class(m, name)) is not None:
            return answer
        if name == "nbytes" and is_symbolic(self.fake):
            return wrap_new(m, self.fake.numel() * self.fake.itemsize)
        if name in METADATA:
            return self._metadata(m, name)
        if name in VIEWS:
            return m.torch_call("call_function", getattr, [self, Const(name)], {})
        if name == "__class__":
            return wrap_known(m, self.pytype)
        if name == "grad" and self.ref.real is not None:
            return wrap_attr(m, self, name, self.ref.real.grad)
        if name == "grad" and self.fake.is_leaf:
            return NONE
        if name == "grad_fn":
            return self._grad_fn(m)
        found = getattr(self.pytype, name, None)
        if found is None:
            return self._instance_attr(m, name)
        if callable(found):
            if self.ref.real is not None and name in self.ref.real.__dict__:    # hidden by an attribute of that name
                return wrap_attr(m, self, name, self.ref.real.__dict__[name])
            return BoundMethod(Const(found), self, name)
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")

    def _grad_fn(self, m: Machine) -> Value:
        """What the fake has is of the type that it has in the program, but where the history began before the frame."""
        real = self.ref.real
        if self.fake.grad_fn is None:
            return NONE
        if real is not None and version_of(self.fake) == self.ref.version:
            return wrap_attr(m, self, "grad_fn", real.grad_fn)
        return GradFn(self)

    def _through_class(self, m: Machine, name: str) -> Value | None:
        """An attribute that torch has, of a tensor whose class is asked for it; None if it is not."""
        if name == "__class__" or callable(getattr(torch.Tensor, name, None)):
            return None
        if m.asks_classes and not m.modes:
            return m.through_overrides(m, "call_function", getattr, (self.ref, name), {}, {id(self.ref.fake): self})
        if name in ("grad", "grad_fn"):     # emitted code would read it, and ask the class
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of an instance of {self.pytype.__qualname__}")
        return None

    def _load_of_subclass(self, m: Machine, name: str) -> Value:
        """An attribute that torch.Tensor does not have, by Python's protocol."""
        self.ref.see()
        raw, owner = m.attributes.lookup(m, self.pytype, name)
        if raw is not ABSENT and m.attributes.is_data_descriptor(raw):
            return m.attributes.get_data(m, self, raw, owner, name)
        if name in self.attrs and self.attrs[name] is not DELETED:
            return self.attrs[name]
        real = self.ref.real
        if real is not None and name not in self.attrs:
            if name in real.__dict__:
                return wrap_attr(m, self, name, real.__dict__[name])
            if self.origin is None:
                raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")
            m.guard(HasKeyGuard(Attr(self.origin, "__dict__"), name, False))
        if raw is not ABSENT:
            return m.attributes.bind(m, self, self.pytype, raw, owner, name)
        return m.attributes.missing(m, self, name)

    def _metadata(self, m: Machine, name: str) -> Value:
        answer = None
        if m.modes:
            answer = m.through_overrides(m, "call_function", getattr, (self.ref, name), {}, {id(self.ref.fake): self})
        return wrap_new(m, getattr(self.fake, name)) if answer is None else answer

    def _instance_attr(self, m: Machine, name: str) -> Value:
        self.ref.see()
        real = self.ref.real
        if real is not None and name in real.__dict__:
            return wrap_attr(m, self, name, real.__dict__[name])
        if real is None or not hasattr(real, name):
            if real is not None and self.origin is not None:
                m.guard(HasKeyGuard(Attr(self.origin, "__dict__"), name, False))
            return self._no_attribute(m, name)
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")

    def _no_attribute(self, m: Machine, name: str) -> Any:
        return m.attributes.no_attribute(m, f"{self.pytype.__name__!r} object has no attribute {name!r}", name, self)

    def store_attr(self, m: Machine, name: str, value: Value | None) -> None:
        """Write ``.grad``, ``.data`` or an attribute of the user's; ``None`` deletes it."""
        self.ref.see()      # it may be the tensor that another one is at another call
        if overrides_operations(self.pytype) and hasattr(torch.Tensor, name):
            raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {self}, which its class may override,")
        if name == "requires_grad" and value is not None:
            m.torch_call("call_method", "requires_grad_", [self, value], {})
            return
        if name == "data" and isinstance(value, TensorValue):
            return m.set_data(self, value)
        native, _ = m.attributes.lookup(None, self.pytype, name)
        if name == "grad" and (value is None or not self._may_be_grad(value)):
            raise Break(Reason.SIDE_EFFECT, f"setting .grad of {self}")
        if name != "grad" and m.attributes.is_data_descriptor(native):
            raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {self}")
        if value is None:
            self.load_attr(m, name)     # raises if there is none
        before = dict(self.attrs)
        m.touch(self, lambda: setattr(self, "attrs", before))
        self.attrs = {**before, name: DELETED if value is None else value}

    def _may_be_grad(self, value: Value) -> bool:
        if isinstance(value, TensorValue):
            mine, its = self.fake, value.fake
            return value is not self and (mine.shape, mine.dtype, mine.device) == (its.shape, its.dtype, its.device)
        return isinstance(value, Const) and value.real is None

    def truth(self, m: Machine) -> bool | None:
        result = m.torch_call("call_function", bool, [self], {}, reason=Reason.TENSOR_TRUTH)
        return bool(result.constant())

    def items_list(self, m: Machine) -> list[Value] | None:
        if self.fake.dim() == 0:
            raise Break(Reason.OPERATION_FAILED, "iteration over a 0-d tensor")
        if m.modes or m.asks_classes and overrides_operations(self.pytype):
            m.torch_call("call_method", "dim", [self], {})      # which torch asks for, too
        return m.torch_call("call_method", "unbind", [self, Const(0)], {}).items_list(m)

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

