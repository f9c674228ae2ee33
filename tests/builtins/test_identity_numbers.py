"""``id`` and ``hash`` of objects that equal only themselves: of these numbers it is known which are equal."""
from __future__ import annotations

import torch
from harness import Plain, Programs, check

import sot

program = Programs()
MODULE, OBJECT, OTHER = torch.nn.Linear(3, 3), Plain(), object()


@program
def equal_to_itself(x):
    return x + (id(OBJECT) == id(OBJECT)) + (id(OBJECT) == id(OTHER)), id(x) == id(x), hash(OTHER) == hash(OTHER)


@program
def the_key_of_a_dict(x):
    return {id(OBJECT): x, id(OTHER): 2}[id(OBJECT)] + 1, {id(MODULE): 1}.get(id(OTHER), 3)


@program
def seen_before(x):
    seen, made = set(), []
    for t in (x, x, x + 1):
        if id(t) in seen:
            continue
        seen.add(id(t))
        made.append(t * 2)
    return made


@program
def a_memo(x):
    memo = {}

    def sine(t):
        if id(t) not in memo:
            memo[id(t)] = t.sin()
        return memo[id(t)]
    return sine(x) + sine(x), len(memo)


@program
def of_lists_that_live(x):
    a, c = [1], [1]
    b = a
    return x + (id(a) == id(b)) + (id(a) == id(c)), id(a) in [id(c)], id(a) in (id(c), id(b))


@program
def of_a_module(x):
    return MODULE(x), {MODULE: 2}[MODULE], hash(MODULE) == object.__hash__(MODULE), id(MODULE) == id(MODULE.weight)


@program
def of_singletons(x):
    return x + (id(None) == id(x.grad)), {id(None): x, id(True): 2}[id(x.dim() == 2)], id(...), id(NotImplemented)


@program
def hashes_in_arithmetic(x):
    return x + hash(MODULE) % 7 + hash(OBJECT) % 5 + hash(None) % 3, {hash((MODULE, 2)): x}, hash(x.grad) == hash(None)


@program
def of_a_tensor(x):
    return {x: 1}[x] + x, hash(x) == id(x)


@program.each
def test_one_graph(fn):
    check(fn, torch.randn(4, 3), graphs=1, breaks=0)


def test_the_number_itself():
    def number(x):
        return x + 1, id(OBJECT), hash(OTHER), f"{id(OBJECT)}"
    check(number, torch.ones(2), graphs=1, breaks=0)


def test_an_object_that_is_gone_may_leave_its_number_to_another():
    def gone(x):
        a = id([x])
        b = id([x])
        return x + 1, isinstance(a == b, bool)
    check(gone, torch.ones(2), again=False)


def test_keys_that_existed_before():
    memo = {}

    def remembered(x):
        if id(MODULE) not in memo:
            memo[id(MODULE)] = x.shape[0]
        return x + memo[id(MODULE)], id(MODULE) in {1, 2}
    check(remembered, torch.ones(2))
    assert memo == {id(MODULE): 2}


def test_an_argument_with_another_hash():
    def hashed(x, a):
        return x + hash(a) % 97
    translated = sot.to_static(hashed, backend="eager")
    for a in [Plain() for _ in range(4)]:
        assert torch.equal(translated(torch.ones(2), a), hashed(torch.ones(2), a))


def test_two_objects_may_be_one_at_the_next_call():
    def same_number(x, a, b):
        return x + (id(a) == id(b)), len({id(a), id(b)})
    a, b = Plain(), Plain()
    translated = sot.to_static(same_number)
    for second in (b, a, b):
        want = same_number(torch.ones(2), a, second)
        got = translated(torch.ones(2), a, second)
        assert got[1] == want[1] and torch.equal(got[0], want[0])
