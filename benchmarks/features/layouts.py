"""``torch.sparse``, ``torch.nested``, ``torch.masked``, ``torch.jit`` and storages."""
from __future__ import annotations

import torch
from torch.masked import as_masked_tensor, masked_tensor

from .program import Group

# ---- torch.sparse ----
sparse = Group("torch.sparse")


@sparse
def coordinates(x):
    i = torch.tensor([[0, 1, 2], [2, 0, 1]])
    s = torch.sparse_coo_tensor(i, torch.ones(3), (3, 4)).coalesce()
    return s.to_dense() + x, s.indices(), s.values(), s._nnz(), s.is_sparse


@sparse
def made_from_dense(x):
    s = (x * (x > 1)).to_sparse()
    return s.to_dense(), s.sparse_dim(), s.is_coalesced(), (s * 2).to_dense()


@sparse
def products_with_dense(x):
    s = torch.eye(4).to_sparse()
    return torch.sparse.mm(s, x.T), s @ x.T, torch.sparse.addmm(torch.ones(4, 3), s, x.T)


@sparse
def compressed_rows(x):
    s = torch.sparse_csr_tensor(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 1]), torch.ones(3), (3, 4))
    return s.to_dense(), s.crow_indices(), s.col_indices(), s @ x.T, s.layout


@sparse
def converted_layouts(x):
    s = x.to_sparse_csr()
    return s.values(), s.to_sparse_coo().to_dense(), x.to_sparse_csc().ccol_indices()


@sparse
def reduced(x):
    s = x.to_sparse()
    return torch.sparse.sum(s), torch.sparse.sum(s, 1).to_dense(), torch.sparse.softmax(s, 1).to_dense()


@sparse
def masked_by_patterns(x):
    return x.sparse_mask((x > 1).float().to_sparse().coalesce()).to_dense()


@sparse
def a_graph_convolution(x):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    a = torch.sparse_coo_tensor(edges, torch.ones(3), (3, 3))
    degree = torch.sparse.sum(a, 1).to_dense()
    return (a @ x) / degree[:, None]


@sparse.of(lambda: (torch.arange(12.0).reshape(3, 4).to_sparse(), torch.ones(4, 2)))
def handed_in(s, w):
    return s @ w, s.shape, (s + s).to_dense()


# ---- torch.nested ----
nested = Group("torch.nested")


@nested
def strided(x):
    n = torch.nested.nested_tensor([x, x[:2]])
    return [t.sin() for t in n.unbind()], n.is_nested, torch.nested.to_padded_tensor(n, 0.0), n.size(0)


@nested
def jagged(x):
    n = torch.nested.nested_tensor([x, x[:2]], layout=torch.jagged)
    return (n * 2).values(), n.offsets(), torch.nested.to_padded_tensor(n.sin(), 0.0)


@nested
def jagged_from_parts(x):
    n = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 3]))
    return torch.nn.functional.linear(n, torch.ones(2, 4)).values(), [t.shape for t in n.unbind()]


@nested
def jagged_through_a_layer(x):
    n = torch.nested.as_nested_tensor([x, x[:1]], layout=torch.jagged)
    return torch.nn.functional.layer_norm(n, (4,)).values(), torch.nn.functional.gelu(n).values()


@nested
def jagged_sums(x):
    n = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 3]))
    return n.sum(1), n.mean(1), n.shape[0], n.dim()


@nested.of(lambda: (torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged),))
def jagged_handed_in(n):
    return (n.cos() + n).values(), n.is_nested, n.layout


@nested
def jagged_attention(x):
    n = torch.nested.nested_tensor_from_jagged(x.view(3, 2, 2), torch.tensor([0, 1, 3])).transpose(1, 2)
    return torch.nn.functional.scaled_dot_product_attention(n, n, n).transpose(1, 2).values()


# ---- torch.masked ----
masked = Group("torch.masked")


@masked
def reductions_with_masks(x):
    mask = x > 0.5
    return torch.masked.sum(x, 1, mask=mask), torch.masked.mean(x, 1, mask=mask), torch.masked.amax(x, 0, mask=mask)


@masked
def softmax_with_masks(x):
    return torch.masked.softmax(x, 1, mask=x > 0.5), torch.masked.log_softmax(x, 1, mask=x > 0.5)


@masked
def normalized_with_masks(x):
    return (
        torch.masked.normalize(x, 2.0, 1, mask=x > 0.5), torch.masked.norm(x, 2.0, 1, mask=x > 0.5),
        torch.masked.var(x, 1, mask=x > 0.5))


@masked
def masked_tensors(x):
    m = masked_tensor(x, x > 0.5)
    return m.sum().get_data(), (m + m).to_tensor(0.0), m.get_mask()


@masked
def masked_tensors_of_tensors(x):
    return as_masked_tensor(x.clone(), x > 1).mean(1).to_tensor(-1.0)


# ---- torch.jit ----
jit = Group("torch.jit")


@torch.jit.script
def scripted(x, n: int):
    for i in range(n):
        x = x + i
    return x


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.weight + 1


SCRIPTED = torch.jit.script(Scripted())
TRACED = torch.jit.trace(lambda v: v.sin() * 2, torch.ones(3, 4))


@jit
def functions_that_are_scripted(x):
    return scripted(x, 3) * 2


@jit
def modules_that_are_scripted(x):
    return SCRIPTED(x).relu()


@jit
def functions_that_are_traced(x):
    return TRACED(x) + 1


@jit
def decorators_for_scripts(x):
    @torch.jit.ignore
    def ignored(v):
        return v * 2

    @torch.jit.unused
    def unused(v):
        return v + 1
    return ignored(x) + unused(x)


@jit
def annotations_for_scripts(x):
    values = torch.jit.annotate(list[torch.Tensor], [])
    values.append(x)
    return torch.stack(values), torch.jit.isinstance(values, list[torch.Tensor])


@jit
def forked_work(x):
    future = torch.jit.fork(torch.sin, x)
    return torch.jit.wait(future) + x


# ---- storages ----
storages = Group("torch.UntypedStorage")


@storages
def shared_storage(x):
    y = x.view(-1)
    return x * 1, x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(), y.storage_offset()


@storages
def bytes_of_storages(x):
    return x * 2, x.untyped_storage().nbytes(), x.untyped_storage().tolist()[:4]


@storages
def storages_resized(x):
    y = x * 2
    z = y + 1
    y.untyped_storage().resize_(0)
    return z, y.untyped_storage().size()


@storages
def tensors_of_storages(x):
    y = torch.tensor([], dtype=x.dtype)
    y.set_(x.untyped_storage(), 2, (2, 2), (4, 1))
    return y * 2


@storages
def typed_storages(x):
    return x + 1, len(x.storage()), x.storage()[1], x.storage().dtype
