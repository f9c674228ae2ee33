"""Numbers that are read off tensors, and computations with them that raise for some values, whether used or not."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, caught, same

import sot

VALUES = 1.0, 2.0, 0.0, float("nan"), 3.0, float("inf")
program = Programs()


@program
def whole(x):
    n = int(x.sum())  # noqa: F841
    return x * 2


@program
def quotient(x):
    n = 7 // int(x.sum())  # noqa: F841
    return x * 2


@program
def share(x):
    n = 1 / x.sum().item()  # noqa: F841
    return x * 2


@program
def remainder_before_a_change(x):
    n = 7 % x.sum().item()  # noqa: F841
    x += 1


@program
def before_a_draw(x):
    n = int(x.max())  # noqa: F841
    return x + torch.rand(2)


@program
def with_gradients(x):
    w = x.detach().requires_grad_()
    n = int(x.sum())  # noqa: F841
    return torch.autograd.grad((w * x).sin().sum(), w)


@program
def before_a_seed(x):
    n = int(x.sum())  # noqa: F841
    torch.manual_seed(3)
    return x + torch.rand(2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@program.each
def test_an_exception_of_a_number_that_is_not_used(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for value in VALUES:
        results = []
        for call in translated, fn:
            torch.manual_seed(0)
            x = torch.tensor([0.0, value])
            results.append((caught(call, x), x, torch.rand(1)))
        assert same(*results) is None, value
    assert len(translated.captures) <= 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("extreme", [
    lambda x, r: max(r, r, x.sum().item()), lambda x, r: min(2.0, r, x.sum().item()),
    lambda x, r: max(0.0, 1.0, float(x.sum()), r), lambda x, r: torch.zeros(2).fill_(max(r, 2.0, x.sum().item()))])
def test_the_extreme_of_known_numbers_and_one_that_is_read(extreme, backend):
    translated = sot.to_static(extreme, backend=backend)
    for r in (0.5, 7.5, float("nan"), -0.0, 0.0, 9.0):
        assert repr(translated(torch.arange(4.0), r)) == repr(extreme(torch.arange(4.0), r))
