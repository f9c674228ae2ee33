"""Tensors: a reference into the graph. Attributes and methods become nodes or constants."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import NumberRef, TensorRef
from sot.guards.origin import Origin
from sot.support.errors import Break, Reason
from sot.torch_compat.functions import DISABLED
from sot.torch_compat.subclasses.wrappers import is_own_class_of_torch, is_ragged, is_wrapper_class
from sot.values.base import ANSWERS, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sot.values.protocols import Emitter, Machine

# Attributes that are operations.
VIEWS = frozenset({"T", "mT", "H", "mH", "real", "imag", "data"})


BASIC = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def overrides_operations(kind: type) -> bool:
    """Whether it is a class of tensors whose ``__torch_function__`` torch calls."""
    return kind not in BASIC and (
        getattr(kind, "__torch_function__", None) is not DISABLED) and not is_own_class_of_torch(kind)


def has_own_code(kind: type) -> bool:
    """Whether operations on instances of a class of tensors run its code."""
    return kind not in BASIC and (overrides_operations(kind) or is_wrapper_class(kind))


def refuse_instances(what: str, values: Iterable[Value]) -> None:
    """Break if one of these tensors is of such a class, because ``what`` does not call it for all operations."""
    for value in values:
        if isinstance(value, TensorValue) and has_own_code(value.pytype):
            raise Break(Reason.UNSUPPORTED, f"{what} of an instance of {value.pytype.__qualname__}")


class TensorValue(Value):
    """A tensor. ``pytype`` is ``type(x)``: Tensor, Parameter, Buffer or a subclass."""

    def __init__(self, ref: TensorRef, pytype: type = torch.Tensor, origin: Origin | None = None) -> None:
        self.ref, self.pytype, self.origin = ref, pytype, origin
        if ref.real is not None:
            self.real = ref.real
        self.attrs: dict[str, Value] = {}
        self.may_be: frozenset[TensorRef] = frozenset()     # the tensors one of which it is; see random_branches.py
        # whether zero_grad alone has read the gradient that it had before the frame, and nothing before can raise
        self.drops_gradient = False

    @property
    def fake(self) -> torch.Tensor:
        """The fake tensor, for its dtype, shape and so on. From now on the capture depends on them."""
        ref = self.current().ref
        ref.see()
        return ref.fake

    def key(self) -> Any:
        self.ref.see()
        if self.may_be:
            raise Break(Reason.UNSUPPORTED, "a tensor that a branch chooses, as a key")
        return self if self.ref.real is None else self.ref.real

    def current(self) -> TensorValue:
        """What operations get: the new data, if the program has set ``.data`` and Python does so after the graph. The
        history of a tensor that requires grad would be lost, so there it is a break.
        """
        new = self.attrs.get("data")
        if not isinstance(new, TensorValue):
            return self
        if self.ref.fake.requires_grad:
            raise Break(Reason.UNSUPPORTED, f"{self}, which requires grad, after a change of its .data,")
        return new

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        ref = self.current().ref
        found[id(ref.fake)] = self
        return ref

    def store_attr(self, m: Machine, name: str, value: Value | None) -> None:
        """Write ``.grad``, ``.data`` or a user attribute. ``None`` deletes it."""
        ANSWERS.of(type(self), "store_attr")(m, self, name, value)

    def truth(self, m: Machine) -> bool | None:
        return ANSWERS.of(type(self), "truth")(m, self)

    def items_list(self, m: Machine) -> list[Value] | None:
        return ANSWERS.of(type(self), "items_list")(m, self)

    def rebuild(self, e: Emitter) -> str:
        if self.ref.real is not None:
            return e.output(self.ref)
        # a result of the graph is a Tensor or a Parameter
        if self.pytype not in (torch.Tensor, torch.nn.Parameter) and not is_wrapper_class(self.pytype):
            e.line(f"{e.output(self.ref)}.__class__ = {e.const(self.pytype)}")
        return e.tensor_with_attrs(self) if self.attrs else e.output(self.ref)

    def replay(self, e: Emitter) -> None:
        e.write_attrs(e.value(self), self)

    def __str__(self) -> str:
        return str(self.origin) if self.origin else f"a tensor of shape {tuple(self.ref.fake.shape)}"


class GradFn(Value):
    """The ``grad_fn`` of a tensor, or a node below it, by its ``path`` in emitted code. Capture knows that it exists,
    its type, its name and the nodes below, from the fake ``node``. Python reads all else of the node, because a graph
    that is compiled gives its results a node of its own.
    """

    def __init__(self, tensor: TensorValue, node: Any, path: str = "") -> None:
        self.tensor, self.node, self.path = tensor, node, path
        self.pytype = type(node)

    def truth(self, m: Machine) -> bool | None:
        return True

    def load_attr(self, m: Machine, name: str) -> Value:
        return ANSWERS.of(type(self), "load_attr")(m, self, name)

    def key(self) -> Any:
        raise Break(Reason.UNSUPPORTED, "hashing a grad_fn")

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.value(self.tensor)}.grad_fn{self.path}")

    def __str__(self) -> str:
        return f"the grad_fn of {self.tensor}"


class RaggedSize(Value):
    """The size of a ragged dimension of a nested tensor. It is read off that tensor, in the graph or after it."""

    pytype = torch.SymInt

    def __init__(self, tensor: TensorValue, size: torch.SymInt) -> None:
        self.tensor, self.size = tensor, size

    @property
    def dimension(self) -> int:
        places = [i for i, size in enumerate(self.tensor.fake.shape) if is_ragged(size) and (
            size.node.nested_int_coeff() == self.size.node.nested_int_coeff() == 1)]    # type: ignore[attr-defined]
        if not places:
            raise Break(Reason.UNSUPPORTED, "a number computed from the size of a ragged dimension")
        return places[0]

    def key(self) -> Any:
        raise Break(Reason.UNSUPPORTED, "hashing the size of a ragged dimension")

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> Any:
        ref = NumberRef(self.size, None)
        ref.node = m.builder.record("call_method", "size", (self.tensor.ref, self.dimension), {}, self.size, "")
        return ref

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.value(self.tensor)}.size({self.dimension})")

    def __str__(self) -> str:
        return "the size of a ragged dimension"


class TensorNumber(Value):
    """A Python number whose value is that of a 0-d tensor. It is made where branches on tensors become part of the
    graph.
    """

    def __init__(self, ref: TensorRef, pytype: type) -> None:
        self.ref, self.pytype = ref, pytype

    def truth(self, m: Machine) -> bool | None:
        raise Break(Reason.TENSOR_TRUTH)

    def rebuild(self, e: Emitter) -> str:
        return e.variable(self, f"{e.output(self.ref)}.item()")

    def __str__(self) -> str:
        return f"{self.pytype.__name__} that depends on a tensor"


class TensorBool(TensorNumber):
    """A Python bool whose value is that of a 0-d tensor."""

    def __init__(self, ref: TensorRef) -> None:
        super().__init__(ref, bool)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> bool:
        """An operation takes a bool only if it is the same for all values of tensors."""
        return ANSWERS.of(TensorBool, "known_truth")(m, self)


def see_both(a: Value, b: Value) -> None:
    """Two values were compared by identity. An operation may return its argument, depending on the dtype."""
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        a.ref.see()
        b.ref.see()
        if (a.may_be | {a.ref}) & (b.may_be | {b.ref}):
            raise Break(Reason.UNSUPPORTED, "the identity of a tensor that a branch chooses")


def is_tensor(value: Value) -> bool:
    return isinstance(value, TensorValue)

