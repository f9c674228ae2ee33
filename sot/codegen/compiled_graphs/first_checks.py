"""The checks of indices at the start of a graph run before it, one by one: a compiled graph that fails counts as one
that has changed its inputs. If a check fails, nothing has been changed, and Python runs the frame.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def take_checks(module: fx.GraphModule) -> Callable[..., Any] | None:
    """Remove the checks from a graph, and return a function of its inputs that runs them; None if there are none."""
    nodes = [node for node in module.graph.nodes if node.meta.get("early")]
    if not nodes:
        return None
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in (*module.graph.find_nodes(op="placeholder"), *nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(None)
    for node in reversed(nodes):
        module.graph.erase_node(node)
    module.recompile()
    return torch.no_grad()(fx.GraphModule({}, graph).forward)
