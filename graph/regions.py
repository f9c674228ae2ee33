"""Subgraphs: the branches of a ``cond``, the body of a ``while_loop``.

A ``Region`` replaces the builder's graph while a branch is executed. A tensor from outside becomes an operand: a
placeholder of the subgraph, at its first use. When the results of a branch are known, ``close`` makes its GraphModule.
torch's higher-order operations are functional: a branch must not change its operands, and must not return one of them,
or two tensors that share memory. Versions reveal a change. In the second case copies are returned. If a copy stands
for the tensor itself, neither may be changed afterwards: they are *tied*.

``if_else`` is Python's ``if`` between subgraphs. It returns what the program's branch would: the operand itself, and
gradients of what was taken only. Its subgraphs may change operands.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import fx

from sot.graph.refs import TensorRef, identifier, is_wrapper, version_of

if TYPE_CHECKING:
    from sot.graph.builder import GraphBuilder

Cond = torch.ops.higher_order.cond
While = torch.ops.higher_order.while_loop
WHILE_TRUE = "while_true"   # the kind of a subgraph that is a loop's condition
WRITTEN = "written"         # in the meta of a node of `Cond`: the program calls torch.cond itself


def if_else(test: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], operands: Sequence[Any]) -> Any:
    return if_true(*operands) if test else if_false(*operands)


class Operand(NamedTuple):
    """A tensor from outside: its placeholder, and its version and form when it was first used."""

    ref: TensorRef
    node: fx.Node
    version: int
    form: tuple


class Region:
    """A subgraph that is being built."""

    def __init__(self, builder: GraphBuilder, is_plain: bool = False) -> None:
        self.builder = builder
        self.is_plain = is_plain                # whether it is a side of ``if_else``
        self.graph = fx.Graph()
        self.nodes: list[fx.Node] = []
        self.anchor = self.graph.create_node("placeholder", "anchor")
        self.operations = 0
        self.operands: dict[int, Operand] = {}
        self.parameters: list[TensorRef] = []
        self.initial: list[TensorRef] = []      # initial values of the parameters, for a loop
        self.is_reentrant = False               # whether it is the function of a reentrant checkpoint
        self._outer: tuple = ()

    def __enter__(self) -> Region:
        b = self.builder
        self._outer = b.region, b.graph, b.nodes, b.operations
        b.region, b.graph, b.nodes, b.operations = self, self.graph, self.nodes, self.operations
        return self

    def __exit__(self, *_: object) -> None:
        b = self.builder
        self.operations = b.operations
        b.region, b.graph, b.nodes, b.operations = self._outer

    @property
    def is_in_reentrant(self) -> bool:
        """Whether it is being built in the function of a reentrant checkpoint, or is that function."""
        outer = self._outer[0] if self._outer else None
        return self.is_reentrant or outer is not None and outer.is_in_reentrant

    # ---- operands
    def new_inputs(self) -> list[TensorRef]:
        """The operands, of the regions around as well, that will be inputs of the graph."""
        outer = self._outer[0].new_inputs() if self._outer and self._outer[0] is not None else []
        return outer + [o.ref for o in self.operands.values() if o.ref.node is None]

    def placeholder(self, fake: torch.Tensor, name: str) -> fx.Node:
        with self.graph.inserting_before(self.anchor):
            node = self.graph.create_node("placeholder", name)
        node.target = node.name     # it is unique, and becomes the name of the parameter
        node.meta["example_value"] = fake
        return node

    def parameter(self, ref: TensorRef, name: str) -> None:
        """A tensor that the subgraph receives, and for which ``ref`` stands in it: a carried value of a loop."""
        ref.node, ref.version = self.placeholder(ref.fake, name), version_of(ref.fake)
        self.parameters.append(ref)

    def node_of(self, ref: TensorRef) -> fx.Node:
        if ref.node is not None and ref.node.graph is self.graph:
            return ref.node
        found = self.operands.get(id(ref))
        if found is None:
            name = ref.node.name if ref.node is not None else identifier(ref.label)
            version = version_of(ref.fake) if isinstance(ref.fake, torch.Tensor) else 0
            found = self.operands[id(ref)] = Operand(ref, self.placeholder(ref.fake, name), version, form_of(ref.fake))
        return found.node

    def is_inside(self, ref: TensorRef) -> bool:
        return ref.node is not None and ref.node.graph is self.graph

    def changed(self) -> TensorRef | None:
        """An operand or parameter that has been changed in place."""
        operands = ((o.ref, o.version) for o in self.operands.values() if isinstance(o.ref.fake, torch.Tensor))
        parameters = ((ref, ref.version) for ref in self.parameters)
        return next((ref for ref, version in (*operands, *parameters) if version_of(ref.fake) != version), None)

    def has_reshaped(self) -> bool:
        """Whether an operand has another form, memory or history than at its first use."""
        return any(form_of(operand.ref.fake) != operand.form for operand in self.operands.values())

    def sharing(self, ref: TensorRef) -> list[TensorRef]:
        """The inputs of the subgraph that share memory with a tensor; for a parameter also its initial value."""
        found = [o.ref for o in self.operands.values() if isinstance(o.ref.fake, torch.Tensor)
                 and shares_memory(o.ref.fake, ref.fake)]
        inside = [p for p in self.parameters if shares_memory(p.fake, ref.fake)]
        return [*found, *inside, *(self.initial if inside else ())]

    def used(self) -> list[TensorRef]:
        """The operands that nodes use."""
        return [o.ref for o in self.operands.values() if o.node.users]

    def taken(self) -> list[TensorRef]:
        """The same and those that are results."""
        return [o.ref for o in self.operands.values()]

    # ---- results
    def close(self, outputs: Iterable[TensorRef | None], operands: Sequence[TensorRef], kind: str,
              alone: bool = False) -> str:
        """Make the GraphModule of (parameters, operands) -> outputs. Returns its name. ``alone``: it returns a tensor,
        not a tuple.
        """
        order = [self.node_of(ref) for ref in (*self.parameters, *operands)]
        for node in order:
            self.anchor.prepend(node)
        given = tuple(None if ref is None else self.node_of(ref) for ref in outputs)
        self.graph.output(given[0] if alone else given)
        for operand in self.operands.values():
            if operand.node not in order:
                self.graph.erase_node(operand.node)
        self.graph.erase_node(self.anchor)
        modules = self.builder.modules
        name = f"{kind}_{len(modules)}"
        modules[name] = fx.GraphModule(modules, self.graph, class_name=kind)
        return name


def form_of(fake: Any) -> tuple:
    """What an operation in place may change of a tensor besides its elements."""
    if not isinstance(fake, torch.Tensor):
        return ()
    memory = (fake.stride(), fake.storage_offset(), fake.untyped_storage()._cdata) if has_memory(fake) else ()
    return fake.shape, memory, fake.requires_grad, fake.is_leaf, fake.grad_fn


def has_memory(fake: torch.Tensor) -> bool:
    return fake.layout is torch.strided and not is_wrapper(fake)


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
