"""Branches that only a size of zero decides: the graph holds the way of other sizes, and Python has the rest."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check_by
from test_data_sizes import compared

import sot
from sot.deploy.errors import SaveError

one_graph, breaking = Programs(), Programs()
X = torch.linspace(-2, 3, 24).reshape(6, 4)
EMPTY = X - 10
W = torch.linspace(-1, 1, 16).reshape(4, 4)


@one_graph
def experts(x):
    log, out = [], torch.zeros_like(x)
    which = torch.arange(6) % 3 + (x[:, 0] < -5).long() * 5
    for e in range(2, -1, -1):
        rows, = torch.where(which == e)
        if rows.numel() == 0:
            log.append(e)
            continue
        out.index_add_(0, rows, x[rows] @ W * e)
    return out, log


@one_graph
def some_or_none(x):
    log, chosen = [], x[x > 0]
    if len(chosen):
        log.append("some")
        best = chosen.max()
    else:
        log.append("none")
        best = x.new_zeros(())
    return best, log


@one_graph
def by_other_words(x):
    a, b = x[x > 0], torch.nonzero(x < 0)
    if a.shape[0] * 2 + b.size(0) > 0 and b.numel() >= 1:
        return a.sum() * 3
    return x


@one_graph
def random_numbers_before(x):
    noise = torch.rand(3)
    if x[x > 0].numel() > 0:
        return torch.rand(3) + noise
    return torch.rand(2), noise


def rows_or_zero(x):
    """What a library asks: each of its callers has a branch of its own."""
    return int(x.shape[0]) + 1 if x.numel() > 0 else 0


@one_graph
def a_helper_that_is_called_twice(x):
    y = x[x[:, 0] > -1]
    first = torch.zeros(rows_or_zero(y), 4).sum(0)
    z = y[y[:, 1] > -0.5]
    return first + z.sum(0), torch.ones(rows_or_zero(z)).cumsum(0), z


class Selects(torch.nn.Module):
    def __init__(self, at):
        super().__init__()
        self.at = at

    def forward(self, x):
        x = x[x[:, self.at] > -1]
        return x, x.new_zeros(rows_or_zero(x))


FIRST, SECOND = Selects(0), Selects(1)


@one_graph
def two_modules_of_one_class(x):
    y, a = FIRST(x)
    z, b = SECOND(y)
    return z * 2, a + 1, b


@breaking
def after_a_change_of_an_input(x):
    x.add_(1)
    return x[x > 1].sum() if x[x > 1].numel() > 0 else x


@breaking
def until_nothing_is_left(x):
    n, x = 0, x.flatten()
    while x.numel() > 0:
        x, n = x[x > n], n + 1
    return x, n


@breaking
def until_a_break(x):
    n = 0
    for i in range(10):
        x = x[x > i]
        if x.shape[0] == 0:
            break
        n += 1
    return x, n


@breaking
def a_recursion(x, depth=0):
    y = x[x > 1]
    if y.numel() == 0:
        return x.sum(), depth
    return a_recursion(y / 2, depth + 1)


def is_empty(x):
    return x.numel() == 0


@breaking
def a_recursion_that_asks_a_helper(x, depth=0):
    y = x[x > 1]
    if is_empty(y):
        return x.sum(), depth
    if depth % 2:
        return a_recursion_that_asks_a_helper(y / 2, depth + 1)
    return a_recursion_that_asks_a_helper(y / 2 - 0.1, depth + 1)


@breaking
def two_that_call_each_other(x, depth=0):
    y = x[x > 1]
    return (x.sum(), depth) if is_empty(y) else the_other(y / 2, depth + 1)


def the_other(x, depth):
    y = x[x > 0.5]
    return (x.mean(), depth) if is_empty(y) else two_that_call_each_other(y * 1.5, depth + 1)


@breaking
def a_helper_in_a_loop(x):
    x = x.flatten()
    for n in range(100):
        if is_empty(x):
            return x.sum(), n
        x = x[x > n / 4]
    return x.sum(), -1


@breaking
def an_integer_that_may_be_negative(x):
    return x + 1 if int(x.sum()) == 0 else x + 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@one_graph.each
def test_sizes_that_are_seldom_zero(fn, backend):
    captures = compared(fn, [(X,), (X.flip(0),), (X,), (X.flip(0) + 1,), (EMPTY,), (X * 2,)] + [(X,)] * 8, backend)
    # Python runs the call that is empty, and what that calls is captured, too.
    assert [capture.stopped for capture in captures if capture.name == fn.__name__] == [None]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@one_graph.each
def test_sizes_that_are_often_zero(fn, backend):
    compared(fn, [(X,), *[(EMPTY,), (X,)] * 4], backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@breaking.each
def test_a_branch_that_is_a_break(fn, backend):
    assert any(c.stopped for c in compared(fn, [(X,), (X + 1,), (EMPTY,), (X * 2,)], backend))


def test_a_loop_is_not_unrolled():
    sot.reset()
    for fn in (until_nothing_is_left, a_recursion, a_recursion_that_asks_a_helper, two_that_call_each_other,
               a_helper_in_a_loop):
        captures = compared(fn, [(X,)])
        assert all("more than" not in str(c.stopped) and "deeper" not in str(c.stopped) for c in captures)


def test_gradients():
    w = W.clone().requires_grad_()
    check_by("inductor", lambda x, w: x[x[:, 0] > 0] @ w if x[x[:, 0] > 0].numel() else w * 2, X, w, breaks=0)


def test_a_saved_model_assumes_nothing(tmp_path):
    class Chooses(torch.nn.Module):
        def forward(self, x):
            return x[x > 0].max() if x[x > 0].numel() else x.sum()
    with pytest.raises(SaveError, match="captured whole"):
        sot.save(Chooses(), tmp_path / "model.pt2", input_spec=[sot.InputSpec([6, 4], torch.float32, "x")])
