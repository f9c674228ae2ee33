"""Interpolation whose scale factor keeps the size: values and gradients are PyTorch's, with any backend.

In some modes the kernels copy where AOTAutograd's decompositions interpolate.
"""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check_by
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("fresh")
MODES = [("nearest", 1), ("linear", 1), ("nearest", 2), ("bilinear", 2), ("bicubic", 2), ("nearest", 3),
         ("trilinear", 3), ("nearest-exact", 2), ("area", 2)]
programs = Programs()


@programs
def a_module_of_two_factors(x):
    return nn.Upsample(scale_factor=(1.1, 1.05), mode="bicubic")(x).sin()


@programs
def one_size_changes(x):
    return F.interpolate(x, scale_factor=(1.1, 2.0), mode="bilinear")


@programs
def gradient_within(x):
    x = x.detach().requires_grad_()
    F.interpolate(x, scale_factor=1.1, mode="bilinear").square().sum().backward()
    return x.grad


@programs
def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        return F.interpolate((x.flatten(2) @ torch.ones(25, 25)).view_as(x), scale_factor=1.1, mode="bilinear")


@programs
def corners_and_recomputed_factors(x):
    return [F.interpolate(x, scale_factor=1.1, mode="bilinear", **given)
            for given in ({"align_corners": True}, {"recompute_scale_factor": True}, {"antialias": True})]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("mode, dims", MODES)
def test_each_mode(backend, mode, dims):
    def interpolated(x):
        return F.interpolate(x, scale_factor=1.1, mode=mode).square()

    check_by(backend, interpolated, torch.randn(2, 3, *[5] * dims, requires_grad=True), breaks=0, calls=2)


@pytest.mark.slow
@programs.each
def test_programs(fn):
    x = torch.randn(1, 2, 5, 5, requires_grad=True)
    check_by("aot_eager", fn, x, breaks=0, calls=2)
    check_by("aot_eager", fn, x.detach().to(memory_format=torch.channels_last), breaks=0, calls=2)


def test_sizes_that_vary_are_compiled_once_more(fresh):
    import sot

    @sot.to_static(backend="aot_eager")
    def interpolated(x):
        return F.interpolate(x, scale_factor=1.1, mode="bilinear")

    for size in (12, 14, 5, 20, 6):
        x = torch.randn(1, 2, size, size)
        torch.testing.assert_close(interpolated(x), F.interpolate(x, scale_factor=1.1, mode="bilinear"))
    assert len(interpolated.captures) == 2
