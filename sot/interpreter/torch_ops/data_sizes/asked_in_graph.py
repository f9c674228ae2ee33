"""What only a real tensor tells: its version, its address, whether its memory is shared, whether it equals another.

A graph that is run as it is asks the tensor at the place where the program asks, so the answer is the program's. It is
a number of the graph. A backend that compiles would keep the answer of the captured call, so there it is a break. One
answer is known at capture: how often the graph has changed a tensor that it has made. Compiled code counts differently.

The strides of a result are known at capture, but for dimensions of at most one element: there each kernel has a rule of
its own once an operand has unusual strides, and fakes do not follow it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import NumberRef, TensorRef
from sot.graph.refs import version_of
from sot.graph.regions import shares_memory
from sot.interpreter.control_flow import failures
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.interpreter.torch_ops.data_sizes.examples import tensors_in
from sot.interpreter.torch_ops.overrides import asked
from sot.torch_compat.functions import is_in_transform
from sot.values.base import Const, Value
from sot.values.deferred_scalars import SIZE_BITS, DeferredScalar
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue, has_own_code
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

ATTRIBUTES = {"_version": int}
METHODS = {"data_ptr": int, "is_shared": bool, "is_pinned": bool, "equal": bool, "allclose": bool, "is_nonzero": bool,
           "__contains__": bool, "_nnz": int, "is_coalesced": bool}
FIRST = frozenset(("stride", "is_shared", "is_pinned", "_nnz", "is_coalesced"))     # asked before a fake is
OF_SPARSE = frozenset(("_nnz", "is_coalesced"))
COMPARING = frozenset(("equal", "allclose", "__contains__", "is_nonzero"))      # they read values, and may raise
DTYPES = {int: torch.int64, bool: torch.bool}


def attribute_of(tensor: torch.Tensor, name: str) -> Any:
    """The target of the node that reads an attribute."""
    return getattr(tensor, name)


def method_of(tensor: torch.Tensor, name: str, *args: Any) -> Any:
    """The target of the node that calls a method."""
    return getattr(tensor, name)(*args)


def answer_of_attribute(m: Machine, tensor: TensorValue, name: str) -> Value | None:
    kind = ATTRIBUTES.get(name)
    if kind is None or tensor.fake.is_inference():
        return None
    if name == "_version" and not m.assumptions.interprets and is_made_here(m, tensor):
        return Const(version_of(tensor.fake))
    if not can_ask(m, [tensor]):
        return None
    return answered(m, name, kind, attribute_of, (tensor.ref, name))


def is_made_here(m: Machine, tensor: TensorValue) -> bool:
    """Whether the graph has made the memory of a tensor."""
    return tensor.ref.real is None and tensor.fake.layout is torch.strided and not is_in_transform(
        tensor.fake) and not any(shares_memory(tensor.fake, given.fake) for given in m.builder.inputs
                                 if isinstance(given.fake, torch.Tensor) and given.fake.layout is torch.strided)


def answer_of_method(m: Machine, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The answer of a method, whose first argument is the tensor; None if the graph cannot ask."""
    if name == "stride":
        return strides(m, *args, **kwargs)      # type: ignore[arg-type]
    kind, found = METHODS.get(name), dict[int, Any]()
    if kind is None or kwargs:
        return None
    operands = [v.graph_argument(m, found, True) for v in args]
    if not all(isinstance(v, TensorValue) for v in found.values()) or not can_ask(m, [*found.values()], name) or not (
            args and isinstance(args[0], TensorValue)):
        return None
    if name in COMPARING and len({(v.fake.dtype, v.fake.device) for v in found.values()} | {
            type(v) for v in operands if not isinstance(v, TensorRef)}) > 1:
        m.builder.fake_mode.note_refusal()
        failures.expect(m, name)
    return answered(m, name, kind, method_of, (operands[0], name, *operands[1:]))


def strides(m: Machine, tensor: TensorValue, dim: Value | None = None) -> Value | None:
    """``x.stride()`` and ``x.stride(dim)`` if a kernel may have chosen some of the strides; otherwise None."""
    free = free_strides(tensor.fake)
    wanted = dim.real if isinstance(dim, Const) else None
    if dim is not None and (type(wanted) is not int or not -len(free) <= wanted < len(free)) or not any(
            free) or not can_ask(m, [tensor]) or not is_made_here(m, tensor) or not any(
            map(has_unusual_strides, fakes_so_far(m))):
        return None

    def stride(i: int) -> Value:
        if free[i]:
            return answered(m, "stride", int, method_of, (tensor.ref, "stride", i))
        return wrap_new(m, tensor.fake.stride(i))

    return stride(wanted) if wanted is not None else TupleValue([stride(i) for i in range(len(free))])


def free_strides(fake: torch.Tensor) -> list[bool]:
    """For each dimension, whether its stride finds no element: it has one element at most, or the tensor has none."""
    if fake.layout is not torch.strided:
        return []
    sizes = [size if type(size) is int else None for size in fake.shape]    # comparing symbols would guard them
    return [0 in sizes or size == 1 for size in sizes]


def fakes_so_far(m: Machine) -> Iterator[torch.Tensor]:
    """The fakes of the tensors that the graph is given and has made so far."""
    for ref in m.builder.inputs:
        yield from tensors_in(ref.fake)
    for node in m.builder.nodes:
        yield from tensors_in(node.meta.get("example_value"))


def has_unusual_strides(fake: torch.Tensor) -> bool:
    """Whether a free stride is another than in a contiguous tensor of these sizes."""
    usual: Any = 1
    for i, is_free in reversed([*enumerate(free_strides(fake))]):
        if is_free and str(fake.stride(i)) != str(usual):
            return True
        size = fake.shape[i]
        usual = usual * (max(size, 1) if type(size) is int else size)
    return False


def can_ask(m: Machine, tensors: list[TensorValue], name: str = "") -> bool:
    if not m.assumptions.interprets or not graph_numbers.may_be(m) or (
            graph_numbers.here(m) in m.assumptions.read_at_once):
        return False
    return not any(asked(m, v) or has_own_code(v.pytype) or is_in_transform(v.fake)
                   or (v.fake.layout is torch.strided) is (name in OF_SPARSE) for v in tensors)


def answered(m: Machine, name: str, kind: type, function: Callable[..., Any], operands: tuple,
             bits: int = SIZE_BITS) -> Value:
    points = frozenset((graph_numbers.here(m),))
    with m.symbols.admitted():
        fake = m.builder.run("call_function", lambda: torch.empty((), dtype=DTYPES[kind]).item(), (), {})
    made = NumberRef(fake, graph_numbers.EXAMPLES[kind], "", function, operands, may_raise=True)
    graph_numbers.define(m, fake, made, points)
    m.builder.compute(made, m.stack_trace())
    return DeferredScalar(kind, points, lambda e: e.output(made), bits if kind is int else 64,
                          number=lambda m: made)
