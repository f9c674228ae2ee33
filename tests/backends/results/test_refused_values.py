"""Operations that refuse values: the program gets its own exception, after the changes that come before it, also if the
values are constants, with which a backend computes while it compiles, and if nothing uses the result.
"""
from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import sot
from sot.backends import BackendError
from sot.codegen.compiled_graphs import failing_constants
from sot.graph.nodes import name_of

pytestmark = pytest.mark.usefixtures("fresh")
REFUSED = {
    "one_hot": lambda: F.one_hot(torch.tensor([5]), 3),
    "changed constants": lambda: F.one_hot(torch.tensor([1]).add_(4), 3),
    "index": lambda: torch.tensor([1.0, 2.0])[torch.tensor([5])],
    "gather": lambda: torch.tensor([1.0, 2.0]).gather(0, torch.tensor([4])),
    "division": lambda: torch.tensor([1]) // torch.tensor([0]),
    "inv": lambda: torch.linalg.inv(torch.tensor([[1.0, 1.0], [1.0, 1.0]])),
    "cholesky": lambda: torch.linalg.cholesky(torch.tensor([[0.0, 1.0], [1.0, 0.0]])),
    "nll_loss": lambda: F.nll_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([7])),
    "embedding": lambda: F.embedding(torch.tensor([9]), torch.tensor([[1.0], [2.0]])),
    "item": lambda: torch.tensor([9, 8]).item(),
    "bincount": lambda: torch.bincount(torch.tensor([-1])),
}


def outcome(fn, *args):
    """The result or the exception of a call, and its arguments after it."""
    args = [arg.clone() for arg in args]
    try:
        result = fn(*args).tolist()
    except Exception as error:
        result = type(error), str(error)
    return result, [arg.tolist() for arg in args]


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_exception_for_constants_is_the_programs(backend, refused):
    def before(x):
        refused()
        return x.add_(1) * 2

    def after(x):
        x.add_(1)
        refused()
        return x * 2

    def of_use(x):
        x.add_(1)
        return x * refused().sum()

    for fn in before, after, of_use:
        translated = sot.to_static(fn, backend=backend)
        for _ in range(2):
            assert outcome(translated, torch.ones(2)) == outcome(fn, torch.ones(2)), fn.__name__


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_program_catches_it(backend):
    def caught(x):
        x.add_(1)
        try:
            F.one_hot(torch.tensor([5]), 3)
        except RuntimeError:
            return x + 100
        return x

    assert outcome(sot.to_static(caught, backend=backend), torch.ones(2)) == outcome(caught, torch.ones(2))


def test_a_piece_raises_it_too():
    def drawn_apart(x):
        x.add_(1)
        torch.manual_seed(3)
        return x + torch.rand(2) + F.one_hot(torch.tensor([5]), 3).sum()

    translated = sot.to_static(drawn_apart, backend="aot_eager")
    assert outcome(translated, torch.ones(2)) == outcome(drawn_apart, torch.ones(2))


def encoded(x, i):
    x.add_(1)
    return x + F.one_hot(i, 3).sum()


def unused_rows(x, i):
    x.add_(1)
    x[i]
    return x + 1


def unused_embedding(x, i):
    F.embedding(i, x)
    return x.add_(1) * 2


def numbers_between(x, i):
    x.add_(1)
    return x + torch.linspace(0, i[0], 3, dtype=torch.int32).sum()


def counted_between(x, i):
    x.add_(1)
    return x + torch.histogram(1 / i, 3).hist.sum()


def permuted(x, i):
    x.add_(1)
    return torch.lu_unpack(x, i.int().expand(3))[0]


def with_zero_points(x, i):
    x.add_(1)
    return torch.fake_quantize_per_channel_affine(x, torch.ones(3), i.int().expand(3).contiguous(), 0, 0, 4)


@pytest.mark.parametrize("fn", [encoded, unused_rows, unused_embedding, numbers_between, counted_between, permuted,
                                with_zero_points])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_each_call_raises_for_its_own_values(backend, fn):
    translated = sot.to_static(fn, backend=backend)
    for i in 1, 5, 0, 1 << 40, 7:
        args = torch.ones(3, 3), torch.tensor([i])
        assert outcome(translated, *args) == outcome(fn, *args), i


def test_an_operation_whose_check_compilers_drop_is_run_by_pytorch(monkeypatch):
    monkeypatch.setattr(failing_constants, "LOSING_CHECKS", frozenset(("one_hot",)))
    run = []

    def backend(gm, inputs):
        def compiled(*args):
            run.extend(name_of(node) for node in gm.graph.nodes if node.op.startswith("call"))
            return gm.forward(*args)
        return compiled

    translated = sot.to_static(encoded, backend=backend)
    for i in 1, 5, 0:
        args = torch.ones(3, 3), torch.tensor([i])
        assert outcome(translated, *args) == outcome(encoded, *args), i
    assert "sum" in run and "one_hot" not in run


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_change_of_strided_memory_that_may_be_refused(backend, monkeypatch):
    def added(x):
        x.index_add_(0, torch.tensor([0]), x[:1])

    monkeypatch.setenv("SOT_STRICT", "1")
    x, y = torch.arange(16.0).view(4, 4).t(), torch.arange(16.0).view(4, 4).t()
    sot.to_static(added, backend=backend)(x)
    added(y)
    assert torch.equal(x, y)


def test_an_unused_operation_gives_no_gradient():
    def unused(weight, x, i):
        F.embedding(i, weight)
        return (x * 2).sum()

    weight, x = torch.ones(3, 3, requires_grad=True), torch.ones(2, requires_grad=True)
    sot.to_static(unused, backend="aot_eager")(weight, x, torch.tensor([1])).backward()
    assert weight.grad is None
    assert x.grad.tolist() == [2, 2]


def test_another_failure_is_the_backends_own():
    def broken(gm, inputs):
        raise RuntimeError("no such kernel")

    def accepted(x):
        x.add_(1)
        return x + F.one_hot(torch.tensor([2]), 3).sum()

    with pytest.raises(BackendError, match="no such kernel"):
        sot.to_static(accepted, backend=broken)(torch.ones(2))
