"""Objects of torch in C++: the nodes of a torch.fx graph, and futures of torch.jit.fork."""
import warnings
from operator import methodcaller

import pytest
import torch
from torch import fx

import sot

X = torch.arange(6.0).reshape(2, 3)


def same_in_one_graph(fn, *args, calls=2):
    """Calls give what plain Python gives, and there is no break."""
    translated = sot.to_static(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(calls):
            assert str(translated(*args)) == str(fn(*args))
    assert [c.stopped for c in sot.translation_of(translated).captures] == [None]


def test_nodes_of_a_graph_are_read_in_both_directions():
    def names(gm, x):
        nodes = gm.graph.nodes
        return x * len(nodes), [n.op for n in nodes], [n.name for n in reversed(nodes)]

    same_in_one_graph(names, fx.symbolic_trace(lambda x: x.sin() + x), X)


@pytest.mark.parametrize("read", [torch.jit.wait, methodcaller("wait"), lambda f: f.value(), lambda f: f.done()],
                         ids=["wait", "the method", "value", "done"])
def test_forked_work_has_its_result(read):
    same_in_one_graph(lambda x: (read(torch.jit.fork(lambda v, k=2: v * k, x, k=3)), x + 1), X)


def test_a_future_that_is_returned_holds_the_tensor():
    def start(x):
        y = x * 2
        return torch.jit.fork(torch.sin, y), y

    translated = sot.to_static(start, backend="eager")
    for _ in range(2):
        future, y = translated(X)
        assert future.done() and torch.equal(future.value(), y.sin())


def test_a_future_copies_a_list_so_python_makes_it():
    def start(x):
        held = [x * 2]
        got = torch.jit.fork(lambda: held).value()
        return got is held, got[0] is held[0], x

    translated = sot.to_static(start, backend="eager")
    for _ in range(2):
        assert str(translated(X)) == str(start(X))


def test_an_exception_of_forked_work_is_raised_at_once():
    def start(x):
        try:
            future = torch.jit.fork(lambda v: v[5], [x])
        except IndexError as e:
            return str(e), x * 2
        return future

    same_in_one_graph(start, X)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_norm_over_an_axis_of_size_one_has_its_shape_and_gradient(backend):
    """Counted from the end, torch 2.11 keeps the axis."""
    def fn(x):
        norms = [x.norm(2, -2), torch.linalg.vector_norm(x, 3, (-2, 0)), x.norm(1, -2, True),
                 torch.linalg.norm(x[0], 2, -2)]
        made = [norm * torch.ones(norm.shape) for norm in norms]
        return made, [norm.shape for norm in norms], torch.autograd.grad(sum(m.sum() for m in made), x)
    x = torch.tensor([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]], requires_grad=True)
    got, want = sot.to_static(fn, backend=backend)(x), fn(x)
    assert got[1] == want[1]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("axis", [2, -3])
def test_the_norm_over_an_axis_that_is_not_there_raises(axis):
    def fn(x):
        return x.norm(2, axis)
    with pytest.raises(IndexError) as wanted:
        fn(torch.ones(1, 1))
    with pytest.raises(IndexError) as raised:
        sot.to_static(fn)(torch.ones(1, 1))
    assert str(raised.value) == str(wanted.value)
