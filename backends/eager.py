"""The eager backend: the graph as it was captured, run by PyTorch one operation at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule


def eager(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return gm.forward
