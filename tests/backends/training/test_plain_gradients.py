"""Gradients of compiled graphs: none for weights that the program does not go backward through, and gradients of
gradients.
"""
import pytest
import torch
from harness import every_call
from torch import nn
from torch.nn import functional as F

import sot

BACKENDS = "eager", "aot_eager", "inductor"
REFUSED = "double backward|does not require grad"      # since torch 2.13, and before


def same(a, b):
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif a is None or b is None:
        assert a is b
    elif isinstance(a, str):
        assert a == b
    else:
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def check(program, backend="aot_eager"):
    """A program gets a translator, and returns what it has computed."""
    torch.manual_seed(0)
    wanted = program(lambda f: f)
    torch.manual_seed(0)
    same(program(lambda f: sot.to_static(f, backend=backend)), wanted)


def gradients(*modules):
    return [p.grad if p.grad is None else p.grad.clone() for m in modules for p in m.parameters()]


# ---- results without a gradient ----


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_that_are_not_used_have_no_gradient(backend):
    def program(translate):
        body, first, second = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 3)
        modules = body, first, second
        optimizer = torch.optim.AdamW([p for m in modules for p in m.parameters()], 0.01, weight_decay=0.1)

        def both(x):
            h = body(x).tanh()
            return first(h), second(h)
        f, found = translate(both), []
        for i in range(4):
            optimizer.zero_grad()
            f(torch.ones(2, 4) + i)[i // 2].square().mean().backward()
            found.append(gradients(*modules))
            optimizer.step()
        return found, [p.detach() for m in modules for p in m.parameters()]
    check(program, backend)


def early_exit(translate):
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(4))

    def leaves_early(x):
        for layer, head in zip(layers, heads, strict=True):
            x = layer(x).relu()
            y = head(x)
            if y.max() > 0.3:
                return y
        return y
    f, found = translate(leaves_early), []
    for i in range(3):
        f(torch.full((2, 4), float(i))).sum().backward()
        found.append(gradients(layers, heads))
    return found


@pytest.mark.parametrize("backend", BACKENDS[:2])
def test_a_loop_that_leaves_early(backend):
    check(early_exit, backend)


def test_inputs_that_are_results_of_another_graph():
    def program(translate):
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        first = translate(lambda x: (a(x).sin(), b(x).cos()))
        second = translate(lambda p, q: ((p * 2).exp(), p * q))
        one, two = second(*first(torch.ones(2, 3)))
        one.sum().backward(retain_graph=True)
        found = [gradients(a, b)]
        two.sum().backward()
        return [*found, gradients(a, b)]
    check(program)


def test_views_of_one_result():
    def program(translate):
        a, b = nn.Linear(3, 4), nn.Linear(3, 4)

        def f(x):
            h, k = a(x), b(x) * a.bias
            return h[:, :2], h[:, 2:], k.t(), x + 1
        f = translate(f)
        f(torch.ones(2, 3))[1].sum().backward()
        found = [gradients(a, b)]
        f(torch.ones(2, 3))[2].sum().backward()
        return [*found, gradients(a, b)]
    check(program)


# Views of values inside of the graph: AOTAutograd makes them after it, so the compiled node is that of their base.
VIEWS = {
    "a part that comes first": lambda h, a, b: (a(h).exp()[0], h * 2),
    "a part that comes last": lambda h, a, b: (h * 2, a(h).exp()[0]),
    "parts and a transposed value": lambda h, a, b: (*h.chunk(2, 1), a(h).exp().t(), *b(h).exp().unbind(0)),
    "a value and its parts": lambda h, a, b: ((y := a(h).exp()).t(), y[0], y, h[1:]),
    "parts of two values": lambda h, a, b: ((y := a(h).exp())[0], y[1], b(h)[0]),
    "parts of an input": lambda h, a, b: (h[0], a(h).exp()[0], (h * 2)[0] + b(h)),
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_values_of_the_graph(name, twice):
    def program(translate):
        modules = body, a, b = nn.Linear(4, 4), nn.Linear(4, 5), nn.Linear(4, 4)
        first, found = translate(lambda x: body(x).tanh()), []
        f = translate(lambda h: VIEWS[name](h if name == "parts of an input" else body(h).tanh(), a, b))
        for i in range(len(VIEWS[name](torch.ones(3, 4), a, b)) + 1):
            for m in modules:
                m.zero_grad()
            results = f(first(torch.ones(3, 4)))
            loss = sum(r.square().sum() for r in (results if i == len(results) else results[i:i + 1]))
            if twice:
                weights = [p for m in modules for p in m.parameters()]
                made = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True)
                loss = sum(g.square().sum() for g in made if g is not None)
            loss.backward()
            found.append(gradients(*modules))
        return found
    check(program)


def test_a_result_that_is_an_input():
    def program(translate):
        a, b = nn.Linear(3, 3), nn.Linear(3, 3)
        first, second = translate(lambda x: a(x).sin()), translate(lambda h: (h, b(h).cos(), h * 2))
        h, _, doubled = second(first(torch.ones(2, 3)))
        (h + doubled).sum().backward()
        return gradients(a, b)
    check(program)


@pytest.mark.slow
def test_changed_inputs_and_sizes_that_change():
    def program(translate):
        a, b, count = nn.Linear(3, 3), nn.BatchNorm1d(3), torch.zeros(3)

        def f(x):
            count.add_(1)
            h = a(x)
            return b(h), h.sin() * b.running_mean
        f, found = translate(f), []
        for n in (2, 3, 5):
            a.zero_grad()
            b.zero_grad()
            f(torch.arange(3.0 * n).view(n, 3))[1].sum().backward()
            found.append(gradients(a, b))
        return found, count, b.running_mean
    check(program)


# ---- gradients of gradients ----


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_of_gradients(backend):
    def program(translate):
        model = nn.Sequential(nn.Linear(3, 5), nn.Softplus(), nn.Linear(5, 1))
        f, found = translate(lambda x: model(x)), []
        for i in range(3):
            x = torch.full((4, 3), 0.5 + i, requires_grad=True)
            gradient, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            ((gradient.norm(dim=1) - 1) ** 2).mean().backward()
            found += [x.grad, gradients(model)]
        return found
    check(program, backend)


def test_third_derivatives_and_several_results():
    def program(translate):
        w, v = (torch.rand(3, requires_grad=True) for _ in range(2))
        f = translate(lambda x: ((w * x).sin() * v, (w * v).exp(), x + 1))
        y, z, _ = f(torch.rand(3))
        first, = torch.autograd.grad(y.sum(), w, create_graph=True)
        second, = torch.autograd.grad(first.sum(), w, create_graph=True)
        (second * z).sum().backward()
        return w.grad, v.grad
    check(program)


@pytest.mark.parametrize("where", ["weight", "result", "outside"])
def test_through_hooks(where):
    def program(translate):
        w, seen = torch.rand(3, 3, requires_grad=True), []

        def hook(gradient):
            seen.append(gradient.detach().clone())
            return gradient * 3
        if where == "weight":
            w.register_hook(hook)

        def f(x):
            y = w * x
            if where == "result":
                y.register_hook(hook)
            return y.sin()
        f = translate(f)
        for _ in range(2):
            y = f(torch.ones(3, 3))
            if where == "outside":
                y.register_hook(hook)
            gradient, = torch.autograd.grad(y.sum(), w, create_graph=True)
            gradient.square().sum().backward()
        return w.grad, seen
    check(program)


def test_under_autocast():
    def program(translate):
        model = nn.Linear(3, 3)
        f, x = translate(lambda x: model(x).float().tanh()), torch.rand(2, 3, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            y = f(x)
        gradient, = torch.autograd.grad(y.sum(), x, create_graph=True)
        gradient.square().sum().backward()
        return x.grad, gradients(model)
    check(program)


def test_an_input_that_has_changed_since():
    """The second gradient is refused, not computed with the new value."""
    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    f = sot.to_static(lambda x: w.exp() + x, backend="aot_eager")
    y = f(x)
    x.add_(1)
    gradient, = torch.autograd.grad(y.sum(), w, create_graph=True)
    torch.testing.assert_close(gradient, w.exp())
    with pytest.raises(RuntimeError, match=REFUSED):
        gradient.sum().backward()


def test_other_random_numbers_are_not_drawn_again():
    """PyTorch's run would draw others than a backend whose numbers are not known to be PyTorch's."""
    w = torch.ones(30, requires_grad=True)
    f = sot.to_static(lambda: F.dropout(w.exp()), backend=every_call("aot_eager"))
    gradient, = torch.autograd.grad(f().sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match=REFUSED):
        gradient.sum().backward()


def test_inputs_are_freed_by_the_backward_pass():
    import weakref
    w = torch.ones(3, requires_grad=True)
    f = sot.to_static(lambda x: (w * 2 + x).sum(), backend="aot_eager")
    x = torch.ones(3)
    seen = weakref.ref(x)
    loss = f(x)
    del x
    loss.backward()
    assert seen() is None


# ---- an input that the graph changes, and the program once more ----------------------------------------------------
def saves(w, x):
    x.mul_(2)
    return (w * x).sin(), w.cos()


def saves_a_row(w, x):
    x[0].mul_(2)
    return w * x[0], w.cos()


def saves_nothing(w, x):
    x.mul_(2)
    return w + x, w.cos()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("function", [saves, saves_a_row, saves_nothing])
@pytest.mark.parametrize("change, result", [(True, 0), (True, 1), (False, 0)])
def test_a_change_of_an_input_that_backward_needs_is_refused(function, change, result, backend):
    def program(translate):
        compiled, found = translate(function), []
        for i in range(2):
            w, x = torch.full((2, 3), i + 1.0, requires_grad=True), torch.ones(2, 3)
            loss = compiled(w, x)[result].sum()
            if change:
                x.add_(1)
            try:
                loss.backward()
            except RuntimeError as error:
                found.append(str(error).partition(": [")[0])
            found.append(w.grad)
        return found
    refused = change and result == 0 and function is not saves_nothing
    assert any(isinstance(v, str) for v in program(lambda f: f)) is refused
    check(program, backend)


# ---- a graph that is kept for another backward pass ----------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("keeps", ["no yes no", "yes no", "no no yes yes"])
def test_a_graph_may_be_kept_at_any_call(keeps, backend):
    def program(translate):
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid(), nn.Linear(8, 2))
        function, found = translate(lambda x: (model(x).exp().sin(), model(x).cos().tanh())), []
        for kept in keeps.split():
            model.zero_grad()
            first, second = function(torch.randn(4, 8))
            for _ in range(3 if kept == "yes" else 0):
                first.sum().backward(retain_graph=True)
            (first.sum() + second.sum()).backward()
            found += gradients(model)
        return found
    check(program, backend)


# ---- a detached result beside views of the same tensor ----


def a_part(c):
    return c.detach(), c[:, 2:]


def two_detached(c):
    return c[:, 1:], c.detach(), c.data, c.view(-1)


def a_detached_part(c):
    return c.detach()[:, 1:], c[:, 2:]


def the_same_part(c):
    part = c[:, 2:]
    return part.detach(), part


def the_tensor_itself(c):
    return c.detach(), c


@pytest.mark.parametrize("results", [a_part, two_detached, a_detached_part, the_same_part, the_tensor_itself])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_detached_result_takes_no_gradients_from_others(backend, results):
    def fn(kept, y):
        return results(torch.cat([kept, y], 1))
    translated = sot.to_static(fn, backend=backend)
    for rows in (4, 4, 5, 6):
        kept, y = torch.randn(2, rows, 4), torch.randn(2, 1, 4, requires_grad=True)
        got, want = translated(kept, y), fn(kept, y)
        torch.testing.assert_close(got, want)
        assert [r.requires_grad for r in got] == [r.requires_grad for r in want]
        assert got[0].untyped_storage().data_ptr() == got[1].untyped_storage().data_ptr()
        grads = [torch.autograd.grad(sum(r.sum() for r in all_of if r.requires_grad), y) for all_of in (got, want)]
        torch.testing.assert_close(*grads)


# ---- where the hook is on: Python runs the backward pass within a captured function -------------------------------


def test_gradients_of_gradients_after_breaks_and_with_sizes_that_change():
    """What PyTorch runs for them is not captured, and an input of any size that has a history is as before."""
    def program(translate):
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

        def f(x):
            y = model(x).exp()
            sot.graph_break()
            gradient, = torch.autograd.grad(y.sum(), x, create_graph=True)
            sot.graph_break()
            loss = gradient.square().sum()
            sot.graph_break()
            loss.backward()
            return gradient
        f, found = translate(f), []
        for n in (2, 2, 3, 4):
            model.zero_grad()
            x = torch.linspace(0, 1, 3 * n).view(n, 3).requires_grad_()
            found += [f(x), x.grad, gradients(model)]
        return found
    check(program)


def test_heads_that_are_not_used_with_inputs_of_any_size_that_have_a_history():
    def program(translate):
        body, a, b, found = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), []
        f = translate(lambda h: (a(k := body(h).cos()), b(k)))
        for n in (2, 3, 4):
            h = (torch.ones(n, 3, requires_grad=True) * 2).sin()
            f(h)[0].sum().backward()
            found.append(gradients(a, b))
        return found
    check(program)
