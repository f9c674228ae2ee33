"""Makes the arguments of convolutions channels_last, and lets other operators follow, so that few copies are left.

cuDNN's kernels for tensor cores read and write channels_last. Where cuDNN is given another layout, it copies the
arguments before, and the result after. This pass puts the copies of arguments into the graph, and finds the layouts of
all later values with torch's own functions on fake tensors: a pointwise operator, a norm, a pool or a concatenation of
channels_last tensors is channels_last. A value gets back the layout that it had in the program where the graph returns
it, and where an operator reads it that is not known to follow. So the strides that a program sees do not change.

The pass runs on the graph of a forward and a backward pass, before it is cut into two, and on inference graphs. Graphs
with sizes that vary stay as they are.
"""
from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from sot.support.settings import is_on
from sot.torch_compat.graphs import POOL_WITH_CELLS, POSITIONS_OF_CELLS, running

aten = torch.ops.aten
LAST = torch.channels_last
FORWARD, BACKWARD = aten.convolution.default, aten.convolution_backward.default

# Operators, beside the pointwise ones, whose values do not depend on layouts, and whose results follow those of their
# arguments. None of them draws random numbers, which happens in the order of memory.
FOLLOWING = frozenset((
    "cat", "clone", "_to_copy", "copy", "constant_pad_nd", "convert_element_type", "mean", "sum", "amax", "amin", "var",
    "var_mean", "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d", "adaptive_max_pool2d_backward",
    "upsample_nearest2d", "upsample_nearest2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward",
    "index", "_unsafe_index", "slice_scatter", "select_scatter", "full_like", "zeros_like", "ones_like",
    POOL_WITH_CELLS, POSITIONS_OF_CELLS,
))
# Views by sizes and axes. One by strides depends on the layout of its argument.
VIEWS = frozenset((
    "view", "_unsafe_view", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "slice", "select", "alias",
    "detach", "split", "split_with_sizes", "unbind", "diagonal", "unfold",
))


# ---- whether ------------------------------------------------------------------------------------------------
GROUPED = 1 / 3     # greatest share of the products in convolutions of groups, in inference
SMALL = 64          # channels


def pays(graph: fx.Graph) -> bool:
    """Whether the convolutions of a graph are expected to be faster in channels_last.

    cuDNN computes half precision and TF32 on tensor cores, whose kernels are for channels_last (NVIDIA's guide to
    convolutional layers, "Tensor Layouts In Memory"). Inductor's authors have measured (``decide_layout_opt`` in
    ``torch/_inductor/graph.py``): convolutions in groups of several channels take 1.36 of the time in inference and
    up to 31 times the time in training, others 0.73 to 0.82. Models in training were slower, too, if a convolution with
    a window halves the channels, or if all have few channels.
    """
    found = [*convolutions(graph)]
    if not found or not all(map(is_on_tensor_cores, found)):
        return False
    if all(node.target is FORWARD for node in found):
        return sum(products(n) for n in found if is_grouped(n)) <= GROUPED * sum(map(products, found))
    return not any(is_grouped(n) or narrows(n) for n in found) and not all(map(is_small, found))


def convolutions(graph: fx.Graph) -> Iterator[fx.Node]:
    """The convolutions of images, and their gradients."""
    for node in graph.nodes:
        if node.target in (FORWARD, BACKWARD) and len(weight_of(node).shape) == 4:
            yield node


def weight_of(node: fx.Node) -> torch.Tensor:
    weight: Any = node.args[2 if node.target is BACKWARD else 1]
    return weight.meta["val"]


def is_on_tensor_cores(node: fx.Node) -> bool:
    weight = weight_of(node)
    is_tf32 = weight.dtype is torch.float32 and torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
    return weight.device.type == "cuda" and (weight.dtype in (torch.float16, torch.bfloat16) or is_tf32)


def is_grouped(node: fx.Node) -> bool:
    """Whether it has groups of several channels."""
    groups: Any = node.args[8 if node.target is FORWARD else 9]
    return bool(groups > 1 and weight_of(node).shape[1] > 1)


def narrows(node: fx.Node) -> bool:
    outputs, inputs, *window = weight_of(node).shape
    return 2 * outputs <= inputs and max(window) > 1


def is_small(node: fx.Node) -> bool:
    return max(weight_of(node).shape[:2]) <= SMALL


def products(node: fx.Node) -> int:
    """The multiplications of a convolution."""
    weight, is_transposed = weight_of(node), node.args[6]
    places = node.args[0].meta["val"] if is_transposed else node.meta["val"]    # type: ignore[union-attr]
    return places.numel() * weight.numel() // weight.shape[0]


def switched() -> bool | None:
    """What SOT_CHANNELS_LAST says: 0 or 1 for all graphs, or nothing."""
    return is_on("SOT_CHANNELS_LAST", None)


# ---- how ----------------------------------------------------------------------------------------------------
def channels_last(graph: fx.Graph) -> int:
    """Use channels_last where ``pays`` says so. Returns the number of convolutions that compute in it now."""
    switch = switched()
    if switch is False or not any(convolutions(graph)) or any(map(has_symbols, graph.nodes)):
        return 0
    return Layouts(graph).run() if switch or pays(graph) else 0


def has_symbols(node: fx.Node) -> bool:
    found = [*tensors(node.meta.get("val"))]
    return any(isinstance(n, torch.SymInt) for value in found for n in (*value.shape, *strides(value)))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    for one in value if isinstance(value, tuple | list) else (value,):
        if isinstance(one, torch.Tensor):
            yield one


def strides(value: torch.Tensor) -> tuple[int, ...]:
    return tuple(value.stride()) if value.layout is torch.strided else ()


def layout(value: Any) -> list[tuple[int, ...]]:
    return [strides(one) for one in tensors(value)]


class Layouts:
    """One walk over a graph. ``before`` has the values of its nodes as they were."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.before: dict[fx.Node, Any] = {node: node.meta.get("val") for node in graph.nodes}
        self.changed: set[fx.Node] = set()
        self.last: dict[fx.Node, fx.Node] = {}          # copies in channels_last
        self.restored: dict[fx.Node, fx.Node] = {}      # values in the layout that they had

    def run(self) -> int:
        wanted, count = {*convolutions(self.graph)}, 0
        for node in self.before:
            with self.graph.inserting_before(node):
                if node in wanted and self._convolves(node):
                    count += 1
                elif not self.changed.isdisjoint(node.all_input_nodes) and not self._follows(node):
                    replace_arguments(node, self._as_it_was)
        return count

    # ---- nodes
    def _convolves(self, node: fx.Node) -> bool:
        """Copy the arguments of a convolution, if torch says that its results are channels_last then."""
        images: Any = node.args[:3 if node.target is BACKWARD else 2]
        copies = {n: as_last(n.meta["val"], n is images[-2]) for n in images}
        computed = value_of(node, lambda n: copies.get(n, n.meta["val"]))
        if not all(one.is_contiguous(memory_format=LAST) for one in tensors(computed) if one.dim() == 4):
            return False
        replace_arguments(node, lambda n: self._copied(n, copies[n]) if n in copies else n)
        self._has(node, computed)
        return True

    def _follows(self, node: fx.Node) -> bool:
        """Whether the operator takes other layouts. Its result has the one that torch says."""
        if node.target is not operator.getitem and not is_view(node):
            if not is_following(node):
                return False
            replace_arguments(node, self._aligned)
        try:
            self._has(node, value_of(node, lambda n: n.meta["val"]))
        except (RuntimeError, ValueError):  # a view that this layout does not have
            return False
        return True

    def _has(self, node: fx.Node, value: Any) -> None:
        node.meta = described(node, value)
        if layout(value) != layout(self.before[node]):
            self.changed.add(node)

    # ---- arguments
    def _aligned(self, node: fx.Node) -> fx.Node:
        """An argument beside others that are channels_last."""
        value: Any = node.meta.get("val")
        is_image = isinstance(value, torch.Tensor) and value.dim() == 4 and value.is_contiguous()
        return self._copied(node, as_last(value)) if is_image else node

    def _copied(self, node: fx.Node, value: torch.Tensor) -> fx.Node:
        """The node, or a copy if the value is one."""
        if value is node.meta["val"]:
            return node
        if node not in self.last:
            self.last[node] = self._new(node, value, aten.clone.default, node, memory_format=LAST)
        return self.last[node]

    def _as_it_was(self, node: fx.Node) -> fx.Node:
        """A value in the layout that it had. Views that share memory still do."""
        if node in self.changed and node not in self.restored:
            is_part = node.target is operator.getitem and is_view(node.all_input_nodes[0])
            if is_part or is_view(node):
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._as_it_was)
                self.restored[node] = self._new(node, self.before[node], node.target, *args, **kwargs)
            else:
                self.restored[node] = self._laid_out(node, self.before[node])
        return self.restored.get(node, node)

    def _laid_out(self, node: fx.Node, like: torch.Tensor) -> fx.Node:
        """The elements with these strides: the same memory if it differs in axes of one element only."""
        value: torch.Tensor = node.meta["val"]
        axes = [d for d, n in enumerate(value.shape) if n == 1]
        with running(like.fake_mode):   # type: ignore[attr-defined]
            squeezed = aten.squeeze.dims(value, axes)
            row_major = aten.clone.default(value, memory_format=torch.contiguous_format)
        if row_major.stride() != like.stride():
            empty = self._new(node, like, aten.new_empty_strided.default, node, [*like.shape], [*like.stride()])
            return self._new(node, like, aten.copy.default, empty, node)
        if not squeezed.is_contiguous():
            return self._new(node, like, aten.clone.default, node, memory_format=torch.contiguous_format)
        return self._new(node, like, aten.view.default, self._new(node, squeezed, aten.squeeze.dims, node, axes),
                         [*like.shape])

    def _new(self, source: fx.Node, value: Any, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made = self.graph.call_function(target, args, kwargs)
        made.meta = described(source, value)
        return made


def replace_arguments(node: fx.Node, by: Any) -> None:
    node.args, node.kwargs = fx.node.map_arg((node.args, node.kwargs), by)


def described(node: fx.Node, value: Any) -> dict[str, Any]:
    """What is known about a node, with another value."""
    return {**{k: v for k, v in node.meta.items() if k != "tensor_meta"}, "val": value}


def value_of(node: fx.Node, value: Any) -> Any:
    """What the operator returns for these values of its arguments."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
    mode = next(one.fake_mode for n in node.all_input_nodes for one in tensors(n.meta["val"]))  # type: ignore[attr-defined]
    with running(mode):
        return node.target(*args, **kwargs)     # type: ignore[operator]


def as_last(value: torch.Tensor, decides: bool = False) -> torch.Tensor:
    """The tensor if it is channels_last, otherwise a copy. ``decides``: that must be seen from its strides, which are
    ambiguous with a single channel.
    """
    if value.is_contiguous(memory_format=LAST) and not (decides and value.shape[1] == 1):
        return value
    with running(value.fake_mode):      # type: ignore[attr-defined]
        made = aten.clone.default(value, memory_format=LAST)
    return value if made.stride() == value.stride() else made


def is_view(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and name_of(node.target) in VIEWS


def is_following(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and name_of(target) != "" and (
        torch.Tag.pointwise in target.tags or name_of(target) in FOLLOWING) and (
        torch.Tag.nondeterministic_seeded not in target.tags)


def name_of(target: torch._ops.OpOverload) -> str:
    """The name of one of torch's own operators."""
    return target._schema.name.partition("::")[2] if target.namespace in ("aten", "prims") else ""
