"""Numbers that a trace draws from generators of Python and NumPy.

Emitted code makes all draws of a trace in one call, in the order of the program, when its guards hold and before the
graph runs. If the graph fails, the generators get their states back, and Python runs the frame.
"""
from __future__ import annotations

import random
from dataclasses import field
from typing import Any

import numpy as np

from sot.guards.assumptions import Point
from sot.guards.origin import ById, Emit, Inputs, Origin, immutable
from sot.guards.terms import leaves


def state_of(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return generator.bit_generator.state        # a new dict at each call


def set_state_of(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


class Draws:
    """The draws of a trace. Each call has an index into ``generators``, a method, and its arguments."""

    def __init__(self) -> None:
        self.generators: list[Origin] = []
        self.calls: list[tuple[int, Any, tuple]] = []
        self.final: tuple[tuple, tuple] = ((), ())      # generators and calls of a finished trace

    def finish(self) -> Draws:
        """Fix the draws of the trace that is made now. Draws that are added or undone later are not part of it."""
        self.final = (*self.generators,), (*self.calls,)
        return self

    def draw(self, *generators: Any) -> tuple[tuple, tuple]:
        """The results of all calls, and the states before them."""
        before = (*zip(generators, map(state_of, generators), strict=True),)
        try:
            return tuple([method(generators[i], *args) for i, method, args in self.final[1]]), before
        except BaseException:
            take_back(((), before))
            raise

    def take_back_all_but(self, count: int, drawn: tuple[tuple, tuple]) -> None:
        """Leave the generators as they are after the first calls."""
        take_back(drawn)
        generators = [generator for generator, _ in drawn[1]]
        for i, method, args in self.final[1][:count]:
            method(generators[i], *args)


def take_back(drawn: tuple[tuple, tuple]) -> None:
    """Give the generators the states that they had."""
    for generator, state in drawn[1]:
        set_state_of(generator, state)


@immutable
class AllDrawn(Origin):
    """The results of all draws of a trace."""

    draws: ById = field(compare=False)

    def expr(self, emit: Emit) -> str:
        log = self.draws.value
        return f"{emit.const(log.draw)}({', '.join(map(emit.ref, log.final[0]))})"

    def read(self, inputs: Inputs) -> object:
        raise LookupError("random numbers are drawn when the entry runs")

    def __str__(self) -> str:
        return "the random numbers"


@immutable
class Drawn(Origin):
    """One of them, drawn at a place of the program."""

    base: AllDrawn
    index: int
    point: Point
    example: float = field(compare=False)

    def expr(self, emit: Emit) -> str:
        return f"{emit.ref(self.base)}[0][{self.index}]"

    def read(self, inputs: Inputs) -> object:
        return self.example

    def __str__(self) -> str:
        return "a random number"


def is_drawn(origin: Origin) -> bool:
    """Whether loading an origin draws numbers, so that it must come after all that may fail."""
    return any(isinstance(leaf, AllDrawn | Drawn) for leaf in leaves(origin))
