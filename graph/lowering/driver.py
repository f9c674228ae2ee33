"""The walk over the graph: each node becomes a view, a kernel, or a call of the operator.

In: a functional ATen graph whose nodes have fake values of static shape, or ``symbols.Like``, in ``meta["val"]``. Out:
a ``Program`` with one kernel per operator; ``sot.graph.kernels.schedule`` fuses them. ``lowers`` registers a rule
under an operator's name. A rule returns the node's value, or None to have the operator called.
"""
from __future__ import annotations

import dataclasses
import linecache
import logging
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder, Kernel, Store, pruned, renumbered
from sot.graph.kernels.ops import NAMES, compute_type
from sot.graph.kernels.program import Buffer, Extern, Program, View, allocates, is_dense, product, views
from sot.graph.kernels.sizes import Number, Real, Size, typical
from sot.graph.lowering.scalars import is_number_of_cpu, moved, number_of
from sot.graph.lowering.symbols import Like
from sot.graph.lowering.views import VIEWS, view_of
from sot.torch_compat.graphs import is_fake, is_lazy

PASSES = logging.getLogger("sot.passes")
Rule = Callable[["Lowering", fx.Node, dict[str, Any]], Any]
LOWERINGS: dict[str, Rule] = {}
Axes = tuple[tuple[str, Number], ...]


class NotLowered(Exception):
    """The graph as a whole cannot be lowered. The message says why."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under operators' names: those of overload packets, or ``packet.overload``."""
    def register(rule: Rule) -> Rule:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} has a lowering already")
            LOWERINGS[name] = rule
        return rule
    return register


class Lowering:
    """The state of one walk. ``device`` is the type of device of the kernels."""

    def __init__(self, gm: fx.GraphModule, device: str) -> None:
        self.gm, self.device = gm, device
        self.values: dict[fx.Node, Any] = {}
        self.program = Program([], {}, {}, [], ())
        self.free: dict[str, Kernel] = {}    # buffers whose elements are computed from their position only
        self.blank: set[str] = set()         # buffers whose elements may have any values
        self.copies: set[str] = set()        # of tensors whose memory does not hold their elements
        self.taken: dict[str, str] = {}      # buffers that a later node has changed, and that node
        self.note = ""
        self.place = torch.device(device)       # of the results of the current node
        self.numbers: dict[tuple[Real | View, torch.device], View] = {}

    # ---- the walk
    def run(self) -> Program:
        for node in self.gm.graph.nodes:
            self.note = note_of(node)
            match node.op:
                case "placeholder":
                    self.values[node] = self._input(node)
                case "get_attr":
                    self.values[node] = self._constant(node)
                case "call_function":
                    self.values[node] = self._call(node)
                case "output":
                    self.program.outputs = tuple(self.resolve(node.args[0]))
                    refuse_parts(node.args[0], self.program.outputs, self.copies)
                    self.program.apart = views_of_inputs(node.args[0], self.program)
                    self.materialize(views(self.program.outputs))
                case other:
                    raise NotLowered(f"a node {other} is not an ATen operator")
        return self.program

    def _input(self, node: fx.Node) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise NotLowered(f"the input {node.name} is a number that is not known")
        self.program.inputs.append(node.name)
        if not isinstance(value, torch.Tensor | Like):
            return value
        if has_symbols(value):
            raise NotLowered(f"the input {node.name} is not a tensor of known shape")
        return self._read_through(self.buffer(node.name, value).view(), value)

    def _read_through(self, given: Any, like: Any) -> Any:
        """The value itself, or a copy that has its elements in memory."""
        if not isinstance(like, torch.Tensor) or like.layout is not torch.strided or not is_lazy(like):
            return given
        name = f"{given.buffer}_resolved"
        self.program.steps.append(Extern(torch.ops.aten.clone.default, (given,), {}, (name,), False, self.note))
        self.copies.add(name)
        return self.buffer(name, torch.empty_like(like)).view()     # a copy has no gaps

    def _constant(self, node: fx.Node) -> Any:
        value = operator.attrgetter(str(node.target))(self.gm)
        if is_fake(value):
            raise NotLowered(f"the values of the constant {node.target} are not known")
        if not isinstance(value, torch.Tensor):
            return value
        name = identifier(str(node.target))
        self.program.constants[name] = value
        return self.buffer(name, value).view()

    def _call(self, node: fx.Node) -> Any:
        if type(node.meta.get("val")) in (int, Size, Real):
            return node.meta["val"]     # it is computed from sizes
        if node.target is operator.getitem:
            source, item = self.resolve(node.args)
            return source[item]
        if not isinstance(node.target, torch._ops.OpOverload):
            return self.extern(node)
        if node.target is torch.ops.aten.copy_.default:
            return self._change(node.name, self.resolve(node.args[0]), self.resolve(node.args[1]))
        if self._is_ours(node):
            found = self._by_rule(node)
            if found is not None:
                return found
        return self.extern(node)

    def _by_rule(self, node: fx.Node) -> Any:
        target: Any = node.target
        self.place = getattr(node.meta.get("val"), "device", self.place)
        packet = target._schema.name.partition("::")[2]
        if packet in VIEWS:
            if packet == "as_strided" and any(v.buffer in self.copies for v in views(self.resolve(node.args))):
                raise NotLowered("strides are given for a tensor that is negated where it is read")
            return view_of(node, self.resolve)
        rule = LOWERINGS.get(f"{packet}.{target._overloadname}") or LOWERINGS.get(packet)
        return rule(self, node, self.arguments(node)) if rule else None

    def _is_ours(self, node: fx.Node) -> bool:
        """Whether its tensors are dense, not empty, of types that kernels support, and on the device of the
        kernels.
        """
        target: Any = node.target
        if target.namespace not in ("aten", "prims") or target._schema.is_mutable:
            return False
        args = self.resolve((*node.args, *node.kwargs.values()))
        tensors = [*tensors_in(args), *tensors_in(node.meta.get("val"))]
        here = [v for v in tensors if self._fits(v)]
        numbers = [v for v in args if is_number_of_cpu(v)] if any(isinstance(v, View) for v in here) else []
        return bool(tensors) and len(here) + len(numbers) * (self.device != "cpu") == len(tensors)

    def _fits(self, value: View | torch.Tensor | Like) -> bool:
        return (value.dtype in NAMES and value.device.type == self.device
                and (isinstance(value, View) or (value.layout is torch.strided and not has_symbols(value)))
                and all(n > 0 for n in value.shape))

    # ---- for rules
    def resolve(self, value: Any) -> Any:
        """The arguments, with nodes replaced by their values."""
        return fx.node.map_arg(value, lambda n: self.values[n])

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """The arguments by the names of the operator's schema, with defaults filled in."""
        schema = node.target._schema  # type: ignore[union-attr]
        given = dict(zip((a.name for a in schema.arguments), self.resolve(node.args), strict=False))
        given |= self.resolve(node.kwargs)
        for name, value in given.items():
            if is_number_of_cpu(value) and self.device != "cpu":
                given[name] = moved(self, value)
        return {a.name: given.get(a.name, a.default_value) for a in schema.arguments}

    def kernel(self, node: fx.Node, value: torch.Tensor | Like, reduced: Sequence[Number],
               body: Callable[[Builder, list[Index], list[Index]], str], item: int | None = None,
               strides: Sequence[Number] = ()) -> View | None:
        """A kernel with an element of the result at each row; ``body`` gets the axes of rows and of the reduction,
        which have these strides in memory.
        """
        if not is_dense(tuple(value.shape), tuple(value.stride())) or value.dtype not in NAMES:
            return None
        rows = in_order_of_memory("p", value.shape, value.stride())
        over = in_order_of_memory("r", reduced, strides or (0,) * len(reduced))
        builder = Builder(dict(rows + over))
        builder.note = self.note
        axes = [ix.index(f"p{i}" if n > 1 else 0) for i, n in enumerate(value.shape)]
        inner = [ix.index(f"r{i}" if n > 1 else 0) for i, n in enumerate(reduced)]
        result = builder.cast(body(builder, axes, inner), NAMES[value.dtype])
        name = node.name if item is None else f"{node.name}_{item}"
        buffer = self.buffer(name, value)
        self.step(name, rows, over, builder, Store(name, ix.dot(axes, buffer.strides), result))
        return buffer.view()

    def step(self, name: str, rows: Axes, over: Axes, builder: Builder, store: Store) -> None:
        """Append a kernel with one store. A value that needs no memory is computed where it is read."""
        statements = pruned(builder.body, (store,))
        touched = dict.fromkeys([*(s.buffer for s in statements if s.buffer), store.buffer])
        memory = {b: self.program.buffers[b].memory for b in touched}
        kernel = renumbered(Kernel(name, rows, over, statements, (store,), memory))
        if not kernel.reduced and not kernel.read():
            self.free[store.buffer] = kernel
        else:
            self.program.steps.append(kernel)

    def read(self, b: Builder, tensor: View, axes: Sequence[Index], mask: str | None = None, other: Any = None) -> str:
        """An element, broadcast to the axes, in its stored type."""
        own = list(axes)[len(axes) - len(tensor.shape):]
        own = [axis if n > 1 else Index() for axis, n in zip(own, tensor.shape, strict=True)]
        at = ix.dot(own, tensor.strides, tensor.offset)
        if tensor.buffer in self.free and mask is None:
            return inlined(b, self.free[tensor.buffer], at)
        if tensor.buffer in self.blank:
            return b.const(0, NAMES[tensor.dtype])
        self.materialize((tensor,))
        return b.load(tensor.buffer, at, NAMES[tensor.dtype], mask, other)

    def value(self, b: Builder, operand: Any, axes: Sequence[Index], dtype: str, rounded_to: str = "") -> str:
        """An operand (tensor or number) in the type of the computation, ``rounded_to`` another type before."""
        if isinstance(operand, Real):
            operand = number_of(self, operand)
        kind = compute_type(dtype)
        exact = "f64" if rounded_to else kind
        value = self.read(b, operand, axes) if isinstance(operand, View) else b.const(operand, exact)
        return b.cast(b.cast(value, rounded_to) if rounded_to else value, kind)

    def _change(self, name: str, place: Any, source: Any) -> View:
        """The last steps of a graph: store the new elements of an input."""
        if not isinstance(place, View) or place.buffer not in self.program.inputs or not isinstance(source, View):
            raise NotLowered("something that is not an input is changed")
        buffer = self.program.buffers[place.buffer]
        if place != buffer.view():
            raise NotLowered(f"a part of the input {buffer.name} is changed")
        if source.buffer == buffer.name:
            source = self._copied(source, f"{name}_before")
        fits = is_dense(place.shape, place.strides) and self._fits(place) and self._fits(source)
        if not fits or source.device != place.device:
            self.materialize((source,))
            self.program.steps.append(Extern(torch.ops.aten.copy_.default, (place, source), {}, (buffer.name,), False,
                                             self.note))
            return place
        self._assign(buffer, source, name)
        return place

    def _copied(self, source: View, name: str) -> View:
        """The elements of a view, copied to new memory."""
        strides = tuple(product(source.shape[d + 1:]) for d in range(len(source.shape)))
        bare = Like(source.shape, strides, source.dtype, source.device, torch.strided, 0, 0)
        self._assign(self.buffer(name, bare), source, name)
        return self.program.buffers[name].view()

    def _assign(self, buffer: Buffer, source: View, name: str) -> None:
        rows = in_order_of_memory("p", buffer.shape, buffer.strides)
        builder = Builder(dict(rows))
        builder.note = self.note
        axes = [ix.index(f"p{i}" if n > 1 else 0) for i, n in enumerate(buffer.shape)]
        element = self.read(builder, source, axes)
        value = builder.cast(builder.cast(element, compute_type(NAMES[source.dtype])), NAMES[buffer.dtype])
        self.step(name, rows, (), builder, Store(buffer.name, ix.dot(axes, buffer.strides), value))
        self.materialize((buffer.view(),))

    # ---- calls
    def extern(self, node: fx.Node) -> Any:
        args, kwargs = self.resolve(node.args), self.resolve(node.kwargs)
        self.materialize(views((args, kwargs)))
        if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            raise NotLowered(f"{node.target} changes its arguments")
        value: Any = node.meta.get("val")
        many = isinstance(value, tuple | list)
        results = list(value) if many else [value]
        alias = tuple(v.buffer for v in views((args, kwargs))) if may_alias(node.target) else ()
        if any(isinstance(r, torch.SymInt | torch.SymFloat | torch.SymBool) for r in results):
            raise NotLowered(f"{node.target} returns a number that is not known before it runs")
        found = [self.buffer(f"{node.name}_{i}" if many else node.name, r, alias).view()
                 if isinstance(r, torch.Tensor | Like) and not has_symbols(r) else r for i, r in enumerate(results)]
        if any(isinstance(r, torch.Tensor) for r in found):
            raise NotLowered(f"{node.target} returns a tensor whose shape is not known before it runs")
        names = tuple(v.buffer if isinstance(v, View) else None for v in found)
        step = Extern(node.target, args, kwargs, names, many, self.note)
        self.program.steps.append(step)
        if allocates(step) and not torch.are_deterministic_algorithms_enabled():    # which fill new memory
            self.blank |= step.written()
        found = [self._read_through(v, r) for v, r in zip(found, results, strict=True)]
        return found if many else found[0]

    def materialize(self, needed: Any) -> None:
        """Store values in memory that have been computed at each reader so far."""
        for view in needed:
            if kernel := self.free.pop(view.buffer, None):
                self.program.steps.append(kernel)

    def buffer(self, name: str, value: torch.Tensor | Like, alias: tuple[str, ...] = (),
               device: torch.device | None = None) -> Buffer:
        """Memory like this tensor's, which may be on another device."""
        strides = tuple(value.stride()) if value.layout is torch.strided else ()
        shape = tuple(value.shape) if value.layout is torch.strided else ()
        self.program.buffers[name] = Buffer(name, value.dtype, shape, strides, device or value.device, alias)
        return self.program.buffers[name]


def refuse_parts(results: Sequence[Any], values: Sequence[Any], copies: set[str]) -> None:
    """Raise if a result would be a view of a copy. AOTAutograd makes results that are views of inputs, except of those
    where an operator returns several (``unbind``).
    """
    for node, value in zip(results, values, strict=True):
        if isinstance(value, View) and value.buffer in copies and node.op != "placeholder":
            raise NotLowered("a result is a part of a tensor that is negated where it is read")


def in_order_of_memory(name: str, shape: Sequence[Number], strides: Sequence[Number]) -> Axes:
    """Axes named by their numbers, the one whose elements are neighbours last: neighbouring threads access them."""
    found = sorted(((i, n) for i, n in enumerate(shape) if n > 1), key=lambda axis: -typical(strides[axis[0]]))
    return tuple((f"{name}{i}", n) for i, n in found)


def tensors_in(value: Any) -> list[Any]:
    found: list[Any] = []
    fx.node.map_aggregate(value, lambda v: found.append(v) if isinstance(v, View | torch.Tensor | Like) else None)
    return found


def leave_out_unused_results(program: Program) -> None:
    """Results of calls that nothing reads have no name: an operator may leave them out, unlike its fake rule."""
    steps, buffers = program.steps, program.buffers
    used = {name for step in steps for name in step.read()} | program.kept()
    used |= {alias for name in used & buffers.keys() for alias in buffers[name].alias}
    for i, step in enumerate(steps):
        if isinstance(step, Extern) and step.written() & used:
            steps[i] = dataclasses.replace(step, outputs=tuple(n if n in used else None for n in step.outputs))


def inlined(b: Builder, kernel: Kernel, at: Index) -> str:
    """The value of a pointwise kernel at the place ``at`` of its buffer, computed here."""
    names = b.copy(kernel.body, axes_of(kernel, at, b.ranges), {})
    return names[kernel.stores[0].value]


def axes_of(kernel: Kernel, at: Index, ranges: ix.Ranges) -> dict[str, Index]:
    """The axes for which the kernel stores to this place of a dense buffer."""
    strides = dict(kernel.stores[0].index.terms)
    sizes = dict(kernel.rows)
    found: dict[str, Index] = {}
    rest = at
    for var in sorted(sizes, key=lambda v: strides[v], reverse=True):
        found[var] = ix.floordiv(rest, strides[var], ranges)
        rest = ix.mod(rest, strides[var], ranges)
    return found


def views_of_inputs(results: Any, program: Program) -> frozenset[int]:
    """The positions of results that are views of whole inputs, and not the inputs."""
    return frozenset(
        i for i, (node, value) in enumerate(zip(results, program.outputs, strict=True))
        if isinstance(value, View) and value.buffer in program.inputs and node.op != "placeholder"
        and value == program.buffers[value.buffer].view())


def lower(gm: fx.GraphModule, device: str, symbols: Mapping[str, str] | None = None) -> Program:
    """The program of a functional ATen graph, with one kernel per operator.

    Arguments:
        gm: its nodes have fake values of static shape, or ``symbols.Like``, in ``meta["val"]``.
        device: ``cuda``, or ``cpu`` for Triton's interpreter. Operators on other devices are called.
        symbols: where the symbols of sizes are found, see ``Program``.
    Raises:
        NotLowered: the graph as a whole cannot be lowered.
    """
    lowering = Lowering(gm, device)
    lowering.program.symbols.update(symbols or {})
    program = lowering.run()
    leave_out_unused_results(program)
    PASSES.debug("lowered: %d kernels, one an operator\n%s", len(program.steps), program)
    return program


# ---- nodes -----------------------------------------------------------------------------------------------
def has_symbols(value: torch.Tensor | Like) -> bool:
    if isinstance(value, Like):
        return False
    sizes = (*value.shape, *(value.stride() if value.layout is torch.strided else ()))
    return any(isinstance(n, torch.SymInt) for n in sizes)


def may_alias(target: Any) -> bool:
    """Whether a result may share the memory of an argument."""
    schema = getattr(target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


def identifier(text: str) -> str:
    return re.sub(r"\W+", "_", text)


SOURCE = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in ')


def note_of(node: fx.Node) -> str:
    """The user's innermost line that a node comes from: ``file:line code``."""
    found = list(SOURCE.finditer(node.meta.get("stack_trace") or ""))
    if not found:
        return ""
    last = found[-1]
    code = linecache.getline(last["file"], int(last["line"])).strip()
    return f"{last['file'].rpartition('/')[2]}:{last['line']} {code}".rstrip()
