"""Operators of torch's own that a program calls itself, with a float that changes from call to call: they have the rule
of the function of their name, or are computed by themselves, with the float in a tensor.
"""
from __future__ import annotations

import pytest
import torch
from harness import Programs
from varying_floats import Compiling, check_as_it_is, check_compiled

import sot

programs = Programs()
torch.manual_seed(0)
X, Y = torch.randn(6, 8), torch.randn(6, 8)
CLASSES, SIGNS, WEIGHT = torch.tensor([0, 3, 7, 1, 5, 2]), torch.randn(6).sign(), torch.rand(8)
aten, nn = torch.ops.aten, torch._C._nn


@programs
def arithmetic(x, v):
    return (aten.add.Tensor(x, v), aten.add.Scalar(x, v), aten.add.Tensor(x, Y, alpha=v), aten.mul.Tensor(x, v),
            aten.mul(x, v), aten.div.Tensor_mode(x.detach(), v, rounding_mode="floor"), aten.rsub.Scalar(x, v),
            aten.pow.Tensor_Scalar(x.exp(), v), aten.pow.Scalar(v, x), aten.remainder.Scalar(x, v),
            aten.addcmul.default(x, x, Y, value=v), aten.lerp.Scalar(x, Y, v), aten.where.ScalarOther(x > 0, x, v))


@programs
def memory_filled_with_numbers(x, v):
    return (x * aten.full([8], v), x * aten.full_like.default(x, v), x * aten.scalar_tensor.default(v),
            aten.masked_fill.Scalar(x, x > 0, v), aten.fill_.Scalar(x * 1, v), aten.mul_.Tensor(x * 1, v),
            aten.clamp.default(x, -v, v), aten.clamp_min(x, v), x * aten.lt.Scalar(x, v))


@programs
def lists_of_tensors(x, v):
    y = x * 2
    aten._foreach_mul_.Scalar([y], v)
    return y, *aten._foreach_add.Scalar([x, x[0]], v), *aten._foreach_mul([x], v)


@programs
def activations(x, v):
    return (aten.leaky_relu(x, v), nn.leaky_relu(x, v), nn.leaky_relu_(x * 1, v), aten.leaky_relu_.default(x * 1, v),
            aten.elu.default(x, v), aten.elu(x, v, v + 1, v), nn.elu(x, v), nn.softplus(x, v),
            aten.hardtanh(x, -v, v), nn.hardtanh(x, -v, v), aten.celu(x, alpha=v), aten.threshold.default(x, v, 0.5),
            aten.logit(x.sigmoid(), v / 3), aten.leaky_relu_backward(x, Y, v, False), nn.softshrink(x, v))


@programs
def losses(x, v):
    return (nn.huber_loss(x, Y, 1, v), aten.huber_loss.default(x, Y, delta=v), aten.smooth_l1_loss(x, Y, 0, v),
            aten.cross_entropy_loss(x, CLASSES, None, 2, -100, v), nn.cross_entropy_loss(x, CLASSES, None, 1, 2, v),
            aten.margin_ranking_loss(x[:, 0], x[:, 1], SIGNS, v), aten.poisson_nll_loss(x, Y.exp(), True, True, v, 1),
            torch.triplet_margin_loss(x, Y, x.flip(0), v, reduction=1),
            torch.hinge_embedding_loss(x[:, 0], SIGNS, v, 0))


@programs
def norms(x, v):
    return (aten.layer_norm(x, [8], WEIGHT, None, v), torch.layer_norm(x, [8], eps=v), torch.group_norm(x, 2, eps=v),
            aten.native_layer_norm.default(x, [8], None, WEIGHT, v)[0], torch.rms_norm(x, [8], WEIGHT, v),
            torch.instance_norm(x[None], None, None, None, None, True, 0.1, v, False), aten.norm.Scalar(x, v + 1),
            aten.norm.ScalarOpt_dim(x, v + 1, [1], False), aten.linalg_vector_norm(x, v + 1),
            aten.std.correction(x, [0], correction=v), aten.renorm(x, v + 1, 0, 1.0), aten.cdist(x, Y, v + 1))


@programs
def statistics_in_place(x, v):
    mean, variance = torch.zeros(8), torch.ones(8)
    return (aten.batch_norm.default(x, WEIGHT, None, mean, variance, True, 0.3, v, False), mean, variance,
            torch.batch_norm(x, None, None, None, None, True, 0.3, v, False))


@programs
def other_operators(x, v):
    square = x[:, :6]
    return (aten.addmm(square, square, square, beta=v, alpha=v), aten.constant_pad_nd(x, [1, 1], v),
            nn.pad(x, [1, 1], "constant", v), aten.index_fill.int_Scalar(x, 0, torch.tensor([1]), v),
            aten.scatter.value(x, 1, CLASSES[:, None], v), aten.nan_to_num.default(x, v), x * aten.isclose(x, Y, v),
            aten.histc(x.detach(), 5, -v, v), aten.quantile.scalar(x, v), x[:, :5] * aten.linspace(0, v, 5),
            nn.scaled_dot_product_attention(x[None], x[None], x[None], scale=v), aten.trapezoid.dx(x, dx=v))


@programs
def norms_of_embeddings(x, v):
    weight = Y.clone()
    torch.embedding_renorm_(weight, CLASSES[:2] + 1, v, 2.0)
    return x * weight, x * aten.embedding_renorm(Y, CLASSES[:2] + 1, 1.0, v + 1)


draws = Programs()


@draws
def dropouts(x, v):
    return aten.dropout(x, v, True), torch.native_dropout(x, v, True)[0], aten.alpha_dropout(x, v, True)


@draws
def draws_in_place(x, v):
    y = x.detach()
    return (x * aten.uniform_(y.clone(), -v, v), x * aten.bernoulli_.float(y.clone(), v), aten.bernoulli.p(y, v) * x,
            x * aten.normal_(y.clone(), 0, v), x * aten.exponential_(y.clone(), v), aten.rrelu(x, v, 0.9, True))


@programs.each
@pytest.mark.parametrize("by", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_an_operator_is_compiled_at_most_twice(fn, by):
    check_compiled(fn, X, Compiling(by))


@programs.each
def test_an_operator_gets_the_float(fn):
    check_as_it_is(fn, X)


@draws.each
@pytest.mark.parametrize("by", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_an_operator_draws_the_same_numbers(fn, by):
    check_compiled(fn, X, Compiling(by))


@draws.each
def test_an_operator_draws_with_the_float(fn):
    check_as_it_is(fn, X)


@pytest.mark.parametrize("function", [
    lambda x, v: x * aten.arange.start(0, v).sum(), lambda x, v: aten.native_batch_norm(
        x, None, None, torch.zeros(8), torch.ones(8), True, 0.1, v)[0],
    lambda x, v: nn.rrelu_with_noise(x, torch.ones_like(x), 0.1, v, True)], ids=["length", "statistics", "noise"])
def test_other_operators_need_the_number(function):
    translated = sot.to_static(function, backend="aot_eager")
    for v in (0.5, 0.75, 0.9, 2.5):
        torch.manual_seed(0)
        got = translated(X, v)
        torch.manual_seed(0)
        torch.testing.assert_close(got, function(X, v))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [
    lambda x, v: x * torch.allclose(x, x + 0.5, atol=v), lambda x, v: (torch.allclose(x, x + 0.5, v), x + v),
    lambda x, v: x * x.allclose(x + 0.5, atol=v, rtol=v), lambda x, v: (aten.allclose(x, Y, v), x * v)])
def test_whether_tensors_are_close_is_read_after_the_graph(function, backend):
    translated = sot.to_static(function, backend=backend)
    for v in (0.1, 0.3, 0.6, 0.9, 2.0, 0.2):
        assert_same(translated(X, v), function(X, v))
    assert len(translated.captures) == 2 and not any(c.stopped for c in translated.captures)


def assert_same(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert type(got) is type(want)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_negative_tolerance_is_refused(backend):
    def function(x, v):
        return x * torch.allclose(x, x, atol=v)

    translated = sot.to_static(function, backend=backend)
    for v in (0.1, 0.3, -1.0, 0.6):
        if v > 0:
            assert_same(translated(X, v), function(X, v))
            continue
        with pytest.raises(RuntimeError) as expected:
            function(X, v)
        with pytest.raises(RuntimeError) as caught:
            translated(X, v)
        assert str(caught.value) == str(expected.value)
