"""From the symbolic sizes of an ATen graph to ``Size``, and from there to the inputs that they are read from."""
from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch import fx

from sot.graph.kernels.sizes import LEAST, Facts, Number, Real, Size, symbol
from sot.torch_compat.graphs import expression, is_lazy, is_maximum, is_power, is_quotient, is_remainder, storage_of


class NotSymbolic(Exception):
    """A graph has to be lowered for each set of sizes. The message says why."""


@dataclasses.dataclass(frozen=True)
class Like:
    """What a node of the graph returns: a tensor of this shape. It answers as a fake tensor does.

    Arguments:
        memory: is the same for tensors that share memory.
        offset: where the tensor begins in its memory.
    """

    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    memory: int
    offset: Number

    def stride(self) -> tuple[Number, ...]:
        return self.strides

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point


@dataclasses.dataclass(frozen=True)
class Symbols:
    """Where the symbols of a graph are found, which are sizes of axes, and numbers that must be positive."""

    places: Mapping[str, str]
    axes: frozenset[str]
    positive: frozenset[Size]

    def facts(self, values: Mapping[str, int]) -> Facts | None:
        """What is known in a call with these values; None if the graph cannot be lowered for all such calls."""
        if any(values[name] < LEAST for name in self.axes) or any(n.evaluated(values) <= 0 for n in self.positive):
            return None
        return Facts(values, self.axes, dict.fromkeys(self.positive, True))


def with_sizes(graph: fx.GraphModule) -> Symbols:
    """Replace what is recorded about the nodes of a graph, and return its symbols.

    Raises:
        NotSymbolic: an expression has another form, or a symbol is not found.
    """
    found, places, axes, reader = read(graph, {})
    missing = reader.symbols - places.keys()
    if missing and (products := products_of(graph, missing)):
        found, places, axes, reader = read(graph, products)
        missing = reader.symbols - places.keys()
    if missing:
        raise NotSymbolic(f"no input has the size {', '.join(sorted(missing))}")
    for node, value in found.items():
        node.meta["val"] = value
    return Symbols(places, axes, frozenset(reader.positive))


Read = tuple[dict[fx.Node, Any], dict[str, str], frozenset[str], "Reader"]


def read(graph: fx.GraphModule, products: Mapping[Any, Any]) -> Read:
    """The values of nodes, where symbols are found, and those that are sizes of axes."""
    reader = Reader(products)
    found: dict[fx.Node, Any] = {}
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        found[node] = real(node, found) if isinstance(value, torch.SymFloat) else fx.node.map_aggregate(
            value, reader.read)
    places: dict[str, str] = {}
    computed: dict[str, str] = {}
    axes = set[str]()
    for node in graph.graph.find_nodes(op="placeholder"):
        value = found[node]
        for number, place in places_in(node.name, value):
            if not isinstance(number, Size):
                continue
            if is_symbol(number):
                places.setdefault(str(number), place)
                axes |= {str(number)} if isinstance(value, Like) else set()
            elif solved := solution(number, place):
                computed.setdefault(*solved)
    return found, computed | places, frozenset(axes), reader


def products_of(graph: fx.GraphModule, missing: set[str]) -> dict[Any, Any]:
    """Symbols for products of sizes that no input has: a backward graph may have only batch times length."""
    found: dict[Any, Any] = {}
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        for number in value.shape if isinstance(value, torch.Tensor) else ():
            factors = expression(number).args if isinstance(number, torch.SymInt) else ()
            if factors and math.prod(factors) == expression(number) and {*map(str, factors)} <= missing:
                found[expression(number)] = sympy.Symbol("".join(map(str, factors)), integer=True, positive=True)
    return found


OPERATORS = {operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.truediv: "{} / {}",
             operator.pow: "{} ** {}", operator.neg: "-{}", torch.sym_float: "float({})"}


def real(node: fx.Node, found: Mapping[fx.Node, Any]) -> Real:
    """A float that is an input, or that a node computes from sizes."""
    if node.op == "placeholder":
        return Real(node.name)
    text = OPERATORS.get(node.target)       # type: ignore[arg-type]
    if text is None:
        raise NotSymbolic(f"{node.target} computes a float from sizes")
    args = [found[a] if isinstance(a, fx.Node) else f"({a})" for a in node.args]     # (-2) ** n
    return Real(f"({text.format(*map(str, args))})")


def places_in(name: str, value: Any) -> list[tuple[Any, str]]:
    """The numbers of an input, and how each is read."""
    if not isinstance(value, Like):
        return [(value, name)]
    return [(n, f"{name}.shape[{d}]") for d, n in enumerate(value.shape)]


def solution(number: Size, place: str) -> tuple[str, str] | None:
    """The symbol of ``2 * s + 3``, and its value if the number is found at ``place``."""
    *terms, rest = number.terms if number.terms[-1][0] == () else (*number.terms, ((), 0))
    if len(terms) != 1 or len(terms[0][0]) != 1 or not isinstance(terms[0][0][0], str):
        return None
    (factors, coefficient), = terms
    return str(factors[0]), f"({place} - {rest[1]}) // {coefficient}"


def is_symbol(number: Any) -> bool:
    return number == symbol(str(number))


class Reader:
    """Reads what torch has recorded. ``positive`` are the numbers that it takes to be positive, ``symbols`` all that it
    has met. ``products`` of symbols are read as one.
    """

    def __init__(self, products: Mapping[Any, Any]) -> None:
        self.products = products
        self.positive: set[Size] = set()
        self.symbols: set[str] = set()

    def read(self, value: Any) -> Any:
        """A recorded value with sizes in place of torch's symbolic numbers."""
        if isinstance(value, torch.SymInt):
            return self.size(self.joined(expression(value)))
        if isinstance(value, torch.SymBool):
            raise NotSymbolic(f"a {type(value).__name__} is computed")
        if not isinstance(value, torch.Tensor):
            return value
        if is_lazy(value):
            raise NotSymbolic("a tensor is negated where it is read")
        if value.layout is not torch.strided:
            return Like((), (), value.dtype, value.device, value.layout, storage_of(value), 0)
        return Like(tuple(map(self.read, value.shape)), tuple(map(self.read, value.stride())), value.dtype,
                    value.device, value.layout, storage_of(value), self.read(value.storage_offset()))

    def joined(self, expr: Any) -> Any:
        return expr.subs(self.products) if self.products and not isinstance(expr, int) else expr

    def size(self, expr: Any) -> Number:
        """The size that a sympy expression describes."""
        if isinstance(expr, int) or expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if not str(expr).startswith("s"):
                raise NotSymbolic(f"the size {expr} is not known before the graph runs")
            self.symbols.add(str(expr))
            return symbol(str(expr))
        args = [self.size(a) for a in expr.args]
        if isinstance(expr, sympy.Add):
            return sum(args)
        if isinstance(expr, sympy.Mul):
            return math.prod(args)
        if is_power(expr) and isinstance(args[1], int) and args[1] > 0:
            return math.prod(args[:1] * args[1])
        if is_quotient(expr):
            return args[0] // args[1]
        if is_remainder(expr):
            return args[0] % args[1]
        if is_maximum(expr) and len(args) == 2 and isinstance(args[0], int):
            return self.at_least(*args)
        raise NotSymbolic(f"the size {expr} is not a polynomial")

    def at_least(self, least: int, number: Number) -> Number:
        """The larger one. It is assumed to be the number: strides of what is not empty have this form."""
        assumed = number - least + 1
        if isinstance(assumed, int):
            return max(least, number)
        self.positive.add(assumed)
        return number
