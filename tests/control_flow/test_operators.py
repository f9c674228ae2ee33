"""scan, associative_scan and map in a captured function: operators of the graph, with gradients."""
from __future__ import annotations

import pytest
import torch
from harness import Counter, Programs, tensors
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan

import sot
from sot.support.errors import CaptureError

programs = Programs()
torch.manual_seed(0)
CELL, WEIGHT = nn.Linear(4, 4), nn.Parameter(torch.randn(4))


@programs
def sums(x):
    return scan(lambda carry, row: (carry + row, (carry * row).sin()), torch.zeros(4), x)


@programs
def a_cell(x):
    return scan(lambda carry, row: (torch.tanh(CELL(carry) + row), carry.clone()), x.mean(0), x.sin())


@programs
def containers(x):
    def step(carry, row):
        h = carry["h"] * 0.5 + row["x"] * 2
        return {"h": h}, [h.cos(), row["x"].clone()]
    return scan(step, {"h": torch.zeros(4)}, {"x": x}, reverse=True)


@programs
def along_columns(x):
    return scan(lambda carry, column: (carry + column, carry * column), torch.zeros(5), x, dim=1)


@programs
def in_parallel(x):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]
    return associative_scan(combine, (x.sigmoid(), x), 0, combine_mode="generic", reverse=True)


@programs
def each_row(x):
    return map_rows(lambda row, k: (row * k).sin(), x, torch.ones(4)) * WEIGHT


@programs
def each_pair_of_rows(x):
    return map_rows(lambda rows: (rows[0] + rows[1], rows[0].sum()), (x, x.cos()))


def seen(fn, x):
    x = x.clone().requires_grad_()
    WEIGHT.grad = CELL.weight.grad = None
    found = [*tensors(fn(x))]
    sum(t.sum() for t in found).backward()
    return [*found, x.grad, WEIGHT.grad, CELL.weight.grad]


@pytest.mark.slow
@programs.each
@pytest.mark.parametrize("compiles", [False, True])
def test_one_graph_has_results_and_gradients_of_pytorch(fn, compiles):
    if compiles and fn is containers:
        pytest.skip("AOTAutograd refuses it, also for torch.compile")
    counter = Counter()
    translated = sot.to_static(fn, backend="aot_eager" if compiles else counter, full_graph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(5, 4)
        for got, want in zip(seen(translated, x), seen(fn, x), strict=True):
            assert got is want is None or torch.allclose(got, want, rtol=0, atol=1e-6 if compiles else 0)
    assert len(sot.translation_of(translated).captures) == 1
    name = {"in_parallel": "vmap", "each_row": "map_impl", "each_pair_of_rows": "map_impl"}.get(fn.__name__, "scan")
    assert compiles or name in str(counter.graphs[0].code)


def a_result_that_is_an_operand(x):
    return scan(lambda carry, row: (carry + row, row), torch.zeros(4), x)


def a_function_that_changes_an_object(x):
    return map_rows(lambda row: CALLS.append(1) or row.sin(), x)


CALLS = []


@pytest.mark.parametrize("fn", [a_result_that_is_an_operand, a_function_that_changes_an_object])
def test_what_torch_refuses_is_left_to_torch(fn):
    with pytest.raises(CaptureError, match="operand|changes"):
        sot.to_static(fn, backend="eager", full_graph=True)(torch.randn(5, 4))
    CALLS.clear()
