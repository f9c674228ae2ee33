"""The gain of a whole program so far, computed from the counts of the hook and the decisions of the capture policy."""
from __future__ import annotations

import sys
from collections.abc import Iterable
from types import CodeType

from sot import _hook
from sot.driver.capture_policy import Policy, name_of, work_of
from sot.reports.gain import Gain, LeftOut, Pace, gain_lines

CALLS_TO_COMPARE = 3        # fewer calls by Python say nothing about its pace


def gain_of(policy: Policy, captured: Iterable[CodeType], callback: _hook.Callback) -> Gain:
    """The gain of a program. ``captured`` is the code that has been captured."""
    operations, inside = _hook.operations()
    paces, left = [], policy.left_to_python()
    for code in captured:
        (calls, _, seconds), (answered, _, inside_seconds) = _hook.times_of(code)
        if answered and calls >= CALLS_TO_COMPARE:
            paces.append(Pace(name_of(code), answered, inside_seconds / answered, seconds / calls))
        if answered and _hook.is_skipped(code, callback):
            left.append((code, "Python ran it faster than the captured code"))
    left_out = [LeftOut(name_of(code), work_of(code).own, reason) for code, reason in left]
    return Gain(
        operations=operations,
        captured=inside,
        capture_seconds=policy.spent,
        running_seconds=policy.running(),
        functions=sorted(paces, key=lambda pace: -abs(pace.won)),
        left_out=sorted((row for row in left_out if row.operations), key=lambda row: -row.operations),
        for_want_of_budget=[name for name, _ in policy.left_out.most_common()],
    )


def tell(gain: Gain) -> None:
    """Print the gain if the output is a terminal."""
    if gain.operations and gain.capture_seconds:
        print(*gain_lines(gain), sep="\n", file=sys.stderr, flush=True)
