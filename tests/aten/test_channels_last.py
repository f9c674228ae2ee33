"""Convolutions in channels_last: results, gradients and their strides are eager's, and no convolution converts."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, copied, leaves, outcome
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

import sot
from sot.backends.triton import cache
from sot.backends.triton.compiler import Compiled
from sot.graph.kernels.program import Extern, View, views
from sot.graph.rewrite import layouts

LAST = torch.channels_last


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    monkeypatch.setenv("SOT_CHANNELS_LAST", "1")
    monkeypatch.setattr(cache, "find", lambda key: None)    # programs are made, not found


def filters(*shape: int) -> Tensor:
    return (torch.randn(shape) / 4).requires_grad_()


def images(*shape: int, last: bool = False) -> Tensor:
    made = torch.randn(shape)
    return (made.contiguous(memory_format=LAST) if last else made).requires_grad_()


def residual(x, w, v):
    y = F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True).relu()
    return (F.batch_norm(F.conv2d(y, v, padding=1), None, None, training=True) + x).relu()


def bottleneck(x, narrow, w, widen, shortcut):
    y = F.conv2d(F.conv2d(x, narrow).relu(), w, stride=2, padding=1).relu()
    return (F.conv2d(y, widen) + F.conv2d(x, shortcut, stride=2)).relu()


def unet(x, w, down, up, v):
    first = F.conv2d(x, w, padding=1).relu()
    deep = F.conv2d(F.max_pool2d(first, 2), down, padding=1).relu()
    deep = F.conv_transpose2d(deep, up, stride=2)
    return F.conv2d(torch.cat((first, deep), 1), v, padding=1)


def upsampled(mode):
    return lambda x, w, v: F.conv2d(torch.cat((F.interpolate(F.conv2d(x, w), scale_factor=2, mode=mode),
                                               F.pad(F.conv2d(x, w), (2, 2, 2, 2))), 1), v)


def pooled(x, w):
    y = F.avg_pool2d(F.max_pool2d(F.conv2d(x, w), 3, 2, 1), 2, 1)
    return F.adaptive_avg_pool2d(y, 2), y.mean((2, 3))


def squeezed(x, w, down, up):
    y = F.conv2d(x, w, padding=1)
    return y * torch.sigmoid(F.conv2d(F.conv2d(y.mean((2, 3), keepdim=True), down).relu(), up))


def convnext(x, w, scale, shift, linear):
    y = F.layer_norm(F.conv2d(x, w, padding=3, groups=8).permute(0, 2, 3, 1), (8,), scale, shift)
    return F.gelu(F.linear(y, linear)).permute(0, 3, 1, 2)


def shuffled(x, w, v):
    y = F.channel_shuffle(F.conv2d(x, w, padding=1), 2)
    return F.conv2d(y[:, :4], v, padding=1), y[:, 4:]


def patches(x, w, linear):
    tokens = F.conv2d(x, w, stride=2).flatten(2).transpose(1, 2)
    return F.linear(F.softmax(tokens @ tokens.transpose(1, 2), -1) @ tokens, linear)


def shared(x, w):
    y = F.conv2d(x, w)
    return y, y[:, 1:], y.flatten(1), y.relu()


def in_place(x, w, v):
    y = F.conv2d(x, w, padding=1)
    y[:, :2] += 1
    return F.conv2d(y.relu_(), v)


SMALL, WIDE = (8, 8, 3, 3), (2, 8, 6, 6)
# A program, the shape of its image, and those of its other arguments.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[tuple[int, ...], ...]]] = {
    "a residual block": (residual, WIDE, (SMALL, SMALL)),
    "a residual block of one image": (residual, (1, 8, 6, 6), (SMALL, SMALL)),
    "a residual block of one channel": (residual, (2, 1, 6, 6), ((1, 1, 3, 3), (1, 1, 3, 3))),
    "from one channel to several": (lambda x, w, v: F.conv2d(F.conv2d(x, w).relu(), v), (2, 1, 8, 8),
                                    ((8, 1, 3, 3), SMALL)),
    "one pixel": (lambda x, w, v: F.conv2d(F.conv2d(x, w).relu(), v), (2, 8, 3, 3), (SMALL, (4, 8, 1, 1))),
    "windows of one place": (bottleneck, WIDE, ((4, 8, 1, 1), (4, 4, 3, 3), (8, 4, 1, 1), (8, 8, 1, 1))),
    "depthwise": (lambda x, w, v: F.conv2d(F.conv2d(x, w, groups=8).relu(), v), WIDE, ((8, 1, 3, 3), (4, 8, 1, 1))),
    "groups": (lambda x, w: F.conv2d(x, w, groups=2), WIDE, ((4, 4, 3, 3),)),
    "dilation and bias": (lambda x, w, b: F.conv2d(x, w, b, padding=2, dilation=2).tanh(), WIDE, (SMALL, (8,))),
    "transposed": (lambda x, w, v: F.conv_transpose2d(F.conv2d(x, v), w, stride=2), WIDE, ((8, 4, 2, 2), SMALL)),
    "concatenation": (unet, WIDE, (SMALL, SMALL, (8, 8, 2, 2), (4, 16, 3, 3))),
    "nearest neighbours": (upsampled("nearest"), WIDE, (SMALL, (4, 16, 3, 3))),
    "bilinear": (upsampled("bilinear"), WIDE, (SMALL, (4, 16, 3, 3))),
    "pools": (pooled, (2, 8, 12, 12), (SMALL,)),
    "positions of maxima": (lambda x, w: F.max_pool2d(F.conv2d(x, w), 2, return_indices=True), WIDE, (SMALL,)),
    "squeeze and excitation": (squeezed, WIDE, (SMALL, (2, 8, 1, 1), (8, 2, 1, 1))),
    "a norm over channels": (convnext, WIDE, ((8, 1, 7, 7), (8,), (8,), (16, 8))),
    "a norm over groups": (lambda x, w, s, b: F.group_norm(F.conv2d(x, w), 2, s, b), WIDE, (SMALL, (8,), (8,))),
    "shuffled channels": (shuffled, WIDE, (SMALL, (4, 4, 3, 3))),
    "patches": (patches, WIDE, ((8, 8, 2, 2), (5, 8))),
    "a classifier": (lambda x, w, linear: F.linear(F.conv2d(x, w).relu().flatten(1), linear), WIDE, (SMALL, (3, 128))),
    "results that share memory": (shared, WIDE, (SMALL,)),
    "changes in place": (in_place, WIDE, (SMALL, SMALL)),
    "dropout": (lambda x, w, v: F.conv2d(F.dropout(F.conv2d(x, w), 0.5), v), WIDE, (SMALL, (4, 8, 1, 1))),
    "views by strides": (lambda x, w: F.conv2d(x, w).as_strided((3, 3), (5, 1), 2) * 2, WIDE, (SMALL,)),
    "a layout of neither kind": (lambda x, w: F.conv2d(x, w).transpose(2, 3).sigmoid(), WIDE, (SMALL,)),
    "volumes": (lambda x, w: F.conv3d(x[:, None], w), WIDE, ((2, 1, 3, 3, 3),)),
    "an image that is repeated": (lambda x, w: F.conv2d(x.expand(2, -1, -1, -1), w), (1, 8, 6, 6), (SMALL,)),
}


def arguments(name: str, last: bool = False) -> tuple[Callable[..., Any], list[Tensor]]:
    torch.manual_seed(0)
    fn, image, others = PROGRAMS[name]
    return fn, [images(*image, last=last), *(filters(*shape) for shape in others)]


def checked(fn: Callable[..., Any], args: list[Tensor], grad: bool) -> list[Compiled]:
    """Values and strides of results and gradients are eager's; what was compiled."""
    made, mine = Kernels(), copied(args)
    with torch.set_grad_enabled(grad):
        expected, got = ([*map(leaves, outcome(f, tuple(a), a if grad else []))] for f, a in (
            (fn, args), (sot.to_static(fn, backend=made), mine)))
    for ours, eagers in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-3, atol=1e-4)
        assert [t.stride() for t in ours] == [t.stride() for t in eagers]
    assert shares(got[0]) == shares(expected[0])
    sot.reset()
    return made.made


def shares(results: list[Tensor]) -> list[int]:
    """Which results have the memory of which."""
    storages = [t.untyped_storage().data_ptr() for t in results]
    return [storages.index(s) for s in storages]


def conversions(made: list[Compiled]) -> int:
    """Images and filters that a convolution gets in another layout."""
    return sum(not is_last(image) for m in made for step in m.program.steps if isinstance(step, Extern)
               and "convolution" in str(step.target) for image in views(step.args) if len(image.shape) == 4)


def is_last(image: View) -> bool:
    return torch.empty(0, device="meta").as_strided(image.shape, image.strides).is_contiguous(memory_format=LAST)


@pytest.mark.parametrize("grad", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_have_eagers_values_and_strides(name, grad):
    assert conversions(checked(*arguments(name), grad)) == 0


@pytest.mark.parametrize("name", ["a residual block", "concatenation", "results that share memory"])
def test_images_that_are_channels_last_already(name):
    assert conversions(checked(*arguments(name, last=True), True)) == 0


def test_without_the_pass_convolutions_convert(monkeypatch):
    monkeypatch.setenv("SOT_CHANNELS_LAST", "0")
    assert conversions(checked(*arguments("a residual block"), True)) == 2 * 2 + 2 * 3


def test_neighbouring_threads_compute_neighbouring_channels():
    """The last axis of rows is the one that is last in memory."""
    (made,) = checked(lambda x, w, v: F.conv2d(F.conv2d(x, w).exp(), v), arguments("a residual block")[1], False)
    kernel, = (k for k in made.program.kernels() if any(s.op == "exp" for s in k.body))
    place = dict(kernel.stores[0].index.terms)
    assert [place[axis] for axis, _ in kernel.rows] == sorted(place.values(), reverse=True)


# ---- whether it pays -----------------------------------------------------------------------------------------------
def graph_of(fn: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16,
             device: str = "cuda", training: bool = False) -> torch.fx.Graph:
    """The ATen graph of a function of tensors that are said to be on a device; in training with all gradients."""
    def gradients(*args: Tensor) -> Any:
        return torch.autograd.grad(fn(*args).sum(), args)

    with FakeTensorMode():
        args = [torch.empty(shape, dtype=dtype, requires_grad=training) for shape in shapes]
        graph = make_fx(gradients if training else fn)(*args).graph
        for node in graph.nodes if device != "cpu" else ():
            node.meta["val"] = tree_map_only(torch.Tensor, lambda t: torch.empty_strided(
                t.shape, t.stride(), dtype=t.dtype, device=device), node.meta.get("val"))
    return graph


def two(x, w, v):
    """The second convolution has as many groups as its filters ask for."""
    return F.conv2d(F.conv2d(x, w, padding=1).relu(), v, groups=w.shape[0] // v.shape[1])


LARGE = ((4, 128, 9, 9), (128, 128, 3, 3), (128, 128, 1, 1))
KINDS: dict[str, tuple[bool, Callable[[], torch.fx.Graph]]] = {
    "half precision": (True, lambda: graph_of(two, *LARGE)),
    "TF32": (True, lambda: graph_of(two, *LARGE, dtype=torch.float32)),
    "double precision": (False, lambda: graph_of(two, *LARGE, dtype=torch.float64)),
    "the CPU": (False, lambda: graph_of(two, *LARGE, device="cpu")),
    "no convolution": (False, lambda: graph_of(torch.relu, (4, 128, 9, 9))),
    "training": (True, lambda: graph_of(two, *LARGE, training=True)),
    "small channels": (True, lambda: graph_of(two, WIDE, SMALL, SMALL)),
    "small channels in training": (False, lambda: graph_of(two, WIDE, SMALL, SMALL, training=True)),
    "groups": (False, lambda: graph_of(lambda x, w: F.conv2d(x, w, groups=2), LARGE[0], (128, 64, 3, 3))),
    "some groups": (True, lambda: graph_of(two, *LARGE[:2], (128, 32, 1, 1))),
    "some groups in training": (False, lambda: graph_of(two, *LARGE[:2], (128, 32, 1, 1), training=True)),
    "depthwise in training": (True, lambda: graph_of(two, *LARGE[:2], (128, 1, 3, 3), training=True)),
    "half of the channels in training": (False, lambda: graph_of(two, *LARGE[:2], (64, 128, 3, 3), training=True)),
    "half of the channels at a place": (True, lambda: graph_of(two, *LARGE[:2], (64, 128, 1, 1), training=True)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_channels_last_is_used_where_it_is_expected_to_be_faster(kind):
    pays, make = KINDS[kind]
    assert layouts.pays(make()) == pays


def test_single_precision_without_tf32_stays(monkeypatch):
    graph = graph_of(two, *LARGE, dtype=torch.float32)
    before = torch.backends.cudnn.conv.fp32_precision
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    try:
        assert not layouts.pays(graph)
    finally:
        torch.backends.cudnn.conv.fp32_precision = before


def test_the_switch_decides(monkeypatch):
    def changed() -> int:
        return layouts.channels_last(graph_of(two, *LARGE, device="cpu", dtype=torch.float32))
    assert changed() == 2
    monkeypatch.setenv("SOT_CHANNELS_LAST", "0")
    assert changed() == 0
    monkeypatch.delenv("SOT_CHANNELS_LAST")
    assert changed() == 0, "the CPU"


def test_a_library_that_computes_in_rows_is_given_rows(monkeypatch):
    """torch says in which layout a library returns images."""
    graph = graph_of(two, *LARGE, device="cpu")
    before = str(graph)
    monkeypatch.setattr(torch._C, "_conv_determine_backend_memory_format", lambda *given: torch.contiguous_format)
    assert layouts.channels_last(graph) == 0
    assert str(graph) == before
