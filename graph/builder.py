"""Builds the graph of a trace.

``GraphBuilder`` makes all nodes. Each operation runs on fake tensors first, so a node exists only for what torch
accepts. The fake result is stored in ``node.meta["example_value"]``, the user's position in
``node.meta["stack_trace"]``. The node list is append-only: ``mark()`` and ``cut(mark)`` undo by truncation.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from sot.graph.fake_rules import NEVER_REFUSE, RULES, bounds_of_rule
from sot.graph.nodes import OWN_LAYOUT
from sot.graph.refs import NumberRef, TensorRef, identifier, version_of
from sot.graph.regions import Region, shares_memory
from sot.support.errors import Break, Reason
from sot.torch_compat.fake_tensors import FakeTensor, RecordingFakeMode, new_fake_mode
from sot.torch_compat.graphs import as_printed, lets_go_of_source
from sot.torch_compat.subclasses.wrappers import as_torch_calls

TAKE_A_SIZE = frozenset({"full", "new_full"})       # of the operations that also take a number for the elements


class GraphBuilder:
    """Collects nodes. ``inputs`` are the placeholders in the order of their first use."""

    def __init__(self) -> None:
        self.fake_mode: RecordingFakeMode = new_fake_mode()
        self.graph = fx.Graph()
        self.nodes: list[fx.Node] = []
        self.inputs: list[TensorRef] = []
        self.computed: dict[fx.Node, NumberRef] = {}
        # the copies that a node needs of what it changes
        self.copies: dict[fx.Node, dict[fx.Node, tuple[fx.Node, TensorRef]]] = {}
        # checks at the start of the graph, each with the number of nodes before the operation that needs it
        self.early: list[tuple[int, tuple, list[fx.Node]]] = []
        self._anchor = self.graph.create_node("placeholder", "anchor")
        self.operations = 0
        self.untracked: list[TensorRef] = []    # these share memory, but no version, with others: ``x.data``
        self.untraced: list[TensorRef] = []     # the same with arrays and sparse tensors from outside
        # whether inputs, statistics, or tensors in inference mode are changed without a new version
        self.changes_traceless = False
        self.put_back: list[TensorRef] = []     # inputs changed so that get their elements back if the graph fails
        self.refuses = False                    # whether the graph may raise because of its inputs' values
        self.drawn = 0                          # how many numbers of Python and NumPy have been drawn
        self.draws_then_refuses = False         # whether it may do so after it has drawn random numbers
        self.reentrant: set[Any] = set()        # the nodes of results of reentrant checkpoints, on the fakes
        self.freed_in_vain = False              # whether a gradient was taken on the fakes and then rolled back
        self.has_data_sizes = False             # whether sizes or numbers in it depend on data
        self.keeps_nodes = False                # whether the program puts hooks on a node of autograd, or a node warns
        self.region: Region | None = None       # the subgraph that is being built, or None
        self.modules: dict[str, fx.GraphModule] = {}    # finished subgraphs, by name
        self.moved: list[tuple[TensorRef, TensorRef]] = []      # inputs that get new data after the graph, and the data
        self.tied: list[tuple[TensorRef, int, Any]] = []    # see regions.py

    # ---- changes of existing tensors
    def changed_inputs(self) -> list[TensorRef]:
        """The inputs that the graph changes, judging by their versions."""
        given = (*self.inputs, *(self.region.new_inputs() if self.region is not None else ()))
        return [ref for ref in given if isinstance(ref.fake, torch.Tensor) and version_of(ref.fake) != ref.version]

    def changes_untracked(self) -> bool:
        """Whether the graph changes a tensor that shares memory, but no version, with an input."""
        if any(version_of(ref.fake) != ref.version for ref in self.untraced):
            return True
        return bool(self.inputs_changed_untracked())

    def inputs_changed_untracked(self) -> list[TensorRef]:
        """The inputs whose memory the graph changes by another tensor that has a version of its own."""
        changed = [ref for ref in self.untracked if version_of(ref.fake) != ref.version]
        return [ref for ref in self.inputs if isinstance(ref.fake, torch.Tensor) and any(
            shares_memory(ref.fake, other.fake) for other in changed)] if changed else []

    # ---- values
    def input(self, real: torch.Tensor, label: str, fake: FakeTensor | None = None) -> TensorRef:
        """A reference to a tensor that exists before the graph runs. ``fake`` is passed if it exists already."""
        return TensorRef(self.fake_mode.from_tensor(real, static_shapes=True) if fake is None else fake, None, real,
                         label)

    def node_of(self, ref: TensorRef) -> fx.Node:
        if any(ref is old for old, _ in self.moved):
            raise Break(Reason.UNSUPPORTED, f"this use of {ref.label} after a change of its .data")
        if self.region is not None:
            return self.region.node_of(ref)
        if ref.node is None and isinstance(ref, NumberRef) and ref.function is not None:
            return self._compute(ref)
        if ref.node is None:
            with self.graph.inserting_before(self._anchor):
                ref.node = self.graph.create_node("placeholder", identifier(ref.label), (), {})
            ref.node.target = ref.node.name     # names of nodes are unique
            ref.node.meta["example_value"] = ref.example
            self.inputs.append(ref)
        return ref.node

    def _compute(self, ref: NumberRef) -> fx.Node:
        """The node that computes a number from others. It does not count as an operation."""
        assert ref.function is not None
        operands = tuple(map(self._to_node, ref.operands))
        ref.node = self.graph.create_node("call_function", as_printed(ref.function, operands), operands)
        ref.node.meta["example_value"], ref.node.meta["refuses"] = ref.fake, ref.may_raise
        self.computed[ref.node] = ref
        return self._append(ref.node)

    def compute(self, ref: NumberRef, trace: str) -> None:
        """Compute a number here, because it may be another one later, or may raise."""
        self.node_of(ref).meta.setdefault("stack_trace", trace)
        self.operations += 1

    # ---- nodes
    def _append(self, node: fx.Node, trace: str = "") -> fx.Node:
        if trace:
            node.meta["stack_trace"] = trace
        if self.drawn:
            node.meta["draws_before"] = self.drawn
        self.nodes.append(node)
        return node

    def run(self, kind: str, target: Any, args: tuple, kwargs: dict, concrete: bool = False) -> Any:
        """Run an operation on fake values, without recording it. ``args`` may contain references at any depth.

        ``concrete``: use the numbers of the captured call, except in a size. The metadata of the result must not depend
        on them.
        """
        if concrete and (target if isinstance(target, str) else getattr(target, "__name__", "")) in TAKE_A_SIZE:
            args = tuple(map(as_captured, args))      # a size is a tuple
            kwargs = {k: as_captured(v) for k, v in kwargs.items()}
            concrete = False
        fake_args, fake_kwargs = fx.node.map_aggregate((args, kwargs), as_captured if concrete else _fake)
        self.fake_mode.start_operation()
        with self.fake_mode.running(), as_torch_calls(*fake_args, *fake_kwargs.values()):
            if kind == "call_method":
                self_, *rest = fake_args
                return getattr(self_, target)(*rest, **fake_kwargs)
            if target in RULES and target not in NEVER_REFUSE:
                self.fake_mode.note_refusal(bounds_of_rule(target, fake_args, fake_kwargs))
            return RULES.get(target, target)(*fake_args, **fake_kwargs)

    def record(self, kind: str, target: Any, args: tuple, kwargs: dict, result: Any, trace: str,
               seen: bool = True) -> fx.Node:
        """Append the node of an operation whose fake result is known.

        ``seen``: has capture made more of that result than a reference to it? See ``TensorRef``.
        """
        args, kwargs = fx.node.map_aggregate((args, kwargs), self._to_node)
        node = self.graph.create_node(kind, as_printed(target, args), args, kwargs)
        node.meta["example_value"] = result
        node.meta["draws"], node.meta["draws_in_order"] = self.fake_mode.draws_now, self.fake_mode.draws_in_order
        node.meta[OWN_LAYOUT] = self.fake_mode.has_own_layout
        node.meta["seen"] = seen
        self.operations += 1
        return self._append(node, trace)

    def record_array(self, kind: str, target: Any, args: tuple, kwargs: dict, layout: Any, trace: str,
                     warns: bool = False) -> fx.Node:
        """Append the node of an operation of NumPy's, whose result has that layout; it may warn of its values."""
        self.fake_mode.start_operation()
        node = self.record(kind, target, args, kwargs, layout, trace)
        node.meta["warns"] = warns
        return node

    @property
    def warnings(self) -> list[bool]:
        """For each operation of NumPy's, whether it may warn."""
        return [node.meta["warns"] for node in self.nodes if "warns" in node.meta]

    def item(self, node: fx.Node, index: int, result: Any) -> fx.Node:
        """Item ``index`` of a node whose result is a tuple or list."""
        child = self.graph.create_node("call_function", operator.getitem, (node, index))
        child.meta["example_value"] = result
        return self._append(child, node.meta.get("stack_trace") or "")

    def subgraph(self, name: str) -> fx.Node:
        """A node for a finished subgraph."""
        return self._append(self.graph.create_node("get_attr", name))

    def lift(self, refs: Iterable[TensorRef]) -> None:
        """Make tensors from outside the subgraph its operands, before an operation may change them."""
        if self.region is not None:
            for ref in refs:
                self.region.node_of(ref)

    def copy_before(self, node: fx.Node, ref: TensorRef) -> TensorRef:
        """A copy of a tensor from before a node changes it."""
        ref.see()
        source = self.node_of(ref)
        made = self.copies.setdefault(node, {})
        if source not in made:
            fake = self.run("call_method", "clone", (ref,), {})
            with self.graph.inserting_before(node):
                copy = self.graph.create_node("call_method", "clone", (source,))
            copy.meta.update(example_value=fake, stack_trace=node.meta.get("stack_trace"), draws=False)
            made[source] = copy, TensorRef(fake, copy)
        return made[source][1]

    def tie(self, refs: Iterable[TensorRef], owner: Any) -> None:
        """Forbid changes of these from now on; ``owner`` is the reason."""
        self.tied += [(ref, version_of(ref.fake), owner) for ref in refs]

    def adopt(self, node: fx.Node, fake: Any) -> TensorRef:
        """A reference to the tensor that a node returns."""
        return TensorRef(fake, node)

    def record_state(self, setter: Callable, values: tuple, trace: str) -> fx.Node:
        """A node that changes torch's global state. It does not count as an operation."""
        node = self.graph.create_node("call_function", setter, fx.node.map_aggregate(values, self._to_node))
        return self._append(node, trace)

    def record_check(self, target: Callable, args: tuple, trace: str) -> None:
        """A node that raises if what capture assumed does not hold."""
        node = self.graph.create_node("call_function", target, fx.node.map_aggregate(args, self._to_node))
        self._append(node, trace)
        self.operations += 1

    def check_early(self, origin: Iterable[fx.Node], target: Callable, args: tuple, trace: str) -> None:
        """A check at the start of the graph. ``origin`` are the nodes that compute what is in ``args``, in order."""
        key = (target, args)
        if any(known == key for _, known, _ in self.early):
            return
        copies: dict[fx.Node, fx.Node] = {}
        with self.graph.inserting_before(self._anchor.next):
            for original in origin:
                copies[original] = self.graph.node_copy(original, lambda n: copies.get(n, n))
            check = self.graph.create_node("call_function", target, fx.node.map_arg(args, lambda n: copies.get(n, n)))
        check.meta["stack_trace"] = trace
        made = [*copies.values(), check]
        for each in made:       # torch copies the metadata by ``copy.copy``, which the program may have replaced
            each.meta = {**each.meta, "early": True}
        self.early.append((len(self.nodes), key, made))

    def _to_node(self, value: Any) -> Any:
        return self.node_of(value) if isinstance(value, TensorRef) else value

    # ---- undo
    def mark(self) -> tuple[int, int]:
        return len(self.nodes), self.operations

    def cut(self, mark: tuple[int, int]) -> None:
        count, self.operations = mark
        while self.early and self.early[-1][0] >= count:
            for node in reversed(self.early.pop()[2]):
                self.graph.erase_node(node)
        while len(self.nodes) > count:
            node = self.nodes.pop()
            if node in self.computed:
                self.computed.pop(node).node = None
            pass_on_seen(node)
            self.graph.erase_node(node)
            for copy, _ in self.copies.pop(node, {}).values():
                self.graph.erase_node(copy)

    # ---- result
    def finish(self, outputs: Iterable[TensorRef], name: str) -> fx.GraphModule:
        """The GraphModule that returns the tuple of ``outputs``. Unused inputs are dropped."""
        self.graph.output(tuple(self.node_of(ref) for ref in outputs))
        for node in reversed(self.nodes):
            if node in self.computed and not node.users and not self.computed[node].may_raise:
                self.graph.erase_node(node)
        self.graph.erase_node(self._anchor)
        self.inputs = [ref for ref in self.inputs if ref.node is not None and self._used(ref.node)]
        return lets_go_of_source(fx.GraphModule(self.modules, self.graph, class_name=identifier(name)))

    def pass_on_seen(self) -> None:
        """After the graph is finished: mark the inputs of seen results as seen."""
        for node in reversed(self.nodes):
            pass_on_seen(node)

    def _used(self, node: fx.Node) -> bool:
        if node.users:
            return True
        self.graph.erase_node(node)
        return False


def pass_on_seen(node: fx.Node) -> None:
    """Mark the operands of a node as seen, because what was seen of its result depends on them."""
    if node.meta.get("seen", True):
        for operand in node.all_input_nodes:
            operand.meta["seen"] = True


def _fake(value: Any) -> Any:
    return value.fake if isinstance(value, TensorRef) else value


def as_captured(value: Any) -> Any:
    """An argument of an operation on fakes, with the number of the captured call in place of one that varies."""
    return value.real if isinstance(value, NumberRef) and value.real is not None else _fake(value)


def changes_unseen(builder: GraphBuilder) -> bool:
    """Whether the graph changes what existed before it, and no version of an input shows that."""
    return bool(builder.changes_traceless or builder.put_back or builder.changes_untracked())


def has_changed(builder: GraphBuilder) -> bool:
    """Whether the graph changes what existed before it. Python could not run the frame again then."""
    return bool(builder.changed_inputs()) or changes_unseen(builder)


def flagged_inputs(builder: GraphBuilder) -> list[tuple[TensorRef, bool]]:
    """The leaves among the inputs of which the graph sets whether they require gradients, with what held before."""
    set_by = {node.args[0] for node in builder.nodes if node.op == "call_method" and node.target == "requires_grad_"}
    return [(ref, ref.real.requires_grad) for ref in builder.inputs if ref.node in set_by and isinstance(
        ref.real, torch.Tensor) and ref.real.is_leaf]
