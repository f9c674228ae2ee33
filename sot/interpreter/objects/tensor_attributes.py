"""Attributes of tensors, their truth and their elements. Metadata is constant; everything else is an operation."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import fake_rules
from sot.graph.refs import version_of
from sot.guards.guards import HasKeyGuard
from sot.guards.origin import Attr
from sot.interpreter.objects import attributes
from sot.interpreter.objects.lookup import is_data_descriptor, lookup, no_attribute
from sot.interpreter.objects.tensor_facts import (
    fact,
    guarded,
    has_changed,
    is_replaced,
    refuse_chosen,
    refuse_replaced,
    resolved,
)
from sot.interpreter.torch_ops.data_sizes import asked_in_graph
from sot.interpreter.torch_ops.data_sizes.storages import set_data
from sot.interpreter.torch_ops.hooks import tensor_hooks
from sot.interpreter.torch_ops.overrides import through_overrides
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.interpreter.torch_ops.wrappers import instances, ragged_sizes
from sot.support.errors import Break, Reason
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.subclasses.wrappers import is_wrapper_class
from sot.torch_compat.tensors import ASKED_ATTRIBUTES, CONSTANT_ATTRIBUTES
from sot.values.base import ABSENT, ANSWERS, NONE, Const, Value
from sot.values.callables import BoundMethod
from sot.values.objects import DELETED, TupleValue
from sot.values.tensor import BASIC, VIEWS, GradFn, TensorValue, overrides_operations
from sot.values.wrapping import wrap_attr, wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

OF_HISTORY = frozenset({"grad", "grad_fn", "is_leaf"})      # torch looks at a tensor's history to answer these

METHODS_OF_NODES = frozenset({"register_hook", "register_prehook"})


@ANSWERS.add((TensorValue, "load_attr"))
def load_attr(m: Machine, tensor: TensorValue, name: str) -> Value:
    if is_wrapper_class(tensor.pytype) and (held := instances.attribute(m, tensor, name)) is not None:
        return held
    if tensor.pytype not in BASIC and (not hasattr(torch.Tensor, name) or name == "__torch_function__"):
        return load_of_subclass(m, tensor, name)
    replaced, owner = resolved(m, tensor.pytype, name)
    if is_replaced(replaced, name):
        return attributes.bind(m, tensor, tensor.pytype, replaced, owner, name)
    if name in tensor.attrs:
        held = tensor.attrs[name]
        if name == "data":      # another tensor at each read
            return torch_call(m, "call_function", getattr, [held, Const("data")], {})
        return missing_attr(m, tensor, name) if held is DELETED else held
    if overrides_operations(tensor.pytype) and (answer := through_class(m, tensor, name)) is not None:
        return answer
    if name == "nbytes" and is_symbolic(tensor.fake):
        return wrap_new(m, tensor.fake.numel() * tensor.fake.itemsize)
    if name in OF_HISTORY and any(t is not None and refused(t) for t in (tensor.fake, tensor.ref.real)):
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of {tensor}, whose history autograd refuses to return,")
    if name in CONSTANT_ATTRIBUTES or name in ASKED_ATTRIBUTES:
        return metadata(m, tensor, name)
    if name in VIEWS:
        return torch_call(m, "call_function", getattr, [tensor, Const(name)], {})
    if name == "__class__":
        return wrap_known(m, tensor.pytype)
    if name == "grad" and tensor.ref.real is not None:
        refuse_unkept(m, tensor)
        return wrap_attr(m, tensor, name, tensor.ref.real.grad)
    if name == "grad" and tensor.fake.is_leaf:
        return NONE
    if name == "grad_fn":
        return grad_fn(m, tensor)
    if name == "_base" and (base := base_of(m, tensor)) is not None:
        return base
    found = getattr(tensor.pytype, name, None)
    if found is None:
        return instance_attr(m, tensor, name)
    if callable(found):
        if tensor.ref.real is not None and name in tensor.ref.real.__dict__:    # an attribute of that name hides it
            return wrap_attr(m, tensor, name, tensor.ref.real.__dict__[name])
        return BoundMethod(Const(found), tensor, name)
    if (answer := asked_in_graph.answer_of_attribute(m, tensor, name)) is not None:
        return answer
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")


def refuse_unkept(m: Machine, tensor: TensorValue) -> None:
    """Break if PyTorch warns when ``.grad`` of this input is read: it names the line that reads."""
    if tensor.pytype is torch.Tensor:       # a guard for each parameter would cost too much
        fact(m, tensor, "is_leaf")
    is_leaf = all(t is None or t.is_leaf for t in (tensor.fake, tensor.ref.real))
    if not is_leaf and not guarded(m, tensor, "retains_grad"):
        raise Break(Reason.UNSUPPORTED, f"reading .grad of {tensor}, which is not a leaf,")


def grad_fn(m: Machine, tensor: TensorValue) -> Value:
    """The fake's grad_fn has the type of the program's grad_fn, unless the history began before the frame."""
    real = tensor.ref.real
    if real is not None and not has_changed(tensor):
        return wrap_attr(m, tensor, "grad_fn", real.grad_fn)
    refuse_chosen(m, "grad_fn")
    if tensor.fake.grad_fn is None and (real is None or not real.requires_grad or guarded(m, tensor, "is_leaf")):
        return NONE
    if real is not None:        # a change without gradients keeps a grad_fn, and the fake of an input has none
        raise Break(Reason.UNSUPPORTED, f"reading .grad_fn of {tensor}, which has been changed,")
    if any(is_changed_view(made.meta.get("example_value")) for made in m.builder.nodes):
        raise Break(Reason.UNSUPPORTED, f"reading .grad_fn of {tensor} after a view or its base has been changed")
    return node_of(m, GradFn(tensor, tensor.fake.grad_fn))


def is_changed_view(fake: Any) -> bool:
    """Whether this is a view with a history that may have been changed in place. Autograd makes a new node for it. The
    node of a fake has another class, because a fake repeats the operation of the view.
    """
    return isinstance(fake, torch.Tensor) and fake.requires_grad and fake._is_view() and version_of(fake) > 0


def base_of(m: Machine, tensor: TensorValue) -> Value | None:
    """The tensor of which this one is a view: an input, or None. None in Python: it is another tensor."""
    real = tensor.ref.real
    if real is not None:
        return None if guarded(m, tensor, "_is_view") or has_changed(tensor) else NONE
    base = tensor.fake._base
    refuse_chosen(m, "_base")
    if base is None:
        return NONE
    found = next((v for _, v in m.by_id.values() if isinstance(v, TensorValue) and v.ref.fake is base), None)
    is_whole = found is not None and not is_wrapper_class(found.pytype) and not guarded(m, found, "_is_view")
    return found if is_whole and m.assumptions.interprets else None


def node_of(m: Machine, made: GradFn) -> Value:
    """The one value of a node, of which the program may ask whether it is another one."""
    return m.grad_fns.setdefault(made.node, made)


@ANSWERS.add((GradFn, "load_attr"))
def load_of_node(m: Machine, node: GradFn, name: str) -> Value:
    if not m.assumptions.interprets:        # a graph that is compiled gives its results a node of its own
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a grad_fn")
    if any(made.target is fake_rules.on_packed for made in m.builder.nodes):    # whose fakes have other nodes
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a grad_fn after an operation that reads values")
    if name == "name":
        return KnownAnswer(Const(node.node.name()))
    if name in METHODS_OF_NODES:
        return tensor_hooks.MethodOfNode(node, name)
    if isinstance(node.node, torch.autograd.function.BackwardCFunction):
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of the grad_fn of an autograd.Function")
    if name != "next_functions":
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of a grad_fn")
    found: list[Value] = []
    for i, (below, place) in enumerate(node.node.next_functions):
        leaf = getattr(below, "variable", None)
        if leaf is not None:
            if (held := m.leaves.get(id(leaf))) is None:
                raise Break(Reason.UNSUPPORTED, "reading .next_functions of a grad_fn whose history began before")
            if held.ref.real is not None:
                guarded(m, held, "is_leaf")
        found.append(TupleValue([NONE if below is None else node_of(m, GradFn(
            node.tensor, below, f"{node.path}.next_functions[{i}][0]")), Const(place)]))
    return TupleValue(found)


class KnownAnswer(Value):
    """A function without arguments whose result is known."""

    def __init__(self, answer: Value) -> None:
        self.answer = answer

    def call(self, m: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args or kwargs:
            raise Break(Reason.UNSUPPORTED, "arguments of a method of a grad_fn")
        return self.answer


def through_class(m: Machine, tensor: TensorValue, name: str) -> Value | None:
    """An attribute of torch.Tensor, if the tensor's class overrides how it is read; else None."""
    if name == "__class__" or callable(getattr(torch.Tensor, name, None)):
        return None
    if m.asks_classes and not m.modes:
        return through_overrides(m, "call_function", getattr, (tensor.ref, name), {}, {id(tensor.ref.fake): tensor})
    if name in ("grad", "grad_fn"):     # emitted code would read it, and call the class
        raise Break(Reason.UNSUPPORTED, f"reading .{name} of an instance of {tensor.pytype.__qualname__}")
    return None


def load_of_subclass(m: Machine, tensor: TensorValue, name: str) -> Value:
    """An attribute that torch.Tensor does not have, by Python's protocol."""
    tensor.ref.see()
    raw, owner = lookup(m, tensor.pytype, name)
    if raw is not ABSENT and is_data_descriptor(raw):
        return attributes.get_data(m, tensor, raw, owner, name)
    if name in tensor.attrs and tensor.attrs[name] is not DELETED:
        return tensor.attrs[name]
    real = tensor.ref.real
    if real is not None and name not in tensor.attrs:
        if name in real.__dict__:
            return wrap_attr(m, tensor, name, real.__dict__[name])
        if tensor.origin is None:
            raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")
        m.guard(HasKeyGuard(Attr(tensor.origin, "__dict__"), name, False))
    if raw is not ABSENT:
        return attributes.bind(m, tensor, tensor.pytype, raw, owner, name)
    return attributes.missing(m, tensor, name)


def metadata(m: Machine, tensor: TensorValue, name: str) -> Value:
    answer = None
    if m.modes:
        answer = through_overrides(m, "call_function", getattr, (tensor.ref, name), {}, {id(tensor.ref.fake): tensor})
    if answer is not None:
        return answer
    if name in ASKED_ATTRIBUTES:
        return fact(m, tensor, name)
    return ragged_sizes.read(m, tensor, getattr(tensor.fake, name))


def instance_attr(m: Machine, tensor: TensorValue, name: str) -> Value:
    tensor.ref.see()
    real = tensor.ref.real
    if real is not None and name in real.__dict__:
        return wrap_attr(m, tensor, name, real.__dict__[name])
    if real is None or not hasattr(real, name):
        if real is not None and tensor.origin is not None:
            m.guard(HasKeyGuard(Attr(tensor.origin, "__dict__"), name, False))
        return missing_attr(m, tensor, name)
    raise Break(Reason.UNSUPPORTED, f"reading .{name} of a tensor")


def missing_attr(m: Machine, tensor: TensorValue, name: str) -> Any:
    return no_attribute(m, f"{tensor.pytype.__name__!r} object has no attribute {name!r}", name, tensor)


@ANSWERS.add((TensorValue, "store_attr"))
def store_attr(m: Machine, tensor: TensorValue, name: str, value: Value | None) -> None:
    """Write ``.grad``, ``.data`` or a user attribute. ``None`` deletes it."""
    tensor.ref.see()      # another call may pass the same tensor twice
    overridden = overrides_operations(tensor.pytype) and hasattr(torch.Tensor, name)
    if overridden or is_wrapper_class(tensor.pytype) and not drops_gradient(name, value):
        raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {tensor}, which its class may override,")
    if name == "requires_grad" and value is not None:
        torch_call(m, "call_method", "requires_grad_", [tensor, value], {})
        return
    if name == "data" and isinstance(value, TensorValue):
        return set_data(m, tensor, value)
    native, _ = lookup(None, tensor.pytype, name)
    if name == "grad" and (value is None or not may_be_grad(tensor, value)):
        raise Break(Reason.SIDE_EFFECT, f"setting .grad of {tensor}")
    if name != "grad" and is_data_descriptor(native):
        raise Break(Reason.SIDE_EFFECT, f"setting .{name} of {tensor}")
    if value is None:
        tensor.load_attr(m, name)     # raises if there is none
    before = dict(tensor.attrs)
    m.touch(tensor, lambda: setattr(tensor, "attrs", before))
    tensor.attrs = {**before, name: DELETED if value is None else value}
    if value is None and not had_attr(m, tensor, name):
        del tensor.attrs[name]      # set by the trace itself


def drops_gradient(name: str, value: Value | None) -> bool:
    return name == "grad" and isinstance(value, Const) and value.real is None


def had_attr(m: Machine, tensor: TensorValue, name: str) -> bool:
    """Has the program's tensor an attribute of its own of that name, before the frame?"""
    real = tensor.ref.real
    if real is None:
        return False
    if tensor.origin is None:
        raise Break(Reason.SIDE_EFFECT, f"deleting .{name} of {tensor}")
    had = name in real.__dict__
    m.guard(HasKeyGuard(Attr(tensor.origin, "__dict__"), name, had))
    return had


def may_be_grad(tensor: TensorValue, value: Value) -> bool:
    if isinstance(value, TensorValue):
        mine, its = tensor.fake, value.fake
        return value is not tensor and (mine.shape, mine.dtype, mine.device) == (its.shape, its.dtype, its.device)
    return isinstance(value, Const) and value.real is None


@ANSWERS.add((TensorValue, "truth"))
def truth(m: Machine, tensor: TensorValue) -> bool | None:
    result = torch_call(m, "call_function", bool, [tensor], {}, reason=Reason.TENSOR_TRUTH)
    return bool(result.constant())


@ANSWERS.add((TensorValue, "items_list"))
def items_list(m: Machine, tensor: TensorValue) -> list[Value] | None:
    refuse_replaced(m, tensor, "__iter__")
    if tensor.fake.dim() == 0:
        raise Break(Reason.OPERATION_FAILED, "iteration over a 0-d tensor")
    if m.modes or m.asks_classes and overrides_operations(tensor.pytype):
        torch_call(m, "call_method", "dim", [tensor], {})      # torch calls it, too
    return torch_call(m, "call_method", "unbind", [tensor, Const(0)], {}).items_list(m)
