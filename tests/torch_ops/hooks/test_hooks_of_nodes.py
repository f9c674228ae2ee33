"""Backward hooks of modules in a backward pass that is part of the graph."""
from __future__ import annotations

import warnings

import pytest
import torch
from harness import Programs, check_by, outcome, same
from torch import nn

import sot

X = torch.arange(1.0, 9.0).reshape(2, 4) / 8
whole, left = Programs(), Programs()


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 3)


@whole
def of_a_layer(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append((before[0].sum(), after[0].mean())))
    m(x.requires_grad_() * 2).sum().backward()
    return seen, m.weight.grad, x.grad


@whole
def of_a_layer_whose_input_is_a_leaf(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(before[0]))
    m(x.requires_grad_()).square().sum().backward()
    return seen, x.grad, x.grad is seen[0]


@whole
def whose_input_needs_no_gradient(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append((before, after[0].sum())))
    m(x).sum().backward()
    return seen, m.bias.grad


@whole
def of_each_layer(x):
    torch.manual_seed(0)
    m, order = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), []
    for i, layer in enumerate(m):
        layer.register_full_backward_hook(lambda module, before, after, i=i: order.append((i, after[0].sum())))
    m(x.requires_grad_() + 1).sum().backward()
    return order, [p.grad for p in m.parameters()]


@whole
def before_the_layer(x):
    m, seen = linear(), []
    m.register_full_backward_pre_hook(lambda module, after: seen.append(after[0] * 2))
    m(x.requires_grad_() * 2).sum().backward()
    return seen, m.weight.grad


@whole
def before_and_after(x):
    m, seen = linear(), []
    m.register_full_backward_pre_hook(lambda module, after: seen.append(("before", after[0].sum())))
    m.register_full_backward_hook(lambda module, before, after: seen.append(("after", before[0].sum())))
    m.register_full_backward_hook(lambda module, before, after: seen.append(("last", len(before))))
    m(x.requires_grad_() * 2).sum().backward()
    return seen


@whole
def that_is_removed(x):
    m, seen = linear(), []
    handle = m.register_full_backward_hook(lambda module, before, after: seen.append(1))
    m(x.requires_grad_() * 2).sum().backward()
    handle.remove()
    m(x * 2).sum().backward()
    return seen, m.weight.grad


@whole
def that_prints(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: print("shape", tuple(before[0].shape)))
    m(x.requires_grad_() * 2).sum().backward()
    print("done")
    return x.grad


@whole
def that_notes_norms_in_the_module(x):
    m = linear()

    def note(module, before, after):
        module.norm = after[0].norm()
    m.register_full_backward_hook(note)
    m(x.requires_grad_() * 2).sum().backward()
    return m.norm, m.weight.grad


@whole
def with_two_inputs(x):
    torch.manual_seed(0)
    m, seen = nn.Bilinear(4, 4, 2), []
    m.register_full_backward_hook(lambda module, before, after: seen.append([g.sum() for g in before]))
    x.requires_grad_()
    m(x * 2, x * 3).sum().backward()
    return seen, x.grad


@whole
def that_returns_the_same_gradients(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: before)
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad


@whole
def called_twice(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(after[0].sum()))
    x.requires_grad_()
    (m(x * 2).sum() + m(x * 3).square().sum()).backward()
    return seen, m.weight.grad


@whole
def by_the_function(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(after[0].sum()))
    torch.autograd.backward([m(x).sum()])
    return seen


@whole
def that_warns(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: warnings.warn("careful"))
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad


@whole
def whose_result_is_not_used(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(1))
    m(x.requires_grad_() * 2)
    (x * 2).sum().backward()
    return seen, x.grad


# ---- left to Python
@left
def that_changes_the_gradient(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: tuple(g * 2 for g in before))
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad


@left
def that_changes_it_in_place(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: before[0].mul_(3) and None)
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad, m.weight.grad


@left
def that_changes_it_before(x):
    m = linear()
    m.register_full_backward_pre_hook(lambda module, after: (after[0] * 2,))
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad, m.weight.grad


@left
def that_returns_too_many(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: (before[0], before[0]))
    try:
        m(x.requires_grad_() * 2).sum().backward()
    except RuntimeError as e:
        return str(e)


@left
def with_an_input_that_needs_no_gradient(x):
    torch.manual_seed(0)
    m, seen = nn.Bilinear(4, 4, 2), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(before))
    m(x.clone().requires_grad_(), x).sum().backward()
    return seen


class Halves(nn.Module):
    def forward(self, x):
        return x[:, :2] * 2, x[:, 2:] * 3


@left
def with_a_result_that_is_not_used(x):
    m, seen = Halves(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append((before, after)))
    m(x.requires_grad_() * 2)[0].sum().backward()
    return seen, x.grad


@left
def that_can_be_differentiated(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(after[0].sum()))
    m(x.requires_grad_() * 2).square().sum().backward(create_graph=True)
    return seen, x.grad.detach()


@left
def with_some_gradients(x):
    m, seen = linear(), []
    m.register_full_backward_hook(lambda module, before, after: seen.append(after[0].sum()))
    found = torch.autograd.grad(m(x.requires_grad_() * 2).sum(), x)
    return seen, found


@left
def that_raises(x):
    m = linear()

    def fail(module, before, after):
        raise ValueError(str(len(before)))
    m.register_full_backward_hook(fail)
    try:
        m(x.requires_grad_() * 2).sum().backward()
    except ValueError as e:
        return str(e), x.grad


@left
def on_a_node_of_an_operation(x):
    y, seen = x.requires_grad_() * 2, []
    y.grad_fn.register_hook(lambda before, after: seen.append(after[0].sum()))
    y.sum().backward()
    return seen, x.grad


@left
def that_warns_of_a_frame_of_torch(x):
    m = linear()
    m.register_full_backward_hook(lambda module, before, after: warnings.warn("careful", stacklevel=3))
    m(x.requires_grad_() * 2).sum().backward()
    return x.grad


@left
def of_the_old_kind(x):
    m, seen = linear(), []
    m.register_backward_hook(lambda module, before, after: seen.append(after[0].sum()))
    m(x.requires_grad_() * 2).sum().backward()
    return seen, x.grad


@whole.each
def test_a_hook_that_looks_at_gradients_is_in_the_graph(fn):
    check_by("eager", fn, X, breaks=0)


@left.each
def test_python_runs_other_hooks(fn):
    check_by("eager", fn, X)


@pytest.mark.parametrize("fn", [*whole.all, *left.all], ids=lambda fn: fn.__name__)
def test_a_backend_that_compiles_calls_the_hooks(fn):
    translated = sot.to_static(fn, backend="aot_eager")
    for _ in range(2):
        want, got = outcome(fn, (X.clone(),), {}), outcome(translated, (X.clone(),), {})
        assert not [d for name in ("raised", "result", "printed", "args", "grads") if (
            d := same(getattr(got, name), getattr(want, name), name))]


@pytest.mark.parametrize("fn", [whose_input_needs_no_gradient, by_the_function, that_warns], ids=lambda fn: fn.__name__)
def test_a_warning_of_a_hook_names_the_line_that_python_names(fn):
    def warned(call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call(X.clone())
        return [(str(w.message), w.category, w.filename, w.lineno) for w in found]
    translated = sot.to_static(fn, backend="eager")
    assert warned(fn)
    for _ in range(2):
        assert warned(translated) == warned(fn)
    assert [c.stopped for c in translated.captures] == [None]


class Watched(nn.Module):
    """Its first layer has hooks from the start."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.seen = nn.Linear(4, 4), nn.Linear(4, 2), []
        self.first.register_full_backward_hook(note_gradient)
        self.first.register_full_backward_pre_hook(note_gradient)

    def forward(self, x):
        return self.second(self.first(x).relu())


def note_gradient(module, *gradients):
    module.seen = [*getattr(module, "seen", ()), [[g.sum() for g in each] for each in gradients]]


def test_hooks_that_a_module_has_before_the_step():
    def step(m, x):
        m.zero_grad()
        loss = m(x * 2).square().mean()
        loss.backward()
        with torch.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
        return loss.detach(), m.first.seen
    check_by("eager", step, Watched(), X.clone().requires_grad_(), breaks=0)
    check_by("aot_eager", step, Watched(), X.clone().requires_grad_())
