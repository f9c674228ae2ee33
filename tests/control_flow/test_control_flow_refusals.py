"""What control flow on tensors cannot be part of a graph, and what the user is told.

PYTEST_DONT_REWRITE: there are asserts to capture.
"""
from __future__ import annotations

import pytest
import torch
from agreeing import DOWN, UP, refused

import sot
from sot.support.errors import CaptureError


def test_ways_of_different_shapes():
    def f(x):
        if x.sum() > 0:
            y = x[:2]
        else:
            y = x
        return y + 1
    refused(f, UP, naming="`y` is a tensor of shape (2,) on one side and of shape (3,) on the other", line=1)


def test_ways_of_different_types():
    def f(x):
        if x.sum() > 0:
            return x
        return None
    refused(f, DOWN, naming="the value returned is a tensor on one side and None on the other", line=1)


def test_ways_of_different_dtypes():
    def f(x):
        y = x * 2 if x.sum() > 0 else x.long()
        return y
    refused(f, UP, naming="dtype torch.float32", line=1)


def test_a_variable_of_one_way():
    def f(x):
        if x.sum() > 0:
            y = x
        x = x + 1
        return y + x
    refused(f, UP, naming="`y` is set on one side only", line=1)


def test_output_on_a_way():
    def f(x):
        if x.sum() > 0:
            print("above")
        return x + 1
    refused(f, UP, naming="writes output", line=2)


def test_a_mutation_of_what_was_there_before():
    class Counts:
        seen = 0
    counts = Counts()

    def f(x):
        if x.sum() > 0:
            counts.seen = 1
        return x + 1
    refused(f, UP, naming="which was there before the branch", line=2)


def test_a_change_in_place():
    def f(x):
        y = x + 1
        if x.sum() > 0:
            y.add_(1)
        return y
    refused(f, UP, naming="changes a tensor from outside the branch in place", line=3)


def test_a_change_of_what_a_way_passes_on():
    def f(x, y):
        z = x if x.sum() > 0 else y
        z.add_(1)
        return x, y
    refused(f, UP, DOWN, naming="changes a tensor that one side only passes on", line=1)


def test_a_change_of_what_a_way_has_passed_on():
    """The tensor is no operand of the branch: nothing in it reads the tensor."""
    def f(x):
        y = x * 1
        z = y if x.sum() > 0 else x + 1
        y.add_(1)
        return z
    refused(f, UP, naming="changes a tensor that one side only passes on", line=2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("changed", ["first", "last"])
def test_a_change_of_what_a_loop_without_an_iteration_passes_on(changed, backend):
    def f(x):
        first = last = x * 1
        while last.sum() < 8:
            last = last + 1
        (first if changed == "first" else last).add_(1)
        return first, last
    static = sot.to_static(f, control_flow="graph", backend=backend)
    for x in (UP, UP + 10, DOWN, UP + 10):
        assert all(map(torch.equal, static(x), f(x)))


def test_a_break_on_a_way():
    def f(x):
        if x.sum() > 0:
            y = x + x.max().item()
        else:
            y = x
        return y
    refused(f, UP, naming="a tensor's value is needed as a Python number", line=2)


def test_a_loop_whose_shapes_change():
    def f(x):
        while x.sum() < 20:
            x = torch.cat([x, x])
        return x
    refused(f, UP, naming="`x` is a tensor of shape (3,) on one side and of shape (6,) on the other", line=1)


def test_full_graph_names_any_break():
    def f(x):
        y = x + 1
        sot.graph_break()
        return y
    with pytest.raises(CaptureError, match=r"graph_break.*test_control_flow_refusals.py:\d+ in f"):
        sot.to_static(f, full_graph=True)(UP)


def test_without_the_option_it_breaks_and_the_report_names_it():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1
    translated = sot.to_static(f)
    assert translated(UP).equal(UP + 1)
    stopped = translated.captures[0].stopped
    assert stopped.reason.name == "TENSOR_TRUTH" and 'control_flow="graph"' in stopped.hint


def test_only_two_values():
    with pytest.raises(ValueError, match="'break' or 'graph'"):
        sot.to_static(lambda x: x, control_flow="cond")


ITSELF: list = [1]
ITSELF.append(ITSELF)
TABLE: dict = {}
TABLE["self"] = TABLE


def tripled(x):
    return x * 3


def test_a_branch_in_the_graph_beside_globals_that_contain_themselves():
    """What a side of a branch has made is looked for in all that can be reached, also by the globals of functions."""
    def fn(x):
        made = [tripled, x]
        if x.sum() > 0:
            made.append({"key": [x]})
            y = tripled(x) + 1
        else:
            y = x - 1
        if x.max() > 100:
            raise ValueError("too large")
        return y, len(made)
    translated = sot.to_static(fn, backend="eager", control_flow="graph")
    for value in (1.0, -1.0, 2.0):
        x = torch.full((2,), value)
        assert torch.equal(translated(x)[0], fn(x)[0]) and translated(x)[1] == fn(x)[1]
