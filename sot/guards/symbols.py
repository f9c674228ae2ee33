"""Varying numbers as torch's symbols, and the assumptions of a trace about them.

``Symbols`` are those of one trace. It makes fake tensors with symbolic sizes, and turns torch's assumptions about
symbols into guards. ``Variation`` in ``assumptions.py`` decides which numbers become symbols.
"""
from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from sot.guards.assumptions import Point, RestartCapture
from sot.guards.guards import RelationGuard
from sot.guards.origin import Dim, Origin, Stride, TensorPart
from sot.guards.terms import (
    COMPARISONS,
    FUNCTIONS,
    INFIX,
    Term,
    computed_before,
    evaluate,
    is_of_symbols,
    is_rounded,
    leaves,
)
from sot.torch_compat.fake_tensors import FakeTensor, RecordingFakeMode
from sot.torch_compat.tensors import Layout

# Replaces a function of numbers where numbers may be symbols. Graph nodes are made of these.
ON_SYMBOLS = {"int": torch.sym_int, "float": torch.sym_float, "min": torch.sym_min, "max": torch.sym_max,
              "math.sqrt": torch.sym_sqrt, "not": torch.sym_not, "and": operator.and_, "or": operator.or_}

Limits = tuple[int, int | None]     # the least and the greatest size


class Symbols:
    """The symbols of one trace."""

    def __init__(self, mode: RecordingFakeMode) -> None:
        # The import takes a second, so it is done when needed.
        self.torch: Any = importlib.import_module("sot.torch_compat.symbolic_shapes")
        self.data: Any = importlib.import_module("sot.torch_compat.data_symbols")
        self.mode = mode
        self.env = self.torch.shape_env_of(mode)
        mode.has_symbols = True
        self.origins: dict[Any, Origin] = {}            # of symbols
        self.numbers: dict[Origin, Any] = {}            # SymInts
        self.admits_data = False                        # whether there may be symbols of data
        self.of_data: dict[Any, Any] = {}               # the numbers of the graph that symbols of data stand for
        self.points: dict[Any, frozenset] = {}          # where the program makes symbols of data
        self.made_from: dict[Any, set] = {}             # the symbols of data that a symbol of data follows from
        self.nonempty: dict[tuple[Point, ...], set] = {}    # the sizes that a branch takes for not zero
        self.unchecked: list[Any] = []                  # what torch has assumed about them, without an assertion yet
        self.examples: Any = None                       # a mode for fakes of other sizes, see examples.py
        self._taken: set[int] = set()
        self.unsure: set[int] = set()                   # memory that tensors share or not, depending on data
        self.unsure_layouts: set[int] = set()           # the memory of tensors whose strides follow from data
        self._layouts: dict[int, Any] = {}              # of fake tensors, when they were made
        self._labels: set[str] = set()
        self._noted = 0
        self._made: list[RelationGuard] = []

    # ---- making symbols
    def number(self, origin: Origin, example: int, limits: Limits | None = None) -> Any:
        """The SymInt of an origin. A size is within the limits."""
        found = self.numbers.get(origin)
        if found is None:
            is_size = isinstance(origin, TensorPart)
            if isinstance(origin, Dim) and origin.label:        # a name is that of its first symbol
                origin = Dim(origin.base, origin.index) if origin.label in self._labels else origin
                self._labels.add(origin.label)
            symbol, found = self.torch.new_symbol(self.env, f"n{len(self.origins)}", example, is_size, limits)
            self.origins[symbol], self.numbers[origin] = origin, found
            if is_size:
                least, most = limits or (2, None)
                self._made.append(RelationGuard(origin, ">=", origin, least))
                if most is not None:
                    self._made.append(RelationGuard(origin, "<=", origin, most))
        return found

    def tensor(self, real: torch.Tensor, origin: Origin, dims: dict[int, Dim],
               free: dict[int, Stride], ranges: Mapping[int, Limits]) -> tuple[FakeTensor, Layout]:
        """A fake tensor with symbols for some dimensions and strides, and its layout. ``ranges``: the limits of its
        sizes, where they are known.

        The strides of a dense tensor follow from the sizes. Other strides stay constants.
        """
        sizes = [self.number(dims[i], n, ranges.get(i)) if i in dims else n for i, n in enumerate(real.shape)]
        strides: list[Any] = list(real.stride())
        derived: dict[int, Any] = {}
        for i in sorted(range(real.dim()), key=lambda i: (real.stride(i), -i)):
            value = real.stride(i)
            if i in free:
                strides[i] = self.number(free[i], value)
            elif value in derived:
                strides[i] = derived[value]
                self._made.append(RelationGuard(Stride(origin, i), "==", Stride(origin, i), self.term(strides[i])))
            next_one = sizes[i] * strides[i]
            if isinstance(next_one, torch.SymInt):
                derived[real.shape[i] * value] = next_one
        fake = self.torch.fake_of(self.mode, real, sizes, strides)
        self._layouts[id(fake)] = fake, self.torch.layout_of(fake)
        fixed = [[None if isinstance(n, torch.SymInt) else n for n in numbers] for numbers in (sizes, strides)]
        return fake, (tuple(fixed[0]), tuple(fixed[1]))

    def layout_changed(self, fake: FakeTensor, real: torch.Tensor) -> bool:
        """Whether the trace has changed the sizes or strides of an input in place."""
        _, before = self._layouts.get(id(fake)) or (fake, self.torch.layout_of(real))
        return not self.torch.is_same(self.torch.layout_of(fake), before)

    # ---- terms and symbolic numbers
    def example(self, number: Any) -> Any:
        """The value of a symbolic number in the captured call."""
        return self.torch.example_of(number)

    def term(self, number: Any) -> Term:
        """The term of a symbolic number. Raises RestartCapture if there is none."""
        return self._term(self.torch.expression(number))

    def data_term(self, expr: Any) -> Term:
        """The term of an expression with symbols of data, which are numbers of the graph; None if there is none."""
        try:
            return self.torch.term_of(expr, lambda s: self.of_data[s] if s in self.of_data else self.origins[s])
        except (self.torch.Untranslatable, KeyError):
            return None

    def _term(self, expr: Any) -> Term:
        try:
            return self.torch.term_of(expr, self.origins.__getitem__)
        except (self.torch.Untranslatable, KeyError) as e:
            raise RestartCapture(f"a size is {expr}: {e}", static=True) from None

    def value(self, term: Term, examples: dict[Origin, Any]) -> Any:
        """The symbolic number of a term; None if it is made of floats, or if torch has no such function for
        symbols.
        """
        if any(type(examples.get(o, 0)) is not int for o in leaves(term)):
            return None

        def read(part: Term) -> Any:
            origin = part if isinstance(part, Origin) else computed_before(part, examples)
            return self.number(origin, examples[origin]) if type(examples[origin]) is int else None

        if not is_of_symbols(term):
            return read(term)
        try:
            return on_symbols(term, read)
        except (TypeError, AttributeError, NotImplementedError):
            return None

    # ---- numbers that depend on data
    def admitted(self) -> Any:
        """While this is entered, operations may make symbols for what depends on data."""
        self.admits_data = True
        return self.data.admitted(self.mode)

    def take_assertions(self) -> None:
        """Add what torch has assumed about symbols of data since the last call to ``unchecked``."""
        self.unchecked += self.data.assertions(self.env, self._taken)

    def news(self) -> Iterable[RelationGuard]:
        """The guards for the assumptions made since the last call."""
        made, self._made = self._made, []
        yield from made
        found = self.torch.assumptions(self.env, self._noted)
        self._noted += len(found)
        for expr in found:
            yield from relations(self._term(expr))


def on_symbols(term: Term, read: Any) -> Any:
    """Evaluate a term with functions that support symbols. ``read`` gives origins, and integers made of floats."""
    if is_rounded(term):
        return read(term)
    if isinstance(term, tuple):
        return on_numbers(term[0])(*(on_symbols(part, read) for part in term[1:]))
    return evaluate(term, read)


def on_numbers(symbol: str) -> Any:
    """The function of a term's symbol, for numbers that may be symbols."""
    return ON_SYMBOLS.get(symbol) or (INFIX[symbol][0] if symbol in INFIX else FUNCTIONS[symbol])


def relations(term: Term) -> Iterable[RelationGuard]:
    """The guards that ensure that a term is true."""
    if term is True:
        return
    if isinstance(term, tuple) and term[0] == "and":
        for part in term[1:]:
            yield from relations(part)
        return
    origin = next(leaves(term))
    if isinstance(term, tuple) and term[0] in COMPARISONS:
        yield RelationGuard(origin, *term)
    else:
        yield RelationGuard(origin, "==", term, True)


__all__ = ["Symbols", "on_numbers"]
