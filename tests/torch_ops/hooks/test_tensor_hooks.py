"""Hooks that a captured function puts on tensors: they are called in the backward pass as in plain Python."""
from __future__ import annotations

import pytest
import torch
from harness import Counter, Programs, check, check_by, same
from torch import nn
from torch.utils.hooks import RemovableHandle

import sot
from sot.interpreter.torch_ops.hooks.tensor_hooks import is_place

X = (torch.arange(12.0).reshape(3, 4) / 6).requires_grad_()
whole = Programs()


@whole
def a_hook_that_gives_another_gradient(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


@whole
def a_hook_that_gives_none(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return y.sin()


@whole
def hooks_in_their_order(x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 3)
    return y.sin()


@whole
def a_hook_on_an_argument(x):
    x.register_hook(lambda g: g * 2)
    return x.sin()


@whole
def a_hook_after_the_gradient_is_added(x):
    def halve(p):
        p.grad = p.grad / 2
    x.register_post_accumulate_grad_hook(halve)
    return x.sin()


@whole
def a_hook_that_uses_what_the_graph_computes(x):
    n, y = x.shape[0], x * 2
    z = y.exp()
    y.register_hook(lambda g: g * n + z.detach())
    n = n + 1
    return y.sin()


@whole
def a_hook_before_a_change_in_place(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.mul_(2)
    return y.sin()


@whole
def a_hook_that_is_removed(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    with y.register_hook(lambda g: g * 5):
        z = y.sin()
    handle.remove()
    return z


@whole
def a_method_of_a_new_list(x):
    seen = []
    y = x * 2
    y.register_hook(seen.append)
    return y.sin(), seen


@whole.each
def test_a_hook_is_part_of_the_graph(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_hook_prints_in_the_backward_pass(capsys):
    def shown(x):
        y = x * 2
        y.register_hook(lambda g: print("gradient", g.tolist()))
        return y.sum()
    loss = sot.to_static(shown, backend=Counter())(torch.ones(2, requires_grad=True))
    assert capsys.readouterr().out == ""
    loss.backward()
    assert capsys.readouterr().out == "gradient [1.0, 1.0]\n"


def test_the_handle_removes_the_hook_itself():
    def hooked(x, hook):
        y = x * 2
        return y, y.register_hook(hook)

    def hook(g):
        return g * 3
    x = torch.ones(2, requires_grad=True)
    y, handle = sot.to_static(hooked, backend=Counter())(x, hook)
    assert list(y._backward_hooks.values()) == [hook]
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


inside = Programs()


@inside
def a_hook_that_looks(x):
    seen = []
    y = x * 2
    y.register_hook(seen.append)
    x.register_hook(lambda g: seen.append(g.sum()))
    y.sin().sum().backward()
    return seen, x.grad


@inside
def a_hook_of_a_leaf_that_comes_and_goes(x):
    handle = x.register_hook(lambda g: g * 2)
    (x * 3).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    return x.grad


@inside
def a_hook_behind_the_accumulation(x):
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * 3).sum().backward()
    return seen


@inside
def gradients_that_are_kept(x):
    y = x * 2
    y.retain_grad()
    (y.T * 3).T.sum().backward(retain_graph=True)
    y.sum().backward()
    return y.grad, y.grad.stride(), y.retains_grad, x.grad


@inside.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_pass_inside_goes_through_hooks(fn, backend):
    check_by(backend, fn, X, breaks=0 if backend == "eager" else None)


def test_hooks_that_a_leaf_had_are_called_once():
    def step(x, p):
        (x * p).sum().backward()
        return p.grad

    def calls(fn):
        p, seen = nn.Parameter(torch.ones(3)), []
        p.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        found = [fn(torch.arange(3.0), p).clone() for _ in range(2)]
        p.register_hook(lambda g: seen.append(g.clone()))
        return found + [fn(torch.arange(3.0), p).clone() for _ in range(2)], seen
    assert same(calls(sot.to_static(step, backend="eager")), calls(step)) is None


def backward_inside(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.sin().sum().backward()
    return x.grad


def a_tensor_that_was_changed(x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.mul_(2)
    y.sum().backward()
    return x.grad


def without_gradients(x):
    try:
        x.detach().register_hook(print)
    except RuntimeError as e:
        return str(e)


def of_no_leaf(x):
    try:
        (x * 2).register_post_accumulate_grad_hook(print)
    except RuntimeError as e:
        return str(e)


@pytest.mark.parametrize("fn", [without_gradients, of_no_leaf],
                         ids=lambda f: f.__name__)
def test_what_is_left_to_python_is_right(fn):
    check(fn, X, breaks=1)


@pytest.mark.parametrize("fn", [backward_inside, a_tensor_that_was_changed], ids=lambda f: f.__name__)
def test_hooks_that_autograd_calls_are_in_the_graph(fn):
    check(fn, X)


def test_a_graph_that_fails_leaves_one_hook():
    def fails(x, i):
        x.register_hook(lambda g: g * 3)
        return (x * 2)[i]
    translated = sot.to_static(fails, backend=Counter())
    translated(X.detach().requires_grad_(), torch.tensor([0]))
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(IndexError):
        translated(x, torch.tensor([7]))
    assert len(x._backward_hooks) == 1


def test_a_backend_that_compiles_gets_no_hooks():
    """It gets the pieces of the graph between them."""
    given = []

    def compiling(graph, inputs):
        given.append(graph)
        return lambda *args: graph(*args)
    fn = whole.all[0]
    translated, x, y = sot.to_static(fn, backend=compiling), *(X.detach().clone().requires_grad_() for _ in range(2))
    translated(x).sum().backward()
    fn(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
    # the first shows whether the backend compiles at all
    first, *pieces = [any(is_place(node.target) for node in graph.graph.nodes) for graph in given]
    assert first and pieces and not any(pieces)
    assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_hook_that_comes_and_goes_between_calls_with_backward(name):
    def step(x, p):
        (x * p).sum().backward()
        return p.grad

    def ten_times(p):
        p.grad = p.grad * 10

    def calls(fn):
        p, found = nn.Parameter(torch.ones(3)), []
        for call in range(4):
            if call == 2:
                handle = getattr(p, name)(ten_times if "post" in name else lambda g: g * 10)
            if call == 3:
                handle.remove()
            p.grad = None
            found.append(fn(torch.arange(3.0), p).clone())
        return found
    assert same(calls(sot.to_static(step, backend=Counter())), calls(step)) is None


def test_a_graph_that_fails_takes_no_numbers_of_hooks():
    def f(x, i):
        y = x * 2
        y.register_hook(lambda g: g * 2)
        y.register_hook(lambda g: g * 3)
        return x[i] + y
    x, i = torch.arange(3.0).requires_grad_(), torch.tensor([0, 1, 5])
    translated, taken = sot.to_static(f, backend="eager"), []
    translated(x, torch.tensor([0, 1, 2]))
    for fn in (f, translated):
        before = RemovableHandle.next_id
        with pytest.raises(IndexError):
            fn(x, i)
        taken.append(RemovableHandle.next_id - before)
    assert taken == [2, 2]


# ---- hooks that autograd calls itself, in backward passes of the graph
NOTED = []


def doubled(y):
    y.register_hook(lambda g: g * 2)


def clipped_in_two_steps(y):
    y.register_hook(lambda g: g.clamp(-1, 1))
    y.register_hook(lambda g: g + 1)


def that_retains(y):
    y.retain_grad()
    y.register_hook(lambda g: g * 2)


def before_a_change(y):
    y.register_hook(lambda g: g * 2)
    y.mul_(2)


def then_one_that_notes(y):
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: NOTED.append(g.tolist()))


def after_one_that_notes(y):
    y.register_hook(lambda g: NOTED.append(g.tolist()))
    y.register_hook(lambda g: g * 2)


def that_notes_and_changes(y):
    y.register_hook(lambda g: NOTED.append(g.tolist()) or g * 2)


def of_another_shape(y):
    y.register_hook(lambda g: g[:1])


def once_by_backward(x, y):
    (y * y).sum().backward()
    return x.grad, y.grad if y.retains_grad else None


def twice(x, y):
    handle = y.register_hook(lambda g: g * 3)
    (y * y).sum().backward(retain_graph=True)
    handle.remove()
    (y * y).sum().backward()
    return x.grad


def once_by_grad(x, y):
    return torch.autograd.grad((y * y).sum(), x)[0]


def up_to_the_tensor(x, y):
    return torch.autograd.grad((y * y).sum(), y)[0]


def twice_by_grad(x, y):
    g, = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward()
    return x.grad


def after_the_call(x, y):
    return y * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("passes", [once_by_backward, twice, once_by_grad, up_to_the_tensor, twice_by_grad,
                                    after_the_call])
@pytest.mark.parametrize("hook", [doubled, clipped_in_two_steps, that_retains, before_a_change, then_one_that_notes,
                                  after_one_that_notes, that_notes_and_changes, of_another_shape])
def test_hooks_that_change_gradients(hook, passes, backend):
    def program(x):
        y = x.sin()
        hook(y)
        return passes(x, y)

    def outcome(fn):
        NOTED.clear()
        x = torch.tensor([0.1, 1.2345678, 2.1]).requires_grad_()
        try:
            result = fn(x)
            if isinstance(result, torch.Tensor) and result.grad_fn is not None:
                result.sum().backward()
                result = result.detach()
        except RuntimeError as e:
            result = str(e)
        return str(result), None if x.grad is None else x.grad.tolist(), list(NOTED)

    if backend != "eager" and hook is before_a_change:
        pytest.skip("a compiled graph that changes an input: see the limits")
    translated, want = sot.to_static(program, backend=backend), outcome(program)
    for _ in range(3):
        assert outcome(translated) == want
    alone = hook in (doubled, clipped_in_two_steps, before_a_change)
    if backend == "eager" and alone and passes is not up_to_the_tensor:
        assert [c.stopped for c in sot.translation_of(translated).captures] == [None]
