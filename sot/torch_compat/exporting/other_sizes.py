"""Whether an exported program runs at other sizes than those of its examples.

torch.export sometimes makes a constant of a size in the graph, and leaves the dimensions free that it follows from.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import SymInt
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node

from sot.torch_compat.fake_tensors import quiet

# Other sizes: multiples stay divisible, and smaller ones stay within tables of the model.
CHANGES: tuple[Callable[[int], int], ...] = lambda n: 2 * n, lambda n: n + 1, lambda n: n - 1, lambda n: 3 * n


class Steps(Interpreter):
    """Remembers the node that it runs."""

    node: Node

    def run_node(self, n: Node) -> Any:
        self.node = n
        return super().run_node(n)


def node_of_one_size(program: Any) -> Node | None:
    """The operation at which the program fails for other sizes. None if it runs for some, or if that cannot be told."""
    examples = dict(examples_of(program.graph))
    if not examples or None in examples.values() or node_that_fails(program.graph_module, examples) is not None:
        return None
    failed = None
    for change in CHANGES:
        sizes = {symbol: change(size) for symbol, size in examples.items()}
        if all(limits.lower <= sizes[symbol] <= limits.upper
               for symbol, limits in program.range_constraints.items() if symbol in sizes):
            failed = node_that_fails(program.graph_module, sizes)
            if failed is None:
                return None
    return failed


def examples_of(graph: torch.fx.Graph) -> Iterator[tuple[Any, int | None]]:
    """The symbols of the inputs, each with its size in the example, if that is known."""
    values = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder"]
    for number in (n for value in values for n in numbers_of(value) if isinstance(n, SymInt)):
        if number.node.expr.is_Symbol:
            yield number.node.expr, number.node.hint


def numbers_of(value: Any) -> tuple[Any, ...]:
    return (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)


def node_that_fails(module: GraphModule, sizes: dict[Any, int]) -> Node | None:
    """The operation that raises for these sizes, computed without data; None if none does, or if it asks for data."""
    def size(number: Any) -> Any:
        return int(number.node.expr.subs(sizes)) if isinstance(number, SymInt) else number

    steps = Steps(module)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), quiet():
            steps.run(*(torch.empty_strided([*map(size, value.shape)], [*map(size, value.stride())], dtype=value.dtype,
                                            device=value.device) if isinstance(value, torch.Tensor) else size(value)
                        for value in (node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder")))
    except RuntimeError as e:
        is_shape = type(e) is RuntimeError and hasattr(steps, "node") and not is_assertion(steps.node)
        return steps.node if is_shape else None
    except Exception:       # noqa: BLE001 - what is run here is the user's graph
        return None
    return None


def is_assertion(node: Node) -> bool:
    """Whether the operation only checks. The file says itself which sizes it takes."""
    return "assert" in str(node.target) or "sym_constrain" in str(node.target)
