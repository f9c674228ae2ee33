"""Sparse tensors, packed sequences and encoders of padded batches where a backend cannot compile the whole function.

Compilers trace none of their operations. Where a graph cannot be cut into pieces around them, they are breaks: what
lies before and after them is compiled.
"""
import pytest
import torch
from harness import Programs, check_by, every_call
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import sot
from sot.support.errors import CaptureError

pytestmark = pytest.mark.filterwarnings("ignore")
programs = Programs()
torch.manual_seed(0)
NETWORK, WEIGHT, EMBEDDING = nn.GRU(3, 4), nn.Parameter(torch.randn(3)), nn.Embedding(5, 3, sparse=True)
ENCODER = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2).eval()


@programs
def lengths_in_a_tensor(x):
    packed = pack_padded_sequence(x.cos()[:, None].expand(4, 2, 3), (x[0, :2] > 0).long() + 2, enforce_sorted=False)
    rows, state = NETWORK(packed)
    return pad_packed_sequence(rows)[0].sin(), state * 2


@programs
def packed_with_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        rows, state = NETWORK(pack_sequence([x.sin(), x[:2]]))
    return rows.data.cos(), state, y


@programs
def sparse_elements(x):
    some = (x.sin() * 2).relu().to_sparse()
    return torch.sparse.mm(some, x.t()).cos() * WEIGHT.sum(), some.indices(), some.values() * 2


@programs
def sparse_rows(x):
    some = (x.sin() * 2).relu().to_sparse_csr()
    return (some @ x.t().cos()).sin(), some.values()


@programs
def checked_by_a_branch(x):
    some = (x * 2).to_sparse()
    if some.values().sum() > 1000:
        return some
    return (some.to_dense() * WEIGHT).sin()


@programs
def a_padded_batch(x):
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        mask = torch.tensor([[False, False, False], [False, True, True]])
        return ENCODER(x.view(1, 3, 4).expand(2, 3, 4).sin(), src_key_padding_mask=mask).cos()


X = torch.randn(4, 3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@programs.each
def test_results_are_those_of_python(fn, backend):
    check_by(backend, fn, X.clone().requires_grad_(fn is not sparse_rows))


@programs.each
def test_what_lies_around_them_is_compiled(fn):
    translated = sot.to_static(fn, backend=every_call("aot_eager"))
    translated(X)
    assert not [c for c in translated.captures if c.stopped is not None and c.stopped.reason.name == "UNSUPPORTED"]
    assert len(translated.graphs) >= 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_sparse_gradients_of_the_call(backend):
    """Python goes backward, and the optimizer steps with what it made."""
    def fn(i):
        (EMBEDDING(i).sin() * WEIGHT).sum().backward()
        gradient = EMBEDDING.weight.grad
        EMBEDDING.weight.grad = None
        return gradient.is_sparse, gradient.to_dense().cos()

    translated = sot.to_static(fn, backend=backend)
    for i in (torch.tensor([0, 3, 3]), torch.tensor([1, 1, 2]), torch.tensor([4, 0, 1, 2])):
        torch.testing.assert_close(translated(i), fn(i))
    assert translated.graphs


def test_a_function_that_must_be_one_graph_names_the_operation():
    with pytest.raises(CaptureError, match="a result of to_sparse_csr is a sparse tensor"):
        sot.to_static(sparse_rows, backend="aot_eager", full_graph=True)(X)
