"""Rules that replace several operators by one: each is a pattern, a condition and a replacement.

The rules of ``CAPTURED`` are for captured graphs, before autograd, so gradients are those of the replacement. The
rules of ``ATEN`` are for functional ATen graphs. ``tests/graph/test_rewrites.py`` proves every rule on random inputs:
results, gradients, special values. SOT_PATTERNS switches rules off, for the process: ``SOT_PATTERNS=-attention``.

A rewritten graph must return tensors of the same layout. That is checked on fake tensors; otherwise it is not used.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from sot.graph.rewrite.known import known_value
from sot.graph.rewrite.patterns import Match, either, fake_of, holes, is_unused, name_of, op
from sot.torch_compat.graphs import expression

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """``replacement(match, **holes)`` computes the pattern's value if ``condition(match)`` holds."""

    name: str
    pattern: Any
    condition: Callable[[Match], bool]
    replacement: Callable[..., Any]


def given(match: Match, *names: str) -> list[torch.Tensor]:
    """The fakes of these holes, as far as they are bound; empty if one is not a tensor."""
    fakes = [match.fake(n) for n in names if n in match.bound]
    return fakes if all(isinstance(f, torch.Tensor) for f in fakes) else []


def tensors(match: Match, *names: str, but: str = "") -> list[torch.Tensor]:
    """The fakes of these holes, and of the matched nodes except operations ``but``; empty if one is not a tensor."""
    fakes = given(match, *names) + [fake_of(n) for n in match.nodes if name_of(n) != but]
    return fakes if all(isinstance(f, torch.Tensor) for f in fakes) else []


def expressions(sizes: Iterable[Any]) -> list[Any]:
    """Sizes in a form that can be compared without assumptions about varying ones."""
    return [expression(fake_of(size)) for size in sizes]


def alike(fakes: Sequence[torch.Tensor], dtypes: Iterable[torch.dtype]) -> bool:
    """Whether there are tensors, all of the same one of these types. Autocast and promotion cause different types."""
    return bool(fakes) and len({f.dtype for f in fakes}) == 1 and fakes[0].dtype in dtypes


# ---- attention --------------------------------------------------------------------------------------------
q, k, columns, v, scale, divisor = holes("q k columns v scale divisor")
mask, kept, bias, low, p, training, dtype = holes("mask kept bias low p training dtype")
_scores = op("matmul", q, either(op("transpose", k, -2, -1), op("transpose", k, -1, -2), columns))
_scaled = either(op("mul", _scores, scale), op("div", _scores, divisor), _scores)
_masked = either(op("masked_fill", _scaled, mask, low), op("where", kept, _scaled, low), op("add", _scaled, bias),
                 _scaled)
_softmax = either(op("softmax", _masked, -1), op("to", op("softmax", _masked, -1, torch.float32), dtype))
_weights = either(_softmax, op("dropout", _softmax, 0.0, training), op("dropout", _softmax, p, False))


def is_attention(match: Match) -> bool:
    """Attention with heads, in types that fused kernels support. A mask has a row per query, and needs no gradient."""
    fakes = tensors(match, "q", "k", "columns", "v", but="softmax")     # its scores may be f32, as in the kernels
    if not alike(fakes, (torch.float16, torch.bfloat16, torch.float32)) or any(f.dim() != 4 for f in fakes):
        return False
    query, key, value = fakes[:3]
    if not expressions(query.shape[:2]) == expressions(key.shape[:2]) == expressions(value.shape[:2]):
        return False
    factor = match.bound.get("scale", match.bound.get("divisor", 1.0))
    if not isinstance(factor, int | float) or not 0 < factor < math.inf:
        return False
    if "low" in match.bound and not is_lowest(match.bound["low"], query.dtype):
        return False
    return is_mask(match, query)


def is_lowest(value: Any, dtype: torch.dtype) -> bool:
    """Whether a score of this value has no weight, whatever is added to it."""
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
    """A query without visible keys has weights 0 / 0 in the program. Fused kernels return 0 there, replaced by NaN."""
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
    # The gradients of v become NaN as well, but not those of q and k, which the mask stops.
    return torch.where(blind, v.sum(-2, keepdim=True) * factors, result)


def masking(name: str, given: Any, low: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """The mask in the form of fused kernels, and the queries without visible keys, if these become NaN."""
    if name == "bias":
        return given, (given == -math.inf).all(-1, keepdim=True)
    visible = given if name == "kept" else torch.logical_not(given)
    if low == -math.inf:
        return visible, torch.logical_not(visible.any(-1, keepdim=True))
    return torch.zeros_like(visible, dtype=dtype).masked_fill(torch.logical_not(visible), low), None


def visibility(name: str, given: Any) -> torch.Tensor | None:
    """The keys that each query sees, if that is known during compilation."""
    constant = known_value(given)
    if constant is None:
        return None
    return constant != -math.inf if name == "bias" else constant if name == "kept" else ~constant


def is_causal(visible: torch.Tensor, query: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether each query sees exactly the keys up to its own position."""
    rows, columns = visible.shape[-2:] if visible.dim() > 1 else (0, 0)
    if [rows, columns] != expressions((query.shape[-2], value.shape[-2])):
        return False
    return bool((visible == torch.ones(rows, columns, dtype=torch.bool).tril()).all())


def repeated(name: str) -> Any:
    """Heads of keys or values, repeated for the queries that share them: (b, heads, n, d) to (b, times * heads, n,
    d).
    """
    source, times, index, sizes, shape = holes(f"{name} {name}_times {name}_index {name}_sizes {name}_shape")
    apart = either(op("getitem", source, index), op("unsqueeze", source, -3))
    return either(op("repeat_interleave", source, times, -3), op("reshape", op("expand", apart, sizes), shape))


causal = holes("causal")[0]
_grouped = op("scaled_dot_product_attention", q, repeated("k"), repeated("v"), is_causal=causal, scale=scale)
APART = [(slice(None), slice(None), None, *[slice(None)] * rest) for rest in range(3)]


def is_grouped(match: Match) -> bool:
    """Whether fused kernels support groups of these types and sizes. Otherwise torch would write all scores to
    memory.
    """
    fakes = given(match, "q", "k", "v")
    if not alike(fakes, (torch.float16, torch.bfloat16)) or any(f.dim() != 4 for f in fakes):
        return False
    heads, width = (expressions(f.shape[d] for f in fakes) for d in (1, 3))
    if not all(isinstance(n, int) for n in heads + width) or heads[0] % heads[1] or heads[1] != heads[2]:
        return False
    return len(set(width)) == 1 and width[0] % 8 == 0 and width[0] <= 256 and all(
        is_repeated(match, name, heads[0] // heads[1]) for name in ("k", "v"))


def is_repeated(match: Match, name: str, times: int) -> bool:
    bound = {key.removeprefix(f"{name}_"): value for key, value in match.bound.items() if key.startswith(f"{name}_")}
    if "times" in bound:
        return bool(bound["times"] == times)
    batch, heads, length, width = expressions(match.fake(name).shape)
    wanted = [[batch, heads, times, length, width], [batch, heads * times, length, width]]
    found = [expressions(bound[n]) if isinstance(bound[n], tuple | list) else [] for n in ("sizes", "shape")]
    return bound.get("index", APART[0]) in APART and all(
        len(a) == len(b) and all(n in (-1, m) for n, m in zip(a, b, strict=True))
        for a, b in zip(found, wanted, strict=True))


def grouped(match: Match, q: Any, k: Any, v: Any, causal: Any, scale: Any, **sizes: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale, enable_gqa=True)


# ---- normalization ----------------------------------------------------------------------------------------
x, weight, shift, eps = holes("x weight shift eps")
_mean = op("mean", x, -1, keepdim=True)
_centred = op("sub", x, _mean)
_square = either(op("pow", _centred, 2), op("square", _centred), op("mul", _centred, _centred))
_variance = either(op("mean", _square, -1, keepdim=True), op("var", x, -1, keepdim=True, unbiased=False),
                   op("var", x, -1, keepdim=True, correction=0))
_spread = op("add", _variance, eps)
_normal = either(op("div", _centred, op("sqrt", _spread)), op("mul", _centred, op("rsqrt", _spread)))


def rms_of(x: Any) -> Any:
    square = op("mean", either(op("pow", x, 2), op("square", x), op("mul", x, x)), -1, keepdim=True)
    root = op("add", square, eps)
    return either(op("mul", x, op("rsqrt", root)), op("div", x, op("sqrt", root)))


_rms = rms_of(x)
_wide_rms = rms_of(either(op("to", x, torch.float32), op("float", x)))
_half_rms = either(op("to", _wide_rms, dtype), op("type_as", _wide_rms, x))
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_norm(match: Match) -> bool:
    """A norm over the last axis, with parameters along it, all of one type."""
    fakes = tensors(match, "x", "weight", "shift")
    if not alike(fakes, FLOATS) or not is_last_axis_known(match):
        return False
    return all(expressions(f.shape) == [fakes[0].shape[-1]] for f in given(match, "weight", "shift"))


def is_last_axis_known(match: Match) -> bool:
    fake = match.fake("x")
    return bool(fake.dim()) and isinstance(fake.shape[-1], int) and isinstance(match.bound["eps"], float)


def is_half_norm(match: Match) -> bool:
    """A norm that is computed in f32 and rounded to the type of its input."""
    fakes = given(match, "x") + [fake_of(match.last)]
    return alike(fakes, (torch.float16, torch.bfloat16)) and is_last_axis_known(match)


def layer_norm(match: Match, x: Any, eps: float, weight: Any = None, shift: Any = None) -> Any:
    return F.layer_norm(x, (match.fake("x").shape[-1],), weight, shift, eps)


def rms_norm(match: Match, x: Any, eps: float, weight: Any = None, dtype: Any = None) -> Any:
    return F.rms_norm(x, (match.fake("x").shape[-1],), weight, eps)


# ---- convolution and batch norm ------------------------------------------------------------------------------
_given = holes("filters offset stride padding dilation groups")
filters, offset, *_how = _given
mean, variance, momentum = holes("mean variance momentum")


def _normalized(convolution: str) -> Any:
    whole, plain = op(convolution, x, *_given), op(convolution, x, filters, offset)
    return op("batch_norm", either(whole, plain), mean, variance, weight, shift, False, momentum, eps)


def saves_a_pass(match: Match) -> bool:
    """Without gradients, if no other kernel would read the result anyway, and if the result is the larger one."""
    fakes = tensors(match, "x", "filters", "mean", "variance")
    if not alike(fakes, (torch.float32, torch.float64)) or not isinstance(match.bound["eps"], float):
        return False
    read = [f for f in map(match.fake, match.bound) if isinstance(f, torch.Tensor)]
    needs_gradient = torch.is_grad_enabled() and any(f.requires_grad for f in read)
    filters, result = match.fake("filters").numel(), fakes[-1].numel()
    is_larger = isinstance(filters, int) and (not isinstance(result, int) or filters < result)
    return not needs_gradient and is_larger and all(is_library(user) for user in match.last.users)


def is_library(node: fx.Node) -> bool:
    """Whether the node is a call of a library's kernel, or the end."""
    return node.op == "output" or name_of(node) in ("conv1d", "conv2d", "conv3d", "linear", "matmul")


def folded(match: Match, x: Any, filters: Any, offset: Any, mean: Any, variance: Any, eps: float, weight: Any = None,
           shift: Any = None, momentum: Any = None, **how: Any) -> Any:
    """The same convolution with scaled filters, which each call computes from the current parameters."""
    rank = match.fake("filters").dim()
    factor = torch.rsqrt(variance + eps) if weight is None else weight * torch.rsqrt(variance + eps)
    centre = mean if offset is None else mean - offset
    start = -centre * factor if shift is None else shift - centre * factor
    scaled = filters * factor.reshape((-1,) + (1,) * (rank - 1))
    return getattr(F, f"conv{rank - 2}d")(x, scaled, start, *how.values())


# ---- linear and activation ---------------------------------------------------------------------------------
start, left, right, size = holes("start left right size")
_flat = op("addmm", start, left, right)
_linear = either(_flat, op("view", _flat, size))
# GELU as torch decomposes it; in half precision it is computed in f32.
_single = either(op("to", _linear, torch.float32), _linear)
_cubed = op("mul", op("mul", op("mul", _single, _single), _single), 0.044715)
_bent = {"erf": op("erf", op("mul", _single, math.sqrt(0.5))),
         "tanh": op("tanh", op("mul", op("add", _single, _cubed), math.sqrt(2 / math.pi)))}
_gelu = {by: op("mul", op("mul", _single, 0.5), op("add", bent, 1)) for by, bent in _bent.items()}
# The variant of GELU that the library's call applies, by the type of device.
OF_LIBRARY = {"cpu": "erf", "cuda": "tanh"}


def is_biased(match: Match) -> bool:
    fakes = [*given(match, "start", "left", "right"), fake_of(match.last)]
    return alike(fakes, FLOATS[:3]) and fakes[0].dim() == 1


def ends_with(by: str) -> Callable[[Match], bool]:
    return lambda match: is_biased(match) and OF_LIBRARY.get(match.fake("left").device.type) == by


def addmm_activation(match: Match, start: Any, left: Any, right: Any, size: Any = None, dtype: Any = None) -> Any:
    """One call of the library, which applies the activation at its end."""
    gelu = {} if name_of(match.last) == "relu" else {"use_gelu": True}
    result = aten._addmm_activation.default(start, left, right, **gelu)
    return result if size is None else aten.view.default(result, list(size))


# ---- biases that the readers of a product add ----------------------------------------------------------------
VIEWS = "view", "permute", "unsqueeze", "squeeze", "expand"
# Where the library's product in f32 is slower with a bias than without, by the type of device. On an H200, products
# with a bias made BERT's inference take 1.30 of torch.compile's device time (benchmarks/results/GPU.md).
SLOWER_WITH_BIAS = ("cuda",)


def is_read_elementwise(match: Match) -> bool:
    """Whether all readers of a product with a bias are elementwise operations: their kernels add the bias, too."""
    fakes = given(match, "start", "left", "right")
    return (alike(fakes, (torch.float32,)) and fakes[0].dim() == 1 and fakes[0].device.type in SLOWER_WITH_BIAS
            and are_elementwise(match.last.users))


def are_elementwise(readers: Iterable[fx.Node]) -> bool:
    return all(are_elementwise(node.users) if name_of(node) in VIEWS else
               torch.Tag.pointwise in getattr(node.target, "tags", ()) for node in readers if not is_unused(node))


def bias_apart(match: Match, start: Any, left: Any, right: Any) -> Any:
    return aten.add.Tensor(aten.mm.default(left, right), start)


# ---- sums of products ----------------------------------------------------------------------------------------
total, dims = holes("total dims")
_product = op("mm", left, right)
_moved = either(_product, op("view", _product, size), op("permute", _product, dims))
MOVES = {"view": "size", "permute": "dims"}


def is_second_product(match: Match) -> bool:
    """Whether a product is added to another one that nothing else reads. Not in half precision, where eager rounds the
    product before the addition.
    """
    first, product = first_product(match), fake_of(match.nodes[-1])
    if first is None or not alike(tensors(match, "left", "right"), (torch.float32, torch.float64)):
        return False
    return fake_of(first).dtype is product.dtype and expressions(fake_of(first).shape) == expressions(product.shape)


def first_product(match: Match) -> fx.Node | None:
    """The product that is the other term of the sum, if it is moved in the same way and nothing else reads it."""
    node: Any = match.bound["total"]
    hole = next((hole for hole in MOVES.values() if hole in match.bound), None)
    if hole is not None:
        is_alike = isinstance(node, fx.Node) and MOVES.get(name_of(node)) == hole and is_read_once(node)
        node = node.args[0] if is_alike and [*node.args[1]] == [*match.bound[hole]] else None
    return node if isinstance(node, fx.Node) and name_of(node) in ("mm", "addmm") and is_read_once(node) else None


def is_read_once(node: fx.Node) -> bool:
    return sum(not is_unused(user) for user in node.users) == 1


def added_product(match: Match, total: Any, left: Any, right: Any, size: Any = None, dims: Any = None) -> Any:
    """One call of the library, which adds to the first product where it is in memory."""
    first = first_product(match)
    assert first is not None
    result = aten.addmm.default(fx.Proxy(first, total.tracer), left, right)
    if size is not None:
        return aten.view.default(result, list(size))
    return result if dims is None else aten.permute.default(result, list(dims))


# ---- gradients of a table that is looked up several times ------------------------------------------------------
zeros, indices, source = holes("zeros indices source")
_lookup = op("index_put", zeros, indices, source, True)


def is_second_lookup(match: Match) -> bool:
    """Whether the gradient of a lookup, in memory of its own, is added to another one of the table, or to a product,
    that nothing else reads. Not in half precision, where eager rounds each of them.
    """
    base, total = match.bound["zeros"], match.bound["total"]
    if not (is_full_of_zeros(base) and isinstance(total, fx.Node) and is_read_once(total)):
        return False
    fakes = tensors(match, "total", "zeros")
    layouts = [[*map(expressions, (fake.shape, fake.stride()))] for fake in fakes]
    return (alike(fakes, (torch.float32, torch.float64)) and is_sum_from_zero(total)
            and all(layout == layouts[0] for layout in layouts))


def is_full_of_zeros(node: Any) -> bool:
    return isinstance(node, fx.Node) and node.target is aten.full.default and bool(node.args[1] == 0)


def is_sum_from_zero(node: Any) -> bool:
    """Whether all its elements are sums that begin with zero, so that adding zero changes none: not the sign of one."""
    while isinstance(node, fx.Node) and name_of(node) == "index_put" and node.args[3:] == (True,):
        node = node.args[0]
    return is_full_of_zeros(node) or (isinstance(node, fx.Node) and name_of(node) == "mm")


def added_lookup(match: Match, total: Any, indices: Any, source: Any, zeros: Any) -> Any:
    """One operator, which adds to the first gradient where it is in memory."""
    places = [fx.Proxy(place, total.tracer) if isinstance(place, fx.Node) else place for place in indices]
    return aten.index_put.default(total, places, source, True)


CAPTURED = (
    Rewrite("attention", op("matmul", _weights, v), is_attention, attention),
    Rewrite("layer norm", either(op("add", op("mul", _normal, weight), shift), op("mul", _normal, weight), _normal),
            is_norm, layer_norm),
    Rewrite("grouped queries", _grouped, is_grouped, grouped),
    Rewrite("RMS norm of half precision", _half_rms, is_half_norm, rms_norm),
    Rewrite("RMS norm", either(op("mul", _rms, weight), _rms), is_norm, rms_norm),
    *(Rewrite(f"convolution {n}d and batch norm", _normalized(f"conv{n}d"), saves_a_pass, folded) for n in (1, 2, 3)),
)
ATEN = (
    Rewrite("bias of elementwise operations", _flat, is_read_elementwise, bias_apart),
    Rewrite("linear and relu", op("relu", _linear), is_biased, addmm_activation),
    *(Rewrite(f"linear and gelu by {by}", either(op("to", gelu, dtype), gelu), ends_with(by), addmm_activation)
      for by, gelu in _gelu.items()),
    Rewrite("sum of products", op("add", total, _moved), is_second_product, added_product),
    Rewrite("sum of lookups", op("add", total, _lookup), is_second_lookup, added_lookup),
)
