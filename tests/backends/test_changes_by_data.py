"""Changes by way of ``.data``, with backends that compile: they change the memory of a tensor, and not its version."""
from __future__ import annotations

import pytest
import torch
from harness import same

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
