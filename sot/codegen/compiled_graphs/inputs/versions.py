"""Versions of the inputs that a compiled graph changes.

A compiled graph writes to an input once, after all that it computes, and ``aot_eager`` counts this twice. In the
program the version rises with each change, but not by way of ``.data``, or by norms. So it is set after the run.
That of the fake has risen where the program sets ``.data``.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from sot.codegen.build_graph import Graph
from sot.codegen.compiled_graphs.inputs.shared_arguments import is_plain
from sot.interpreter.torch_ops.data_sizes.storages import assign_data
from sot.torch_compat.tensors import set_versions, storage_id, versions

NORMS = F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm


def with_versions(compiled: Callable[..., Any], graph: Graph) -> Callable[..., Any]:
    """The compiled graph of a trace that changes inputs."""
    statistics = {node for norm in graph.module.graph.nodes if norm.target in NORMS for node in norm.all_input_nodes}
    inputs = zip(graph.inputs, graph.real, graph.module.graph.nodes, strict=False)
    changed = [i for i, (origin, real, node) in enumerate(inputs) if is_plain(real) and not real.is_inference()
               and (origin in graph.changes.versions or node in statistics and not real.requires_grad)]
    memory = Counter(storage_id(graph.real[i]) for i in changed)
    which = [i for i in changed if memory[storage_id(graph.real[i])] == 1]     # others may share a version
    nodes = graph.module.graph.find_nodes(op="placeholder")
    given_data = Counter(node.args[0] for node in graph.module.graph.nodes if node.target is assign_data)
    rises = [graph.changes.versions.get(graph.inputs[i], 0) - given_data[nodes[i]] for i in which]

    def call(*args: Any) -> Any:
        tensors = [args[i] for i in which]
        before = versions(*tensors)
        results = compiled(*args)
        set_versions(tensors, [old + by for old, by in zip(before, rises, strict=True)])
        return results
    return call if which else compiled
