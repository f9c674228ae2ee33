"""A tuple, dict or string of which only the length is read, or elements that it has at each call: two captures serve
all its lengths.
"""
from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from harness import Counter, Programs, same

import sot

X = torch.arange(3.0)
LENGTHS = [2, 3, 4, 5, 6, 7, 8, 1, 9, 0, 2, 3]
tuples, dicts, strings = Programs(), Programs(), Programs()


def captures_of_calls(fn, made, lengths=LENGTHS, backend=None):
    """How many captures there are after calls with containers of these lengths, each of which does what Python does."""
    translated = sot.to_static(fn, backend=backend or Counter())
    for n in lengths:
        mine, its = made(n), made(n)
        assert same(translated(mine, X), fn(its, X)) is None, n
        assert same(mine, its) is None, n
    return len(sot.translation_of(translated).captures)


def a_tuple(n):
    return tuple(k + 0.5 for k in range(n))


def a_dict(n):
    return {f"k{k}": torch.ones(3) * k for k in range(n)}


@tuples
def the_length_of_a_tuple(t, x):
    return x * len(t), t, len(t) + 1


@tuples
def a_length_that_is_compared(t, x):
    return x + 1 if len(t) < 100 else x


@dicts
def the_length_of_a_dict(d, x):
    return x * len(d), len(d.keys()) + len(d.values())


@dicts
def an_item_and_the_length(d, x):
    return d.get("none", x) + len(d)


@strings
def the_length_of_a_string(s, x):
    return x * len(s), s


@strings
def a_message_and_its_length(s, x):
    return x * len(s), f"{s} has {len(s)} characters"


@tuples.each
def test_two_captures_serve_all_lengths_of_a_tuple(fn):
    assert captures_of_calls(fn, a_tuple) == 2


@dicts.each
def test_two_captures_serve_all_lengths_of_a_dict(fn):
    assert captures_of_calls(fn, a_dict) == 2


@strings.each
def test_two_captures_serve_all_lengths_of_a_string(fn):
    assert captures_of_calls(fn, "a".__mul__) == 2


def test_elements_that_are_always_there():
    def fn(t, x):
        return x * t[0] - t[1] + t[-1]
    assert captures_of_calls(fn, a_tuple, range(2, 12)) <= 3     # the first elements differ, too


@pytest.mark.parametrize("made", [a_tuple, a_dict, "a".__mul__])
def test_whether_it_is_empty(made):
    assert captures_of_calls(lambda c, x: x + 1 if c else x - 1, made) == 3


def past_the_end(t, x):
    try:
        return x + t[3]
    except IndexError as e:
        return x, str(e)


def all_elements(t, x):
    return x * len(t) + sum(t[1:]), [*t], t * 2


def compared(t, x):
    return x + 1 if t == (0.5, 1.5, 2.5) else x * len(t)


@pytest.mark.parametrize("fn", [past_the_end, all_elements, compared])
@pytest.mark.filterwarnings("ignore")
def test_what_else_is_done_with_a_tuple_is_right(fn):
    captures_of_calls(fn, a_tuple)


def given_a_key(d, x):
    before = len(d)
    d["new"] = x * before
    return before, len(d)


def emptied(d, x):
    before = len(d)
    d.clear()
    return x * before, len(d), bool(d)


def all_keys(d, x):
    return x * len(d), sorted(d), [*d.values()]


@pytest.mark.parametrize("fn", [given_a_key, emptied, all_keys])
@pytest.mark.filterwarnings("ignore")
def test_what_else_is_done_with_a_dict_is_right(fn):
    captures_of_calls(fn, a_dict)


def test_a_class_with_a_length_of_its_own():
    class Longer(dict):
        def __len__(self):
            return super().__len__() + 100

    class Pair(tuple):
        def __len__(self):
            return 2
    for made in (lambda n: Longer(a_dict(n)), lambda n: Pair(a_tuple(n))):
        captures_of_calls(lambda c, x: x * len(c), made, range(2, 7))


def test_the_parts_after_a_break_do_not_depend_on_the_number_of_parts():
    def fn(n, x):
        parts = x.split(n)
        torch._C._get_tracing_state()
        return parts[0].sum() * 2, len(parts)
    translated = sot.to_static(fn, backend=Counter())
    for n in range(1, 12):
        assert same(translated(n, torch.ones(24)), fn(n, torch.ones(24))) is None
    assert len(sot.translation_of(translated).captures) <= 5


def test_a_backend_that_compiles():
    assert captures_of_calls(the_length_of_a_tuple, a_tuple, backend="aot_eager") == 2


def test_the_reason_is_the_length():
    translated = sot.to_static(lambda t, x: x * len(t))
    for n in (2, 3):
        translated(deepcopy(a_tuple(n)), X)
    assert sot.translation_of(translated).captures[1].recompiled_because == ["expected len(t) == 2, got 3"]
