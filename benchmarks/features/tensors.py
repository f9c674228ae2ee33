"""Methods and attributes of ``torch.Tensor``."""
from __future__ import annotations

import copy
import pickle

import numpy as np
import torch

from .program import Group, leaf

tensor = Group("torch.Tensor")


@tensor
def in_place_chains(x):
    y = x.clone().add_(1).mul_(2).clamp_(max=3)
    x.sub_(1)
    return y, y.data_ptr() == y.view(-1).data_ptr()


@tensor
def item_assignment(x):
    x[0] = 1
    x[:, 1] += 2
    x[x > 1.5] = 0
    x[[0, 2], [1, 3]] = torch.tensor([7.0, 8.0])
    x[..., -1] = x[..., 0]
    return x.sum()


@tensor
def indexing_of_all_kinds(x):
    i = torch.tensor([2, 0])
    return x[1], x[-1, ::2], x[None, ..., 0], x[i], x[i, 1:], x[:, [0, 3]], x[x[:, 0] > 0], x[(i, i)], x[True].shape


@tensor
def operators(x):
    y = x.to(torch.int32)
    return -x, abs(x), x ** 2, 2 ** x, x // 1, x % 2, 5 - x, 1 / (x + 1), y & 1, y | 4, y ^ 2, ~y, y << 1, x @ x.T, (
        x == x, x.__rsub__(1), x.round(), y % 2 == 0)


@tensor
def augmented_assignment(x):
    y = x
    y += 1
    y *= 2
    z = x.clone()
    z /= 2
    z **= 2
    z -= y
    return y is x, z


@tensor
def iteration(x):
    total = 0
    for row in x:
        first, *rest = row
        total = total + first * len(rest)
    return total, [r.sum() for r in x], len(x), list(map(float, x[0])), sum(x)


@tensor
def views(x):
    y = x.view(4, 3)
    y[0, 0] = 9
    return (
        x.t(), x.unfold(1, 2, 1), x.as_strided((2, 2), (1, 2)), x.expand(2, 3, 4), x.diagonal(), x.flatten(),
        y._is_view(), y._base is x)


@tensor
def shapes_asked(x):
    return x.shape, x.stride(), x.dim(), x.ndim, x.is_contiguous(), x.T.is_contiguous(), x.element_size(), x.nbytes, (
        x.T.contiguous().stride(), x.numel(), x.itemsize)


@tensor
def conversions(x):
    return x.long(), x.to("cpu", torch.float16), x.type(torch.DoubleTensor), x.type(), x.half().float(), x.bool(), x.to(
        x.double()), x.cpu(), x.int().char()


@tensor
def numbers(x):
    return float(x[0, 1]), int(x[2, 3]), bool(x[0, 0]), x[1, 1].item() * x, complex(x[0, 2]), x.sum().tolist()


@tensor
def shown(x):
    return f"{x[0, 1]:.3f}", "{}".format(x[0]), str(x), "%s" % x[1, 1], x * 2


@tensor
def numpy_arrays(x):
    a = x.numpy()
    a[0, 0] = 5
    return x * 2, a.mean(), np.asarray(x).shape, np.exp(a), torch.from_numpy(a) is x


@tensor
def membership_and_equality(x):
    return (
        0.5 in x, x.equal(x.clone()), x.eq(x).all().item(), torch.allclose(x, x), x.isclose(x + 1e-9), x is x.data,
        hash(x) == id(x))


@tensor
def copies(x):
    x.tag = "kept"
    y, z = copy.copy(x), copy.deepcopy(x)
    y[0, 0] = 3
    return x * 1, y.tag, z.tag, z


@tensor
def pickled(x):
    return pickle.loads(pickle.dumps(x * 2)) + 1


@tensor
def attributes_of_users(x):
    x.label = {"rows": 3}
    y = x * x.label["rows"]
    del x.label
    return y, hasattr(x, "label"), getattr(x, "label", None)


@tensor.of(leaf)
def data(x):
    x.data.mul_(2)
    y = x.detach()
    y.add_(1)
    x.data = torch.ones(3, 4)
    return x * 2, x.is_leaf, y


@tensor.of(leaf)
def gradients(x):
    y = (x * 2).requires_grad_()
    y.retain_grad()
    y.sin().sum().backward()
    g, x.grad = x.grad, None
    return y.grad, g, y.grad_fn.name(), y.retains_grad, y.output_nr


@tensor.of(leaf)
def hooks(x):
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.shape) or g * 2)
    (x.sin()).sum().backward()
    handle.remove()
    return seen, x.grad


@tensor.of(leaf)
def hooks_after_accumulation(x):
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    (x * 3).sum().backward()
    return seen


@tensor
def memory_formats(x):
    y = x.view(1, 1, 3, 4).to(memory_format=torch.channels_last)
    return y.is_contiguous(memory_format=torch.channels_last), y.contiguous().stride(), x.clone(
        memory_format=torch.contiguous_format), y.dim_order()


@tensor
def resized(x):
    y = torch.empty(0)
    y.resize_(2, 2).fill_(1)
    z = torch.empty(0)
    z.set_(x)
    return y, z * 2, x.clone().resize_(2, 6)


@tensor
def map_and_apply(x):
    return x.clone().apply_(lambda v: v * 2 + 1), x.clone().map_(x, lambda a, b: a + b)


@tensor
def functions_as_methods(x):
    return (
        x.addmm(x[:, :3], x), x.lerp(x + 1, 0.5), x.cumsum(0).diff(dim=0), x.addcmul(x, x, value=2), x.norm(),
        x.softmax(1))


@tensor
def parts_of_complex(x):
    z = x.to(torch.cfloat) * 1j
    return z.real, z.imag, x.real, z.H.shape, z.mT.resolve_conj(), z.is_conj(), z.angle()


@tensor
def index_methods(x):
    i = torch.tensor([0, 2])
    return (
        x.index_add(0, i, torch.ones(2, 4)), x.index_copy_(0, i, torch.zeros(2, 4)).clone(), x.index_fill(1, i, 3.0),
        (x.index_put((i, i), torch.tensor(1.0), accumulate=True), x.put_(i, torch.ones(2)).clone(), x.take(i)))


@tensor
def scatter_methods(x):
    i = torch.tensor([[0, 1, 2, 0]])
    y = torch.zeros(3, 4).scatter_(0, i, x)
    return y, y.scatter_add_(0, i, x).clone(), y.masked_scatter_(y > 0, x).clone(), y.masked_fill_(y > 1, -1), (
        y.select_scatter(x[0], 0, 1), y.slice_scatter(x[:1], 0, 1, 2), y.diagonal_scatter(x[:, 0]))


@tensor
def shared_and_pinned(x):
    return (
        x * 2, x.is_shared(), x.is_pinned(), x.is_sparse, x.is_quantized, x.is_meta, x.layout, x.is_cuda,
        x.get_device())


@tensor
def legacy_constructors(x):
    return (
        torch.FloatTensor([1, 2]) + x[0, :2], torch.LongTensor(2).zero_(), x.new([3.0]), torch.Tensor(x),
        torch.Tensor(2, 3).shape)


@tensor
def unpacking(x):
    a, b, c = x
    (p, q), r = x[0].split([2, 2]), x.unbind(1)
    return a + b + c, p * q, len(r), [*x], {"rows": (*x[1:],)}


@tensor
def versions_counted(x):
    before = x._version
    x.add_(1)
    return x._version - before, x * 2


@tensor
def methods_kept_as_values(x):
    f = x.add
    g = torch.Tensor.mul
    return f(1), g(x, 2), [getattr(x, name)() for name in ("sin", "cos", "exp")], x.__class__.__name__


@tensor
def unflattened(x):
    return (
        x.unflatten(1, (2, -1)), x.view_as(x), x.reshape(-1, 2).squeeze().unsqueeze(0), x.swapaxes(0, 1), x.ravel(),
        (x.view(torch.int32), x.broadcast_to(2, 3, 4), x.sum_to_size(1, 4)))


@tensor
def an_array_interface(x):
    return (
        np.add(x, 1), np.asarray(x.detach(), dtype=np.float64), x.__array__().dtype, torch.as_tensor(np.float32(2)) * x)


@tensor
def buffer_capsules(x):
    y = torch.from_dlpack(x)
    y.add_(1)
    return y, x.__dlpack_device__()[0]
