"""Memory of a program: what is used again, and how much there is at most."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiling import check_compiled, counts, kernels

from sot.graph.kernels import ir
from sot.graph.kernels.memory import is_in_place, planned


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)


def test_an_activation_lies_where_the_product_lay():
    def f(x, w):
        return F.gelu(x @ w) @ w
    made, = check_compiled(f, numbers(16, 16), numbers(16, 16))
    plan = planned(made.program)
    (new, old), = plan.reused.items()
    assert new in kernels(made.program)[0].written() and old in kernels(made.program)[0].read()
    assert (plan.peak, plan.without) == (2 * 16 * 16 * 4, 2 * 16 * 16 * 4)
    assert f"{new} = {old}" in made.source


def test_a_sum_of_products_takes_the_memory_of_the_first():
    args = numbers(16, 16), numbers(16, 16)
    made, = check_compiled(lambda x, w: x @ w + w @ x + x @ x, *args)
    assert planned(made.program).peak == 16 * 16 * 4
    made, = check_compiled(lambda x, w: torch.addmm(x, w, x), *args)      # an input keeps its values
    assert not planned(made.program).reused


def test_results_and_inputs_keep_their_memory():
    def f(x, w):
        y = x @ w
        return y, (y * 2) @ w, x + 1
    x = numbers(8, 8)
    before = x.clone()
    made, = check_compiled(f, x, numbers(8, 8))
    torch.testing.assert_close(x, before)
    given_out = {v.buffer for v in made.program.outputs}
    assert not given_out & set(planned(made.program).reused.values())


def test_what_is_read_elsewhere_is_not_overwritten():
    made, = check_compiled(lambda x, w: ((y := x @ w).flip(0) + y.t()) @ w, numbers(8, 8), numbers(8, 8))
    assert not planned(made.program).reused


def test_memory_is_used_again_when_all_have_read_it():
    def f(x, w):
        for _ in range(4):
            x = (x @ w).softmax(-1)
        return x @ w
    made, = check_compiled(f, numbers(16, 16), numbers(16, 16))
    plan = planned(made.program)
    assert plan.reused and plan.peak <= 3 * 16 * 16 * 4


@pytest.mark.parametrize(("load", "holds"), [("x[4*p0 + p1]", True), ("x[p0 + 4*p1]", False), ("x[4*p0]", False)])
def test_in_place_means_at_the_same_place(load, holds):
    kernel = ir.parse(f"""kernel k over p0:4 p1:4
        buffer x f32 16
        buffer y f32 16
        v0:f32 = load {load}
        v1:f32 = exp v0
        store y[4*p0 + p1] v1""")
    assert is_in_place("x", "y", kernel) == holds


def test_an_enlarged_image_is_computed_where_it_is_joined_to_another():
    def f(x, y):
        return torch.cat([F.interpolate(x, scale_factor=2, mode="bilinear"), y], 1)
    made, = check_compiled(f, numbers(2, 6, 4, 4), numbers(2, 3, 8, 8))
    assert made.cost.kernels == 1


def test_a_grid_of_places_is_computed_where_it_is_read():
    """Its 42 statements read no memory, and each place of the result would read three of its elements."""
    corners = numbers(2, 2, 3)
    made = check_compiled(lambda t: F.affine_grid(t, (2, 1, 8, 9), align_corners=False), corners)
    assert counts(made) == [(1, 0)]
