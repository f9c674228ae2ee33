"""Jagged nested tensors: made in the call, handed in, and returned. Operations on them are one node each.

The size of a ragged dimension is no int. The program may pass it on, and read it off again.
"""
import copy

import pytest
import torch
from torch.nested import as_nested_tensor, narrow, nested_tensor, nested_tensor_from_jagged, to_padded_tensor

import sot

F = torch.nn.functional
OFFSETS = torch.tensor([0, 1, 3])


def jagged(*lengths, **options):
    torch.manual_seed(len(lengths))
    return nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged, **options)


def shown(value):
    """What can be compared of a value. Each nested tensor has a ragged size of its own."""
    if isinstance(value, torch.Tensor) and value.is_nested:
        parts = value.values().detach(), value.offsets(), value.lengths()
        return [*map(str, parts), value.requires_grad, value.is_leaf,
                value._ragged_idx, type(value), sorted(value._metadata_cache)]
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [shown(v) for v in value]
    if isinstance(value, torch.Tensor):
        return str(value.detach()), value.requires_grad
    return "a ragged size" if isinstance(value, torch.SymInt) else str(value)


def outcome(fn, args):
    try:
        result = fn(*args)
    except Exception as e:  # noqa: BLE001 - to be compared
        return type(e).__name__
    values = result if isinstance(result, tuple) else (result,)
    ends = [v.values() if v.is_nested else v for v in values if isinstance(v, torch.Tensor) and v.requires_grad]
    leaves = [v for v in args if isinstance(v, torch.Tensor) and v.requires_grad]
    if ends and leaves:
        sum(end.sum() for end in ends).backward()
    return shown(result), shown(list(args)), shown([v.grad for v in leaves])


def compare(fn, *calls, backend="eager", breaks=0):
    translated = sot.to_static(fn, backend=backend)
    for args in calls:
        assert outcome(translated, copy.deepcopy(args)) == outcome(fn, copy.deepcopy(args))
    stops = [str(c.stopped) for c in sot.translation_of(translated).captures if c.stopped is not None]
    assert breaks is None or len(stops) == breaks, stops


X = torch.arange(12.0).reshape(3, 4)


def made_of_a_list(x):
    n = nested_tensor([x, x[:2]], layout=torch.jagged)
    return (n * 2).values(), n.offsets(), to_padded_tensor(n.sin(), 0.0)


def made_of_tensors(x):
    n = as_nested_tensor([x, x[:1]], layout=torch.jagged)
    return F.layer_norm(n, (4,)).values(), F.gelu(n), F.softmax(n, -1).unbind()


def made_of_parts(x):
    n = nested_tensor_from_jagged(x, OFFSETS)
    m = n.detach()      # torch has no gradient of these sums
    return F.linear(n, torch.ones(2, 4)), m.sum(1), m.mean(1), n.shape[0], n.dim()


def a_leaf(x):
    return nested_tensor([x.detach(), x[:1].detach()], layout=torch.jagged, requires_grad=True)


@pytest.mark.parametrize("fn", [made_of_a_list, made_of_tensors, made_of_parts, a_leaf])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_made_in_the_call(fn, backend):
    compare(fn, (X,), (X + 1,), (X.clone().requires_grad_(),), backend=backend,
            breaks=0 if backend == "eager" else None)


def arithmetic(n):
    return (n.cos() + n).values(), n * 2, n.is_nested, n.layout


def sizes(n):
    batch, length, width = n.shape
    return n.view(batch, length, 2, width // 2), n.size(0), n.size(-1), n.shape, n.numel(), n.dtype


def changed_in_place(n):
    n.mul_(2)
    return n.values().sum()


def changed_by_parts(n):
    for part in n.unbind():
        part.add_(1)
    return n * 1


@pytest.mark.parametrize("fn", [arithmetic, sizes])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_handed_in(fn, backend):
    compare(fn, (jagged(3, 2),), (jagged(3, 2),), (jagged(5, 2),), (jagged(1, 2, 3),),
            backend=backend, breaks=0 if backend == "eager" else None)


def test_equal_ones_share_a_capture():
    translated = sot.to_static(arithmetic, backend="eager")
    for _ in range(3):
        translated(jagged(3, 2))
    assert len(sot.translation_of(translated).captures) == 1


def test_handed_in_as_a_leaf():
    compare(arithmetic, *[(jagged(3, 2, requires_grad=True),)] * 2)


@pytest.mark.parametrize("fn", [changed_in_place, changed_by_parts])
def test_changed_in_place(fn):
    compare(fn, (jagged(3, 2),), (jagged(3, 2),))


def test_only_tensors_of_the_same_offsets_are_added():
    def add(n, m):
        return n + m
    n = jagged(3, 2)
    translated = sot.to_static(add, backend="eager")
    for args in [(n, n * 2), (n, jagged(3, 2)), (n * 3, n)]:
        assert outcome(translated, args) == outcome(add, args)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_offsets_that_differ(backend):
    def loss(x, offsets):
        return (nested_tensor_from_jagged(x, offsets).sin() * 2).values().sum()
    compare(loss, *((torch.randn(int(o[-1]), 4, requires_grad=True), o) for o in (
        OFFSETS, torch.tensor([0, 2, 5]), torch.tensor([0, 2, 5, 7]))), backend=backend,
        breaks=0 if backend == "eager" else None)


def test_lengths_that_depend_on_data_are_a_break():
    def narrowed(x, lengths):
        return narrow(x, 1, torch.zeros(2, dtype=torch.int64), lengths, layout=torch.jagged).contiguous()
    compare(narrowed, *((torch.arange(16.0).reshape(2, 4, 2), torch.tensor(n)) for n in ([1, 3], [2, 2])), breaks=None)


def test_attention_is_right():
    def attend(n):
        q = n.unflatten(-1, (2, 2)).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).flatten(-2)
    compare(attend, (jagged(3, 2),), (jagged(3, 2),), (jagged(4, 2),), breaks=None)


def test_what_follows_a_break_in_a_function_of_torch_is_captured():
    """A compiler does not take a nested tensor, so the capture of ``nested_tensor`` stops within the function."""
    def padded(a, b):
        return torch.nested.to_padded_tensor(torch.nested.nested_tensor([a, b]), 0.0) * 2

    translated, args = sot.to_static(padded, backend="aot_eager"), (torch.ones(2, 4), torch.ones(3, 4))
    torch.testing.assert_close(translated(*args), padded(*args))
    assert not any(capture.fallback for capture in translated.captures)
