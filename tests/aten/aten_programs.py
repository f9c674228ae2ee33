"""Random programs of ATen operators, as text: views, changes in place, broadcasting, reductions, indexing, scans, mixed
types, sizes of 0 and 1, random draws, foreign operators with effects, arguments that share memory with each other, and
results that share memory with arguments.

    def program(x0, x1, i0):
        v0 = x0.transpose(0, 1)
        v1 = v0[..., 1:].mul_(2)
        return v0, torch.rand_like(v1)

A line is added only if eager can execute it, so that most programs are valid. ``search_programs.py`` in
``tests/aten`` compares many of them with eager.
"""
from __future__ import annotations

from collections.abc import Iterator

import torch
from aten_maker import FLOATS, NAMES, OTHERS, Maker, Program, kind

NOTED: list[float] = []      # the effects of the foreign operator


@torch.library.custom_op("sot_aten_programs::note", mutates_args=())
def note(x: torch.Tensor, number: float) -> torch.Tensor:
    NOTED.append(number)
    return x + number


note.register_fake(lambda x, number: torch.empty_like(x))
note.register_autograd(lambda ctx, grad: (grad, None))
NAMES["note"] = note


@kind(8)
def unary(m: Maker) -> str:
    name = m.one("sin", "cos", "exp", "relu", "neg", "sigmoid", "tanh", "abs", "square", "floor", "sign", "erf", "ceil",
                 "round", "trunc", "isfinite", "logical_not", "expm1", "positive", "frac", "signbit", "atan", "isnan")
    return f"torch.{name}({m.any()})"


@kind(3)
def activation(m: Maker) -> str:
    name = m.one("gelu", "silu", "softplus", "leaky_relu", "hardtanh", "elu", "hardswish", "logsigmoid", "mish",
                 "relu6")
    return f"F.{name}({m.float()})"


@kind(12)
def binary(m: Maker) -> str:
    name = m.one("add", "sub", "mul", "maximum", "minimum", "atan2", "hypot", "fmod", "remainder", "floor_divide", "eq",
                 "lt", "ge", "ne", "logical_and", "logical_xor", "bitwise_and", "bitwise_or", "fmin", "copysign")
    return f"torch.{name}({m.any()}, {m.any()})"


@kind(3)
def safely_divided(m: Maker) -> str:
    return f"{m.any()} / ({m.any()}.abs() + 1)"


@kind(5)
def with_number(m: Maker) -> str:
    return m.one("{0} {2} {1}", "{1} {2} {0}").format(m.any(), m.number(), m.one("+", "-", "*", "<", ">="))


@kind(2)
def by_number(m: Maker) -> str:
    return f"{m.any()} {m.one('/', '//', '%', '**')} {m.one(2, 3, 0.5)}"


@kind(3)
def chosen(m: Maker) -> str:
    return f"torch.where({m.any()} > {m.one(m.any(), '0')}, {m.any()}, {m.any()})"


@kind(2)
def clamped(m: Maker) -> str:
    return f"{m.any()}.clamp({m.one('-1', '0', 'None')}, {m.one('1', '2.5')})"


@kind(4)
def converted(m: Maker) -> str:
    return f"{m.any()}.to(torch.{m.one(*FLOATS, *OTHERS)})"


@kind(1)
def scaled_sum(m: Maker) -> str:
    return m.one(f"torch.addcmul({m.float()}, {m.float()}, {m.float()}, value=0.5)",
                 f"torch.lerp({m.float()}, {m.float()}, 0.3)", f"torch.add({m.any()}, {m.any()}, alpha=2)")


@kind(3)
def of_two(m: Maker) -> str:
    a, b = m.any(), m.any()
    return m.one(f"torch.xlogy({a}, {b})", f"torch.heaviside({a}, {b})", f"torch.logaddexp({a}, {b})",
                 f"torch.rsub({a}, {b})", f"torch.bitwise_left_shift({a}, 1)", f"{a} >> 1", f"torch.bitwise_not({a})",
                 f"torch.gcd({a}, {b})", f"torch.clamp({a}, {b}, {b} + 1)", f"torch.fmax({a}, {b})", f"{a} ** {b}",
                 f"torch.isclose({a}, {b})", f"torch.nextafter({a}, {b})", f"torch.div({a}, 3, rounding_mode='trunc')",
                 f"torch.true_divide({a}, 7)", f"torch.ldexp({a}, 2 * torch.ones_like({a}))", f"2 ** {a}")


@kind(3)
def unary_special(m: Maker) -> str:
    name = m.one("nan_to_num", "sinc", "exp2", "log1p", "deg2rad", "erfc", "asinh", "digamma", "lgamma", "i0", "sgn",
                 "special.entr", "special.expit", "special.log_ndtr", "isneginf", "isposinf", "rad2deg")
    return f"torch.{name}({m.any()})"


# ---- views ---------------------------------------------------------------------------------------------------
@kind(10)
def subscript(m: Maker) -> str:
    name = m.ranked()
    return f"{name}[{m.part(name)}]"


@kind(5)
def transposed(m: Maker) -> str:
    name = m.ranked(2)
    return f"{name}.transpose({m.dim(name)}, {m.dim(name)})"


@kind(2)
def permuted(m: Maker) -> str:
    name = m.ranked(2)
    order = list(range(m.of(name).dim()))
    m.random.shuffle(order)
    return f"{name}.permute({order})"


@kind(5)
def reshaped(m: Maker) -> str:
    name = m.any(lambda v: v.numel() > 0)
    return f"{name}.{m.one('reshape', 'reshape', 'view')}({m.shape(m.of(name).numel())})"


@kind(4)
def ranked_otherwise(m: Maker) -> str:
    name = m.any()
    return m.one(f"{name}.unsqueeze({m.dim(name)})", f"{name}.squeeze()", f"{name}.flatten()",
                 f"{name}.expand(2, {', '.join(['-1'] * m.of(name).dim())})", f"{name}.movedim(0, -1)")


@kind(3)
def part_of(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.split(2, {d})[-1]", f"{name}.chunk(2, {d})[0]", f"{name}.unbind({d})[0]",
                 f"{name}.unfold({d}, 2, 1)", f"{name}.diagonal()", f"{name}.narrow({d}, 1, 1)",
                 f"{name}.select({d}, 0)",
                 f"{name}.diagonal({m.one(-1, 1)}, 0, 1)")


@kind(3)
def seen_otherwise(m: Maker) -> str:
    name = m.any()
    size = m.of(name).numel()
    return m.one(f"{name}.as_strided(({max(size // 2, 1)},), (1,))", f"{name}.detach()", f"{name}.view_as({name})",
                 f"{name}.view(torch.{m.one('int32', 'int64', 'uint8', 'float32')})", f"{name}.swapaxes(0, -1)",
                 f"{name}.unflatten(-1, (-1, 1))", f"torch.broadcast_to({name}, (2, *{name}.shape))",
                 f"torch.atleast_2d({name})", f"{name}.expand_as({m.any()})", f"{name}.ravel()", f"{name}.mT",
                 f"{name}.tensor_split(2, -1)[-1]", f"{name}.squeeze(0)", f"{name}.hsplit(1)[0]")


# ---- moving --------------------------------------------------------------------------------------------------
@kind(5)
def moved(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.flip({d})", f"{name}.roll({m.one(1, -2)}, {d})", f"{name}.repeat_interleave(2, {d})",
                 f"{name}.tile(2)", f"{name}.clone()", f"{name}.contiguous()", f"{name}.tril({m.one(0, 1)})",
                 f"{name}.triu({m.one(0, -1)})", f"F.pad({name}, ({m.one(1, 0, -1)}, {m.one(2, 1)}), value=1)",
                 f"{name}.repeat({', '.join(['2'] * m.of(name).dim())})", f"{name}.rot90(1, (0, 1))")


@kind(4)
def joined(m: Maker) -> str:
    a, b = m.ranked(), m.ranked()
    return m.one(f"torch.cat([{a}, {b}], {m.dim(a)})", f"torch.stack([{a}, {a}], {m.dim(a)})",
                 f"torch.cat([{a}, {a} * 2], {m.dim(a)})", f"torch.cat([{a}, {a}.flip(0)[:1]])")


@kind(2)
def from_nothing(m: Maker) -> str:
    name = m.any()
    return m.one(f"torch.zeros_like({name})", f"torch.ones_like({name})", f"torch.full_like({name}, 2)",
                 "torch.arange(3)",
                 f"torch.arange({max(m.of(name).numel(), 1)}).view({name}.shape)", f"{name}.new_zeros((2, 3))",
                 "torch.eye(3)", "torch.tensor(2.5)")


@kind(2)
def padded(m: Maker) -> str:
    name = m.any(lambda v: v.dim() in (2, 3) and v.is_floating_point())
    return f"F.pad({name}, (1, {m.one(0, 1)}), mode={m.one('reflect', 'replicate', 'circular')!r})"


# ---- reductions and scans --------------------------------------------------------------------------------------
@kind(9)
def reduced(m: Maker) -> str:
    name = m.any()
    return f"{name}.{m.one('sum', 'sum', 'mean', 'amax', 'amin', 'any', 'all', 'count_nonzero')}({m.dims(name)})"


@kind(4)
def reduced_over_one(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.max({d})[{m.one(0, 1)}]", f"{name}.min({d})[{m.one(0, 1)}]", f"{name}.argmax({d})",
                 f"{name}.argmin({d}, True)", f"{name}.prod({d})", f"{name}.argmax()", f"{name}.median({d})[0]",
                 f"{name}.sort(dim={d}, stable=True)[{m.one(0, 1)}]", f"{name}.topk(1, {d})[0]")


@kind(4)
def statistics(m: Maker) -> str:
    name = m.float()
    d = m.dim(name)
    return m.one(f"{name}.softmax({d})", f"{name}.log_softmax({d})", f"{name}.var({m.dims(name)})",
                 f"{name}.logsumexp({d})", f"torch.var_mean({name}, {d}, correction=0)[{m.one(0, 1)}]",
                 f"{name}.norm(2, {d})", f"F.layer_norm({name}, {name}.shape[-1:])", f"F.normalize({name}, dim={d})",
                 f"F.mse_loss({name}, {name} * 0.5)")


@kind(4)
def scanned(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.cumsum({d})", f"{name}.cumsum({d})", f"{name}.cumprod({d})", f"{name}.cummax({d})[0]",
                 f"{name}.cummin({d})[{m.one(0, 1)}]", f"{name}.logcumsumexp({d})", f"{name}.diff(dim={d})",
                 f"{name}.cumsum({d}, dtype=torch.float64)")


@kind(4)
def reduced_otherwise(m: Maker) -> str:
    name = m.any()
    return m.one(f"{name}.sum(dtype=torch.float64)", f"{name}.nansum({m.dims(name)})", f"{name}.prod()",
                 f"torch.aminmax({name})[{m.one(0, 1)}]", f"{name}.std({m.dims(name)})", f"{name}.max()",
                 f"torch.linalg.vector_norm({name}, {m.one(1, 3, 'inf', 0)})", f"torch.dist({name}, {name} * 2)",
                 f"torch.trapezoid({name})", f"{name}.mean(dtype=torch.float32)", f"torch.std_mean({name})[0]",
                 f"{name}.sum_to_size({name}.shape[-1:])", f"{name}.nanmean()", f"torch.trace({name})")


@kind(3)
def loss(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"F.smooth_l1_loss({a}, {b})", f"F.huber_loss({a}, {b}, reduction='none')", f"F.kl_div({a}, {b})",
                 f"F.binary_cross_entropy_with_logits({a}, {b}.sigmoid())", f"F.cosine_similarity({a}, {b}, -1)",
                 f"F.cross_entropy({a}, {b}.softmax(-1))", f"F.l1_loss({a}, {b}, reduction='sum')",
                 f"F.cross_entropy({a}, {a}.argmax(1))", f"F.soft_margin_loss({a}, {b}.sign())")


@kind(3)
def layer(m: Maker) -> str:
    name = m.any(lambda v: v.is_floating_point() and v.dim() in (2, 3, 4))
    return m.one(f"F.avg_pool1d({name}, 2)", f"F.max_pool1d({name}, 2)", f"F.group_norm({name}, 1)",
                 f"F.instance_norm({name})", f"F.batch_norm({name}, None, None, training=True)",
                 f"F.interpolate({name}, scale_factor=2.0)", f"F.glu({name}, 0)", f"F.adaptive_avg_pool1d({name}, 2)",
                 f"F.scaled_dot_product_attention({name}, {name}, {name})", f"F.rms_norm({name}, {name}.shape[-1:])",
                 f"F.conv1d({name}, {name}[:, :, :1])", f"F.avg_pool2d({name}, 2, 1)", f"F.max_pool2d({name}, 2)",
                 f"F.interpolate({name}, size={name}.shape[2:], mode='bilinear')", f"F.prelu({name}, {name}[0, :1])")


# ---- indexing ------------------------------------------------------------------------------------------------
def positions(m: Maker) -> str:
    return m.any(lambda v: v.dtype is torch.int64 and v.dim() == 1 and 0 < v.numel() < 9)


@kind(6)
def looked_up(m: Maker) -> str:
    name, where = m.ranked(), positions(m)
    d = m.dim(name)
    return m.one(f"{name}[{where}]", f"{name}[:, {where}]", f"{name}.index_select({d}, {where}.abs())",
                 f"{name}[{where}, {where}]", f"{name}[..., {where}]", f"{name}[{where}, None]", f"{name}[0, {where}]",
                 f"{name}[{where}, :, {where}]", f"F.embedding({where}.abs(), {name})",
                 f"{name}.take_along_dim(torch.zeros_like({name}).long(), {d})",
                 f"{name}.gather({d}, torch.ones_like({name}).long().narrow({d}, 0, 1))")


@kind(4)
def scattered(m: Maker) -> str:
    name, where, value = m.ranked(), positions(m), m.any()
    d = m.dim(name)
    return m.one(f"{name}.index_add({d}, {where}.abs(), {name}.index_select({d}, {where}.abs()))",
                 f"{name}.scatter(0, torch.zeros_like({name}).long()[:1], {value})",
                 f"{name}.scatter_add({d}, torch.zeros_like({name}).long(), {name})",
                 f"{name}.index_put(({where},), {value}, accumulate=True)",
                 f"{name}.index_put(({where}[:1],), {value})", f"{name}.masked_fill({name} > 0, {m.number()})",
                 f"{name}.index_fill({d}, {where}.abs(), 1)",
                 f"torch.slice_scatter({name}, {name}[::2] * 2, 0, 0, None, 2)",
                 f"torch.select_scatter({name}, {name}[0] + 1, 0, -1)")


@kind(4)
def scattered_otherwise(m: Maker) -> str:
    name, where = m.ranked(), positions(m)
    d = m.dim(name)
    return m.one(f"{name}.index_copy({d}, {where}[:1].abs(), {name}.narrow({d}, 0, 1))",
                 f"{name}.scatter_reduce({d}, torch.zeros_like({name}).long(), {name}, {m.one('sum', 'amax')!r})",
                 f"torch.where({name} > 0, {name}, 0).index_put(({where},), {name}[0])",
                 f"torch.diagonal_scatter({name}, {name}.diagonal() * 2)", f"F.one_hot({where}.abs(), 4)",
                 f"torch.bucketize({name}, torch.arange(3.0))", f"{name}.put({where}.abs(), {name}.flatten()[{where}])",
                 f"{name}.take({where})", f"torch.isin({name}, {where})", f"{where}.bincount(minlength=3)",
                 f"{name}.masked_scatter({name} > 0, {name} * 2)", f"{name}[{where}[:, None], {where}]",
                 f"torch.as_strided_scatter({name}, {name}.flatten()[:{m.one(1, 2)}], ({m.one(1, 2)},), "
                 f"({m.one(1, 2, 3)},), {name}.storage_offset() + {m.one(0, 0, 1)})", f"{name}[{where}, 0, {where}]",
                 f"{name}[:, None, {where}]", f"{name}[{where} > 0]", f"{name}.index_reduce({d}, {where}[:1].abs(), "
                 f"{name}.narrow({d}, 0, 1), 'amax')")


@kind(2)
def pooled(m: Maker) -> str:
    name = m.any(lambda v: v.dim() in (3, 4))
    window = m.one("2", "2, 1", "3, 2, 1", "(1, 2), 1", "2, 1, 1, 2", "2, 3, ceil_mode=True")
    return m.one(f"F.max_pool2d({name}, {window})", f"F.max_pool2d({name}, {window}, return_indices=True)[1]",
                 f"F.avg_pool2d({name}, 2, 1)", f"F.max_pool1d({name}, 2, 1)", f"F.adaptive_max_pool2d({name}, 2)")


# ---- the library's -----------------------------------------------------------------------------------------------
@kind(3)
def product(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"{a} @ {b}", f"{a} @ {a}.mT", f"F.linear({a}, {a})", f"torch.outer({a}.flatten(), {b}.flatten())",
                 f"torch.einsum('...i,...i->...', {a}, {b})")


# ---- random numbers ----------------------------------------------------------------------------------------------
@kind(3)
def drawn(m: Maker) -> str:
    name = m.float()
    return m.one(f"torch.rand_like({name})", f"torch.randn_like({name})", f"F.dropout({name}, 0.4)",
                 f"torch.rand(2, 3, device={name}.device)",
                 f"torch.bernoulli({name}.sigmoid())", f"torch.randint_like({name}, 5)",
                 f"torch.randperm(3, device={name}.device)",
                 f"torch.normal({name}, 1.0)", f"F.alpha_dropout({name}, 0.3, True)", f"torch.poisson({name}.abs())",
                 f"torch.multinomial({name}.softmax(-1), 1)", f"F.rrelu({name}, training=True)", "torch.rand(())",
                 f"{name}.clone().exponential_()", f"F.gumbel_softmax({name})",
                 f"F.feature_alpha_dropout({name}, 0.3, True)",
                 f"torch.randint(-3, 9, {name}.shape)", f"{name}.clone().uniform_(-1, 1)",
                 f"{name} + {name}.clone().normal_()")


@kind(1)
def noted(m: Maker) -> str:
    return f"note({m.float()}, {len(m.program.lines)}.0)"


# ---- where values are extreme, or there are none ----------------------------------------------------------------
@kind(3)
def extreme(m: Maker) -> str:
    name = m.any()
    dtype = m.known[name].dtype     # by name: of a proxy of torch.fx torch.iinfo reads other memory
    return m.one(f"{name} / 0", f"{name} * float('inf')", f"torch.where({name} > 0, {name}, float('nan'))",
                 f"{name}.log()", f"{name}.sqrt()", f"{name}.reciprocal()", f"{name} * 1e30", f"-{name} * 0.0",
                 f"{name}.masked_fill({name} > 0, float('-inf'))", f"{name} + torch.iinfo({dtype}).max",
                 f"{name} * {name} * 100", f"{name} - 200", f"torch.nextafter({name}, {name} + 1)",
                 f"{name}.asin()", f"{name}.pow(-1)", f"{name}.fmod(0.0)", f"{name}.remainder(-1.5)", f"{name} % -3",
                 f"{name} // -2", f"torch.div({name}, -3, rounding_mode='floor')", f"{name}.float() // 0.0")


@kind(2)
def of_nothing(m: Maker) -> str:
    name = m.ranked()
    return m.one(f"{name}[:0]", f"{name}[:0].sum()", f"{name}[:0].sum(-1)", f"torch.cat([{name}, {name}[:0]])",
                 f"{name}[..., :0].prod(-1)", f"{name}[:0].any()", f"{name}[:0].all(0)", f"{name}[..., :0] * 2",
                 f"{name}[:0].mean()", f"{name}[..., :0].cumsum(-1)", f"{name}.new_empty((0, 3)).sum(0)",
                 f"F.pad({name}[..., :0], (1, 1))", f"{name}[..., :0].logsumexp(-1)",
                 f"{name}.narrow(0, 0, 0).flatten()")


@kind(2)
def with_a_scalar_tensor(m: Maker) -> str:
    """Tensors without axes do not take part in the choice of a type, unless they are of a higher kind."""
    name = m.any()
    scalar = m.one("torch.tensor(2.5)", "torch.tensor(3)", "torch.tensor(True)",
                   "torch.tensor(0.1, dtype=torch.float64)",
                   f"{name}.sum()", f"{name}.max()")
    return m.one("{0} {2} {1}", "{1} {2} {0}").format(name, scalar, m.one("+", "*", "-", ">", "=="))


@kind(2)
def ordered(m: Maker) -> str:
    name = m.ranked()
    d = m.dim(name)
    return m.one(f"{name}.sort(dim={d}, descending=True, stable=True)[0]", f"{name}.argsort(dim={d}, stable=True)",
                 f"{name}.topk(min(2, {name}.shape[{d}]), {d}, largest=False)[0]", f"{name}.kthvalue(1, {d})[0]",
                 f"{name}.gather({d}, {name}.argsort(dim={d}, stable=True))", f"{name}.msort()", f"{name}.nanmedian()",
                 f"torch.searchsorted({name}.detach().sort(-1)[0].contiguous(), {name}.detach())",
                 f"{name}.scatter({d}, {name}.argsort(dim={d}, stable=True), {name})", f"{name}.quantile(0.3, {d})",
                 f"{name}.cummax({d})[1]", f"{name}.histc(3)", f"{name}.float().cumprod({d})",
                 f"{name}.flip(0).cumsum(0)",
                 f"{name}.cummin({d})[0] + {name}", f"torch.logcumsumexp({name}, {d})")


def spread(m: Maker, name: str, d: int) -> str:
    """Positions along an axis that are not all the same."""
    size = m.of(name).shape[d]
    return f"(torch.arange({m.of(name).numel()}).view({name}.shape) * 7 % {max(size, 1)})"


@kind(3)
def spread_out(m: Maker) -> str:
    name, value = m.ranked(), m.any()
    d = m.dim(name)
    where, how = spread(m, name, d), m.one("sum", "prod", "mean", "amax", "amin")
    return m.one(f"{name}.gather({d}, {where})", f"{name}.scatter_add({d}, {where}, {name})",
                 f"{name}.scatter_reduce({d}, {where}, {name}, {how!r}, include_self={m.one(True, False)})",
                 f"torch.zeros_like({name}).scatter_add({d}, {where}, {name} * 2)",
                 f"{name}.index_put(({where}.flatten() % {name}.shape[0],), {value}, accumulate=True)",
                 f"torch.zeros_like({name}).index_add({d}, {where}.flatten()[:{name}.shape[{d}]], {name})",
                 f"{name}.take_along_dim({where}, {d})", f"{name}.take({where})",
                 f"{name}.flatten().index_put(({where}.flatten(),), {name}.flatten(), accumulate=True)",
                 f"{name}.scatter_reduce_({d}, {where}, {value}, {how!r})",
                 f"{name}.scatter_add_({d}, {where}, {name})",
                 f"{name}.index_copy({d}, torch.arange({name}.shape[{d}]).flip(0), {name})",
                 f"{name}[torch.arange({name}.shape[0]).flip(0)]", f"{name}[{name} > {name}.sum()]")


@kind(3)
def changed_through_a_view(m: Maker) -> str:
    """Several views of one memory, of which one is changed and another read."""
    name, value = m.ranked(), m.any()
    d = m.dim(name)
    one = m.one(f"{name}.view(-1)", f"{name}.transpose(0, -1)", f"{name}.diagonal()", f"{name}.unsqueeze({d})",
                f"{name}.narrow({d}, 0, 1)", f"{name}.detach()", f"{name}.select({d}, -1)", f"{name}.unfold({d}, 1, 1)",
                f"{name}.as_strided(({m.of(name).numel() or 1},), (1,))", f"{name}.flatten()",
                f"{name}.chunk(2, {d})[-1]")
    change = m.one(f"add_({value})", "mul_(-2)", f"copy_({name}.flatten()[:1])", "neg_()", "zero_()", f"sub_({value})",
                   "cumsum_(0)", "clamp_min_(0)", "fill_diagonal_(3)", "round_()", "abs_()", "add_(1, alpha=2)")
    return m.one(f"{one}.{change}", f"{one}.{change} + {name}.flip({d})", f"{one}.{change}.sum() * {name}")


# ---- changes in place ------------------------------------------------------------------------------------------
@kind(12)
def changed(m: Maker) -> str:
    name, value = m.any(), m.any()
    where = f"{name}[{m.part(name)}]" if m.of(name).dim() and m.random.random() < 0.6 else name
    return m.one(f"{where}.add_({value})", f"{where}.mul_({m.number()})", f"{where}.copy_({value})", f"{where}.zero_()",
                 f"{where}.fill_({m.number()})", f"{where}.relu_()", f"{where}.sub_({where})", f"{where}.clamp_(-1, 1)",
                 f"{where}.masked_fill_({where} < 0, 2)", f"{where}.t_()", f"{where}.add_({where}.flip(0))",
                 f"{where}.copy_({name}.sum())", f"{where}.unsqueeze_(0)", f"{where}.transpose_(0, -1)",
                 f"{where}.squeeze_()", f"{where}.lerp_({where} * 2, 0.5)", f"{where}.cumsum_({m.one(0, -1)})",
                 f"{where}.addcmul_({where}, {value})", f"{where}.div_(2)", f"{where}.logical_not_()",
                 f"{where}.triu_()", f"{where}.index_put_(({where} > 0,), torch.tensor(2, dtype={name}.dtype))")


@kind(2)
def changed_where(m: Maker) -> str:
    name, where, value = m.ranked(), positions(m), m.any()
    return m.one(f"{name}.index_put_(({where},), {value}, accumulate=True)", f"{name}.index_fill_(0, {where}.abs(), 1)",
                 f"{name}.index_add_(0, {where}.abs(), {name}.index_select(0, {where}.abs()))",
                 f"{name}.scatter_(0, torch.zeros_like({name}).long()[:1], 1)")


def programs(count: int, seed: int) -> Iterator[Program]:
    for n in range(count):
        yield Maker(seed * 1_000_003 + n).make()
