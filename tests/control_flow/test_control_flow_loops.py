"""Loops on tensors, torch.cond and while_loop: with control flow in graphs they are as right as Python's.

PYTEST_DONT_REWRITE: there are asserts to capture.
"""
from __future__ import annotations

import pytest
import torch
from agreeing import DOWN, UP, WAYS, agree
from harness import Counter
from torch._higher_order_ops.while_loop import while_loop

import sot


# ---- while ----------------------------------------------------------------------------------------------------------
def test_while():
    def f(x):
        while x.sum() > 1:
            x = x / 2
        return x + 1
    agree(f, (UP,), (UP * 100,), (DOWN,), uses="while_loop")


def test_while_with_gradients():
    def f(x, w):
        y = x
        while y.norm() < 50:
            y = y * w
        return y.sum()
    agree(f, *((UP, torch.tensor(w, requires_grad=True)) for w in (2.0, 1.5)), uses="while_loop")


def test_while_carries_several_tensors():
    def f(x):
        a, b = x, x + 1
        while a.sum() < 50:
            a, b = b, a + b
        return a, b
    agree(f, (UP,), (UP * 100,), uses="while_loop")


def test_while_with_break_continue_and_else():
    def f(x):
        found = False
        while x.sum() < 50:
            x = x + 1
            if x.max() > 9:
                continue
            if x.min() > 3:
                found = True
                break
            x = x * 1.5
        else:
            x = x * 10
        return x, found
    agree(f, (UP,), (UP * 2,), (UP * 100,), (UP * 4,), uses="while_loop")


@pytest.mark.slow
def test_and_or_not_in_the_test_of_a_while():
    def either(x):
        i = torch.zeros(())
        while x.sum() < 50 or i < 3:
            x, i = x + 1, i + 1
        return x, i

    def mixed(x):
        i = torch.zeros(())
        while x.sum() < 60 and i < 5 or not x.max() > 4:
            x, i = x * 1.5 + 1, i + 1
        return x, i

    def several(x):
        i = torch.zeros(())
        while (x.min() < 0 or x.sum() < 50 or i < 2) and i < 9:
            x, i = x + 2, i + 1
            if x.max() > 8 or i > 5 and x.min() > 3:
                continue
            x = x * 1.25
        else:
            x = x - 1
        return x, i

    def nested(x):
        i = torch.zeros(())
        while i < 3 and x.sum() < 100:
            j = torch.zeros(())
            while j < 2 or x.max() < 2:
                x, j = x + 1, j + 1
            i = i + 1
        return x
    for f in (either, mixed, several, nested):
        agree(f, (UP,), (UP * 100,), (DOWN,), (UP * 4,), uses="while_loop")


def test_while_true_with_returns():
    def f(x):
        while True:
            x = x * 2
            if x.sum() > 100:
                return x + 1
            if x.min() < -50:
                return -x
    agree(f, *WAYS, uses="while_loop")


def test_nested_while():
    def f(x):
        while x.sum() < 100:
            y = x
            while y.max() < 10:
                y = y * 2
            x = x + y.abs()
        return x
    agree(f, (UP,), (UP * 100,), (UP * 9,), uses="while_loop")


def test_while_with_a_structure_of_tensors():
    def f(x):
        state = [x, (x + 1, {"k": x * 2})]
        while state[0].sum() < 50:
            state = [state[0] * 2, (state[1][0] + state[0], {"k": state[1][1]["k"] - 1})]
        return state
    agree(f, (UP,), (UP * 100,), uses="while_loop")


def test_while_in_a_branch_and_a_for_in_a_while():
    def f(x):
        if x.sum() > 0:
            while x.sum() < 100:
                for i in range(3):
                    x = x + i
        else:
            x = -x
        return x
    agree(f, *WAYS, uses="while_loop")


@pytest.mark.slow
def test_for_with_break_continue_and_return():
    def f(x):
        for i in range(6):
            x = x * 2
            if x.sum() > 20:
                break
            if x.max() > 3:
                continue
            if x.sum() < -20:
                return x * 0
            x = x - i
        return x
    agree(f, *WAYS, (UP * 0.01,), (UP * 0.6,))


# ---- numbers of Python ------------------------------------------------------------------------------------------
def test_a_counter_in_a_while():
    def f(x):
        n, scale = 0, 1.5
        while x.sum() < 100:
            x = x * 2 + n
            n += 1
            scale = scale * 0.5 + n
        return x, n, scale, type(n)
    agree(f, (UP,), (UP * 100,), (UP * 3,), uses="while_loop")


def test_a_limit_on_the_rounds():
    def f(x, most):
        i = 0
        while i < most and x.sum() < 100:
            x = x + i * 2.0 if i % 2 == 0 else x * 2 - i
            i = i + 1
        return x / (i + 1), i
    agree(f, (UP, 5), (UP * 100, 5), (UP * 30, 5), uses="while_loop")
    agree(f, (DOWN, 20), uses="while_loop")


def test_numbers_that_differ():
    def f(x):
        k, scale = (1, 0.1) if x.sum() > 0 else (2, 0.2)
        y = x * scale + k
        y += k
        return y, k, scale, -k, k > 1, (x.long() * scale).dtype, x.sum() * scale
    agree(f, *WAYS)


def test_numbers_beside_tensors_of_other_dtypes():
    def f(x, y):
        k = 2 if x.sum() > 0 else 3
        return y * k, k - y, y > k, y[0] + k
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        agree(f, *((x, torch.arange(3).to(dtype)) for x in (UP, DOWN)))


# ---- torch.cond and while_loop, as the program calls them -----------------------------------------------------------
def test_torch_cond_without_the_option():
    w = torch.tensor([2.0, 3.0, 4.0])

    def f(x):
        y = torch.cond(x.sum() > 0, lambda a: (a * w, a + 1), lambda a: (a - w, a), (x,))
        return y[0] + y[1]
    counter = Counter()
    translated = sot.to_static(f, backend=counter)
    assert translated(UP).equal(UP * w + UP + 1) and translated(DOWN).equal(DOWN - w + DOWN)
    assert len(counter.graphs) == 1 and [c.stopped for c in translated.captures] == [None]
    x = UP.clone().requires_grad_()
    translated(x).sum().backward()
    assert x.grad.equal(w + 1)


def test_while_loop_without_the_option():
    def f(x, w):
        n, y = while_loop(lambda n, y: (n < 5) & (y.norm() < 100), lambda n, y: (n + 1, y * w), (torch.tensor(0), x))
        return n, y + 1
    counter = Counter()
    translated = sot.to_static(f, backend=counter)
    assert translated(UP, UP)[1].equal(UP * UP ** translated(UP, UP)[0] + 1)
    assert len(counter.graphs) == 1 and [c.stopped for c in translated.captures] == [None]


def test_torch_cond_whose_functions_differ():
    def f(x):
        return torch.cond(x.sum() > 0, lambda a: a, lambda a: a[:2], (x,))
    with pytest.raises(sot.CaptureError, match="the value returned is a tensor of shape .* in torch.cond"):
        sot.to_static(f, full_graph=True)(UP)
