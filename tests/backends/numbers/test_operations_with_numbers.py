"""Floats that operations take only as numbers: eps, probabilities, margins, slopes. They change from call to call, and
a backend that compiles gets two graphs at most.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs
from varying_floats import Compiling, check_as_it_is, check_compiled, outcome

import sot

programs = Programs()
torch.manual_seed(0)
X, Y = torch.randn(6, 8), torch.randn(6, 8)
IMAGE = torch.randn(2, 4, 5, 5)
SIGNS, CLASSES = torch.randn(6).sign(), torch.tensor([0, 3, 7, 1, 5, 2])
WEIGHT = torch.rand(8)
NAN, INF = float("nan"), float("inf")


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


@programs
def orders_of_distances(x, v):
    close = torch.cat((x[:3], Y[3:]))
    return (F.normalize(x, v + 1), F.normalize(x * torch.tensor([0.0, 1]).repeat(4), v + 1, 0, v),
            F.pairwise_distance(x, Y, v + 1), torch.dist(x, Y, v + 1), close.dist(Y, v + 1),
            torch.linalg.norm(x[0], v + 1), torch.linalg.norm(x, v + 1, 1), torch.cdist(x, close, v + 2),
            F.triplet_margin_loss(x, Y, x.flip(0), v, v + 1), torch.cdist(x, close, v + 1), F.pdist(close, v + 1))


@programs
def limited_norms(x, v):
    return (x.renorm(v + 1, 0, 1.0), torch.renorm(x, 2, 1, v), x.clone().renorm_(v + 1, 0, v),
            F.local_response_norm(IMAGE * x[0, 0], 2, v, v, v), F.lp_pool1d(x, v + 1, 2),
            F.lp_pool2d((IMAGE * x[0, 0]).abs() + 0.1, v + 1, 2, 1))


@programs
def deviations(x, v):
    return (x.std(correction=v), torch.std(x, 0, correction=v), x.var((0, 1), correction=v, keepdim=True),
            torch.var(x[:1], 0, correction=v + 1), *torch.std_mean(x, 1, correction=v),
            *torch.var_mean(x, correction=v), torch.ones_like(x).std(1, correction=v) * x[:, 0])


@programs
def activations_with_bounds(x, v):
    special = torch.tensor([NAN, INF, -INF, 0.0, 1.0, -1.0, 0.3, -0.3]) * x
    return (F.hardtanh(x, -v, v), F.hardtanh(x, max_val=v), F.hardtanh(special.detach(), -v, v), special.nan_to_num(v),
            torch.nan_to_num(special, v, -v, v * 2), torch.nan_to_num(special, posinf=v), torch.celu(x, v))


@programs
def activations_in_place(x, v):
    made = [x * (i + 1) for i in range(10)]
    F.leaky_relu_(made[0], v), F.elu_(made[1], v), F.celu_(made[2], v), F.threshold_(made[3], v, 0.5)
    F.hardtanh_(made[4], -v, v), F.elu(made[5], v, True), F.leaky_relu(made[6], v, inplace=True)
    F.threshold(made[7], 0.1, v, True), F.hardtanh(made[8], -v, v, True), made[9].nan_to_num_(v)
    return *made, (x.sigmoid() * 1).logit_(v / 3), (x * 1).clamp_(-v, v)


@programs
def activations_in_half_precision(x, v):
    y = x.detach().bfloat16()
    return x * v, F.hardtanh(y, -v, v), (y / 0).nan_to_num(v, v, v), y.std(correction=v), F.normalize(y, v + 1)


@programs
def losses_with_margins(x, v):
    return (F.multi_margin_loss(x, CLASSES, margin=v), F.multi_margin_loss(x, CLASSES, 2, v, WEIGHT, reduction="none"),
            F.gaussian_nll_loss(x, Y, x.detach().abs(), eps=v), F.gaussian_nll_loss(x, Y, x.exp(), True, v),
            F.poisson_nll_loss(x, Y.exp(), eps=v, full=True), F.poisson_nll_loss(x.exp(), Y.exp(), False, True, eps=v))


@programs
def comparisons(x, v):
    y, ascending = x.detach(), torch.linspace(-1, 1, 9)
    return (x * v, torch.isclose(y, Y, v), y.isclose(y + 0.1, v, v, True), torch.isclose(y / 0, y / 0, v),
            torch.bucketize(v, ascending), torch.searchsorted(ascending, v, right=True), torch.greater(y, v),
            torch.less_equal(y, v), torch.histc(y, 5, -v, v), torch.isin(y, v))


@programs
def integrals(x, v):
    return (torch.trapezoid(x, dx=v), torch.cumulative_trapezoid(x, dx=v, dim=0), *torch.gradient(x, spacing=v),
            torch.gradient(x, spacing=v, dim=1, edge_order=2)[0], torch.nanquantile(x, v), x.nanquantile(v, 1))


@programs
def new_tensors(x, v):
    return (x * x.new_tensor(v), x[:, :2] * x.new_tensor([v, 1.0]), x[:, :5] * torch.kaiser_window(5, True, v),
            x[:, :5] * torch.logspace(0, v, 5), x[:, :5] * torch.logspace(0, 1, 5, v + 1),
            x[:, :5] * torch.linspace(0, v, 5, dtype=torch.float64), (x * 1).fill_diagonal_(v),
            torch.nn.utils.rnn.pad_sequence([x[0], x[1, :3]], padding_value=v), x.float_power(v),
            torch.float_power(v, x))


@programs
def products_in_place(x, v):
    square, batch = x[:, :6], x[None, :, :6]
    return ((square * 1).addmm_(square, square, beta=v, alpha=v), (x[0, :6] * 1).addmv_(square, x[0, :6], alpha=v),
            (square * 1).addr_(x[0, :6], x[1, :6], beta=v), torch.addbmm(square, batch, batch, beta=v),
            (x * 1).index_add_(0, torch.tensor([1]), x[:1], alpha=v), (x * 1).scatter_(1, CLASSES[:, None], v))


@programs
def ranks(x, v):
    return x * v, torch.linalg.pinv(x[:, :4], rtol=v / 10), torch.linalg.matrix_rank(x.detach(), tol=v), (
        torch.linalg.pinv(x[:, :4], atol=v / 10, rtol=v / 10))


@programs
def largest_norms_of_embeddings(x, v):
    weight = Y.clone()
    return F.embedding(CLASSES % 6, x * v, None), F.embedding(CLASSES[:3] % 6, weight, max_norm=v) * x[0], weight


@programs
def windows_and_lists(x, v):
    return (x[:, :5] * torch.hamming_window(5, True, v), x[:, :5] * torch.hamming_window(5, False, 0.5, v),
            x[:, :5] * torch.fft.fftfreq(5, v), x[:, :3] * torch.fft.rfftfreq(5, v), x[:, :2] * torch.asarray([v, v]),
            x[:, :2] * torch.as_tensor([v, 1.0]), x * torch.scalar_tensor(v))


@programs
def quantiles(x, v):
    ways = "linear", "lower", "higher", "nearest", "midpoint"
    return [torch.quantile(x, v, 1, interpolation=way) for way in ways] + [x.quantile(v)]


@programs
def polynomials_and_quantization(x, v):
    return (x * v, torch.special.chebyshev_polynomial_t(x.detach(), v), torch.pinverse(x[:, :4], v / 10),
            torch.special.legendre_polynomial_p(x.detach(), v), torch.constant_pad_nd(x, (1, 1), v),
            torch.fake_quantize_per_tensor_affine(x, v, 0, 0, 255))


@programs
def functions_of_python_code(x, v):
    y = x[:, None]
    attention, _ = F.multi_head_attention_forward(
        y, y, y, 8, 2, torch.ones(24, 8) / 9, torch.zeros(24), None, None, False, v, torch.eye(8), torch.zeros(8))
    return (attention, F.triplet_margin_with_distance_loss(x, Y, x.flip(0), margin=v),
            F.huber_loss(x, Y, delta=v, weight=Y.abs()), F.huber_loss(x, Y, "sum", v, Y.abs()))


@programs
def bags_of_embeddings(x, v):
    weight = Y.clone()
    return F.embedding_bag(CLASSES[None] % 6, weight, max_norm=v) * x[0], weight


@pytest.mark.slow
@programs.each
def test_a_number_of_an_operation_is_compiled_twice(fn):
    check_compiled(fn, X, Compiling(), 0.03 if fn is activations_in_half_precision else 2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [orders_of_distances, activations_with_bounds, limited_norms, losses_with_margins],
                         ids=lambda fn: fn.__name__)
def test_inductor_compiles_a_number_of_an_operation_twice(fn):
    check_compiled(fn, X, Compiling("inductor"))


@programs.each
def test_a_graph_that_runs_as_it_is_takes_the_number(fn):
    check_as_it_is(fn, X)


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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("operation, values", [
    (lambda x, v: F.hardtanh(x, v, 0.5), (-1.0, -0.5, 0.5, 0.75, -0.25, -INF, NAN, 0.1)),
    (lambda x, v: F.hardtanh_(x * 1, -v, v), (1.0, 0.5, -0.5, 0.25)),
    (lambda x, v: F.normalize(x, v), (1.5, 2.5, 2.0, 1.0, 0.0, INF, -INF, 3.5, -1.0)),
    (lambda x, v: torch.cdist(x, Y, v), (1.5, 2.5, 2.0, 1.0, 0.0, INF, 3.5, -1.0, 0.5)),
    (lambda x, v: torch.pdist(x, v), (1.5, 2.5, 2.0, 0.0, INF, -1.0, 0.5)),
    (lambda x, v: torch.dist(x, Y, v), (1.5, 2.5, 2.0, 0.0, INF, -1.0, 0.5)),
    (lambda x, v: F.pairwise_distance(x, Y, v), (1.5, 2.5, 2.0, 0.0, INF, -1.0, 0.5)),
    (lambda x, v: x.renorm(v, 0, 1.0), (1.5, 2.5, 0.0, INF, -1.0, 0.5)),
    (lambda x, v: x.renorm(2, 0, v), (1.5, 2.5, 0.0, INF, -1.0, 0.5)),
    (lambda x, v: (x / 0).nan_to_num(v, v, v), (1.5, 2.5, NAN, INF, -INF, 0.5)),
    (lambda x, v: torch.isclose(x, Y, rtol=v), (0.5, 0.25, 0.0, INF, -1.0, NAN, 0.75)),
    (lambda x, v: torch.isclose(x, Y, atol=v), (0.5, 0.25, 0.0, INF, -1.0, NAN, 0.75)),
    (lambda x, v: x.std(1, correction=v), (0.5, 0.25, 0.0, 8.0, 9.5, -1.0)),
    (lambda x, v: x[:0].var(correction=v), (0.5, 0.25, 0.0)),
    (lambda x, v: F.lp_pool1d(x.abs(), v, 2), (1.5, 2.5, INF, -INF, -1.0, 0.5)),
    (lambda x, v: torch.histc(x, 4, -1.0, v), (1.5, 2.5, -1.0, -2.0, INF, 0.5)),
    (lambda x, v: torch.bucketize(v, x[0].sort().values), (0.5, 0.25, INF, NAN, -1.0)),
    (lambda x, v: torch.nanquantile(x, v), (0.5, 0.25, 0.0, 1.0, 1.5, -0.5, 0.75)),
    (lambda x, v: torch.quantile(x, v, interpolation="nearest"), (0.5, 0.25, 0.0, 1.0, 1.5, 0.75)),
    (lambda x, v: F.gaussian_nll_loss(x, Y, x, eps=v), (0.5, 0.25, 0.75)),
    (lambda x, v: torch.linspace(0, v, 5), (0.5, 0.25, INF, NAN, 1e30)),
    (lambda x, v: torch.fft.fftfreq(5, v), (0.5, 0.25, 0.0, -1.0, 0.75)),
])
def test_special_values_of_numbers(operation, values, backend):
    def run(function, v):
        try:
            return "", function(X.clone(), v)
        except (RuntimeError, ValueError, ZeroDivisionError, IndexError) as error:
            return repr(error).partition("Exception raised")[0], X

    translated = sot.to_static(lambda x, v: operation(x, v) * 2, backend=backend)
    for v in values:
        (why, made), (expected, want) = run(translated, v), run(lambda x, v: operation(x, v) * 2, v)
        assert why == expected, v
        torch.testing.assert_close(made, want, equal_nan=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_gradient_of_a_gradient(backend):
    def inside(x, v):
        slope, = torch.autograd.grad(x.renorm(v + 1, 0, 1.0).pow(3).sum(), x, create_graph=True)
        return slope.square().sum()

    def outside(function):
        def step(x, v):
            slope, = torch.autograd.grad(function(x, v).pow(3).sum(), x, create_graph=True)
            return slope.square().sum()
        return step

    def limited(x, v):
        return x.renorm(v + 1, 0, 1.0)

    pairs = [(inside, sot.to_static(inside, backend=backend)),
             (outside(limited), outside(sot.to_static(limited, backend=backend)))]
    for plain, translated in pairs:
        for v in (0.5, 0.6, 0.7, 0.8):
            torch.testing.assert_close(outcome(translated, X, v), outcome(plain, X, v))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_under_autocast(backend):
    def step(x, v):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x.T
            return (y.renorm(v + 1, 0, 1.0), torch.cdist(y, y, p=v + 1), F.hardtanh(y, -v, v),
                    F.rrelu(y, 0.1, v, True), F.multi_margin_loss(y, CLASSES % 6, margin=v), y.std(correction=v),
                    torch.histc(y.float(), 4, -v, v), F.scaled_dot_product_attention(*[y[None]] * 3, dropout_p=v))

    translated = sot.to_static(step, backend=backend)
    for v in (0.5, 0.6, 0.7, 0.8):
        (made, slope, state), (want, wanted, left) = outcome(translated, X, v), outcome(step, X, v)
        for one, other in zip(made, want, strict=True):
            torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)
        torch.testing.assert_close(slope, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))
        assert torch.equal(state, left)


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
        return torch.histogram(x * v, 5, range=(-v, v)).hist + 1

    backend = Compiling()
    translated = sot.to_static(step, backend=backend)
    for i in range(6):
        torch.testing.assert_close(translated(X, 0.5 + i), step(X, 0.5 + i))
    assert backend.graphs <= 5
    assert any("differs from call to call" in str(c.stopped) for c in translated.captures if c.stopped)
