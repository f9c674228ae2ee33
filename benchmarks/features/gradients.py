"""``torch.autograd`` and ``torch.func``."""
from __future__ import annotations

import functools

import torch
import torch.autograd.forward_ad as fwAD
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from .modules import with_
from .program import Group, leaf

autograd = Group("torch.autograd", leaf)


@autograd
def gradients_asked(x):
    y = x.sin().sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, retain_graph=True)
    return g, h


@autograd
def backward_with_arguments(x):
    y = x * 2
    y.backward(torch.ones_like(y), retain_graph=True)
    y.sum().backward()
    return x.grad.clone()


@autograd
def gradients_zeroed(x):
    (x ** 2).sum().backward()
    a = x.grad.clone()
    x.grad.zero_()
    (x ** 3).sum().backward()
    return a, x.grad


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        y = (x * k).exp()
        ctx.save_for_backward(y)
        ctx.k = k
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * ctx.k, None


@autograd
def a_function_of_ones_own(x):
    return Exp.apply(x, 2.0)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable()
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g):
        return g


@autograd
def straight_through(x):
    return Straight.apply(x) * 2, (x.round() - x).detach() + x


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y, i = x.sort(-1)
        ctx.mark_non_differentiable(i)
        ctx.save_for_backward(i)
        return y, i

    @staticmethod
    def backward(ctx, g, _):
        (i,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, i, g)


@autograd
def a_function_with_two_results(x):
    y, i = Sorted.apply(-x)
    return y * 2, i


@autograd
def a_double_backward(x):
    y = Exp.apply(x, 1.0).sum()
    g, = torch.autograd.grad(y, x, create_graph=True)
    return (g ** 2).sum()


@autograd
def saved_tensors_packed(x):
    def pack(t):
        return t.half()

    def unpack(t):
        return t.float()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return x.sin() * x


@autograd
def saved_on_the_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        return x.exp() * x


@autograd
def hooks_of_several_gradients(x):
    y, z, seen = x.sin(), x.cos(), []
    handle = torch.autograd.graph.register_multi_grad_hook((y, z), lambda gs: seen.append(len(gs)))
    (y * z).sum().backward()
    handle.remove()
    return seen, x.grad


@autograd
def jacobians(x):
    return torch.autograd.functional.jacobian(torch.sin, x[0].detach()), torch.autograd.functional.hessian(
        lambda v: (v ** 3).sum(), x[0].detach()), torch.autograd.functional.vjp(torch.exp, x.detach(), x.detach())[1]


@autograd
def forward_mode(x):
    with fwAD.dual_level():
        dual = fwAD.make_dual(x.detach(), torch.ones_like(x))
        value, tangent = fwAD.unpack_dual(dual.sin() * dual)
    return value, tangent


@autograd
def anomalies_detected(x):
    with torch.autograd.detect_anomaly(check_nan=False):
        (x.sqrt() * 2).sum().backward()
    return torch.is_anomaly_enabled(), x.grad[1]


@autograd
def nodes_walked(x):
    y = (x * 2).sin()
    node, names = y.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return y, names


@autograd
def gradients_checked(x):
    v = x.detach().double().requires_grad_()
    return torch.autograd.gradcheck(torch.sin, (v,)), x * 2


@autograd
def unused_inputs(x):
    w = torch.ones(4, requires_grad=True)
    a, b = torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=True)
    return a, b, torch.autograd.grad((x * 2).sum(), [x, w], allow_unused=True, materialize_grads=True)


@autograd
def batched_gradients(x):
    y = x[0] ** 2
    return torch.autograd.grad(y, x, torch.eye(4), is_grads_batched=True)


@autograd
def modes_as_decorators(x):
    @torch.no_grad()
    def frozen(v):
        return v * 2

    @torch.enable_grad()
    def live(v):
        return v * 3
    with torch.no_grad():
        return frozen(x).requires_grad, live(x).requires_grad, (live(x) + 1)


@autograd
def multithreading_off(x):
    with torch.autograd.set_multithreading_enabled(False):
        x.exp().sum().backward()
    return x.grad


@autograd
def errors_of_autograd(x):
    try:
        x.add_(1)
    except RuntimeError as e:
        return str(e), x * 2


@autograd.of(with_(lambda: nn.Linear(4, 1)))
def a_gradient_penalty(m, x):
    out = m(x.sin())
    g, = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = ((g.norm(dim=1) - 1) ** 2).mean()
    loss.backward()
    return loss.detach(), m.weight.grad


func = Group("torch.func")


@func
def grad_of_a_function(x):
    return (
        grad(lambda v: v.sin().sum())(x), grad(grad(lambda v: v ** 3))(x[1, 1]),
        grad(lambda a, b: (a * b).sum(), (0, 1))(x, x))


@func
def grad_with_a_value_and_more(x):
    def loss(v, k):
        y = v * k
        return y.sum(), {"mean": y.mean()}
    return grad_and_value(loss, has_aux=True)(x, 2.0)


@func
def vector_jacobian_products(x):
    y, pull = vjp(torch.sin, x)
    return y, pull(torch.ones_like(y))[0], vjp(lambda a, b: (a * b, a + b), x, x)[0]


@func
def jacobian_vector_products(x):
    return jvp(lambda v: v.exp() * v, (x,), (torch.ones_like(x),))


@func
def jacobians_of_functions(x):
    return jacrev(torch.sin)(x[0]), jacfwd(lambda v: v ** 2)(x[0]), hessian(lambda v: (v ** 3).sum())(x[0])


@func
def vmaps(x):
    return vmap(lambda a, b: a @ b, in_dims=(0, None))(x, torch.ones(4)), vmap(vmap(torch.sin))(x), vmap(
        lambda d: d["a"] * 2, in_dims=({"a": 0},))({"a": x}), vmap(lambda v: v.sum(), out_dims=0, chunk_size=2)(x)


@func
def vmaps_that_draw(x):
    return (
        vmap(lambda v: v + torch.rand(4), randomness="different")(x),
        vmap(lambda v: v + torch.rand(4), randomness="same")(x))


@func.of(with_(lambda: nn.Linear(4, 2)))
def gradients_per_sample(m, x):
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(p, row):
        return functional_call(m, p, (row,)).square().sum()
    return vmap(grad(loss), in_dims=(None, 0))(params, x.detach())


@func.of(lambda: (*with_(lambda: nn.Linear(4, 2))()[:1], *with_(lambda: nn.Linear(4, 2), tuple)(), torch.ones(3, 4)))
def ensembles(a, b, x):
    params, buffers = stack_module_state([a, b])

    def run(p, s, v):
        return functional_call(a, (p, s), (v,))
    return vmap(run, (0, 0, None))(params, buffers, x)


@func.of(with_(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))))
def batch_norms_replaced(m, x):
    torch.func.replace_all_batch_norm_modules_(m)
    return m(x), m[1].track_running_stats


@func
def functionalized(x):
    def f(v):
        y = v.clone()
        y.add_(1)
        y.view(-1)[0] = 5
        return y
    return torch.func.functionalize(f)(x), torch.func.functionalize(f, remove="mutations_and_views")(x)


@func
def linearized(x):
    y, push = linearize(torch.sin, x)
    return y, push(torch.ones_like(x)), push(x)


@func
def inner_gradient_steps(x):
    def inner(w):
        return ((x @ w - 1) ** 2).mean()

    def outer(w):
        for _ in range(3):
            w = w - 0.1 * grad(inner)(w)
        return inner(w)
    return grad(outer)(torch.ones(4))


@func
def partials_and_lambdas(x):
    scaled = functools.partial(torch.mul, other=2)
    return grad(lambda v: scaled(v).sum())(x), vmap(functools.partial(torch.add, alpha=2), in_dims=(0, None))(x, x[0])


@func
def hessian_vector_products(x):
    def f(v):
        return (v ** 4).sum()
    return jvp(grad(f), (x,), (torch.ones_like(x),))[1], vmap(jacrev(torch.sin))(x).shape
