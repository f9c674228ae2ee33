"""What a program is: a function to compile, its arguments, and the arguments of other sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Compile = Callable[[Any], Any]


@dataclass
class Program:
    """One program, made afresh for each measurement.

    Arguments:
        run: what is measured; compiled if the translator compiles whole steps.
        arguments: of a call; ``arguments(i)`` has other sizes for each ``i`` from 0 to 19.
        state: what a call changes, beside its result; compared with eager's.
    """

    run: Callable[..., Any]
    arguments: Callable[[int], tuple]
    state: Callable[[], Any] = lambda: None


PROGRAMS: dict[str, tuple[str, Callable[[Compile, Compile], Program]]] = {}


def program(kind: str) -> Any:
    """Register what makes a program. It is given what compiles the whole, and what compiles a part of it: one of the
    two leaves what it is given alone."""

    def register(make: Callable[[Compile, Compile], Program]) -> Any:
        PROGRAMS[make.__name__] = kind, make
        return make

    return register
