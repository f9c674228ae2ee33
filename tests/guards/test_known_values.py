"""Values of small tensors of whole numbers: known to capture, guarded, and a break once they have changed."""
from __future__ import annotations

import pytest
import torch
from harness import check

import sot

X = torch.arange(12.0).reshape(3, 4)
I = torch.tensor([2, 0, 1])
MASK = torch.tensor([True, False, True])


@pytest.mark.parametrize("ask", [
    lambda x, i: x * i.max().item(),
    lambda x, i: x * int(i[0]) + float(i.sum()),
    lambda x, i: (x + 1, i.tolist()),
    lambda x, i: x * 2 if (i == 2).any() else x * 3,
    lambda x, i: x[i > 0],
    lambda x, i: x[i > 0, 1:] + 1,
    lambda x, i: x[:, torch.cat([i, i[:1]]) > 0],
    lambda x, i: x.repeat_interleave(i, dim=0),
    lambda x, i: torch.repeat_interleave(i) + x.sum(),
    lambda x, i: x[i.nonzero().squeeze(1)],
    lambda x, i: (x + 1, i.unique(), torch.bincount(i)),
    lambda x, i: x + torch.arange(i.max() + 2),
    lambda x, i: x.split(i[i > 0].tolist()),
    lambda x, i: x.new_zeros(int(i.max()) + 1, 4).index_add(0, i, x),
    lambda x, i: sum(x[int(n)] for n in i),
])
def test_a_value_that_comes_from_a_small_input_of_whole_numbers(ask):
    check(ask, X, I, graphs=1, breaks=0)
    check(ask, X.clone().requires_grad_(), I, graphs=1, breaks=0)


def test_values_follow_changes_in_place():
    def f(x, i):
        before = i.max().item()
        i += 1
        j = i.clone()
        j[0] = 7
        j.view(3, 1).add_(1)
        return x * before + j.max().item(), x[j > 2], i.tolist()
    check(f, X, I, graphs=1, breaks=0, again=False)


def test_a_change_in_one_place_is_seen_through_a_view():
    def f(x, i):
        counts = torch.zeros(4, dtype=torch.long)
        row = counts[1:3]
        counts.scatter_add_(0, i, torch.ones_like(i))
        row.mul_(5)
        return x * counts.sum().item(), counts.tolist()
    check(f, X, I, graphs=1, breaks=0)


def test_a_mask_selects_with_gradients():
    check(lambda x, m: (x * 2)[m] ** 2, X.clone().requires_grad_(), MASK, graphs=1, breaks=0)


def test_other_values_are_captured_anew_and_then_read_in_the_graph():
    translated = sot.to_static(lambda x, i: x * i.max().item() + 1, backend="eager")
    for n in range(5):
        i = torch.tensor([n, 1])
        assert torch.equal(translated(X, i), X * i.max().item() + 1)
    captures = [c for c in translated.captures if c.place.file == __file__]     # and not of libraries' audit hooks
    assert captures[0].stopped is None and "the values of i are [0, 1]" in {str(g) for g in captures[0].guards}
    assert captures[1].stopped is None and not any("the values of" in str(g) for g in captures[1].guards)
    assert captures[1].recompiled_because == ["expected the values of i are [0, 1], got [1, 1]"]
    assert len(captures) == 2


asks = pytest.mark.parametrize("ask", [
    lambda x: x.max().item() + x,
    lambda x: x[x > 2],
    lambda x: torch.rand(3).argmax().item() + x,
    lambda x: x.argmax().item() + x,
], ids=["a float", "a mask of floats", "a random number", "a position of floats"])


@asks
def test_what_depends_on_more_is_found_by_the_graph(ask):
    captures = check(ask, X, graphs=1, breaks=0).captures
    assert not any("the values of" in str(g) for g in captures[0].guards)


@asks
def test_what_depends_on_more_is_a_break_where_this_is_asked(ask):
    translated = sot.to_static(ask, backend="eager", data_sizes="break")
    for x in (X, X + 1):
        torch.manual_seed(0)
        want = ask(x)
        torch.manual_seed(0)
        assert torch.equal(translated(x), want)
    assert translated.captures[0].stopped is not None


def test_a_large_input_is_not_compared_at_every_call():
    captures = check(lambda x, i: x * i.max().item(), X, torch.zeros(10_000, dtype=torch.long)).captures
    assert not any("the values of" in str(g) for g in captures[0].guards)


def test_an_answer_is_another_tensor_at_every_call():
    translated = sot.to_static(lambda i: i.unique(), backend="eager")
    first = translated(I)
    first.add_(10)
    assert torch.equal(translated(I), I.unique())


def test_a_buffer_is_such_an_input():
    class Padded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("width", torch.tensor(2))

        def forward(self, x):
            return torch.nn.functional.pad(x, (self.width, self.width - 1)) if self.width > 1 else x
    check(Padded(), X, graphs=1, breaks=0)
