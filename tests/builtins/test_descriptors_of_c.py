"""Descriptors that C code makes, called by hand; ``operator.length_hint``; dtypes of NumPy."""
from __future__ import annotations

import operator
import types

import numpy as np
import torch
from harness import Programs, caught, check

program = Programs()


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Hints:
    def __init__(self, hint):
        self.hint = hint

    def __length_hint__(self):
        return self.hint


@program
def slots(x):
    s = Slots(x)
    Slots.b.__set__(s, 3)
    b = Slots.b.__get__(s)
    Slots.b.__delete__(s)
    return Slots.a.__get__(s) * b, hasattr(s, "b"), Slots.a.__get__(None, Slots) is Slots.a


@program
def of_tensors(x):
    return (torch.Tensor.shape.__get__(x), torch.Tensor.dtype.__get__(x), torch.Tensor.T.__get__(x) + 1,
            torch.Tensor.requires_grad.__get__(x), torch.Tensor.data.__get__(x) + 1, torch.Tensor.ndim.__get__(x))


@program
def of_functions(x):
    return types.FunctionType.__code__.__get__(slots).co_argcount + x


@program
def hints(x):
    it = iter([1, 2, 3])
    next(it)
    return (x * operator.length_hint([1, 2]), operator.length_hint(it), operator.length_hint(iter(range(4))),
            operator.length_hint(Hints(7)), operator.length_hint(object(), 2), next(it),
            operator.length_hint(Hints(NotImplemented)), operator.length_hint({"a": 1}))


@program
def hints_that_are_none(x):
    return x + 1, caught(operator.length_hint, Hints(-1)), caught(operator.length_hint, Hints("a")), caught(
        operator.length_hint, 1, "b")


@program
def dtypes_of_numpy(x):
    d = np.dtype("float32")
    return x * d.itemsize, d.kind, np.issubdtype(np.int32, np.integer), x.clamp(np.finfo(np.float32).min, np.iinfo(
        np.int8).max)


@program.each
def test_one_graph(fn):
    check(fn, torch.randn(4, 3), graphs=1, breaks=0)


def test_of_another_class():
    def other(x):
        return x + 1, caught(Slots.a.__get__, x)
    check(other, torch.ones(2))
