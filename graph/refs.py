"""References to the tensors of a graph, and names for its inputs."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.torch_compat import FakeTensor


class TensorRef:
    """A tensor of the graph: its node and its fake value. Inputs get their node on first use."""

    __slots__ = ("node", "fake", "real", "label", "version")

    def __init__(self, fake: FakeTensor, node: fx.Node | None = None, real: torch.Tensor | None = None,
                 label: str = "") -> None:
        self.fake, self.node, self.real, self.label = fake, node, real, label
        self.version = version_of(fake)


class NumberRef(TensorRef):
    """A Python number of the graph: an input, or what ``function`` makes of ``operands``, numbers themselves.

    ``fake`` is a SymInt where the number may become a size, ``real`` the number that it is in the captured call.
    """

    __slots__ = ("function", "operands")

    def __init__(self, fake: Any, real: Any, label: str = "", function: Callable | None = None,
                 operands: tuple = ()) -> None:
        self.fake, self.node, self.real, self.label, self.version = fake, None, real, label, 0
        self.function, self.operands = function, operands


class GeneratorRef(TensorRef):
    """A generator of random numbers: an input of the graph, or made in it. On fakes nothing is drawn from it."""

    __slots__ = ()

    def __init__(self, real: torch.Generator | None, node: fx.Node | None = None, label: str = "") -> None:
        self.fake, self.node, self.real, self.label, self.version = None, node, real, label, 0  # type: ignore[assignment]


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor has been changed; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def identifier(text: str) -> str:
    """A Python identifier for a placeholder, made from the user's spelling of a value."""
    name = re.sub(r"\W+", "_", text).strip("_") or "value"
    return name if not name[0].isdigit() else "t_" + name
