"""Numbers that differ from call to call, as symbols: which those are, and what a trace assumes about them.

``Variation`` says what may differ: what has differed already, what the user has named, or everything. ``Symbols`` are
those of one trace: it makes fake tensors of symbolic sizes, and turns what torch assumes about symbols into guards.
"""
from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from sot import marks
from sot.guards import RelationGuard
from sot.origin import Arg, Dim, Item, Origin, Stride, TensorPart
from sot.terms import COMPARISONS, FUNCTIONS, INFIX, Term, computed_before, evaluate, is_of_symbols, leaves
from sot.torch_compat import FakeTensor, Layout, RecordingFakeMode

# What stands for a function of numbers where numbers may be symbols; a graph's nodes are made of these.
ON_SYMBOLS = {"int": torch.sym_int, "float": torch.sym_float, "min": torch.sym_min, "max": torch.sym_max,
              "math.sqrt": torch.sym_sqrt, "not": torch.sym_not}


class ShapesMustBeStatic(Exception):
    """The trace cannot be made with symbols: it is made again for this call's sizes and numbers."""


@dataclass(frozen=True)
class Variation:
    """What may differ from call to call in a trace.

    Arguments:
        origins: the sizes, strides and numbers.
        everything: do all sizes and numbers that are reached from the arguments?
        named: for the tensors of an ``input_spec``, by their spelling: per dimension a name, None, or an int if fixed.
        constant: numbers that stay constants all the same.
        specialized: numbers that became constants, and were others at the next call. Then a loop over a range that may
            differ stays a loop, its body being captured on its own, and a float that is needed as it is is a break.
        marks: do those of ``mark_dynamic`` count?
    """

    origins: frozenset[Origin] = frozenset()
    everything: bool = False
    named: dict[str, tuple] = field(default_factory=dict)
    constant: frozenset[Origin] = frozenset()
    specialized: frozenset[Origin] = frozenset()
    marks: bool = True

    @property
    def loops(self) -> bool:
        return bool(self.specialized)

    def number(self, origin: Origin) -> bool:
        return origin in self.origins or (self.everything and from_arguments(origin) and origin not in self.constant)

    def dims(self, origin: Origin, real: torch.Tensor) -> dict[int, Dim]:
        """The dimensions of a tensor that may differ, and whose size is not 0 or 1, which are special everywhere."""
        if isinstance(real, torch.nn.Parameter):
            return {}
        marked = getattr(real, marks.MARK, ()) if self.marks else ()
        if not (self.origins or self.everything or self.named or marked):
            return {}
        names = self.named.get(str(origin), ()) if self.named else ()
        everything = self.everything and from_arguments(origin)
        found = {}
        for i, size in enumerate(real.shape):
            name = names[i] if i < len(names) else 0
            dim = Dim(origin, i, name if isinstance(name, str) else "")
            if size > 1 and (everything or not isinstance(name, int) or i in marked or dim in self.origins):
                found[i] = dim
        return found

    def strides(self, origin: Origin, real: torch.Tensor) -> dict[int, Stride]:
        found = (Stride(origin, i) for i, stride in enumerate(real.stride()) if stride > 1) if self.origins else ()
        return {s.index: s for s in found if s in self.origins}


STATIC = Variation(marks=False)


def from_arguments(origin: Origin) -> bool:
    """Is it an argument, or an item of one, and not what an object or a module holds?"""
    while isinstance(origin, Item):
        origin = origin.base
    return isinstance(origin, Arg)


class Symbols:
    """The symbols of one trace."""

    def __init__(self, mode: RecordingFakeMode) -> None:
        self.torch: Any = importlib.import_module("sot.torch_symbols")      # a second to import: when needed
        self.mode = mode
        self.env = self.torch.shape_env_of(mode)
        mode.while_running = self.torch.decomposing
        self.origins: dict[Any, Origin] = {}            # of symbols
        self.numbers: dict[Origin, Any] = {}            # SymInts
        self._layouts: dict[int, Any] = {}              # of fake tensors, as they were made
        self._labels: set[str] = set()
        self._noted = 0
        self._made: list[RelationGuard] = []

    # ---- making symbols
    def number(self, origin: Origin, example: int) -> Any:
        """The SymInt of an origin."""
        found = self.numbers.get(origin)
        if found is None:
            is_size = isinstance(origin, TensorPart)
            if isinstance(origin, Dim) and origin.label:        # a name stands for the first that has it
                origin = Dim(origin.base, origin.index) if origin.label in self._labels else origin
                self._labels.add(origin.label)
            symbol, found = self.torch.new_symbol(self.env, f"n{len(self.origins)}", example, is_size)
            self.origins[symbol], self.numbers[origin] = origin, found
            if is_size:
                self._made.append(RelationGuard(origin, ">=", origin, 2))
        return found

    def tensor(self, real: torch.Tensor, origin: Origin, dims: dict[int, Dim],
               free: dict[int, Stride]) -> tuple[FakeTensor, Layout]:
        """A fake tensor with symbols for some dimensions and strides, and its layout.

        The strides of what lies densely in memory follow from the sizes; others stay as they are.
        """
        sizes = [self.number(dims[i], n) if i in dims else n for i, n in enumerate(real.shape)]
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
        """Has the trace changed the sizes or strides of an input in place?"""
        _, before = self._layouts.get(id(fake)) or (fake, self.torch.layout_of(real))
        return not self.torch.is_same(self.torch.layout_of(fake), before)

    # ---- terms and symbolic numbers
    def example(self, number: Any) -> Any:
        """What a symbolic number is in the captured call."""
        return self.torch.example_of(number)

    def term(self, number: Any) -> Term:
        """How a symbolic number is computed from origins. Raises ShapesMustBeStatic."""
        return self._term(self.torch.expression(number))

    def _term(self, expr: Any) -> Term:
        try:
            return self.torch.term_of(expr, self.origins.__getitem__)
        except (self.torch.Untranslatable, KeyError) as e:
            raise ShapesMustBeStatic(f"a size is {expr}: {e}") from None

    def value(self, term: Term, examples: dict[Origin, Any]) -> Any:
        """The symbolic number of a term; None if it is made of floats, or torch has no such function of symbols."""
        if any(type(examples.get(o, 0)) is not int for o in leaves(term)):
            return None
        if not is_of_symbols(term):
            origin = computed_before(term, examples)
            return self.number(origin, examples[origin]) if type(examples[origin]) is int else None
        try:
            return on_symbols(term, lambda origin: self.number(origin, examples[origin]))
        except (TypeError, AttributeError, NotImplementedError):
            return None

    # ---- what is assumed
    def news(self) -> Iterable[RelationGuard]:
        """The guards for what has been assumed since the last time."""
        made, self._made = self._made, []
        yield from made
        found = self.torch.assumptions(self.env, self._noted)
        self._noted += len(found)
        for expr in found:
            yield from relations(self._term(expr))


def on_symbols(term: Term, read: Any) -> Any:
    """``evaluate``, by functions that know symbols."""
    if isinstance(term, tuple):
        return on_numbers(term[0])(*(on_symbols(part, read) for part in term[1:]))
    return evaluate(term, read)


def on_numbers(symbol: str) -> Any:
    """The function of a term's symbol, for numbers that may be symbols."""
    return ON_SYMBOLS.get(symbol) or (INFIX[symbol][0] if symbol in INFIX else FUNCTIONS[symbol])


def relations(term: Term) -> Iterable[RelationGuard]:
    """The guards that say that a term holds."""
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


__all__ = ["STATIC", "ShapesMustBeStatic", "Symbols", "Variation", "on_numbers"]
