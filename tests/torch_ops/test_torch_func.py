"""torch.func: its transforms are part of the graph, errors leave no level behind, and what breaks moves out."""
from __future__ import annotations

import copy

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from harness import check, same
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)

import sot

torch.manual_seed(0)
X = torch.arange(12.0).reshape(3, 4) / 6
G = (torch.arange(12.0).reshape(3, 4) / 6).requires_grad_()
W = torch.randn(4, 4)
LINEAR, MLP = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
MODELS = [nn.Linear(4, 2) for _ in range(3)]
SKELETON, STACKED = copy.deepcopy(MODELS[0]).to("meta"), stack_module_state(MODELS)

WHOLE: dict = {}


def whole(fn):
    WHOLE[fn.__name__] = fn
    return fn


@whole
def gradients(x):
    return (grad(lambda v: (v.sin() ** 2).sum())(x), grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x + 1),
            grad(lambda v: ((v ** 2).sum(), v + 1), has_aux=True)(x), grad_and_value(lambda v: (v ** 3).sum())(x))


@whole
def gradients_of_gradients(x):
    return grad(lambda s: grad(torch.sin)(s))(x[0, 1]), hessian(lambda v: (v ** 3).sum())(x[0])


@whole
def gradients_with_closures(x):
    w = x * 2
    return grad(lambda v: (v * v * w).sum())(x.detach()), w


@whole
def products(x):
    out, back = vjp(torch.sin, x)
    return out, back(torch.ones_like(x)), jvp(lambda v: v.sin() * 2, (x,), (torch.ones_like(x),))


@whole
def jacobians(x):
    return jacrev(torch.sin)(x[0]), jacfwd(lambda v: v.sin() * v.sum())(x[0]), jacrev(jacfwd(torch.sin))(x[0])


@whole
def maps(x):
    y = x.sum(0)
    return (vmap(lambda r: r.sum() * r)(x), vmap(lambda a, b: a @ b, in_dims=(0, None))(x, W), vmap(LINEAR)(x),
            vmap(lambda r: r + y, in_dims=1, out_dims=1)(x.T), vmap(vmap(lambda s: s * 2))(x),
            vmap(lambda r: r * 2, chunk_size=2)(x), vmap(lambda r: (r * 2, {"a": r.sum()}))(x))


@whole
def random_maps(x):
    return (vmap(lambda r: r + torch.rand(4), randomness="different")(x),
            vmap(lambda r: F.dropout(r, 0.5), randomness="same")(x))


@whole
def a_decorated_map(x):
    @torch.vmap
    def total(row):
        return row.sum()
    return total(x)


@whole
def gradients_per_sample(x):
    parameters = {k: v.detach() for k, v in LINEAR.named_parameters()}

    def loss(p, v, t):
        return F.mse_loss(functional_call(LINEAR, p, (v,)), t)
    return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, torch.ones(3, 2))


@whole
def functional_calls(x):
    doubled = {k: v * 2 for k, v in MLP.named_parameters()}
    return (functional_call(LINEAR, {"weight": torch.ones(2, 4), "bias": torch.zeros(2)}, (x,)),
            functional_call(MLP, doubled, x), functional_call(MLP, {"0.weight": torch.ones(8, 4)}, (x,)))


@whole
def an_ensemble(x):
    return vmap(lambda p, b, v: functional_call(SKELETON, (p, b), (v,)), in_dims=(0, 0, None))(*STACKED, x)


@whole
def a_mask_of_four_dimensions(x):
    def mask(b, q, k):
        return (k <= q) & (x[b, 0] >= 0)
    for dims in [(None, None, 0), (None, 0, None), (0, None, None)]:
        mask = torch.vmap(mask, in_dims=dims, out_dims=0)
    return mask(torch.arange(3), torch.arange(4), torch.arange(4))


@whole
def effects_inside(x):
    seen, total = [], torch.zeros(3, 4)

    def add(row, into):
        seen.append(row.shape)
        into.add_(row)
        print("one row of", len(row))
        return into
    vmap(add)(x, total)
    return total, seen


@whole
def forward_mode(x):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        return torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent


@pytest.mark.parametrize("fn", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("x", [X, G], ids=["plain", "grad"])
def test_a_transform_is_part_of_the_graph(fn, x):
    check(fn, x, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [gradients, products, jacobians, maps, gradients_per_sample, an_ensemble],
                         ids=lambda f: f.__name__)
def test_a_compiling_backend_takes_a_transform(fn):
    assert same(sot.to_static(fn, backend="aot_eager")(X), fn(X)) is None


def test_a_break_inside_moves_out_to_the_call_of_the_transform():
    def reads(x):
        y = x + 1
        try:
            z = vmap(lambda r: r * r.sum().item())(y)
        except RuntimeError:
            z = vmap(lambda r: r.sum())(y)
        return z * 2
    check(reads, X, graphs=2, breaks=1)
    check(lambda x: grad(lambda v: (v.sum() * v.sum().item()))(x * 2) + 1, X)


def misses(x, i):
    return vmap(lambda r: r[i])(x)


def misses_in_grad(x, i):
    return grad(lambda v: v.sin()[i].sum())(x)


def misses_in_jvp(x, i):
    return jvp(lambda v: v.index_select(0, i), (x,), (x,))


@pytest.mark.parametrize("fn", [misses, misses_in_grad, misses_in_jvp], ids=lambda f: f.__name__)
def test_an_error_of_values_leaves_no_level_behind(fn):
    check(fn, X, torch.tensor([0, 9]))
    assert torch._C._functorch.maybe_current_level() is None
    check(fn, X, torch.tensor([0, 1]), graphs=1, breaks=0)


def test_a_captured_function_is_left_to_python_inside_of_a_transform():
    f = sot.to_static(lambda x: vmap(torch.sin)(x) * 2)
    assert torch.allclose(f(X), torch.sin(X) * 2)
    assert torch.allclose(vmap(f)(X[None]), torch.sin(X[None]) * 2)
    assert torch.allclose(grad(lambda v: f(v).sum())(X), torch.cos(X) * 2)


@pytest.mark.parametrize("function", [
    torch.Tensor.acos_, lambda v: v, lambda v: v.add_(1), lambda v: (v, v.view(-1), v.detach()),
    torch.vmap(torch.sin_)])
def test_what_vmap_gives_back_is_the_tensor_that_it_got(function):
    def fn(x):
        found = torch.vmap(function)(x)
        return [y is x for y in (found if isinstance(found, tuple) else (found,))], found

    check(fn, torch.ones(4, 1))


# ---- levels of forward mode and of transforms, where capture or the backend stops
def breaks_in_forward_mode(x, k):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x * 2, torch.ones_like(x))
        y = (dual * k).sin()
        sot.graph_break()
        return forward_ad.unpack_dual(y * dual).tangent


def fails_in_forward_mode(x, k):
    try:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x * 2, torch.ones_like(x))
            return dual.reshape(5, k)
    except RuntimeError as e:
        return str(e), x + 1


def multiplied_by_a_number(x, k):
    return torch.vmap(lambda row: row.sum() * k)(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [breaks_in_forward_mode, fails_in_forward_mode, multiplied_by_a_number],
                         ids=lambda fn: fn.__name__)
def test_no_level_is_left_by_what_stops(fn, backend):
    """A break inside forward mode once left Python in a level that a graph had entered. A backend that failed inside of
    vmap left its level: torch's decomposition of a product with a number in it takes no symbol.
    """
    translated = sot.to_static(fn, backend=backend)
    for k in (2, 2, 3, 4, 5):
        assert not same(translated(X, k), fn(X, k))
        torch.rand(1)       # raises in a level of vmap
        with forward_ad.dual_level():       # raises in another
            pass


OVER_BATCHES = {
    "vmap": lambda w, x: vmap(lambda w, x: torch.tanh(F.linear(x, w)).sum())(w, x),
    "gradients of each": lambda w, x: vmap(grad(lambda w, x: torch.tanh(F.linear(x, w)).sum()), (0, None))(w, x[0]),
    "all pairs": lambda w, x: vmap(lambda a: vmap(lambda b: (a * b).sum())(x))(x),
    "draws": lambda w, x: vmap(lambda a: a + torch.rand(4), randomness="different")(x),
    "jacobian": lambda w, x: jacrev(lambda a: (a ** 2).sum(-1))(x)}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", OVER_BATCHES.values(), ids=OVER_BATCHES)
def test_batches_of_any_size_have_one_graph(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for size in (3, 5, 4, 7):
        w, x = torch.randn(size, 2, 4), torch.randn(size, 4)
        torch.manual_seed(0)
        want = fn(w, x)
        torch.manual_seed(0)
        torch.testing.assert_close(translated(w, x), want)
    assert len(sot.translation_of(translated).captures) == 2       # of the first size, and of any
