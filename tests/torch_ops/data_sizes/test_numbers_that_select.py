"""A number that selects one of many elements needs no capture for each of them: Python selects from the third on."""
import random

import pytest
import torch
from harness import Programs, caught, same
from torch import nn

import sot

programs = Programs()
TABLE = [i / 10 for i in range(20)]
TUPLE = tuple(TABLE)
BY_NUMBER = dict(enumerate(TABLE))
torch.manual_seed(0)
EXPERTS = nn.ModuleList(nn.Linear(3, 3) for _ in range(12))
LISTED = list(EXPERTS)
NAMED = nn.ModuleDict({f"expert {i}": expert for i, expert in enumerate(EXPERTS)})
X = torch.linspace(-1, 1, 6).reshape(2, 3)


@programs
def number_of_a_list(x, i):
    return x * TABLE[i]


@programs
def number_of_a_tuple(x, i):
    return (x + 1) * TUPLE[-i - 1]


@programs
def value_of_a_dict(x, i):
    return x * BY_NUMBER[i]


@programs
def value_of_a_dict_or_a_default(x, i):
    return x * BY_NUMBER.get(i * 3, 7.0)


@programs
def module_of_a_list(x, i):
    return LISTED[i](x) + 1


@programs
def module_of_a_module_list(x, i):
    return EXPERTS[i](x) + 1


@programs
def module_by_name(x, i):
    return NAMED[f"expert {i}"](x) + 1


@programs
def place_that_is_written(x, i):
    memory = [0.0] * 16
    memory[i] = x.sum() * 2
    return memory


@pytest.mark.parametrize("given", [int, torch.tensor], ids=["an int", "a tensor"])
@programs.each
def test_few_captures(fn, given):
    def called(x, i):
        return fn(x, int(i))
    translated = sot.to_static(called)
    for i in (*range(12), 3, 0):
        assert same(translated(X, given(i)), called(X, given(i))) is None
    assert len(translated.captures) <= 6


def test_the_break_says_what_needs_the_number():
    translated = sot.to_static(number_of_a_list)
    for i in range(3):
        translated(X, i)
    assert "the value of i (it selects one of 20 elements), which differs" in str(translated.captures[2].stopped)


def test_a_few_elements_have_a_capture_each():
    few = [nn.Linear(3, 3) for _ in range(4)]

    def chosen(x, i):
        return few[int(i)](x)
    translated = sot.to_static(chosen)
    for i in (*range(4), *range(4)):
        assert same(translated(X, torch.tensor(i)), chosen(X, torch.tensor(i))) is None
    assert len(translated.captures) == 4 and not any(c.stopped for c in translated.captures)


@pytest.mark.parametrize("table", [TABLE, BY_NUMBER])
def test_an_element_that_does_not_exist(table):
    def outside(x, i):
        return x * table[i]
    translated = sot.to_static(outside)
    for i in range(5):
        translated(X, i)
    for i in (20, 21, 20):
        with pytest.raises((IndexError, KeyError)) as wanted:
            outside(X, i)
        with pytest.raises(wanted.type) as found:
            translated(X, i)
        assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("part", [
    lambda y, k: y[k], lambda y, k: y[:, k], lambda y, k: y[..., k, 0], lambda y, k: y[None, :, k],
    lambda y, k: y[0, k], lambda y, k: y[k, k], lambda y, k: y[k:, k]])
def test_an_element_of_a_tensor_that_does_not_exist_after_a_change(part, backend):
    def program(x, y, t):
        x.add_(1)
        return part(y, int((x.sum() * 0 + t).item()))
    translated = sot.to_static(program, backend=backend)
    for i in (0, 1, 5, -7, 1, 9):
        results = []
        for call in translated, program:
            x = torch.zeros(2)
            results.append((caught(call, x, torch.arange(8.0).reshape(2, 2, 2), torch.tensor(i)), x))
        assert same(*results) is None, i
    with pytest.raises(Exception) as raised:        # that of a compiler, with torch 2.11
        translated(torch.zeros(2), torch.arange(8.0).reshape(2, 2, 2), torch.tensor(5))
    assert raised.value.__context__ is None or backend != "eager"


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("part", [
    lambda y, i: y[i], lambda y, i: y[int(torch.tensor(i) + 0)], lambda y, i: y[int(torch.tensor(i) / 1)],
    lambda y, i: y[random.randrange(i + 1)], lambda y, i: y.select(0, i), lambda y, i: torch.select(y, dim=0, index=i),
    lambda y, i: y.as_strided((1,), (1,), i)],
    ids=["int", "tensor", "float", "drawn", "select", "function", "place in memory"])
def test_what_is_done_before_it_stays(part, backend):
    net, plain = Counting(), Counting()

    def program(net, x, i):
        return part(net(x), i) + net(x)[0]
    translated = sot.to_static(program, backend=backend)
    for size, i in ((6, 0), (6, 1), (6, 2), (6, 9), (6, 6), (5, 2), (4, 2), (4, 4), (4, 90), (3, 1)):
        results = []
        for call, module in (translated, net), (program, plain):
            random.seed(0)
            results.append((caught(call, module, torch.arange(float(size)), i), module.calls, module.seen.clone(),
                            random.random()))
        assert same(*results) is None, (size, i)


def test_a_ring_of_places():
    class Ring:
        def __init__(self):
            self.places, self.at = [None] * 10, 0

        def push(self, x):
            self.places[self.at] = x * 2
            self.at = (self.at + 1) % len(self.places)

    ring, plain = Ring(), Ring()
    push = sot.to_static(Ring.push)
    for i in range(25):
        push(ring, X + i)
        Ring.push(plain, X + i)
        assert same(ring.places, plain.places) is None and ring.at == plain.at
    assert len(sot.translation_of(push).captures) <= 6


def test_a_whole_graph_has_a_capture_for_each():
    translated = sot.to_static(number_of_a_list, full_graph=True)
    for i in range(5):
        assert torch.equal(translated(X, i), number_of_a_list(X, i))
    assert len(translated.captures) == 5
