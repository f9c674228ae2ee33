"""A compiled graph that raises when it runs: eager PyTorch's result, one warning, a line in the report."""
from __future__ import annotations

import warnings

import pytest
import torch
from harness import every_call

import sot
from sot.backends import BackendError, BackendWarning

pytestmark = pytest.mark.usefixtures("fresh")


class Failing:
    """A backend whose graphs raise from their n-th run on, after they have done what ``before`` does."""

    name = "failing"

    def __init__(self, runs: int = 0, error: Exception | None = None, before=lambda args: None) -> None:
        self.runs, self.error, self.before = runs, error or RuntimeError("no such kernel\nat 0x7f"), before
        self.calls = 0

    def __call__(self, gm, inputs):
        def run(*args):
            self.calls += 1
            if self.calls > self.runs:
                self.before(args)
                raise self.error
            return gm.forward(*args)
        return run


def scaled(x):
    y = x * 2
    return y.sin()


def test_the_result_is_eagers_and_one_warning_names_backend_and_graph():
    backend, x = Failing(), torch.randn(4)
    run = sot.to_static(scaled, backend=backend)
    with pytest.warns(BackendWarning, match="backend 'failing' failed when it ran scaled.* RuntimeError: no such "
                                            "kernel; eager PyTorch runs this graph from now on") as seen:
        results = [run(x) for _ in range(3)]
    assert len(seen) == 1
    assert backend.calls == 1, "the graph is eager's from then on"
    torch.testing.assert_close(results, [scaled(x)] * 3)


def test_it_may_fail_late():
    backend, x = Failing(runs=2), torch.randn(4)
    run = sot.to_static(scaled, backend=backend)
    torch.testing.assert_close([run(x), run(x)], [scaled(x)] * 2)
    with pytest.warns(BackendWarning):
        torch.testing.assert_close(run(x), scaled(x))


def test_gradients_are_there():
    x = torch.randn(4, requires_grad=True)
    with pytest.warns(BackendWarning):
        y = sot.to_static(scaled, backend=Failing())(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(scaled(x).sum(), x))


def test_what_the_program_does_wrong_is_the_programs():
    def looked_up(x, i):
        return x[i] * 2
    run = sot.to_static(looked_up, backend=Failing())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(IndexError):
            run(torch.randn(3), torch.tensor([5]))


def test_random_numbers_are_drawn_once():
    def noisy(x):
        return x + torch.rand(3)
    run = sot.to_static(noisy, backend=Failing(before=lambda args: torch.rand(100)))
    torch.manual_seed(1)
    expected = noisy(torch.zeros(3)), torch.rand(2)
    torch.manual_seed(1)
    with pytest.warns(BackendWarning):
        got = run(torch.zeros(3)), torch.rand(2)
    torch.testing.assert_close(got, expected)


def added(x):
    x.add_(1)
    return x * 2


def test_what_the_first_run_has_written_is_put_back():
    for backend in (Failing(before=lambda args: args[0].add_(1)), Failing()):
        x = torch.zeros(2)
        with pytest.warns(BackendWarning):
            y = sot.to_static(added, backend=backend)(x)
        assert x.tolist() == [1, 1] and y.tolist() == [2, 2]


def test_what_a_later_run_has_written_is_not_written_twice():
    x = torch.zeros(2)
    run = sot.to_static(added, backend=Failing(runs=1, before=lambda args: args[0].add_(1)))
    run(x)
    with pytest.raises(RuntimeError, match="no such kernel"):
        run(x)
    assert x.tolist() == [2, 2]


@pytest.mark.slow
def test_an_lstm_is_trained_without_a_failure():
    lstm = torch.nn.LSTM(3, 2)

    def step(x):
        loss = lstm(x)[0].square().mean()
        loss.backward()
        return loss.detach()
    x = torch.randn(4, 2, 3)
    want = step(x), [p.grad for p in lstm.parameters()]
    lstm.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error", BackendWarning)
        got = sot.to_static(step, backend=every_call("aot_eager"))(x), [p.grad for p in lstm.parameters()]
    torch.testing.assert_close(got, want)


def test_in_strict_mode_it_raises(monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    run = sot.to_static(scaled, backend=Failing())
    with pytest.raises(BackendError, match="backend 'failing' failed when it ran scaled") as caught:
        run(torch.randn(3))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_the_report_says_so():
    with pytest.warns(BackendWarning):
        told = sot.explain(sot.to_static(scaled, backend=Failing()))(torch.randn(3))
    assert "eager PyTorch runs it: backend 'failing' failed when it ran scaled" in str(told)
    graph, = told.report.graphs
    assert len(graph.fallbacks) == 1 and "no such kernel" in graph.fallbacks[0]


def test_an_interrupt_is_no_failure():
    def interrupted(gm, inputs):
        def run(*args):
            raise KeyboardInterrupt
        return run
    with pytest.raises(KeyboardInterrupt):
        sot.to_static(scaled, backend=interrupted)(torch.randn(3))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_function_that_changes_what_its_backward_pass_needs(backend):
    """It fails in the backward pass, as in Python, and not before."""
    layer = torch.nn.Linear(3, 3)

    def f(x):
        y = layer(x).relu()
        y[:, 0] = 1
        return y
    translated, x = sot.to_static(f, backend=backend), torch.ones(2, 3)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            got, want = translated(x), f(x)
        assert not any("Error detected" in str(warning.message) for warning in shown)
        torch.testing.assert_close(got, want)
        for result in got, want:
            with pytest.raises(RuntimeError, match="modified by an inplace operation") as raised:
                result.sum().backward()
            assert raised.type is RuntimeError
