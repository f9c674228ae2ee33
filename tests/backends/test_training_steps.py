"""Training steps in captured functions, with a backend that compiles: what the program sees is what plain Python gives.

Each form is a function that takes how to translate a step, runs it a few times and answers all that can be told from
outside: losses, parameters, gradients, and what a second backward pass raises.
"""
from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.nn.functional as F
from harness import Programs, every_call
from torch import nn

import sot

forms, in_one_graph = Programs(), Programs()
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(i: int = 0, requires_grad: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = torch.randn(4, 9, generator=torch.Generator().manual_seed(i)).split((6, 3), dim=1)
    return x.contiguous().requires_grad_(requires_grad), y.contiguous()


def again(tensor: torch.Tensor, **kwargs: Any) -> str:
    """What another backward pass raises."""
    try:
        tensor.sum().backward(**kwargs)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def grads(m: nn.Module) -> list:
    return [p.grad for p in m.parameters()]


@forms
@in_one_graph
def the_loss_is_returned(translate):
    m = model()

    def step(x, y):
        m.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss
    step = translate(step)
    losses = [step(*batch(i)) for i in range(3)]
    return losses, grads(m), [(v.requires_grad, again(v)) for v in losses]


@forms
@in_one_graph
def the_logits_are_returned(translate):
    m = model()

    def step(x, y):
        m.zero_grad(set_to_none=False)
        out = m(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        return loss.detach(), out, out[0], out.view(-1)
    step = translate(step)
    got = [v for i in range(3) for v in step(*batch(i))]
    return got, grads(m), [v.requires_grad and again(v) for v in got]


@forms
def gradients_of_single_parameters_after_it(translate):
    m = model()

    def step(x, y):
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss
    loss, found = translate(step)(*batch()), []
    for p in m.parameters():
        try:
            found += torch.autograd.grad(loss, [p], allow_unused=True)
        except RuntimeError as error:
            found.append(str(error))
    return found, grads(m)


@forms
def the_loss_is_logged(translate):
    m, log = model(), []
    optimizer = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        log.append(round(loss.item(), 4))
        optimizer.step()
        print(f"loss {loss.item():.3f}")
        return float(loss.detach())
    step = translate(step)
    return [round(step(*batch(i)), 4) for i in range(3)], log, [*m.parameters()]


@forms
def a_sum_of_losses(translate):
    m, batches = model(), [batch(i) for i in range(3)]
    optimizer = torch.optim.SGD(m.parameters(), 0.1)

    def epoch():
        total = 0.0
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            optimizer.step()
            total = total + loss
        return total
    epoch = translate(epoch)
    total = epoch()
    return total, epoch().detach(), [*m.parameters()], again(total)


@forms
@in_one_graph
def two_losses(translate):
    m, n = model(), model()

    def step(x, y):
        m.zero_grad()
        n.zero_grad()
        h = m(x)
        a, b, c = F.mse_loss(h, y), h.abs().mean(), n(x).square().sum()
        a.backward(retain_graph=True)
        b.backward()
        c.backward()
        return a, b, c
    step = translate(step)
    losses = [v for i in range(2) for v in step(*batch(i))]
    return losses, grads(m), grads(n), [*map(again, losses)]


@forms
def two_optimizers(translate):
    torch.manual_seed(0)
    g, d = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_g, of_d = torch.optim.SGD(g.parameters(), 0.1), torch.optim.SGD(d.parameters(), 0.1)

    def step(x, z):
        of_d.zero_grad()
        made = g(z)
        of_real, of_made = d(x), d(made.detach())
        real = F.softplus(-of_real).mean() + F.softplus(of_made).mean()
        real.backward()
        of_d.step()
        of_g.zero_grad()
        fooled = F.softplus(-d(made)).mean()
        fooled.backward()
        of_g.step()
        return real, fooled
    step = translate(step)
    return [step(*batch(i)) for i in range(3)], [*g.parameters()], [*d.parameters()], grads(d)


@forms
@in_one_graph
def a_gradient_penalty(translate):
    m = model()

    def step(x):
        m.zero_grad()
        out = m(x).sum()
        (g,) = torch.autograd.grad(out, x, create_graph=True)
        loss = ((g.norm(2, dim=1) - 1) ** 2).mean() + out * 0.01
        loss.backward()
        return loss, g
    step = translate(step)
    got = [v for i in range(2) for v in step(batch(i, requires_grad=True)[0])]
    return got, grads(m), [*map(again, got)]


@forms
@in_one_graph
def backward_that_can_be_differentiated(translate):
    m = model()

    def step(x, y):
        m.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward(create_graph=True)
        penalty = sum((p.grad ** 2).sum() for p in m.parameters())
        return torch.autograd.grad(penalty, [*m.parameters()])
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], [(p.grad, p.grad.requires_grad) for p in m.parameters()]


@forms
@in_one_graph
def micro_batches(translate):
    m = model()

    def step(x, y):
        m.zero_grad()
        total = 0
        for a, b in zip(x.split(2), y.split(2)):
            loss = F.mse_loss(m(a), b) / 2
            loss.backward()
            total += loss.detach()
        return total
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m)


@forms
def gradients_of_some_calls_are_summed(translate):
    m = model()
    optimizer = torch.optim.SGD(m.parameters(), 0.1)

    def step(i, x, y):
        loss = F.mse_loss(m(x), y) / 2
        loss.backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
        return loss
    step = translate(step)
    return [step(i, *batch(i)) for i in range(4)], [*m.parameters()]


@forms
@in_one_graph
def what_is_kept_can_be_used_once_more(translate):
    m = model()

    def step(x, y):
        loss = F.mse_loss(m(x), y)
        loss.backward(retain_graph=True)
        return loss
    step = translate(step)
    losses = [step(*batch(i)) for i in range(2)]
    return losses, [(again(v), again(v)) for v in losses], grads(m)


@forms
@in_one_graph
def nothing_is_saved_so_nothing_is_freed(translate):
    w = nn.Parameter(torch.ones(3))

    def step(x):
        loss = (w + x).sum()
        loss.backward()
        return loss
    step = translate(step)
    losses = [step(torch.ones(3)) for _ in range(2)]
    return losses, [again(v) for v in losses], w.grad


@forms
@in_one_graph
def a_frozen_part_and_autocast(translate):
    m = model()
    m[0].requires_grad_(False)

    def step(x, y):
        m.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(m(x).float(), y)
        loss.backward()
        return loss
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m)


@forms
def hooks_of_tensors_and_modules(translate):
    m, seen = model(), []
    m[0].weight.register_hook(lambda g: g * 0.5)
    m[2].register_full_backward_hook(lambda module, before, after: seen.append(after[0].sum()))

    def step(x, y):
        m.zero_grad()
        h = m[0](x)
        h.register_hook(lambda g: g.clamp(-0.1, 0.1))
        loss = F.mse_loss(m[2](h.tanh()), y)
        loss.backward()
        return loss
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m), seen


@forms
def a_hook_that_takes_the_step(translate):
    m = model()

    @torch.no_grad()
    def update(p):
        p.sub_(p.grad, alpha=0.1)
        p.grad = None
    for p in m.parameters():
        p.register_post_accumulate_grad_hook(update)

    def step(x, y):
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], [*m.parameters()]


@forms
def a_gradient_scaler(translate):
    m = model()
    optimizer, scaler = torch.optim.SGD(m.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=128.0)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(m(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], [*m.parameters()], scaler.get_scale()


@forms
@in_one_graph
def no_sync(translate):
    m = model()
    m.sync = True

    @contextlib.contextmanager
    def no_sync():
        before, m.sync = m.sync, False
        try:
            yield
        finally:
            m.sync = before

    def step(x, y):
        m.zero_grad()
        with no_sync():
            F.mse_loss(m(x), y).backward()
        loss = F.mse_loss(m(x * 2), y)
        loss.backward()
        return loss
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m), m.sync


@forms
def a_second_time_in_the_function(translate):
    m = model()

    def step(x, y):
        m.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)
        return "nothing"
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m)


@forms
def what_has_a_history_is_written_to_a_buffer(translate):
    m, seen = model(), torch.zeros(4, 3)

    def step(x, y):
        m.zero_grad()
        out = m(x)
        seen.copy_(out)
        loss = F.mse_loss(out, y)
        loss.backward()
        return loss
    step, found = translate(step), []
    for i in range(2):
        found += [step(*batch(i)), seen.requires_grad, again(seen)]
        seen.detach_()
    return found, grads(m)


@forms
def a_break_after_backward(translate):
    m = model()

    def step(x, y):
        m.zero_grad()
        out = m(x)
        loss = F.mse_loss(out, y)
        loss.backward()
        right = int((out.argmax(1) == y.argmax(1)).sum())
        return [0] * right, loss, out
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m)


@forms
def a_part_is_frozen_and_thawed(translate):
    g, d = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
    torch.manual_seed(0)
    for p in (*g.parameters(), *d.parameters()):
        nn.init.normal_(p)

    def step(x, z):
        made = g(z)
        d.requires_grad_(False)
        g.zero_grad()
        fooled = F.softplus(-d(made)).mean()
        fooled.backward()
        for p in d.parameters():
            p.requires_grad = True
        d.zero_grad()
        found = F.softplus(-d(x)).mean() + F.softplus(d(made.detach())).mean()
        found.backward()
        return fooled.detach(), found.detach()
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(g), grads(d), [p.requires_grad for p in d.parameters()]


@forms
def the_gradient_of_an_intermediate_is_kept(translate):
    m = model()

    def step(x, y):
        h = m[0](x)
        h.retain_grad()
        loss = F.mse_loss(m[2](h.tanh()), y)
        loss.backward()
        return loss.detach(), h.grad
    step = translate(step)
    return [step(*batch(i)) for i in range(2)], grads(m)


def agree(got: Any, want: Any) -> None:
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, **TOLERANCE)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            agree(g, w)
    else:
        assert got == want


@forms.each
def test_a_step_is_what_plain_python_gives(fn, capsys):
    want = fn(lambda step: step)
    printed = capsys.readouterr().out
    whole = fn in in_one_graph.all
    agree(fn(lambda step: sot.to_static(step, backend=every_call("aot_eager"), full_graph=whole)), want)
    assert capsys.readouterr().out == printed


def test_what_compiles_the_backward_pass_is_not_translated():
    """It runs when autograd calls it, while the hook asks for the program's frames."""
    def step(x, y):
        loss = F.mse_loss(m(x), y)
        print("backward")
        loss.backward()
    m = model()
    step = sot.to_static(step, backend=every_call("aot_eager"))
    step(*batch())
    names = {capture.name.rpartition(".")[2] for capture in sot.translation_of(step).captures}
    assert names == {"step"}, names


def test_the_eager_backend_keeps_autograds_own_nodes():
    m = model()

    def step(x, y):
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss
    assert type(sot.to_static(step, backend="eager")(*batch()).grad_fn) is type(step(*batch()).grad_fn)
