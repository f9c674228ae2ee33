"""A test that runs with the translator on and has a report. The pytest plugin loads this when a test needs it."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import pytest

from sot._hook import Callback, get_callback, plain, skip
from sot.driver.translator import reset
from sot.frontend.checks.limits import Limits, violations
from sot.frontend.global_mode import enable_all
from sot.reports.build import report_of
from sot.reports.recording import Recording
from sot.support.user_annotations import ROOTS, observed

LIMITS = {"max_breaks": "breaks", "max_recompiles": "recompiles", "min_coverage": "coverage"}


def report_of_test(request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """Run the test of a fixture. Fail it if it exceeds the limits of its mark. Captures of earlier tests are dropped:
    they would run without a record.
    """
    mark = request.node.get_closest_marker("sot")
    wanted = dict(mark.kwargs) if mark else {}
    backend = wanted.pop("backend", "eager")
    if unknown := wanted.keys() - set(LIMITS) or mark and mark.args:
        raise pytest.UsageError(f"{request.node.nodeid}: the mark sot takes {', '.join(LIMITS)} and backend, by name, "
                                f"not {unknown}")
    recording = Recording(request.node.nodeid)
    reset()
    with enable_all(backend=backend), left_to_python(request.function):
        recording.start()
        try:
            def report() -> object:
                observed()
                return plain(report_of)(recording)
            request.node.stash[CHECK] = lambda: fail_if_exceeded(recording, wanted)
            yield report
        finally:
            recording.stop()


@contextmanager
def left_to_python(test: Callable[..., object]) -> Iterator[None]:
    """Translate what a test calls, and not the test itself.

    Tensors that the test makes are then inputs of the code under test. In one capture with it they would be constants,
    whose values are known: a branch on one would be no break. Assertions of the test are no breaks of that code either.
    """
    function: Any = getattr(test, "__func__", test)
    codes, callback = [], get_callback()
    while function is not None:
        if isinstance(function, FunctionType):
            codes.append(function.__code__)
            skip(function.__code__, callback if isinstance(callback, Callback) else None)
        function = getattr(function, "__wrapped__", None)
    ROOTS.update((id(code), code) for code in codes)
    try:
        yield
    finally:
        for code in codes:
            ROOTS.pop(id(code), None)


CHECK = pytest.StashKey[Callable[[], None]]()


def check(item: pytest.Item) -> None:
    """Fail a test that has exceeded its limits, once its function has returned, as an assertion would."""
    if CHECK in item.stash:
        item.stash[CHECK]()


def fail_if_exceeded(recording: Recording, wanted: dict[str, Any]) -> None:
    """Fail the test if its report exceeds the limits of its mark."""
    recording.stop()
    limits = Limits(**{LIMITS[name]: value for name, value in wanted.items()})
    problems = list(violations(report_of(recording), limits))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
