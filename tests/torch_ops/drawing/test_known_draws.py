"""Numbers that a captured function draws after a known seed and then reads, and seeds that the system draws."""
import pytest
import torch
from harness import Programs, check, check_by
from torch.utils.data import random_split

import sot

X = torch.arange(16.0).reshape(4, 4) / 16
whole, eager, parts = Programs(), Programs(), Programs()


@whole
def splits(x):
    first, second = random_split(range(4), [3, 1], generator=torch.Generator().manual_seed(0))
    return [x[i] for i in first], x[second[0]]


@whole
def reads_a_permutation(x):
    g = torch.Generator()
    g.manual_seed(3)
    order = torch.randperm(4, generator=g).tolist()
    again = torch.randperm(4, generator=g).tolist()
    return x[order], again, torch.rand(2, generator=g)


@whole
def reads_after_a_global_seed(x):
    torch.manual_seed(1)
    noise = torch.rand(4, 4)
    first = torch.randint(0, 4, (1,)).item()
    keep = torch.rand(4) < 0.5
    return x + noise, x[first] if first > 1 else -x[first], x[keep], torch.rand(2)


@whole
def branches_on_a_draw(x):
    g = torch.Generator().manual_seed(11)
    for _ in range(3):
        if torch.rand(1, generator=g).item() < 0.5:
            x = x * 2
        else:
            x = x + 1
    return x


@whole
def sets_a_state_back(x):
    g = torch.Generator().manual_seed(2)
    state = g.get_state()
    a = torch.randint(0, 9, (2,), generator=g).tolist()
    g.set_state(state)
    b = torch.randint(0, 9, (2,), generator=g).tolist()
    return x * a[0], a, b, a == b


@whole
def two_generators(x):
    a, b = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    p, q = torch.randperm(4, generator=a), torch.randperm(4, generator=b)
    return x[p.tolist()], x[torch.randperm(4, generator=a).tolist()], x[q.tolist()]


@whole
def draws_in_place(x):
    g = torch.Generator().manual_seed(4)
    picked = torch.zeros(4, dtype=torch.int64).random_(0, 4, generator=g)
    return x[picked.tolist()], x[torch.randperm(4, generator=g).tolist()]


@eager
def seed_of_the_system(x):
    seed = torch.seed()
    a = torch.rand(3)
    torch.manual_seed(seed)
    same = torch.equal(a, torch.rand(3))
    torch.manual_seed(2)
    return x + torch.rand(1), isinstance(seed, int), same, torch.initial_seed()


@eager
def seed_of_a_generator(x):
    g = torch.Generator()
    seed = g.seed()
    a = torch.rand(3, generator=g)
    known = g.initial_seed() == seed
    again = torch.Generator().manual_seed(seed)
    return x * 2, (a - torch.rand(3, generator=again)).abs().max(), known


@parts
def reads_after_the_systems_seed(x):
    torch.manual_seed(0)
    torch.seed()
    at = torch.randint(0, 1, (1,)).tolist()
    torch.manual_seed(0)
    return x[at]


@parts
def reads_without_a_seed(x):
    order = torch.randperm(4).tolist()
    return x[order], torch.rand(1)


@parts
def sums_what_it_draws(x):
    g = torch.Generator().manual_seed(0)
    if torch.rand(100, generator=g).sum() > 50:
        return x + 1
    return x - 1


@parts
def seeds_what_may_be_the_default(x, g=torch.default_generator):
    torch.manual_seed(0)
    g.manual_seed(5)
    a = torch.randperm(4).tolist()
    torch.rand(1, generator=g)
    return x[a], x[torch.randperm(4).tolist()]


@whole.each
def test_is_one_graph(fn):
    check(fn, X.clone(), graphs=1, breaks=0)


@eager.each
def test_is_one_graph_that_is_run_as_it_is(fn):
    check_by("eager", fn, X.clone(), breaks=0)
    check(fn, X.clone(), again=False)       # a break guards the seed that was drawn


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *eager.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


def test_capture_draws_nothing_itself():
    def draws(x):
        g = torch.Generator().manual_seed(0)
        return x[torch.randperm(4, generator=g).tolist()] + torch.rand(4)
    translated = sot.to_static(draws, backend="eager")
    torch.manual_seed(9)
    want, after = draws(X), torch.rand(2)
    torch.manual_seed(9)
    assert torch.equal(translated(X), want) and torch.equal(torch.rand(2), after)


def test_each_call_gets_another_seed():
    def seeds(x):
        return x + 1, torch.seed()
    translated = sot.to_static(seeds, backend="eager")
    assert len({translated(X)[1] for _ in range(4)}) == 4
    assert translated(X)[1] == torch.initial_seed()
