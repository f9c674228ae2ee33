"""Operators that reduce many elements to one."""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import FLOATS, NAMES, compute_type
from sot.graph.kernels.program import View
from sot.graph.lowering.driver import Lowering, lowers
from sot.graph.lowering.pointwise import is_float, like, truth, type_of

Dims = Sequence[int] | int | None
Finish = Callable[[Builder, Callable[[list[Index]], str], list[Index], int], str]


def normalized(dims: Dims, rank: int) -> tuple[int, ...]:
    """The reduced axes. None and, as in torch, an empty list mean all axes."""
    if dims is None or dims == [] or dims == ():
        return tuple(range(rank))
    return tuple(sorted(d % max(rank, 1) for d in ([dims] if isinstance(dims, int) else dims))) if rank else ()


def over(low: Lowering, node: fx.Node, given: dict[str, Any], source: View, dims: Dims, body: Callable[..., str],
         item: int | None = None) -> View | None:
    """A kernel that reduces ``source`` over ``dims``; ``body(b, read, inner)`` where ``read()`` is an element."""
    value = node.meta["val"] if item is None else node.meta["val"][item]
    axes_reduced = normalized(dims, len(source.shape))
    sizes = [source.shape[d] for d in axes_reduced]
    keep = len(value.shape) == len(source.shape)

    def whole(b: Builder, rows: list[Index], inner: list[Index]) -> str:
        at, left = [], list(rows)
        for d in range(len(source.shape)):
            if d in axes_reduced:
                at.append(inner[axes_reduced.index(d)])
                if keep:
                    left.pop(0)
            else:
                at.append(left.pop(0))
        return body(b, low.read(b, source, at), inner)
    return low.kernel(node, value, sizes, whole, item, [source.strides[d] for d in axes_reduced])


def reduced(b: Builder, op: str, value: str, sizes: Sequence[int]) -> str:
    return b.reduce(op, value) if math.prod(sizes) > 1 else value


def simple(name: str, op: str) -> None:
    """An operator that is one reduction of its argument in the result's type."""
    @lowers(name)
    def rule(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
        source, kind = given["self"], compute_type(NAMES[node.meta["val"].dtype])
        dims, sizes = dims_of(given, source)

        def body(b: Builder, value: str, inner: list[Index]) -> str:
            if kind == "b1":
                return b.cast(reduced(b, op, as_truth(b, value), sizes), "b1")
            return reduced(b, op, b.cast(value, kind), sizes)
        return over(low, node, given, source, dims, body)


def dims_of(given: dict[str, Any], source: View) -> tuple[Dims, list[int]]:
    dims = given.get("dim")
    return dims, [source.shape[d] for d in normalized(dims, len(source.shape))]


for _name, _op in {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}.items():
    simple(_name, _op)
simple("max.default", "max")
simple("min.default", "min")


def as_truth(b: Builder, value: str) -> str:
    """0 or 1: whether a value of any type is not zero."""
    return b.cast(truth(b, b.cast(value, compute_type(type_of(b, value)))), "i32")


def _quantified(op: str, low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = given["self"]
    dims, sizes = dims_of(given, source)
    return over(low, node, given, source, dims,
                lambda b, value, inner: b.cast(reduced(b, op, as_truth(b, value), sizes), "b1"))


lowers("any")(functools.partial(_quantified, "max"))
lowers("all")(functools.partial(_quantified, "min"))


@lowers("mean")
def mean(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source, kind = given["self"], compute_type(NAMES[node.meta["val"].dtype])
    dims, sizes = dims_of(given, source)
    return over(low, node, given, source, dims, lambda b, value, inner: b.emit(
        "div", reduced(b, "sum", b.cast(value, kind), sizes), b.const(math.prod(sizes), kind)))


# ---- variance: the mean first, then the squares around it -------------------------------------------------
def variance(b: Builder, value: str, inner: list[Index], sizes: Sequence[int], correction: float,
             is_exact: bool) -> tuple[str, str]:
    """torch updates its mean with each element: after an infinite one the next makes it NaN.

    Arguments:
        is_exact: the variance of equal elements is 0, as torch's is, although their sum is rounded.
    """
    count = math.prod(sizes)
    followed = b.emit("lt", b.index(ix.dot(inner, row_major(sizes))), b.const(count - 1, "i64"))
    added = b.emit("where", followed, b.emit("add", value, b.emit("sub", value, value)), value)
    middle = b.emit("div", reduced(b, "sum", added, sizes), like(b, count, value))
    if is_exact and count > 1:
        largest, smallest = b.reduce("max", value), b.reduce("min", value)
        common = b.emit("add", largest, b.emit("sub", largest, largest))
        middle = b.emit("where", b.emit("eq", largest, smallest), common, middle)
    away = b.emit("sub", value, middle)
    squares = reduced(b, "sum", b.emit("mul", away, away), sizes)
    rest = count - (int(correction) if correction == int(correction) else correction)
    return b.emit("div", squares, like(b, max(rest, 0), value)), middle


def _variance(low: Lowering, node: fx.Node, given: dict[str, Any], items: int) -> Any:
    source = given["self"]
    correction = given.get("correction")
    if "unbiased" in given:
        correction = int(given["unbiased"])
    dims, sizes = dims_of(given, source)
    kind = compute_type(NAMES[source.dtype])
    if kind not in FLOATS:
        return None

    def body(which: int) -> Callable[..., str]:
        return lambda b, value, inner: variance(b, b.cast(value, kind), inner, sizes,
                                                1 if correction is None else correction, has_root(node))[which]
    if items == 1:
        return over(low, node, given, source, dims, body(0))
    return [over(low, node, given, source, dims, body(i), i) for i in range(2)]


def has_root(node: fx.Node) -> bool:
    """Whether the root of a variance is taken: the gradient of a root asks whether it is 0."""
    return any(user.target is torch.ops.aten.sqrt.default or user.target is operator.getitem and has_root(user)
               for user in node.users)


lowers("var")(functools.partial(_variance, items=1))
lowers("var_mean")(functools.partial(_variance, items=2))


# ---- positions of extremes: the extreme first, then the smallest position that has it ---------------------
def position(b: Builder, op: str, value: str, inner: list[Index], sizes: Sequence[int]) -> str:
    """The first position of the extreme. A NaN is more extreme than any number."""
    flat = b.index(ix.dot(inner, row_major(sizes)))
    best = reduced(b, op, value, sizes)
    found = b.emit("eq", value, best)
    if is_float(b, value):
        found = b.emit("or", found, b.emit("isnan", value))
    return reduced(b, "min", b.emit("where", found, flat, b.const(math.prod(sizes), "i64")), sizes)


def row_major(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[i + 1:]) for i in range(len(sizes))]


def _argument(op: str, low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = given["self"]
    dims, sizes = dims_of(given, source)
    kind = compute_type(NAMES[source.dtype])
    kind = "i32" if kind == "b1" else kind
    return over(low, node, given, source, dims, lambda b, value, inner: position(
        b, op, b.cast(value, kind), inner, sizes))


lowers("argmax")(functools.partial(_argument, "max"))
lowers("argmin")(functools.partial(_argument, "min"))


def _with_position(op: str, low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    source = given["self"]
    dims, sizes = dims_of(given, source)
    kind = compute_type(NAMES[source.dtype])
    kind = "i32" if kind == "b1" else kind
    if not sizes and source.shape:
        return None
    return [over(low, node, given, source, dims, lambda b, value, inner: reduced(
                b, op, b.cast(value, kind), sizes), 0),
            over(low, node, given, source, dims, lambda b, value, inner: position(
                b, op, b.cast(value, kind), inner, sizes), 1)]


lowers("max.dim")(functools.partial(_with_position, "max"))
lowers("min.dim")(functools.partial(_with_position, "min"))


