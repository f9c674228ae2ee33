"""Values of small tensors of whole numbers: known to capture, guarded, and a break once they have changed."""
from __future__ import annotations

import pytest
import torch
from harness import check, check_by

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


@pytest.mark.parametrize("x", [torch.arange(3.0).reshape(1, 3), torch.arange(3.0).reshape(1, 1, 3)], ids=["2-D", "3-D"])
@pytest.mark.parametrize("i", [torch.tensor([0]), torch.tensor([2])], ids=["nothing", "all"])
@pytest.mark.parametrize("ask", [
    lambda x, i: x[i > 0],
    lambda x, i: x[i > 0, ..., 1:],
    lambda x, i: x[(i > 0)[0]],
    lambda x, i: x[:, (i > 0)[0]],
    lambda x, i: x[(i > 0).reshape(1, 1).expand(x.shape[:2])] if x.dim() == 3 else x[i > 0],
    lambda x, i: x.masked_select(i > 0),
], ids=["rows", "rows and columns", "a truth value", "a truth value inside", "two dimensions", "selected"])
def test_a_mask_of_one_element_is_not_a_truth_value(ask, x, i):
    check(ask, x, i)


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


# ---- the form of another tensor -------------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("of_form", [
    lambda x, i: torch.zeros_like(x),
    lambda x, i: torch.full_like((x * 2)[:, 1:], 3.0),
    lambda x, i: torch.ones_like(x.t(), dtype=torch.long),
    lambda x, i: x.new_zeros(3, 4) + i[:, None],
    lambda x, i: (x + 1).new_full((3, 4), 2.5).mul_(i[:, None]),
    lambda x, i: i[:, None].expand_as(x),
    lambda x, i: torch.arange(12).view_as(x) * i[:, None],
    lambda x, i: torch.arange(12).reshape_as(x.t())[:, :3] * i,
    lambda x, i: i.type_as(x) / 2,
    lambda x, i: i.to(x) / 3,
], ids=["zeros_like", "full_like", "ones_like", "new_zeros", "new_full", "expand_as", "view_as", "reshape_as",
        "type_as", "to"])
def test_a_value_takes_the_form_of_a_tensor_whose_values_are_not_known(of_form, backend):
    def f(x, i):
        mask = of_form(x, i)
        y = x * 2 if mask.sum() > 1 else x - 1
        return y, mask.float().mean().item(), x.reshape(-1)[:3][mask.reshape(-1)[:3] > 0]
    for x in (X, X.clone().requires_grad_()):
        check_by(backend, f, x, I, breaks=0)


def test_a_mask_of_rows_without_the_positions_that_whole_numbers_name():
    def f(x, w, i):
        patches = x @ w
        left = torch.full_like(patches, True).bool()
        left[i, i] = False
        rows = [patches[n][left[n]] for n in range(3)]
        return torch.stack([torch.cat([row, row.new_zeros(4 - len(row))]) if len(row) < 4 else row for row in rows])
    w = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
    check(f, X, w, I, graphs=1, breaks=0)
    translated = sot.to_static(f, backend="eager")
    for i in (I, I[:2], torch.tensor([1, 1, 1]), I):
        assert torch.equal(translated(X, w, i), f(X, w, i))


@pytest.mark.parametrize("change", [
    lambda y: y.t_(),
    lambda y: y.unsqueeze_(0),
    lambda y: y.resize_(2, 2),
    lambda y: y.set_(torch.ones(5)),
    lambda y: setattr(y, "data", torch.ones(5, dtype=y.dtype)),
    lambda y: y.add_(1),
], ids=["t_", "unsqueeze_", "resize_", "set_", "data", "add_"])
def test_a_form_that_changes_in_place(change):
    def f(x):
        y = x * 2
        before = torch.ones_like(y)
        change(y)
        after = torch.ones_like(y)
        change(before)
        result = (before.shape, before.stride(), after.sum().item(), list(after.shape))
        return (x + 1 if before.sum() > 5 else x - 1), result, (x + 2 if after.sum() == 12 else x), before.tolist()
    check(f, X, again=True)


def test_the_form_of_a_weight_that_is_another_at_a_later_call():
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            full = torch.full_like(self.weight, 2.4)
            return x + 1 if full.sum() > 7 else x - 1
    model = Masked()
    translated = sot.to_static(Masked(), backend="eager")
    for weight in (torch.ones(3), torch.ones(2), torch.ones(3, dtype=torch.int32), torch.ones(3, dtype=torch.float16)):
        for module in (model, translated):
            module.weight = torch.nn.Parameter(weight, requires_grad=False)
        assert torch.equal(translated(X), model(X)), weight
    assert sot.translation_of(translated).captures[0].stopped is None


# ---- large values on the way ----------------------------------------------------------------------------------
def test_a_mask_of_attention_that_says_which_code_runs():
    def f(x, mask):
        allowed = mask[:, None, None, :].expand(2, 1, 512, 512).to(x.dtype)
        added = (1.0 - allowed).masked_fill(allowed < 0.5, torch.finfo(x.dtype).min) * (1.0 - allowed)
        added = added[:, 0, 0, :]
        return x * 2 if (added > 0).flatten().any().item() else x * 3
    mask = torch.ones(2, 512, dtype=torch.long)
    check(f, X, mask, graphs=1, breaks=0)
    translated = sot.to_static(f, backend="eager")
    for value in (1, 2, 0, 1):
        mask[1, 500:] = value
        assert torch.equal(translated(X, mask), f(X, mask))


def of_one_large_value(x, i):
    return x + 1 if torch.zeros(4096, 4096).add(i[0]).sum() > 0 else x - 1


def of_several_values(x, i):
    """Each is below the limit."""
    a = torch.zeros(1600, 1600).add(i[0])
    b = a + 1
    c = b * 2
    d = c - 3
    return x + 1 if d.sum() > 0 else x - 1


def of_a_large_form(x, i):
    y = x.new_empty(3000, 3000)
    return x + 1 if i.to(y).sum() > 0 else x - 1


@pytest.mark.parametrize("fn", [of_one_large_value, of_several_values, of_a_large_form], ids=lambda f: f.__name__)
def test_too_much_on_the_way_is_not_computed(fn):
    translated = sot.to_static(fn, backend="eager")
    assert torch.equal(translated(X, I), fn(X, I))
    first = translated.captures[0]
    assert first.stopped is not None and not any("the values of" in str(g) for g in first.guards)
