"""An exception of a graph that has changed its inputs leaves the function with the traceback of the program."""
from __future__ import annotations

import gc
import sys
import traceback
import weakref

import pytest
import torch
from harness import Programs
from torch import nn
from torch.utils.checkpoint import checkpoint

import sot

program = Programs()
FAR = torch.tensor(20)


def item(x, i):
    return x[i] * 2


@program
def in_a_helper(x, i):
    x.add_(1)
    return item(x, i)


@program
def in_the_function(x, i):
    x.add_(1)
    y = x * 2
    return y[i]


@program
def in_a_lambda_in_a_comprehension(x, i):
    x.add_(1)
    return [(lambda v: item(v, j))(x) for j in (0, i)]


@program
def after_a_break(x, i):
    x.add_(1)
    if x.sum().item() > 3:
        x.mul_(2)
    return item(x, i)


@program
def after_a_break_in_a_helper(x, i):
    def inner(v):
        v.add_(1)
        if v.sum().item() > 3:
            v.mul_(2)
        return item(v, i)
    return inner(x) + 1


@program
def in_a_checkpoint(x, i):
    x.add_(1)
    return checkpoint(lambda v: item(v, i), x * 2, use_reentrant=False)


class Picks(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, i):
        self.count += 1
        return item(x, i)


@program
def in_a_module(x, i):
    x.mul_(2)
    return nn.Sequential(nn.Identity())(x) + Picks()(x, i)


@program
def without_a_kernel(x, i):
    x.add_(1)
    return torch.rand_like(x.long()) + x


class Wraps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, i):
        return item(x, i)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@program
def in_a_function_of_autograd(x, i):
    x.add_(1)
    return Wraps.apply(x * 2, i)


def shown(run):
    """The program's frames of an exception, and all else that a caller sees of it."""
    x = torch.arange(4.0)
    try:
        run(x, FAR)
    except Exception as e:
        frames = [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__][1:]
        return frames, type(e), str(e), type(e.__context__), x.tolist()
    return None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@program.each
def test_frames_are_the_programs(fn, backend):
    want, run = shown(fn), sot.to_static(fn, backend=backend)
    assert want is not None and shown(run) == shown(run) == want


@program.each
def test_frames_are_the_programs_where_everything_is_translated(fn):
    def call(x, i):
        return fn(x, i)
    want = shown(call)
    with sot.enable(backend="eager"):
        got = shown(call), shown(call)
    assert got == (want, want)


def test_the_context_is_what_the_caller_handles():
    outcomes = []
    for run in (in_a_helper, sot.to_static(in_a_helper, backend="eager")):
        for _ in range(2):
            try:
                raise KeyError("handled")
            except KeyError:
                outcomes.append(shown(run))
    assert outcomes[0][3] is KeyError
    assert outcomes == outcomes[:1] * 4


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_nothing_is_kept_alive(backend):
    run = sot.to_static(in_a_helper, backend=backend)
    shown(run)
    gc.collect()
    gc.disable()
    try:
        x = torch.arange(4.0)
        gone = weakref.ref(x)
        with pytest.raises(IndexError):
            run(x, FAR)
        assert sys.exc_info() == (None, None, None)
        del x
        assert gone() is None
    finally:
        gc.enable()
