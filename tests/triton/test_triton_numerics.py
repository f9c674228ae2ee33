"""Numbers through kernels: types, special values, shapes that have nothing or one of something, and error."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled, kernels

import sot
from sot.backends.triton.source import blocks
from sot.backends.triton.source.kernel_source import source
from sot.graph.kernels import ir

HALF = [torch.float16, torch.bfloat16]
FLOATS = [*HALF, torch.float32, torch.float64]
WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def numbers(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype).requires_grad_(grad)
    return torch.randint(1, 20, shape, generator=generator).to(dtype)


def one_kernel(made):
    assert [m.cost.kernels for m in made][:1] == [1]


# ---- types ----
@pytest.mark.parametrize("dtype", FLOATS)
def test_arithmetic_is_rounded_as_eager_rounds(dtype):
    def f(x, y):
        z = x * y + x
        return z / (y.abs() + y), z > x, torch.where(x > 0, z, y)
    one_kernel(check_compiled(f, numbers(40, dtype=dtype), numbers(40, dtype=dtype), rtol=0, atol=0))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_next_number_is_that_of_the_type(dtype):
    x = torch.tensor([0.0, 1.0, -1.3, 2000.0], dtype=dtype)
    check_compiled(lambda x: torch.nextafter(x, x * 2), x, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_layer_norm_and_its_gradients(dtype):
    def f(x, w, b):
        return F.layer_norm(x, (32,), w, b)
    args = [numbers(32, dtype=dtype, grad=True) for _ in range(2)]
    one_kernel(check_compiled(f, numbers(6, 32, dtype=dtype, grad=True), *args, rtol=2e-2, atol=2e-2))


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers(dtype):
    def f(x, y):
        return x + y, x * y - x, x // y, x % y, x & y, x << 1, torch.maximum(x, y), x.sum(), x.amax(), x / y, -x
    check_compiled(f, numbers(30, dtype=dtype), numbers(30, dtype=dtype) % 7 + 1)


def test_quotients_of_negative_numbers_round_as_pythons():
    def f(x, y):
        return x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")
    x, y = torch.arange(-6, 7).repeat(2), torch.tensor([3] * 13 + [-3] * 13)
    check_compiled(f, x, y)
    check_compiled(f, x.float() + 0.5, y.float(), rtol=0, atol=0)


def test_truth_values():
    def f(a, b):
        return a & b, a | ~b, a ^ b, a + b, a.any(), a.all(), a.sum(), torch.where(a, 1.5, b.float()), a.int() * 3, \
            F.pad(a, (1, 2), value=1)
    check_compiled(f, torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False]))


def test_types_meet_as_in_eager():
    def f(half, single, whole, truth):
        return half + single, half * 2, whole + 0.5, whole * single, truth + whole, half + truth, whole / 2
    check_compiled(f, numbers(9, dtype=torch.float16), numbers(9), numbers(9, dtype=torch.int32), numbers(9) > 0)


def test_conversions():
    def f(x):
        return x.int(), x.bool(), x.half(), x.bfloat16(), x.double(), x.to(torch.uint8), x.long().float()
    check_compiled(f, torch.tensor([0.0, 1.5, 2.5, 99.4, 0.1]), rtol=0, atol=0)


# ---- special values ----
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-42, 3e38])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("whole", "way"), [(torch.uint8, "int64"), (torch.int8, "int32"), (torch.int16, "int32")])
def test_a_float_becomes_a_small_integer_as_in_eager(whole, way, dtype):
    """A GPU gives the nearest integer of the type, where eager keeps the last bits: 255 for -1.5. The interpreter does
    as eager does, so the source is asked."""
    made = check_compiled(lambda x: x.to(whole) * 2, torch.tensor([-1.5, 2.9, -0.0, 100.5, -128.0], dtype=dtype))
    assert f".to(tl.{way}).to(tl.{whole})".replace("torch.", "") in made[0].source


def test_the_norm_over_an_axis_of_size_one():
    """Counted from the end, torch 2.11 keeps the axis."""
    check_compiled(lambda x: (x.norm(2, -2), x.norm(2, 1), x.norm(1, (-2, 0)), x.norm(3, -2, keepdim=True)),
                   numbers(2, 1, 3, grad=True))


@pytest.mark.parametrize("f", [
    torch.exp, torch.log, torch.sqrt, torch.sigmoid, torch.tanh, torch.relu, torch.sign, torch.isfinite, torch.abs,
    torch.floor, torch.round, torch.reciprocal, torch.nan_to_num, F.softplus,
    lambda x: x.clamp(-1, 1), lambda x: torch.maximum(x, x.flip(0)), lambda x: torch.fmin(x, x.flip(0)),
    lambda x: x ** 2, lambda x: x ** 0.5, lambda x: torch.signbit(x), lambda x: torch.logaddexp(x, x.flip(0)),
    lambda x: x.amax(), lambda x: x.argmax(), lambda x: x.min(0), lambda x: x.sum(), lambda x: x.softmax(0),
], ids=lambda f: f.__name__)
def test_special_values(f):
    check_compiled(lambda x: f(x), SPECIAL)
    check_compiled(lambda x: f(x), SPECIAL[1:])


def test_powers_that_eager_computes_as_roots():
    """With the sign of a zero, which the gradient shows as that of an infinite number."""
    for exponent in (0.5, -0.5):
        check_compiled(lambda x, e=exponent: x ** e, SPECIAL.clone().requires_grad_())


def test_the_mean_beside_a_variance_is_nan_after_an_infinite_element():
    """torch updates it with each element. The last one has no other after it."""
    inf = math.inf
    x = torch.tensor([[1.0, inf, 2], [1, 2, -inf], [inf, 1, 2], [1, inf, inf], [1, 2, 3]])
    check_compiled(lambda x: (*torch.var_mean(x, 1), *torch.var_mean(x.t(), 0), *torch.var_mean(x[:2], (0, 1)),
                              x.mean(1), torch.std_mean(x[:, :1], 1, correction=0)[1]), x)


def test_the_deviation_of_equal_elements_is_nothing():
    """Their sum is rounded, and so is a mean that is computed from it. The gradient of a deviation of 0 is 0."""
    x = torch.tensor([[-0.1206] * 3, [0.1, 0.2, 0.3], [0.7] * 3, [math.inf] * 3, [math.nan] * 3]).requires_grad_()
    check_compiled(lambda x: (x.std(1), *torch.std_mean(x[:3], 1, correction=0)), x)
    check_compiled(lambda x: x.std(), torch.full((3, 7), 0.1).requires_grad_())


def test_the_first_of_equal_extremes_is_found():
    x = torch.tensor([[1.0, 3, 3, 0], [math.nan, 3, math.nan, 5], [-1, -1, -1, -1]])
    check_compiled(lambda x: (x.argmax(1), x.argmin(1), x.max(1), x.argmax(), x.min(0)), x)


# ---- shapes ----
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 5), (5, 1), (3, 1, 4), (0,), (0, 3), (3, 0), (1025,)], ids=str)
def test_shapes(shape):
    def f(x):
        y = x * 2 + 1
        return y, y.sum(), y.sum(-1) if x.dim() else y, y.mean() if x.numel() else y
    check_compiled(f, numbers(*shape, grad=True))


LAYOUTS = {
    "transposed": lambda: numbers(5, 7).t(),
    "every second column": lambda: numbers(5, 14)[:, ::2],
    "from the middle of memory": lambda: numbers(40)[5:].reshape(5, 7),
    "expanded": lambda: numbers(1, 7).expand(5, 7),
    "channels last": lambda: numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "permuted": lambda: numbers(3, 4, 5).permute(2, 0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    def f(x):
        y = x.sin() + x
        return y, y.flatten() * 2, y.sum(0), y.softmax(-1), y.transpose(0, 1) + 1, x[1:] - x[:-1]
    check_compiled(f, LAYOUTS[layout]())


def test_views_of_results_are_given_out():
    check_compiled(lambda x: ((x + 1).t(), (x * 2)[1:, ::2], x.view(-1)[3:] + 0), numbers(4, 6, grad=True))


def test_an_argument_that_is_changed():
    def f(x, y):
        x.add_(y)
        x[1].mul_(2)
        return x * y
    x, y = numbers(4, 6), numbers(4, 6) + 1
    mine, theirs = x.clone(), x.clone()
    f(theirs, y)
    made = check_compiled(f, x.clone(), y)
    sot.to_static(f, backend=Kernels())(mine, y)
    torch.testing.assert_close(mine, theirs)
    assert made


BY_NUMBER = {
    "comparisons": lambda x, n: (x == n, x < n, x >= n, n > x, x != n),
    "remainders": lambda x, n: (x % n, torch.fmod(x, n), torch.remainder(n, x)),
    "powers": lambda x, n: (x.abs() ** n, n ** x),
    "quotients of small numbers": lambda x, n: (n // x, x // n) if n < 9 else x // n,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number", [0.3, 1.7, 40001, torch.tensor(0.1, dtype=torch.float64), torch.tensor(2049)])
@pytest.mark.parametrize("name", BY_NUMBER)
def test_numbers_are_rounded_as_eager_rounds_them(name, number, dtype):
    """Before a comparison, a remainder or a power in half precision, a number is rounded to that precision."""
    x = (numbers(300) * 3).to(dtype)
    x[:4] = torch.as_tensor(number).to(dtype)
    of_number = BY_NUMBER[name]
    if isinstance(number, torch.Tensor):
        check_compiled(lambda x, n: of_number(x, n) if "small" not in name else x // n, x, number, rtol=0, atol=0)
    else:
        check_compiled(lambda x: of_number(x, number), x, rtol=0, atol=0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_gradient_of_a_loss_of_nan_is_nan(reduction, dtype):
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, 0.3, -0.7, 4.0, -4.0], dtype=dtype)
    loss = lambda x, y: F.smooth_l1_loss(x, y, reduction=reduction, beta=0.5).to(torch.float32)    # noqa: E731
    for given, target in ((values, torch.zeros(8, dtype=dtype)), (numbers(8).to(dtype), values)):
        found = []
        for call in (loss, sot.to_static(loss, backend=Kernels())):
            x = given.detach().clone().requires_grad_()
            call(x, target).sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3, equal_nan=True)


# ---- positions ----
@pytest.mark.slow
def test_looking_up():
    table, where = numbers(10, 4, grad=True), torch.tensor([[1, 9], [0, 3]])
    check_compiled(lambda t, i: (F.embedding(i, t), t[i], t[i, 2], t[:, i % 4], t[-1] + t[i[0] - 10]), table, where)
    check_compiled(lambda t, i: t.gather(1, i), table, torch.tensor([[1], [3], [0]]))


def test_a_position_out_of_range_raises():
    made = check_compiled(lambda t, i: t[i] * 2, numbers(10), torch.tensor([3]))
    assert "require(" in made[0].source
    looked_up = sot.to_static(lambda t, i: t[i] * 2, backend=Kernels())
    with pytest.raises(IndexError):
        looked_up(numbers(10), torch.tensor([10]))


@pytest.mark.parametrize("join", [lambda t: torch.cat([t, t * 2], 1), lambda t: F.pad(t, (2, 1, 1, 0)),
                                  lambda t: torch.cat([t[:1], t, t * 2]), lambda t: F.pad(t[:, 1:], (0, 3), value=2)])
def test_positions_are_not_checked_where_nothing_is_looked_up(join):
    """Places of a result that another part fills give positions that are out of range. An assertion on a GPU would end
    the process.
    """
    looked_up = lambda t, i: join(t[torch.arange(t.shape[0]).flip(0)]) + join(t[i])     # noqa: E731
    check_compiled(looked_up, numbers(3, 7), torch.tensor([0, 2, -3]))
    run = sot.to_static(looked_up, backend=Kernels())
    with pytest.raises(IndexError):
        run(numbers(3, 7), torch.tensor([0, 2, 3]))
    sot.reset()


# ---- gradients of the program's own ----
def test_custom_gradients_are_respected():
    class Steep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.relu() * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 7 + ctx.saved_tensors[0]
    one_kernel(check_compiled(lambda x: Steep.apply(x * 3).sin(), numbers(40, grad=True)))


# ---- random numbers ----
def test_random_numbers_are_eagers_own_forward_and_backward():
    check_compiled(lambda x: F.dropout(x, 0.5) * torch.rand_like(x), numbers(50, grad=True))


# ---- rows that do not fit into a block ----
@pytest.fixture
def narrow(monkeypatch):
    """Blocks so small that rows are read in pieces, and that a grid has many programs."""
    monkeypatch.setattr(blocks, "INTERPRETED", 16)
    monkeypatch.setattr(blocks, "LOOP", 32)
    chosen = blocks.chosen
    monkeypatch.setattr("sot.backends.triton.source.module_source.chosen", lambda k, i: chosen(k, i, whole=8))


@pytest.mark.parametrize("f", [
    lambda x: x.softmax(-1), lambda x: F.layer_norm(x, (70,)), lambda x: x.sum(0), lambda x: x.var(1),
    lambda x: (x.max(1), x.argmin(0)), lambda x: F.log_softmax(x, 1).sum(), lambda x: x.prod(1), lambda x: x.sin() * 2,
    lambda x: x.mean(1, keepdim=True).expand(9, 70) + torch.arange(70),
], ids=["softmax", "layer norm", "columns", "variance", "extremes", "loss", "product", "map", "of a row, everywhere"])
def test_rows_in_pieces(f, narrow):
    made = check_compiled(f, numbers(9, 70, grad=True), exactly=True)
    looping = any("for start in range" in m.source for m in made)
    assert looping == any(k.reduced for m in made for k in kernels(m.program))


SPACES = {
    "a map": "over p0:{n}\nbuffer x f32 {n}\nbuffer y f32 {n}\nv0:f32 = load x[p0]\nstore y[p0] v0",
    "rows": "over p0:2 | r0:{half}\nbuffer x f32 {n}\nbuffer y f32 2\nv0:f32 = load x[{half}*p0 + r0]\n"
            "v1:f32 = sum v0\nstore y[p0] v1",
    "columns, far apart": "over p0:2 | r0:{half}\nbuffer x f32 {n}\nbuffer y f32 2\nv0:f32 = load x[p0 + 2*r0]\n"
                          "v1:f32 = sum v0\nstore y[p0] v1",
    "few elements of much memory": "over p0:2 | r0:2\nbuffer x f32 {n}\nbuffer y f32 4\n"
                                   "v0:f32 = load x[p0 + {half}*r0]\nstore y[2*p0 + r0] v0",
    "a place that is looked up": "over p0:4\nbuffer x f32 {n}\nbuffer y f32 4\nbuffer i i64 4\nv0:i64 = load i[p0]\n"
                                 "v1:i64 = inside v0 of {half}\nv2:f32 = load x[2*v1 + p0]\nstore y[p0] v2",
}


@pytest.mark.parametrize("n", [2**31 - 2, 2**31, 2**33])
@pytest.mark.parametrize("name", SPACES)
def test_positions_beyond_32_bits_are_computed_in_64(name, n):
    """Every position: of rows, of columns, and of those in a loop."""
    kernel = ir.parse(f"kernel k {SPACES[name].format(n=n, half=n // 2)}")
    text = source(kernel, blocks.chosen(kernel))
    positions = [line for line in text.splitlines() if "tl.arange(" in line]
    assert positions and all(("tl.int64" in line) == (n > 2**31 - 1) for line in positions)


# ---- sizes that change ----
@pytest.mark.slow
def test_a_graph_with_symbolic_sizes_is_compiled_once():
    made = Kernels()
    weight = numbers(8, 4, grad=True)

    def f(x, w):
        return (x * 2).softmax(-1) @ w * x.shape[0]
    run = sot.to_static(f, backend=made)
    for rows in (3, 5, 7, 5):
        x = numbers(rows, 8, grad=True)
        wanted = torch.autograd.grad(f(x, weight).sum(), (x, weight))
        torch.testing.assert_close(torch.autograd.grad(run(x, weight).sum(), (x, weight)), wanted)
        torch.testing.assert_close(run(x, weight), f(x, weight))
    assert all(m.cost.kernels for m in made.made) and not made.failed
    assert len(made.made) == 4, "forward and backward, of the first sizes and of all others"
    sot.reset()


# ---- tensors whose memory does not hold their elements ---------------------------------------------------------
LAZY = {
    "negated inside": lambda x, z: (z * 1j).conj().imag.sum(0) + x.sum(0),
    "a negated view with gaps": lambda x, z: torch._neg_view(z.real) * 2 + x,
    "a negated view": lambda x, z: torch._neg_view(x) * 2,
    "a negated view that is returned": lambda x, z: (torch._neg_view(x * 2), x + 1),
    "zeros without memory": lambda x, z: (torch.sgn(x) * x, x.sign().clone()),
}


@pytest.mark.parametrize("name", LAZY)
def test_elements_that_are_not_in_memory(name):
    torch.manual_seed(0)
    z = torch.randn(3, 4, dtype=torch.complex64)
    check_compiled(LAZY[name], torch.randn(3, 4, requires_grad=True), z)


def test_an_argument_that_is_negated_where_it_is_read():
    torch.manual_seed(0)
    plain, negated = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    f = lambda x: x.t() * 2 + 1     # noqa: E731
    for dynamic in (None, True):
        run = sot.to_static(f, backend=Kernels(), dynamic=dynamic)
        for x in (plain, negated, negated[:2], plain, negated):
            torch.testing.assert_close(run(x), f(x))
    sot.reset()


def test_a_change_of_an_argument_that_is_negated_where_it_is_read():
    torch.manual_seed(0)
    mine, theirs = (torch.ones(3, 4, dtype=torch.complex64) * (1 + 2j) for _ in range(2))
    f = lambda x: x.mul_(3).add_(1)     # noqa: E731
    f(theirs.conj().imag)
    sot.to_static(f, backend="triton")(mine.conj().imag)
    assert torch.equal(mine, theirs)
    sot.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool])
def test_a_product_as_a_truth_value_asks_for_zeros(dtype):
    x = torch.tensor([[0.5, -2, 3], [0.25, 0, 1]]).to(dtype)
    check_compiled(lambda a: (a.prod(1, dtype=torch.bool), a.prod(dtype=torch.bool)), x)


def test_a_row_that_is_known_when_compiling_is_written():
    def f(i):
        i[-1:].zero_()
        return i.index_fill_(0, i.abs(), 1)
    check_compiled(f, torch.tensor([3]))


def test_complex_numbers_that_are_not_finite():
    check_compiled(lambda a: torch.logaddexp(a, a), torch.tensor([1 + 2j, complex(math.nan, 1)]))
