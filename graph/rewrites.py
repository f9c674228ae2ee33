"""Rules that put one operator in the place of several: a pattern, a condition, a replacement each.

``CAPTURED`` are for graphs as they were captured, before autograd, so that gradients are those of what takes the
place; ``ATEN`` for functional ATen graphs. Every rule is proved on random inputs by ``tests/test_rewrites.py``:
results, gradients, special values. SOT_PATTERNS switches rules off, for the process: ``SOT_PATTERNS=-attention``.

A rewritten graph must give tensors laid out as before, which is checked on fake tensors; otherwise it is not used.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from sot.graph.known import known_value
from sot.graph.patterns import Match, either, fake_of, holes, op

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """``replacement(match, **holes)`` computes the pattern's value where ``condition(match)`` holds."""

    name: str
    pattern: Any
    condition: Callable[[Match], bool]
    replacement: Callable[..., Any]


def tensors(match: Match, *names: str) -> list[torch.Tensor]:
    """The fakes of these holes, as far as they are bound, and of what was matched; nothing if one is no tensor."""
    fakes = [match.fake(n) for n in names if n in match.bound] + [fake_of(n) for n in match.nodes]
    return fakes if all(isinstance(f, torch.Tensor) for f in fakes) else []


def alike(fakes: Sequence[torch.Tensor], dtypes: Iterable[torch.dtype]) -> bool:
    """Are there any, all of one type out of these?  Autocast and promotion show as more than one."""
    return bool(fakes) and len({f.dtype for f in fakes}) == 1 and fakes[0].dtype in dtypes


# ---- attention --------------------------------------------------------------------------------------------
q, k, columns, v, scale, divisor = holes("q k columns v scale divisor")
mask, kept, bias, low, p, training = holes("mask kept bias low p training")
_scores = op("matmul", q, either(op("transpose", k, -2, -1), op("transpose", k, -1, -2), columns))
_scaled = either(op("mul", _scores, scale), op("div", _scores, divisor), _scores)
_masked = either(op("masked_fill", _scaled, mask, low), op("where", kept, _scaled, low), op("add", _scaled, bias),
                 _scaled)
_softmax = op("softmax", _masked, -1)
_weights = either(_softmax, op("dropout", _softmax, 0.0, training), op("dropout", _softmax, p, False))


def is_attention(match: Match) -> bool:
    """Of heads, in types that fused kernels have; a mask has one line for each query, and asks for no gradient."""
    fakes = tensors(match, "q", "k", "columns", "v")
    if not alike(fakes, (torch.float16, torch.bfloat16, torch.float32)) or any(f.dim() != 4 for f in fakes):
        return False
    query, key, value = fakes[:3]
    if len({f.shape[:2] for f in (query, key, value)}) != 1:
        return False
    factor = match.bound.get("scale", match.bound.get("divisor", 1.0))
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        return False
    if "low" in match.bound and not is_lowest(match.bound["low"], query.dtype):
        return False
    return is_mask(match, query)


def is_lowest(value: Any, dtype: torch.dtype) -> bool:
    """Does a score of this value have no weight, whatever is added to it?"""
    if not isinstance(value, int | float):
        return False
    return value == -math.inf or (dtype is not torch.float16 and value == torch.finfo(dtype).min)


def is_mask(match: Match, query: torch.Tensor) -> bool:
    found = [match.fake(n) for n in ("mask", "kept", "bias") if n in match.bound]
    kind = query.dtype if "bias" in match.bound else torch.bool
    return all(isinstance(m, torch.Tensor) and m.dtype is kind and 1 <= m.dim() <= 4 and not m.requires_grad
               and m.device == query.device for m in found)


def attention(match: Match, q: Any, v: Any, k: Any = None, columns: Any = None, scale: Any = None,
              divisor: Any = None, low: Any = None, **masks: Any) -> Any:
    """Queries that see nothing weigh by 0 / 0 in the program; fused kernels give 0 there, which NaN replaces."""
    factor = float(scale) if scale is not None else 1.0 if divisor is None else 1.0 / divisor
    k = columns.transpose(-2, -1) if k is None else k
    name = next((n for n in ("mask", "kept", "bias") if n in masks), None)
    if name is None:
        return F.scaled_dot_product_attention(q, k, v, scale=factor)
    constant = visibility(name, match.bound[name])
    if constant is not None and name != "bias" and is_causal(constant, match.fake("q"), match.fake("v")):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=factor)
    given = masks[name] if match.fake(name).dim() > 1 else masks[name].unsqueeze(0)
    given, blind = masking(name, given, low, match.fake("q").dtype)
    result = F.scaled_dot_product_attention(q, k, v, attn_mask=given, scale=factor)
    if blind is None or constant is not None and bool(constant.any(-1).all()):
        return result
    factors = torch.where(blind, math.nan, 1.0).to(match.fake("q").dtype)
    if name == "bias":
        return result * factors
    # The gradients of v become NaN too, but not those of q and k, which the mask stops.
    return torch.where(blind, v.sum(-2, keepdim=True) * factors, result)


def masking(name: str, given: Any, low: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """The mask as fused kernels take it, and which queries see nothing, if these become NaN."""
    if name == "bias":
        return given, (given == -math.inf).all(-1, keepdim=True)
    visible = given if name == "kept" else torch.logical_not(given)
    if low == -math.inf:
        return visible, torch.logical_not(visible.any(-1, keepdim=True))
    return torch.zeros_like(visible, dtype=dtype).masked_fill(torch.logical_not(visible), low), None


def visibility(name: str, given: Any) -> torch.Tensor | None:
    """Which keys each query sees, where that is known while compiling."""
    constant = known_value(given)
    if constant is None:
        return None
    return constant != -math.inf if name == "bias" else constant if name == "kept" else ~constant


def is_causal(visible: torch.Tensor, query: torch.Tensor, value: torch.Tensor) -> bool:
    """Does each query see the keys up to its own position, and no others?"""
    rows, columns = query.shape[-2], value.shape[-2]
    expected = torch.ones(rows, columns, dtype=torch.bool).tril()
    return visible.shape[-2:] == (rows, columns) and bool((visible == expected).all())


# ---- normalization ----------------------------------------------------------------------------------------
x, weight, shift, eps = holes("x weight shift eps")
_mean = op("mean", x, -1, keepdim=True)
_centred = op("sub", x, _mean)
_square = either(op("pow", _centred, 2), op("square", _centred), op("mul", _centred, _centred))
_variance = either(op("mean", _square, -1, keepdim=True), op("var", x, -1, keepdim=True, unbiased=False),
                   op("var", x, -1, keepdim=True, correction=0))
_spread = op("add", _variance, eps)
_normal = either(op("div", _centred, op("sqrt", _spread)), op("mul", _centred, op("rsqrt", _spread)))
_mean_square = op("mean", either(op("pow", x, 2), op("square", x), op("mul", x, x)), -1, keepdim=True)
_root = op("add", _mean_square, eps)
_rms = either(op("mul", x, op("rsqrt", _root)), op("div", x, op("sqrt", _root)))
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_norm(match: Match) -> bool:
    """Over the last axis, with parameters along it, all of one type."""
    fakes = tensors(match, "x", "weight", "shift")
    if not alike(fakes, FLOATS) or not isinstance(match.bound["eps"], float) or not fakes[0].dim():
        return False
    return all(match.fake(n).shape == fakes[0].shape[-1:] for n in ("weight", "shift") if n in match.bound)


def layer_norm(match: Match, x: Any, eps: float, weight: Any = None, shift: Any = None) -> Any:
    return F.layer_norm(x, (match.fake("x").shape[-1],), weight, shift, eps)


def rms_norm(match: Match, x: Any, eps: float, weight: Any = None) -> Any:
    return F.rms_norm(x, (match.fake("x").shape[-1],), weight, eps)


# ---- convolution and batch norm ------------------------------------------------------------------------------
_given = holes("filters offset stride padding dilation groups")
filters, offset, *_how = _given
mean, variance, momentum = holes("mean variance momentum")


def _normalized(convolution: str) -> Any:
    whole, plain = op(convolution, x, *_given), op(convolution, x, filters, offset)
    return op("batch_norm", either(whole, plain), mean, variance, weight, shift, False, momentum, eps)


def saves_a_pass(match: Match) -> bool:
    """Without gradients, where nothing else would read the result in a kernel anyway, and it is the larger."""
    fakes = tensors(match, "x", "filters", "mean", "variance")
    if not alike(fakes, (torch.float32, torch.float64)) or not isinstance(match.bound["eps"], float):
        return False
    given = [f for f in map(match.fake, match.bound) if isinstance(f, torch.Tensor)]
    needs_gradient = torch.is_grad_enabled() and any(f.requires_grad for f in given)
    return not needs_gradient and match.fake("filters").numel() < fakes[-1].numel() and all(
        is_library(user) for user in match.last.users)


def is_library(node: fx.Node) -> bool:
    """Is the node a call of a library's kernel, or the end?"""
    return node.op == "output" or name_is(node, ("conv1d", "conv2d", "conv3d", "linear", "matmul"))


def name_is(node: fx.Node, names: Sequence[str]) -> bool:
    return getattr(node.target, "__name__", node.target) in names


def folded(match: Match, x: Any, filters: Any, offset: Any, mean: Any, variance: Any, eps: float, weight: Any = None,
           shift: Any = None, momentum: Any = None, **how: Any) -> Any:
    """The same convolution of scaled filters, which are computed at each call, from what the parameters are then."""
    rank = match.fake("filters").dim()
    factor = torch.rsqrt(variance + eps) if weight is None else weight * torch.rsqrt(variance + eps)
    centre = mean if offset is None else mean - offset
    start = -centre * factor if shift is None else shift - centre * factor
    scaled = filters * factor.reshape((-1,) + (1,) * (rank - 1))
    return getattr(F, f"conv{rank - 2}d")(x, scaled, start, *how.values())


# ---- linear and activation ---------------------------------------------------------------------------------
start, left, right, size = holes("start left right size")
_linear = op("addmm", start, left, right)


def is_biased(match: Match) -> bool:
    fakes = tensors(match, "start", "left", "right")
    return alike(fakes, FLOATS[:3]) and fakes[0].dim() == 1


def addmm_relu(match: Match, start: Any, left: Any, right: Any, size: Any = None) -> Any:
    """One call of the library, which ends with the activation."""
    result = aten._addmm_activation.default(start, left, right)
    return result if size is None else aten.view.default(result, list(size))


CAPTURED = (
    Rewrite("attention", op("matmul", _weights, v), is_attention, attention),
    Rewrite("layer norm", either(op("add", op("mul", _normal, weight), shift), op("mul", _normal, weight), _normal),
            is_norm, layer_norm),
    Rewrite("RMS norm", either(op("mul", _rms, weight), _rms), is_norm, rms_norm),
    *(Rewrite(f"convolution {n}d and batch norm", _normalized(f"conv{n}d"), saves_a_pass, folded) for n in (1, 2, 3)),
)
ATEN = (
    Rewrite("linear and relu", op("relu", either(_linear, op("view", _linear, size))), is_biased, addmm_relu),
)
