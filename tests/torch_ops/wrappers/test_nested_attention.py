"""Attention between jagged nested tensors in a captured function."""
import pytest
import torch
from harness import Programs, check_by
from torch.nested import nested_tensor_from_jagged
from torch.nn.functional import scaled_dot_product_attention as attention

X = torch.arange(36.0).reshape(3, 12) / 36
OFFSETS = torch.tensor([0, 1, 3])
whole, parts = Programs(), Programs()


def heads(x, count=2):
    return nested_tensor_from_jagged(x.view(3, count, -1), OFFSETS).transpose(1, 2)


def described(n):
    return n.values(), n.offsets(), n.dtype, n.dim(), n.is_contiguous(), n._ragged_idx, sorted(n._metadata_cache)


@whole
def with_itself(x):
    n = heads(x)
    return attention(n, n, n).transpose(1, 2).values()


@whole
def with_others(x):
    n = heads(x, 3)
    return attention(n, n * 2, n + 1).transpose(1, 2).values() + 1


@whole
def in_a_layer(x):
    w = torch.eye(12) * 0.5
    n = nested_tensor_from_jagged(x, OFFSETS) @ w
    q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in n.chunk(3, -1))
    return attention(q, k, v).transpose(1, 2).flatten(-2).values()


@whole
def twice(x):
    n = heads(x)
    n = attention(n, n, n)
    return (attention(n, n, n) + n).transpose(1, 2).values()


@parts
def what_it_is(x):
    return described(attention(*[heads(x)] * 3))


@parts
def of_another_layout(x):
    n = nested_tensor_from_jagged(x.view(3, 2, 6).transpose(1, 2).contiguous().transpose(1, 2), OFFSETS).transpose(1, 2)
    return attention(n, n, n).transpose(1, 2).values()


@parts
def causal(x):
    n = heads(x)
    return attention(n, n, n, is_causal=True).transpose(1, 2).values()


@parts
def scaled(x):
    n = heads(x)
    return attention(n, n, n, scale=0.5).transpose(1, 2).values()


@parts
def with_gradients(x):
    w = torch.ones(12, requires_grad=True)
    n = heads(x * w)
    attention(n, n, n).transpose(1, 2).values().sum().backward()
    return w.grad


@parts
def of_other_lengths(x):
    n, other = heads(x), nested_tensor_from_jagged(x.view(3, 2, 6), torch.tensor([0, 2, 3])).transpose(1, 2)
    return attention(n, other, other).transpose(1, 2).values()


@parts
def without_heads(x):
    n = nested_tensor_from_jagged(x, OFFSETS)
    try:
        return attention(n, n, n).values()
    except (RuntimeError, ValueError) as e:
        return type(e)


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())
