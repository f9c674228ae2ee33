"""Lines of random programs about numbers: complex values, ties, integers that overflow, and functions of whole axes."""
from __future__ import annotations

from aten_maker import Maker, kind
from aten_programs import positions


def complex_value(m: Maker) -> str:
    try:
        return m.any(lambda v: v.is_complex())
    except ValueError:
        return f"torch.complex({m.float()}, {m.float()})"


@kind(2)
def made_complex(m: Maker) -> str:
    a, b = m.float(), m.float()
    return m.one(f"torch.complex({a}, {b})", f"{a}.to(torch.complex64)", f"{a} * 1j", f"torch.polar({a}.abs(), {b})",
                 f"torch.fft.fft({a})", f"{a} + 2j")


@kind(3)
def of_complex(m: Maker) -> str:
    z, other, d = complex_value(m), m.any(), m.one(0, -1)
    return m.one(f"{z}.real", f"{z}.imag", f"{z}.abs()", f"{z}.angle()", f"{z}.conj()", f"{z} * {other}",
                 f"{z} + {other}", f"{z} / ({other} + 3)", f"{z}.sum({d})", f"{z}.mean()", f"torch.view_as_real({z})",
                 f"{z}.exp()", f"{z}.conj() * {z}", f"{z} @ {z}.mH", f"{z}.resolve_conj()", f"{z}.imag.neg()",
                 f"{z}.conj().imag", f"{z}.conj().imag.add_(1)", f"{z}.real.mul_({other})", f"{z}.mul_(2j)",
                 f"{z}.flatten()[::2]", f"{z} == {other}", f"torch.where({z}.real > 0, {z}, {other})",
                 f"torch.fft.ifft({z}).real", f"{z}.cumsum({d})", f"{z}.prod()", f"{z}.sgn()", f"{z}.reciprocal()",
                 f"{z}.index_select({d}, {positions(m)}.abs())", f"{z}.conj().transpose(0, -1)", f"{z}.isnan()")


@kind(2)
def tied(m: Maker) -> str:
    """Equal elements: the first of them counts, or their gradients are shared."""
    x = m.ranked()
    d = m.dim(x)
    return m.one(f"{x}.round().argmax({d})", f"{x}.sign().amax({m.dims(x)})", f"{x}.round().max({d})[0]",
                 f"({x} > 0).long().argmax({d})", f"{x}.round().median({d})[0]", f"{x}.sign().amin()",
                 f"{x}.sign().cummax({d})[1]", f"{x}.sign().max()", f"({x} * 0).argmin()", f"{x}.round().min({d})[1]",
                 f"torch.maximum({x}.round(), {x}.sign())", f"{x}.sign().sort(dim={d}, stable=True)[1]",
                 f"{x}.round().mode({d})[0]", f"{x}.clamp(0, 1).clamp(1, 2)", f"{x}.relu().abs().sqrt()",
                 f"{x}.sign().norm({m.one(1, 2, 'inf')}, {d})", f"{x}.mul(0).std({d})", f"torch.dist({x}, {x})",
                 f"{x}.sign().logsumexp({d})", f"{x}.round().topk(1, {d})[0]")


@kind(2)
def mixed(m: Maker) -> str:
    """Types that are promoted, and results of a type that is asked for."""
    a, b = m.any(), m.any()
    d = m.one(0, -1, "None")
    t = m.one("float32", "float64", "int64", "bfloat16", "float16", "int32", "uint8", "bool")
    return m.one(f"{a}.sum({d}, dtype=torch.{t})", f"torch.cat([{a}.flatten(), {b}.flatten()])",
                 f"torch.where({a} > 0, {a}, {b}.sum())", f"{a}.prod(dtype=torch.{t})", f"{a}.add_({b}.to(torch.{t}))",
                 f"{a}.to(torch.{t}) + {b}", f"{a}.bool() | {b}.bool()", f"{a}.type_as({b}) - {b}",
                 f"torch.add({a}.to(torch.uint8), {b}.to(torch.int8))", f"({a} > 0) * {b}", f"({a} > 0).sum({d}) / 3",
                 f"{a}.softmax(-1, dtype=torch.{t})", f"torch.ones_like({a}, dtype=torch.{t}) - {b}",
                 f"{a}.to(torch.{t}).to(torch.float32)", f"{a}.cumsum(0, dtype=torch.{t})",
                 f"torch.mul({a}, {b}.to(torch.{t}))", f"{a}.copy_({b}.to(torch.{t}))",
                 f"{a}.mean({d}, dtype=torch.{t})", f"torch.full_like({a}, 3.7, dtype=torch.{t})",
                 f"torch.lerp({a}, {a} + 1, {b}.to({a}.dtype))", f"{a}.masked_fill({b} > 0, True)",
                 f"torch.bitwise_xor({a}.to(torch.{t}), {b}.to(torch.int32))", f"{a}.eq({b}.to(torch.{t}))",
                 f"torch.linspace(-1, 1, 4, dtype=torch.{t})", f"torch.arange(0, 3, 0.75).to(torch.{t})",
                 f"torch.pow({m.one(2, 0.5, -1)}, {a})", f"{a} ** {m.one(0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5)}")


@kind(2)
def along_axes(m: Maker) -> str:
    x = m.float()
    d = m.dim(x)
    return m.one(f"F.softmax({x} * {m.one(1, 100)}, {d})", f"F.log_softmax({x}.masked_fill({x} > 0, -inf), {d})",
                 f"torch.linalg.vector_norm({x}, {m.one(1, 2, 3, 'inf', '-inf', 0.5)}, {d})", f"{x}.var({d}, False)",
                 f"torch.std({x}, {d}, correction=0)", f"{x} - {x}.mean({d}, True)", f"{x} / {x}.sum({d}, True)",
                 f"{x}.flip({d}).cumsum({d}).flip({d})", f"({x} - {x}.amax({d}, True)).exp().sum({d}).log()",
                 f"{x}.cumsum({d}) / torch.arange(1, {x}.shape[{d}] + 1).to({x}.dtype)", f"{x}.diff(2, {d})",
                 f"torch.nanquantile({x}, 0.5, {d})", f"torch.gradient({x}, dim={d})[0]", f"{x}.logcumsumexp({d})",
                 f"{x}.sub({x}.roll(1, {d})).abs().mean()", f"torch.softmax({x}, {d}).mul({x}).sum({d})",
                 f"{x}.unfold({d}, 2, 1).mean(-1)", f"{x}.cumprod({d}).sum()", f"torch.renorm({x}, 1, {d}, 0.5)",
                 f"F.normalize({x}, p={m.one(1, 2, 3)}, dim={d}, eps=1e-3)", f"torch.special.logit({x}, 0.1)",
                 f"{x}.unsqueeze({d}).sub({x}.unsqueeze(0)).square().sum(-1)", f"{x}.amax({d}, True).eq({x}).to({x})")
