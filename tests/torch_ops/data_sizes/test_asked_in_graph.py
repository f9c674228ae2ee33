"""What only a real tensor tells, asked by a graph that runs as it is: versions, addresses, equality of values."""
from __future__ import annotations

import pytest
import torch
from harness import Programs, check_by

whole = Programs()


@whole
def versions(x):
    before = x._version
    x.add_(1)
    x[0] = 2
    torch._foreach_add_([x], 1)
    return x._version - before, x


@whole
def bases(x):
    y, made = x.view(4, 3), x.clone()
    return y._base is x, y[0]._base is x, x._base, made._base


@whole
def addresses(x):
    y = x[:2]
    return y.data_ptr() == x.data_ptr(), y[1].data_ptr() - x.data_ptr(), x.clone().data_ptr() == x.data_ptr()


@whole
def places(x):
    return x.is_shared(), (x + 1).is_shared(), x.is_pinned()


@whole
def equalities(x):
    y = torch.equal(x, x.clone())
    return y, not torch.equal(x, x + 1), torch.allclose(x, x), x.equal(x.double()), torch.is_nonzero(x[1, 1])


@whole
def members(x):
    return 3 not in x, 0.5 in x, x[0, 1] in x


@whole
def whole_numbers(x):
    return int(x[1, 1]), [int(v * 3) for v in x[0]]


@whole
def complex_numbers(x):
    c = complex(x[0, 2])
    return c, isinstance(c, complex), [complex(v) for v in x[1]], complex(x[0, 0] > 1)


@whole
def names_of_nodes(x):
    z = (x.requires_grad_(False) * torch.ones(4, requires_grad=True)).sin()
    node, names = z.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = next((below for below, _ in node.next_functions if below is not None), None)
    return names, z.grad_fn is z.grad_fn, z.grad_fn.next_functions[0][0] is z.grad_fn


def example():
    return torch.arange(12.0).reshape(3, 4) / 6


@whole.each
def test_a_graph_asks(fn):
    check_by("eager", fn, example(), breaks=0)


@pytest.mark.parametrize("fn", [equalities, members, whole_numbers, complex_numbers, bases], ids=lambda f: f.__name__)
def test_a_backend_that_compiles_does_not(fn):
    check_by("aot_eager", fn, example())


def branch_on_equality(x):
    return x + 1 if torch.equal(x, x.abs()) else x - 1


def uses_of_a_complex_number(x):
    c = complex(x[1, 1])
    return c + 1, c == c, abs(c), c.real, f"{c:.2f}", -c, c * x, bool(c), not c, 2 if c else 3


def a_number_that_is_none(x):
    x[0, 0] = float("nan")
    try:
        n = int(x[0, 0])
    except ValueError as error:
        n = str(error)
    return n, x


def different_devices(x):
    try:
        return torch.equal(x, torch.ones(3, 4, device="meta"))
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__


@pytest.mark.parametrize("fn", [
    branch_on_equality, uses_of_a_complex_number, a_number_that_is_none, different_devices], ids=lambda f: f.__name__)
def test_it_is_python_where_the_number_is_needed(fn):
    check_by("eager", fn, example())
    check_by("eager", fn, -example())
