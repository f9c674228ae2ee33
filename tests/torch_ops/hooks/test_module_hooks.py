"""Hooks of modules that a captured function adds and removes."""
from __future__ import annotations

import pytest
import torch
from harness import check, check_by, every_call, same
from torch.utils.hooks import RemovableHandle

import sot

X = torch.arange(6.0).reshape(2, 3)


def doubled(module, args, out):
    return out * 2


def added_and_removed(m, x):
    seen = []
    handle = m.register_forward_hook(lambda module, args, out: seen.append(out.shape) or out * 2)
    y = m(x)
    handle.remove()
    return y + m(x), seen


def before(m, x):
    handle = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    y = m(x)
    handle.remove()
    return y


def with_block(m, x):
    with m.register_forward_hook(doubled):
        return m(x)


def two(m, x):
    first = m.register_forward_hook(doubled)
    second = m.register_forward_hook(lambda module, args, out: out + 1, prepend=True)
    y = m(x)
    first.remove()
    z = m(x)
    second.remove()
    second.remove()
    return y, z


@pytest.mark.parametrize("fn", [added_and_removed, before, with_block, two])
def test_a_hook_for_the_time_of_a_call(fn):
    torch.manual_seed(0)
    check(fn, torch.nn.Linear(3, 3), X, graphs=1, breaks=0)


def test_a_hook_that_stays():
    def add(m, x):
        return m.register_forward_hook(doubled), m(x)
    module = torch.nn.Linear(3, 3)
    translated = sot.to_static(add, backend="eager")
    plain = module(X)
    first, y = translated(module, X)
    assert torch.equal(y, plain * 2) and torch.equal(module(X), plain * 2)
    assert list(module._forward_hooks) == [first.id] and isinstance(first, RemovableHandle)
    first.remove()
    assert torch.equal(module(X), plain)
    assert translated.captures[0].stopped is None


def test_every_handle_has_a_number_of_its_own():
    translated = sot.to_static(added_and_removed, backend="eager")
    for _ in range(2):
        before = RemovableHandle.next_id
        translated(torch.nn.Linear(3, 3), X)
        assert RemovableHandle.next_id == before + 1


def test_a_handle_from_outside_is_removed_by_python():
    module = torch.nn.Linear(3, 3)

    def remove(m, handle, x):
        handle.remove()
        return m(x)
    translated = sot.to_static(remove, backend="eager")
    plain = module(X)
    for _ in range(3):
        assert torch.equal(translated(module, module.register_forward_hook(doubled), X), plain)
    assert translated.captures[0].stopped.reason.name == "SIDE_EFFECT"


# ---- hooks that run in the backward pass, which is after the call
class Hooked(torch.nn.Module):
    """Its first layer has hooks, which keep what they get."""

    def __init__(self, **hooks):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
        self.seen = []
        for kind, hook in hooks.items():
            getattr(self.first, f"register_full_backward_{kind}")(hook)

    def forward(self, x):
        return self.second(self.first(x).relu())


def keep(module, *gradients):
    module.seen = [*getattr(module, "seen", ()), gradients]


def double(module, before, after):
    return tuple(g if g is None else g * 2 for g in before)


def negate(module, after):
    return tuple(-g for g in after)


@pytest.mark.parametrize("hooks", [{"hook": keep}, {"hook": double}, {"pre_hook": keep}, {"pre_hook": negate},
                                   {"hook": double, "pre_hook": negate}],
                         ids=lambda hooks: " and ".join(f"{kind} {hook.__name__}" for kind, hook in hooks.items()))
@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backward_hooks_are_called_with_the_gradients_of_the_module(hooks, needs_grad, backend):
    torch.manual_seed(0)
    model = Hooked(**hooks)
    check_by(backend, lambda m, x: m(x).sum(), model, X.clone().requires_grad_(needs_grad),
             breaks=0 if backend == "eager" else None)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_hook_that_the_call_adds(backend):
    def add(m, x):
        handle = m.register_full_backward_hook(double)
        y = m(x)
        handle.remove()
        return y + m(x)
    torch.manual_seed(0)
    check_by(backend, lambda m, x: add(m, x).sum(), torch.nn.Linear(3, 3), X.clone().requires_grad_(),
             breaks=0 if backend == "eager" else None)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_pass_through_hooks_in_the_call(backend):
    def step(m, x):
        m(x).sum().backward()
        return m.first.weight.grad, x.grad
    check_by(backend, step, Hooked(hook=double, pre_hook=negate), X.clone().requires_grad_())


def test_hooks_on_nodes_of_autograd():
    def on_nodes(x):
        y = x * 2
        z = y.sin()
        y.grad_fn.register_hook(lambda before, after: tuple(g if g is None else g * 3 for g in before))
        z.grad_fn.register_prehook(lambda after: (after[0] + 1,))
        return z
    check_by("eager", on_nodes, X.clone().requires_grad_(), breaks=0)


def test_a_hook_on_a_node_that_is_removed():
    def removed(x):
        y = x * 2
        handle = y.grad_fn.register_hook(lambda before, after: (before[0] * 3,))
        handle.remove()
        return y
    check_by("eager", removed, X.clone().requires_grad_(), breaks=0)


# ---- modules that the call makes
def made_with_hooks(x):
    model, seen = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()), []
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 0.1)
    handle = model[0].register_forward_hook(doubled)
    model[0].register_forward_pre_hook(lambda layer, args: seen.append(tuple(args[0].shape)))
    model[0].register_forward_hook(lambda layer, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    y = model(x)
    handle.remove()
    return y, model(x), seen, len(model[0]._forward_hooks)


def made_and_returned(x):
    model = torch.nn.Identity()
    return model(x), model, model.register_forward_hook(doubled)


def test_hooks_of_a_module_that_the_call_makes_are_in_the_graph():
    check(made_with_hooks, X, graphs=1, breaks=0)


def test_a_handle_of_a_module_that_the_call_makes_removes_its_hook():
    translated = sot.to_static(made_and_returned, full_graph=True)
    for _ in range(2):
        _, model, handle = translated(X)
        assert not same(model(X), X * 2)
        assert handle.id in model._forward_hooks
        handle.remove()
        assert model(X) is X and not model._forward_hooks


def test_a_backward_hook_breaks_a_compiled_graph_only_around_its_module():
    """Python runs torch's code that sets up the hook as a whole."""
    log = []

    def gradient(translate):
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        m[1].register_full_backward_hook(lambda module, given, got: log.append((given[0].sum(), got[0].sum())))
        f = translate(lambda x: m(x).sum())
        for _ in range(3):
            f(X).backward()
        found = [p.grad for p in m.parameters()], [*log]
        log.clear()
        return f, found
    f, got = gradient(lambda f: sot.to_static(f, backend=every_call("aot_eager")))
    torch.testing.assert_close(got, gradient(lambda f: f)[1])
    assert sum(bool(capture.stopped) for capture in f.captures) <= 5


def for_all_modules(m, x):
    seen = []
    with torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: seen.append(type(module))):
        y = m(x)
    return y, m(x), seen


def although_the_call_raises(m, x):
    seen = []
    with m[0].register_forward_pre_hook(lambda module, args: 1 / 0), \
            m[0].register_forward_hook(lambda module, args, out: seen.append(out), always_call=True):
        try:
            m(x)
        except ZeroDivisionError as e:
            seen.append(str(e))
    return seen, x + 1


@pytest.mark.parametrize("fn", [for_all_modules, although_the_call_raises])
def test_a_hook_of_all_modules_and_one_that_is_called_although_the_call_raises(fn):
    torch.manual_seed(0)
    check(fn, torch.nn.Sequential(torch.nn.Linear(3, 3)), X, graphs=1, breaks=0)
