"""Applies the rules of ``rewrites.py`` to a graph: finds matches, checks them, replaces them."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._pytree import tree_leaves

from sot.graph.rewrite.patterns import Match, fake_of, is_unused, matches, may_change
from sot.graph.rewrite.rewrites import ATEN, CAPTURED, Rewrite, expressions
from sot.graph.rewrite.switches import parsed
from sot.torch_compat.graphs import expression, running

PASSES = logging.getLogger("sot.passes")
Fresh = Callable[[], tuple[Any, Sequence[Any]]]


def in_force(rules: Sequence[Rewrite], switches: str | None = None) -> list[Rewrite]:
    """The rules that SOT_PATTERNS (or ``switches``) has not switched off.

    Raises:
        ValueError: a switch has no sign, or names an unknown rule.
    """
    off, on = parsed("SOT_PATTERNS", os.environ.get("SOT_PATTERNS", "") if switches is None else switches)
    if unknown := (off | on) - {rule.name for rule in (*CAPTURED, *ATEN)}:
        raise ValueError(f"SOT_PATTERNS: there is no rule {min(unknown)!r}; "
                         f"the rules are {', '.join(rule.name for rule in (*CAPTURED, *ATEN))}")
    return [rule for rule in rules if rule.name not in off]


def names_in_force() -> str:
    """The state of the rules for ATen graphs, on which a compiled graph depends."""
    return ", ".join(rule.name for rule in in_force(ATEN))


# ---- graphs as they were captured ---------------------------------------------------------------------------
def captured(gm: fx.GraphModule, fresh: Fresh, switches: str | None = None) -> fx.GraphModule:
    """The graph with all rules of ``CAPTURED`` applied that keep the layout of its results; itself if none did.

    Arguments:
        fresh: a fake mode, and fake inputs of the graph that nothing has changed yet, anew at each call.
    """
    for rule in in_force(CAPTURED, switches):
        changed = copied(gm)
        if count := apply(rule, changed.graph):
            changed.recompile()
            if layout(changed, fresh) == layout(gm, fresh):
                PASSES.debug("%s, %d times\n%s", rule.name, count, changed.graph)
                gm = changed
            else:
                PASSES.debug("%s would change the layout of results, so it is not applied", rule.name)
    return gm


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    return fx.GraphModule(gm, graph, gm.__class__.__name__)


def layout(gm: fx.GraphModule, fresh: Fresh) -> list[Any]:
    """The layout of the graph's results, or the error if it raises."""
    mode, inputs = fresh()
    try:
        with running(mode):
            results = tree_leaves(gm.forward(*inputs))
    except Exception as error:
        return [str(error)]
    return [(r.dtype, *map(expressions, (r.shape, r.stride())), r.device) if isinstance(r, torch.Tensor)
            else expression(r) for r in results]


# ---- one rule -------------------------------------------------------------------------------------------------
def aten(graph: fx.Graph) -> int:
    """The pass over a functional ATen graph. Returns the number of replaced nodes."""
    return sum(apply(rule, graph) for rule in in_force(ATEN))


def apply(rule: Rewrite, graph: fx.Graph) -> int:
    """Replace the matches of a rule, the largest first, then those that a replacement completes. Returns their
    number.
    """
    count, gone, waiting = 0, set[fx.Node](), list(graph.nodes)
    while waiting:
        node = waiting.pop()
        match = None if node in gone else first(rule, node)
        if match is not None:
            made = replace(rule, match)
            gone |= erased(match)
            waiting += made.users
            count += 1
    return count


def first(rule: Rewrite, node: fx.Node) -> Match | None:
    for match in matches(rule.pattern, node):
        if rule.condition(match) and is_undisturbed(match):
            return match
    return None


def is_undisturbed(match: Match) -> bool:
    """Whether no node between the matched nodes changes a tensor or a mode of torch."""
    missing, node = set(match.nodes), match.last
    while missing:
        if node not in match.nodes and may_change(node):
            return False
        missing.discard(node)
        node = node.prev
    return True


def replace(rule: Rewrite, match: Match) -> fx.Node:
    last, tracer = match.last, GraphAppendingTracer(match.last.graph)
    known = set(last.graph.nodes)
    with last.graph.inserting_before(last):
        given = {name: fx.Proxy(v, tracer) if isinstance(v, fx.Node) else v for name, v in match.bound.items()}
        result = rule.replacement(match, **given)
    for node in last.graph.nodes:
        if node not in known:
            describe(node, last)
    made: fx.Node = result.node
    last.replace_all_uses_with(made)
    return made


def describe(node: fx.Node, like: fx.Node) -> None:
    """Set the fake value of a new node, and the user's line of the node that it replaces."""
    key = "val" if "val" in like.meta else "example_value"
    mode = like.meta[key].fake_mode
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), fake_of)
    with running(mode):
        node.meta[key] = (getattr(args[0], str(node.target))(*args[1:], **kwargs) if node.op == "call_method"
                          else node.target(*args, **kwargs))     # type: ignore[operator]
    node.meta["stack_trace"] = like.meta.get("stack_trace")


def erased(match: Match) -> set[fx.Node]:
    """Remove the matched nodes, and those that are unused then."""
    gone: set[fx.Node] = set()
    for node in sorted(match.nodes, reverse=True):
        for dead in [*filter(is_unused, node.users), node]:
            if not dead.users:
                dead.graph.erase_node(dead)
                gone.add(dead)
    return gone
