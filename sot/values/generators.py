"""Generators of random numbers, ``torch.Generator``: inputs of the graph, or made in it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import GeneratorRef
from sot.guards.origin import Origin
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.wrapping import wrap_attr

if TYPE_CHECKING:
    from sot.values.protocols import Emitter, Machine


def refuse_draws(m: Machine) -> None:
    """Break if the graph would not have Python's random state."""
    if m.assumptions.compiles or m.modes or m.builder.region is not None:
        raise Break(Reason.RANDOM, "a call that sets or reads the random state, or")


class GeneratorOfNumbers(Value):
    """A ``torch.Generator``. ``seed`` is its seed in this trace, if that is known."""

    pytype = torch.Generator

    def __init__(self, ref: GeneratorRef, origin: Origin | None = None) -> None:
        self.ref, self.origin = ref, origin
        self.real: Any = ABSENT if ref.real is None else ref.real
        self.seed: Value | None = None

    def load_attr(self, m: Machine, name: str) -> Value:
        if name == "device":
            return Const(torch.device("cpu")) if self.real is ABSENT else wrap_attr(m, self, name, self.real.device)
        return super().load_attr(m, name)

    def graph_argument(self, m: Machine, found: dict[int, Any], as_number: bool = False) -> GeneratorRef:
        refuse_draws(m)
        return self.of_cpu(m).ref

    def of_cpu(self, m: Machine) -> GeneratorOfNumbers:
        """The generator itself. Break if it is not on the CPU."""
        if self.load_attr(m, "device").constant().type != "cpu":
            raise Break(Reason.RANDOM, "a generator that is not the CPU's, or")
        return self

    def truth(self, m: Machine) -> bool | None:
        return True

    def key(self) -> Any:
        return self if self.real is ABSENT else self.real

    def rebuild(self, e: Emitter) -> str:
        return e.output(self.ref)
