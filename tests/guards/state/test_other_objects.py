"""A capture that was made for one object is not used for another one that the function can tell from it, even if both
are equal: 1 and True, a range with another end, a getter of another item.
"""
from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import functools
import io
import itertools
import operator
import random
import re
import struct
import types

import numpy as np
import pytest
import torch
from harness import same

import sot

X = torch.tensor([1.0, 2.0])

# What is read of an object ``v``, and makers of such objects.
KINDS = {
    "range": (lambda v: (v.start, v.stop, v.step, len(v), str(v)), [
        lambda: range(0, 3, 2), lambda: range(0, 4, 2), lambda: range(5, 5), lambda: range(0)]),
    "slice": (lambda v: (str(v), [1, 2, 3][v]), [
        lambda: slice(0, 1), lambda: slice(0, 1.0), lambda: slice(0, True), lambda: slice(0, 1, 1)]),
    "frozenset": (lambda v: sorted(map(repr, v)), [
        lambda: frozenset({1}), lambda: frozenset({True}), lambda: frozenset({1.0}), lambda: frozenset({(1,)}),
        lambda: frozenset({(1.0,)})]),
    "set": (lambda v: sorted(map(repr, v)), [
        lambda: {0.0, 2}, lambda: {-0.0, 2}, lambda: {0, 2.0}, lambda: {0, 2}, lambda: {False, 2}, lambda: {0j, 2}]),
    "tuple": (repr, [lambda: (1, (2,)), lambda: (1.0, (2,)), lambda: (1, (True,)), lambda: (1, (-0.0,)), lambda: (
        1, (0.0,))]),
    "number": (lambda v: (repr(v), X * v, 1 if v else 2), [
        lambda: True, lambda: 1, lambda: 1.0, lambda: np.True_, lambda: np.int8(1), lambda: 1 + 0j, lambda: 0,
        lambda: -0.0, lambda: 0.0, lambda: 2**70]),
    "decimal": (str, [lambda: decimal.Decimal("1.0"), lambda: decimal.Decimal("1.00"), lambda: decimal.Decimal(1)]),
    "fraction": (str, [lambda: fractions.Fraction(1), lambda: 1, lambda: fractions.Fraction(1, 2)]),
    "time": (lambda v: (str(v), v.fold), [
        lambda: datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc),
        lambda: datetime.datetime(2020, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        lambda: datetime.datetime(2020, 1, 1, 12, fold=1, tzinfo=datetime.timezone.utc)]),
    "dtype of NumPy": (lambda v: (v.metadata, v.byteorder, v.str), [
        lambda: np.dtype("i4"), lambda: np.dtype("i4", metadata={"unit": 1}), lambda: np.dtype(">i4")]),
    "deque": (lambda v: (v.maxlen, list(v)), [
        lambda: collections.deque([1, 2], 2), lambda: collections.deque([1, 2], 3), lambda: collections.deque([1, 2])]),
    "getter": (lambda v: v([[3, 4], [5]]), [
        lambda: operator.itemgetter(0), lambda: operator.itemgetter(1), lambda: operator.itemgetter(0, 1)]),
    "attribute getter": (lambda v: v(1 + 2j), [
        lambda: operator.attrgetter("real"), lambda: operator.attrgetter("imag"), lambda: operator.attrgetter(
            "imag.real", "real")]),
    "method caller": (lambda v: v("ab"), [
        lambda: operator.methodcaller("upper"), lambda: operator.methodcaller("title"),
        lambda: operator.methodcaller("encode", encoding="ascii"),
        lambda: operator.methodcaller("encode", encoding="utf-16")]),
    "partial": (lambda v: (v(3), v.args, v.keywords), [
        lambda: functools.partial(max, 2), lambda: functools.partial(max, 5), lambda: functools.partial(min, 5),
        lambda: functools.partial(max, 2, key=abs)]),
    "method": (lambda v: (v.__self__, v(2)), [lambda: [1, 2].index, lambda: [2, 2].index, lambda: (1, 2).index]),
    "pattern": (lambda v: (v.pattern, v.flags, v.findall("aA")), [
        lambda: re.compile("a"), lambda: re.compile("a", re.IGNORECASE), lambda: re.compile("A")]),
    "match": (lambda v: (v.group(), v.span(), v.groupdict()), [
        lambda: re.match("(?P<z>a)", "ab"), lambda: re.match("(?P<z>b)", "bb"), lambda: re.search("b", "aab")]),
    "struct": (lambda v: (v.format, v.size), [lambda: struct.Struct("i"), lambda: struct.Struct("q")]),
    "array": (lambda v: (v.typecode, v[0]), [lambda: array.array(code, [1]) for code in "ild"]),
    "view of memory": (lambda v: (v.format, v.nbytes, v.readonly), [
        lambda: memoryview(b"abcd"), lambda: memoryview(bytearray(b"abcd")),
        lambda: memoryview(array.array("i", [1]))]),
    "iterator": (lambda v: [next(v), *v], [
        lambda: iter([1, 2]), lambda: iter((1, 2)), lambda: iter([1.0, 2]), lambda: reversed([2, 1]),
        lambda: iter({1: 0, 2: 0}), lambda: enumerate("ab"), lambda: enumerate("ab", 1), lambda: zip([1, 2], [3, 4]),
        lambda: map(str, [1, 2]), lambda: itertools.islice([1, 2, 3], 2), lambda: itertools.chain([1], [2]),
        lambda: itertools.accumulate([1, 1]), lambda: (n for n in (1, 2))]),
    "endless iterator": (lambda v: (next(v), next(v)), [
        lambda: itertools.count(5), lambda: itertools.count(5, 3), lambda: itertools.count(5.0), lambda:
        itertools.repeat(5), lambda: itertools.cycle([5, 6]), lambda: itertools.cycle([5])]),
    "stream": (lambda v: (v.readline(), v.tell(), v.read(1)), [
        lambda: io.StringIO("a\nb\n"), lambda: io.StringIO("ab\nb\n"), lambda: io.BytesIO(b"a\nb\n")]),
    "source of draws": (lambda v: (v.random(), v.random()), [
        lambda: random.Random(1), lambda: random.Random(2), lambda: np.random.default_rng(1),
        lambda: np.random.RandomState(1)]),
    "generator of torch": (lambda v: (torch.rand(2, generator=v), v.initial_seed()), [
        lambda: torch.Generator().manual_seed(1), lambda: torch.Generator().manual_seed(2)]),
    "mapping": (lambda v: (v["a"], [*v], len(v)), [
        lambda: {"a": 1}, lambda: {"a": True}, lambda: {"a": 1, "b": 2}, lambda: {"b": 2, "a": 1},
        lambda: collections.OrderedDict(a=1), lambda: collections.defaultdict(int, a=1), lambda: types.MappingProxyType(
            {"a": 5}), lambda: collections.ChainMap({"a": 1}, {"b": 2})]),
    "keys": (lambda v: [*map(repr, v)], [lambda: {1: 0}, lambda: {True: 0}, lambda: {1.0: 0}, lambda: {1 + 0j: 0}]),
    "sequence": (lambda v: (v[0], len(v), [*v], 1 in v), [
        lambda: [1, 2], lambda: (1, 2), lambda: [1.0, 2], lambda: [True, 2], lambda: range(1, 3), lambda:
        collections.deque([1, 2]), lambda: collections.UserList([1, 2]), lambda: bytearray([1, 2]), lambda: np.array(
            [1, 2]), lambda: torch.Size([1, 2])]),
    "exception": (lambda v: (str(v), v.args, v.__cause__), [
        lambda: ValueError(1), lambda: ValueError(1.0), lambda: KeyError(1), lambda: ValueError(True)]),
    "index": (lambda v: X[v], [
        lambda: 0, lambda: False, lambda: True, lambda: None, lambda: [0], lambda: (0,), lambda: slice(0, 1),
        lambda: slice(0, True), lambda: slice(0, 1.0), lambda: torch.tensor(0), lambda: torch.tensor(False),
        lambda: np.int64(0)]),
    "tensor": (lambda v: (v.sum(), v.stride(), v.storage_offset(), v.is_leaf, v.requires_grad, v._version), [
        lambda: torch.ones(2), lambda: torch.ones(3)[1:], lambda: torch.ones(4)[::2], lambda: torch.ones(1).expand(2),
        lambda: torch.ones(2, requires_grad=True), lambda: torch.ones(2, requires_grad=True) * 1,
        lambda: torch.ones(2).add_(1), lambda: torch.ones(2, dtype=torch.float64)]),
}


def seen(fn, value):
    torch.manual_seed(0)
    try:
        return fn(X, value)
    except Exception as e:  # noqa: BLE001 - to be compared
        return type(e), str(e)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_another_object_is_told_from_the_captured_one(kind, backend):
    read, makers = KINDS[kind]

    def f(x, v):
        return x + 1, read(v)

    neighbours = [*zip(makers, [*makers[1:], makers[0]], strict=True)]
    for first, other in [*neighbours, *((b, a) for a, b in neighbours)]:
        captured = sot.to_static(types.FunctionType(f.__code__, globals(), None, None, f.__closure__), backend=backend)
        seen(captured, first())
        assert same(seen(f, other()), seen(captured, other())) is None
