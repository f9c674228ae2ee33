"""Arrays of NumPy's in captured code: NumPy's own work, as part of the graph."""
from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from harness import Calls, caught, check, same

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
A = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
IMAGE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
REWARDS = np.array([1.0, 0.0, -0.5, 2.0])
INDEX = np.array([2, 0, 1])

whole = Calls()
broken = Calls()


# ---- one graph
@whole(X)
def there_and_back(x):
    a = x.numpy()
    b = np.sin(a) * 2 + a.sum(axis=0)
    return torch.from_numpy(b) + x, b


@whole(A)
def only_arrays(a):
    b = np.where(a > 0, a, 0.1 * a)
    return b @ b.T, b.mean(), b.T, -a, abs(a), a.dtype, a.shape, len(a), a.ndim, a.T.strides


@whole(IMAGE)
def preprocessing(image):
    a = image.astype(np.float32) / 255
    a = (a - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    return torch.from_numpy(np.ascontiguousarray(np.transpose(a, (2, 0, 1)))).float().unsqueeze(0)


@whole(6, 8)
def position_table(length, width):
    table = np.zeros((length, width), dtype=np.float32)
    position = np.arange(length)[:, np.newaxis]
    rate = np.exp(np.arange(0, width, 2) * -(np.log(10000.0) / width))
    table[:, 0::2] = np.sin(position * rate)
    table[:, 1::2] = np.cos(position * rate)
    return torch.tensor(table), torch.as_tensor(table, dtype=torch.float64)


@whole(X, np.array([3, 0, 1]))
def metrics(x, target):
    predicted = np.argmax(x.softmax(-1).detach().cpu().numpy(), axis=1)
    right = predicted == target
    return right.mean(), float(right.mean()), right.sum().item(), np.sqrt(((predicted - target) ** 2).mean())


@whole(REWARDS)
def returns(rewards):
    found, total = np.zeros_like(rewards), 0.0
    for i in range(len(rewards))[::-1]:
        total = rewards[i] + 0.9 * total
        found[i] = total
    found = (found - found.mean()) / (found.std() + 1e-8)
    return torch.from_numpy(found), total


@whole(REWARDS)
def returns_in_a_list(rewards):
    found, total = [], 0
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        found.insert(0, total)
    return torch.tensor(found), found, [2 * r for r in rewards], torch.tensor(np.array(found))


@whole(X, A)
def numbers_beside_tensors(x, a):
    s, n = a.sum(), a.argmax()
    return x * s, s * x, x - a.max(), n + x, x / n, x.int() * s, x ** n, torch.where(x > s, x, s), x.clamp(min=s), x > s


@whole(A, INDEX)
def subscripts(a, index):
    b = a[index]
    b[index, 0] = 7
    b[1] += a[0]
    b[a > 0.5] = 0
    b[..., -1], b[0, 0] = a[:, 0], np.float32(2)
    return b, a[1:, ::2], a[0, 1], a[None, ..., -1], np.take(a, index, axis=0), a[:, [0, 1]], a[a.argmin() % 3]


@whole(A, np.argsort(-A, axis=1)[:, :2])
def elements_of_each_row(a, index):
    ranked = np.take_along_axis(a, np.argsort(a, axis=-1), axis=-1)
    return ranked * 2, np.take_along_axis(a, index, 1), np.take_along_axis(a, index.ravel(), None), ranked[0]


@whole(A)
def layouts(a):
    b, c = a[::-1], a.T.copy().T
    return np.sin(b), a + c, np.stack([b, c]), b.copy(), c.reshape(-1), torch.from_numpy(c), c.ravel("K"), b * c


@whole()
def makers():
    return (np.eye(3), np.linspace(0, 1, 5), np.full((2, 2), 7), np.arange(1, 7, 2.0), np.ones((2, 0)), np.identity(2),
            np.zeros(3, bool), np.array([[1, 2.5], [3, 4]]), np.array([1, 2], dtype="int8"), np.tri(3), np.array(5))


@whole(A, np.float32(0.5))
def functions(a, s):
    np.add(a, 1, out=(out := np.empty_like(a)))
    return (np.concatenate([a, a], 1), np.clip(a, 0, 1), a.clip(0, s), np.linalg.norm(a, axis=1), np.dot(a, a.T), out,
            np.maximum(a, s), np.split(a, 2, axis=1), np.divmod(a, 2), np.sort(a)[0], np.percentile(a, 50), a.round(1),
            np.add.__name__, np.ndim(a), np.shape(a), isinstance(a, np.ndarray), np.cumsum(a, 1), np.float64(a.max()))


@whole(A)
def numbers_in_text(a):
    mean, at = a.mean(), a.argmax()
    print(mean, at, f"{mean:.3f}", [mean])
    return f"{mean:8.2e} at {at}", "%d: %.2f" % (at, mean), str(mean), repr(at), "{:d}".format(at)


@whole(A)
def more_functions(a):
    b = np.empty((3, 4))
    np.copyto(b, a)
    np.fill_diagonal(b, 0)
    return b, np.einsum("ij,ij->i", a, b), np.meshgrid(a[0], a[1]), np.pad(a, 1), a.dtype, np.result_type(a, b)


@whole(A)
def numbers_change_in_place(a):
    s = first = a.sum()
    s += 1
    s *= 2
    return s, first, divmod(s, 2), -s, s > first


@whole(X, A)
def identities(x, a):
    b = a
    b = np.asarray(b)
    return a, b is a, [a, a], x.numpy(), np.asarray(x), a[:], np.asarray(x) is x


@whole(X)
def shared_memory(x):
    y = x * 1
    a = y.numpy()
    a[0] = 5
    t = torch.from_numpy(a)
    t[1] = 6
    y[2] = 7
    return y, a, t, x


@whole(X, A)
def changes_arguments(x, a):
    x.numpy()[0] = 5
    a[1] = 3
    return x + 1


@whole(X, np.array(2.5), np.array([[3, 4]]))
def lists_of_arrays(x, scale, pair):
    a = x.numpy()
    made = x * 1
    for number in a[0].tolist():
        made = made + number
    return (made, a.tolist(), np.linspace(0, 1, 3).tolist(), scale.tolist(), pair.tolist(), a.sum().tolist(),
            np.zeros((2, 0)).tolist(), (a > 1).tolist())


@whole(X, np.array(2.5), np.array([3]))
def numbers_of_arrays(x, scale, one):
    a = (x * 2).numpy()
    best = int(np.argmax(a))
    return (x * scale.item() + float(scale) - one.item(), x * a.item(0, 1) - a.item(-1) * a.item(2), a[0, 0].item(),
            x.reshape(-1)[best], best, x * (scale * 2).item(), torch.zeros(int((a > 1).sum())), bool((a > 1).any()))


@whole(X, np.zeros(()))
def a_number_is_read_before_a_change(x, total):
    made = total * 1.0 + np.zeros(())
    copied = np.array(0.5)
    before = copied.item()
    copied[...] = x.numpy()[0, 1]
    return x * before, x * copied.item(), x + float(made), before


@whole(X)
def a_check_of_an_array(x):
    a = x.numpy()
    if np.isnan(a).any():
        raise ValueError("not a number")
    return x * 2


@pytest.mark.parametrize("fn, args", whole.all, ids=lambda v: getattr(v, "__name__", ""))
def test_one_graph(fn, args):
    check(fn, *args, graphs=1, breaks=0)


# ---- what is left to Python
@broken(A)
def results_of_values(a):
    return a[a > 0], np.nonzero(a), np.unique(a), [v for v in a[0] if v > 0], np.array_equal(a, a), a.tolist()


@broken(A, np.array([np.nan, np.inf]))
def numbers_that_cannot_be_read(a, b):
    return (caught(lambda: a.item()), caught(lambda: a.item(99)), caught(lambda: a.item(0, 9)), caught(float, a),
            caught(lambda: int(b[0])), caught(lambda: int(b[1])), caught(bool, a), a.item(-1), bool(b[0]))


@broken(np.array([1.0, 0.0]), np.float64(-1))
def numbers_after_breaks(a, s):
    n = a[a > 0].sum() * 0
    for_ever = caught(lambda: [r for r in n])
    return n / 0, np.sqrt(s), n * s, for_ever, caught(lambda: torch.ones(2).__setitem__(0, np.float32(1)))


@broken(np.array([1.0, 0.0]))
def warns(a):
    return 1 / a, np.log(a - 1)


@broken(np.array([1.0, 0.0]))
def warns_after_a_change(a):
    a[0] = 2
    b = 1 / a
    a /= 0
    return b


@broken(np.array([1.0, 0.0]), torch.ones(2))
def warns_after_a_change_of_a_tensor(a, x):
    x.add_(1)
    return 1 / a, x


@broken(A, INDEX + 5)
def raises(a, index):
    a[0] = 9
    return caught(lambda: a[index]), caught(lambda: a + a[:, :3]), caught(lambda: a[7]), caught(lambda: a.nothing)


@broken(X.clone().requires_grad_())
def needs_gradients(x):
    return caught(x.numpy), caught(lambda: np.asarray(x)), x.detach().numpy() + 1, x * x.detach().numpy().max()


@broken(A.astype(">f4"), np.array(["a"]), np.array([None, 1]), np.ma.array([1.0, 2.0]), np.longdouble([1, 2]))
def other_arrays(*arrays):
    return [a[0] for a in arrays], [a.dtype for a in arrays], arrays[0] * 2, arrays[3] * arrays[3].T, arrays[4].sum()


@broken(X, A)
def beside_tensors(x, a):
    return caught(lambda: a * x), caught(lambda: torch.mul(x, a)), x == a, x * np.bool_(True), x[a[:, 0].argmax()]


@broken(X)
def prints(x):
    a = x.numpy()
    print(a, a.sum(), f"{a.mean():.3f} {a.shape}")
    a[0] = 3
    print(x, str(a.max()))
    x.numpy()[1] = 4
    return a.sum() > 3, 5 if a.any() else 6


@broken(np.zeros(3), torch.zeros(3))
def values_of_changed_tensors(a, x):
    n = torch.tensor([1, 2])
    n.numpy()[0] = 2
    i = torch.arange(3)
    b = i.numpy()
    b[:] = 2
    a[i] = 4
    return n[0].item(), x[int(i[0]):], i.tolist(), n.sum().item()


@broken(np.arange(3, dtype=np.uint8))
def overflows(a):
    return caught(lambda: a + 300), a + 255, a.max() + np.uint8(255), np.float32(1e38) * a.sum() * 10


def called(fn, args):
    """The result of a call, and the warnings with their places."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = fn(*args)
    return result, args, [(str(w.message), w.category, w.filename, w.lineno) for w in found]


@pytest.mark.parametrize("fn, args", [*broken.all, *whole.all], ids=lambda v: getattr(v, "__name__", ""))
def test_warnings_and_results(fn, args, capsys):
    translated = sot.to_static(fn)
    for _ in range(3):
        want, printed = called(fn, copy.deepcopy(args)), capsys.readouterr().out
        got = called(translated, copy.deepcopy(args))
        assert same(got, want) is None
        assert capsys.readouterr().out == printed
    assert not [c.stopped for c in translated.translator.captures if c.stopped and c.stopped.reason.name == "INTERNAL"]


# ---- memory that arguments share
def shares(a, b, x):
    y = x * 2
    b[0] = 7
    seen = x + a[1].item() * 1.0, a.copy(), f"{x}"
    x.add_(1)
    torch.from_numpy(a).mul_(2)
    return seen, y, a, b, a is b


def reads(a, b, x):
    return np.sin(a).sum(), b[::-1] * 2, x + 1, a.flags.writeable, a.T.copy(), b.strides, a + a, b is a


def writes_in_turn(a, b, x):
    a[0] = b[1] + 1
    b[0] = 5
    s = a.sum() + b.sum()
    a += 1
    x[0] = 3
    return s, a.sum(), x.numpy()[1:].max()


def shown_late(a, b, x):
    print(x, a.shape)
    i = x.int()
    print(i)
    i.numpy()[0] = 4
    b[1] = 9
    n = x[1].item()
    x[1] = 8
    return n, x[1].item(), i


def arguments(kind):
    """Two arrays and a tensor, new ones at each call."""
    a = np.arange(1.0, 7.0)
    if kind == "apart":
        return a, a.copy(), torch.from_numpy(a.copy())
    if kind == "same":
        return a, a, torch.from_numpy(a)
    if kind == "overlap":
        return a, a[1:], torch.from_numpy(a)[::2]
    if kind == "backwards":
        return a[::-2], a[::-1], torch.from_numpy(a.copy())
    if kind == "read-only":
        return np.broadcast_to(np.float64(2), 6), a, torch.from_numpy(a)
    return a.astype(np.float32), a.reshape(2, 3)[:, 1], torch.from_numpy(a)


KINDS = "apart", "same", "overlap", "backwards", "read-only", "others"


@pytest.mark.parametrize("fn", [shares, reads, writes_in_turn, shown_late], ids=lambda f: f.__name__)
def test_arguments_that_share_memory(fn, capsys):
    translated = sot.to_static(fn)
    for kind in (*KINDS, *KINDS):
        mine, theirs = arguments(kind), arguments(kind)
        want, printed = caught(fn, *theirs), capsys.readouterr().out
        assert same(caught(translated, *mine), want) is None, kind
        assert same(mine, theirs) is None, kind
        assert capsys.readouterr().out == printed
