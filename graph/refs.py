"""References to the tensors of a graph, and names for its inputs."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.torch_compat.fake_tensors import FakeTensor
from sot.torch_compat.subclasses.wrappers import inner_tensors, is_wrapper


class TensorRef:
    """A tensor of the graph: its node and its fake value. Inputs get their node on first use.

    ``seen``: whether capture has used the fake value for anything but operations on it. Then the capture is right only
    for a tensor of that dtype, shape and so on, and only if the tensors from which this one is computed have not
    changed either.
    """

    __slots__ = ("node", "fake", "real", "label", "version", "seen")

    def __init__(self, fake: FakeTensor, node: fx.Node | None = None, real: torch.Tensor | None = None,
                 label: str = "") -> None:
        self.fake, self.node, self.real, self.label = fake, node, real, label
        self.version, self.seen = version_of(fake), False

    @property
    def example(self) -> Any:
        """What the node of this input records about it."""
        return self.fake

    def see(self) -> None:
        self.seen = True
        if self.node is not None:
            self.node.meta["seen"] = True

    @property
    def is_seen(self) -> bool:
        """Whether this tensor, or a value computed from it, has been seen, once the graph has passed that on."""
        return self.seen or (self.node is not None and self.node.meta.get("seen", False))


class NumberRef(TensorRef):
    """A Python number of the graph: an input, or the result of ``function`` on ``operands``, which are numbers, too.

    ``fake`` is a SymInt if the number may become a size. ``real`` is the number in the captured call, or None if it
    depends on data. ``may_raise``: whether the graph must compute it even if nothing uses it.
    """

    __slots__ = ("function", "may_raise", "operands")

    def __init__(self, fake: Any, real: Any, label: str = "", function: Callable | None = None,
                 operands: tuple = (), may_raise: bool = False) -> None:
        self.fake, self.node, self.real, self.label, self.version, self.seen = fake, None, real, label, 0, True
        self.function, self.operands, self.may_raise = function, operands, may_raise


class GeneratorRef(TensorRef):
    """A generator of random numbers: an input of the graph, or made in it. Fakes draw nothing from it."""

    __slots__ = ()

    def __init__(self, real: torch.Generator | None, node: fx.Node | None = None, label: str = "") -> None:
        self.fake, self.node, self.real, self.label, self.version = None, node, real, label, 0  # type: ignore[assignment]
        self.seen = True


class ModuleRef(TensorRef):
    """A finished subgraph as an argument of a node. Fakes run it."""

    __slots__ = ()

    def __init__(self, module: fx.GraphModule, node: fx.Node) -> None:
        self.fake, self.node, self.real, self.label, self.version = module, node, None, "", 0  # type: ignore[assignment]
        self.seen = True


def version_of(tensor: torch.Tensor) -> int:
    """The version of a tensor, and of those inside of a wrapper. Tensors of inference mode have none."""
    own = 0 if tensor.is_inference() else tensor._version
    return own if not is_wrapper(tensor) else own + sum(version_of(part) for _, part in inner_tensors(tensor))


def identifier(text: str) -> str:
    """A Python identifier for a placeholder, made from the user's spelling of a value."""
    name = re.sub(r"\W+", "_", text).strip("_") or "value"
    return name if not name[0].isdigit() else "t_" + name
