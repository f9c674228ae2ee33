"""Functions of the program that Python calls behind a break, with numbers: a beam search, a parser, a schedule."""
from __future__ import annotations

import math
from collections import defaultdict

import torch
from harness import same
from torch import nn

import sot

NOTHING = -math.inf


def log_add(*values):
    if all(v == NOTHING for v in values):
        return NOTHING
    largest = max(values)
    return largest + math.log(sum(math.exp(v - largest) for v in values))


def decode(x):
    """Prefix search of a CTC decoder, by dynamic programming on Python's numbers."""
    beam = [((), (0.0, NOTHING))]
    for row in x.log_softmax(-1).numpy():
        found = defaultdict(lambda: (NOTHING, NOTHING))
        for symbol, score in enumerate(row):
            for prefix, (blank, other) in beam:
                if symbol == 0:
                    found[prefix] = log_add(found[prefix][0], blank + score, other + score), found[prefix][1]
                elif prefix[-1:] == (symbol,):
                    found[prefix] = found[prefix][0], log_add(found[prefix][1], other + score)
                else:
                    longer = (*prefix, symbol)
                    found[longer] = found[longer][0], log_add(found[longer][1], blank + score, other + score)
        beam = sorted(found.items(), key=lambda item: log_add(*item[1]), reverse=True)[:3]
    return beam[0][0], float(log_add(*beam[0][1]))


def test_a_function_of_numbers_is_left_to_python_after_a_few_captures():
    data = [torch.randn(5, 7, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    translated = sot.to_static(decode, backend="eager")
    assert same([decode(x) for x in data], [translated(x) for x in data]) is None
    of_numbers = [c for c in translated.captures if c.name == "log_add"]
    assert len(of_numbers) <= 8


class Layer(nn.Linear):
    """Its forward has no operation until it is switched on."""
    on = False

    def forward(self, x):
        return super().forward(x) if self.on else x


def test_a_function_that_is_given_a_module_is_captured_after_captures_without_a_graph():
    def scaled(layer, x, by):
        sot.graph_break()
        return layer(x) if by > 100 else x

    layer, x = Layer(3, 3), torch.ones(2, 3)
    translated = sot.to_static(scaled, backend="eager")
    for by in range(20):
        assert translated(layer, x, by) is x
    layer.on = True
    assert torch.equal(translated(layer, x, 101), layer(x))
    assert any(c.graph for c in translated.captures)
