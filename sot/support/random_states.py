"""The global generators of random numbers, kept as the program left them.

Modules that are imported late and backends draw random numbers of their own: rich for the identifiers of its styles, a
compiler for the examples of its measurements. The program must not see that its generators have advanced.
"""
from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def global_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """The functions that read and set the state of each global generator, of the modules that are imported."""
    yield random.getstate, random.setstate
    if numpy := sys.modules.get("numpy.random"):
        yield numpy.get_state, numpy.set_state
    yield from torch_generators()


def torch_generators() -> Iterator[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """The same of torch."""
    if torch := sys.modules.get("torch.random"):
        yield torch.get_rng_state, torch.set_rng_state
    if (cuda := sys.modules.get("torch.cuda")) and cuda.is_initialized():
        yield cuda.get_rng_state, cuda.set_rng_state


def states_of_torch() -> list[tuple[Callable[[Any], Any], Any]]:
    """The states of torch's generators, with the functions that set them."""
    return [(set_state, get_state()) for get_state, set_state in torch_generators()]


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Undo the draws from global generators that are made inside."""
    before = [(set_state, get_state()) for get_state, set_state in global_generators()]
    try:
        yield
    finally:
        for set_state, state in before:
            set_state(state)
