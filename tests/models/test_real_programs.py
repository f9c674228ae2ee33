"""Small programs in the habits of real models: each was once a wrong result, a failure or a break in a zoo of them."""
from __future__ import annotations

import functools
import inspect
import itertools
import logging
from types import FunctionType

import torch
from harness import check
from torch import nn
from torch.nn import functional as F  # noqa: N812

import sot


# ---- iterators that are alive at a break
def test_iterator_over_a_list_filled_before_the_break():
    """The position is set when the list has its elements; an empty list's iterator would start over."""
    def positions(x, grid, types):
        grids, out = {1: iter(grid)}, []
        for i, row in enumerate(x):
            groups = []
            for key, group in itertools.groupby(enumerate(types[i].tolist()), lambda pair: pair[1]):
                members = list(group)
                groups.append((key, members[0][0], members[-1][0] + 1))
            for key, start, end in groups:
                out.append(row[start:end] + 1 if key == 0 else row[start:end] * next(grids[key]))
        return torch.cat(out)
    check(positions, torch.randn(2, 6), torch.tensor([2, 3]), torch.tensor([[0, 0, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0]]))


# ---- results
def test_equal_tuples_stay_different_objects():
    def sizes(x):
        height, width = x.shape
        before, after = (height, width), (height, width)
        return x + 1, (before, after), before is after
    out = sot.to_static(sizes, backend="eager")(torch.randn(4, 4))
    assert out[1][0] is not out[1][1] and out[2] is False


def test_python_types_as_dtypes():
    def prepare(x):
        return torch.tensor([0], dtype=int), x.to(float), x.to(bool), torch.zeros(2, dtype=float)
    check(prepare, torch.randn(3), graphs=1, breaks=0)


# ---- checks and their messages
class Placeholders(nn.Module):
    """Checks the number of image tokens as vision-language models do."""

    def forward(self, ids, features):
        mask = ids == 7
        count = mask.sum()
        message = f"tokens: {count}, features: {features.shape[0]:>4}"
        if torch.compiler.is_compiling():
            torch._check_tensor_all(count == features.shape[0])
        elif count != features.shape[0]:
            raise ValueError(message)
        return features.sum() + mask


# Such libraries are told that they are compiled; other code is told what Python tells it.
Placeholders.forward = FunctionType(Placeholders.forward.__code__, {**globals(), "__name__": "transformers.vision"})


def test_message_of_a_check_that_holds():
    check(Placeholders(), torch.tensor([1, 7, 7]), torch.randn(2, 4), graphs=1, breaks=0)


def test_check_that_fails_raises_what_python_raises():
    check(Placeholders(), torch.tensor([1, 7, 1]), torch.randn(2, 4), graphs=1, breaks=0)


def test_text_of_a_tensor_is_made_when_it_is_returned():
    def describe(x):
        y = x.sum()
        return y, f"sum {y:.2f} of {x.shape[0]}"
    check(describe, torch.ones(3), graphs=1, breaks=0)


def test_text_of_a_tensor_that_changes_afterwards():
    def describe(x):
        total = x.sum()
        text = f"{total}"
        total += 1
        return total, text
    check(describe, torch.ones(3))


def test_text_of_a_tensor_that_is_looked_at():
    def describe(x):
        text = f"{x.sum()}"
        return x + 1, text.upper(), len(text), text == "a", {text: 1}, text + "!", "%s" % text, [*text]
    check(describe, torch.ones(3))


def test_text_of_a_tensor_that_is_printed():
    def shout(x):
        print(f"loss {x.sum()}")
        return x + 1
    check(shout, torch.ones(3))


# ---- decorators
def bind_arguments(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if "scale" in signature.parameters and bound.arguments.get("scale") is None:
            kwargs["scale"] = 2.0
        return function(*args, **kwargs)
    return wrapper


def test_decorator_that_binds_arguments():
    @bind_arguments
    def forward(x, scale=None, *, bias=0):
        return x * scale + bias
    check(forward, torch.randn(3), graphs=1, breaks=0)


# ---- caches
logger = logging.getLogger("sot.tests.real_programs")
SEEN: list[str] = []


@functools.lru_cache(None)
def warn_once(log, message):
    SEEN.append(message)
    log.debug(message)


def test_cached_function_with_an_effect_runs_once():
    def forward(x):
        warn_once(logger, "padded")
        return x + 1
    SEEN.clear()
    translated = sot.to_static(forward, backend="eager")
    for _ in range(3):
        translated(torch.ones(2))
    assert SEEN == ["padded"]


class Lengths:
    """A method behind lru_cache depends on its object."""

    def __init__(self, strides) -> None:
        self.strides = strides

    @functools.lru_cache  # noqa: B019
    def factor(self):
        return sum(self.strides)

    def forward(self, x):
        return x * self.factor()


def test_cached_method():
    def both(a, b, x):
        return a.forward(x) + b.forward(x)
    translated = sot.to_static(both, backend="eager")
    x = torch.ones(2)
    for numbers in ((1, 2), (3, 4), (1, 2)):
        a, b = Lengths([numbers[0]]), Lengths([numbers[1]])
        assert torch.equal(translated(a, b, x), x * sum(numbers))


@functools.lru_cache(maxsize=8)
def frequencies(size):
    return torch.arange(size) / size


def test_cached_tensor():
    def rotate(x):
        return x * frequencies(x.shape[-1])
    check(rotate, torch.randn(2, 4), graphs=1, breaks=0)


# ---- torch
def test_multihead_attention_with_masks():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x, mask, padding):
            return self.attention(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]
    mask, padding = torch.zeros(3, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)
    check(Block(), torch.randn(2, 3, 8), mask, padding, graphs=1, breaks=0)
    check(Block(), torch.randn(2, 3, 8), None, None, graphs=1, breaks=0)


def test_vmap_between_operations():
    def inner(a, b):
        return F.softmax(a * b, -1)

    def forward(x, y):
        return torch.vmap(inner, in_dims=(0, None))(x + 1, y) * 2
    check(forward, torch.randn(3, 4), torch.randn(4), graphs=1, breaks=0)


def test_views_of_sparse_tensors_are_left_to_python():
    def weights(adjacency):
        values = adjacency.values()
        sot.graph_break()
        return values

    def forward(x):
        values = weights((x > 0).float().to_sparse())
        return values.sum() + x
    check(forward, torch.randn(3, 3))


class DecoratedCall(nn.Module):
    """``__call__`` is a closure that calls the module's."""

    def with_default(method):  # noqa: N805
        def wrapper(*args, **kwargs):
            return method(*args, **kwargs)
        return wrapper

    @with_default
    def __call__(self, x, dim=-1):
        return super().__call__(x, dim)

    def forward(self, x, dim):
        return x.sum(dim)


def test_decorated_call():
    check(DecoratedCall(), torch.randn(2, 3), graphs=1, breaks=0)
