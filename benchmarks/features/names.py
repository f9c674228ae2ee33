"""Names of ``torch`` itself, ``torch.random`` and ``torch.backends``."""
from __future__ import annotations

import io
import math

import numpy as np
import torch

from .program import Group, leaf

# ---- making tensors, asking for types ----
making = Group("torch: making tensors")


@making
def from_lists_and_scalars(x):
    return torch.tensor([[1, 2], [3, 4]]), torch.tensor(2.5), torch.as_tensor([1.0, 2.0]) + x[0, :2]


@making
def ranges(x):
    return torch.arange(0, 1, 0.25) + x, torch.linspace(0, 1, 4) * x, torch.logspace(0, 2, 3), torch.eye(4) @ x.T


@making
def like(x):
    return torch.zeros_like(x), torch.full_like(x, 2), torch.empty_like(x).fill_(1), x.new_ones(2), x.new_tensor([3])


@making
def from_numpy_arrays(x):
    a = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    return torch.from_numpy(a) + x, torch.asarray(a).sum()


@making
def from_buffers(x):
    return torch.frombuffer(bytearray(b"\x01\x02\x03\x04"), dtype=torch.uint8) + x.to(torch.uint8)


@making
def default_dtypes(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return torch.ones(2), x.double() + torch.tensor(1.0), torch.get_default_dtype()
    finally:
        torch.set_default_dtype(before)


@making
def promotion(x):
    wide = torch.promote_types(x.dtype, torch.float64)
    return x.to(wide), torch.result_type(x, 1j), torch.can_cast(torch.float32, torch.int32), x + torch.tensor(1)


@making
def limits_of_types(x):
    info = torch.finfo(x.dtype)
    return x.masked_fill(x > 1, info.min), info.eps, torch.iinfo(torch.int8).max, torch.finfo(torch.half).tiny


@making
def devices(x):
    device = torch.device("cpu")
    return torch.ones(2, device=device) * x[:, :2], x.device == device, device.type, str(device), device.index


@making
def a_device_as_a_context(x):
    with torch.device("cpu"):
        return torch.rand(3, 4) + x


@making
def sizes(x):
    size = torch.Size([2, 6])
    return x.view(size), size.numel(), isinstance(x.shape, torch.Size), x.size(-1), (*x.shape, 1)


@making
def complex_numbers(x):
    z = torch.complex(x, x + 1)
    return torch.view_as_real(z * 1j), z.abs(), torch.polar(x, x).real, z.conj().imag, torch.is_complex(z)


@making
def questions(x):
    return x * 2, torch.is_tensor(x), torch.is_floating_point(x), torch.numel(x), torch.is_nonzero(torch.ones(1)), (
        torch.is_same_size(x, x), torch.typename(x), torch.equal(x, x))


@making
def grids_and_products(x):
    a, b = torch.meshgrid(x[0], x[:, 0], indexing="ij")
    return a + b, torch.cartesian_prod(x[0], x[1]), torch.combinations(x[0]), torch.block_diag(x, x)


# ---- selecting and reducing ----
selecting = Group("torch: selecting, reducing")


@selecting
def where_and_masks(x):
    return torch.where(x > 1, x, -x), torch.masked_select(x, x > 1), x[x > 0.5], torch.where(x > 1)


@selecting
def positions(x):
    return torch.nonzero(x > 1), torch.nonzero(x > 1, as_tuple=True), torch.argwhere(x > 1), torch.count_nonzero(x)


@selecting
def unique_values(x):
    values, inverse, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
    return values, inverse, counts, torch.unique_consecutive(x.round())


@selecting
def gathering(x):
    i = torch.tensor([[0, 1], [1, 0], [3, 2]])
    return torch.gather(x, 1, i), torch.take_along_dim(x, i, 1), torch.take(x, i), torch.index_select(x, 1, i[0])


@selecting
def scattering(x):
    i = torch.tensor([0, 2, 0])
    return torch.scatter_add(torch.zeros(3, 4), 0, i[:, None].expand(3, 4), x), torch.index_add(x, 0, i, x), (
        torch.scatter_reduce(torch.ones(3, 4), 0, i[:, None].expand(3, 4), x, "amax"))


@selecting
def sorting(x):
    values, order = torch.sort(-x, dim=1)
    return (
        values, order, torch.topk(x, 2).values, torch.kthvalue(x, 2), torch.argsort(x, descending=True), torch.msort(x))


@selecting
def counts_in_bins(x):
    n = (x * 3).long().flatten()
    return torch.bincount(n), torch.histc(x, 4), torch.bucketize(x, torch.tensor([0.5, 1.0])), (
        torch.searchsorted(x[0].contiguous(), x[1].contiguous()))


@selecting
def cutting(x):
    a, b = torch.chunk(x, 2, 1)
    return torch.cat([b, a], 1), torch.split(x, [1, 2]), torch.tensor_split(x, 3, 1), torch.stack(torch.unbind(x)), (
        torch.hsplit(x, 2))


@selecting
def shapes(x):
    return torch.movedim(x, 0, 1), torch.roll(x, 1, 0), torch.flip(x, (0, 1)), torch.rot90(x), torch.tile(x, (2, 1)), (
        torch.repeat_interleave(x, 2, 0), torch.repeat_interleave(x, torch.tensor([1, 0, 2]), 0))


@selecting
def statistics(x):
    return (
        torch.std_mean(x), torch.var(x, 1), torch.median(x, 1), torch.quantile(x, 0.5), torch.cov(x), torch.corrcoef(x))


@selecting
def extremes(x):
    low, high = torch.aminmax(x)
    return (x - low) / (high - low), torch.max(x, 1).indices, torch.cummax(x, 1), torch.logsumexp(x, 0), torch.argmax(x)


@selecting
def einstein_sums(x):
    return torch.einsum("ij,kj->ik", x, x), torch.tensordot(x, x, ([1], [1])), torch.einsum("ij->", x)


@selecting
def distances(x):
    return torch.cdist(x, x), torch.dist(x, x + 1), torch.pdist(x), torch.trapezoid(x)


@selecting
def results_by_out(x):
    out = torch.empty(3, 4)
    torch.add(x, x, out=out)
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return out, values, indices


@selecting
def numbers_read(x):
    n = int(x.sum().item())
    return x * n, torch.full((n,), 1.0), max(n, 2), x.tolist()[0]


@selecting
def a_loop_until_a_value(x):
    n = 0
    while x.sum() > 1:
        x = x / 2
        n += 1
    return x, n


@selecting
def a_branch_on_a_value(x):
    if (x > 1.5).any():
        return x.clamp(max=1.5)
    return x


@selecting
def conditions_as_operators(x):
    return torch.cond(x.sum() > 3, lambda v: v.sin(), lambda v: v.cos(), (x,))


@selecting
def checks(x):
    torch._assert(x.shape[0] == 3, "three rows")
    torch._check(x.dim() == 2, lambda: "two dimensions")
    torch._assert(bool((x >= 0).all()), "positive")
    return x.sqrt()


# ---- what all programs do with torch at large ----
state = Group("torch: state, files")


@state
def grad_mode(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        b = torch.is_grad_enabled()
    return x * 2, a, b, torch.is_inference_mode_enabled()


@state.of(leaf)
def inference(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), y.requires_grad, torch.is_inference(x), x * 3


@state
def threads(x):
    return x + torch.get_num_threads(), torch.get_num_interop_threads() > 0


@state
def deterministic_algorithms(x):
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        return x.cumsum(0), torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(before)


@state
def saved_and_loaded(x):
    buffer = io.BytesIO()
    torch.save({"x": x * 2}, buffer)
    buffer.seek(0)
    return torch.load(buffer)["x"] + 1


@state
def printed(x):
    print("mean", x.mean(), f"{x[0, 1].item():.2f}")
    return repr(x[0]), str((x * 2).shape)


@state
def print_options(x):
    torch.set_printoptions(precision=2)
    try:
        return repr(x), x + 1
    finally:
        torch.set_printoptions(profile="default")


@state
def matmul_precision(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return x @ x.T, torch.get_float32_matmul_precision()
    finally:
        torch.set_float32_matmul_precision(before)


@state
def untyped_storages(x):
    s = x.untyped_storage()
    return x * 2, s.nbytes(), len(s), s.device.type, x.storage_offset()


@state
def constants(x):
    return (
        x * torch.pi + torch.e, torch.inf > x, torch.nan != torch.nan, x[:, None].shape, x[:, torch.newaxis], math.tau)


@state
def vectorized(x):
    return torch.vmap(lambda row: row.sum() * row)(x), torch.vmap(torch.dot, (1, 1))(x, x)


@state
def compiler_questions(x):
    if torch.jit.is_scripting() or torch.jit.is_tracing() or torch.onnx.is_in_onnx_export():
        return x
    return x * 2


@state
def versions(x):
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 0):
        return x.square()
    return x ** 2


@state
def quantized_tensors(x):
    q = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
    return q.dequantize(), q.int_repr(), q.q_scale(), torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)


# ---- torch.random ----
random = Group("torch.random")


@random
def seeded(x):
    torch.manual_seed(7)
    return x + torch.rand(3, 4), torch.randn(2), torch.initial_seed()


@random
def every_draw(x):
    return (
        torch.randint(0, 9, (3,)), torch.randperm(5), torch.bernoulli(x / 2), torch.normal(x, 0.1),
        torch.multinomial(x[1], 2), torch.poisson(x), torch.rand_like(x), torch.randn_like(x))


@random
def a_state_restored(x):
    state = torch.get_rng_state()
    a = torch.rand(3, 4)
    torch.set_rng_state(state)
    return a, torch.rand(3, 4) + x


@random
def a_fork(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        a = torch.rand(2)
    return a, torch.rand(2), x + 1


@random
def a_generator(x):
    g = torch.Generator().manual_seed(3)
    return torch.rand(3, 4, generator=g) + x, torch.randperm(4, generator=g), g.initial_seed()


@random.of(lambda: (torch.ones(3, 4), torch.Generator().manual_seed(5)))
def a_generator_handed_in(x, g):
    return x + torch.randn(3, 4, generator=g), torch.randint(0, 9, (2,), generator=g)


@random
def fills(x):
    y = torch.empty(3, 4)
    return y.uniform_(0, 1).clone(), y.normal_().clone(), y.exponential_().clone(), y.bernoulli_(0.5).clone(), (
        y.random_(0, 9).clone(), y.geometric_(0.5).clone(), y.cauchy_().clone(), y.log_normal_().clone())


@random
def a_seed_that_is_drawn(x):
    seed = torch.seed()
    torch.manual_seed(2)
    return x + torch.rand(1), isinstance(seed, int)


# ---- torch.backends ----
backends = Group("torch.backends")


@backends
def availability(x):
    fast = torch.backends.mkldnn.is_available() or torch.cuda.is_available()
    return x * (2 if fast else 3), torch.backends.mps.is_available(), torch.backends.cuda.is_built()


@backends
def flags_of_cudnn(x):
    with torch.backends.cudnn.flags(enabled=False, benchmark=True):
        inside = torch.backends.cudnn.benchmark
        return x @ x.T, inside, torch.backends.cudnn.enabled


@backends
def attributes_set(x):
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        return x.relu(), torch.backends.cudnn.deterministic
    finally:
        torch.backends.cudnn.deterministic = before


@backends
def reduced_precision(x):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    y = x @ x.T
    torch.backends.cuda.matmul.allow_tf32 = before
    return y, before


@backends
def mkldnn_off(x):
    with torch.backends.mkldnn.flags(enabled=False):
        return torch.nn.functional.linear(x, x), torch.backends.mkldnn.enabled


@backends
def kernels_of_attention(x):
    q = x[None, None]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q), torch.backends.cuda.flash_sdp_enabled()


@backends
def engines_of_quantization(x):
    return x + 1, torch.backends.quantized.engine in torch.backends.quantized.supported_engines


@backends
def capabilities(x):
    return x * 2, torch.backends.cpu.get_cpu_capability(), torch.backends.openmp.is_available()
