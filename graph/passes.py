"""Passes over functional ATen graphs, by name and in order; a verifier runs after each that changed something.

``SOT_LOG=passes`` prints every graph that a pass changed. A rewrite is a row of ``RULES``: an operator, when it
applies, and what takes its place; each is proved by a test on random inputs. What only concerns one kernel (constants,
equal expressions) is done when kernels are built, in ``sot.graph.ir.Builder``.
"""
from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

PASSES = logging.getLogger("sot.passes")
aten = torch.ops.aten


class InvalidGraph(ValueError):
    """A pass left a graph that is not well formed."""


# ---- rewrites, as data ------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Rule:
    """``target(*args)`` is its argument number ``gives`` where ``applies(node, that argument)`` holds."""

    name: str
    targets: tuple[Any, ...]
    applies: Callable[[fx.Node, fx.Node], bool]
    gives: int = 0


def same(node: fx.Node, source: fx.Node) -> bool:
    """Is the result a tensor just like the argument?"""
    a, b = node.meta.get("val"), source.meta.get("val")
    return (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape
            and a.device == b.device and a.stride() == b.stride())


def other_is(number: int, at: int = 1) -> Callable[[fx.Node, fx.Node], bool]:
    """The other argument is this number, and the result a tensor just like the first."""
    return lambda node, source: same(node, source) and _is(node.args[at], number) and not node.kwargs


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == number


RULES = (
    Rule("a view as it is", (aten.view.default, aten.expand.default, aten.permute.default, aten.alias.default,
                             aten._unsafe_view.default, aten.slice.Tensor, aten.squeeze.dims), same),
    Rule("times one", (aten.mul.Tensor, aten.mul.Scalar), other_is(1)),
    Rule("divided by one", (aten.div.Tensor, aten.div.Scalar), other_is(1)),
    Rule("to the power of one", (aten.pow.Tensor_Scalar,), other_is(1)),
    Rule("twice the same relu", (aten.relu.default,), lambda node, source: source.target is aten.relu.default),
)
BY_TARGET = {target: rule for rule in RULES for target in rule.targets}


def rewrite(graph: fx.Graph) -> int:
    """Apply the rules, arguments before what uses them; how many did."""
    count, given_out = 0, escaping(graph)
    for node in list(graph.nodes):
        rule = BY_TARGET.get(node.target) if node.op == "call_function" else None
        source = node.args[rule.gives] if rule else None
        if rule and isinstance(source, fx.Node) and node not in given_out and rule.applies(node, source):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            count += 1
    return count


# ---- passes -------------------------------------------------------------------------------------------------
def dead_code(graph: fx.Graph) -> int:
    """Remove what nobody uses, except what draws random numbers or changes something."""
    count = 0
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users and is_pure(node):
            graph.erase_node(node)
            count += 1
    return count


def common_subexpressions(graph: fx.Graph) -> int:
    """Compute once what is computed twice, unless its memory is given out: two results are never one tensor."""
    count, given_out = 0, escaping(graph)
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not is_pure(node) or node in given_out:
            continue
        key = (node.target, repr(node.args), repr(node.kwargs))
        if key in known:
            node.replace_all_uses_with(known[key])
            graph.erase_node(node)
            count += 1
        else:
            known[key] = node
    return count


def is_pure(node: fx.Node) -> bool:
    """Does it only compute?  What is not an operator of ATen may do anything."""
    if node.op == "get_attr":
        return True
    target: Any = node.target
    if getattr(target, "__name__", "") == "getitem":
        return True
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """The nodes whose memory the graph gives out: outputs, and what outputs are views of."""
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
    "rewrite": rewrite, "common_subexpressions": common_subexpressions, "dead_code": dead_code,
}


def run(gm: fx.GraphModule, pipeline: dict[str, Callable[[fx.Graph], int]] | None = None) -> dict[str, int]:
    """Run the passes on a graph, in place.

    Arguments:
        pipeline: other passes than ``PIPELINE``.
    Returns:
        How much each changed.
    Raises:
        InvalidGraph: a pass left something that is no graph; the message has its name.
    """
    changed = {}
    before = described_outputs(gm.graph)
    for name, change in (PIPELINE if pipeline is None else pipeline).items():
        changed[name] = change(gm.graph)
        if changed[name]:
            verify(gm.graph, before, name)
            PASSES.debug("%s changed %d nodes\n%s", name, changed[name], gm.graph)
    gm.recompile()
    return changed


def verify(graph: fx.Graph, outputs: list[Any], name: str) -> None:
    """Is it well formed, typed throughout, and does it give tensors like those it gave?"""
    try:
        graph.lint()
    except RuntimeError as error:
        raise InvalidGraph(f"after the pass {name}: {error}") from error
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and "val" not in node.meta:
            raise InvalidGraph(f"after the pass {name}: {node.format_node()} has no fake value")
    if described_outputs(graph) != outputs:
        raise InvalidGraph(f"after the pass {name}: the graph gives other tensors than before")


def described_outputs(graph: fx.Graph) -> list[Any]:
    values = [n.meta.get("val") for output in graph.find_nodes(op="output") for n in output.all_input_nodes]
    return [(v.dtype, tuple(v.shape), v.device) if isinstance(v, torch.Tensor) else type(v) for v in values]
