"""A number that changes is a constant for one call, and from then on a number: two captures, however many values."""
from __future__ import annotations

import pytest
import torch
from harness import Counter, check, same
from torch import nn

import sot

X = torch.arange(8.0)


def captures_of(fn, calls, backend=None):
    """Run the calls plainly and translated; the number of captures."""
    translated = sot.to_static(fn, backend=backend or Counter())
    for args in calls:
        want, got = fn(*args), translated(*args)
        assert not same(got, want), same(got, want)
    return len(translated.captures)


def test_an_integer_in_arithmetic_with_tensors():
    assert captures_of(lambda x, k: (x * k + k - 1, x[k], x // (k + 1)), [(X, k) for k in range(8)]) == 2


def test_a_learning_rate():
    assert captures_of(lambda x, lr: x - lr * x.cos(), [(X, 0.1 * 0.9 ** i) for i in range(20)]) == 2


def test_a_step_number_on_an_object():
    class State:
        def __init__(self):
            self.step = 0

    def f(x, state):
        state.step += 1
        return x / state.step, state.step

    mine, theirs = State(), State()
    translated = sot.to_static(f, backend="eager")
    for _ in range(10):
        assert not same(translated(X, mine), f(X, theirs))
    assert mine.step == theirs.step == 10 and len(translated.captures) == 1


def test_a_counter_on_a_module():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return x * 2

    model = Net()
    sot.to_static(model, backend="eager")
    for _ in range(10):
        model(X)
    assert model.count == 10
    assert all(not c.recompiled_because for c in sot.translation_of(model).captures)


def test_a_comparison_is_guarded_as_it_stands():
    def f(x, n):
        return x + 1 if n * 2 < 10 else x - 1
    translated = sot.to_static(f, backend="eager")
    for n in (1, 2, 3, 4, 7, 8, 9):
        assert torch.equal(translated(X, n), f(X, n))
    assert len(translated.captures) == 3
    assert "n * 2 < 10" in {str(g) for g in translated.captures[1].guards}
    assert translated.captures[2].recompiled_because[0] == "expected n * 2 < 10, got 14"


def test_a_number_that_becomes_a_shape():
    assert captures_of(lambda x, n: x[:n] * n, [(X, n) for n in (1, 2, 3, 5, 7)]) == 2


def test_what_python_refuses_python_refuses():
    def f(x, k):
        return x + 10 // k
    translated = sot.to_static(f, backend="eager")
    for k in (1, 2, 3):
        assert torch.equal(translated(X, k), f(X, k))
    try:
        translated(X, 0)
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("1 // 0 went through")


def test_an_index_out_of_range_is_pythons_error():
    translated = sot.to_static(lambda x, k: x[k] + 1, backend="eager")
    for k in (1, 2, 3):
        assert translated(X, k) == X[k] + 1
    try:
        translated(X, 99)
    except IndexError as e:
        assert "out of bounds" in str(e)
    else:
        raise AssertionError("x[99] went through")


def test_a_backend_that_compiles_gets_symbolic_integers_and_floats_as_tensors():
    seen = []

    def backend(gm, inputs):
        seen.append(inputs)
        compiled = torch.fx.symbolic_trace(gm)
        return compiled.forward
    assert captures_of(lambda x, k: x * k, [(X, k) for k in range(4)], backend) == 2
    assert [type(v) for v in seen[-1]] == [torch.Tensor, torch.SymInt]
    assert captures_of(lambda x, k: x * k, [(X, k + 0.5) for k in range(4)], backend) == 2
    assert [(v.dtype, v.dim()) for v in seen[-1]] == [(torch.float32, 1), (torch.float64, 0)]


def test_a_long_loop_runs_as_a_loop():
    torch.manual_seed(0)
    cell = nn.GRUCell(4, 4)

    def f(x, h):
        for i in range(x.shape[0]):
            h = cell(x[i], h)
        return h
    translated = check(f, torch.randn(300, 2, 4), torch.zeros(2, 4))
    assert sum(c.graph is not None for c in translated.captures) <= 3


@pytest.mark.slow
def test_a_long_while_loop_runs_as_a_loop():
    def f(x):
        n = 0
        while n < 500:
            x = x * 0.5 + n
            n += 1
        return x, n
    translated = check(f, X)
    assert sum(c.graph is not None for c in translated.captures) <= 4


def test_a_long_loop_in_a_called_function_runs_as_a_loop():
    def inner(x):
        for i in range(300):
            x = x + i
        return x

    def f(x):
        return inner(x * 2) - 1
    translated = check(f, X)
    assert sum(c.graph is not None for c in translated.captures) <= 4


def test_the_layers_of_a_model_are_unrolled_however_many():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(200)))
    translated = check(model, torch.ones(1, 2), graphs=1)
    assert len(translated.captures) == 1


def test_a_number_computed_in_many_steps():
    def f(x, n):
        k = n
        for i in range(60):
            k = k * 2 - i if i % 2 else k + 1
        return x * (k % 7), k
    assert captures_of(f, [(X, n) for n in range(4)]) >= 2


def test_a_counter_is_captured_once():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.scale = 0, 2.0

        def forward(self, x):
            self.calls += 1
            self.scale = self.scale * 0.5
            return x * self.scale + self.calls
    check(Counting(), X, graphs=1, breaks=0)


def test_a_number_that_is_set_to_what_it_is_stays_a_constant():
    class Setting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.steps = 2

        def forward(self, x):
            self.steps = self.steps + 0
            return x.expand(self.steps, *x.shape)
    check(Setting(), X, graphs=1, breaks=0)


def test_a_number_that_becomes_a_tensor():
    def f(x, n):
        return x + n if n != 3 else x
    translated = sot.to_static(f, backend="eager")
    for n in (1, 2, 5):
        assert torch.equal(translated(X, n), f(X, n))
    with pytest.raises(RuntimeError, match="ambiguous"):
        translated(X, torch.ones(2))
    assert not any("capture failed" in str(c.stopped) for c in translated.captures)


def whole(fn, *numbers):
    """Run the calls plainly and translated: each is one graph."""
    translated = sot.to_static(fn, backend=Counter())
    for n in numbers:
        assert torch.equal(translated(X, n), fn(X, n))
    assert not [str(c.stopped) for c in translated.captures if c.stopped]


def test_a_number_that_a_condition_told_apart_was_no_constant():
    def f(x, n):
        y = x[..., :n].relu()
        if n == 1:
            y = y * 10
        return y

    whole(f, 2, 3, 1, 2, 4)


def test_a_bound_of_a_slice_may_be_anything():
    whole(lambda x, n: x[:n].relu(), 2, 3, 1, 0, 12, -1)
