"""Changes by way of ``.data``, with backends that compile: they change the memory of a tensor, and not its version."""
from __future__ import annotations

import pytest
import torch
from functorch.compile import aot_module_simplified, make_boxed_func
from harness import caught, same

import sot

BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


def compared(fn, translated, *args):
    """The result or error of both, the arguments afterwards, and their versions are the same."""
    seen = []
    for call in (fn, translated):
        given = [*map(torch.clone, args)]
        try:
            result = call(*given)
        except Exception as error:
            result = type(error), str(error)
        seen.append((result, given, [tensor._version for tensor in given]))
    assert not same(*seen)


@BACKENDS
def test_versions_stay(backend):
    def fn(x, y):
        x.data.mul_(2)
        return x + y

    translated = sot.to_static(fn, backend=backend)
    for scale in (1.0, 2.0, 3.0):
        compared(fn, translated, torch.ones(3), torch.ones(3) * scale)


@BACKENDS
def test_versions_stay_where_data_is_set(backend):
    def fn(x, y):
        x.data = x.data * 2
        y.add_(1)
        y.data = x.data + y
        return x + y

    translated = sot.to_static(fn, backend=backend)
    for scale in (1.0, 2.0, 3.0):
        compared(fn, translated, torch.ones(3), torch.ones(3) * scale)


@BACKENDS
def test_an_older_graph_goes_backward(backend):
    """Autograd does not see the change, so it does not refuse."""
    def fn(w):
        w.data.mul_(2)
        return w.sum().detach()

    found = []
    for call in (fn, sot.to_static(fn, backend=backend)):
        w = torch.ones(3, requires_grad=True)
        loss = (w * w).sum()
        call(w)
        loss.backward()
        found.append((w.detach(), w.grad))
    assert not same(*found)


@BACKENDS
def test_arguments_that_share_memory(backend):
    def fn(x, y):
        x.data.mul_(2)
        return y + 1

    translated = sot.to_static(fn, backend=backend)
    for begin, end in ((None, 2), (0, 2), (1, 3)):
        found = []
        for call in (fn, translated):
            x = torch.arange(4.0)
            y = torch.ones(2) if begin is None else x[begin:end]
            found.append((call(x, y), x, y))
        assert not same(*found)


@BACKENDS
def test_an_error_after_a_change(backend):
    def fn(x, index):
        x.data.mul_(2)
        return x[index] + 1

    translated = sot.to_static(fn, backend=backend)
    for index in (1, 9, 2):
        compared(fn, translated, torch.ones(4), torch.tensor([index]))


@BACKENDS
def test_a_check_after_a_change(backend):
    def fn(x, y):
        x.data.add_(y)
        if x.sum() > 100:
            raise ValueError("too large")
        return x * 2

    translated = sot.to_static(fn, backend=backend)
    for value in (1.0, 100.0, 2.0):
        compared(fn, translated, torch.ones(4), torch.full((4,), value))


class Assign(torch.autograd.Function):
    """Writes to its argument and returns it, as solvers of differential equations do."""

    @staticmethod
    def forward(ctx, kept, value, index):
        ctx.index = index
        kept.data[index] = value
        return kept

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient[ctx.index], None


def anonymous(gm, examples):
    """A backend that is not known to compile before its first graph."""
    return aot_module_simplified(gm, examples, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", anonymous], ids=["eager", "aot_eager", "anonymous"])
def test_a_result_of_autograd_is_changed_in_the_next_graph(backend):
    def fn(x, rounds):
        kept = Assign.apply(torch.empty(4, rounds + 1), x, (..., 0))
        for i in range(rounds):
            sot.graph_break()
            kept = Assign.apply(kept, kept[..., :i + 1].sum(-1).sin(), (..., i + 1))
        return (kept ** 2).sum(), kept

    for _ in range(3):
        translated = sot.to_static(fn, backend=backend)
        found = []
        for call in (fn, translated, translated):
            x = torch.arange(4.0, requires_grad=True)
            total, kept = call(x, 3)
            total.backward()
            found.append((kept.detach(), x.grad))
        for other in found[1:]:
            torch.testing.assert_close(other, found[0])


# ---- steps that set .data
def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def averaged(model, copy):
    for p, q in zip(model.parameters(), copy.parameters(), strict=True):
        q.data = q.data * 0.9 + p.data * 0.1
    return copy(torch.ones(1, 4)), [q.shape for q in copy.parameters()], q.item() if q.numel() == 1 else q.tolist()


def clipped(model, copy):
    for p in model.parameters():
        p.data = p.data.clamp(-0.1, 0.1)


def by_hand(model, copy):
    for p in model.parameters():
        p.data = p.data - 0.1 * p.grad.data


def of_gradients(model, copy):
    for p in model.parameters():
        p.grad.data = p.grad.data.clamp(-0.01, 0.01)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)


def shared(model, copy):
    for p, q in zip(model.parameters(), copy.parameters(), strict=True):
        q.data = p.data


@BACKENDS
@pytest.mark.parametrize("update", [averaged, clipped, by_hand, of_gradients, shared], ids=lambda f: f.__name__)
def test_a_step_that_sets_data_is_one_graph(update, backend):
    def trained(translate):
        model, copy = network(), network().requires_grad_(False)
        kept = [p.data for p in (*model.parameters(), *copy.parameters())]

        def step(x):
            loss = model(x).square().mean()
            model.zero_grad()
            loss.backward()
            return loss.detach(), update(model, copy)
        step = translate(step)
        losses = [step(torch.ones(3, 4) * i) for i in range(4)]
        tensors = [*model.parameters(), *copy.parameters()]
        addresses = [p.data_ptr() for p in tensors]
        return (losses, tensors, [p.grad for p in tensors], [p._version for p in tensors], kept,
                [addresses.index(address) for address in addresses]), step
    want, _ = trained(lambda f: f)
    got, step = trained(lambda f: sot.to_static(f, backend=backend))
    assert not same(got, want)
    assert not [str(c.stopped) for c in step.captures[1:] if c.stopped]


def changed_in_place(n, x, kept):
    n.data = n * 2
    changed = n.add_(1)
    return changed is n, n.sum()


def changed_by_a_view(n, x, kept):
    n.data = n * 2
    part = n[1:]
    part.mul_(5)
    return n.sum(), part, part._base is n


def changed_as_out(n, x, kept):
    n.data = n * 2
    torch.add(x, 1, out=n)
    return n * 2


def set_again(n, x, kept):
    n.data = n * 2
    n.data = n + x
    n.data += 1
    return n.sum(), n.mean().item()


def an_array_of_before(n, x, kept):
    array = n.numpy()
    n.data = n * 2
    kept.append(array)
    return n.sum()


def an_array_between(n, x, kept):
    n.data = n * 2
    array = n.numpy()
    n.data = n + 1
    kept.append(array)
    return n.sum()


def old_memory(n, x, kept):
    old = n.data
    n.data = n * 2
    old.add_(100)
    return old, n.sum()


def the_value_changes(n, x, kept):
    value = n * 2
    n.data = value
    value.add_(1)
    return n.sum(), value, n.contiguous() is n


@BACKENDS
@pytest.mark.parametrize("body", [changed_in_place, changed_by_a_view, changed_as_out, set_again, an_array_of_before,
                                  an_array_between, old_memory, the_value_changes], ids=lambda f: f.__name__)
def test_after_new_data_all_is_pythons(body, backend):
    def called(translate):
        n, weight, kept = torch.ones(3), torch.nn.Parameter(torch.ones(3)), []

        def step(x):
            weight.grad = None
            (weight * x).square().sum().backward()      # with a backward pass, no graph can be cut
            return body(n, x, kept)
        step = translate(step)
        return [(step(torch.full((3,), i + 1.0)), n.clone(), n._version) for i in range(3)], kept
    assert not same(called(lambda f: sot.to_static(f, backend=backend)), called(lambda f: f))


@BACKENDS
def test_a_weight_with_new_data_is_used_again(backend):
    def trained(translate):
        model = network()

        def step(x):
            for _ in range(2):
                loss = model(x).square().mean()
                model.zero_grad()
                loss.backward()
                by_hand(model, model)
            return loss.detach()
        return list(map(translate(step), torch.ones(3, 3, 4))), [*model.parameters()]
    assert not same(trained(lambda f: sot.to_static(f, backend=backend)), trained(lambda f: f))


@BACKENDS
def test_data_is_set_once_where_the_graph_raises(backend):
    def fn(x, i):
        x.data = x.data * 2
        return x[i]
    translated = sot.to_static(fn, backend=backend)
    for i in (1, 7, 2):
        compared(fn, translated, torch.ones(3), torch.tensor(i))


def set_data(p, w):
    p.data = w.detach() * 2


CHANGES_OF_FORM = [set_data, lambda p, w: p.set_(w.detach().clone()), lambda p, w: p.resize_(3),
                   lambda p, w: p.unsqueeze_(0), lambda p, w: p.squeeze_(0), lambda p, w: p.t_(),
                   lambda p, w: p.as_strided_((1, 1), (1, 1)), lambda p, w: p.detach_(),
                   lambda p, w: p.requires_grad_(False)]


@pytest.mark.filterwarnings("ignore:backend 'aot_eager' failed")     # where a compiled graph changes a leaf's shape
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", CHANGES_OF_FORM)
def test_another_form_after_a_gradient(change, backend):
    def program(p, w):
        (w * p.sum()).sum().backward()
        with torch.no_grad():
            change(p, w)
    translated = sot.to_static(program, backend=backend)
    for has_gradient in (False, False, True, True):
        found = []
        for call in translated, program:
            p, w = torch.nn.Parameter(torch.full((1, 2), 2.0)), torch.ones(4, requires_grad=True)
            p.grad = torch.ones(1, 2) if has_gradient else None
            outcome = caught(call, p, w)
            found.append((outcome, p.detach(), p.grad, w.grad, p.requires_grad))
        assert same(*found) is None
