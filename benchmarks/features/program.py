"""The registry of the programs: each has a group, which is a part of torch's public API or of Python's reference."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch


def plain() -> tuple[torch.Tensor]:
    return (torch.arange(12.0).reshape(3, 4) / 6,)


def leaf() -> tuple[torch.Tensor]:
    return (plain()[0].requires_grad_(),)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function of the arguments that ``make`` makes anew for each call.

    ``drives``: the function takes the translator first, and calls what it has translated itself. ``pieces`` is the
    number of graphs that such a program has if nothing breaks, one for each piece between two suspensions.
    """

    group: str
    run: Callable[..., Any]
    make: Callable[[], tuple]
    drives: bool = False
    pieces: int = 1

    @property
    def name(self) -> str:
        return f"{self.group}: {self.run.__name__}"


PROGRAMS: list[Program] = []


class Group:
    """A decorator that adds a program to this group."""

    def __init__(self, name: str, make: Callable[[], tuple] = plain) -> None:
        self.name, self.make = name, make

    def __call__(self, run: Callable) -> Callable:
        PROGRAMS.append(Program(self.name, run, self.make))
        return run

    def of(self, make: Callable[[], tuple]) -> Callable[[Callable], Callable]:
        """The same with other arguments."""
        return Group(self.name, make)

    def drives(self, pieces: int) -> Callable[[Callable], Callable]:
        def register(run: Callable) -> Callable:
            PROGRAMS.append(Program(self.name, run, self.make, True, pieces))
            return run
        return register
