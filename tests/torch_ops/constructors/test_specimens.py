"""Quantized tensors, and nested tensors with strides, that a captured function makes."""
import warnings

import pytest
import torch
from harness import Programs, check, check_by, same

import sot

X = torch.arange(12.0).reshape(3, 4) / 6
whole, parts = Programs(), Programs()
pytestmark = pytest.mark.filterwarnings("ignore")


@whole
def quantizes(x):
    q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
    return q.dequantize(), q.int_repr(), q.q_scale(), q.q_zero_point(), q.dtype, q.shape, q.is_quantized, q.dim()


@whole
def quantizes_per_channel(x):
    scales, zeros = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int64)
    q = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    return torch.dequantize(q) + 1, q.int_repr().sum(), q.q_per_channel_axis(), q.qscheme()


@whole
def operations_of_quantized_tensors(x):
    q = torch.quantize_per_tensor(x - 1, 0.1, 0, torch.qint8)
    return q.relu().dequantize(), q.view(4, 3)[1:].dequantize(), q.t().int_repr(), q.size(0), len(q.shape)


@whole
def nests(x):
    n = torch.nested.nested_tensor([x, x[:2]])
    return [t.sin() for t in n.unbind()], n.is_nested, torch.nested.to_padded_tensor(n, 0.0), n.size(0), n.dim()


@whole
def operations_of_nested_tensors(x):
    n = torch.nested.as_nested_tensor([x, x[:1]])
    a, b = torch.relu(n - 1 if False else n.clone()).unbind()
    return a + 1, b, torch.nested.to_padded_tensor(torch.nn.functional.linear(n, torch.ones(2, 4)), -1.0)


@whole
def operators(x):
    n, q = torch.nested.nested_tensor([x, x + 1]), torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    made = -n, n + n, 2 * n, n / 2 - n, n @ torch.nested.nested_tensor([x.t(), x.t()])
    return [t.unbind() for t in made], q == q, q > 0.5


@whole
def rows(x):
    n, q = torch.nested.nested_tensor([x, x + 1]), torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return [t.sin() for t in n], [t.dequantize() for t in q], len(q), n[1] + 1


@parts
def has_no_length(x):
    try:
        return len(torch.nested.nested_tensor([x, x + 1]))
    except RuntimeError as e:
        return str(e)


@whole
def changes_what_is_nested(x):
    n = torch.nested.nested_tensor([x, x[:2]])
    first, second = n.unbind()
    first.add_(1)
    again = n.unbind()[0]
    again.mul_(2)
    x.zero_()
    return first, second, torch.nested.to_padded_tensor(n, 0.0)


@whole
def numbers_before_and_after_a_change(x):
    n = torch.nested.nested_tensor([x, x[:2]])
    first = n.unbind()[0]
    before = first[0, 1].item()
    n.unbind()[0].add_(5)
    return before, first[0, 1].item()


@whole
def makes_it_again_in_a_loop(x):
    for i in range(3):
        x = torch.quantize_per_tensor(x, 0.1 * (i + 1), 0, torch.quint8).dequantize() + 0.3
    return x


@parts
def scales_of_values(x):
    q = torch.quantize_per_tensor_dynamic(x, torch.quint8, False)
    return q.dequantize(), q.q_scale()


@parts
def compares_elements(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return x + 1 if q.equal(q.clone()) else x


@parts
def in_place(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    q[0] = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.quint8)
    return q.dequantize()


@parts
def has_no_shape(x):
    n = torch.nested.nested_tensor([x, x[:2]])
    try:
        return n.shape
    except RuntimeError as e:
        return str(e), x + 1


@parts
def refused(x):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.float32)


@parts
def refused_and_caught(x):
    try:
        torch.nested.nested_tensor([x, x[0]]).sin()
    except RuntimeError:
        return x + 1
    return x


@parts
def with_gradients(x):
    w = torch.ones(3, 4, requires_grad=True)
    n = torch.nested.as_nested_tensor([w * 2, w[:2]])
    torch.nested.to_padded_tensor(n, 0.0).sum().backward()
    return w.grad


@parts
def under_a_transform(x):
    return torch.func.grad(lambda v: torch.quantize_per_tensor(v.detach(), 0.1, 0, torch.quint8).dequantize().sum()
                           + v.sum())(x)


@parts
def breaks_between(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    sot.graph_break()
    return q.dequantize() + 1


@parts
def shown(x):
    q = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return repr(q), x + 1


@whole.each
def test_is_one_graph(fn):
    check_by("eager", fn, X.clone(), breaks=0)


@parts.each
def test_is_as_in_plain_python(fn):
    check(fn, X.clone())
    check_by("eager", fn, X.clone())


@pytest.mark.parametrize("fn", [*whole.all, *parts.all], ids=lambda fn: fn.__name__)
def test_with_a_backend_that_compiles(fn):
    check_by("aot_eager", fn, X.clone())


def test_sizes_that_vary():
    translated = sot.to_static(nests, backend="eager")
    for rows in (3, 4, 5, 2):
        x = torch.arange(4.0 * rows).reshape(rows, 4)
        assert same(translated(x), nests(x)) is None


def test_a_result_of_the_function():
    def makes(x):
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), torch.nested.nested_tensor([x, x[:1]])
    translated = sot.to_static(makes, backend="eager")
    for _ in range(2):
        (got, nested), (want, wanted) = translated(X), makes(X)
        assert torch.equal(got.int_repr(), want.int_repr()) and got.q_scale() == want.q_scale()
        assert all(map(torch.equal, nested.unbind(), wanted.unbind()))
    assert not any(capture.stopped for capture in sot.translation_of(translated).captures)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_argument_is_left_to_python(backend):
    def reads(q):
        return q.dequantize() + 1
    translated, q = sot.to_static(reads, backend=backend), torch.quantize_per_tensor(X, 0.1, 0, torch.quint8)
    for _ in range(2):
        assert torch.equal(translated(q), reads(q))


def test_warnings_are_those_of_torch():
    def said(fn):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            torch.set_warn_always(True)
            try:
                fn(X.clone())
            finally:
                torch.set_warn_always(False)
        return [(str(each.message), each.category, each.filename, each.lineno) for each in log]
    for fn in (nests, quantizes):
        translated = sot.to_static(fn, backend="eager")
        for _ in range(2):
            assert said(translated) == said(fn)
