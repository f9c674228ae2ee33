"""Random numbers drawn into memory that is not contiguous: dropout of a transposed tensor, ``x.t().normal_()``.

Their order depends on that memory, and AOTAutograd draws into other memory. So a graph that is compiled draws them by
an operator, which compilers call as it is and with the strides that its argument has in PyTorch. The same flag marks
the few draws that a compiler makes in another way (``op_effects.is_drawn_otherwise``).
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, fx
from torch.nn import functional as F

FLAG = "draws_in_order"         # in the metadata of a node: a compiler may draw other numbers
METHODS = frozenset(("bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_",
                     "uniform_"))
OF_DROPOUT = inspect.signature(F.dropout)


def is_drawn_in_order(node: fx.Node) -> bool:
    return bool(node.meta.get(FLAG))


def draw_by_operator(module: fx.GraphModule) -> Callable[[], None]:
    """Let a graph call the operator for such draws, as far as that is possible. The result undoes this."""
    changed = []
    for node in filter(is_drawn_in_order, module.graph.nodes):
        call = of_dropout(node) or of_method(node)
        if call is not None:
            changed.append((node, node.op, node.target, node.args, node.kwargs))
            node.op, node.kwargs, (node.target, node.args) = "call_function", {}, call
            del node.meta[FLAG]
    if changed:
        module.recompile()

    def undo() -> None:
        for node, *before in changed:
            node.op, node.target, node.args, node.kwargs = before
            node.meta[FLAG] = True
        if changed:
            module.recompile()
    return undo


def of_dropout(node: fx.Node) -> tuple[Callable[..., Tensor], tuple] | None:
    if node.target in (torch.dropout, torch.dropout_):
        named = {**dict(zip(("input", "p", "train"), node.args, strict=False)), **node.kwargs}
        arguments = (named["input"], named["p"], named["train"], node.target is torch.dropout_)
    elif node.target is F.dropout:
        given = OF_DROPOUT.bind(*node.args, **node.kwargs)
        given.apply_defaults()
        arguments = given.args
    else:
        return None
    return None if isinstance(arguments[1], fx.Node) else (dropout, arguments)


def of_method(node: fx.Node) -> tuple[Callable[..., Tensor], tuple] | None:
    is_simple = node.op == "call_method" and node.target in METHODS and not node.kwargs and all(
        isinstance(arg, int | float) for arg in node.args[1:])
    return (draw, (node.args[0], node.target, *node.args[1:])) if is_simple else None


def dropout(x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    """``torch.dropout`` as it is computed where its kernel is not fused."""
    if not training:
        return x
    kept = operator()(x.detach(), "bernoulli_", [1 - p], False).div(1 - p)
    return x.mul_(kept) if inplace else x * kept


def draw(x: Tensor, method: str, *args: float) -> Tensor:
    return x.copy_(operator()(x.detach(), method, args, True))


@functools.cache
def operator() -> Callable[..., Tensor]:
    """``drawn(like, method, args, with_gaps)``: a new tensor in which ``method`` has drawn.

    Arguments:
        like: a tensor of the same shape, strides, dtype and device.
        with_gaps: whether the strides are the same also where they leave gaps in memory.
    """
    def empty(like: Tensor, with_gaps: bool) -> Tensor:
        return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device) if with_gaps else (
            torch.empty_like(like))

    def draw(like: Tensor, method: str, args: list[float], with_gaps: bool) -> Tensor:
        return getattr(empty(like, with_gaps), method)(*args)

    made = torch.library.custom_op("sot::drawn", draw, mutates_args=(),
                                   schema="(Tensor like, str method, Scalar[] args, bool with_gaps) -> Tensor",
                                   tags=(torch.Tag.nondeterministic_seeded, torch.Tag.needs_exact_strides))
    made.register_fake(lambda like, method, args, with_gaps: empty(like, with_gaps))
    return made._opoverload
