"""Autocast in a graph that is exported: torch.export knows entering and leaving it, and not the setters that a captured
graph has. A region of operations under one state of autocast gets a pair of these. The setters stay: while torch.export
traces, entering and leaving are only noted.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast

DEVICES = ("cpu", "cuda")
SETTERS = {torch.set_autocast_enabled: 0, torch.set_autocast_dtype: 1}
OTHERS = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting, torch.clear_autocast_cache,
          torch.set_autocast_cache_enabled)
State = dict[str, list[Any]]        # by device: is it enabled, and its dtype


def state_now() -> State:
    return {device: [torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)] for device in DEVICES}


def with_regions(module: fx.GraphModule) -> fx.GraphModule:
    """The graph with its regions of autocast entered and left, the one that it was captured in included."""
    state = state_now()
    if not any(on for on, _ in state.values()) and not any(node.target in SETTERS for node in module.graph.nodes):
        return module
    new = fx.Graph()
    nodes: dict[fx.Node, fx.Node] = {}
    entered: list[fx.Node] = []
    active: tuple = ()
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in SETTERS:
            state.setdefault(node.args[0], [False, None])[SETTERS[node.target]] = node.args[1]
        elif node.op not in ("placeholder", "get_attr") and node.target not in OTHERS:
            wanted = () if node.op == "output" else tuple((d, dtype) for d, (on, dtype) in state.items() if on)
            if wanted != active:
                while entered:
                    new.call_function(_exit_autocast, (entered.pop(),))
                entered = [new.call_function(_enter_autocast, (d, dtype, True, False)) for d, dtype in wanted]
                active = wanted
        nodes[node] = new.node_copy(node, nodes.__getitem__)
    return fx.GraphModule(module, new)
