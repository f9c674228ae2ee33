"""Floats that change from call to call, given to operators that the program has registered. torch makes such a float a
constant of a compiled graph; here a graph gets the number, and is compiled twice at most.
"""
from __future__ import annotations

import math

import pytest
import torch
from harness import Counter, Programs
from varying_floats import Compiling

import sot

programs, fixed = Programs(), Programs()
X = torch.linspace(-1, 1, 8)
W = torch.nn.Parameter(X.clone())
LENGTHS = []


@torch.library.custom_op("sot_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float | None = None, *, shift: float = 0.0) -> torch.Tensor:
    assert type(factor) is float and type(shift) is float
    return x * factor + shift


@scaled.register_fake
def _(x, factor=None, *, shift=0.0):
    return torch.empty_like(x)


def remember(ctx, inputs, keyword_only_inputs, output):
    ctx.factor, ctx.shift = inputs[1], keyword_only_inputs["shift"]


scaled.register_autograd(lambda ctx, g: (g * ctx.factor + ctx.shift, None), setup_context=remember)


@torch.library.custom_op("sot_tests::moved_", mutates_args=("x",))
def moved_(x: torch.Tensor, by: float) -> None:
    x.add_(by)


@torch.library.custom_op("sot_tests::head", mutates_args=())
def head(x: torch.Tensor, share: float) -> torch.Tensor:
    return x[:int(share * len(x))].clone()


@head.register_fake
def _(x, share):
    return x.new_empty(int(share * len(x)))


@torch.library.custom_op("sot_tests::by_sign", mutates_args=())
def by_sign(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x.double() if factor > 1 else x.clone()


@by_sign.register_fake
def _(x, factor):
    return torch.empty_like(x, dtype=torch.double if factor > 1 else x.dtype)


@torch.library.custom_op("sot_tests::without_formula", mutates_args=())
def without_formula(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@without_formula.register_fake
def _(x, factor):
    return torch.empty_like(x)


@programs
def a_factor(v):
    return scaled(X.sin(), v).cos()


@programs
def by_keyword(v):
    return scaled(X.sin(), shift=v, factor=2 * v), scaled(X, 1.5, shift=math.exp(v))


@programs
def a_packet(v):
    return torch.ops.sot_tests.scaled(X, v)


@programs
def in_place(v):
    y = X.sin()
    moved_(y, v)
    return y.cos()


@programs
def without_a_gradient(v):
    return without_formula(X, v).sin()


@programs
def to_double_precision(v):
    return scaled(X.double(), v) - X.double() * v


@fixed
def a_size(v):
    return head(X, v)


@fixed
def a_dtype(v):
    return by_sign(X, v * 2)


@programs.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_float_that_changes_is_compiled_twice(fn, backend):
    compiling = Compiling(backend)
    translated = sot.to_static(fn, backend=compiling)
    for i in range(5):
        torch.testing.assert_close(translated(0.3 * 0.9 ** i), fn(0.3 * 0.9 ** i), rtol=1e-6, atol=1e-9)
    assert compiling.graphs == 2 and not any(capture.stopped for capture in translated.captures)


@fixed.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_float_that_decides_on_size_or_dtype_stays_right(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for v in (0.25, 0.5, 0.75, 1.0, 0.5, 0.3):
        got, want = translated(v), fn(v)
        assert torch.equal(got, want) and got.dtype is want.dtype


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_gradient_by_the_registered_formula_gets_the_number(backend):
    def loss(v):
        return (scaled(W.sin(), v, shift=v / 2) * 3).cos().sum()
    compiling = Compiling(backend)
    translated = sot.to_static(loss, backend=compiling)
    for i in range(5):
        v = 0.5 + i / 7
        got, want = translated(v), loss(v)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, W), torch.autograd.grad(want, W))
    assert compiling.graphs == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_without_a_formula_the_error_of_backward_is_pythons(backend):
    def loss(v):
        return without_formula(W, v).sum()
    translated = sot.to_static(loss, backend=backend)
    for v in (0.5, 0.6, 0.7):
        errors = []
        for f in (translated, loss):
            with pytest.raises(RuntimeError) as caught:
                f(v).backward()
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_a_backend_that_runs_the_graph_gets_the_operator_itself():
    counter = Counter()
    translated = sot.to_static(a_factor, backend=counter)
    for v in (0.5, 0.25, 0.75):
        assert torch.equal(translated(v), a_factor(v))
    assert any(node.target is scaled._opoverload for node in counter.graphs[-1].graph.nodes)
