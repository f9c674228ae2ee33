"""Programs that put functions of their own in place of torch's, and call torch's from there."""
from __future__ import annotations

import pytest
import torch

import sot

method, function, einsum = torch.Tensor.add, torch.add, torch.einsum


def program(x):
    return x + 1, x.add(1), 1 + x, torch.add(x, 1), method(x, 1), function(x, 1), x * 2


def tenfold(original):
    return lambda tensor, other, *args, **kwargs: original(tensor, other * 10, *args, **kwargs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("owner", "name"), [(torch.Tensor, "add"), (torch.Tensor, "__add__"), (torch, "add")])
def test_each_is_called_once(owner, name, backend, monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")
    translated, x = sot.to_static(program, backend=backend), torch.ones(2)
    torch.testing.assert_close(translated(x), program(x))
    with monkeypatch.context() as replaced:
        replaced.setattr(owner, name, tenfold(getattr(owner, name)))
        for _ in range(2):
            torch.testing.assert_close(translated(x), program(x))
    torch.testing.assert_close(translated(x), program(x))


@pytest.mark.parametrize(("module", "name", "backend"), [
    (torch, "add", "eager"), (torch, "add", "aot_eager"), (torch.functional, "einsum", "eager")])
def test_a_function_that_the_program_holds_stays_torchs(module, name, backend, monkeypatch):
    def held(x):
        return function(x, 1), einsum("i,i->", x, x)

    translated, x, called = sot.to_static(held, backend=backend), torch.ones(2), []
    translated(x)
    with monkeypatch.context() as replaced:
        replaced.setattr(module, name, called.append)
        for _ in range(2):
            torch.testing.assert_close(translated(x), held(x))
    assert called == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_in_place_of_torchs_that_calls_it_is_followed(backend, monkeypatch):
    original = torch.index_select

    def select(input, dim, index):
        return original(input, dim, index) + 1

    def program(x, index):
        return torch.index_select(x, 0, index) * 2

    monkeypatch.setattr(torch, "index_select", select)
    x, index = torch.arange(4.0), torch.tensor([2, 0])
    translated = sot.to_static(program, backend=backend, full_graph=True)
    assert torch.equal(translated(x, index), torch.tensor([6.0, 2.0]))
    monkeypatch.undo()
    assert torch.equal(translated(x, index), torch.tensor([4.0, 0.0]))
