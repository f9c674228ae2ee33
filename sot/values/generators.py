"""Generators of random numbers, ``torch.Generator``: inputs of the graph, or made in it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import GeneratorRef
from sot.guards.origin import Origin
from sot.values.base import ABSENT, Const, Value
from sot.values.wrapping import wrap_attr

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine


class GeneratorOfNumbers(Value):
    """A ``torch.Generator``; ``seed`` is what it was seeded with in this trace, if that is known."""

    pytype = torch.Generator

    def __init__(self, ref: GeneratorRef, origin: Origin | None = None) -> None:
        self.ref, self.origin = ref, origin
        self.real: Any = ABSENT if ref.real is None else ref.real
        self.seed: Value | None = None

    def load_attr(self, m: Machine, name: str) -> Value:
        if name == "device":
            return Const(torch.device("cpu")) if self.real is ABSENT else wrap_attr(m, self, name, self.real.device)
        return super().load_attr(m, name)

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self if self.real is ABSENT else self.real

    def rebuild(self, e: Emitter) -> str:
        return e.output(self.ref)
