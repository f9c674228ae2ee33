"""Programs that put functions of their own in place of torch's, and call torch's from there."""
from __future__ import annotations

import pytest
import torch

import sot

method, function = torch.Tensor.add, torch.add


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
