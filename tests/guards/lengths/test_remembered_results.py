"""With symbols,
    an operation that a model repeats is computed once. It is that which torch computes each time.
"""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sot
from sot.torch_compat import native
from sot.torch_compat.fake_tensors import new_fake_mode
from sot.torch_compat.operators.remembered import RememberedResults
from sot.torch_compat.symbolic_shapes import new_symbol, shape_env_of

pytestmark = pytest.mark.skipif(native.module("tensors") is None, reason="without the extension nothing is remembered")

REMEMBERED = {
    "elementwise": lambda x, y: (x + y) * 2 - x.sigmoid(),
    "promotion": lambda x, y: (x > y, x + (y > 0), x.int() + 1.5, x.double() * y),
    "broadcast": lambda x, y: x[:, None] + y[None],
    "views": lambda x, y: (x.t(), x[1:], x.view(-1), x.unsqueeze(0).expand(3, -1, -1), x.select(1, 2), y.narrow(0, 1,
        1)),
    "a view of a view": lambda x, y: x.t()[1:].unflatten(0, (3, 1)),
    "no results": lambda x, y: (*x[:, :0].unbind(1), *x[:, :0].unbind(1), x + 1),
    "many views": lambda x, y: (*x.unbind(1), *x.split(3, 1), *torch.chunk(y, 2, 1)),
    "copies": lambda x, y: (x.t().contiguous(), x.reshape(2, -1) if x.shape[0] % 2 == 0 else x.clone(), x.flatten()),
    "reductions": lambda x, y: (x.sum(), x.mean(0), x.std(1, keepdim=True), x.max(1), x.argmax(0), *torch.var_mean(x,
        1)),
    "sorting": lambda x, y: (*x.sort(1), *x.topk(2, 1), x.cumsum(0)),
    "matrices": lambda x, y: (x @ y.t(), F.linear(x, y[:2]), torch.bmm(x[None], y.t()[None]), torch.einsum("ij,kj",
        x, y)),
    "normalisation": lambda x, y: (F.layer_norm(x, (4,)), x.softmax(-1), F.normalize(x), F.batch_norm(x, None, None,
        training=True)),
    "joined": lambda x, y: (torch.cat([x, y]), torch.stack([x, y]), F.pad(x, (1, 2)), torch.where(x > 0, x, y)),
    "made": lambda x, y: (torch.zeros_like(x), x.new_ones(x.shape), torch.full((x.shape[0],), 2),
        torch.arange(x.shape[0])),
    "in place": lambda x, y: (x * 1).add_(y).sigmoid_().clamp_(0).t_(),
    "written views": lambda x, y: (z := x * 1, z[1:].mul_(2), z.t().zero_())[0],
    "results that are not there": lambda x, y: [r for r in torch.ops.aten.native_layer_norm_backward(
        x * 1, y, [4], *torch.var_mean(y, 1, keepdim=True), None, None, [True, False, False]) if r is not None],
    "detached": lambda x, y: (z := (x * 1).add_(y), d := z.detach(), v := z[1:], z.mul_(2), d, v),
    "changed one by one": lambda x, y: (a := x * 1, b := x * 1, a.add_(1).add_(1), b.add_(1)),
    "random": lambda x, y: (F.dropout(x), torch.rand_like(x), x.bernoulli()),
    "indices": lambda x, y: (x[x.argmax(0)], x.gather(1, x.long()), F.embedding(x.long(), y), x.index_select(1,
        x.long()[0])),
}


def fakes(symbols, grad):
    """A mode, and a function that makes two fake tensors, which may have a symbol for their rows."""
    mode = new_fake_mode()
    mode.has_symbols = symbols
    n = new_symbol(shape_env_of(mode), "n0", 6, True, None)[1] if symbols else 6

    def make():
        with mode:
            return [torch.empty(n, 4, requires_grad=grad) for _ in range(2)]
    return mode, make


def facts(tensor, arguments):
    """The metadata of a result, and whose memory it uses."""
    def memory(t):
        return t.untyped_storage()._cdata
    return (str(tensor), tensor.dtype, tensor.device, str(tensor.shape), str(tensor.stride()),
            str(tensor.storage_offset()),
            [memory(tensor) == memory(t) for t in arguments], tensor._version, tensor._is_view(),
            tensor.is_contiguous(),
            tensor.requires_grad, type(tensor.grad_fn).__name__)


@pytest.mark.parametrize("symbols", [False, True], ids=["constant", "symbols"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", REMEMBERED)
def test_a_repeated_operation_has_the_metadata_that_torch_computes(name, grad, symbols):
    mode, make = fakes(symbols, grad)
    results, found = mode.results, []
    for mode.results in (None, results, results):
        arguments = make()
        with mode.running():
            result = REMEMBERED[name](*arguments)
            tensors = torch.utils._pytree.tree_leaves(result)
            found.append(([facts(tensor, [*arguments, *tensors]) for tensor in tensors], len(results.results)))
    (computed, _), (first, size), (again, size_again) = found
    assert first == computed and again == computed
    assert size == size_again > 0


def count_computed(monkeypatch, layers):
    """How many results are computed for a model with that many equal layers."""
    computed = []
    parts = RememberedResults.parts
    monkeypatch.setattr(RememberedResults, "parts", lambda *args: computed.append(args[2][0]) or parts(*args))
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(layers)))
    translated = sot.to_static(model, backend="eager")
    for batch, length in ((2, 5), (3, 7), (4, 6)):
        x = torch.randn(batch, length, 8)
        torch.manual_seed(1)
        want = model(x)
        torch.manual_seed(1)
        assert torch.equal(translated(x), want)
    monkeypatch.undo()
    return len(computed)


def test_a_layer_that_is_repeated_is_computed_once(monkeypatch):
    two, six = (count_computed(monkeypatch, layers) for layers in (2, 6))
    assert two == six > 0


def test_what_changes_metadata_is_computed():
    """After a change of metadata in place, the same operation has another result."""
    def f(x):
        a, b = x * 1, x * 1
        b.t_()
        b.unsqueeze_(0)
        return a + 1, b + 1, a.sum(0), b.sum(0), x[1:] * 2, x[:1] * 2
    translated = sot.to_static(f)
    for n in (5, 6, 9):
        x = torch.randn(n, 3)
        for got, want in zip(translated(x), f(x), strict=True):
            assert torch.equal(got, want) and got.stride() == want.stride()


def test_each_size_that_depends_on_data_is_a_symbol_of_its_own():
    def f(x):
        a, b = x[x > 0], x[x < 0.5]
        return torch.cat([a, b]), a.nonzero(), b.nonzero(), a.sum() + b.sum()
    translated = sot.to_static(f)
    for n in (5, 6, 9):
        x = torch.randn(n, 3)
        for got, want in zip(translated(x), f(x), strict=True):
            assert torch.equal(got, want)


def test_an_operation_that_writes_what_it_reads_is_computed():
    def f(x):
        a, b = x * 1, x * 1
        a[1:].add_(b[1:])
        a[1:].add_(a[:-1].clone())
        return a.add_(b), b.mul_(b)
    translated = sot.to_static(f)
    for n in (5, 6, 9):
        x = torch.randn(n, 3)
        for got, want in zip(translated(x), f(x), strict=True):
            assert torch.equal(got, want)
