"""Hooks of modules that a captured function adds and removes."""
from __future__ import annotations

import pytest
import torch
from harness import check
from torch.utils.hooks import RemovableHandle

import sot

X = torch.arange(6.0).reshape(2, 3)


def doubled(module, args, out):
    return out * 2


def added_and_removed(m, x):
    seen = []
    handle = m.register_forward_hook(lambda module, args, out: seen.append(out.shape) or out * 2)
    y = m(x)
    handle.remove()
    return y + m(x), seen


def before(m, x):
    handle = m.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    y = m(x)
    handle.remove()
    return y


def with_block(m, x):
    with m.register_forward_hook(doubled):
        return m(x)


def two(m, x):
    first = m.register_forward_hook(doubled)
    second = m.register_forward_hook(lambda module, args, out: out + 1, prepend=True)
    y = m(x)
    first.remove()
    z = m(x)
    second.remove()
    second.remove()
    return y, z


@pytest.mark.parametrize("fn", [added_and_removed, before, with_block, two])
def test_a_hook_for_the_time_of_a_call(fn):
    torch.manual_seed(0)
    check(fn, torch.nn.Linear(3, 3), X, graphs=1, breaks=0)


def test_a_hook_that_stays():
    def add(m, x):
        return m.register_forward_hook(doubled), m(x)
    module = torch.nn.Linear(3, 3)
    translated = sot.to_static(add, backend="eager")
    plain = module(X)
    first, y = translated(module, X)
    assert torch.equal(y, plain * 2) and torch.equal(module(X), plain * 2)
    assert list(module._forward_hooks) == [first.id] and isinstance(first, RemovableHandle)
    first.remove()
    assert torch.equal(module(X), plain)
    assert translated.captures[0].stopped is None


def test_every_handle_has_a_number_of_its_own():
    translated = sot.to_static(added_and_removed, backend="eager")
    for _ in range(2):
        before = RemovableHandle.next_id
        translated(torch.nn.Linear(3, 3), X)
        assert RemovableHandle.next_id == before + 1


def test_a_handle_from_outside_is_removed_by_python():
    module = torch.nn.Linear(3, 3)

    def remove(m, handle, x):
        handle.remove()
        return m(x)
    translated = sot.to_static(remove, backend="eager")
    plain = module(X)
    for _ in range(3):
        assert torch.equal(translated(module, module.register_forward_hook(doubled), X), plain)
    assert translated.captures[0].stopped.reason.name == "SIDE_EFFECT"
