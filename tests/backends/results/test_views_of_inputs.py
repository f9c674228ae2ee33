"""Results that are views of inputs, with backends that compile and sizes or numbers that vary."""
import pytest
import torch
from harness import Programs

import sot

viewing = Programs()


@viewing
def turned_and_cut(x, k):
    part = x.T[k:]
    part.mul_(2)
    return part, part * 3


@viewing
def cut_first(x, k):
    part = x.T
    part.mul_(2)
    return part[:, :1], part[k:]


@viewing
def at_a_number(x, k):
    column = x.T[:, k % 4]
    column.mul_(2)
    return column


@viewing
def of_a_view(x, k):
    part = x.T[k:]
    part.mul_(2)
    smaller = part[:, 1:]
    smaller.add_(1)
    return smaller, part


@viewing
def without_gradients(x, k):
    with torch.no_grad():
        part = x.T[k:]
        x.mul_(2)
    return part


@viewing
def of_two_inputs(x, k):
    part = x.T[k:]
    part.add_(part.sum())
    return x.view(-1)[k:], part, x


def seen_of_views(call, k, requires_grad):
    leaf = torch.arange(24.0).reshape(4, 6).requires_grad_(requires_grad)
    x = leaf * 1
    results = call(x, k)
    results = results if isinstance(results, tuple) else (results,)
    found = [(y.tolist(), y.stride(), y.storage_offset(), y._is_view(), y.requires_grad, y._version) for y in results]
    if requires_grad and all(y.requires_grad for y in results):
        try:
            sum((y * y).sum() for y in results).backward()
        except RuntimeError as e:       # of a view made without gradients
            found.append(str(e))
        found.append(leaf.grad is not None and leaf.grad.tolist())
    with torch.no_grad():
        for y in results:
            y.detach().add_(7)
    return found, x.tolist(), [y.tolist() for y in results]


@pytest.mark.parametrize("requires_grad", [False, True])
@viewing.each
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_view_of_a_changed_input_is_one(backend, fn, requires_grad):
    """Inductor lays out what it returns in its own way, and AOTAutograd took the strides for those of the view."""
    captured = sot.to_static(fn, backend=backend)
    for k in (2, 3, 4, 1):
        assert seen_of_views(captured, k, requires_grad) == seen_of_views(fn, k, requires_grad), k
    assert len(captured.captures) <= 3


def of_both(x, y):
    return y[:, 1:], x.T


def of_both_and_a_copy(x, y):
    return x[1:], y * 2, y[1:], y.clone(), x.clone()


@pytest.mark.parametrize("fn", [of_both, of_both_and_a_copy])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_views_of_arguments_that_share_memory(backend, fn):
    """Their fakes share none if a size varies, so the second one was taken for a copy that a compiler has removed."""
    captured = sot.to_static(fn, backend=backend)
    for rows in (4, 4, 5, 3):
        x = torch.arange(6.0 * rows).view(rows, 6)
        memory = [part.untyped_storage().data_ptr() for part in (x, *captured(x, x.T))]
        want = [part.untyped_storage().data_ptr() for part in (x, *fn(x, x.T))]
        assert [at == memory[0] for at in memory] == [at == want[0] for at in want]
        assert len(set(memory)) == len(set(want))


def test_a_backend_that_fails_for_symbols_gets_constants():
    """Inductor asserts what it cannot know of 4 * k == 0."""
    def part(x, k):
        return (x * 2)[:, :k].flatten() * 2
    captured = sot.to_static(part, backend="inductor")
    for k in (2, 3, 6, 1, 0, 2, 5, 0):
        x = torch.arange(24.0).reshape(4, 6)
        assert captured(x, k).tolist() == part(x, k).tolist(), k
