"""``torch.func.functionalize`` inside of captured functions."""
import pytest
import torch
from harness import Programs, check, check_by
from torch.func import functionalize, grad, vmap

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()


def changes_a_copy(v):
    y = v.clone()
    y.add_(1)
    y.view(-1)[0] = 5
    return y


def adds_to_a_copy(v):
    y = v.clone()
    y.add_(1)
    y[0].mul_(2)
    return y


def changes_its_argument(v, scale=None):
    v.mul_(2)
    v[0] += 1
    return v.sum(0), v if scale is None else v * scale


def views(v):
    row = v[0]
    part = row.view(2, 2)
    return row, part, v.transpose(0, 1), v


@whole
def both_ways(x):
    return functionalize(changes_a_copy)(x), functionalize(changes_a_copy, remove="mutations_and_views")(x)


@whole
def changes_the_callers_tensor(x):
    y = x * 1
    results = functionalize(changes_its_argument)(y)
    return results, y


@whole
def changes_an_input(x):
    results = functionalize(changes_its_argument)(x)
    return results, x + 1


@whole
def changes_a_view_of_an_input(x):
    results = functionalize(changes_its_argument, remove="mutations_and_views")(x[1:])
    return results, x * 2


@whole
def keywords(x):
    return functionalize(changes_its_argument)(x.clone(), scale=torch.full((4,), 3.0))


@whole
def returns_views(x):
    row, part, turned, same = functionalize(views)(x)
    return row + 1, part, turned.shape, same, functionalize(views, remove="mutations_and_views")(x)[1]


@whole
def inside_of_grad(x):
    return grad(lambda v: functionalize(adds_to_a_copy)(v).sum())(x), grad(
        functionalize(lambda v: adds_to_a_copy(v).square().sum()))(x)


@whole
def around_grad(x):
    return functionalize(grad(lambda v: (v * v.sin()).sum()))(x)


@whole
def with_vmap(x):
    return vmap(functionalize(lambda v: v.clone().add_(v.sum())))(x), functionalize(
        vmap(lambda v: v.clone().mul_(2)))(x)


@whole
def what_the_function_reads_elsewhere(x):
    other = x + 1
    return functionalize(lambda v: (v + other, other))(x)


@whole
def makes_tensors(x):
    def f(v):
        made = torch.zeros(3)
        made[1:] = v[1:, 0]
        return made, torch.ones(2).add_(1)
    return functionalize(f)(x)


@whole
def raises_inside(x):
    def f(v):
        v = v.clone()
        v.add_(1)
        raise ValueError("no")
    try:
        functionalize(f)(x)
    except ValueError as e:
        return x + 1, str(e)


@parts
def breaks_inside(x):
    def f(v):
        v = v.clone()
        v.add_(1)
        sot.graph_break()
        return v * 2
    return functionalize(f)(x), x + 1


@parts
def reads_a_value_inside(x):
    return functionalize(lambda v: v * v.clone().add_(1).sum().item())(x)


@parts
def an_unknown_way(x):
    return functionalize(changes_a_copy, remove="all")(x)


@parts
def keeps_a_wrapped_tensor(x):
    kept = []

    def f(v):
        kept.append(v + 1)
        return v * 2
    return functionalize(f)(x), torch._is_functional_tensor(kept[0])


@whole.each
def test_is_one_graph(fn):
    check(fn, X.clone(), graphs=1, breaks=0)
    check_by("eager", fn, X.clone(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients(backend):
    def trains(x):
        y = functionalize(adds_to_a_copy)(x * 2)
        return (y * y).sum()
    check_by(backend, trains, X.clone().requires_grad_())
