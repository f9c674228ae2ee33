"""Settings from environment variables: what is on or off (SOT_STRICT and others), and limits.

SOT_UNROLL: how many rounds and instructions of a loop are unrolled into one graph. Past either limit, the loop stays a
loop, and its body is captured once. A loop without tensor operations adds nothing to the graph. It has a higher limit,
and past that Python runs it.

SOT_ENTRIES: how many captures of a function are kept. A call that fits none of them is then run by Python.

SOT_BUDGET: the share of the program's time that captures may take. A capture that to_static asked for always happens.
"""
from __future__ import annotations

import functools
import os
from typing import NamedTuple, TypeVar

from sot.support.errors import SotError

WITHOUT_OPERATIONS = 50_000     # instructions
COPIED = 1 << 16        # elements of inputs that are copied at each call, in case the graph fails


class Unrolling(NamedTuple):
    """``rounds`` of one loop; ``instructions`` of a capture, all that is inlined counted."""

    rounds: int = 128
    instructions: int = 300_000


class Entries(NamedTuple):
    """Captures of one function (a decorator's wrapper is another one for each function that it wraps), and of all
    functions that share one code object."""

    of_function: int = 8
    of_code: int = 128


class SettingError(SotError, ValueError):
    """An environment variable has an invalid value."""


ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
Default = TypeVar("Default")


def is_on(name: str, default: Default) -> bool | Default:
    """Whether an environment variable turns something on; the default if it is not set. Raises SettingError."""
    text = os.environ.get(name, "").strip().lower()
    if text and text not in ON + OFF:
        raise SettingError(f"{name}={os.environ[name]!r}: it is 1 for on or 0 for off")
    return text in ON if text else default


def unrolling() -> Unrolling:
    """The current value of SOT_UNROLL. Raises SettingError."""
    return _parsed("SOT_UNROLL", os.environ.get("SOT_UNROLL", ""), Unrolling)


def entries() -> Entries:
    """The current value of SOT_ENTRIES. Raises SettingError."""
    return _parsed("SOT_ENTRIES", os.environ.get("SOT_ENTRIES", ""), Entries)


def check_settings() -> None:
    """Raises SettingError for an invalid value of SOT_UNROLL, SOT_ENTRIES, SOT_STRICT or SOT_NATIVE."""
    unrolling(), entries(), is_on("SOT_STRICT", False), is_on("SOT_NATIVE", True)


class Budget(NamedTuple):
    """Captures take at most ``share`` of the running time of the program, and ``seconds`` beside."""

    share: float = 0.2
    seconds: float = 2.0


EVERYTHING = Budget(float("inf"), float("inf"))


class CompileTime(NamedTuple):
    """What a backend takes for a graph and its backward pass, in CPU seconds, if nothing is cached: ``loading`` before
    the first graph, and for each graph and operation.
    """

    loading: float = 0.0
    graph: float = 0.0
    operation: float = 0.0


# Measured with a stack of linear layers, norms and activations, on one core
TRACING = CompileTime(1.5, 0.5, 0.02)       # AOTAutograd alone
KERNELS = CompileTime(10.0, 4.0, 0.35)      # with kernels in C++

# Backends that exist wherever torch does, and need nothing more: to look them up takes an import of two seconds.
ALWAYS_THERE = {"auto": CompileTime(), "eager": CompileTime(), "aot_eager": TRACING, "inductor": KERNELS}


def budget() -> Budget:
    """The current value of SOT_BUDGET. Raises SettingError."""
    text = os.environ.get("SOT_BUDGET", "")
    if text == "all":
        return EVERYTHING
    try:
        found = Budget(*(float(part) for part in text.split(",") if text))
    except (TypeError, ValueError):
        found = Budget(-1)
    if not (0 <= found.share < float("inf") and 0 <= found.seconds < float("inf")):
        raise SettingError(f"SOT_BUDGET={text!r}: it takes the share of the running time that captures may take, and "
                           "after a comma, if that is to change too, how many seconds beside, such as SOT_BUDGET=0.2 "
                           "or SOT_BUDGET=0.2,2; or SOT_BUDGET=all")
    return found


Setting = TypeVar("Setting", Unrolling, Entries)
MEANINGS = {Unrolling: ("rounds", "instructions", "SOT_UNROLL=256 or SOT_UNROLL=256,500000"),
            Entries: ("captures of a function", "captures of all that share its code", "SOT_ENTRIES=16 or "
                                                                                        "SOT_ENTRIES=16,256")}


@functools.cache
def _parsed(name: str, text: str, kind: type[Setting]) -> Setting:
    try:
        found = kind(*(int(part) for part in text.split(",") if text))
    except (TypeError, ValueError):
        found = kind(0)
    if min(found) < 1:
        first, second, examples = MEANINGS[kind]
        raise SettingError(f"{name}={text!r}: it takes a number of {first} above 0, and after a comma, if that is "
                           f"to change too, one of {second}, such as {examples}")
    return found
