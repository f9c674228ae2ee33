"""Functions of torch.jit: those whose code is known are followed. Traced ones are nodes, if they have no effects."""
import types

import pytest
import torch

import sot

X = torch.arange(12.0).reshape(3, 4)
HELD = torch.ones(4)


def add_to_held(x):
    HELD.add_(1)
    return x + HELD


def changed(x):
    x.mul_(2)
    return x + 1


def captures(fn, *args, backend="eager", calls=3):
    """What stopped the captures of calls, which give what plain Python gives, with gradients and changes."""
    translated = sot.to_static(fn, backend=backend)
    for _ in range(calls):
        mine, its = X.clone().requires_grad_(), X.clone().requires_grad_()
        want, got = fn(*args, its), translated(*args, mine)
        assert torch.equal(got, want) and got.requires_grad == want.requires_grad
        got.sum().backward()
        want.sum().backward()
        assert torch.equal(mine.grad, its.grad)
    return [c.stopped for c in sot.translation_of(translated).captures]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [lambda v: v.sin() * 2, lambda v: v * HELD, changed],
                         ids=["of its arguments", "with a tensor", "in place"])
def test_a_traced_function_is_a_node(function, backend):
    script = torch.jit.trace(function, X.clone())
    stops = captures(lambda fn, x: fn(x * 2).relu() + 1, script, backend=backend)
    # torch.testing, if another test has imported it, puts a Python function in place of the call, for the process
    replaced = isinstance(torch._C.ScriptFunction.__call__, types.FunctionType)
    assert backend != "eager" or replaced or stops == [None]


def test_another_function_is_captured_again():
    double, triple = (torch.jit.trace(lambda v, k=k: v * k, X) for k in (2, 3))
    translated = sot.to_static(lambda fn, x: fn(x) + 1, backend="eager")
    for script, factor in (double, 2), (triple, 3), (double, 2):
        assert torch.equal(translated(script, X), X * factor + 1)


def test_a_function_that_changes_what_it_holds_is_left_to_python():
    script = torch.jit.trace(add_to_held, X, check_trace=False)
    translated, before = sot.to_static(lambda x: script(x) * 2, backend="eager"), script(X)
    for call in range(1, 4):
        assert torch.equal(translated(X), (before + call) * 2)
