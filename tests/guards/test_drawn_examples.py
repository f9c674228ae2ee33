"""Examples that are drawn at each call, as from a replay buffer: some share a part, others at each call. What works on
them is Python's after a few captures; what follows is one graph.
"""
import collections
import random

import numpy as np
import pytest
import torch

import sot
from sot.support.errors import Reason


class Replay:
    """Keeps transitions. What one ends with is what the next begins with."""

    def __init__(self, make):
        self.kept = collections.deque(maxlen=60)
        state = make()
        for _ in range(60):
            following = make()
            self.kept.append((state, following))
            state = following

    def arrays(self, count):
        states, following = zip(*random.sample(self.kept, count), strict=True)
        return torch.tensor(np.stack(states)), torch.tensor(np.stack(following))

    def tensors(self, count):
        states, following = zip(*random.sample(self.kept, count), strict=True)
        return torch.stack(states), torch.stack(following)


def of_arrays():
    replay = Replay(lambda: np.random.randn(4).astype(np.float32))

    def learn(w):
        states, following = replay.arrays(16)
        return ((following - states) @ w).relu().sum()
    return learn


def of_tensors():
    replay = Replay(lambda: torch.randn(4))

    def learn(w):
        states, following = replay.tensors(16)
        return ((following - states) @ w).relu().sum()
    return learn


def in_a_loop():
    replay = Replay(lambda: torch.randn(4))

    def learn(w):
        total = w.sum()
        for _ in range(3):
            states, following = replay.tensors(16)
            total = total + ((following - states) @ w).relu().sum()
        return total
    return learn


def without_a_callee():
    replay = Replay(lambda: torch.randn(4))

    def learn(w):
        states, following = zip(*random.sample(replay.kept, 16), strict=True)
        return ((torch.stack(following) - torch.stack(states)) @ w).relu().sum()
    return learn


@pytest.mark.parametrize("make", [of_arrays, of_tensors, in_a_loop, without_a_callee])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_captures_end_after_a_few_calls(backend, make):
    learn = make()
    translated = sot.to_static(learn, backend=backend)
    counts = []
    for _ in range(14):
        w, state = torch.randn(4), random.getstate()
        expected, after = learn(w), random.getstate()
        random.setstate(state)
        assert torch.equal(translated(w), expected)
        assert random.getstate() == after
        counts.append(len(translated.captures))
    assert counts[7] == counts[-1] <= 16, counts


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_follows_the_call_is_one_graph(backend):
    translated = sot.to_static(of_arrays(), backend=backend)
    for _ in range(10):
        translated(torch.randn(4))
    last = [capture for capture in translated.captures if capture.name.endswith("learn")][-1]
    assert last.stopped is None
    assert last.graph.operations >= 4
    assert Reason.RECOMPILE_LIMIT not in [c.stopped.reason for c in translated.captures if c.stopped]


def test_a_part_that_is_one_of_two_things_is_captured_for_both():
    pool = [torch.ones(3), torch.ones(3) * 2]

    def draw(same):
        i = random.randrange(2)
        return [pool[i], pool[i if same else 1 - i]]

    def f(x, same):
        first, second = draw(same)
        first = first + x
        return first * second, first

    translated = sot.to_static(f, backend="eager")
    for i in range(12):
        x, state = torch.randn(3), random.getstate()
        expected = f(x, i % 2 == 0)
        random.setstate(state)
        assert all(map(torch.equal, translated(x, i % 2 == 0), expected))
    assert all(c.stopped is None or c.stopped.reason is not Reason.OPAQUE_VALUE for c in translated.captures)
