"""Floats that vary from call to call and do not fit the type of a tensor: torch refuses them, compiled or not."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs, caught

import sot

program = Programs()


@program
def clamped(x, v):
    return x.clamp(max=v), x.clamp(min=v)


@program
def filled(x, v):
    return x.fill_(v).clone()


@program
def assigned(x, v):
    x[0] = v
    return x


@program
def like(x, v):
    return torch.full_like(x, v), x.new_full((2,), v)


@program
def scaled(x, v):
    return torch.add(x, x, alpha=v), torch.sub(x, x, alpha=v), x * v, x > v


@program
def masked(x, v):
    return x.masked_fill(x > 1, v), torch.where(x > 1, x, v), x.index_fill(0, torch.tensor([0]), v)


@program
def scattered(x, v):
    return x.scatter(0, torch.tensor([0]), v)


@program
def padded(x, v):
    return F.pad(x, (1, 1), value=v), F.threshold(x, v, 2.0)


@program
def lerped(x, v):
    return x.lerp(x + 1, v) if x.is_floating_point() else x + v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@program.each
def test_torch_refuses_what_does_not_fit(fn, dtype):
    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.5, 2.5, 3.5, 1e308, 7e4, float("inf"), float("nan"), 4.5, -1e300):
        mine, theirs = torch.arange(1, 5).to(dtype), torch.arange(1, 5).to(dtype)
        assert str(caught(translated, mine, v)) == str(caught(fn, theirs, v)), v
        assert str(mine) == str(theirs), v


def test_numbers_that_fit_are_one_capture():
    translated = sot.to_static(lambda x, v: x.clamp(max=v) + x.masked_fill(x > 1, v), backend="aot_eager")
    for v in (1.5, 2.5, 3.5, -1e30, 0.5, 1e-40):
        translated(torch.arange(4.0), v)
    assert len(sot.translation_of(translated).captures) == 2
