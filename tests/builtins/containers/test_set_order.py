"""Sets have CPython's order, which depends on how they came to be, and they grow when CPython's do."""
from __future__ import annotations

import copy
import random
import re

import pytest
import torch
from harness import check

import sot

X = torch.arange(4.0)
KEPT = set(range(0, 72, 8))


def displays(x):
    made = {17, 1, 9, 33, 25, 41}
    made.add(64)
    return x + 1, [*{16, 1, 2, 3, 4}], [*made], [k for k in {i * 16 for i in range(7)}], [*{*[33, 1, 17], *(9, 25)}]


def made_of_others(x):
    table = dict.fromkeys([16, 1, 2, 3, 4, 33])
    return x + 1, [*set(table)], [*set(table.keys())], [*set({16, 1, 33, 17, 49})], [*frozenset([33, 1, 65, 97, 2])]


def after_removals(x):
    made = {0, 8, 16, 24, 32, 40}
    made.discard(0)
    again = made.copy()
    made.remove(16)
    return x + made.pop(), [*made], [*again], [*set(again)], [*copy.copy(again)], [*copy.deepcopy(again)]


def views(x):
    a, b = dict.fromkeys([16, 1, 33]), {2: 0, 49: 1, 65: 2, 81: 3}
    return x + 1, [*(a.keys() | b.keys())], [*(a.keys() - {1})], [*(a.keys() ^ b.keys())], [*(b.items() | {(2, 5)})]


def returned(x):
    made = {8, 16, 0, 1, 24, 32} - {1, 24}
    made |= {40, 48}
    sot.graph_break()
    made.add(72)
    return x + 1, [*made], made


def kept(x):
    return x + 1, [*(KEPT | {7})], [*(KEPT - {8, 16})], [*(frozenset(KEPT) & {16, 8, 64})]


@pytest.mark.parametrize("fn", [displays, made_of_others, after_removals, views, returned, kept],
                         ids=lambda fn: fn.__name__)
def test_members_have_the_order_of_cpython(fn):
    check(fn, X, breaks=1 if fn is returned else 0)


@pytest.mark.parametrize("make", [lambda: set(range(0, 72, 8)), lambda: {8, 9, 1000, 17}])
def test_a_set_of_the_program_that_is_changed_keeps_its_order_and_size(make):
    def fn(x, numbers):
        numbers.discard(8)
        numbers.add(72)
        numbers |= {80, 1}
        return x + len(numbers)
    ours, pythons = make(), make()
    fn(X, pythons)
    sot.to_static(fn)(X, ours)
    assert ([*ours], ours.__sizeof__()) == ([*pythons], pythons.__sizeof__())


def test_an_equal_set_with_another_table_is_another_case():
    def fn(x, numbers):
        return x + 1, [*(numbers | {7, 40})]
    grown = set(range(0, 400, 8))
    for number in range(32, 400, 8):
        grown.discard(number)
    static = sot.to_static(fn)
    for numbers in ({0, 8, 16, 24}, grown, {0, 8, 16, 24}):
        assert static(X, numbers)[1] == fn(X, numbers)[1]


def test_python_iterates_a_changed_set_that_no_copy_resembles():
    def fn(x, numbers):
        numbers.add(5)
        return x + 1, [*numbers]

    def grown():
        numbers = set(range(0, 400, 8))
        for number in range(32, 400, 8):
            numbers.discard(number)
        return numbers
    static = sot.to_static(fn)
    assert static(X, grown())[1] == fn(X, grown())[1]
    assert "the order of a set that existed before" in str(sot.translation_of(static).captures[0].stopped)


def test_sets_that_are_made_of_each_other_many_times():
    def fn(x, numbers):
        made = {16, 1, 33}
        for number in range(40):
            made = (made | (made - {number})) ^ {8 * number}
        return x + 1, [*made], made
    check(fn, X, {8, 16, 24})


def test_an_order_that_nothing_reads_is_not_guarded():
    def fn(x, numbers):
        numbers.add(5)
        return x + len(numbers)
    static = sot.to_static(fn, backend="eager")
    for numbers in map(set, ([8, 0, 16], [16, 8, 0], [0, 16, 8])):      # each in that order
        expected = set(numbers)
        assert torch.equal(static(X, numbers), fn(X, expected)) and numbers == expected
    assert len(sot.translation_of(static).captures) == 1


STEPS = ("s.add(N)", "s.discard(N)", "s |= T", "s &= T | {N}", "s -= T", "s ^= T", "s = s | T", "s = s - T",
         "s = T - s",
         "s = s ^ T", "s = s & (T | s)", "s = s.copy()", "s = set(s)", "s.update(L, T)", "s = s.union(L)",
         "s = s.difference(L)", "s.difference_update(L)", "s.symmetric_difference_update(L)",
         "seen.append(s.pop() if s else None)", "s = set(dict.fromkeys(s))", "s = set(frozenset(s) | T)", "s.clear()",
         "s = s.intersection([*s][1:])", "seen.append([*s])", "seen.append([*s])", "seen.append([*s])")


def a_program(seed: int) -> str:
    """A function that does things to a set of numbers, some of which share a place of the table."""
    draw = random.Random(seed)

    def numbers() -> str:
        return ", ".join(str(draw.choice([8, 16, 1, 7]) * draw.randrange(12)) for _ in range(draw.randrange(1, 9)))
    values = {"N": lambda: str(8 * draw.randrange(12)), "T": lambda: f"{{{numbers()}}}", "L": lambda: f"[{numbers()}]"}
    lines = [draw.choice(["s = T", "s = given"]), *(draw.choice(STEPS) for _ in range(draw.randrange(3, 12)))]
    body = [re.sub(r"\b[NTL]\b", lambda found: values[found[0]](), line) for line in lines]
    results = "return x + len(s), seen, [*s], s, s.__sizeof__()"
    return "\n    ".join(["def program(x, given):", "seen = []", *body, results])


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_of_sets(seed):
    scope: dict = {}
    exec(a_program(seed), scope)
    program = scope["program"]
    before, after = set(range(0, 56, 8)), set(range(0, 56, 8))
    expected, found = program(X, before), sot.to_static(program)(X, after)
    assert found[1:3] == expected[1:3], a_program(seed)
    for ours, pythons in ((found[3], expected[3]), (after, before)):
        assert ([*ours], ours.__sizeof__()) == ([*pythons], pythons.__sizeof__()), a_program(seed)


class Held:
    def __init__(self, t):
        self.t = t


@pytest.mark.parametrize("made", [
    lambda x: {x + 1, x * 2, x - 1, 8, 16}, lambda x: {Held(x + i) for i in range(5)} | {1, 2},
    lambda x: {(i, x + i) for i in range(4)}, lambda x: {*(lambda: x, lambda: x + 1, lambda: x + 2), 3},
    lambda x: {*x, 7}])
def test_the_order_of_objects_that_hash_by_address(made):
    """It is another one at each call, but one for each set."""
    def f(x):
        members = made(x)
        first = [*members]
        members.discard(8)
        return members, first
    translated = sot.to_static(f, backend="eager")
    for _ in range(8):
        members, first = translated(torch.ones(2))
        assert all(a is b for a, b in zip(members, [m for m in first if type(m) is not int or m != 8], strict=True))
    assert not any(capture.fallback for capture in translated.captures)
