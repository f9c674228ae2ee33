"""Numbers in a file: terms that torch computes of symbols, and, for floats that a graph takes as tensors, functions of
which it would make a constant (``math.log(x.shape[1])``), computed with tensors.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from sot.guards.terms import Term


@dataclass(frozen=True)
class Leaf:
    """The start of a term of numbers: ``size`` with an argument's position and a dimension, ``item`` with the name of a
    buffer that contains a number, or ``rounded`` with the term of an integer that is made of floats.
    """

    kind: str
    key: Any


# What torch.export computes of symbols.
OF_FILES = frozenset(("+", "-", "*", "/", "//", "%", "neg", "abs", "min", "max", "int", "float", "math.prod"))
WITH_TENSORS: dict[str, Callable[..., torch.Tensor]] = {
    "+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div, "**": torch.pow, "neg": torch.neg, "abs": torch.abs,
    "min": torch.minimum, "max": torch.maximum, "float": torch.clone, "round": torch.round, "math.ceil": torch.ceil,
    "math.degrees": torch.rad2deg, "math.radians": torch.deg2rad, "math.fabs": torch.abs,
    **{f"math.{name}": getattr(torch, name) for name in (
        "floor", "trunc", "sqrt", "exp", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "atan", "erf",
        "erfc", "asinh", "expm1", "atan2", "copysign", "hypot")}}
ROUNDINGS = {"int": torch.trunc, "round": torch.round, "math.floor": torch.floor, "math.ceil": torch.ceil,
             "math.trunc": torch.trunc}


def is_of_files(term: Term) -> bool:
    """Whether torch.export computes a term from symbols. It fails at a quotient of numbers of buffers."""
    if not isinstance(term, tuple):
        return True
    return term[0] in OF_FILES and all(map(is_of_files, term[1:])) and not (term[0] == "/" and has_items(term))


def has_items(term: Term) -> bool:
    """Whether it is computed with the number of a buffer."""
    return any(map(has_items, term[1:])) if isinstance(term, tuple) else isinstance(term, Leaf) and term.kind == "item"


def is_of_tensors(term: Term) -> bool:
    return is_of_files(term) or term[0] in WITH_TENSORS and all(map(is_of_tensors, term[1:]))


def is_roundable(term: Term) -> bool:
    """Whether tensors make the same integer of a term as Python. A power may be off by one: that of 1000 ** (1 / 3)."""
    return is_of_files(term) or term[0] in WITH_TENSORS and term[0] != "**" and all(map(is_roundable, term[1:]))


def with_tensors(*terms: Term) -> bool:
    """Whether terms must be computed with tensors, and can."""
    return all(map(is_of_tensors, terms)) and not all(map(is_of_files, terms))


def as_tensor(term: Term, number: Callable[[Term], Any]) -> torch.Tensor:
    """A float as a tensor. ``number`` computes the parts that torch.export computes from symbols."""
    if is_of_files(term):
        return torch.full((), number(term), dtype=torch.float64)
    return WITH_TENSORS[term[0]](*(as_tensor(part, number) for part in term[1:]))


def rounded(term: Term, number: Callable[[Term], Any]) -> Any:
    """An integer that is made of floats. torch.export reads it off a tensor, and so takes any: of symbols it would
    make a constant, or write what cannot be read back.
    """
    return ROUNDINGS[term[0]](as_tensor(term[1], number)).to(torch.int64).item()
