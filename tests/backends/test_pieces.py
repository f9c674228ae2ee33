"""Graphs with operations that only PyTorch can run: a backend that compiles gets what lies between them."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from functorch.compile import aot_module_simplified, make_boxed_func
from harness import Programs, tensors
from torch.utils.checkpoint import checkpoint

import sot
from sot.backends import lookup_backend

programs = Programs()
torch.manual_seed(0)
LINEAR = torch.nn.Linear(3, 3)
G = torch.Generator()


@programs
def a_generator(x):
    return (x * 2).sin() + torch.rand(3, generator=G)


@programs
def a_seed(x):
    y = x.cos() * 2
    torch.manual_seed(3)
    return y + torch.rand(3)


@programs
def arrays(x):
    return (x * torch.from_numpy(np.cos(np.arange(3.0, dtype=np.float32)))).cos()


@programs
def a_checkpoint_that_draws_anew(x):
    return checkpoint(lambda v: torch.nn.functional.dropout(v.sin(), 0.5) @ LINEAR.weight, x.cos(), use_reentrant=False,
                      preserve_rng_state=False) * 2


@programs
def views_that_are_changed(x):
    y = x.sin()
    first = y[:2]
    torch.manual_seed(1)
    first.add_(torch.rand(2))
    return y, first


@programs
def gradients_off_for_a_part(x):
    with torch.no_grad():
        y = x.sin() * 2
        torch.manual_seed(3)
        z = torch.rand(3) * y
    return (z * LINEAR.weight).cos(), z


@programs
def gradients_off_up_to_arrays(x):
    with torch.no_grad():
        y = torch.from_numpy(np.cos((x * 2).sin().numpy())) * 2
    return y * x.cos()


@programs
def gradients_on_again(x):
    torch.set_grad_enabled(False)
    y = x.sin() * torch.rand(3, generator=G)
    torch.set_grad_enabled(True)
    return (x * y).sin(), (y * LINEAR.weight).sin()


def seen(f):
    x = torch.linspace(0, 1, 3).requires_grad_()
    LINEAR.zero_grad()
    G.manual_seed(1)
    torch.manual_seed(1)
    found = [*tensors(f(x))]
    sum(t.sum() for t in found).backward()
    return [*found, x.grad, LINEAR.weight.grad, torch.rand(2), torch.rand(2, generator=G)]


@programs.each
def test_what_lies_between_is_compiled(fn):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return lookup_backend("aot_eager")(gm, inputs)
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for _ in range(2):
        torch.testing.assert_close(seen(translated), seen(fn))
        count = len(graphs)
    assert count == len(graphs) > 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_may_vary(dynamic):
    def fn(x):
        return (x.sin() * torch.from_numpy(np.arange(3.0, dtype=np.float32))).sum(0) * x.shape[0]

    translated = sot.to_static(fn, backend="aot_eager", dynamic=dynamic)
    for n in range(2, 7):
        x = torch.randn(n, 3)
        torch.testing.assert_close(translated(x), fn(x))
    assert not any(capture.stopped for capture in translated.captures) and len(translated.captures) <= 2


def test_a_generator_that_a_backend_would_trace_is_left_to_pytorch():
    """The tracer of torch 2.13 reads memory out of bounds for a random generator."""
    def fn(x):
        return (x * 2).sin() + torch.rand(3, generator=G) * torch.empty(3).uniform_(generator=G)

    def backend(gm, inputs):
        return aot_module_simplified(gm, inputs, fw_compiler=lambda graph, _: make_boxed_func(graph.forward))
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for _ in range(2):
        torch.testing.assert_close(seen(translated), seen(fn))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_may_be_on_for_a_part(grad, dynamic):
    def fn(x):
        y = x.sin() * torch.from_numpy(np.arange(3.0, dtype=np.float32))
        with torch.enable_grad():
            z = torch.from_numpy(np.arange(3.0, dtype=np.float32)) * (x * LINEAR.weight.sum()).cos()
            u = z * 2
        return y, z, u, u * 2

    translated = sot.to_static(fn, backend="aot_eager", dynamic=dynamic)
    with torch.set_grad_enabled(grad):
        for n in range(2, 5):
            x = torch.randn(n, 3)
            want, got = fn(x), translated(x)
            torch.testing.assert_close(got, want)
            assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
            gradients = [torch.autograd.grad(found[2], LINEAR.weight, x.detach()) for found in (got, want)]
            torch.testing.assert_close(*gradients)
            assert torch.is_grad_enabled() is grad
    assert not any(capture.stopped for capture in translated.captures)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_pieces_are_no_modules_to_hooks_of_all_modules(backend):
    def program(x):
        y = x * 2
        torch.manual_seed(3)        # no piece: it is left to PyTorch
        return y + torch.rand(3)
    seen = []
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *called: seen.append(called))
    try:
        translated = sot.to_static(program, backend=backend)
        for _ in range(2):
            assert torch.equal(translated(torch.ones(3)), program(torch.ones(3)))
    finally:
        handle.remove()
    assert not seen


def test_a_piece_that_fails_adds_no_hook_and_prints_nothing(capfd):
    def fn(x, weight):
        weight.register_hook(lambda grad: grad * 2)
        if x.sum() > 0:
            raise ValueError("positive")
        return x * weight

    translated, weight = sot.to_static(fn, backend="aot_eager"), torch.ones(3, requires_grad=True)
    for hooks, x in enumerate((torch.zeros(3), torch.zeros(3), torch.ones(3), torch.ones(3)), start=1):
        if x.sum() > 0:
            with pytest.raises(ValueError, match="positive"):
                translated(x, weight)
        else:
            assert torch.equal(translated(x, weight), x)
        assert len(weight._backward_hooks) == hooks
    assert capfd.readouterr().err == ""
