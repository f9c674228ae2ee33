"""Floats that change from call to call: a backend that compiles gets a graph with the number, and one without."""
from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from varying_floats import Compiling

import sot
from sot.backends import lookup_backend

programs = Programs()
X = torch.linspace(-1, 1, 8)
I, Z, HALF = torch.arange(8), torch.tensor(2.0), torch.ones(8, dtype=torch.bfloat16)
HELD = SimpleNamespace(temperature=1.0)
FACTOR = 1.0


@programs
def a_factor(v):
    return (X - v) * v / (1 - v) + v ** 2


@programs
def beside_other_dtypes(v):
    return I * v, I + v, Z * v, HALF * v, X.to(torch.complex64) * v


@programs
def functions_of_math(v):
    return X * math.sqrt(v) * math.exp(-v)


@programs
def more_functions_of_math(v):
    return (X * math.atan2(v, 2) * math.hypot(v, 1.0), X * math.copysign(2.0, -v) * math.copysign(v, -1),
            X * math.expm1(v) * math.erfc(v) * math.asinh(v))


@programs
def a_step_size(v):
    y = X.clone().add_(HALF / 3, alpha=-v)
    return y, X.clone().add_(X, alpha=-v), torch.addcmul(X, X, X, value=v), X.lerp(I.float(), v)


@programs
def new_tensors(v):
    return torch.full((3,), v), torch.tensor(v), torch.full_like(X, v), X.new_full((2,), v, dtype=torch.float64)


@programs
def limits(v):
    return X.clamp(-v, v), X.clamp(min=v), torch.where(X > v, X, v), X.masked_fill(X > 0, v)


@programs
def assignments(v):
    y = X.clone()
    y[2:4] = v
    y[0] = v
    return y


@programs
def a_power(v):
    return X.abs() ** v + v ** X


@programs
def an_attribute(v):
    HELD.temperature = v
    return (X / HELD.temperature).softmax(0)


@programs
def a_global(v):
    global FACTOR
    FACTOR = v
    return X * FACTOR


@programs
def numbers_of_python(v):
    return X * abs(v - 0.25), X + min(v, 0.2), X - max(v, 0.1, v * 2), X * round(v * 20), X + int(v * 30), X / float(v)


@programs
def a_schedule(v):
    step = v * 100
    return X * min(step ** -0.5, step * 10 ** -1.5) * (0.5 * (1 + math.cos(math.pi * step / 200)))


@programs
def gradients(v):
    w = (X * 2).requires_grad_()
    return torch.autograd.grad((w * v).square().sum(), w)


@programs.each
def test_a_number_that_changes_is_compiled_twice(fn):
    backend = Compiling()
    translated = sot.to_static(fn, backend=backend)
    for i in range(6):
        value = 0.3 * 0.9 ** i
        torch.testing.assert_close(translated(value), fn(value))
    assert backend.graphs <= 2


COUNTED = SimpleNamespace(step=0)


def test_an_integer_is_compiled_twice_from_nought_on():
    def step(n):
        COUNTED.step = n
        warm_up = min((n + 1) ** -0.5, n * 8 ** -1.5)
        return X * (n / 2) + n ** 0.5, X / (1 - 0.9 ** (n + 1)), X * warm_up, X * COUNTED.step
    backend = Compiling()
    translated = sot.to_static(step, backend=backend)
    for n in range(6):
        torch.testing.assert_close(translated(n), step(n))
    assert backend.graphs <= 2


MILESTONES, FACTORS = Counter([3, 6, 9]), {0: 0.5, 5: 0.25}


def a_milestone(n):
    return X * 0.5 ** MILESTONES[n] if n in MILESTONES else X


def a_missing_count(n):
    return X * MILESTONES.get(n, 0)


def a_member_of_a_set(n):
    return X * (2 if n in {2, 4} else 3)


def an_item_of_a_tuple(n):
    return X * (2 if n in (2, 7, 9) else 3)


def an_item_of_a_list(n):
    return X * (2 if n in [2, 7, 9] else 3)


def a_member_by_another_type(n):
    return X * (2 if n / 2 in {1, 3.0, "a", None} else 3)


@pytest.mark.parametrize("fn", [a_milestone, a_missing_count, a_member_of_a_set, an_item_of_a_tuple, an_item_of_a_list,
                                a_member_by_another_type])
def test_a_number_looked_for_among_others_is_compiled_once_for_either_answer(fn):
    backend = Compiling()
    translated = sot.to_static(fn, backend=backend)
    for n in range(1, 12):
        assert torch.equal(translated(n), fn(n))
    assert backend.graphs <= 3


def test_a_number_that_chooses_among_different_values_stays_right():
    def f(n):
        return X * FACTORS.get(n, 1.0)
    translated = sot.to_static(f, backend=Compiling())
    for n in range(8):
        assert torch.equal(translated(n), f(n))


def test_a_container_that_changes_between_calls_counts():
    days = {3: 1, 5: 1}

    def f(n):
        return X * 2 if n in days else X
    translated = sot.to_static(f, backend=Compiling())
    for n in range(4):
        assert torch.equal(translated(n), f(n))
    days[7] = 1
    for n in range(4, 8):
        assert torch.equal(translated(n), f(n))


def a_first_call(n):
    y = X * 2 if n == 0 else X * 3
    n.add_(1)
    return y


def a_branch_after_counting(n):
    n.add_(1)
    return X * 2 if n > 4 else X * 3


def every_third_call(n):
    n += 1
    return X * (5 if int(n) % 3 == 0 else 1)


def a_share(n):
    n.add_(1)
    share = 1.0 / float(n)
    return X * share, share


def a_read_number(n):
    n.sub_(-1)
    return X * (2 if n.item() < 4 else 7), n.item()


def a_number_through_a_view(n):
    n.view(()).add_(1)
    return X * (2 if n < 4 else 7)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [a_first_call, a_branch_after_counting, every_third_call, a_share, a_read_number])
def test_a_tensor_that_counts_is_a_number_that_varies(fn, backend):
    mine, plain, compiling = torch.tensor(0), torch.tensor(0), Compiling(backend)
    translated = sot.to_static(fn, backend=compiling)
    for _ in range(8):
        torch.testing.assert_close(translated(mine), fn(plain))
        assert mine == plain
    assert compiling.graphs <= 3 and not any(capture.stopped for capture in translated.captures)


@pytest.mark.parametrize("start", [2 ** 63 - 2, -2 ** 63])
def test_a_count_that_wraps_around_is_torchs(start):
    mine, plain = torch.tensor(start), torch.tensor(start)
    translated = sot.to_static(a_branch_after_counting, backend="eager")
    for _ in range(5):
        assert torch.equal(translated(mine), a_branch_after_counting(plain))
        assert mine == plain


def test_counters_that_share_memory_stay_right():
    def f(a, b):
        b.add_(1)
        return X * 2 if a > 3 else X * 3
    mine, plain = torch.tensor([0]), torch.tensor([0])
    translated = sot.to_static(f, backend="eager")
    view = sot.to_static(a_number_through_a_view, backend="eager")
    for _ in range(6):
        assert torch.equal(translated(mine, mine.view(1)), f(plain, plain.view(1)))
    mine, plain = torch.tensor(0), torch.tensor(0)
    for _ in range(6):
        assert torch.equal(view(mine), a_number_through_a_view(plain))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_cumulative_average_of_batch_norm_is_compiled_twice(backend):
    def made():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, momentum=None))
    mine, plain, compiling = made(), made(), Compiling(backend)
    translated = sot.to_static(lambda x: mine(x), backend=compiling)
    for i in range(5):
        x = torch.randn(4, 2, generator=torch.Generator().manual_seed(i))
        results = translated(x), plain(x)
        torch.testing.assert_close(*results)
        for result in results:
            result.square().sum().backward()
    torch.testing.assert_close(mine.state_dict(), plain.state_dict())
    torch.testing.assert_close(mine[0].weight.grad, plain[0].weight.grad, rtol=1e-3, atol=1e-3)    # nearly 0
    assert compiling.graphs <= 2


POWERS = {
    "of a constant": lambda n: 2.0 ** (n - 1), "of a fraction": lambda n: 0.999 ** n,
    "of a number": lambda n: (1.0 - n / 20) ** 2.0, "of two numbers": lambda n: (n + 1.0) ** (0.5 * n),
    "negative": lambda n: (n + 0.5) ** -2.0, "of an integer": lambda n: (n + 1) ** 1.5, "root": lambda n: n ** 0.5}


@pytest.mark.parametrize("name", POWERS)
def test_a_power_is_compiled_twice(name):
    def f(n):
        return X * POWERS[name](n)
    backend = Compiling()
    translated = sot.to_static(f, backend=backend)
    for n in range(20):
        assert torch.equal(translated(n), f(n))
    assert backend.graphs <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", POWERS)
def test_a_power_that_is_too_large_or_complex_is_pythons(name, backend):
    def f(n):
        return POWERS[name](n), X + n

    def outcome(f, n):
        try:
            number, tensor = f(n)
        except (OverflowError, ZeroDivisionError) as error:
            return repr(error)
        return type(number), repr(number), repr(tensor.tolist())
    translated = sot.to_static(f, backend=backend)
    for n in (1.0, 2.0, 3.0, 5000.0, 1e200, -1e200, -0.5, -2.5, 0.0, -3.0, 1e-320, 30.0, float("inf"), float("nan")):
        assert outcome(translated, n) == outcome(f, n)


def test_a_number_that_is_needed_as_it_is_stays_right():
    backend = Compiling()

    def f(v):
        return F.leaky_relu(X, v), F.dropout(X, v, training=True).shape
    translated = sot.to_static(f, backend=backend)
    for i in range(3):
        torch.testing.assert_close(translated(0.5 + 0.1 * i), f(0.5 + 0.1 * i))


def test_the_eager_backend_gets_the_number_itself():
    def f(v):
        return HALF * v + v
    translated = sot.to_static(f, backend="eager")
    for i in range(4):
        assert torch.equal(translated(0.3 * 0.9 ** i), f(0.3 * 0.9 ** i))


def test_weights_are_static_inputs():
    from torch._inductor import compile_fx

    seen = []

    def spy(gm, inputs, **kwargs):
        seen.append(set(kwargs.get("static_input_idxs") or ()))
        return gm.forward
    m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()

    def f(x, y):
        return m(x) + y
    with torch.no_grad():
        sot.to_static(f, backend=lambda gm, inputs: compile_fx.compile_fx(gm, inputs, inner_compile=spy))(
            torch.ones(2, 4), torch.ones(4))
    assert len(seen) == 1 and len(seen[0]) == 6     # two weights, two biases, two statistics; not x and y


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_options_that_the_backend_does_not_know_are_refused(backend):
    with pytest.raises(sot.backends.OptionsError):
        sot.to_static(a_factor, backend=backend, options={"epilog_fusion": True})


def test_options_and_mode_are_passed_on():
    asked = []

    def backend(gm, inputs, **kwargs):
        asked.append(kwargs)
        return gm.forward
    sot.to_static(lambda x: x + 1, backend=backend, options={"a": 1})(X)
    sot.to_static(lambda x: x + 1, backend=backend, mode="fast")(X)
    assert asked == [{"options": {"a": 1}}, {"mode": "fast"}]
    assert lookup_backend("inductor").with_options({"epilogue-fusion": True}).options == {"epilogue_fusion": True}
    with pytest.raises(sot.backends.OptionsError, match="both"):
        sot.to_static(lambda x: x, backend="inductor", options={"epilogue_fusion": True}, mode="max-autotune")


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8])
def test_a_numpy_number_that_differs_is_no_constant_of_a_compiled_graph(kind):
    def scaled(x, number):
        return (x * number).relu(), x + number, torch.clamp(x, max=number)
    translated, x = sot.to_static(scaled, backend="aot_eager"), torch.arange(4.0) - 1
    for number in (1, 2, 3, 5):
        for got, want in zip(translated(x, kind(number)), scaled(x, kind(number)), strict=True):
            assert torch.equal(got, want) and got.dtype is want.dtype
