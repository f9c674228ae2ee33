"""Control flow on tensors: with full_graph or control_flow="graph" it is part of one graph, and as right as Python's.

PYTEST_DONT_REWRITE: there are asserts to capture.
"""
from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from agreeing import DOWN, UP, WAYS, agree
from harness import outcome, same
from torch import nn

import sot


# ---- if -------------------------------------------------------------------------------------------------------------
def test_if_and_else():
    def f(x):
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y + x
    agree(f, *WAYS)


def test_if_without_else():
    def f(x):
        y = x + 1
        if x.sum() > 0:
            y = y * x
        return y
    agree(f, *WAYS)


def test_elif_chain():
    def f(x):
        if x.sum() > 10:
            y = x * 1
        elif x.sum() > 0:
            y = x * 2
        elif x.sum() > -10:
            y = x * 3
        else:
            y = x * 4
        return y
    agree(f, (UP * 9,), (UP,), (DOWN,), (DOWN * 9,))


def test_nested_ifs():
    def f(x, y):
        if x.sum() > 0:
            if y.sum() > 0:
                z = x + y
            else:
                z = x - y
        else:
            z = x * y
        return z
    agree(f, (UP, UP), (UP, DOWN), (DOWN, UP), (DOWN, DOWN))


def test_a_truth_of_one_element_of_any_type():
    def f(x, n):
        y = x * 2 if n else x * 3
        return y + 1 if x[:1] > 0 else y - 1
    agree(f, (UP, torch.tensor([[2]])), (DOWN, torch.tensor([[0]])), (UP, torch.tensor([[0]])))


def test_conditional_expressions():
    def f(x):
        return (x * 2 if x.sum() > 0 else -x) + (x if x.max() > 2 else x * 0)
    agree(f, *WAYS)


def test_early_return():
    def f(x):
        if x.sum() > 0:
            return x.exp()
        y = x * 2
        if y.min() < -100:
            return y
        return y - 1
    agree(f, *WAYS, (DOWN * 99,))


def test_return_of_structures():
    def f(x):
        if x.sum() > 0:
            return {"a": x + 1, "b": [x * 2, (x, 3)]}
        return {"a": x - 1, "b": [x * 3, (x * 4, 3)]}
    agree(f, *WAYS)


def test_objects_made_on_both_ways():
    @dataclass
    class Output:
        loss: torch.Tensor
        name: str

    def f(x):
        out = Output(x.sum(), "a") if x.sum() > 0 else Output(-x.sum(), "a")
        return out.loss * 2, out.name
    agree(f, *WAYS)


def test_inlined_calls():
    def inner(x):
        if x.sum() > 0:
            return x * 2
        return x * 3

    def f(x):
        return inner(x) + inner(-x)
    agree(f, *WAYS)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        if x.mean() > 0:
            return self.a(x).relu()
        return self.b(x)


class Gates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([Gate(), Gate(), Gate()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_modules_with_parameters():
    with torch.no_grad():
        agree(Gates(), *WAYS)


def test_gradients_of_parameters():
    model, plain = Gates(), Gates()
    translated = sot.to_static(model, full_graph=True)
    for x in (UP, DOWN):
        for m in (translated, plain):
            m.zero_grad()
            m(x).sum().backward()
        for (name, p), q in zip(translated.named_parameters(), plain.parameters()):
            assert same(p.grad, q.grad, name) is None


def test_a_closure_that_is_set_on_both_ways():
    def f(x):
        def show():
            return y * 2
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return show()
    agree(f, *WAYS)


def test_a_list_that_grows_on_both_ways():
    def f(x):
        found = [x]
        if x.sum() > 0:
            found.append(x * 2)
        else:
            found.append(x * 3)
        return found[0] + found[1], len(found)
    agree(f, *WAYS)


def test_a_loop_over_layers_with_a_branch_in_it():
    def f(x):
        for i in range(3):
            if x.sum() > i:
                x = x * 2
            else:
                x = x - 1
        return x
    agree(f, *WAYS)


def test_with_blocks_on_a_way():
    def f(x):
        if x.sum() > 0:
            with torch.no_grad():
                y = x * 2
        else:
            y = x * 3
        return (y * 2).detach(), torch.is_grad_enabled()
    agree(f, *WAYS)


def test_random_numbers_are_those_of_the_way_that_is_taken():
    def f(x):
        if x.sum() > 0:
            x = x + torch.rand(3)
        else:
            x = nn.functional.dropout(x, 0.5) + torch.randn(3)
        return x
    agree(f, *WAYS)


def test_guards_of_both_ways_hold():
    scale = {"up": 2, "down": 3}

    def f(x):
        if x.sum() > 0:
            return x * scale["up"]
        return x * scale["down"]
    translated = sot.to_static(f, full_graph=True)
    assert translated(UP).equal(UP * 2)
    scale["down"] = 5
    assert translated(DOWN).equal(DOWN * 5)


@pytest.mark.slow
def test_a_module_that_is_compiled_by_torchs_backends():
    def f(x):
        while x.sum() < 50:
            x = x * 2 if x.max() < 10 else x * 3
        return x
    translated = sot.to_static(f, full_graph=True, backend="aot_eager")
    x, y = UP.clone().requires_grad_(), UP.clone().requires_grad_()
    translated(x).sum().backward()
    f(y).sum().backward()
    assert same(x.grad, y.grad) is None and translated(UP * 100).equal(UP * 100)


# ---- and, or, not, comparisons --------------------------------------------------------------------------------------
def test_and_or_not_in_conditions():
    def f(a, b):
        if a.sum() > 0 and b.sum() > 0:
            c = a + b
        elif not a.any() or b.min() > 5:
            c = a - b
        else:
            c = a * b
        return c
    agree(f, (UP, UP), (UP, DOWN), (DOWN, UP), (UP * 0, DOWN), (DOWN, UP * 9))


def test_and_or_not_as_values():
    def f(a, b):
        both = a.sum() > 0 and b.sum() > 0
        either = a.sum() > 0 or b.sum() > 0
        return both, either, not both
    agree(f, (UP, UP), (UP, DOWN), (DOWN, UP), (DOWN, DOWN))


def test_chained_comparisons():
    def f(x):
        if -2 < x.sum() < 10 > x.max():
            return x * 2
        return x
    agree(f, *WAYS, (UP * 9,))


def test_conditions_of_python_and_of_tensors():
    def f(x, flag):
        if flag and x.sum() > 0:
            x = x + 1
        if x.any() and flag or x.sum() > 100:
            x = x * 2
        return x, (x.sum() > 0) is not None
    agree(f, (UP, True), (DOWN, True))
    agree(f, (UP, False), (DOWN, False), (UP * 99, False))


def test_bool_is_a_bool():
    def f(x):
        flag = bool(x.sum() > 0)
        y = x + 1 if flag else x - 1
        return y, flag, not flag, type(flag)
    agree(f, *WAYS)


def test_flags_that_differ_become_bools():
    def f(x):
        positive = False
        if x.sum() > 0:
            positive = True
        y = x * 2
        if positive:
            y = y + 1
        return y, positive
    agree(f, *WAYS)


def test_match():
    def f(x):
        match x:
            case v if v.sum() > 0:
                return v * 2
            case _:
                return x * 3
    agree(f, *WAYS)


# ---- assert and raise -----------------------------------------------------------------------------------------------
def test_assert():
    def f(x):
        assert x.sum() > 0, f"not above zero, {len(x)} elements"
        return x * 2
    agree(f, *WAYS, uses="_assert_async")


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_assertions_behind_a_change_of_an_input(start):
    """Python cannot run the frame again: the graph's assertion raises what the program would."""
    class Refused(ValueError):
        pass

    def f(x):
        x.add_(1)
        assert x.sum() > 2, "too small"
        if x.sum() > 200:
            raise Refused("too large", 3)
        return x * 2
    for translated in (sot.to_static(f, full_graph=True), sot.to_static(f, control_flow="graph")):
        got, want = outcome(translated, (torch.zeros(3) + start,), {}), outcome(f, (torch.zeros(3) + start,), {})
        assert (type(got.raised), str(got.raised)) == (type(want.raised), str(want.raised))
        assert torch.equal(got.args[0][0], want.args[0][0])
    with pytest.raises(AssertionError, match="too small"):
        translated(torch.zeros(3) - 50)


def test_assert_in_a_branch():
    def f(x):
        if x.max() > 2:
            assert x.sum() > 6, "too small"
            return x * 2
        return x
    agree(f, *WAYS, (UP * 2,), uses="_assert_async")


def test_raise_in_a_branch():
    def f(x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        if x.sum() > 0:
            y = x * 2
        else:
            raise KeyError(3)
        return y
    agree(f, *WAYS, (UP / 0,), uses="_assert_async")


def test_a_message_that_shows_sizes_does_not_fix_them():
    """An assertion has no subgraph, so sizes may vary. Its message is made only if the program raises."""
    def f(x):
        if not torch.isfinite(x).all():
            raise ValueError(f"not finite: {x.shape}, {tuple(x.shape)}, {x.shape[0] + 1}")
        return x * 2, f"{x.shape}", repr([x.shape, 1])
    translated = sot.to_static(f, full_graph=True, dynamic=True)
    for n in 3, 5, 7:
        assert str(translated(torch.ones(n, 4))) == str(f(torch.ones(n, 4)))
    assert len(translated.captures) == 1
    for n in 3, 6:
        got, want = (outcome(g, (torch.ones(n, 4) / 0,), {}) for g in (translated, f))
        assert (type(got.raised), str(got.raised)) == (type(want.raised), str(want.raised))


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_a_message_that_shows_sizes_after_a_change(start):
    def f(x):
        x.add_(1)
        if x.sum() > 200:
            raise ValueError(f"too large: {x.shape}")
        return x * 2
    translated = sot.to_static(f, full_graph=True, dynamic=True)
    for n in 3, 5:
        got, want = (outcome(g, (torch.zeros(n) + start,), {}) for g in (translated, f))
        assert (type(got.raised), str(got.raised)) == (type(want.raised), str(want.raised))
        assert torch.equal(got.args[0][0], want.args[0][0])


def test_an_exception_that_the_function_handles():
    def f(x):
        try:
            if x.sum() < 0:
                raise ValueError("below")
            y = x * 2
        except ValueError:
            y = x * 3
        return y + 1
    agree(f, *WAYS)
