"""Products that are kernels: a column by a row, small ones of a single row. Products that are stored where a
concatenation needs them. All others are calls, and all are eager's.
"""
from __future__ import annotations

import pytest
import torch
from compiling import check_compiled, counts, numbers

import sot


def made_of(*shape, dtype=torch.float32):
    return numbers(*shape).detach().to(dtype).requires_grad_(dtype.is_floating_point)


# ---- kernels -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_column_by_a_row_is_part_of_the_kernels_around_it(dtype):
    column, row = made_of(40, 1, dtype=dtype), made_of(1, 30, dtype=dtype)
    made = check_compiled(lambda a, b: torch.mm(a, b).tanh() * 2, column, row, rtol=2e-2, atol=2e-2)
    assert counts(made)[0] == (1, 0)


def test_the_gradient_of_a_weight_for_a_batch_of_one_is_a_kernel():
    layer, x = torch.nn.Linear(40, 30), made_of(1, 40)
    made = check_compiled(lambda x: layer(x).tanh(), x, parameters=layer.parameters())
    assert counts(made)[1][1] == 1, "the gradient of x is called"


@pytest.mark.parametrize("sizes", [(1, 16, 16), (1, 3, 5), (1, 1, 7), (1, 16, 1), (1, 1, 1)], ids=str)
def test_a_small_product_of_a_single_row_is_a_kernel(sizes):
    rows, count, columns = sizes
    x, weight, bias = made_of(rows, count), made_of(columns, count), made_of(columns)
    made = check_compiled(lambda x, w, b: torch.relu(torch.addmm(b, x.sin(), w.t())), x, weight, bias)
    assert counts(made)[0][1] <= 1     # relu at the end of a library's call


@pytest.mark.parametrize("sizes", [(1, 17, 16), (1, 16, 17), (2, 16, 16)], ids=str)
def test_other_products_are_called(sizes):
    rows, count, columns = sizes
    made = check_compiled(lambda x, w: torch.mm(x, w).sin(), made_of(rows, count), made_of(count, columns))
    assert counts(made)[0] == (1, 1)


def test_batches():
    made = check_compiled(lambda a, b: torch.bmm(a, b) * 2, made_of(3, 5, 1), made_of(3, 1, 4))
    assert counts(made)[0] == (1, 0)
    made = check_compiled(lambda a, b: torch.bmm(a, b) * 2, made_of(3, 1, 5), made_of(3, 5, 4))
    assert counts(made)[0] == (1, 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.int8])
def test_whole_numbers_wrap(dtype):
    a, b = torch.arange(100, 106).reshape(1, 6).to(dtype), torch.arange(90, 102).reshape(6, 2).to(dtype)
    assert counts(check_compiled(lambda a, b: torch.mm(a, b), a, b)) == [(1, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_factors_and_a_start_that_counts_for_nothing(dtype):
    """With a factor of zero a start of NaN is ignored. In half precision only the result is rounded."""
    start = torch.full((8,), float("nan"), dtype=dtype)
    x, w = made_of(1, 8, dtype=dtype).detach(), made_of(8, 8, dtype=dtype).detach()
    check_compiled(lambda s, x, w: torch.addmm(s, x, w, beta=0, alpha=3) + 1, start, x, w)
    check_compiled(lambda s, x, w: torch.addmm(s, x, w, beta=0.3, alpha=3) + 1, torch.ones_like(start), x, w,
                   rtol=1e-2, atol=1e-2)


def test_infinite_and_nan():
    inf, nan = float("inf"), float("nan")
    a, b = torch.tensor([[0.0, inf, nan, 1.0, -inf]]), torch.tensor([[inf], [0.0], [1.0], [nan], [2.0]])
    check_compiled(lambda a, b: (torch.mm(a, b), torch.mm(b, a)), a, b)


# ---- products stored in a concatenation -----------------------------------------------------------------------------
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_concatenated_products_are_not_copied(dim, dtype):
    x, weights = made_of(6, 20, dtype=dtype), [made_of(20, 8, dtype=dtype) for _ in range(3)]
    made = check_compiled(lambda x, *ws: torch.cat([x @ w for w in ws], dim), x, *weights, rtol=2e-2, atol=2e-2)
    assert counts(made)[0] == (0, 3)


def test_stacked_layers_and_what_reads_them():
    layer, x = torch.nn.Linear(20, 8), made_of(4, 6, 20)
    made = check_compiled(lambda x: torch.stack([layer(row) for row in x]).sin(), x, parameters=layer.parameters())
    assert counts(made)[0] == (1, 4)


def test_batches_of_products():
    a, b = made_of(2, 6, 9), made_of(2, 9, 5)
    made = check_compiled(lambda a, b: torch.cat([torch.bmm(a, b), torch.bmm(a * 2, b)], 2), a, b)
    assert counts(made)[0] == (1, 2)


@pytest.mark.parametrize("program", [
    lambda a, b: (torch.cat([a @ b, (a + 1) @ b]), a @ b),                          # of which one is a result, too
    lambda a, b: [torch.cat([p, a @ (b + 1)]) + p.sum() for p in [a @ b]],          # which something else reads
    lambda a, b: [torch.cat([p, p]) for p in [a @ b]],                              # twice the same
    lambda a, b: torch.cat([(a @ b).t(), ((a + 1) @ b).t()]),                       # other layouts
    lambda a, b: torch.cat([a @ b, b[:6]]),                                         # some other part
    lambda a, b: torch.cat([(a @ b)[1:], (a + 1) @ b]),                             # a part of a product
    lambda a, b: torch.cat([(a @ b).to(torch.float64), (a @ b).double()]),          # other types
    lambda a, b: torch.cat([torch.cat([a @ b, (a + 1) @ b]), (a + 2) @ b]),         # one in another
], ids=range(8))
def test_concatenations_of_other_things(program):
    check_compiled(program, made_of(6, 20), made_of(20, 8))


@pytest.mark.slow
def test_concatenated_products_of_sizes_that_vary():
    w = made_of(20, 8)
    program = lambda x, w: torch.cat([x @ w, (x + 1) @ w], 1).sin()      # noqa: E731
    made = sot.to_static(program, backend="triton", dynamic=True)
    for rows in (3, 5, 9, 17):
        x, y = (made_of(rows, 20) for _ in range(2))
        mine, given = made(x, w), program(y, w)
        torch.testing.assert_close(mine, given)
        torch.testing.assert_close(torch.autograd.grad(mine.sum(), x), torch.autograd.grad(given.sum(), y))
    sot.reset()
