"""What is made of all elements up to each: in the IR, in kernels, and fused with what stands around it."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from compiling import check_compiled, kernels, leaves, run_reference

from sot.graph.kernels import ir, reference
from sot.graph.kernels.ir import InvalidKernel

SUMS = """kernel sums over p0:2 | r0:3
    buffer x f32 6
    buffer y f32 6
    v0:f32 = load x[3*p0 + r0]
    v1:f32 = cumsum v0
    v2:f32 = sum v0
    v3:f32 = div v1 v2
    store y[3*p0 + r0] v3"""


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)


def test_a_scan_is_printed_and_read_back_and_has_a_meaning():
    kernel = ir.parse(SUMS)
    ir.verify(kernel)
    assert str(ir.parse(str(kernel))) == str(kernel) and kernel.is_ordered
    memory = {"x": np.arange(1, 7, dtype=np.float32), "y": np.zeros(6, np.float32)}
    reference.run(kernel, memory)
    np.testing.assert_allclose(memory["y"], [1 / 6, 3 / 6, 1, 4 / 15, 9 / 15, 1], rtol=1e-6)


def test_a_scan_goes_along_one_axis():
    text = SUMS.replace("r0:3", "r0:1 r1:3").replace("3*p0 + r0", "3*p0 + r1")
    with pytest.raises(InvalidKernel, match="exactly one reduced axis"):
        ir.verify(ir.parse(text))


PROGRAMS = {
    "last axis": lambda x: x.cumsum(-1),
    "first axis": lambda x: x.cumsum(0),
    "middle axis": lambda x: x.view(3, 4, 7).cumsum(1),
    "product": lambda x: x.cumprod(1),
    "fused": lambda x: (x.exp() * 2).cumsum(1).sin() + x,
    "of a constant": lambda x: torch.ones_like(x).cumsum(1) * x,
    "then a reduction": lambda x: (x.cumsum(1) * 2).amax(1),
    "after a reduction": lambda x: (x - x.mean(1, keepdim=True)).cumsum(1) / x.sum(1, keepdim=True),
    "read transposed": lambda x: (x.cumsum(0).t() + 1).cumsum(0),
    "twice": lambda x: x.cumsum(1).cumsum(1),
    "backwards": lambda x: x.flip(1).cumsum(1).flip(1),
    "whole numbers": lambda x: (x > 0).cumsum(1),
    "one element": lambda x: x[:, :1].cumsum(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    f, x = PROGRAMS[name], numbers(12, 7, grad=name != "whole numbers")
    made = check_compiled(f, x)
    assert made[0].cost.externs == 0
    torch.testing.assert_close(leaves(run_reference(made[0].program, [x.detach()]))[:1], leaves(f(x.detach()))[:1])
    if name in ("fused", "then a reduction", "after a reduction", "twice"):
        assert made[0].cost.kernels == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_types(dtype):
    made, = check_compiled(lambda x: x.cumsum(0), torch.arange(40).reshape(10, 4).to(dtype), rtol=1e-2, atol=1e-2)
    assert made.cost.kernels == 1


def test_special_values_go_on():
    x = torch.tensor([[1.0, float("inf"), 2, -float("inf"), 3, float("nan"), 4]])
    check_compiled(lambda x: (x.cumsum(1), x.cumprod(1)), x)


def test_a_line_that_no_kernel_can_keep_is_left_to_torch():
    made, = check_compiled(lambda x: x.cumsum(0), numbers(10_000), rtol=1e-3, atol=1e-3)
    assert (made.cost.kernels, made.cost.externs) == (0, 1)


def test_the_order_of_a_scan_is_kept_when_kernels_are_fused():
    """A reduction of the same elements in another order is another kernel."""
    def f(x):
        return x.cumsum(0), x.view(-1).sum()
    made, = check_compiled(f, numbers(6, 8))
    assert sum(k.is_ordered for k in kernels(made.program)) == 1
