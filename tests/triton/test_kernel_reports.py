"""Reports have the kernels that the backend made: in the data, on the page, in text, and when two are compared."""
import pytest
import torch

import sot
from sot.reports.build import report_of
from sot.reports.model import load
from sot.reports.recording import Recording, recorded
from sot.reports.views.compare import compare
from sot.reports.views.page import page

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path))
    sot.reset()


def f(x, w):
    return torch.nn.functional.gelu(x @ w).sum(1) * 2


def reported(fn=f, backend="triton"):
    x, w = torch.ones(4, 8, requires_grad=True), torch.eye(8)
    translated, recording = sot.to_static(fn, backend=backend), Recording("kernels")
    with recorded(recording):
        translated(x, w).sum().backward()
    return report_of(recording), translated


def test_forward_and_backward_with_their_schedule_and_source(tmp_path):
    report, _ = reported()
    forward, backward = report.graphs[0].kernels
    assert (forward.title, backward.title) == ("forward", "backward") and not forward.cached
    for made in forward, backward:
        assert (made.kernels, made.calls) == (1, 1) and made.bytes > 0 and "@triton.jit" in made.source
        assert [step.split()[0] for step in made.schedule].count("kernel") == 1 and len(made.schedule) == 2
        assert any("aten.mm" in step for step in made.schedule)
    report.save(tmp_path / "r.json")
    assert load(tmp_path / "r.json") == report


def test_what_an_earlier_process_made_is_told_as_well():
    first, _ = reported()
    sot.reset()
    again, _ = reported()
    assert [made.cached for made in again.graphs[0].kernels] == [True, True]
    assert [made.schedule for made in again.graphs[0].kernels] == [m.schedule for m in first.graphs[0].kernels]


def test_the_page_and_the_text_show_them():
    report, translated = reported()
    text = page(report)
    for wanted in ("Forward", "Backward", "1 kernel", "bytes moved", "@triton.jit", "aten.mm"):
        assert wanted in text
    assert "forward: 1 kernel, 1 call of operators" in str(translated.explain())


def test_a_graph_without_kernels_has_none():
    report, _ = reported(backend="eager")
    assert report.graphs[0].kernels == []


def test_more_bytes_moved_is_worse():
    def twice(x, w):
        return f(x, w) + f(x + 1, w).cumsum(0)

    less, more = reported()[0], reported(twice)[0]
    found = {d.text.partition(":")[0]: d.worse for d in compare(less, more)}
    assert found["kernels"] is None and found["bytes that kernels move in a run of each graph"] is True
    assert {d.text.partition(":")[0]: d.worse for d in compare(more, less)}[
        "bytes that kernels move in a run of each graph"] is False
