"""Branches on whether values are finite: the graph holds the way of finite values, and Python has the rest."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check_by
from test_data_sizes import compared

import sot

one_graph, breaking = Programs(), Programs()
X = torch.linspace(-2, 3, 24).reshape(6, 4)
INF, NAN = X.clone(), X.clone()
INF[1, 2], NAN[3, 3] = float("-inf"), float("nan")
W = torch.linspace(-1, 1, 16).reshape(4, 4)


@one_graph
def clamped_if_one_is_not_finite(x):
    for w in (W, W * 2):
        x = x @ w
        if not torch.isfinite(x).all():
            x = torch.clamp(x.nan_to_num(), min=-5, max=5)
    return x * 2


@one_graph
def the_word_of_the_log(x):
    log, y = [], torch.rand(6, 4) + x
    if torch.isnan(y).any():
        log.append("nan")
    elif y.isinf().any().item():
        log.append("inf")
        return log, y.sum()
    return log, y * torch.rand(4)


@one_graph
def either(x):
    y = x.exp().log()
    if (torch.isnan(y) | torch.isinf(y)).any() or not (~y.isnan()).all():
        return torch.zeros(()), "skipped"
    return y.sum(), "done"


@one_graph
def a_loss_of_one_element(x):
    loss = (x ** 2).mean()
    return x * 0 if torch.isnan(loss) or torch.isinf(loss) else x * loss


@one_graph
def where_exceptions_are_handled(x):
    try:
        y = x @ W
        if not torch.isfinite(y).all():
            y = y.nan_to_num(7, 8, 9)
    except RuntimeError:
        return x, "caught"
    return y * 2, "fine"


@breaking
def after_a_change_of_an_input(x):
    x.mul_(2)
    return x * 2 if torch.isfinite(x).all() else x


@breaking
def a_loop_while_values_are_finite(x):
    n = 0
    while torch.isfinite(x).all():
        x, n = x * 1e9, n + 1
    return x, n


@breaking
def another_question(x):
    return x * 2 if (x > 1).any() else x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@one_graph.each
def test_values_that_are_seldom_not_finite(fn, backend):
    captures = compared(fn, [(X,), (X + 1,), (INF,), (X,), (NAN,), *[(X * 2,)] * 9], backend)
    assert [capture.stopped for capture in captures] == [None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@one_graph.each
def test_values_that_are_often_not_finite(fn, backend):
    compared(fn, [(NAN,), *[(INF,), (X,), (NAN,)] * 4], backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@breaking.each
def test_a_branch_that_is_a_break(fn, backend):
    assert any(c.stopped for c in compared(fn, [(X,), (INF,), (X * 2,)], backend))


def test_a_loop_is_not_unrolled():
    sot.reset()
    captures = compared(a_loop_while_values_are_finite, [(X,)])
    assert all("more than" not in str(capture.stopped) for capture in captures)


def test_a_guess_that_fails_often_is_given_up():
    sot.reset()
    captures = compared(clamped_if_one_is_not_finite, [(X,)] + [(INF,)] * 6)
    assert captures[0].stopped is None and any(capture.stopped for capture in captures[1:])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("x", [X, INF, NAN], ids=["finite", "inf", "nan"])
def test_gradients(x, backend):
    check_by(backend, lambda x, w: clamped_if_one_is_not_finite(x @ w), x, W.clone().requires_grad_())


def test_a_saved_model_assumes_nothing(tmp_path):
    class Clamps(torch.nn.Module):
        def forward(self, x):
            return x.nan_to_num() if torch.isnan(x).any() else x * 2
    sot.save(Clamps(), tmp_path / "model.pt2", input_spec=[sot.InputSpec([6, 4], torch.float32, "x")])
    loaded = sot.load(tmp_path / "model.pt2")
    for x in (X, NAN, INF):
        assert torch.equal(loaded(x), Clamps()(x))
