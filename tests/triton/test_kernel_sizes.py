"""Sizes that vary: right for each, and one kernel for all of them."""
from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels

import sot
from sot.backends.triton.source.blocks import chosen
from sot.backends.triton.source.kernel_source import source, without_comments
from sot.backends.triton.source.sizes import Sizes
from sot.graph.kernels import ir


def kernels_of(made: Kernels) -> set[str]:
    """The different kernels of all modules that take a size, with the block sizes that they are compiled with."""
    found = set()
    for one in made.made:
        texts = re.findall(r"@triton.jit\n.*?(?=\n\n)", one.source, re.DOTALL)
        starts = dict(re.findall(r"Launcher\((\w+), \{.*?\}, (\{.*?\})", one.source))
        for text in texts:
            name = re.search(r"def (\w+)\(", text)[1]
            found.add(f"{one.title} {starts[name]} {without_comments(text)}")
    return {text for text in found if re.search(r"\bn0\b", text)}


def run_with(f, *calls, dynamic=None):
    """The kernels made for calls with different arguments, each of which gives what eager gives, gradients too."""
    made = Kernels()
    run = sot.to_static(f, backend=made, dynamic=dynamic)
    for args in calls:
        wanted = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
        torch.testing.assert_close(run(*args), f(*args))
        if wanted:
            got, expected = (torch.autograd.grad(g(*args).sin().sum(), wanted) for g in (run, f))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
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
def test_another_batch_needs_no_other_kernel(name):
    few = kernels_of(run_with(PROGRAMS[name], *rows(17, 18, 19, grad=True)))
    many = kernels_of(run_with(PROGRAMS[name], *rows(17, 18, 19, 23, 31, grad=True)))
    assert few and few == many


def test_two_sizes_that_vary():
    def f(x):
        return (x.unsqueeze(1) + x.unsqueeze(2)).softmax(-1).sum(1)
    calls = [(torch.randn(a, b, requires_grad=True),) for a, b in ((3, 9), (5, 11), (7, 13), (11, 15), (9, 9))]
    assert len(kernels_of(run_with(f, *calls, dynamic=True))) == len(kernels_of(run_with(f, *calls[:2], dynamic=True)))


def test_a_reduction_over_a_larger_power_of_two_has_larger_blocks_and_the_same_source():
    def f(x):
        return x.softmax(0)
    made = kernels_of(run_with(f, *rows(17, 18, 40, 60)))
    assert len(made) == 2, "up to 32 and up to 64 rows"
    assert len({re.sub(r"\{.*?\}", "", text) for text in made}) == 1


def test_what_16_divides_is_hinted():
    made = run_with(lambda x: x * 2, *rows(17, 19, 32))
    hinted = [re.search(r'multiples=\[(.*?)\]', one.source) for one in made.made]
    assert [h and h[1] for h in hinted] == [None, None, '"n0"']


def test_more_sets_of_sizes_than_are_compiled_run_eagerly(monkeypatch):
    monkeypatch.setattr("sot.backends.triton.compiler.BySize.LIMIT", 2)
    made = run_with(lambda x: x.cos(), *rows(3, 4, 5, 6, 7))
    assert len(made.made) == 3, "one of fixed sizes, two of others"


TEXT = """
kernel k over p0:{rows} p1:{width}
buffer x f32 {size}
buffer y f32 {size}
v0:f32 = load x[{width}*p0 + p1]
v1:f32 = const {scale}
v2:f32 = mul v0 v1
store y[{width}*p0 + p1] v2
"""


def kernel(rows, width, scale):
    return ir.parse(TEXT.format(rows=rows, width=width, size=rows * width, scale=scale))


def test_numbers_that_differ_are_arguments_and_others_literals():
    sizes = Sizes()
    sizes.learn([kernel(5, 8, 0.2)], [kernel(53, 8, 1 / 53)])
    sized = sizes.of(kernel(7, 8, 0.5))
    assert sized.arguments == {"n0": 7, "n1": 0.5}
    text = source(sized.kernel, chosen(sized.kernel), sized.arguments)
    assert "def k(x, y, n0, n1, ROWS: tl.constexpr):" in text
    assert "p_in = p < (n0 * 8)" in text and "v2 = v0 * (n1)" in text and "8*p0 + p1" in text


def test_a_kernel_that_differs_elsewhere_has_no_arguments():
    sizes = Sizes()
    sizes.learn([kernel(5, 8, 0.5)], [kernel(53, 8, 0.5)])
    assert sizes.of(kernel(7, 4, 0.5)).arguments == {}
    assert sizes.of(kernel(7, 8, 0.25)).arguments == {}


def test_numbers_that_happened_to_agree_are_told_apart():
    sizes = Sizes()
    sizes.learn([kernel(5, 5, 0.5)], [kernel(53, 53, 0.5)])
    assert sizes.of(kernel(7, 7, 0.5)).arguments == {"n0": 7}
    assert sizes.of(kernel(7, 9, 0.5)).arguments == {}
