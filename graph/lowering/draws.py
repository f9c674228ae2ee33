"""Random numbers in kernels, for ``SOT_RANDOM=philox``.

Otherwise operators that draw are called, so the numbers are eager's. With Philox, a program draws one seed for each
such operator from torch's generator, in one call. An element is a function of its seed and its position. So the
numbers are reproducible after ``torch.manual_seed``, though not eager's, and numbers that are not read later need no
memory. The forward graph still keeps what a backward graph needs (the mask of a dropout).
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from sot.graph.kernels import index as ix
from sot.graph.kernels.index import Index
from sot.graph.kernels.ir import Builder
from sot.graph.kernels.ops import NAMES, compute_type
from sot.graph.kernels.program import Extern, View
from sot.graph.lowering.driver import Lowering, Rule, lowers
from sot.graph.random_numbers import way

DRAWS: set[str] = set()
SEEDS = "seeds"


def draws(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators that draw. Without Philox, or with a generator of the program, they are called."""
    def register(rule: Rule) -> Rule:
        DRAWS.update(names)

        def checked(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
            ours = way() == "philox" and given.get("generator") is None
            return rule(low, node, given) if ours else None
        lowers(*names)(checked)
        return rule
    return register


def seed(low: Lowering, node: fx.Node, device: torch.device) -> View:
    """A seed for this node: an element of a tensor of seeds that is drawn before the first of these nodes."""
    name = f"{SEEDS}_{str(device).replace(':', '_')}"
    nodes = [n for n in node.graph.nodes if is_draw(n.target)]
    if name not in low.program.buffers:
        low.buffer(name, torch.empty(len(nodes), dtype=torch.int64, device="meta"), device=device)
        how = {"dtype": torch.int64, "device": device}
        low.program.steps.append(Extern(torch.ops.aten.randint.low, (-2**63, 2**63 - 1, [len(nodes)]), how, (name,),
                                        False, low.note))
    return View(name, (), (), nodes.index(node), torch.int64, device)


def is_draw(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    name = target._schema.name.partition("::")[2]
    return name in DRAWS or f"{name}.{target._overloadname}" in DRAWS


def uniform(low: Lowering, b: Builder, source: View, axes: list[Index], shape: tuple[int, ...], stream: int = 0) -> str:
    """A number in [0, 1) for each place. ``stream`` distinguishes several numbers for one place."""
    flat = ix.dot(axes, [math.prod(shape[d + 1:]) for d in range(len(shape))])
    return b.emit("uniform", low.read(b, source, []), b.index(flat * 2 + stream))


def drawn(low: Lowering, node: fx.Node, value: torch.Tensor, source: View, item: int | None,
          finish: Callable[[Builder, list[Index], str], str]) -> Any:
    return low.kernel(node, value, (), lambda b, axes, _: finish(
        b, axes, uniform(low, b, source, axes, tuple(value.shape))), item)


@draws("rand", "rand_like")
def rand(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    value = node.meta["val"]
    return drawn(low, node, value, seed(low, node, value.device), None, lambda b, axes, u: u)


@draws("uniform")
def uniform_between(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    value, start, end = node.meta["val"], given["from"], given["to"]
    kind = compute_type(NAMES[value.dtype])
    return drawn(low, node, value, seed(low, node, value.device), None, lambda b, axes, u: b.emit(
        "add", b.emit("mul", b.cast(u, kind), b.const(end - start, kind)), b.const(start, kind)))


@draws("bernoulli.p")
def bernoulli(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    value, p = node.meta["val"], given["p"]
    return drawn(low, node, value, seed(low, node, value.device), None, lambda b, axes, u: b.cast(
        b.emit("lt", u, b.const(p, "f32")), compute_type(NAMES[value.dtype])))


@draws("randn", "randn_like")
def randn(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """The Box-Muller method, from two numbers for each place."""
    value = node.meta["val"]
    source, shape = seed(low, node, value.device), tuple(value.shape)

    def finish(b: Builder, axes: list[Index], u: str) -> str:
        least = b.emit("maximum", u, b.const(1e-7, "f32"))
        radius = b.emit("sqrt", b.emit("mul", b.emit("log", least), b.const(-2.0, "f32")))
        angle = b.emit("mul", uniform(low, b, source, axes, shape, 1), b.const(2 * math.pi, "f32"))
        return b.emit("mul", radius, b.emit("cos", angle))
    return drawn(low, node, value, source, None, finish)


@draws("native_dropout")
def native_dropout(low: Lowering, node: fx.Node, given: dict[str, Any]) -> Any:
    """Kept elements are scaled up. Results and mask are two kernels until they are fused."""
    result, mask = node.meta["val"]
    source, p, values = seed(low, node, result.device), given["p"], given["input"]
    kind = compute_type(NAMES[result.dtype])
    if given["train"] is False or p in (0, 1):
        return None

    def kept(b: Builder, axes: list[Index], u: str) -> str:
        scaled = b.emit("mul", low.value(b, values, axes, kind), b.const(1 / (1 - p), kind))
        return b.emit("where", b.emit("ge", u, b.const(p, "f32")), scaled, b.const(0.0, kind))
    return [drawn(low, node, result, source, 0, kept),
            drawn(low, node, mask, source, 1, lambda b, axes, u: b.emit("ge", u, b.const(p, "f32")))]
