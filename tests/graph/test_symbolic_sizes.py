"""Sizes that vary: arithmetic is Python's for all values; a comparison holds for all values, or is an assumption."""
from __future__ import annotations

import random

import pytest

from sot.graph.kernels import index as ix
from sot.graph.kernels.sizes import Facts, Size, assuming, divided, evaluated, surely_less, symbol, typical

S, T = symbol("s0"), symbol("s1")
AXES = frozenset(("s0", "s1"))


def made(random):
    """A random expression, and what Python makes of it."""
    value, text = (S, "s0") if random.random() < 0.5 else (T, "s1")
    for _ in range(random.randint(1, 5)):
        other, name = random.choice([(S, "s0"), (T, "s1"), *((n, str(n)) for n in (1, 2, 3, 8, 16))])
        op = random.choice("+-**/%")
        value = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a // b,
                 "%": lambda a, b: a % b}[op](value, other)
        text = f"({text} {op.replace('/', '//')} {name})"
    return value, text


@pytest.mark.parametrize("seed", range(100))
def test_arithmetic_is_pythons(seed):
    chosen = random.Random(seed)
    value, text = made(chosen)
    for _ in range(20):
        values = {"s0": chosen.randint(2, 40), "s1": chosen.randint(2, 40)}
        assert evaluated(value, values) == eval(text, values) == eval(str(value), dict(values))


@pytest.mark.parametrize("seed", range(100))
def test_what_is_decided_without_an_assumption_holds_for_all_values(seed):
    chosen = random.Random(seed)
    (a, _), (b, _) = made(chosen), made(chosen)
    facts = Facts({"s0": 9, "s1": 16}, AXES)
    with assuming(facts):
        decided, surely = a < b, surely_less(a, b)
    assert not surely or decided
    for _ in range(50):
        values = {"s0": chosen.randint(2, 40), "s1": chosen.randint(2, 40)}
        holds = evaluated(a, values) < evaluated(b, values)
        assumed = all((evaluated(n, values) > 0) == positive for n, positive in facts.assumed.items())
        assert holds == decided or not assumed


def test_equal_sums_are_equal_and_no_size_is_a_constant():
    assert (S + T) * 2 == T + S + T + S and hash(S + T) == hash(T + S)
    assert S - S == 0 and S * 0 == 0 and type(S + 1 - S) is int
    assert S != 9 and S not in (0, 1, 9)


def test_what_is_divided_without_a_rest():
    assert [divided(8 * S * T, n) for n in (4, S, 8 * T, 16)] == [2 * S * T, 8 * T, S, None]
    assert divided(S + 1, S + 1) == 1 and divided(8, S) is None and (8 * S) % S == 0


def test_an_unproven_comparison_is_an_assumption():
    facts = Facts({"s0": 9, "s1": 16}, AXES)
    with assuming(facts):
        assert S > 1 and 8 * S > S and S * T >= T and facts.assumed == {}
        assert S < T and S < 100 and typical(S * T) == 144
        assert not surely_less(S, 50) and surely_less(S, 100)
    assert facts.assumed == {T - S: True, 100 - S: True}


def test_the_number_itself_is_not_given_out():
    for use in (int, range, lambda n: [0][n], lambda n: n + 0.5, lambda n: [0] * n):
        with pytest.raises(TypeError):
            use(S)
    assert isinstance(S, Size)


def test_positions_are_simplified_for_all_sizes():
    ranges = {"p0": S, "p1": T}
    flat = ix.index("p0") * T + ix.index("p1")
    with assuming(Facts({"s0": 9, "s1": 16}, AXES)):
        assert ix.floordiv(flat, T, ranges) == ix.index("p0") and ix.mod(flat, T, ranges) == ix.index("p1")
        assert ix.floordiv(flat * 8, T * 8, ranges) == ix.index("p0")
        assert str(ix.floordiv(flat, S, ranges)) == "((s1*p0 + p1) // s0)"
