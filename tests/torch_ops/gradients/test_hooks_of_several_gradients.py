"""``torch.autograd.graph.register_multi_grad_hook`` around a backward pass of the captured function."""
import pytest
import torch
from harness import Programs, check, check_by, same
from torch.autograd.graph import register_multi_grad_hook

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()


@whole
def counts(x):
    y, z, seen = x.sin(), x.cos(), []
    handle = register_multi_grad_hook((y, z), lambda gs: seen.append(len(gs)))
    (y * z).sum().backward()
    handle.remove()
    return seen, x.grad


@whole
def keeps_the_gradients(x):
    y, z, seen = x.sin(), x.cos(), []
    handle = register_multi_grad_hook((y, z), lambda gs: seen.extend(g * 2 for g in gs))
    (y * z).sum().backward()
    handle.remove()
    return seen, x.grad


@whole
def some_are_not_reached(x):
    y, z, seen = x.sin(), x.cos(), []
    handle = register_multi_grad_hook((y, z, x * 3), lambda gs: seen.append([g is None for g in gs]))
    (y * 2).sum().backward()
    (z * y.detach()).sum().backward()
    handle.remove()
    return seen, x.grad


@whole
def a_leaf_among_them(x):
    y, seen = x * 3, []
    handle = register_multi_grad_hook([y, x], lambda gs: seen.append([g.sum() for g in gs]))
    y.square().sum().backward()
    handle.remove()
    return seen, x.grad


@parts
def the_first_of_several(x):
    y, z, seen = x.sin(), x.cos(), []
    handle = register_multi_grad_hook((y, z), lambda g: seen.append(g.sum()), mode="any")
    (y * z).sum().backward(retain_graph=True)
    (y * z).sum().backward()
    handle.remove()
    return seen, x.grad


@whole
def two_hooks_and_two_passes(x):
    y, z, seen = x.sin(), x.cos(), []
    first = register_multi_grad_hook((y, z), lambda gs: seen.append(("all", gs[0].sum())))
    second = register_multi_grad_hook((z,), lambda gs: seen.append(("z", gs[0].sum())))
    loss = (y * z).sum()
    loss.backward(retain_graph=True)
    first.remove()
    loss.backward()
    second.remove()
    return seen, x.grad


@parts
def without_a_history(x):
    return register_multi_grad_hook((x.detach(),), print)


@parts
def another_mode(x):
    return register_multi_grad_hook((x * 1,), print, mode="most")


@parts
def removed_before(x):
    y, seen = x.sin(), []
    register_multi_grad_hook((y,), seen.append).remove()
    y.sum().backward()
    return seen, x.grad


@parts
def with_grad(x):
    y, seen = x.sin(), []
    handle = register_multi_grad_hook((y,), lambda gs: seen.append(gs[0].sum()))
    found = torch.autograd.grad(y.sum(), x)
    handle.remove()
    return seen, found


@parts
def a_hook_that_raises(x):
    def hook(gs):
        raise ValueError("no")
    y = x.sin()
    register_multi_grad_hook((y,), hook)
    y.sum().backward()


@parts
def asks_the_engine(x):
    y, seen = x.sin(), []
    y.register_hook(lambda g: seen.append(type(torch._C._current_graph_task_id())))
    y.sum().backward()
    return seen, torch._C._current_graph_task_id(), x.grad


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone().requires_grad_(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check_by("eager", fn, X.clone().requires_grad_())
    check(fn, X.clone().requires_grad_())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone().requires_grad_())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_passes_after_the_call(backend):
    def stays(x, seen):
        y, z = x.sin(), x.cos()
        register_multi_grad_hook((y, z), lambda gs: seen.append([g if g is None else g.sum() for g in gs]))
        (y * z).sum().backward(retain_graph=True)
        return y, z

    def run(fn):
        x, seen = X.clone().requires_grad_(), []
        y, z = fn(x, seen)
        (y + 2 * z).sum().backward(retain_graph=True)
        z.sum().backward()
        return seen, x.grad
    translated = sot.to_static(stays, backend=backend)
    for _ in range(3):
        assert same(run(translated), run(stays)) is None
