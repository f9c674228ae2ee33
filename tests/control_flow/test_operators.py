"""scan, associative_scan and map in a captured function: operators of the graph, with gradients."""
from __future__ import annotations

import pytest
import torch
from harness import Counter, Programs, same, tensors
from torch import nn
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

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


# ---- torch.cond ---------------------------------------------------------------------------------------------------
def sides_of_two_tensors(x, y):
    return torch.cond(x.sum() > 0, lambda: x * 2, lambda: y * 3)


def a_result_without_a_history(x, y):
    one, two = torch.cond(x.sum() > 0, lambda a: (a * 2, torch.ones(3)), lambda a: (y + a, torch.zeros(3)), (x,))
    return one, two.add_(1)


def a_side_without_a_history(x, y):
    return torch.cond(x.sum() > 0, lambda: torch.ones(3), lambda: y * 3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [sides_of_two_tensors, a_result_without_a_history, a_side_without_a_history])
def test_cond_has_a_gradient_of_each_operand_whichever_side_is_taken(fn, backend, sign):
    """torch.cond gives zeros for what the side that was not taken has used; an ``if`` gives none."""
    def seen(fn):
        x, y = (torch.full((3,), sign, requires_grad=True) for _ in range(2))
        results = [*tensors(fn(x, y))]
        torch.stack(results).sum().backward()
        return [*results, x.grad, y.grad], [t.requires_grad for t in results]
    assert same(seen(sot.to_static(fn, backend=backend, full_graph=True)), seen(fn)) is None


# ---- while_loop ---------------------------------------------------------------------------------------------------
def nested_containers(x):
    return while_loop(lambda i, state, n: i < n, lambda i, state, n: [i + 1, {
        "a": state["a"] * 2, "b": (state["b"][0] + i,)}, n], (torch.tensor(0), {"a": x, "b": (x + 1,)}, 3))


def a_list(x):
    return while_loop(lambda i, y: i < 3, lambda i, y: [i + 1, y * 1.5], [torch.tensor(0), x])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [nested_containers, a_list])
def test_while_loop_carries_containers_and_returns_those_of_its_body(fn, backend):
    translated = sot.to_static(fn, backend=backend, full_graph=True)
    for x in torch.randn(2, 3):
        assert same(translated(x), fn(x)) is None
    assert len(sot.translation_of(translated).captures) == 1
