"""The axes of a kernel fit its memory: neighbours on the last axis, or tiles where memory runs along two axes."""
from __future__ import annotations

import pytest
import torch
from compiling import check_compiled, kernels, leaves, run_reference
from torch.fx.experimental.proxy_tensor import make_fx

from sot.backends.triton.source.module_source import module
from sot.graph.kernels import ir
from sot.graph.kernels.parallel import layout, splitting
from sot.graph.kernels.program import Extern, Program
from sot.graph.kernels.schedule import schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import decompositions


def program_of(f, *args: torch.Tensor) -> Program:
    graph = make_fx(lambda *a: leaves(f(*a)), decompositions.table(), tracing_mode="fake")(*args)
    return schedule(lower(graph, args[0].device.type))


def only_kernel(f, *shapes: tuple[int, ...]) -> ir.Kernel:
    kernel, = kernels(program_of(f, *(torch.empty(shape, device="meta") for shape in shapes)))
    return kernel


def test_memory_that_runs_along_two_axes_is_computed_in_tiles():
    kernel = only_kernel(lambda x, y: x.t() + y, (256, 512), (512, 256))
    assert kernel.is_tiled and kernel.rows == (("p1", 256),) and kernel.reduced == (("p0", 512),)


def test_the_rows_of_a_tile_are_in_the_order_of_the_memory_that_is_read():
    kernel = only_kernel(lambda x, y: x.permute(0, 2, 3, 1) + y, (4, 64, 14, 14), (4, 14, 14, 64))
    assert kernel.is_tiled and [name for name, _ in kernel.rows] == ["p0", "p3"]
    assert [name for name, _ in kernel.reduced] == ["p1", "p2"], "rows and columns of an image follow each other"
    kernel = only_kernel(lambda x, y: x.permute(2, 1, 0) + y, (64, 32, 64), (64, 32, 64))
    assert kernel.is_tiled and kernel.rows[-1][0] == "p2"


@pytest.mark.parametrize("f, shapes", [
    (lambda x, y: x + y, [(512, 256), (512, 256)]),
    (lambda x, y: x + y, [(512, 256), (512, 1)]),
    (lambda x, y: x.t() + y.t(), [(256, 512), (256, 512)]),
    (lambda x, y: x.t() + y, [(16, 32), (32, 16)]),
    (lambda x, y: x.t() + y, [(4096, 4), (4, 4096)]),
    (lambda x, y: x.transpose(1, 2) + y, [(8, 16, 64, 64), (8, 64, 16, 64)]),
], ids=["the same layout", "a column", "both transposed", "small", "a short axis", "whole rows"])
def test_others_are_computed_in_lines(f, shapes):
    assert not only_kernel(f, *shapes).is_tiled


def test_rows_are_in_the_order_of_memory():
    x = torch.empty(4, 64, 14, 14, device="meta", memory_format=torch.channels_last)
    kernel, = kernels(program_of(lambda x: x.sin() * 2, x))
    assert [name for name, _ in kernel.rows] == ["p0", "p2", "p3", "p1"]
    first, second = kernels(program_of(lambda x: x.sum((0, 2, 3)), torch.empty(
        64, 256, 14, 14, device="meta", memory_format=torch.channels_last)))
    assert splitting.along_rows(first) and first.rows[-1] == ("p0", 256), "neighbouring channels are read together"


def test_columns_are_summed_in_parts_that_keep_a_gpu_busy():
    first, last = kernels(program_of(lambda x: x.sum(0), torch.empty(8192, 4096, device="meta")))
    assert first.row_count == 4096 * 16 and last.width == 16
    place, = {str(store.index) for store in first.stores}
    assert place == "p0 + 4096*p1", "neighbouring columns are stored together"


SHAPES = [(128, 160), (129, 131), (130, 257)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("f", [
    lambda x, y: x.t() + y, lambda x, y: (x.t() * y, y.sin() + 1), lambda x, y: (x.t() + y, x * 2),
    lambda x, y: torch.cat((x.t(), y), 1).cos(), lambda x, y: (x.t() + y).relu().add(1, alpha=2),
], ids=["sum", "two results", "two layouts", "joined", "chain"])
def test_tiles_compute_what_eager_computes(f, shape, monkeypatch):
    monkeypatch.setattr(layout, "TILED", 64)
    x, y = torch.randn(shape, requires_grad=True), torch.randn(shape[::-1], requires_grad=True)
    check_compiled(f, x, y, exactly=True)
    made = program_of(f, x.detach(), y.detach())
    assert any(kernel.is_tiled for kernel in kernels(made))
    for kernel in kernels(made):
        ir.verify(kernel)
        assert str(ir.parse(str(kernel))) == str(kernel)
    torch.testing.assert_close(run_reference(made, [x.detach(), y.detach()]), leaves(f(x.detach(), y.detach())))


def test_a_tile_may_overwrite_what_it_reads():
    x, y = torch.randn(128, 160), torch.randn(160, 128)
    made, = check_compiled(lambda x, y: ((x * 2).mm(y * 3) @ x).t() + y, x, y, rtol=1e-3, atol=1e-2)
    assert made.program is not None and any(kernel.is_tiled for kernel in kernels(made.program))


def test_results_that_nothing_reads_are_not_looked_at():
    """An operator may leave them out: attention on a GPU gives no logarithms where no gradient needs them."""
    x = torch.randn(4, 4)
    graph = make_fx(lambda x: [torch.ops.aten._linalg_svd(x)[1] * 2], tracing_mode="fake")(x)
    call = next(step for step in lower(graph, "cpu").steps if isinstance(step, Extern))
    assert [name is not None for name in call.outputs] == [False, True, False]
    text = module(schedule(lower(graph, "cpu")), "", interpreted=True).text
    assert "_, _linalg_svd_1, _, = torch_ops_aten__linalg_svd_default(x_1" in text
