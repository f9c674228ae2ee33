"""Index arithmetic: what is simplified has the same value everywhere, and prints as Python that is read back."""
from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index

RANGES = {"a": 6, "b": 4, "c": 5}


def everywhere(index: Index) -> np.ndarray:
    grid = np.indices(tuple(RANGES.values()))
    return np.broadcast_to(ix.evaluate(index, dict(zip(RANGES, grid, strict=True))), tuple(RANGES.values()))


numbers = st.integers(0, 24)
sums = st.builds(lambda a, b, c, k: ix.index("a") * a + ix.index("b") * b + ix.index("c") * c + k,
                 numbers, numbers, numbers, numbers)


@given(sums, st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=150, deadline=None)
def test_quotients_and_remainders_keep_their_value(of, by, then):
    quotient, rest = ix.floordiv(of, by, RANGES), ix.mod(of, by, RANGES)
    np.testing.assert_array_equal(everywhere(quotient), everywhere(of) // by)
    np.testing.assert_array_equal(everywhere(rest), everywhere(of) % by)
    np.testing.assert_array_equal(everywhere(ix.mod(quotient, then, RANGES)), everywhere(of) // by % then)


@given(sums, st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_an_index_is_read_back_from_its_text(of, by):
    for index in (of, ix.floordiv(of, by, RANGES), ix.mod(of, by, RANGES) * 3 + 1):
        assert ix.parse(str(index)) == index


@given(sums, st.integers(1, 30), st.integers(1, 30), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_remainder_and_its_quotient_are_the_whole(of, by, then, factor):
    whole = ix.floordiv(of, by, RANGES)
    for one, n in ((of, by), (whole, then)):
        apart = ix.mod(one, n, RANGES) * factor + 1 + ix.floordiv(one, n, RANGES) * (n * factor)
        assert apart == one * factor + 1


@given(sums, st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_bounds_contain_every_value(of, by):
    for index in (of, ix.floordiv(of, by, RANGES), ix.mod(of, by, RANGES)):
        low, high = ix.bounds(index, RANGES)
        assert low <= everywhere(index).min() and everywhere(index).max() <= high


@pytest.mark.parametrize(("text", "by", "quotient", "rest"), [
    ("4*a + b", 4, "a", "b"),
    ("20*a + 5*b + c", 5, "4*a + b", "c"),
    ("20*a + 5*b + c", 20, "a", "5*b + c"),
    ("b + 3", 4, "(b + 3) // 4", "(b + 3) % 4"),
    ("b", 4, "0", "b"),
])
def test_what_is_known_to_fit_needs_no_division(text, by, quotient, rest):
    of = ix.parse(text)
    assert ix.floordiv(of, by, RANGES) == ix.parse(quotient)
    assert ix.mod(of, by, RANGES) == ix.parse(rest)


def test_a_flat_position_becomes_axes_again():
    flat = ix.parse("20*a + 5*b + c")
    assert ix.unravel(flat, (6, 4, 5), RANGES) == tuple(map(ix.index, "abc"))
    split = ix.unravel(flat, (3, 2, 20), RANGES)
    for values in itertools.product(range(6), range(4), range(5)):
        at = dict(zip("abc", values, strict=True))
        assert tuple(ix.evaluate(s, at) for s in split) == np.unravel_index(ix.evaluate(flat, at), (3, 2, 20))


def test_substitution_simplifies_in_the_new_ranges():
    of = ix.mod(ix.index("x"), 4, {})
    assert ix.substitute(of, {"x": ix.parse("4*a + b")}, RANGES) == ix.index("b")
