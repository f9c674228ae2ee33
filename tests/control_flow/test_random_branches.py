"""Branches that random numbers decide: a node of a graph that runs as it is, which does what Python does."""
from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from harness import Programs, outcome, same
from torch import nn

import sot

one_graph, breaking = Programs(), Programs()
SEEDS = 8
X = torch.linspace(-2, 3, 12).reshape(3, 4)


class Layers(nn.Module):
    """An encoder that leaves out layers, as LayerDrop does."""

    def __init__(self, of: type[nn.Module] = nn.Identity) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), of(4), nn.Dropout(0.3)) for _ in range(3))

    def forward(self, x):
        x, seen = self.embed(x), ()
        for layer in self.layers:
            seen += (x,)
            leave_out = False
            if self.training:
                drawn = torch.rand([])
                if drawn < 0.5:
                    leave_out = True
            if not leave_out:
                x = layer(x)
        return x, seen


one_graph(Layers)


@one_graph
def Statistics():     # noqa: N802 - a module, made for each test
    """Its layers have running statistics and a counter, which only those change that are run."""
    return Layers(nn.BatchNorm1d)


# ---- programs ----------------------------------------------------------------------------------------------------
@one_graph
def a_number_of_python(x):
    return x.sin() if random.random() < 0.5 else x + 1


@one_graph
def a_number_of_numpy_in_a_variable(x):
    leave_out = bool(x.dim()) and np.random.uniform(0, 1) < 0.5
    if not leave_out:
        x = x * 2
    return x


@one_graph
def whole_numbers(x):
    if random.randint(0, 1):
        x = x.sin()
    if 2 <= random.randrange(4):
        x = x.cos()
    return x * random.random()


@one_graph
def a_number_that_is_read(x):
    if torch.rand(1).item() > 0.5:
        x = x.flip(0)
    if torch.randint(0, 4, ()).item() >= 2:
        x = x.flip(1)
    return x


@one_graph
def either_returns(x):
    if torch.rand(()) < 0.3:
        return x, None
    x = x * 2
    if torch.rand(()) < 0.5:
        return x.sin(), None
    return x.cos(), None


@one_graph
def draws_of_a_side(x):
    if torch.rand(()) < 0.5:
        x = nn.functional.dropout(x, 0.5) + torch.rand(4)
    return x * torch.rand(4)


@one_graph
def a_change_of_the_argument(x):
    if torch.rand(()) < 0.5:
        x.add_(1)
        x[0] = 7
    return x * 2


@one_graph
def a_loop_that_ends(x):
    for _ in range(4):
        if torch.rand(()) < 0.3:
            break
        x = x * 2
    return x


@one_graph
def of_several_numbers(x):
    if torch.rand(3).sum() + torch.rand(()) < 2:
        x = x + 1
    return x


@one_graph
def branches_inside(x):
    if torch.rand(()) < 0.5:
        x = x * 3
        if torch.rand(()) < 0.5:
            x = x + 1
    return x


@one_graph
def one_of_two_that_are_there(x):
    a, b = x * 1, x * 2
    if torch.rand(()) < 0.5:
        a = b
    return a, b


@one_graph
def an_element_of_a_list(x):
    rows = [x * 1, x * 2]
    if torch.rand(()) < 0.5:
        rows[0] = rows[1] * 3
    return rows


@one_graph
def without_gradients(x):
    if torch.rand(()) < 0.5:
        with torch.no_grad():
            x = x * 2
    return x


@breaking
def prints(x):
    if torch.rand(()) < 0.5:
        print("hi")
        x = x + 1
    return x * 2


@breaking
def another_form(x):
    y = x.t().contiguous().t()
    if torch.rand(()) < 0.5:
        y = y.contiguous()
    return y.stride(), y


@breaking
def changed_afterwards(x):
    y = x.flip(0) if torch.rand(()) < 0.5 else x
    y += 1
    return y, x


@breaking
def the_same_object(x):
    y = x.flip(0) if random.random() < 0.5 else x
    return y is x, y


@breaking
def as_a_key(x):
    y = x * 2
    z = y + 1 if torch.rand(()) < 0.5 else y
    return {y: 1}.get(z)


@breaking
def its_history(x):
    y = x * 2
    if torch.rand(()) < 0.5:
        y = y.sin()
    return str(y.grad_fn).partition(" ")[0], y._base, y.storage_offset()


@breaking
def a_shape_in_place(x):
    y = x * 2
    if torch.rand(()) < 0.5:
        y.t_()
    return y


@breaking
def numbers(x):
    n = 2 if random.random() < 0.5 else 3
    return x * n


@breaking
def the_end_of_a_loop(x):
    while torch.rand(()) < 0.6:
        x = x + 1
    return x


@breaking
class Counting(nn.Module):
    """One side changes an attribute."""

    count = 0

    def forward(self, x):
        if random.random() < 0.5:
            self.count += 1
            x = x.sin()
        return x * 2, self.count


@breaking
def draws_of_python_on_one_side(x):
    if random.random() < 0.5:
        x = x + random.random()
    return x * random.random()


@breaking
def data(x):
    return x + 1 if x.sum() < torch.rand(()) else x


every = Programs()
every.all = one_graph.all + breaking.all


# ---- the comparison ----------------------------------------------------------------------------------------------
def seed(n: int) -> None:
    random.seed(n)
    np.random.seed(n)       # noqa: NPY002 - of the program


def did(fn, args, n: int):
    """What a call does, with the states of all generators after it, and which results are one object."""
    seed(n)
    found = outcome(lambda *given: (torch.manual_seed(n), fn(*given))[1], args, {})
    results = found.result if isinstance(found.result, tuple) else (found.result,)
    parts = [*args, *results, *(part for result in results if isinstance(result, tuple) for part in result)]
    one = [[a is b for a in parts] for b in parts]
    return found, (random.random(), np.random.rand()), one      # noqa: NPY002 - of the program


def compared(program, backend: str, grad: bool = False) -> list[str]:
    """Compare with plain Python for some seeds. Returns the breaks of the first capture and of its rest."""
    plain = program() if isinstance(program, type) or program is Statistics else program
    ours = copy.deepcopy(plain)
    translated = sot.to_static(ours, backend=backend)
    for n in range(SEEDS):
        theirs, mine = X.clone().requires_grad_(grad), X.clone().requires_grad_(grad)
        want, got = did(plain, (theirs,), n), did(translated, (mine,), n)
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            assert not (differs := same(getattr(got[0], name), getattr(want[0], name), name)), (n, differs)
        assert got[1:] == want[1:], n
        if isinstance(plain, nn.Module):
            assert not (differs := same(state(ours), state(plain))), (n, differs)
    return [str(c.stopped) for c in sot.translation_of(translated).captures if c.stopped is not None]


def state(module: nn.Module) -> dict:
    """Buffers and gradients. A layer that was never run has none."""
    gradients = {name: p.grad for name, p in module.named_parameters()}
    return {**gradients, **dict(module.named_buffers())}


@one_graph.each
def test_a_random_branch_is_a_node(fn, monkeypatch):
    """In one graph, for all seeds: it has both sides."""
    monkeypatch.setenv("SOT_STRICT", "1")
    assert compared(fn, "eager") == []


@breaking.each
def test_what_cannot_be_one_result_is_a_break(fn):
    assert compared(fn, "eager")


@every.each
def test_it_is_right_where_the_argument_is_a_leaf(fn):
    compared(fn, "eager", grad=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*captured 8 times")     # a graph between two layers has the length of a list
@every.each
def test_a_compiled_graph_ends_at_the_branch(fn):
    assert compared(fn, "aot_eager")


def test_a_graph_of_its_own_backend_is_the_same():
    """A backend that returns the graph's own forward is found out. One that compiles gets graphs without the node."""
    graphs = []

    def own(gm, examples):
        graphs.append(gm)
        return gm.forward

    def compiling(gm, examples):
        graphs.append(gm)
        return lambda *args: gm(*args)

    for backend, count in ((own, 1), (compiling, 2)):
        graphs.clear()
        f = sot.to_static(draws_of_a_side, backend=backend)
        for n in range(SEEDS):
            torch.manual_seed(n)
            want = draws_of_a_side(X)
            torch.manual_seed(n)
            assert torch.equal(f(X), want)
        nodes = [len([*gm.children()]) for gm in graphs]
        assert nodes == [2] if count == 1 else len(nodes) > 1 and not any(nodes[1:])


def test_backward_in_the_call_goes_through_what_was_taken():
    """The gradients of what was not run stay None."""
    def step(model, x):
        loss = model(x)[0].sum()
        loss.backward()
        return loss
    plain, ours = Layers(), Layers()
    ours.load_state_dict(plain.state_dict())
    f = sot.to_static(step)
    for n in range(SEEDS):
        losses = []
        for call, model in ((step, plain), (f, ours)):
            torch.manual_seed(n)
            losses.append(call(model, X))
        assert torch.equal(*losses)
        assert not same(state(ours), state(plain))
        plain.zero_grad()
        ours.zero_grad()


def test_statistics_and_a_later_operation_that_may_raise():
    """An index is checked before the graph, so that Python raises before a side has changed a counter."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.table, self.in_ = nn.BatchNorm1d(4), nn.Embedding(5, 4), nn.Linear(4, 4)

        def forward(self, x, ids):
            x = self.in_(x)
            if torch.rand(()) < 0.5:
                x = self.norm(x)
            return x + self.table(ids)
    plain = Model()
    ours = copy.deepcopy(plain)
    f = sot.to_static(ours)
    for n, ids in enumerate([[0, 1, 2], [4, 4, 0], [1, 1, 1], [2, 9, 0], [3, 0, 1]] * 2):
        found = []
        for call in (plain, f):
            torch.manual_seed(n)
            found.append(outcome(lambda *args, n=n, call=call: (torch.manual_seed(n), call(*args))[1],
                                 (X, torch.tensor(ids)), {}))
        assert type(found[0].raised) is type(found[1].raised)
        assert str(found[0].raised) == str(found[1].raised)
        assert not same(found[1].result, found[0].result)
        assert not same(state(ours), state(plain))
    assert not any(c.stopped for c in sot.translation_of(f).captures)
