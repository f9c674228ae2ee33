"""Training steps that raise: exception, weights, gradients and effects are plain Python's, and training goes on.

A compiled graph that raises may have changed its inputs already, so Python could not run the frame again.
"""
from __future__ import annotations

import pytest
import torch
from harness import Programs, same
from torch import nn
from torch.nn import functional as F

import sot

pytestmark = pytest.mark.usefixtures("fresh")
GOOD, NAN = torch.linspace(-1, 1, 20).view(5, 4), torch.full((5, 4), float("nan"))
programs = Programs()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))


@programs
def a_loss_that_is_no_number(m, opt):
    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss is {loss.item()}")
        loss.backward()
        opt.step()
        return loss.item()
    return step, [GOOD, GOOD, GOOD, NAN, GOOD]


@programs
def two_assertions(m, opt):
    def step(x):
        opt.zero_grad()
        out = m[3](m[0](x))
        if out.isnan().any():
            raise AssertionError("nan")
        loss = out.square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)
        opt.step()
        return loss.item()
    return step, [GOOD, GOOD, NAN, GOOD, GOOD * 1e30, GOOD]


@programs
def an_exception_that_is_caught(m, opt):
    def step(x):
        try:
            opt.zero_grad()
            loss = m(x).square().mean()
            if loss.isnan():
                raise OverflowError(loss.item())
            loss.backward()
            opt.step()
        except OverflowError as e:
            return str(e)
        return loss.item()
    return step, [GOOD, GOOD, NAN, GOOD]


@programs
def a_number_of_the_graph(m, opt):
    def step(x):
        opt.zero_grad()
        loss = m(x).square().mean()
        if int(x.isnan().sum()) > 3:
            raise ValueError("too many")
        loss.backward()
        opt.step()
        return loss.item()
    return step, [GOOD, GOOD, NAN, GOOD]


@programs
def a_target_out_of_range(m, opt):
    log = []

    def step(y):
        opt.zero_grad()
        log.append(len(y))
        loss = F.cross_entropy(m(GOOD), y)
        loss.backward()
        opt.step()
        return loss.detach(), list(log)
    return step, [torch.tensor(y) for y in ([0, 1, 2, 0, 1], [0, 1, 1, 0, 1], [0, 7, 2, 0, 1], [0, 1, 2, 0, 0])]


@programs
def an_index_that_the_graph_computes(m, opt):
    rows = nn.Embedding(5, 4)

    def step(i):
        opt.zero_grad()
        loss = m(rows(i * 2)).square().mean()
        loss.backward()
        opt.step()
        return loss.item()
    return step, [torch.tensor(i) for i in ([0, 1], [1, 2], [0, 7], [1, 1])]


@programs
def a_running_sum_before_the_index(m, opt):
    total = torch.zeros(3)

    def step(i):
        total.add_(1)
        found = torch.arange(3.0).gather(0, i)
        total.mul_(2)
        return found, total.clone()
    return step, [torch.tensor(i) for i in ([0, 1], [1, 2], [0, 7], [1, 1])]


@programs
def a_result_of_the_changed_weights(m, opt):
    """The result has a history, for which autograd saves weights that the graph has changed."""
    def step(x):
        opt.zero_grad()
        out = m[3](m[0](x))
        if out.isnan().any():
            raise AssertionError("nan")
        out.square().mean().backward()
        opt.step()
        return m[3](m[0](x).tanh())
    return step, [GOOD, GOOD, NAN, GOOD]


def outcomes(make, translate, optimizer):
    m = model()
    step, calls = make(m, optimizer(m.parameters()))
    step, found = translate(step), []
    for given in calls:
        try:
            result = step(given)
        except Exception as e:  # noqa: BLE001 - to be compared
            result = type(e), str(e)
        found.append((result, [v.clone() for v in m.state_dict().values()],
                      [None if p.grad is None else p.grad.clone() for p in m.parameters()]))
    return found, step


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@programs.each
def test_a_step_that_raises_has_changed_what_pythons_has(fn, backend):
    def optimizer(params):
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)
    want, _ = outcomes(fn, lambda step: step, optimizer)
    got, step = outcomes(fn, lambda step: sot.to_static(step, backend=backend), optimizer)
    for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert not (differs := close(mine, theirs)), f"call {i}: {differs}"
    assert any(capture.graph is not None and capture.stopped is None for capture in step.captures)


def close(mine, theirs):
    """Where two outcomes differ; losses are equal to six digits."""
    if isinstance(mine[0], float):
        mine, theirs = [(torch.tensor(v[0]), *v[1:]) for v in (mine, theirs)]
    return same([*mine], [*theirs])


def test_a_failure_leaves_no_trace_in_version_counters():
    w = torch.ones(3, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)

    @sot.to_static(backend="aot_eager")
    def step(x):
        opt.zero_grad()
        loss = (w * x).sum()
        if loss.isnan():
            raise ValueError("nan")
        loss.backward()
        opt.step()
    for _ in range(3):
        step(torch.ones(3))
    before = (w * w).sum()      # its backward pass needs w as it is
    with pytest.raises(ValueError, match="nan"):
        step(torch.full((3,), float("nan")))
    before.backward()


def test_weights_are_put_back_before_autograd_saves_them():
    """Later, autograd would refuse to go backward, so the optimizer's step was left to Python."""
    m = model()
    step, batches = a_result_of_the_changed_weights(m, torch.optim.SGD(m.parameters(), 0.1))
    translated = sot.to_static(step, backend="aot_eager")
    for x in batches[:2]:
        translated(x).sum().backward()
    assert not translated.explain().breaks
