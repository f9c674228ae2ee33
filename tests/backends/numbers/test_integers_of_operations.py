"""Integers that operations take only as constants. They change from call to call: after the second value the operation
is a break, so no graph is compiled for each value.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from varying_floats import Compiling

import sot

programs = Programs()
X, V, IMAGE = torch.randn(24, 25), torch.randn(60), torch.randn(2, 3, 20, 20)


@programs
def a_diagonal(n):
    return X.sin().diagonal(n).cos(), torch.diag(X, -n)


@programs
def bins(n):
    return torch.histc(X.sin(), n).cos()


@programs
def windows(n):
    return V.unfold(0, n, 1).mean(-1), torch.hann_window(n)


@programs
def pools(n):
    return F.avg_pool2d(IMAGE.sin(), n).cos(), F.max_pool2d(IMAGE, 2, n)


@programs
def a_dimension(n):
    return IMAGE.sin().sum(n % 4).cos()


@programs
def a_power(n):
    return torch.linalg.matrix_power(X[:, :24].sin() / 9, n).cos()


@programs
def a_keyword(n):
    return X.sin().cumsum(dim=n % 2) + X.roll(shifts=n, dims=0)


def step_of(model, optimizer):
    def step(n):
        optimizer.zero_grad()
        loss = F.one_hot(torch.arange(4) % 2, n)[:, :2].mul(model(X)[:4, :2]).diagonal(n - 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


@programs.each
@pytest.mark.parametrize("by", ["aot_eager", "eager"])
def test_an_integer_is_compiled_a_limited_number_of_times(fn, by):
    backend = Compiling() if by == "aot_eager" else "eager"
    translated, graphs = sot.to_static(fn, backend=backend), []
    for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 3):
        torch.testing.assert_close(translated(n), fn(n))
        graphs.append(getattr(backend, "graphs", 0))
    assert graphs[-1] == graphs[6]
    stops = {str(c.stopped) for c in translated.captures if c.stopped}
    if fn is a_keyword:     # 0 and 1 are two captures
        assert not stops and len(translated.captures) == 3
        return
    assert stops and all("which differs from call to call, is needed" in stop for stop in stops)


@pytest.mark.slow
def test_a_training_step_with_such_integers():
    def training(translate):
        torch.manual_seed(0)
        model = torch.nn.Linear(25, 8)
        step = translate(step_of(model, torch.optim.Adam(model.parameters())))
        return [step(n) for n in (2, 3, 2, 3, 2, 3)], list(model.parameters())

    torch.testing.assert_close(training(lambda f: sot.to_static(f, backend="aot_eager")), training(lambda f: f))


def test_a_full_graph_is_compiled_for_each_value():
    translated = sot.to_static(a_diagonal, backend="aot_eager", full_graph=True)
    for n in (2, 3, 4, 5):
        torch.testing.assert_close(translated(n), a_diagonal(n))
    assert len(translated.captures) == 4


def test_an_error_of_an_operation_is_pythons():
    def step(n):
        return V.sin().view(n, -1) + V.sum(n - 2)

    translated = sot.to_static(step, backend="aot_eager")
    for n in (2, 2, 3, 5, 4, 2):
        try:
            expected = step(n)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)) as caught:
                translated(n)
            assert str(caught.value) == str(error)
        else:
            torch.testing.assert_close(translated(n), expected)


BITS = {
    "shifts": lambda v, x: (x * (1 << v), x + (v << 2), x - (v >> 1), torch.arange(6) >> v),
    "masks": lambda v, x: (x * (v & 3), x + (v | 4), x - (v ^ 1), x * (v & -2)),
    "precedence": lambda v, x: (x * (v + 1 << 1 & v | 1), f"{(v ^ 3) - 1 << 2}"),
    "of_sizes": lambda v, x: (x.repeat(v, 1)[:(v * 2 >> 1)], x.new_zeros(x.shape[0] << 1), v << 1 == v * 2),
    "branches": lambda v, x: x * 2 if v & 16 else x - (v >> 3),
}


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_bits_of_integers_that_change(name, backend):
    compiled, inner = [], sot.backends.lookup_backend(backend)

    def counting(gm, inputs):
        compiled.append(gm)
        return inner(gm, inputs)
    f, x = sot.to_static(BITS[name], backend=counting), torch.arange(3.0)
    for v in (3, 4, 2, 7, 9, 1, -5):
        if v < 0 and name in ("shifts", "of_sizes"):
            with pytest.raises((ValueError, RuntimeError)):
                BITS[name](v, x)
            with pytest.raises((ValueError, RuntimeError)):
                f(v, x)
            continue
        got, want = f(v, x), BITS[name](v, x)
        for a, b in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
            assert torch.equal(a, b) if isinstance(b, torch.Tensor) else a == b
    assert len(compiled) <= 2 + (name in ("branches", "of_sizes"))      # a size of 1 is no symbol


def seeded(x, v):
    torch.manual_seed(v * 3)
    return x + torch.rand(3)


def seeded_generator(x, v):
    generator = torch.Generator()
    generator.manual_seed(v + 1)
    return x * torch.rand(3, generator=generator)


def seed_that_is_read(x, v):
    torch.manual_seed(v)
    return x + torch.initial_seed()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [seeded, seeded_generator, seed_that_is_read])
def test_seeds_that_change(function, backend):
    f, x = sot.to_static(function, backend=backend), torch.ones(3)
    for v in (1, 2, 3, 5, 8, 13):
        want = function(x, v), torch.get_rng_state()
        got = f(x, v), torch.get_rng_state()
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])
    assert len(f.captures) <= (2 if function is not seed_that_is_read else 6)
