"""Checks of tensors' values: a branch of which one way raises is an assertion in the graph, the exception Python's."""
from __future__ import annotations

import operator

import pytest
import torch
from harness import Programs, caught, check
from torch import nn
from torch.distributions import Categorical, MultivariateNormal, Normal, Poisson, kl_divergence

import sot

one_graph, breaking = Programs(), Programs()
GOOD = torch.arange(12.).reshape(3, 4) - 2
BAD = torch.full((3, 4), float("nan"))
NORM = nn.BatchNorm1d(4)
both = pytest.mark.parametrize("x", [GOOD, BAD], ids=["holds", "fails"])


@one_graph
def asserted(x):
    if not torch.isfinite(x).all():     # of which pytest makes something else, if it is an assert
        raise AssertionError(f"bad: {x}")
    return x + 1


@one_graph
def refused(x):
    y = x * 2
    if y.isnan().any() or (y > 1e9).any():
        raise ValueError(f"nan in {y.shape}: {y}") from KeyError("cause")
    return y + 1


@one_graph
def before_a_change(x):
    if x.isnan().any():
        raise ValueError("nan")
    x.add_(1)
    return x


@one_graph
def before_statistics_are_kept(x):
    if x.isnan().any():
        raise ValueError("nan")
    return NORM(x)


@one_graph
def beside_output_and_random_numbers(x):
    print("first")
    r = torch.rand(4)
    if x.isnan().any():
        raise ValueError("nan")
    print("second")
    return x + r


@one_graph
def in_calls(x):
    return twice(twice(x) + 1)


def twice(x):
    if not torch.isfinite(x).all():
        raise RuntimeError("not finite")
    return x * 2


@one_graph
def in_a_loop(x):
    for row in x:
        if row.isnan().any():
            raise ValueError("nan")
    return x * 2


@one_graph
def with_a_value_in_its_message(x):
    if x.isnan().any():
        print("bad")
        raise ValueError(x.max().item())
    return x * 2


@one_graph
def in_contexts_of_torch(x):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        if x.isnan().any():
            raise ValueError(torch.is_grad_enabled())
        y = x @ x.T
    return y, torch.is_grad_enabled()


@one_graph
def otherwise(x):
    if x.sum() > 3:
        return x + 1
    raise ValueError("small")


@one_graph
def by_distributions(x):
    normal = Normal(x, x.exp())
    sample = normal.rsample()
    chosen = Categorical(logits=x).sample()
    return (sample, normal.log_prob(sample), kl_divergence(normal, Normal(0., 1.)), chosen, torch.Size(),
            Poisson(x.exp()).sample(), MultivariateNormal(torch.zeros(4), torch.eye(4)).log_prob(x))


def all_finite(x):
    return bool(torch.isfinite(x).all())


@one_graph
def through_bool_of_a_helper(x):
    if not all_finite(x):
        raise ValueError(f"not finite: {x}")
    return x + 1


def none_is_negative(x):
    return not (x < -5).any()


@one_graph
def through_not_of_a_helper(x):
    if not none_is_negative(x):
        raise ValueError(f"negative: {x}")
    return x + 1


@one_graph
def not_that_is_returned(x):
    y = not x.sum()
    x.mul_(2)
    n = bool(x.any())
    return x * 2, y, not n, not y, operator.not_(x.sum() > 3), [not row.any() for row in x.unbind()], f"{not n}"


@one_graph
def not_of_a_number_that_is_read(x):
    n, total = int(x.int().sum()), x.sum().item()
    return x + total, not n, not not total


@one_graph
def bool_that_is_returned(x):
    return x * 2, bool((x > 3).any()), bool(x.sum()), [bool(x[0, 0] < 0)]


@one_graph.each
@both
def test_one_graph(fn, x):
    check(fn, x, graphs=1, breaks=0) if x is GOOD else check(fn, x)


@breaking
def after_a_change(x):
    x.add_(1)
    if x.isnan().any():
        raise ValueError("nan")
    return x


@breaking
def that_is_caught(x):
    try:
        if (x != x).any():      # a NaN, but not a question for finite values
            raise ValueError("nan")
    except ValueError:
        return x - 1
    return x + 1


@breaking
def that_a_caller_catches(x):
    def checked(x):
        if (x != x).any():
            raise ValueError("nan")
        return x * 2
    return caught(checked, x)


@breaking
def in_a_loop_without_an_end(x):
    for _ in iter(int, 1):
        x = x - 1
        if x.sum() < 0 or x.isnan().any():
            return x


@breaking
def that_returns_after_all(x):
    if (x != x).any():
        if len(x) > 5:
            raise ValueError("nan")
        return x
    return x * 2


@breaking.each
@both
def test_a_break(fn, x):
    translation = check(fn, x)
    assert any(c.stopped is not None and c.stopped.reason.name == "TENSOR_TRUTH" for c in translation.captures)


@both
def test_in_a_module(x):
    class Checked(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            self.calls += 1
            if torch.isnan(y := self.linear(x)).any():
                raise ValueError(f"call {self.calls}")
            return y
    torch.manual_seed(0)
    check(Checked(), x)


def test_a_check_while_an_exception_is_handled():
    def checked(x):
        try:
            {}["missing"]
        except KeyError as e:
            if not (x > 0).all():
                raise ValueError(f"not positive, after {e}") from e
            return x * 2

    translated = sot.to_static(checked, backend="eager")
    for _ in range(3):
        assert torch.equal(translated(torch.ones(3)), torch.full((3,), 2.0))
    for call in checked, translated:
        with pytest.raises(ValueError, match="not positive, after 'missing'") as found:
            call(torch.zeros(3))
        assert repr(found.value.__cause__) == repr(found.value.__context__) == "KeyError('missing')"
    assert [c.stopped for c in sot.translation_of(translated).captures][:1] == [None]
