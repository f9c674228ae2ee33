"""The list that ``warnings.catch_warnings(record=True)`` returns. Captured code warns after its graph, so a capture
that warns cannot read the list.
"""
from __future__ import annotations

import warnings

from sot.guards.guards import Guard
from sot.guards.origin import Emit, immutable


def gets_warnings(held: object) -> bool:
    """Whether warnings are recorded in this list now."""
    return getattr(vars(warnings).get("_showwarnmsg_impl"), "__self__", None) is held


@immutable
class NoLogGuard(Guard):
    """A list that the program reads gets no warnings."""

    def test(self, emit: Emit) -> str:
        return f"not {emit.const(gets_warnings)}({emit.ref(self.origin)})"

    def holds(self, value: object) -> bool:
        return not gets_warnings(value)

    def __str__(self) -> str:
        return f"warnings are not recorded in {self.origin}"
