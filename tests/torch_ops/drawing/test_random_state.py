"""Seeds, states and generators of random numbers, and flags that kernels look at, set inside of captured functions."""
import pytest
import torch
from harness import Counter, Programs, check, same
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import sot

X = torch.arange(16.0).reshape(4, 4) / 16
whole, parts = Programs(), Programs()


@whole
def seeds(x):
    g = torch.manual_seed(3)
    return x + torch.randn(4, 4), F.dropout(x, 0.5), torch.initial_seed(), g is torch.default_generator


@whole
def seeds_twice(x):
    torch.manual_seed(0)
    a = F.dropout(x, 0.5)
    torch.manual_seed(0)
    return a, F.dropout(x, 0.5)


@whole
def seeds_what_changes(x):
    found = []
    for i in range(3):
        torch.manual_seed(i + int(x.shape[0]))
        found.append(torch.rand(2))
    return found


@whole
def forks(x):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = x + torch.rand(4)
    return y, torch.rand(3)


@whole
def goes_back(x):
    state = torch.get_rng_state()
    a = torch.rand(3)
    torch.set_rng_state(state)
    return a, torch.rand(3), x * 2


@whole
def makes_a_generator(x):
    g = torch.Generator().manual_seed(5)
    made = [torch.bernoulli(torch.full((4,), 0.5), generator=g), torch.multinomial(torch.ones(5), 2, generator=g),
            x.clone().normal_(generator=g), torch.randperm(5, generator=g), torch.normal(x, 1.0, generator=g),
            torch.randint(0, 9, (3,), generator=g), torch.empty(3).exponential_(generator=g)]
    return made, torch.rand(2), g.initial_seed(), g.device


@whole
def reads_a_generator(x):
    g = torch.Generator()
    state = g.get_state()
    a = torch.rand(2, generator=g)
    g.set_state(state)
    return a, torch.rand(2, generator=g), x + 1, torch.nn.init.xavier_uniform_(torch.empty(4, 4), generator=g)


@parts
def breaks_between(x):
    g = torch.Generator().manual_seed(5)
    a = torch.rand(2, generator=g)
    sot.graph_break()
    return a, torch.rand(2, generator=g), x * 2


@parts
def takes_any_seed(x):
    torch.seed()
    torch.manual_seed(2)
    return torch.rand(3), x * 2


@whole
def chooses_attention(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(x[None], x[None], x[None])
        inside = torch.backends.cuda.flash_sdp_enabled()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        z = F.scaled_dot_product_attention(x[None], x[None], x[None])
    return y, z, inside, torch.backends.cuda.flash_sdp_enabled()


@whole
def is_deterministic_for_a_while(x):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        now = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        return x.scatter_add(0, torch.zeros(4, 4, dtype=torch.long), x), torch.empty(2).fill_(1), now
    finally:
        torch.use_deterministic_algorithms(before)


@whole
def looks_for_no_anomaly(x):
    with torch.autograd.set_detect_anomaly(False):
        return x + 1


@parts
def breaks_in_a_choice(x):
    with sdpa_kernel(SDPBackend.MATH):
        y = x + 1
        sot.graph_break()
        return y * 2, torch.backends.cuda.flash_sdp_enabled()


@whole.each
def test_is_one_graph(fn):
    check(fn, X.clone(), graphs=1, breaks=0)
    assert torch.backends.cuda.flash_sdp_enabled() and not torch.are_deterministic_algorithms_enabled()


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())
    assert torch.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("fn", [seeds, forks, goes_back, makes_a_generator, chooses_attention],
                         ids=lambda fn: fn.__name__)
def test_a_compiled_graph_has_none_of_it(fn):
    translated = sot.to_static(fn, backend="aot_eager")
    for _ in range(2):
        torch.manual_seed(0)
        want, after = fn(X), torch.rand(2)
        torch.manual_seed(0)
        assert same((translated(X), torch.rand(2)), (want, after)) is None


def test_a_generator_is_an_argument():
    def draws(x, g):
        noise = torch.randn(4, generator=g)
        return x + noise, torch.rand(2, generator=g)
    translated, mine, its = sot.to_static(draws, backend=(backend := Counter())), torch.Generator(), torch.Generator()
    for _ in range(3):
        assert same(translated(X, mine), draws(X, its)) is None
    other = torch.Generator().manual_seed(7)
    assert same(translated(X, other), draws(X, torch.Generator().manual_seed(7))) is None
    assert len(backend.graphs) == 1 and torch.equal(mine.get_state(), its.get_state())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_generator_draws_any_number_with_two_captures(backend):
    mine, its = (torch.Generator().manual_seed(5) for _ in range(2))

    def draws(x, generator):
        n = x.shape[0]
        torch.randn(n, generator=generator)     # unused
        return (x + torch.rand(n, 1, generator=generator), torch.randn((2, n), generator=generator),
                torch.randint(7, (n,), generator=generator), torch.rand(size=(n,), generator=generator),
                torch.randint(2, 7, (n, 2), generator=generator, dtype=torch.int32))
    translated = sot.to_static(draws, backend=backend)
    for n in (3, 4, 7, 5):
        x = torch.ones(n, 2)
        torch.testing.assert_close(translated(x, mine), draws(x, its), rtol=0, atol=0)
        assert torch.equal(mine.get_state(), its.get_state())
    captures = sot.translation_of(translated).captures
    assert len(captures) == 2 and not any(capture.stopped for capture in captures)


def test_a_graph_that_raises_has_drawn_nothing():
    def draws(x, g, i):
        noise = torch.rand(4, generator=g)
        torch.manual_seed(5)
        return (x + noise)[i]
    translated, mine, its = sot.to_static(draws, backend="eager"), torch.Generator(), torch.Generator()
    for at in (1, 9, 2):
        results = []
        for f, g in ((translated, mine), (draws, its)):
            torch.manual_seed(1)
            try:
                results.append(f(X, g, torch.tensor([at])))
            except IndexError as e:
                results.append(str(e))
        assert same(*results) is None
        assert torch.equal(mine.get_state(), its.get_state())


def test_a_flag_that_is_read_is_guarded():
    def asks(x):
        return x + 1 if torch.backends.cuda.math_sdp_enabled() else x - 1
    translated = sot.to_static(asks, backend="eager")
    assert torch.equal(translated(X), X + 1)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert torch.equal(translated(X), X - 1)
    assert torch.equal(translated(X), X + 1)
