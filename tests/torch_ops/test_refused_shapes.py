"""Kernels that refuse an empty tensor or a dimension, which their fakes do not: they raise where the program does."""
from __future__ import annotations

import pytest
import torch
from harness import caught

import sot

REFUSED = {
    "the maximum of nothing": lambda x: x[:0].max(),
    "the minimum along nothing": lambda x: x[:0].min(0),
    "the median of nothing": lambda x: x[:, :0].median(1),
    "the most common of nothing": lambda x: x[:0].mode(0),
    "transforms of nothing": lambda x: torch.fft.fft(x[:0]),
    "sorted along no dimension": lambda x: x.sort(2),
    "sorted stably along no dimension": lambda x: x.sort(dim=-3, stable=True),
    "shares along no dimension": lambda x: x.softmax(2),
    "logarithms of these": lambda x: x.log_softmax(5),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("changed", ["nothing", "a tensor of the call", "an input"])
@pytest.mark.parametrize("name", REFUSED)
def test_it_raises_after_the_changes_before_it(name, changed, backend):
    def program(x, items):
        y = x * 2
        if changed == "a tensor of the call":
            y.data = x.data
        elif changed == "an input":
            x += 1
        items.append(1)
        REFUSED[name](x)        # nothing reads the result
        items.append(2)

    translated = sot.to_static(program, backend=backend)
    for _ in range(3):
        mine, theirs = (torch.ones(2, 3), []), (torch.ones(2, 3), [])
        assert str(caught(translated, *mine)) == str(caught(program, *theirs))
        assert str(mine) == str(theirs)
    if caught(program, torch.ones(2, 3), []) is None:
        pytest.skip("this version of torch takes it")


@pytest.mark.parametrize("size", [0, 1, 4])
def test_what_is_not_refused_is_in_one_graph(size):
    def program(x):
        return x.sort(-1).values, x.softmax(0), x.log_softmax(1), x.argsort(-2), x.sum(0), x.mT.amax(0)

    x = torch.randn(size, 3)
    assert str(sot.to_static(program, full_graph=True)(x)) == str(program(x))
