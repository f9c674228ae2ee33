"""What a whole program has gained by capture: plain data, and its text for the exit and for reports.

This imports neither torch nor the views of reports, so a program that never captures does not load them.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

SHOWN = 3


@dataclass(frozen=True)
class Pace:
    """The time of a function's calls. ``calls`` of them were captured; seconds are means per call."""

    name: str
    calls: int
    captured: float
    plain: float

    @property
    def won(self) -> float:
        return self.calls * (self.plain - self.captured)


@dataclass(frozen=True)
class LeftOut:
    """A function that Python runs: the number of its tensor operations, and why."""

    name: str
    operations: int
    reason: str


@dataclass(frozen=True)
class Gain:
    """The cost and the gain of capture. ``captured`` of the ``operations`` on tensors ran in captured code."""

    operations: int
    captured: int
    capture_seconds: float
    running_seconds: float
    functions: list[Pace] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    for_want_of_budget: list[str] = field(default_factory=list)

    @property
    def won(self) -> float:
        return sum(pace.won for pace in self.functions)


def gain_lines(gain: Gain) -> Iterator[str]:
    """The text that is printed at exit."""
    share = gain.captured / gain.operations if gain.operations else 0.0
    yield (f"SOT: {share:.0%} of {gain.operations:,} tensor operations ran in captured code; capture took "
           f"{gain.capture_seconds:.1f} s of {gain.running_seconds:.1f} s")
    if gain.functions:
        yield f"  captured calls were {spoken(gain.won)} than in Python:"
        yield from (f"    {pace.name}: {pace.captured * 1e3:.2f} ms a call, {pace.plain * 1e3:.2f} ms in Python, "
                    f"{pace.calls:,} calls" for pace in gain.functions[:SHOWN])
    if gain.left_out:
        yield "  left to Python:"
        yield from (f"    {left.name}, {left.operations:,} operations: {left.reason}"
                    for left in gain.left_out[:SHOWN])
    if gain.for_want_of_budget:
        more = len(gain.for_want_of_budget) - SHOWN
        yield (f"  not captured for want of budget (SOT_BUDGET): {', '.join(gain.for_want_of_budget[:SHOWN])}"
               f"{f' and {more} more' if more > 0 else ''}")


def spoken(won: float) -> str:
    return f"{won:.1f} s faster" if won >= 0 else f"{-won:.1f} s slower"
