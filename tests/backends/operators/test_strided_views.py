"""Changes of views that ``as_strided`` makes: AOTAutograd refuses chains of such views, so PyTorch runs the graph."""
from __future__ import annotations

import pytest
import torch
from harness import Programs

import sot

programs = Programs()


@programs
def of_a_strided_view(x):
    y = x * 1
    v = y.as_strided((3,), (5,))
    v.as_strided((2,), (1,), 0).add_(1)
    return y, v


@programs
def a_diagonal_of_a_transposed_tensor(x):
    y = x.exp()
    y.t().fill_diagonal_(2.0)
    return y * 2


@programs
def a_diagonal_of_an_input(x):
    x.t()[1:, 1:].fill_diagonal_(2.0, wrap=True)
    return x.as_strided((2, 2), (4, 1), 5)


@programs
def in_a_piece(x):
    y = x.clone().exponential_()
    y.t()[1:, 1:].fill_diagonal_(2.0, wrap=True)
    return y, x.t().clone().exponential_()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_results_are_pythons(fn, backend, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")

    def outcome(f):
        x = torch.arange(16.0).view(4, 4)
        torch.manual_seed(0)
        return [f(x), f(x), x, torch.rand(2)]
    torch.testing.assert_close(outcome(sot.to_static(fn, backend=backend)), outcome(fn), check_stride=True)


def changed_places(x):
    y = x.as_strided((4,), (1,))
    y += 0.5
    return y


def read_places(x):
    return x.as_strided((4,), (1,)) + 1


INPUTS = {
    "whole": lambda: torch.arange(4.0), "larger": lambda: torch.arange(8.0), "a part": lambda: torch.arange(8.0)[:3],
    "every other": lambda: torch.arange(8.0)[::2], "a column": lambda: torch.arange(8.0).view(4, 2)[:, 0],
    "transposed": lambda: torch.arange(8.0).view(2, 4).t(), "later": lambda: torch.arange(8.0)[2:],
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("fn", [changed_places, read_places])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_places_beside_the_elements_of_an_input(backend, fn, kind):
    """AOTAutograd writes only to the elements of its inputs."""
    captured = sot.to_static(fn, backend=backend)
    for _ in range(2):
        x, y = INPUTS[kind](), INPUTS[kind]()
        assert torch.equal(captured(x), fn(y))
        assert torch.equal(torch.as_strided(x, (8,), (1,), 0) if kind != "whole" else x,
                           torch.as_strided(y, (8,), (1,), 0) if kind != "whole" else y)


def test_places_of_a_whole_input_are_in_the_graph():
    captured = sot.to_static(lambda x: x.as_strided((x.shape[0],), (1,)).add_(1), backend="aot_eager")
    for n in (5, 6, 7):
        captured(torch.arange(float(n)))
    assert [c.stopped for c in sot.translation_of(captured).captures] == [None, None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [
    lambda x: torch.as_strided(input=x, size=(2,), stride=(2,)), lambda x: x.as_strided(stride=(1,), size=(3,)),
    lambda x: torch.as_strided_scatter(x, src=torch.ones(2), size=(2,), stride=(1,)),
    lambda x: x.as_strided_scatter(torch.ones(2), (2,), (1,), 1)])
def test_arguments_by_name(fn, backend):
    captured = sot.to_static(fn, backend=backend)
    assert torch.equal(captured(torch.arange(4.0)), fn(torch.arange(4.0)))
    assert not any("capture failed" in str(c.stopped) for c in sot.translation_of(captured).captures)
