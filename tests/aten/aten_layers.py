"""Lines of random programs that call layers and losses of ``torch.nn.functional``, linear algebra and steps of
optimizers.
"""
from __future__ import annotations

from aten_maker import Maker, kind
from aten_programs import positions


def image(m: Maker) -> str:
    return m.any(lambda v: v.is_floating_point() and v.dim() in (3, 4) and v.numel() > 0)


@kind(2)
def activation_otherwise(m: Maker) -> str:
    name = m.one("celu", "selu", "hardshrink", "softshrink", "tanhshrink", "hardsigmoid", "softsign", "threshold",
                 "softmin", "gelu_tanh")
    x = m.float()
    match name:
        case "threshold":
            return f"F.threshold({x}, 0.1, 20)"
        case "softmin":
            return f"F.softmin({x}, {m.dim(x)})"
        case "gelu_tanh":
            return f"F.gelu({x}, approximate='tanh')"
    return f"F.{name}({x})"


@kind(2)
def loss_otherwise(m: Maker) -> str:
    a, b = m.float(), m.float()
    labels = f"torch.arange({m.of(a).shape[0] if m.of(a).dim() else 1}) % {m.of(a).shape[-1] if m.of(a).dim() else 1}"
    return m.one(f"F.cross_entropy({a}, {labels}, label_smoothing=0.1)",
                 f"F.cross_entropy({a}, {labels}, ignore_index=1, reduction='sum')",
                 f"F.nll_loss({a}.log_softmax(-1), {labels}, {a}[0].detach().abs())",
                 f"F.gaussian_nll_loss({a}, {b}, {a}.square() + 0.5)", f"F.poisson_nll_loss({a}, {b}.abs(), full=True)",
                 f"F.hinge_embedding_loss({a}, {b}.sign())", f"F.margin_ranking_loss({a}, {b}, {b}.sign(), 0.5)",
                 f"F.triplet_margin_loss({a}, {b}, {a} * 0.5 + 1)", f"F.multi_margin_loss({a}, {labels})",
                 f"F.cosine_embedding_loss({a}, {b}, {labels} * 2 - 1)",
                 f"F.binary_cross_entropy({a}.sigmoid(), {b}.sigmoid(), reduction='none')",
                 f"F.kl_div({a}.log_softmax(-1), {b}.log_softmax(-1), reduction='batchmean', log_target=True)",
                 f"F.pairwise_distance({a}, {b} + 1)", f"torch.cdist({a}, {b} + 1)")


@kind(2)
def image_layer(m: Maker) -> str:
    x = image(m)
    return m.one(f"F.conv2d({x}, {x}[:1, :, :2, :2], padding={m.one(0, 1)})", f"F.pixel_shuffle({x}, 2)",
                 f"F.conv_transpose1d({x}, {x}[:, :1, :1])", f"F.local_response_norm({x}, 2)",
                 f"F.lp_pool2d({x}, 2, 2)",
                 f"F.unfold({x}, 2)", f"F.channel_shuffle({x}, {x}.shape[1])", f"F.adaptive_avg_pool2d({x}, (2, 1))",
                 f"F.interpolate({x}, scale_factor=1.5, mode='nearest')", f"F.pad({x}, (1, -1, 0, 2))",
                 f"F.interpolate({x}, scale_factor=2, mode={m.one('linear', 'bilinear', 'bicubic')!r})",
                 f"F.layer_norm({x}, {x}.shape[-2:], {x}[0] if {x}.dim() == 3 else {x}[0, 0])",
                 f"F.batch_norm({x}, {x}.mean((0, -1)).flatten()[:{x}.shape[1]].detach(), "
                 f"torch.ones({x}.shape[1], dtype={x}.dtype))", f"F.group_norm({x}, {x}.shape[1])",
                 f"F.avg_pool1d({x}, 2, 1, 1, count_include_pad=False)", f"F.avg_pool2d({x}, 3, 2, 1, ceil_mode=True)")


@kind(1)
def looked_up_in_bags(m: Maker) -> str:
    table = m.any(lambda v: v.is_floating_point() and v.dim() == 2 and v.numel() > 0)
    where = positions(m)
    mode = m.one("sum", "mean")
    return m.one(f"F.embedding_bag({where}.abs()[None], {table}, mode={mode!r})",
                 f"F.embedding({where}.abs(), {table}, padding_idx=0)",
                 f"F.embedding({where}.abs(), {table}).sum(0)")


@kind(2)
def linear_algebra(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"torch.addmm({a}, {b}, {b}.mT, beta=0.5, alpha=2)", f"torch.kron({a}, {b})", f"torch.cross({a}, {b})",
                 f"torch.tensordot({a}, {b}, 1)", f"torch.addcdiv({a}, {b}, {b}.abs() + 1, value=-0.5)",
                 f"torch.baddbmm({a}, {b}, {b}.mT)", f"torch.cov({a})", f"torch.vander({a})", f"{a}.renorm(2, 0, 1)",
                 f"torch.block_diag({a}, {b})", f"torch.cumulative_trapezoid({a})", f"torch.meshgrid({a}, {b})[1]",
                 f"torch.diag_embed({a})", f"torch.diag({a})", f"torch.chain_matmul({a}, {a}.mT)")


@kind(2)
def complex_inside(m: Maker) -> str:
    """Complex values, which are called, between real ones."""
    a, b = m.float(), m.float()
    return m.one(f"torch.complex({a}, {b}).abs()", f"torch.view_as_real(torch.complex({a}, {b}) * 1j)",
                 f"torch.complex({a}, {a}).conj().imag", f"torch.polar({a}.abs(), {b}).real + 1",
                 f"torch.fft.rfft({a}).abs()", f"(torch.complex({a}, {b}) * {a}).imag.sum()",
                 f"torch.view_as_real(torch.view_as_complex({a}.unflatten(-1, (-1, 2)).contiguous()).conj())",
                 f"torch.complex({a}, {b}).angle()", f"torch.fft.irfft(torch.fft.rfft({a}), {a}.shape[-1])")


@kind(2)
def steps(m: Maker) -> str:
    """What optimizers do, to tensors that need no gradient."""
    x, g = m.any(lambda v: v.is_floating_point() and not v.requires_grad), m.float()
    return m.one(f"{x}.mul_(0.9).add_({g}.detach(), alpha=0.1)", f"{x}.lerp_({g}.detach(), 0.1)",
                 f"{x}.addcdiv_({g}.detach(), {x}.abs().sqrt().add_(1e-3), value=-0.1)",
                 f"{x}.sub_({x}.sign().mul_(0.01)).clamp_(-2, 2)", f"{x}.copy_(torch.where({g}.detach() > 0, {x}, 0))",
                 f"{x}.addcmul_({g}.detach(), {g}.detach(), value=0.01)", f"torch.max({x}, {g}.detach().abs())",
                 f"{x}.mul_(torch.clamp(1 / ({g}.detach().norm() + 1e-6), max=1.0))")


@kind(2)
def quantised(m: Maker) -> str:
    x = m.float()
    return m.one(f"torch.fake_quantize_per_tensor_affine({x}, 0.1, 3, -8, 7)",
                 f"({x} / 0.1).round().clamp(-8, 7) * 0.1",
                 f"({x}.float() * 16).round().clamp(-128, 127).to(torch.int8)",
                 f"({x}.float() * 16).to(torch.int32) // 3", f"{x}.abs().amax(-1, True) / 127",
                 f"{x} + ({x}.round() - {x}).detach()", f"torch.bucketize({x}, torch.linspace(-1, 1, 4))",
                 f"({x} > 0).long() * 2 - 1", f"({x} > 0).to(torch.uint8) << 3")


@kind(2)
def several(m: Maker) -> str:
    """Functions of lists of tensors, and of a tensor that is given twice."""
    a, b = m.float(), m.any(lambda v: v.is_floating_point())
    return m.one(f"torch._foreach_mul([{a}, {b}], 2.0)[1]", f"torch._foreach_add([{a}, {b}], [{a}, {b}], alpha=0.5)[0]",
                 f"torch.hstack([{a}, {b}])", f"torch.vstack([{a}, {b}, {a}])", f"torch.dstack([{a}, {a}])",
                 f"torch.cartesian_prod({a}, {b})", f"torch.broadcast_tensors({a}, {b})[0] * {b}",
                 f"torch.column_stack([{a}, {a}])", f"torch._foreach_norm([{a}, {b}])[0]",
                 f"torch.einsum('i,j', {a}, {b})",
                 f"torch.cat([{a}[:0], {a}, {b}], 0)", f"torch.concat([{a}.flatten(), {b}.flatten(), {a}.flatten()])")


@kind(2)
def convolved(m: Maker) -> str:
    x = m.any(lambda v: v.is_floating_point() and v.dim() == 4 and v.numel() > 0)
    w = f"{x}[:, :, :{m.one(1, 2)}, :{m.one(1, 2)}]"
    how = m.one("", "stride=2", "padding=1", "dilation=2, padding=2", "padding='same'", "bias={x}[:, 0, 0, 0]")
    each = f"{x}[:1, :, :1, :2].transpose(0, 1)"
    return m.one(f"F.conv2d({x}, {w}, {how.format(x=x)})", f"F.conv2d({x}, {each}, groups={x}.shape[1])",
                 f"F.conv_transpose2d({x}, {each}, stride=2)", f"F.conv3d({x}, {x}[:1, :, :1, :1][None])",
                 f"F.conv2d({x}, {each}, groups={x}.shape[1], padding=1, stride=(1, 2))",
                 f"F.conv2d({x}.contiguous(memory_format=torch.channels_last), {w})",
                 f"F.batch_norm(F.conv2d({x}, {w}), None, None, training=True).relu()",
                 f"F.conv_transpose2d({x}, {w}.transpose(0, 1)[:{x}.shape[1]], padding=0)")


@kind(2)
def sampled(m: Maker) -> str:
    x = image(m)
    window = m.one("2", "2, 1", "3, 1, 1", "2, stride=1")
    return m.one(f"F.max_unpool2d(*F.max_pool2d({x}, 2, return_indices=True), 2)",
                 f"F.adaptive_max_pool2d({x}, (1, 2), return_indices=True)[1]", f"F.adaptive_avg_pool1d({x}, 3)",
                 f"F.grid_sample({x}, {x}.new_ones(({x}.shape[0], 2, 2, 2)) * 0.3, align_corners=False)",
                 f"F.grid_sample({x}, torch.linspace(-1.2, 1.2, 8).to({x}.dtype).view(1, 2, 2, 2), 'nearest')",
                 f"F.avg_pool2d({x}, 2, divisor_override=3)", f"F.max_pool3d({x}[None], (1, 2, 2))",
                 f"F.avg_pool3d({x}[None], {window})", f"F.max_pool2d({x}, {window}, return_indices=True)[1]",
                 f"F.interpolate({x}, size=(3, 5), mode='bilinear', align_corners=True)", f"F.pixel_unshuffle({x}, 1)",
                 f"F.interpolate({x}, size=(5, 2), mode={m.one('nearest-exact', 'area', 'nearest')!r})",
                 f"F.interpolate({x}, scale_factor=(0.5, 2), mode='bilinear', antialias=True)",
                 f"F.fold(F.unfold({x}, 2, stride=1), {x}.shape[-2:], 2)", f"F.pad({x}, (1, 1, 1, 0), 'replicate')",
                 f"F.pad({x}, (1, 0, 0, 1), {m.one('reflect', 'circular')!r})",
                 f"F.scaled_dot_product_attention({x}, {x}, {x}, is_causal={m.one(True, False)})",
                 f"F.scaled_dot_product_attention({x}, {x} * 2, {x}, {x} @ {x}.mT > 0)",
                 f"F.scaled_dot_product_attention({x}, {x}, {x}, dropout_p=0.5)")


@kind(2)
def looked_up_in_bags_otherwise(m: Maker) -> str:
    table = m.any(lambda v: v.is_floating_point() and v.dim() == 2 and v.numel() > 0)
    where = positions(m)
    w = f"{table}[0, :1].expand({where}.shape)"
    mode = m.one("sum", "mean", "max")
    return m.one(f"F.embedding_bag({where}.abs(), {table}, torch.tensor([0, 0, 1]), mode={mode!r})",
                 f"F.embedding_bag({where}.abs(), {table}, torch.tensor([0]), None, 2, False, 'sum', False, {w})",
                 f"F.embedding_bag({where}.abs()[None], {table}, padding_idx=1, mode='max')",
                 f"F.embedding({where}.abs(), {table}, scale_grad_by_freq=True)",
                 f"F.embedding({where}.abs()[:, None], {table}) * {table}",
                 f"{table}[{where}, {where}] + {table}.sum()",
                 f"F.embedding({where}.abs(), {table}) @ {table}.t()",
                 f"F.embedding({where}.abs(), {table}, max_norm=1.0)")


@kind(2)
def multiplied(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"torch.mv({a}, {b})", f"torch.dot({a}, {b})", f"torch.bmm({a}, {b}.mT)",
                 f"torch.addmv({b}, {a}, {b})", f"torch.matrix_power({a}, 2)",
                 f"torch.addr({a}, {b}, {b})", f"torch.einsum('ij,kj->ik', {a}, {b})", f"F.linear({a}, {b}, {b}[:, 0])",
                 f"torch.einsum('bij,bjk->bik', {a}, {b}.mT)", f"torch.ger({a}, {b})", f"torch.inner({a}, {b})",
                 f"torch.linalg.multi_dot([{a}, {a}.T, {a}])", f"{a}.square().sum(-1, True) + {a} @ {a}.mT * 2",
                 f"torch.addbmm({b}, {a}, {a}.mT, beta=0)", f"torch.linalg.det({a} @ {a}.mT)",
                 f"torch.addmm({b}, {a}, {a}.mT, beta=0)", f"({a} @ {a}.mT).relu() @ {a}", f"{a}.mT @ {b}.relu()",
                 f"torch.tril({a} @ {a}.mT).softmax(-1)", f"torch.linalg.matrix_norm({a})")
