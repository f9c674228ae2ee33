"""Passes over functional ATen graphs, by name and in order. A verifier runs after each pass that changes something.

``SOT_LOG=passes`` prints every graph that a pass has changed. A rewrite is a row of ``RULES`` (an operator, when the
rule applies, and the replacement), or of ``CHAINS`` (two operators in a row, and the one that replaces them). A test
on random inputs proves each rule. ``sot.graph.rewrite.rewrites`` has the patterns of several operators. What concerns
only one kernel (constants, equal expressions) is done in ``sot.graph.kernels.ir.Builder``.
"""
from __future__ import annotations

import dataclasses
import logging
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.graph.rewrite import rewriting
from sot.graph.rewrite.cpu_scalars import stack_scalars
from sot.torch_compat.graphs import expression, unset_fake_temporarily

PASSES = logging.getLogger("sot.passes")
aten, prims = torch.ops.aten, torch.ops.prims


class InvalidGraph(ValueError):
    """A pass has left an invalid graph."""


# ---- rewrites, as data ------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Rule:
    """``target(*args)`` is replaced by its argument number ``gives`` where ``applies(node, that argument)`` holds."""

    name: str
    targets: tuple[Any, ...]
    applies: Callable[[fx.Node, fx.Node], bool]
    gives: int = 0


def same(node: fx.Node, source: fx.Node) -> bool:
    """Whether the result is a tensor of the same metadata as the argument."""
    a, b = node.meta.get("val"), source.meta.get("val")
    return (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype
            and a.device == b.device and same_layout(a, b))


def same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether sizes and strides are equal, for all values of those that vary."""
    return a.dim() == b.dim() and [*map(expression, (*a.shape, *a.stride()))] == [
        *map(expression, (*b.shape, *b.stride()))]


def other_is(number: int, at: int = 1) -> Callable[[fx.Node, fx.Node], bool]:
    """Whether the other argument is this number, and the result has the metadata of the first."""
    return lambda node, source: same(node, source) and _is(node.args[at], number) and not node.kwargs


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


RULES = (
    Rule("a view as it is", (aten.view.default, aten.expand.default, aten.permute.default, aten.alias.default,
                             aten._unsafe_view.default, aten.slice.Tensor, aten.squeeze.dims), same),
    Rule("times one", (aten.mul.Tensor, aten.mul.Scalar), other_is(1)),
    Rule("divided by one", (aten.div.Tensor, aten.div.Scalar), other_is(1)),
    Rule("to the power of one", (aten.pow.Tensor_Scalar,), other_is(1)),
    Rule("minus zero", (aten.sub.Tensor, aten.sub.Scalar), other_is(0)),
    Rule("plus zero, of whole numbers", (aten.add.Tensor, aten.add.Scalar),
         lambda node, source: other_is(0)(node, source) and not node.meta["val"].is_floating_point()),
    Rule("of the type that it is", (aten._to_copy.default, prims.convert_element_type.default), same),
    Rule("twice the same relu", (aten.relu.default,), lambda node, source: source.target is aten.relu.default),
    Rule("twice the same absolute value", (aten.abs.default,), lambda node, source: source.target is aten.abs.default),
)
BY_TARGET = {target: rule for rule in RULES for target in rule.targets}

# Two operators, the second on the result of the first, and the arguments with which the second replaces both.
Chain = Callable[[fx.Node, fx.Node], tuple[Any, ...]]
CHAINS: dict[tuple[Any, Any], Chain] = {
    **{(second, first): lambda second, first: (first.args[0], second.args[1])
       for first in (aten.view.default, aten._unsafe_view.default, aten.unsqueeze.default, aten.squeeze.dims)
       for second in (aten.view.default, aten._unsafe_view.default)},
    (aten.permute.default, aten.permute.default): lambda second, first: (
        first.args[0], [first.args[1][d] for d in second.args[1]]),     # type: ignore[index, union-attr]
}


def rewrite(graph: fx.Graph) -> int:
    """Apply the rules, arguments before their users. Returns the number of rewrites."""
    count, given_out = 0, escaping(graph)
    for node in list(graph.nodes):
        rule = BY_TARGET.get(node.target) if node.op == "call_function" else None
        source = node.args[rule.gives] if rule else None
        if rule and isinstance(source, fx.Node) and node not in given_out and rule.applies(node, source):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            count += 1
    return count


def chains(graph: fx.Graph) -> int:
    """Replace pairs of operators in ``CHAINS`` by one operator, if torch computes the same metadata."""
    count = 0
    for node in list(graph.nodes):
        first = node.args[0] if node.op == "call_function" and node.args else None
        combine = CHAINS.get((node.target, first.target)) if isinstance(first, fx.Node) else None
        if not isinstance(first, fx.Node) or combine is None or node.kwargs:
            continue
        args = combine(node, first)
        if gives(node.target, args, node.meta["val"]):
            node.args = args
            count += 1
    return count


def gives(target: Any, args: tuple[Any, ...], expected: torch.Tensor) -> bool:
    """Whether the operator returns a tensor of this layout."""
    source, *rest = args
    try:
        with expected.fake_mode:    # type: ignore[attr-defined]
            found = target(source.meta["val"], *rest)
    except RuntimeError:
        return False
    return same_layout(found, expected)


def concatenations(graph: fx.Graph) -> int:
    """Leave out the parts of concatenations that have no elements, as those of a cache at its first token. A single
    part that is left is the result, unless the graph returns the memory of both.
    """
    count, given_out = 0, escaping(graph)
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        parts: Any = node.args[0]
        left = [part for part in parts if not is_empty(part.meta["val"])]
        if not 0 < len(left) < len(parts):
            continue
        with node.meta["val"].fake_mode:
            found = aten.cat.default([part.meta["val"] for part in left], *node.args[1:], **node.kwargs)
        if found.dtype != node.meta["val"].dtype or not same_layout(found, node.meta["val"]):
            continue
        node.args = (left, *node.args[1:])
        if len(left) == 1 and same(node, left[0]) and node not in given_out:
            node.replace_all_uses_with(left[0])
            graph.erase_node(node)
        count += 1
    return count


def is_empty(value: torch.Tensor) -> bool:
    return any(isinstance(n, int) and n == 0 for n in value.shape)


# ---- passes -------------------------------------------------------------------------------------------------
def dead_code(graph: fx.Graph) -> int:
    """Remove unused nodes, except those that draw random numbers or change something."""
    count = 0
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users and is_pure(node):
            graph.erase_node(node)
            count += 1
    return count


def common_subexpressions(graph: fx.Graph) -> int:
    """Compute equal expressions once, unless their memory is returned: two results must never be one tensor."""
    count, given_out = 0, escaping(graph)
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not is_pure(node):
            continue
        key = (node.target, repr(node.args), repr(node.kwargs))
        if key in known and node not in given_out:
            node.replace_all_uses_with(known[key])
            graph.erase_node(node)
            count += 1
        else:
            known.setdefault(key, node)
    return count


FOLDED = 1 << 16      # greatest number of elements of a constant that is computed during compilation


def constant_folding(graph: fx.Graph) -> int:
    """Compute nodes that depend only on constant tensors, unless they are returned."""
    owner, count, given_out = graph.owning_module, 0, escaping(graph)
    for node in list(graph.nodes):
        if node.op != "call_function" or owner is None or node in given_out or not folds(node):
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: operator.attrgetter(str(n.target))(owner))
        with torch.no_grad(), unset_fake_temporarily():
            value = node.target(*args, **kwargs).clone(memory_format=torch.preserve_format)
        name = f"folded_{node.name}"
        owner.register_buffer(name, value)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta = dict(node.meta)
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
        count += 1
    return count


def folds(node: fx.Node) -> bool:
    """Whether it is a small tensor that an operator computes from constants."""
    value, sources = node.meta.get("val"), node.all_input_nodes
    return (bool(sources) and all(n.op == "get_attr" for n in sources) and is_pure(node)
            and isinstance(node.target, torch._ops.OpOverload) and isinstance(value, torch.Tensor)
            and not isinstance(value.numel(), torch.SymInt) and value.numel() <= FOLDED)


def is_pure(node: fx.Node) -> bool:
    """Whether it only computes. Operators that are not ATen's may do anything; one that returns nothing checks or
    prints.
    """
    if node.op == "get_attr":
        return True
    target: Any = node.target
    if getattr(target, "__name__", "") == "getitem":
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    schema = target._schema
    return bool(schema.returns) and not schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose memory the graph returns: outputs, and tensors that outputs are views of."""
    found: set[fx.Node] = set()
    waiting = [n for output in graph.find_nodes(op="output") for n in output.all_input_nodes]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes if may_be_view(node) else []
    return found


def may_be_view(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)


PIPELINE: dict[str, Callable[[fx.Graph], int]] = {
    "constant_folding": constant_folding, "chains": chains, "rewrite": rewrite, "concatenations": concatenations,
    "common_subexpressions": common_subexpressions, "cpu_scalars": stack_scalars, "patterns": rewriting.aten,
    "dead_code": dead_code,
}


def run(gm: fx.GraphModule, pipeline: dict[str, Callable[[fx.Graph], int]] | None = None) -> dict[str, int]:
    """Run the passes on a graph, in place.

    Arguments:
        pipeline: passes to run instead of ``PIPELINE``.
    Returns:
        The number of changes of each pass.
    Raises:
        InvalidGraph: a pass has left an invalid graph. The message has its name.
    """
    changed = {}
    before = described_outputs(gm.graph)
    PASSES.debug("before the passes\n%s", gm.graph)
    for name, change in (PIPELINE if pipeline is None else pipeline).items():
        changed[name] = change(gm.graph)
        if changed[name]:
            verify(gm.graph, before, name)
            PASSES.debug("%s changed %d nodes\n%s", name, changed[name], gm.graph)
    gm.recompile()
    return changed


def verify(graph: fx.Graph, outputs: list[Any], name: str) -> None:
    """Check that the graph is well formed and typed, and that the metadata of its results has not changed."""
    try:
        graph.lint()
    except RuntimeError as error:
        raise InvalidGraph(f"after the pass {name}: {error}") from error
    for node in graph.nodes:
        if (node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
                and node.target._schema.returns and "val" not in node.meta):
            raise InvalidGraph(f"after the pass {name}: {node.format_node()} has no fake value")
    if described_outputs(graph) != outputs:
        raise InvalidGraph(f"after the pass {name}: the graph returns different tensors than before")


def described_outputs(graph: fx.Graph) -> list[Any]:
    values = [n.meta.get("val") for output in graph.find_nodes(op="output") for n in output.all_input_nodes]
    return [(v.dtype, tuple(v.shape), v.device) if isinstance(v, torch.Tensor) else type(v) for v in values]
