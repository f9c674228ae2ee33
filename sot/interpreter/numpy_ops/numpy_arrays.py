"""Operations on NumPy arrays and numbers: nodes that call NumPy itself, in the order of the program.

``array_call`` is the only entry. It finds dtype, shape and memory of a result by running the operation on specimens
(``sot/values/arrays.py``). So it takes only operations for which these do not depend on values
(``numpy_functions.py``). An operation that fails on specimens is a break. With a backend that compiles graphs, each
operation is a break.

NumPy may warn while it computes. In a graph it raises instead (``raising``). Then Python runs the frame from its start
and warns. Python cannot do so after a change that is visible from outside. Memory of few elements is put back then
(``putting_back``); otherwise there is a break before such an operation.
"""
from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx

from sot.graph import NumberRef, TensorRef
from sot.interpreter.control_flow import failures
from sot.interpreter.numpy_ops.memory import Memory
from sot.interpreter.torch_ops import deferred_scalars
from sot.support.errors import Break, Reason
from sot.support.settings import COPIED
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.tensors import storage_id, without_subclasses
from sot.values.arrays import ArrayRef, ArrayValue, Layout, may_call_numpy
from sot.values.base import ANSWERS, FALSE, NONE, Const, Value
from sot.values.constants import SCALARS
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

PLAIN = (int, float, complex, bool, str, type(None), type(Ellipsis), range, torch.dtype, torch.device)
NUMBERS = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
# These warnings are breaks: they come from NumPy's Python code, or concern the caller, which is this file.
FILTER = "error", None, Warning, re.compile(rf"(numpy\b.*|{re.escape(__name__)})\Z"), 0


# ---- arguments --------------------------------------------------------------------------------------------------
def among(*values: Value) -> bool:
    return any(isinstance(v, ArrayValue) for v in values)


def holds(m: Machine, value: Value, kind: type[Value] = ArrayValue) -> bool:
    """Whether it contains an array."""
    if isinstance(value, (ListValue, TupleValue)):
        return any(holds(m, v, kind) for v in m.settle(value.items))
    return isinstance(value, kind)


@ANSWERS.add((Const, "array_argument"))
def constant_argument(m: Machine, value: Const) -> Any:
    return constant(m, value.real)


def constant(m: Machine, real: Any) -> Any:
    """A constant as an argument of a node: a dtype by its name, a NumPy number by a node that makes it."""
    kind = type(real)
    if kind in PLAIN:
        return real
    if kind in (tuple, slice):
        parts = real if kind is tuple else (real.start, real.stop, real.step)
        made = tuple(constant(m, part) for part in parts)
        return made if kind is tuple else slice(*made)
    if kind in SCALARS:
        layout = Layout(kind, real.dtype)
        node = m.builder.record_array("call_function", kind, (real.item(),), {}, layout, m.stack_trace())
        return ArrayRef(layout, None, node)
    if isinstance(real, np.dtype) and real.isnative and real.type in SCALARS and real.metadata is None:
        return real.name
    if isinstance(real, type) and (real in SCALARS or real in NUMBERS):
        return NUMBERS.get(real) or np.dtype(real).name
    raise Break(Reason.OPAQUE_VALUE, f"{real!r:.60} as an argument of NumPy")


def refs_in(value: Any) -> Iterator[TensorRef]:
    found: list[TensorRef] = []
    fx.node.map_aggregate(value, lambda v: found.append(v) if isinstance(v, TensorRef) else None)
    yield from found


# ---- running ----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Ignore warnings that depend on a specimen's values; other warnings are errors. Affects only this thread."""
    filters = warnings.filters
    filters.insert(0, FILTER)       # type: ignore[attr-defined]
    try:
        with np.errstate(all="ignore"), torch.no_grad():
            yield
    finally:
        with contextlib.suppress(ValueError):
            filters.remove(FILTER)  # type: ignore[attr-defined]


class Trial:
    """An operation on specimens: its result, and which parts of it are arguments or share memory with one."""

    def __init__(self, kind: str, target: Any, args: tuple, kwargs: dict, writeable: Iterable[TensorRef],
                 positions: Iterable[TensorRef]) -> None:
        written, at = {id(ref) for ref in writeable}, {id(ref) for ref in positions}
        self.given: dict[int, tuple[ArrayRef, Any]] = {}

        def specimen(value: Any) -> Any:
            if isinstance(value, NumberRef):
                return value.real
            if not isinstance(value, ArrayRef):
                return value
            if id(value) not in self.given:
                self.given[id(value)] = value, value.layout.specimen(id(value) not in at, id(value) in written)
            return self.given[id(value)][1]
        args, kwargs = fx.node.map_aggregate((args, kwargs), specimen)
        try:
            with strict():
                self.result = getattr(args[0], target)(*args[1:], **kwargs) if kind == "call_method" else (
                    target(*args, **kwargs))
        except Exception as e:
            raise Break(Reason.OPERATION_FAILED, f"{name_of(target)}: {e}".splitlines()[0]) from None

    def same(self, result: Any) -> Value | None:
        """The argument that is this result."""
        return next((ref.value for ref, real in self.given.values() if real is result), None)

    def base(self, result: Any) -> ArrayRef | None:
        """The argument that the result is a view of."""
        return next((ref for ref, real in self.given.values() if isinstance(real, np.ndarray)
                     and np.may_share_memory(real, result)), None)


def name_of(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def array_call(m: Machine, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value], *, quiet: bool = True,
               written: tuple[int, ...] = (), lent: tuple[int, ...] = (), positions: tuple[int, ...] = ()) -> Value:
    """Run an operation on specimens and record it.

    Arguments:
        kind, target, args, kwargs: as for an FX node.
        quiet: whether NumPy never warns, whatever the values are.
        written: the arguments that it writes to, besides ``out``.
        lent: the arguments that must be writable, although it does not write to them.
        positions: the arguments that contain positions, which may be out of range.
    """
    if not may_call_numpy(m):
        raise Break(Reason.OPAQUE_CALL, f"numpy.{name_of(target)}")
    before = m.builder.mark()
    try:
        graph_args = tuple(v.array_argument(m) for v in args)
        graph_kwargs = {k: v.array_argument(m) for k, v in kwargs.items()}
        writes = [ref for ref in refs_in((tuple(graph_args[i] for i in written), graph_kwargs.get("out")))
                  if isinstance(ref, ArrayRef)]
        at = [*refs_in(tuple(graph_args[i] for i in positions))]
        writeable = [*writes, *refs_in(tuple(graph_args[i] for i in lent))]
        trial = Trial(kind, target, graph_args, graph_kwargs, writeable, at)
        if not has_arrays(trial.result) and not (writes and trial.result is None):
            raise Break(Reason.TENSOR_VALUE, f"{name_of(target)} of an array")
        note_failures(m, name_of(target), quiet, bool(at) or any(
            isinstance(ref, NumberRef) for ref in refs_in((graph_args, graph_kwargs))), writes)
    except Break:
        m.builder.cut(before)
        raise
    layout = Layout.of(trial.result) or writes and writes[0].layout
    node = m.builder.record_array(kind, target, graph_args, graph_kwargs, layout or None, m.stack_trace(), not quiet)
    for ref in writes:
        note_write(m, node, ref)
    return structure(m, trial, node, trial.result)


def has_arrays(result: Any) -> bool:
    """Whether it is an array, a NumPy number, or a tuple or list of these."""
    if isinstance(result, torch.Tensor):
        return result.device.type == "cpu" and not result.requires_grad
    if type(result) in (tuple, list):
        return bool(result) and all(isinstance(v, (np.ndarray, np.generic)) and has_arrays(v) for v in result)
    return Layout.of(result) is not None


def note_failures(m: Machine, name: str, quiet: bool, may_refuse: bool, writes: list[ArrayRef]) -> None:
    """Break if Python could not run the frame again."""
    mode, memory = m.builder.fake_mode, m.array_memory
    mode.may_refuse, mode.changes_unversioned, mode.draws_now = may_refuse or not quiet, False, False
    visible = any(memory.is_visible(m, ref.memory) for ref in writes)
    lasts = visible and not put_back(m, writes)
    if lasts and not quiet:
        raise Break(Reason.SIDE_EFFECT, f"{name}, which changes an array and may warn,")
    failures.expect(m, name, is_ours=not quiet)
    if lasts and may_refuse:
        raise Break(Reason.UNSUPPORTED, f"{name}, which changes an array, after an operation that may raise or warn,")
    if lasts:
        failures.refuse_lasting(m, f"a change of an array by {name}")
    m.builder.changes_traceless = m.builder.changes_traceless or lasts


def put_back(m: Machine, writes: list[ArrayRef]) -> bool:
    """Whether the inputs that these writes change get their elements back if the graph fails: few elements of tensors
    that the graph changes in no other way. Another part of the memory may belong to anything.
    """
    memory = [ref.memory for ref in writes if m.array_memory.is_visible(m, ref.memory)]
    if not m.assumptions.interprets or m.builder.region is not None or m.hooked or any(each.outside for each in memory):
        return False
    storages = set[int]().union(*(each.storages for each in memory))
    refs = [ref for ref in m.builder.inputs if isinstance(ref.fake, torch.Tensor) and storage_id(ref.fake) in storages]
    if any(type(ref.real) is not torch.Tensor or is_symbolic(ref.fake) or not ref.real.is_contiguous()
           for ref in refs):
        return False
    before = m.builder.put_back
    made = [*before, *(ref for ref in refs if ref not in before)]
    if sum(ref.real.numel() for ref in made if ref.real is not None) > COPIED:
        return False
    m.builder.put_back = made
    m.undoable(lambda: setattr(m.builder, "put_back", before))
    return True


def note_write(m: Machine, node: fx.Node, ref: ArrayRef) -> None:
    """Record that the node changes an array: values that show this memory later show its earlier state."""
    m.array_memory.is_written = True
    written = set(ref.memory.storages)
    if ref.memory.outside:
        written |= {storage_id(r.fake) for r in m.builder.inputs if isinstance(r.fake, torch.Tensor)}
        written |= {storage_id(shown.tensor.fake) for shown in m.shown if shown.tensor.real is not None}
    node.meta["changes"] = written
    for shown in m.shown:
        shown.note_change(m, node, written)


def structure(m: Machine, trial: Trial, node: fx.Node, result: Any) -> Value:
    """The Value of a node's result."""
    if result is None:
        return NONE
    if type(result) in (tuple, list):
        items = [structure(m, trial, m.builder.item(node, i, Layout.of(v)), v) for i, v in enumerate(result)]
        return TupleValue(items) if type(result) is tuple else ListValue(items)
    if isinstance(result, torch.Tensor):
        return made_tensor(m, trial, node, result)
    if (same := trial.same(result)) is not None:
        return same
    layout = Layout.of(result)
    assert layout is not None
    if not layout.is_array:
        return made(layout, None, node)
    base = trial.base(result)
    if base is not None and base.layout.writeable and any(
            s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True)):
        raise Break(Reason.UNSUPPORTED, f"{name_of(node.target)}, which repeats an array's memory,")
    if base is not None:
        layout = Layout(layout.kind, layout.dtype, layout.shape, layout.strides, base.layout.writeable)
    return made(layout, Memory() if base is None else base.memory, node)


def made(layout: Layout, memory: Memory | None, node: fx.Node) -> ArrayValue:
    return ArrayValue(layout.kind, ArrayRef(layout, memory, node))


# ---- between tensors and arrays ---------------------------------------------------------------------------------
def made_tensor(m: Machine, trial: Trial, node: fx.Node, result: torch.Tensor) -> Value:
    """A tensor that torch makes of arrays."""
    fake = m.builder.fake_mode.from_tensor(result, static_shapes=True)
    node.meta["example_value"] = fake
    value = TensorValue(m.builder.adopt(node, fake))
    base = trial.base(result.detach().numpy()) if trial.given and result.dtype is not torch.bfloat16 else None
    if base is not None:
        m.array_memory.add(base.memory, fake)
        if m.array_memory.is_visible(m, base.memory):
            m.builder.untraced.append(value.ref)
    return value


def tensor_of(m: Machine, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``torch.from_numpy(a)``, ``torch.tensor(a)`` and similar calls."""
    data = args[0]
    if isinstance(data, ArrayValue):
        if data.is_array and not data.layout.writeable:
            raise Break(Reason.UNSUPPORTED, "a tensor made of a read-only array, which makes torch warn,")
    elif any(v.is_array for v in data.items if isinstance(v, ArrayValue)) or not all(    # type: ignore[attr-defined]
            isinstance(v, (ArrayValue, Const)) for v in data.items):                     # type: ignore[attr-defined]
        raise Break(Reason.UNSUPPORTED, "a tensor made of a list of arrays")
    return array_call(m, "call_function", function, args, kwargs, lent=(0,))


def to_array(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> ArrayValue | None:
    """``tensor.numpy()``; None if capture does not handle it."""
    if len(args) != 1 or not isinstance(args[0], TensorValue) or kwargs.keys() - {"force"} or not may_call_numpy(m):
        return None
    force, fake = kwargs.get("force", FALSE), args[0].fake
    if not isinstance(force, Const) or not deferred_scalars.has_array(fake) or is_symbolic(fake) or (
            getattr(fake, "constant", None) is not None):       # torch assumes that it is unchanged
        return None
    dtype = np.dtype(str(fake.dtype).removeprefix("torch."))
    layout = Layout(np.ndarray, dtype, tuple(fake.shape), tuple(s * dtype.itemsize for s in fake.stride()), True)
    named = {"force": bool(force.real)} if kwargs else {}
    node = m.builder.record_array("call_method", "numpy", (args[0].ref,), named, layout, m.stack_trace())
    return made(layout, m.array_memory.of(fake), node)


# ---- when the graph runs ----------------------------------------------------------------------------------------
def putting_back(compiled: Callable[..., Any], changed: Sequence[int]) -> Callable[..., Any]:
    """The graph, which gives the inputs ``changed`` their elements back if it raises. No version changes."""
    def call(*args: Any) -> Any:
        with without_subclasses():
            kept = [(args[i].data, args[i].data.clone()) for i in changed]
        try:
            return compiled(*args)
        except BaseException:
            with without_subclasses(), torch.no_grad():
                for tensor, before in kept:
                    tensor.copy_(before)
            raise
    return call


def raising(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The graph, raising an exception for each warning of NumPy about a computation."""
    def call(*args: Any) -> Any:
        how: dict[str, Any] = {k: "ignore" if v == "ignore" else "raise" for k, v in np.geterr().items()}
        with np.errstate(**how):
            return compiled(*args)
    return call


def refuse(name: str, args: list[Value]) -> None:
    """Break if torch would read the type or the value of a NumPy number."""
    if among(*args) and (
            "getitem" in name or name == "select" or among(*args[:2]) and "setitem" in name):
        raise Break(Reason.TENSOR_VALUE, f"the position in {name}")
    if "setitem" in name and issubclass(args[-1].pytype, np.generic) and not issubclass(
            args[-1].pytype, (float, np.integer)):
        raise Break(Reason.OPERATION_FAILED, f"{name}: a tensor takes no {args[-1].pytype.__name__}")
