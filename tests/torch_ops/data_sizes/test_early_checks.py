"""An index that may be out of range after an input has changed is checked before the graph changes anything."""
from __future__ import annotations

import copy

import pytest
import torch
from harness import Programs, outcome, same

import sot

one_graph, right = Programs(), Programs()
IN_RANGE = [0, 1, 3, 2]
ANY = [1, 3, 4, -1, 0, 7, -5, 2]


class Layer:
    """A cache of keys and values with room for four, as a decoder's layer has it."""

    def __init__(self):
        self.keys, self.values = torch.zeros(2, 4, 3), torch.zeros(2, 4, 3)
        self.length = torch.tensor(0)
        self.updates = 0

    def update(self, x):
        place = torch.arange(1) + self.length
        self.updates += 1
        self.length.add_(1)
        self.keys.index_copy_(1, place, x)
        self.values.index_copy_(1, place, x * 2)
        return self.keys, self.values


def states(layers):
    return [(v.keys, v.values, v.length, v.updates) for v in layers]


def decode(x, layers):
    for layer in layers:
        keys, values = layer.update(x)
        x = (x @ keys.transpose(1, 2)).softmax(-1) @ values + x
    return x


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_caches_of_several_layers_are_one_graph(backend):
    translated = sot.to_static(decode, backend=backend)
    ours, theirs = ([Layer() for _ in range(3)] for _ in range(2))
    for step in range(6):       # the fifth step finds no room
        x = torch.full((2, 1, 3), step / 3)
        want, got = (outcome(f, (x, layers), {}) for f, layers in ((decode, theirs), (translated, ours)))
        assert not same((got.result, got.raised), (want.result, want.raised))
        assert not same(states(ours), states(theirs))
        assert (want.raised is not None) is (step > 3)
    whole = [c for c in translated.captures if c.name == "decode"]
    assert len(whole) == 1 and whole[0].stopped is None


def both(fn, values, backend="eager"):
    """The captures of calls with these indices, as Python makes them."""
    translated = sot.to_static(fn, backend=backend)
    for value in values:
        theirs, mine = ((torch.ones(2, 3), torch.arange(12.).reshape(4, 3), torch.tensor([value, 1])) for _ in range(2))
        want, got = outcome(fn, theirs, {}), outcome(translated, mine, {})
        for part in ("result", "raised", "printed", "args"):
            assert not same(getattr(got, part), getattr(want, part)), (value, part)
    return translated.captures


@one_graph
def copies(x, y, i):
    print("before")
    y.add_(1)
    y.index_copy_(0, i, x)
    return y * 2


@one_graph
def several_kinds(x, y, i):
    print("before")
    y.mul_(2)
    y.index_add_(0, i, x)
    z = y.index_select(0, i) + y.gather(0, i[:, None].expand(2, 3)) + torch.embedding(y, i)
    return y.index_fill_(0, i, 1.), z, y[i], y.scatter_(0, i[:, None].expand(2, 3), x)


@one_graph
def from_the_end(x, y, i):
    print("before")
    y.mul_(2)
    y[i - 2] = x
    return y[(i * 2 - 6).abs() - 4]


@one_graph
def shaped_like_what_is_computed(x, y, i):
    print("before")
    y.mul_(2)
    source = x.sin() + y[:2]
    rows = i.view(2, 1).expand_as(source)
    z = y.scatter_add(0, rows, source)
    return z.scatter_reduce_(0, rows, source, reduce="amax", include_self=False), i.reshape_as(source[:, 0])


@one_graph
def with_options(x, y, i):
    print("before")
    y.mul_(2)
    return y.index_add_(0, i, x, alpha=2)


@right
def shaped_like_what_is_computed_and_changed(x, y, i):
    print("before")
    y.mul_(2)
    rows = i.view(2, 1).expand_as(x.sin())
    i.sub_(1)
    return y.scatter_add(0, rows, x)


@one_graph
def caught(x, y, i):
    y.add_(1)
    try:
        y.index_copy_(0, i, x)
    except IndexError:
        return y
    return y + 1


@right
def an_index_that_the_graph_has_changed(x, y, i):
    print("before")
    i.add_(1)
    y.index_copy_(0, i, x)
    return y


@right
def an_operand_that_the_graph_has_changed(x, y, i):
    print("before")
    j = i * 1
    j.add_(1)
    y.add_(1)
    k = i + j
    i.zero_()
    y.index_copy_(0, k, x)
    return y


@right
def an_index_that_is_drawn(x, y, i):
    print("before")
    y.add_(1)
    y.index_copy_(0, torch.randint(0, 4, (2,)) + i.abs() // 4, x)
    return y, torch.rand(2)


@right
def an_index_that_is_checked_in_a_call_that_breaks(x, y, i):
    print("before")
    y.add_(1)

    def inner():
        y.index_copy_(0, i, x)
        sot.graph_break()
        return y[i]
    return inner() * 2


@right
def a_mask(x, y, i):
    print("before")
    y.add_(1)
    y[y > i.max()] = 0.
    return y[y[:, 0] > i.min()]


@one_graph.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_index_in_range_takes_one_graph(fn, backend):
    captures = both(fn, IN_RANGE, backend)
    assert len(captures) == 1 and captures[0].stopped is None


@pytest.mark.parametrize("fn", [*one_graph.all, *right.all], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_index_out_of_range_is_pythons_exception(fn, backend):
    both(fn, ANY, backend)


# ---- sizes that vary ----


def selects(x, y, i):
    print("before")
    y.add_(1)
    return y.index_select(0, i) @ x, y[i - 1]


def loss_of_classes(x, y, i):
    print("before")
    y.add_(1)
    return torch.nn.functional.cross_entropy(y.t() * x[:, :1], i.expand(2)[:1].repeat(3))


def counts_groups(x, y, i):
    print("before")
    y.add_(1)
    rows = (i % len(y)).repeat(2)
    return x.new_zeros((int(i.max()) + 1, 3)).index_add_(0, i, y.index_select(0, rows[:len(i)]))


@pytest.mark.slow
@pytest.mark.parametrize("fn", [selects, loss_of_classes, counts_groups])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_indices_are_checked_against_sizes_that_vary(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for size in (4, 5, 7, 9, 6):
        for index in ([1, 2], [0, size - 1], [0, size], [-2, 0]):
            theirs, mine = ((torch.eye(3), torch.arange(size * 3.).view(size, 3), torch.tensor(index))
                            for _ in range(2))
            want, got = outcome(fn, theirs, {}), outcome(translated, mine, {})
            for part in ("result", "raised", "printed", "args"):
                assert not same(getattr(got, part), getattr(want, part)), (size, index, part)
    assert not [str(c.stopped) for c in translated.captures if c.stopped is not None]


class Recognizer(torch.nn.Module):
    """An encoder with running statistics before the loss of alignments."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Conv1d(3, 5, 3, stride=2), torch.nn.BatchNorm1d(5))
        self.calls = 0

    def forward(self, x, lengths, targets, target_lengths):
        self.calls += 1
        scores = self.encoder(x).permute(2, 0, 1).log_softmax(-1)
        return torch.nn.functional.ctc_loss(scores, targets, (lengths - 3) // 2 + 1, target_lengths, zero_infinity=True)


def alignments(translate, lengths, sequences=(2, 2, 3)):
    """What the calls return or raise, and the statistics after them; ``lengths`` are those of each last call."""
    torch.manual_seed(0)
    model, found = Recognizer(), []
    called = translate(model)
    for count in sequences:
        for first, target in [(11, 3), lengths]:
            given = (torch.randn(count, 3, 11), torch.tensor([first] * count), torch.randint(1, 5, (count, 3)),
                     torch.tensor([target] * count))
            try:
                found.append(called(*given))
            except RuntimeError as e:
                found.append(str(e))
            found.append((model.calls, [v.clone() for v in model.buffers()]))
    return found, called


@pytest.mark.parametrize("lengths", [(9, 2), (0, 1), (99, 2), (9, 4), (9, -1), (11, 0)])
def test_lengths_of_an_alignment_are_checked_before_statistics_change(lengths):
    (want, _), (got, model) = (alignments(translate, lengths) for translate in (
        lambda model: model, lambda model: sot.to_static(model, backend="eager")))
    assert same(got, want) is None
    assert not sot.translation_of(model).explain().breaks


def test_a_program_may_replace_the_function_that_torch_copies_metadata_by(monkeypatch):
    def program(x, cache, seen):
        seen.append(1)
        cache.add_(1)
        seen.append((x * 2)[torch.arange(x.shape[0])])

    x, want, got = torch.ones(4), [], []
    program(x, torch.zeros(4), want)
    monkeypatch.setattr(copy, "copy", lambda value: value)
    captured = sot.to_static(program, backend="eager")
    captured(x, torch.zeros(4), got)
    assert not same(got, want, "seen")
    assert not [c.stopped for c in sot.translation_of(captured).captures if c.stopped is not None]
