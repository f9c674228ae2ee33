"""Sizes that vary: right for each, and one module for all of them."""
from __future__ import annotations

import dataclasses
import re

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels

import sot
from sot.backends.triton.source.kernel_source import Blocks, source
from sot.graph.kernels import ir
from sot.graph.kernels.sized import at_values, with_arguments
from sot.graph.kernels.sizes import symbol


def run_with(f, *calls, dynamic=None):
    """The modules made for calls with different arguments, each of which gives what eager gives, gradients too."""
    made = Kernels()
    run = sot.to_static(f, backend=made, dynamic=dynamic)
    for args in calls:
        wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        torch.testing.assert_close(run(*args), f(*args))
        if wanted:
            got, expected = (torch.autograd.grad(g(*args).sin().sum(), wanted) for g in (run, f))
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    sot.reset()
    return made


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def rows(*counts: int, width: int = 8, grad: bool = False):
    return [(torch.randn(n, width, requires_grad=grad),) for n in counts]


PROGRAMS = {
    "map": lambda x: (x * 2).sin() + x.shape[0],
    "normalization": lambda x: F.layer_norm(x, (8,)) * 2,
    "softmax": lambda x: x.softmax(-1),
    "mean over what varies": lambda x: x - x.mean(0),
    "transposed": lambda x: (x.t() + 1).contiguous() * 2,
    "two views": lambda x: torch.cat([x, x * 2]).view(-1, 4, 2).sum(1),
    "matmul": lambda x: F.gelu(x @ x.t()),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_a_graph_is_lowered_once_for_all_batches(name, grad):
    made = run_with(PROGRAMS[name], *rows(17, 18, 19, 20, 24, 32, 48, 64, 96, grad=grad))
    assert [m.title for m in made.made[grad + 1:]] == (["forward", "backward"] if grad else ["inference"]), \
        "after the graphs of the first call, whose sizes are fixed"


@pytest.mark.slow
def test_two_hundred_batches_and_lengths_need_at_most_four_modules():
    def f(x, w):
        y = F.layer_norm(x @ w, (16,))
        return (y @ y.transpose(1, 2)).softmax(-1).sum(1) + x.shape[1]
    random = torch.Generator().manual_seed(0)
    sizes = [[int(n) for n in torch.randint(2, top, (200,), generator=random)] for top in (5, 40)]
    weight = torch.randn(8, 16)
    made = run_with(f, *((torch.randn(b, n, 8), weight) for b, n in zip(*sizes, strict=True)), dynamic=True)
    assert 1 <= len(made.made) <= 4


def test_a_long_reduction_is_split_for_all_sizes(monkeypatch):
    monkeypatch.setattr("sot.graph.kernels.parallel.splitting.split.__defaults__", (64,))
    made = run_with(lambda x: (x * 2).sum() + x.var(0), *rows(97, 131, 96, 20, 3))
    assert len(made.made) <= 3 and made.made[1].cost.kernels > 2


def test_a_longer_reduction_needs_larger_blocks():
    made = run_with(lambda x: x.softmax(0), *rows(17, 18, 40, 150, 170, 60))
    columns = [re.search(r'"COLUMNS": (\d+)', m.source)[1] for m in made.made[1:]]
    assert columns == ["128", "1024"]


def test_positions_of_many_elements_need_64_bits():
    made = run_with(lambda x: x * 2, *rows(17, 18))
    module = {}
    exec(re.search(r"def fits.*?\n\n", made.made[1].source, re.DOTALL)[0], module)
    assert [module["fits"](n) for n in (2, 1000, 2**31 // 8, 1)] == [True, True, False, False]


VIEWING = {
    "every second row": lambda x: x[::2] * 2 + x[1::2].sum(),
    "without the first row": lambda x: x[1:] - x[:-1],
    "the last rows": lambda x: x[-3:].sin(),
    "halves": lambda x: x.view(2, x.shape[0] // 2, 8).sum(0),
    "flipped and rolled": lambda x: x.flip(0) + x.roll(2, 0),
    "padded": lambda x: F.pad(x, (1, 2, 0, 1)).cumsum(0),
    "a triangle": lambda x: (x @ x.t()).tril().sum(1),
    "repeated": lambda x: x.repeat(2, 3) + x.shape[0],
    "rows that are looked up": lambda x: x[torch.arange(x.shape[0] - 1)].exp(),
    "collected rows": lambda x: torch.zeros(4, 8).index_add(0, torch.arange(x.shape[0]) % 4, x),
    "variance": lambda x: x.var(0) + x.std(),
    "where the largest is": lambda x: x.argmax(0) + x.max(1).indices.sum() + x.cumsum(1),
    "parts put together": lambda x: torch.cat([x, x[2:], x[:1]]) * x.numel(),
    "changed in place": lambda x: (x * 1).index_fill_(0, torch.tensor([1]), 3.0).mul_(2),
    "seen by all": lambda x: x.unsqueeze(1).expand(-1, x.shape[0], -1).transpose(0, 1).reshape(-1, 8).mean(1),
}


@pytest.mark.parametrize("name", VIEWING)
@pytest.mark.parametrize("grad", [False, True])
def test_sizes_that_are_computed(name, grad):
    made = run_with(VIEWING[name], *rows(16, 18, 20, 32, 44, 6, grad=grad))
    assert len(made.made) <= 4 * (1 + grad)


@pytest.mark.slow
def test_a_backward_graph_that_has_only_a_product_of_sizes():
    """Batch times length, of a loss over all places, is one symbol there."""
    def f(x, target):
        target = target.view(-1)
        return F.cross_entropy(x.view(-1, 8), target.where(target >= 0, -100), label_smoothing=0.1)
    made = run_with(f, *((torch.randn(n, m, 8, requires_grad=True), torch.arange(n * m).view(n, m) % 9 - 1)
                         for n, m in ((3, 4), (5, 6), (8, 9), (17, 2), (4, 16))), dynamic=True)
    assert [m.title for m in made.made].count("backward") == 1


def test_a_graph_whose_sizes_are_no_polynomials_is_lowered_for_each_set_of_sizes(monkeypatch):
    monkeypatch.setattr("sot.backends.triton.variants.LIMIT", 2)
    monkeypatch.setattr("sot.backends.triton.variants.symbolic_form", lambda graph: 1 / 0)
    made = run_with(lambda x: x.cos(), *rows(3, 4, 5, 6, 7))
    assert len(made.made) == 3, "one of fixed sizes, two of others"


def test_numbers_that_change_are_inputs():
    made = Kernels()
    run = sot.to_static(lambda x, a: x * a + a, backend=made)
    x = torch.randn(5)
    for a in (0.5, 0.25, 3.5, 1.25, -7.5, 2.125):
        torch.testing.assert_close(run(x, a), x * a + a)
    sot.reset()
    assert len(made.made) <= 3


# ---- kernels ----
def test_sizes_of_a_kernel_are_its_arguments():
    n = symbol("s5")
    kernel = mapped_to(ir.parse(TEXT), {5: n, 40: n * 8})
    changed, arguments = with_arguments(kernel)
    assert arguments == {"n0": n}
    text = source(changed, Blocks(16, 0, False, 4), arguments, wide=False)
    assert "def k(x, y, n0, ROWS: tl.constexpr):" in text
    assert "p_in = p < (8*n0)" in text and "8*p0 + p1" in text
    assert str(at_values(kernel, {"s5": 5})) == str(ir.parse(TEXT))


TEXT = """
kernel k over p0:5 p1:8
buffer x f32 40
buffer y f32 40
v0:f32 = load x[8*p0 + p1]
v1:f32 = mul v0 v0
store y[8*p0 + p1] v1
"""


def mapped_to(kernel, sizes):
    return dataclasses.replace(
        kernel, rows=tuple((name, sizes.get(n, n)) for name, n in kernel.rows),
        buffers={name: ir.Memory(m.dtype, sizes.get(m.size, m.size)) for name, m in kernel.buffers.items()})
