"""Floats that operations take only as numbers: eps, probabilities, margins, slopes. They change from call to call, and
a backend that compiles gets two graphs at most.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs

import sot
from sot.backends import lookup_backend

programs = Programs()
draws = Programs()
torch.manual_seed(0)
X, Y = torch.randn(6, 8), torch.randn(6, 8)
IMAGE = torch.randn(2, 4, 5, 5)
SIGNS, CLASSES = torch.randn(6).sign(), torch.tensor([0, 3, 7, 1, 5, 2])
WEIGHT = torch.rand(8)


class Compiling:
    def __init__(self, inner="aot_eager"):
        self.graphs, self.inner = 0, lookup_backend(inner)

    def __call__(self, gm, inputs):
        self.graphs += 1
        return self.inner(gm, inputs)


@programs
def norms(x, v):
    return (F.layer_norm(x, (8,), WEIGHT, WEIGHT, v), F.rms_norm(x, (8,), WEIGHT, v), F.normalize(x, eps=v),
            F.layer_norm(x, (6, 8), eps=v), F.group_norm(x, 2, WEIGHT, WEIGHT, v))


@programs
def orders_of_norms(x, v):
    y = torch.cat((x[:, :2], torch.zeros(6, 2)), 1)
    return (torch.linalg.vector_norm(x, v + 0.5), x.norm(v + 1, 1), torch.norm(x, p=v + 1, dim=0, keepdim=True),
            torch.linalg.vector_norm(y, v + 1, 1), x.norm(-v - 1), torch.zeros_like(x).norm(v + 1))


@programs
def orders_of_clipped_gradients(x, v):
    gradients = [x.detach(), 2 * x.detach()]
    return x * v, torch.nn.utils.get_total_norm(gradients, v + 1)


@programs
def norms_in_half_precision(x, v):
    y = x.detach().bfloat16()
    return (x * v, F.layer_norm(y, (6, 8), eps=v), F.rms_norm(y, (8,), WEIGHT.bfloat16(), v), F.elu(y, v),
            F.softplus(y, v), F.group_norm(y, 2, eps=v))


@programs
def norms_of_images(x, v):
    y = IMAGE * x[0, 0]
    return F.group_norm(y, 2, WEIGHT[:4], WEIGHT[4:], v), F.instance_norm(y, weight=WEIGHT[:4], eps=v)


@programs
def batch_norms(x, v):
    mean, variance = torch.zeros(8), torch.ones(8)
    made = F.batch_norm(x, mean, variance, WEIGHT, WEIGHT, True, 0.3, v)
    both = F.batch_norm(x, mean, variance, None, None, True, v, v)
    plain = F.batch_norm(x, WEIGHT, WEIGHT, None, WEIGHT, False, 0.1, v)
    return made, both, plain, F.batch_norm(IMAGE * x[0, 0], None, None, training=True, eps=v), mean, variance


@programs
def distances(x, v):
    return (F.cosine_similarity(x, Y, eps=v), torch.cosine_similarity(x, Y, 0, v * 3), F.pairwise_distance(x, Y, eps=v),
            F.pairwise_distance(x, Y, 1, v, True))


@programs
def activations(x, v):
    x = torch.cat([x, x * 30])
    return (F.leaky_relu(x, v), F.elu(x, v), F.celu(x, v), F.softplus(x, v), F.softplus(x, v, v), F.softshrink(x, v),
            F.hardshrink(x, v), x.hardshrink(v), F.threshold(x, v, 0.5), F.threshold(x, 0.1, v))


@programs
def losses(x, v):
    return (F.huber_loss(x, Y, delta=v), F.huber_loss(x, Y, "none", v), F.smooth_l1_loss(x, Y, beta=v),
            F.margin_ranking_loss(x[:, 0], x[:, 1], SIGNS, v), F.hinge_embedding_loss(x[:, 0], SIGNS, v),
            F.triplet_margin_loss(x, Y, x.flip(0), v), F.triplet_margin_loss(x, Y, x.flip(0), v, swap=True, eps=v),
            F.cosine_embedding_loss(x, Y, SIGNS, v), F.poisson_nll_loss(x.exp(), Y.exp(), False, eps=v))


@programs
def smoothed_labels(x, v):
    ignored = CLASSES.masked_fill(CLASSES == 3, -100)
    shares = Y.softmax(1)
    return [F.cross_entropy(x, target, weight, label_smoothing=v, reduction=reduction)
            for target in (CLASSES, ignored, shares) for weight in (None, WEIGHT)
            for reduction in ("mean", "sum", "none")]


@programs
def smoothed_labels_of_pixels(x, v):
    return F.cross_entropy(IMAGE * x[0, 0], torch.ones(2, 5, 5, dtype=torch.long), WEIGHT[:4], label_smoothing=v)


@programs
def products(x, v):
    square, rows = x[:, :6], IMAGE[0] * x[0, 0]
    return (torch.addmm(square, square, square, beta=v, alpha=v), x[0, :6].addmv(square, x[0, :6], alpha=v),
            torch.addr(square, x[0, :6], x[1, :6], beta=v), torch.baddbmm(rows, rows, rows, alpha=v),
            F.scaled_dot_product_attention(IMAGE, IMAGE * x[0, 0], IMAGE, scale=v))


@programs
def other_operations(x, v):
    index = torch.tensor([1])
    return (F.pad(x, (1, 2), value=v), x.index_fill(0, index, v), x.index_add(0, index, x[:1], alpha=v),
            x.scatter(1, CLASSES[:, None], v), x.sigmoid().logit(v / 3), torch.fmod(x, v), torch.xlogy(v, x.exp()),
            torch.copysign(x, -v), torch.true_divide(x, v), torch.special.zeta(x.detach().exp() + 2, v + 1))


@draws
def dropouts(x, v):
    return F.dropout(x, v), F.dropout(x, v), F.dropout(x, v, False), F.alpha_dropout(x, v, True)


@draws
def dropouts_of_channels(x, v):
    return F.dropout2d(IMAGE * x[0, 0], v), F.dropout1d(IMAGE[0] * x[0, 0], v)


@draws
def other_draws(x, v):
    return (x * torch.empty(8).normal_(v, v), x * torch.empty(8).exponential_(v), F.gumbel_softmax(x, v),
            F.gumbel_softmax(x, v, hard=True))


def outcome(function, value, seed=0):
    torch.manual_seed(seed)
    x = X.clone().requires_grad_()
    results = function(x, value)
    results = results if isinstance(results, (tuple, list)) else [results]
    total = sum((r * r).sum() for r in results if r.requires_grad)
    total.backward()
    return [r.detach() for r in results], x.grad, torch.get_rng_state()


def check(fn, backend):
    """Results that have nothing in common are compiled apart, so a call may make several graphs."""
    translated, graphs = sot.to_static(fn, backend=backend), []
    for i in range(5):
        value = 0.3 * 0.9 ** i
        torch.testing.assert_close(outcome(translated, value, i), outcome(fn, value, i), rtol=2e-5, atol=2e-5)
        graphs.append(backend.graphs)
    assert graphs[-1] == graphs[1] and not any(c.stopped for c in translated.captures)


@pytest.mark.slow
@programs.each
def test_a_number_of_an_operation_is_compiled_twice(fn):
    check(fn, Compiling())


@draws.each
def test_a_number_of_a_distribution_is_compiled_twice(fn):
    check(fn, Compiling())


@programs.each
def test_a_graph_that_runs_as_it_is_takes_the_number(fn):
    translated = sot.to_static(fn, backend="eager")
    for i in range(4):
        value = 0.3 * 0.9 ** i
        torch.testing.assert_close(outcome(translated, value), outcome(fn, value), rtol=0, atol=0, equal_nan=True)
    assert len(translated.captures) == 2 and not any(c.stopped for c in translated.captures)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_special_values_of_a_probability(backend):
    def step(x, p):
        y = F.dropout(x, p)
        return y is x, y * 1

    translated = sot.to_static(step, backend=backend)
    for p in (0.5, 0.25, 0.0, 1.0, 0.75, 0.0, 0.1, 1.5, -1.0, 0.2):
        torch.manual_seed(0)
        if not 0 <= p <= 1:
            with pytest.raises(ValueError, match="dropout probability"):
                translated(X, p)
            continue
        made = translated(X, p)
        torch.manual_seed(0)
        torch.testing.assert_close(made, step(X, p))


@pytest.mark.slow
def test_a_training_step_with_a_schedule_of_dropout_and_smoothing():
    def training(translate):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.LayerNorm(16),
                                    torch.nn.Linear(16, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(smoothing):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(X), CLASSES, label_smoothing=smoothing)
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = translate(step)
        losses = []
        for i in range(7):
            model[1].p, model[2].eps = 0.5 * 0.9 ** i, 1e-5 * 2 ** i
            losses.append(run(0.2 * 0.8 ** i))
        return losses, list(model.parameters())

    backend = Compiling()
    torch.testing.assert_close(training(lambda f: sot.to_static(f, backend=backend)), training(lambda f: f))
    assert backend.graphs <= 3


def test_an_operation_without_a_rule_is_left_to_python_early():
    def step(x, v):
        return torch.renorm(x * v, 2, 0, v) + 1

    backend = Compiling()
    translated = sot.to_static(step, backend=backend)
    for i in range(6):
        torch.testing.assert_close(translated(X, 0.5 + i), step(X, 0.5 + i))
    assert backend.graphs <= 5
    assert any("differs from call to call" in str(c.stopped) for c in translated.captures if c.stopped)
