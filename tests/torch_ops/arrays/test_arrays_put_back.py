"""Arrays that share the memory of arguments and are changed before NumPy may warn: the graph puts the elements back,
and Python runs the frame and warns.
"""
import warnings

import numpy as np
import pytest
import torch
from harness import Programs, check_by, outcome, same

import sot

X = torch.arange(1.0, 7.0).reshape(2, 3)
BAD = X * 5e37
OUTSIDE = np.zeros(3, dtype=np.float32)
programs, left = Programs(), Programs()


def turn(a):
    """A change that leaves something else if it is made twice."""
    a[:] = a[..., ::-1].copy()


def turned(x):
    sot.graph_break()       # after it, the tensor is an input
    a = x.detach().numpy()
    turn(a)
    return np.square(a)


@programs
def sets_an_element(x):
    a = x.numpy()
    a[0, 0] = 5
    return x * 2, a.mean(), np.exp(a)


@programs
def sets_a_row(x):
    a = x.numpy()
    a[1] = 7
    return x + 1, a.sum(axis=0), a.std()


@programs
def adds_in_place_before_and_after(x):
    a = x.numpy()
    a[0] = a[1]
    total = a.sum()
    return total, a * a


@programs
def changes_a_view(x):
    a = x.numpy()[:, 1:]
    a[0, 0] = 4
    return x.sum(), np.multiply(a, a), a.prod()


@programs
def changes_by_another_tensor(x):
    a = x.view(-1).numpy()
    a[2] = 9
    return x * 1, np.square(a)


@programs
def changes_two_arguments(x):
    y = x[1]
    a, b = x.numpy(), y.numpy()
    a[0, 0], b[1] = 2, 3
    return np.dot(a, b), y + 1


@programs
def prints(x):
    a = x.numpy()
    a[0, 0] = 5
    print("mean", float(x[0, 1]))
    return np.square(a).sum(), x + 1


@programs
def fills(x):
    a = x.numpy()
    a.fill(3)
    return (a * a).mean(), x.sum()


@programs
def copies_into(x):
    a = x.numpy()
    np.copyto(a, 2)
    return np.cumsum(a), x - 1


@programs
def draws_first(x):
    noise = torch.rand(3)
    a = x.numpy()
    a[0, 1] = 8
    return a.sum(), x + noise


@programs
def changes_detached_memory(x):
    w = x.detach()
    a = w.numpy()
    a[0, 0] = 5
    return np.square(a), w._version, x._version


@left
def changes_in_torch_as_well(x):
    x.add_(1)
    a = x.numpy()
    a[0, 0] = 5
    return a.mean(), x + 1


@left
def changes_after_it_may_have_warned(x):
    a = x.numpy()
    total = np.square(a).sum()
    a[0, 0] = 5
    return total, x + 1


@left
def changes_an_array_of_the_caller(x):
    turn(OUTSIDE)
    return np.square(x.numpy()), [*OUTSIDE]


@left
def changes_elements_that_share_memory(x):
    first, second = x[:, :1].expand(2, 3), x[:, 1:2]
    sot.graph_break()
    before = second.numpy().copy()
    np.copyto(second.numpy(), first[:, 1:2].numpy())
    np.copyto(first.numpy(), before)
    return np.square(before)


@left
def changes_what_inference_has_made(x):
    with torch.inference_mode():
        y = x * 1
    return turned(y), y + 1


@left
def changes_one_of_many_columns(x):
    y = x[:, 1:]
    return turned(y), y + 1


@left
def changes_a_weight(x):
    y = x.clone().requires_grad_()
    return turned(y), y * 2


def is_turned(row):
    turn(row.numpy())
    sot.graph_break()
    return float(row.sum())


@left
def changes_where_a_break_is_moved_out(x):
    return sorted(x, key=is_turned), np.square(x.numpy())


@left
def is_large(x):
    a = x.repeat(1 << 10, 1 << 10).numpy()
    a[0, 0] = 5
    return a.mean()


def said(call, x):
    OUTSIDE[:] = range(3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = outcome(call, (x,), {})
    return made, [(str(w.message), w.category, w.lineno, w.filename) for w in found]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", programs.all, ids=lambda fn: fn.__name__)
def test_a_change_before_numpy_may_warn_is_in_the_graph(fn):
    check_by("eager", fn, X, breaks=0)
    check_by("aot_eager", fn, X)


@pytest.mark.parametrize("fn", [*programs.all, *left.all], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("first", [X, BAD], ids=["quiet at first", "warns at first"])
def test_warnings_and_changes_are_those_of_python(fn, first):
    translated = sot.to_static(fn, backend="eager")
    for x in (first, BAD, X, BAD, X):
        torch.manual_seed(0)
        want, of_python = said(fn, x.clone())
        torch.manual_seed(0)
        got, of_graph = said(translated, x.clone())
        assert of_graph == of_python
        assert not [d for name in ("raised", "result", "printed", "args", "random") if (
            d := same(getattr(got, name), getattr(want, name), name))]


@pytest.mark.parametrize("fn", programs.all, ids=lambda fn: fn.__name__)
def test_warnings_that_are_errors(fn):
    translated = sot.to_static(fn, backend="eager")
    for x in (X, BAD, BAD):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.manual_seed(0)
            want = outcome(fn, (x.clone(),), {})
            torch.manual_seed(0)
            got = outcome(translated, (x.clone(),), {})
        assert not [d for name in ("raised", "result", "args") if (
            d := same(getattr(got, name), getattr(want, name), name))]


def test_an_argument_that_is_changed_has_the_version_that_python_gives_it():
    translated = sot.to_static(sets_an_element, backend="eager")
    for x in (X, BAD, X):
        plain, mine = x.clone(), x.clone()
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sets_an_element(plain)
            translated(mine)
        assert mine._version == plain._version and torch.equal(mine, plain)
