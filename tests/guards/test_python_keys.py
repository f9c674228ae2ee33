"""Keys and members whose ``__hash__`` and ``__eq__`` are Python code: probed as a real dict probes them."""
import collections
import dataclasses

import pytest
import torch
from harness import Counter, Programs, check, same
from torch import nn

import sot
from sot.guards.origin import Arg, Item

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


class Point:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return isinstance(other, Point) and (self.a, self.b) == (other.a, other.b)

    def __hash__(self):
        return hash((self.a, self.b))

    def __repr__(self):
        return f"Point({self.a}, {self.b})"


class Collides(Point):
    def __hash__(self):
        return 7

    def __eq__(self, other):
        return all(p == q for p, q in zip((self.a, self.b), (other.a, other.b)))


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    n: int = 0


@program
def found_by_an_equal_key(x):
    table = {Point(1, 2): x * 2}
    table[Point(1, 2)] = x * 3
    table[Point(3, 4)] = x
    return table[Point(1, 2)], len(table), Point(5, 6) in table, table.get(Point(3, 4)), list(map(repr, table))


@program
def what_collides_is_compared(x):
    table = {}
    for i in range(4):
        table[Collides(i % 3, 0)] = x + i
    table.pop(Collides(1, 0))
    return table, [k.a for k in table]


@program
def members(x):
    made = {Point(1, 2), Point(1, 2), Point(3, 4)}
    made.discard(Point(3, 4))
    made.add(Point(8, 9))
    return x * len(made), sorted(p.a for p in made), Point(8, 9) in made


@program
def frozen_dataclasses(x):
    table = {Frozen("a"): x, Frozen("b", 2): x * 2}
    return table[Frozen("b", 2)], table, {Frozen("a"), Frozen("a")}


@program
def within_tuples(x):
    table = {(Point(1, 2), "k"): x * 2}
    return table[Point(1, 2), "k"]


@program
def counted(x):
    counts = {}
    for p in (Point(0, 0), Point(1, 0), Point(0, 0)):
        counts[p] = counts.get(p, 0) + 1
    return x * max(counts.values()), {repr(k): v for k, v in counts.items()}


def test_a_hash_with_effects_is_left_to_python():
    class Counts:
        asked = 0

        def __hash__(self):
            Counts.asked += 1
            return 1

    def fn(x):
        Counts.asked = 0
        table = {Counts(): x * 2}
        return list(table.values()), Counts.asked
    check(fn, X, again=False)


def test_a_key_that_is_changed_later_stays_where_it_was():
    def fn(x):
        key = Point(1, 2)
        table = {key: x * 2}
        key.a = 5
        return key in table, Point(1, 2) in table, Point(5, 2) in table, len(table)
    check(fn, X)


def test_a_changed_key_that_leaves_is_stored_under_its_old_hash():
    def fn(x):
        key = Point(1, 2)
        table = {key: x * 2}
        key.a = 5
        return table, key in table
    check(fn, X)


def test_a_dict_that_existed_before_is_asked_by_python():
    def fn(x, table):
        return x * table[Point(1, 2)], Point(3, 4) in table
    check(fn, X, {Point(1, 2): 3})


def test_an_unhashable_object_raises():
    class Plain:
        def __eq__(self, other):
            return True

    def fn(x):
        try:
            return {Plain(): x}
        except TypeError as e:
            return str(e), x + 1
    check(fn, X, graphs=1, breaks=0)


def test_asking_for_a_key_of_another_call_adds_none():
    """The keys of the first call's dict are asked of the second's, whose ``__missing__`` would add them."""
    def total(found):
        return sum(value["x"] for value in found.values())
    translated = sot.to_static(total, backend="eager")
    for _ in range(3):
        found = collections.defaultdict(dict)
        found[torch.ones(2)]["x"], found[torch.ones(2)]["x"] = X, X + 1
        assert not same(translated(found), 2 * X + 1) and len(found) == 2


def test_tensors_are_keys_by_identity():
    def count(x, states, p):
        for key, state in states.items():
            x = x + key * state["n"] * state["f"]
            state["n"] += 1
            state["f"] += 0.5
        return x, p in states, x in states, states[p]["n"]

    def called(fn):
        p, q = torch.ones(4), torch.zeros(4)
        states = {key: {"n": n, "f": 0.5 + n} for n, key in enumerate((p, q))}
        found = []
        for _ in range(4):
            found.append(fn(X, states, p))
            p.add_(1)
        return found, list(states.values())
    backend = Counter()
    assert same(called(sot.to_static(count, backend=backend)), called(count)) is None
    assert len(backend.graphs) == 1


class Thing:
    pass


def made(number):
    def function():
        return number
    return function


KEYS = {"objects": [Thing(), Thing(), Thing()], "tensors": [torch.ones(4), torch.ones(4), torch.ones(4)],
        "functions": [made(1), made(2), made(3)]}


def looked_up(x, key, table, members):
    return x * table.get(key, 9.0), key in table, x * table.get((key, 1), 7.0), key in members


def written(x, key, table, members):
    table[key] = x.sum()
    new = {key: x * 2}
    members.add(key)
    return new[key], list(new)[0] is key, len(table), len(members)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("fn", [looked_up, written], ids=lambda f: f.__name__)
def test_another_object_is_another_key(fn, keys):
    def called(fn):
        table, members = {keys[0]: 1.0, keys[1]: 2.0, (keys[1], 1): 3.0}, {keys[0]}
        return [fn(X, key, table, members) for key in (*keys, keys[0])], [table.get(key) for key in keys]
    assert same(called(sot.to_static(fn, backend=Counter())), called(fn)) is None


def test_the_text_of_a_key_that_is_a_tensor_has_no_elements():
    assert str(Item(Arg(0, "state"), nn.Parameter(torch.ones(3)))) == "state[a Parameter]"
