"""Tensors made as they were before ``torch.tensor``; one graph each."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from harness import Programs, check, same

import sot

program = Programs()


@program
def of_a_size(x):
    """A size is a shape, though in a graph it is a tuple."""
    return torch.FloatTensor(x.size()).zero_() + x, torch.LongTensor(x.shape).zero_()


@program
def of_sizes(x):
    return torch.FloatTensor(2, x.shape[0]).fill_(1), torch.Tensor(2, 3).zero_(), torch.Tensor(x.shape).zero_() + x


@program
def of_data(x):
    return torch.Tensor([1, 2]), torch.LongTensor(list(x.shape)), torch.DoubleTensor([[1., 2], [3, 4]]) + 1


@program
def of_every_type(x):
    return (torch.HalfTensor([1, 2.5]), torch.BFloat16Tensor([1]), torch.BoolTensor([True, False]),
            torch.BoolTensor([2, 0, -1]), torch.ByteTensor([1]),
            torch.CharTensor([-1]), torch.ShortTensor([3]), torch.IntTensor([4]).to(x))


@program
def of_tensors(x):
    """They share the memory."""
    same = torch.FloatTensor(x), torch.LongTensor(x.long()), torch.Tensor(x.long())
    same[0][0] = 7
    return same, x + 1


@program
def of_nothing(x):
    return torch.Tensor(), torch.LongTensor(), x + 1


@program
def types_as_arguments(x):
    return x.type(torch.DoubleTensor), x.type(dtype=torch.LongTensor), x.type(), isinstance(x, torch.FloatTensor)


@program.each
def test_one_graph(fn):
    check(fn, torch.randn(4, 3), graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8", "bool"])
def test_arrays(dtype, backend):
    def made(x, array):
        tensors = [torch.FloatTensor(array), torch.LongTensor(array), torch.BoolTensor(array), torch.Tensor(array)]
        tensors[0][0] = 5       # which is the memory of an array of this type
        return tensors, torch.FloatTensor(array) + x
    translated = sot.to_static(made, backend=backend)
    for _ in range(2):
        mine, theirs = (np.arange(6).reshape(2, 3).astype(dtype) for _ in range(2))
        x = torch.ones(3)
        assert not same(translated(x, mine), made(x, theirs)) and (mine == theirs).all()
    assert not [str(c.stopped) for c in translated.captures if c.stopped is not None]


def test_the_default_dtype_is_that_of_the_call():
    def made(x):
        return torch.Tensor([1, 2]), torch.Tensor(2).zero_()
    torch.set_default_dtype(torch.float64)
    try:
        check(made, torch.ones(2))
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_python_refuses():
    def refused(x):
        return torch.LongTensor([1.5]) if x.dim() else torch.Tensor("text")
    check(refused, torch.ones(2))
    check(refused, torch.tensor(1.))
