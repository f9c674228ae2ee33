"""The pytest plugin: a mark that translates a test, and a fixture for its report.

    @pytest.mark.sot(max_breaks=0)
    def test_model_is_captured_whole():
        model(batch)

    def test_graphs(sot_report):
        model(batch)
        assert len(sot_report().graphs) == 1
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sot(max_breaks=None, max_recompiles=None, min_coverage=None, backend='eager'): run the test with "
                   "the translator on, and fail it if it breaks or is recompiled more often than allowed")


@pytest.fixture
def sot_report(request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """Runs the test with the translator on. A call returns the sot.reports.model.Report so far."""
    # Late: pytest imports this file in every project where the package is installed.
    yield from import_module("sot.frontend.reported_test").report_of_test(request)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Fail a marked test that exceeds its limits, while the test is still running."""
    result = yield
    if "sot_report" in pyfuncitem.fixturenames:
        import_module("sot.frontend.reported_test").check(pyfuncitem)
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("sot") and "sot_report" not in getattr(item, "fixturenames", ()):
            item.fixturenames.append("sot_report")  # type: ignore[attr-defined]
