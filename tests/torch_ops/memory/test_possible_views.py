"""A result that is a view or a copy, depending on sizes that depend on data."""
import pytest
import torch
from harness import Programs

import sot

program = Programs()


@program
def part_as_a_row(x, k):
    row = x[:, :k.item()].reshape(-1)
    row.add_(1)
    return row


@program
def part_contiguous(x, k):
    part = x[:, :k.item()].contiguous()
    part.add_(1)
    return part


@program
def changed_by_its_caller(x, k):
    return x[:, :k.item()].reshape(-1)


@program
def part_of_a_row_flattened(x, k):
    part = x[0, k.item():]
    part.flatten().add_(1)
    return part


@program
def rows_flattened(x, k):
    rows = x[:, :k.item()].flatten(1)
    rows.add_(1)
    return rows


@program
def turned_part_in_its_own_shape(x, k):
    part = x.T[k.item():]
    part.reshape(-1, 4).add_(1)
    return part


@program
def of_a_result(x, k):
    part = (x * 2)[:, :k.item()]
    row = part.flatten(1)
    row.add_(1)
    return part, row


@program
def source_changed_later(x, k):
    part = x[:, :k.item()]
    row = part.reshape(-1)
    part.mul_(3)
    return row


@program
def strides(x, k):
    part = x[:, ::2][k.item():].reshape(-1, 3)
    turned = x.T[k.item():].reshape(2, -1) if k.item() % 2 == 0 else x
    return part.stride(), part.is_contiguous(), turned.is_contiguous(), (turned * 2).stride()


@program
def is_a_view(x, k):
    row = (x * 2)[:, :k.item()].flatten()
    return row * 2, row._is_view()


@program
def viewed_after_a_change(x, k):
    rows = x[:, ::2][:k.item()].reshape(3, -1) if k.item() == 3 else x[:k.item(), ::2].reshape(1, -1)
    x.add_(1)
    return rows.view(-1)


KS = (2, 3, 6, 1, 0, 4)


def observed(call, k):
    x = torch.arange(24.0).reshape(4, 6)
    try:
        result = call(x, torch.tensor(k))
    except (RuntimeError, IndexError) as e:
        return type(e), x.tolist()
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, torch.Tensor):
            part.add_(7)        # what its caller does shows in what has the same memory
    return repr(result), x.tolist()


@program.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_possible_view_is_what_it_is_in_the_program(backend, fn):
    captured = sot.to_static(fn, backend=backend)
    for k in (*KS, *KS):
        assert observed(captured, k) == observed(fn, k), k
