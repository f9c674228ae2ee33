"""Functions of torch.jit: those whose code is known are followed. Traced ones and modules are nodes, if they have no
effects.
"""
import types

import pytest
import torch

import sot

X = torch.arange(12.0).reshape(3, 4)
HELD = torch.ones(4)


def is_replaced():
    """torch.testing, if another test has imported it, puts Python functions in place of the calls, for the process."""
    kinds = torch._C.ScriptFunction, torch._C.ScriptMethod
    return any(isinstance(kind.__call__, types.FunctionType) for kind in kinds)


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
    assert backend != "eager" or is_replaced() or stops == [None]


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


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.linear(x)).relu()

    @torch.jit.export
    def doubled(self, x, by: int = 2):
        return self.linear(x) * by


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return x * self.calls


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [Layer, Counting, Normed])
@pytest.mark.parametrize("call", [lambda m, x: m(x * 2).sin() + 1,
                                  lambda m, x: (m.eval()(x.detach()), m.train()(x))[1]], ids=["called", "in two modes"])
def test_a_scripted_module(make, call, backend):
    modules = make(), make()
    modules[1].load_state_dict(modules[0].state_dict())
    mine, its = map(torch.jit.script, modules)
    x = X.clone().requires_grad_()
    translated = sot.to_static(call, backend=backend)
    for _ in range(3):
        seen = []
        for fn, module in (call, mine), (translated, its):
            torch.manual_seed(1)
            x.grad = None
            result = fn(module, x)
            result.sum().backward()
            seen.append(str((result.detach(), x.grad, [*module.state_dict().items()], torch.rand(1),
                             [p.grad for p in module.parameters()])))
        assert seen[0] == seen[1]
    stops = [c.stopped for c in sot.translation_of(translated).captures]
    is_whole = backend == "eager" and make is Layer and "sin" in call.__code__.co_names and not is_replaced()
    assert not is_whole or stops == [None]


def test_another_method_of_a_scripted_module():
    module = torch.jit.script(Layer())
    stops = captures(lambda m, x: m.doubled(x, by=3) + m.doubled(x), module)
    assert is_replaced() or stops == [None]
