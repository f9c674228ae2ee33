"""The pytest plugin: a mark that translates a test, and a fixture that has its report.

    @pytest.mark.sot(max_breaks=0)
    def test_model_is_captured_whole():
        model(batch)

    def test_graphs(sot_report):
        model(batch)
        assert len(sot_report().graphs) == 1
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

LIMITS = ("max_breaks", "max_recompiles", "min_coverage")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sot(max_breaks=None, max_recompiles=None, min_coverage=None, backend='eager'): run the test with "
                   "the translator on, and fail it if it breaks or is recompiled more often than allowed")


@pytest.fixture
def sot_report(request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """Runs the test with the translator on; called, it answers the sot.reports.model.Report up to now."""
    # Here and not above: pytest imports this file in every project where the package is installed.
    from sot._hook import plain
    from sot.frontend.cli import violations
    from sot.frontend.global_mode import enable
    from sot.reports.build import report_of
    from sot.reports.recording import Recording
    from sot.support.user_annotations import observed

    mark = request.node.get_closest_marker("sot")
    wanted = dict(mark.kwargs) if mark else {}
    backend = wanted.pop("backend", "eager")
    if unknown := wanted.keys() - set(LIMITS) or mark and mark.args:
        raise pytest.UsageError(f"{request.node.nodeid}: the mark sot takes {', '.join(LIMITS)} and backend, by name, "
                                f"not {unknown}")
    recording = Recording(request.node.nodeid)
    with enable(backend=backend):
        recording.start()
        try:
            def report() -> object:
                observed()
                return plain(report_of)(recording)
            yield report
        finally:
            recording.stop()
    problems = list(violations(report_of(recording), *(wanted.get(name) for name in LIMITS)))
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("sot") and "sot_report" not in getattr(item, "fixturenames", ()):
            item.fixturenames.append("sot_report")  # type: ignore[attr-defined]
