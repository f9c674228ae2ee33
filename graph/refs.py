"""References to the tensors of a graph, and names for its inputs."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.torch_compat.fake_tensors import FakeTensor


class TensorRef:
    """A tensor of the graph: its node and its fake value. Inputs get their node on first use.

    ``seen``: has capture asked for anything of the fake value but the results of operations on it? What it has
    captured is then right only for a tensor of that dtype, shape and so on, and only if the tensors that this one is
    computed from are as they were, too.
    """

    __slots__ = ("node", "fake", "real", "label", "version", "seen")

    def __init__(self, fake: FakeTensor, node: fx.Node | None = None, real: torch.Tensor | None = None,
                 label: str = "") -> None:
        self.fake, self.node, self.real, self.label = fake, node, real, label
        self.version, self.seen = version_of(fake), False

    def see(self) -> None:
        self.seen = True
        if self.node is not None:
            self.node.meta["seen"] = True

    @property
    def is_seen(self) -> bool:
        """Of this tensor, or of what is computed from it, once the graph has passed that on."""
        return self.seen or (self.node is not None and self.node.meta.get("seen", False))


class NumberRef(TensorRef):
    """A Python number of the graph: an input, or what ``function`` makes of ``operands``, numbers themselves.

    ``fake`` is a SymInt where the number may become a size, ``real`` the number that it is in the captured call.
    """

    __slots__ = ("function", "operands")

    def __init__(self, fake: Any, real: Any, label: str = "", function: Callable | None = None,
                 operands: tuple = ()) -> None:
        self.fake, self.node, self.real, self.label, self.version, self.seen = fake, None, real, label, 0, True
        self.function, self.operands = function, operands


class GeneratorRef(TensorRef):
    """A generator of random numbers: an input of the graph, or made in it. On fakes nothing is drawn from it."""

    __slots__ = ()

    def __init__(self, real: torch.Generator | None, node: fx.Node | None = None, label: str = "") -> None:
        self.fake, self.node, self.real, self.label, self.version = None, node, real, label, 0  # type: ignore[assignment]
        self.seen = True


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor has been changed; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version


def identifier(text: str) -> str:
    """A Python identifier for a placeholder, made from the user's spelling of a value."""
    name = re.sub(r"\W+", "_", text).strip("_") or "value"
    return name if not name[0].isdigit() else "t_" + name
