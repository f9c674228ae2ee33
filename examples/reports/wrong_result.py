"""Debugging a wrong result: checking mode finds which operation of which graph differs, and saves it as a program."""
import copy
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

import sot


def mistaken(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend with a mistake: it takes tanh for sigmoid."""
    graph_module = copy.deepcopy(graph_module)
    for node in graph_module.graph.nodes:
        if node.target is torch.sigmoid:
            node.target = torch.tanh
    graph_module.recompile()
    return graph_module.forward


def gate(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x @ weight) * (x + 1).relu()


def main() -> None:
    torch.manual_seed(0)
    os.environ["SOT_CHECK_DIR"] = tempfile.mkdtemp()
    f = sot.to_static(gate, backend=mistaken, check=True)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        f(torch.randn(3, 3), torch.randn(3, 3))
    for warning in found:
        print(warning.message)
    assert any("The smallest graph that shows it has 1 operation(s), sigmoid" in str(w.message) for w in found)


if __name__ == "__main__":
    main()
