"""Lists of floats that an operation takes: two graphs serve all floats, with any backend."""
from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from harness import Counter, Programs, caught, same

import sot
from sot.backends import lookup_backend

programs, kept = Programs(), Programs()
X = torch.linspace(-1, 1, 12).reshape(3, 4)
IMAGE = torch.linspace(0, 1, 48).reshape(3, 4, 4)
VALUES = [0.9, 0.5, 0.31, 0.7, 0.05, 0.6]
HELD = SimpleNamespace(mean=[0.0], std=(1.0,))


def outcomes_of(fn, backend, values=VALUES):
    """How many graphs these calls took. Each does what Python does: exactly where the graph runs as it is."""
    graphs, inner = [], lookup_backend(backend)

    def compiling(gm, inputs):
        graphs.append(gm)
        return inner(gm, inputs)
    translated = sot.to_static(fn, backend=compiling)
    for v in values:
        got, want = caught(translated, v), caught(fn, v)
        if backend == "eager" or type(want) is tuple and type(want[0]) is str:
            assert same(got, want) is None, v
        else:
            torch.testing.assert_close(got, want, equal_nan=True)
    return len(graphs)


@programs
def the_statistics_of_images(v):
    mean, std = [v, v + 0.1, v + 0.2], (v + 1, 2.0, v + 3)
    return (IMAGE - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


@programs
def statistics_that_are_held(v):
    HELD.mean, HELD.std = [v, v * 2, 0.5], (v + 1, 1.0, v + 2)
    return (IMAGE - torch.tensor(HELD.mean).view(-1, 1, 1)) / torch.as_tensor(HELD.std).view(-1, 1, 1)


@programs
def a_rotation(v):
    return X[:2, :2] @ torch.tensor([[math.cos(v), -math.sin(v)], [math.sin(v), math.cos(v)]])


@programs
def integers_among_floats(v):
    return torch.tensor([[v, 1], (0, v * v)]), torch.tensor((v, 2, round(v * 10)), dtype=torch.float64)


@programs
def weights_of_classes(v):
    return torch.nn.functional.cross_entropy(X, torch.tensor([0, 1, 2]), weight=torch.tensor([v, 1.0, 2.0, v]))


@programs
def a_quantile(v):
    return (torch.quantile(X, v), X.quantile(v, dim=1, keepdim=True), torch.quantile(X, q=v, dim=0),
            torch.quantile(torch.tensor([1.0, math.nan]), v))


@programs
def points_between_two(v):
    return torch.linspace(-v, v, 5), torch.linspace(0, v, 4), torch.linspace(v, 3.0, 1)


@programs
def a_list_of_sizes_beside_a_float(v):
    n = round(v * 100)
    return torch.nn.functional.pad(X, (n, 0, 1, n + 1), value=v)


@programs
def a_list_of_scalars(v):
    return torch._foreach_mul([X, X + 1], [v, v + 1]), torch._foreach_add([X], v)[0] * 2


@programs
def lists_in_place(v):
    a, b = [X.clone(), X + 1], [X + 2, X.clone()]
    torch._foreach_mul_(a, v)
    torch._foreach_add_(a, b, alpha=1 - v)
    torch._foreach_addcmul_(a, b, b, [v, 2.0])
    torch._foreach_addcdiv_(a, b, [X.abs() + 1, X.abs() + 2], value=v)
    torch._foreach_lerp_(b, a, v)
    return a, b


@programs
def more_operations_on_lists(v):
    a = [X.abs() + 1, X.abs() + 2]
    return (torch._foreach_pow(a, v), torch._foreach_clamp_max(a, [v, 1.5]), torch._foreach_div(a, [v, v + 1]),
            torch._foreach_sub([torch.arange(3)], v))


@programs
def gradients_by_lists(v):
    w = [(X * 2).requires_grad_(), (X * 3).requires_grad_()]
    a, b = torch._foreach_mul(w, [v, v * 2])
    return torch.autograd.grad((a * b).sum(), w)


@programs.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_two_graphs_serve_all_floats(fn, backend):
    assert outcomes_of(fn, backend) <= 2


@kept
def half_precision(v):
    return torch.tensor([v, 1.0], dtype=torch.float16)


@kept
def many_numbers(v):
    return torch.tensor([v + k for k in range(40)])


@kept
def truths_among_them(v):
    return torch.tensor([v, True])


@kept
def a_leaf(v):
    w = torch.tensor([v, 1.0], requires_grad=True)
    (w * w).sum().backward()
    return w.grad


@kept
def a_list_that_is_returned(v):
    found = torch._foreach_mul([X, X + 1], v)
    return found, len(found), torch.stack(found)


@kept
def norms(v):
    return torch._foreach_norm([X, X + 1], v + 1)


@kept
def a_ragged_list(v):
    return torch.tensor([[v, 1.0], [v]])


@kept
def a_list_in_itself(v):
    data = [v]
    data.append(data)
    return torch.tensor(data)


@kept
def no_integers(v):
    return torch.tensor([v, 2.0], dtype=torch.int64)


@kept
def a_number_too_large(v):
    return torch.tensor([v, 10**400])


@kept.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_other_forms_stay_right(fn, backend):
    outcomes_of(fn, backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_quantile_is_between_nought_and_one(backend):
    outcomes_of(lambda q: torch.quantile(X, q), backend, [0.5, 0.25, 0.75, 0.0, 1.0, -0.5, 1.5, 0.5, math.nan])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_special_numbers(backend):
    values = [0.5, 0.25, 0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-300, 1e300]
    outcomes_of(lambda v: (torch.tensor([v, 1.0]), torch._foreach_mul([X], v)), backend, values)


def test_a_graph_that_runs_as_it_is_makes_the_tensor_at_once():
    counter = Counter()
    translated = sot.to_static(lambda v: torch.tensor([[v, 1.0], [2.0, v]]) * 2, backend=counter)
    for v in VALUES:
        translated(v)
    assert [node.name for node in counter.graphs[-1].graph.nodes if node.op == "call_function"] == ["tensor", "mul"]
