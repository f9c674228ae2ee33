"""assert_captured: a test that a function is captured as a whole."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sot.frontend.explanation import explain
from sot.reports.lines import count


def assert_captured(fn: Callable[..., Any], /, *args: Any, max_breaks: int = 0, **kwargs: Any) -> Any:
    """Call ``fn(*args, **kwargs)`` once with a fresh capture, and return its result.

    Arguments:
        fn: a function or a torch.nn.Module, translated already or not.
        max_breaks: the number of breaks, and of functions left to Python, that is acceptable.

    Raises AssertionError with a report of the breaks.
    """
    explanation = explain(fn)(*args, **kwargs)
    report = explanation.report
    stops = len(report.breaks) + len(report.idle)
    if stops > max_breaks or not report.graphs:
        problem = count(stops, "break") + (f", {max_breaks} allowed" if max_breaks else "")
        raise AssertionError(f"{report.program} is not captured as a whole: "
                             f"{problem if report.graphs else 'there is no graph'}\n\n{explanation}")
    return explanation.result
