"""``x.storage()``: its size, dtype and elements."""
import warnings

import pytest
import torch
from harness import Programs, check, check_by, outcome, same

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()
pytestmark = pytest.mark.filterwarnings("ignore")


@whole
def size_and_dtype(x):
    s = x.storage()
    return x + 1, len(s), s.size(), s.dtype, s.nbytes(), s.element_size(), type(s), torch.is_storage(s)


@whole
def elements(x):
    s = x.storage()
    return s[1], s[-1], s[0] + 1, x[1:].storage()[0]


@whole
def elements_of_other_dtypes(x):
    return (x > 1).storage()[0] if False else x.storage()[2], x.double().storage().dtype, x.long().storage().dtype


@whole
def after_a_change(x):
    s = x.storage()
    before = s[5]
    x[1, 1] = 7
    x.view(-1)[0] += 2
    return before, s[5], x.storage()[0], x


@whole
def of_a_view(x):
    row = x[1]
    return len(row.storage()), row.storage()[0], row.storage_offset(), row.t().storage()[7]


@whole
def errors(x):
    found = []
    for key in (12, -13, slice(0, 2), "a"):
        try:
            x.storage()[key]
        except (IndexError, RuntimeError) as e:
            found.append(str(e))
    return found, x * 2


@parts
def of_memory_of_the_call(x):
    y = x * 2
    return len(y.storage()), y.storage()[3]


@parts
def changes_an_element(x):
    s = x.storage()
    s[0] = 5
    return x + 1


@parts
def as_a_list(x):
    return x.storage().tolist(), list(x[0].storage())


@parts
def copies(x):
    return x.storage().clone()[1], x.storage().float().dtype


@parts
def a_varying_index(x):
    return x.storage()[int(x[0, 3] * 2)]


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone(), breaks=0)
    check_by("eager", fn, torch.cat([X, X])[2:5])


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone(), again=False)
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


def test_another_size():
    translated = sot.to_static(elements, backend="eager")
    for rows in (3, 2, 5, 3):
        x = torch.arange(4.0 * rows).reshape(rows, 4)
        assert same(translated(x), elements(x)) is None


def test_an_index_that_is_out_of_range_later():
    def reads(x):
        return x.storage()[9]
    translated = sot.to_static(reads, backend="eager")
    for n in (12, 9, 10):
        x = torch.arange(float(n))
        want, got = outcome(reads, (x,), {}), outcome(translated, (x,), {})
        assert same(got.result, want.result) is None and repr(got.raised) == repr(want.raised)


def test_the_warning_comes_once():
    def said(fn):
        torch.storage._reset_warn_typed_storage_removal()
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            for _ in range(2):
                fn(X)
        return [(str(each.message), each.category, each.filename, each.lineno) for each in log]
    translated = sot.to_static(elements, backend="eager")
    for _ in range(3):
        assert said(translated) == said(elements) != []
