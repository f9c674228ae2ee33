"""assert_captured: for tests that a function is captured whole."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sot.frontend.explanation import explain
from sot.reports.lines import count


def assert_captured(fn: Callable[..., Any], /, *args: Any, max_breaks: int = 0, **kwargs: Any) -> Any:
    """Call ``fn(*args, **kwargs)`` once, captured afresh, and answer what it returns.

    Arguments:
        fn: a function or a torch.nn.Module, translated already or not.
        max_breaks: how many breaks, and functions left to Python, are acceptable.

    Raises AssertionError, with the report of what broke.
    """
    explanation = explain(fn)(*args, **kwargs)
    report = explanation.report
    stops = len(report.breaks)
    if stops > max_breaks or not report.graphs:
        problem = count(stops, "break") + (f", of which {max_breaks} would do" if max_breaks else "")
        raise AssertionError(f"{report.program} is not captured whole: "
                             f"{problem if report.graphs else 'there is no graph'}\n\n{explanation}")
    return explanation.result
