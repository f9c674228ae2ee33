"""A size that changes is a constant for one call, and from then on a symbol: two captures, however many sizes."""
from __future__ import annotations

import math

import pytest
import torch
from harness import Counter, outcome, same

import sot

SIZES = (5, 8, 2, 3, 13, 7, 32)


def captured(fn, calls, **settings):
    """Run the calls plainly and translated; what was captured. Each call is made of arguments anew."""
    settings.setdefault("backend", Counter())
    translated = sot.to_static(fn, **settings)
    for make in calls:
        torch.manual_seed(0)
        mine = make()
        torch.manual_seed(0)
        want, got = outcome(fn, make(), {}), outcome(translated, mine, {})
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            differs = same(getattr(got, name), getattr(want, name), name)
            if name == "raised" and differs and got.raised is not None:
                raise got.raised
            assert not differs, differs
    captures = sot.api.translation_of(translated).captures
    assert not [c.stopped for c in captures if c.stopped is not None and c.stopped.reason.name == "INTERNAL"]
    return captures


def over(*shape, sizes=SIZES, grad=False):
    """Calls with one tensor, of whose shape a name is replaced by each of the sizes."""
    return [lambda n=n: (torch.randn([n if s == "n" else s for s in shape], requires_grad=grad),) for n in sizes]


def texts(captures):
    return {str(g) for g in captures[-1].guards}


# ---- programs that need one capture for the first size and one for all others ---------------------------------
def arithmetic(x):
    b, t, c = x.shape
    return x + b * 2 - t // 3 + b % 3 + b ** 2, (b + t) * c, b / t, -b, abs(b - 100), divmod(b, 3), b * 1.5


def functions(x):
    n = x.shape[0]
    return (x.sum() * math.ceil(n / 3), math.floor(n / 2), int(n / 2), float(n), round(n / 3), min(n, 4), max(n, 4, 6),
            math.sqrt(n), math.prod(x.shape), x.shape.numel(), sum(x.shape), pow(n, 2))


def shapes(x):
    b, t, c = x.shape
    y = x.view(b * t, c).reshape(t, b, -1).transpose(0, 1)
    return y.contiguous().view(b, -1), y.flatten(1), x.unsqueeze(1).expand(b, 3, t, c), x.view(-1)


def factories(x):
    n = x.size(0)
    return (torch.arange(n), torch.zeros(n, 2), torch.ones_like(x), x.new_empty(n + 1, 2).fill_(n), torch.full((n,), 7),
            torch.eye(n), torch.tril(torch.ones(n, n)))


def slicing(x):
    n = len(x)
    return (x[: n // 2], x[n // 2:], x[-1], x[:, : x.shape[1] - 1], x[1:], x[::2], x[n - 1], x[n - 1, 0], x[..., None],
            x.narrow(0, 0, n - 1))


def torch_size(x):
    s = x.shape
    return s[:-1] + (3,), s[1:], tuple(s), [*s], len(s), x.new_zeros(s[:-1] + (2,)), {"shape": s, "n": s[0]}


def lookups(x):
    return (x.size(), x.numel(), x.nelement(), x.dim(), x.stride(), x.shape == x.size(), x.shape[0] == x.shape[1],
            x.nbytes)


def text(x):
    n = x.shape[0]
    print("rows", n, f"{n:>5} of {x.shape[1]}", x.shape, n * 2)
    return f"{n}/{n + 1}", str(n), x * 2


def reductions(x):
    return x.mean(), x.sum() / x.shape[0], x.softmax(0), x.std(0), x.cumsum(0), x.sort(0).values, x.argmax(0), x.norm()


def broadcasting(x):
    n = x.shape[0]
    return (x + torch.ones(n, 1, 1), x * torch.arange(n).view(-1, 1, 1), x - x.mean(0, keepdim=True),
            x @ x.transpose(1, 2))


def joining(x):
    a, b = x.chunk(2, -1)
    return torch.cat([x, x], 0), torch.stack([x, x]), torch.cat([a, b, a], -1), x.repeat(2, 1, 1), x.unbind(-1)


def in_place(x):
    y = x.clone()
    y[: x.shape[0] // 2] = 0
    y[:, 0] += 1
    y.mul_(2).add_(x.shape[0])
    return y


def indexing(x):
    return x[torch.arange(x.shape[0] - 1, -1, -1)], x.index_select(0, torch.tensor([0, 1])), x.flip(0), torch.where(
        x > 0, x, x.shape[0]), x.masked_fill(x > 0, -1), x.gather(0, torch.zeros_like(x, dtype=torch.long))


def helper(y, rows):
    return y.view(rows, -1).sum(1), rows + 1


def calls(x):
    return helper(x, x.shape[0]), helper(x * 2, rows=len(x)), (lambda k: k * x.shape[0])(2)


def branches(x):
    if x.shape[0] > 1000:
        x = x * 2
    while x.shape[0] > 100:
        x = x[::2]
    return x + (1 if x.shape[0] else 2), bool(x.shape[0]), not x.shape[0], x.shape[0] is None, x.shape[0] > 0


PROGRAMS = [arithmetic, functions, shapes, factories, slicing, torch_size, lookups, text, reductions, broadcasting,
            joining, in_place, indexing, calls, branches]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_two_captures_for_all_sizes(program):
    captures = captured(program, over("n", 6, 4))
    assert len(captures) == 2, [c.missed for c in captures]
    assert not any(c.stopped or c.static for c in captures), [c.stopped or c.static for c in captures]


@pytest.mark.parametrize("program", [arithmetic, shapes, slicing, reductions, broadcasting, in_place, calls],
                         ids=lambda f: f.__name__)
def test_gradients(program):
    assert len(captured(program, over("n", 6, 4, grad=True))) == 2


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_that_are_special(program):
    captures = captured(program, over("n", 3, 4, sizes=(3, 4, 1, 0, 2, 1, 0, 5, 4, 3)))
    assert len(captures) <= 5, [c.missed for c in captures]


@pytest.mark.parametrize("program", [arithmetic, shapes, slicing, broadcasting], ids=lambda f: f.__name__)
def test_several_sizes_that_change(program):
    sizes = [(3, 4, 5), (5, 4, 3), (4, 4, 4), (7, 3, 2), (2, 9, 9), (6, 6, 2), (8, 2, 7)]
    captures = captured(program, [lambda s=s: (torch.randn(s),) for s in sizes])
    assert len(captures) <= 3, [c.missed for c in captures]
