"""Writing to looked-up places: in the IR, and the operators that do it."""
from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled, copied, kernels, leaves, run_reference
from torch import Tensor

import sot
from sot.graph.kernels import ir, reference
from sot.graph.kernels.ir import InvalidKernel

COUNTED = """kernel counted over p0:6
    buffer where i64 6
    buffer y f32 4
    v0:i64 = load where[p0]
    v1:i64 = inside v0 of 4
    v2:f32 = const 1.0
    add y[v1] v2"""


def numbers(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_(grad)


def places(*shape: int, below: int) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(below))


# ---- the IR -------------------------------------------------------------------------------------------------
def test_adding_is_printed_and_read_back_and_means_adding():
    kernel = ir.parse(COUNTED)
    ir.verify(kernel)
    assert str(ir.parse(str(kernel))) == str(kernel)
    memory = {"where": np.array([0, 3, 0, 0, 1, 3]), "y": np.full(4, 10, np.float32)}
    reference.run(kernel, memory)
    np.testing.assert_array_equal(memory["y"], [13, 11, 10, 12])
    assert kernel.read() == {"where", "y"} and kernel.changed() == kernel.written() == {"y"}


def test_what_is_added_to_is_not_read():
    text = COUNTED.replace("v2:f32 = const 1.0", "v2:f32 = load y[v1]")
    with pytest.raises(InvalidKernel, match="changes what the kernel reads"):
        ir.verify(ir.parse(text))


# ---- operators ---------------------------------------------------------------------------------------------------
PROGRAMS = {
    "index_put": (lambda x, i, v: x.index_put((i,), v, accumulate=True), numbers(5, 3), places(4, below=5),
                  numbers(4, 3)),
    "two indices": (lambda x, i, v: x.index_put((i, i % 3), v, accumulate=True), numbers(5, 3), places(4, below=5),
                    numbers(4)),
    "a middle axis": (lambda x, i, v: torch.ops.aten.index_put(x, [None, i], v, True), numbers(2, 5, 3),
                      places(4, below=5), numbers(2, 4, 3)),
    "axes that are apart": (lambda x, i, v: torch.ops.aten.index_put(x, [i, None, i % 3], v, True), numbers(5, 2, 3),
                            places(4, below=5), numbers(4, 2)),
    "from the end": (lambda x, i, v: x.index_put((i - 5,), v, accumulate=True), numbers(5), places(9, below=5),
                     numbers(1)),
    "put": (lambda x, i, v: x.index_put((i,), v), numbers(8, 3), torch.tensor([6, 1, 3]), numbers(3, 1)),
    "index_add": (lambda x, i, v: x.index_add(0, i, v, alpha=2), numbers(5, 3), places(4, below=5), numbers(4, 3)),
    "index_copy": (lambda x, i, v: x.index_copy(1, i, v), numbers(2, 5), torch.tensor([3, 0]), numbers(2, 2)),
    "index_fill": (lambda x, i, v: x.index_fill(0, i, 2.5) + v, numbers(5, 3), torch.tensor([3, 0]), numbers(3)),
    "scatter_add": (lambda x, i, v: x.scatter_add(0, i, v), numbers(5, 3), places(4, 2, below=5), numbers(4, 3)),
    "scatter": (lambda x, i, v: x.scatter(1, i, v), numbers(2, 5), torch.tensor([[3, 0], [1, 2]]), numbers(2, 2)),
    "scatter a number": (lambda x, i, v: x.scatter(1, i, 7.0) * v, numbers(2, 5), torch.tensor([[3, 0]]), numbers(5)),
    "whole numbers": (lambda x, i, v: x.scatter_add(0, i, v), places(5, below=9), places(7, below=5),
                      places(7, below=4)),
    "into nothing": (lambda x, i, v: torch.zeros_like(x).index_add(0, i, v) + x, numbers(5), places(9, below=5),
                     numbers(9)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator(name):
    f, *args = PROGRAMS[name]
    made, = check_compiled(f, *args)
    assert made.cost.externs == 0
    fakes = [n.meta["val"] for n in made.graph.graph.find_nodes(op="placeholder")]
    inputs = [numbers(*v.shape) if v.is_floating_point() else places(*v.shape, below=2) for v in fakes]
    expected = made.graph(*copied(inputs))
    if name not in ("put", "index_copy", "scatter"):      # which of two to the same place stays is not defined
        torch.testing.assert_close(leaves(run_reference(made.program, inputs)), leaves(expected))


@pytest.mark.slow
def test_the_gradient_of_looking_up():
    """An embedding's gradient: zeros, to which each row of the result's gradient is added, and no more."""
    table, where = numbers(10, 4, grad=True), places(3, 5, below=10)
    _, backward = check_compiled(lambda t, i: F.embedding(i, t, padding_idx=2).sin(), table, where)
    assert (backward.cost.kernels, backward.cost.externs) == (2, 0)
    check_compiled(lambda t, i: t[i, :2] * t[i].sum(), table, where)
    check_compiled(lambda t, i: t.gather(0, i) ** 2, numbers(6, 5, grad=True), places(3, 5, below=6))


def test_what_is_read_afterwards_has_all_that_was_added():
    def f(x, i, v):
        y = (x * 2).index_add(0, i, v)
        return y.sin() + 1, y.sum(0), (x * 2).cos()
    made, = check_compiled(f, numbers(5, 3), places(4, below=5), numbers(4, 3))
    adding, = (k for k in kernels(made.program) if k.changed())
    assert len(adding.stores) == 1, "nothing else waits for the kernel that adds"


def test_a_position_out_of_range_raises():
    f, x, _, v = PROGRAMS["index_put"]
    with pytest.raises(IndexError):
        check_compiled(f, x, torch.tensor([0, 1, 2, 5]), v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_types_that_memory_cannot_add_are_left_to_torch(dtype):
    args = torch.ones(5, 3).to(dtype), places(4, below=5), torch.ones(4, 3).to(dtype)
    made, = check_compiled(lambda x, i, v: x.index_put((i,), v, accumulate=True), *args)
    assert made.cost.externs == 1


def test_deterministic_algorithms_are_torchs():
    f, *args = PROGRAMS["index_put"]
    torch.use_deterministic_algorithms(True)
    try:
        made, = check_compiled(f, *args)
    finally:
        torch.use_deterministic_algorithms(False)
    assert made.cost.externs == 1


def test_each_row_adds_though_place_and_element_are_constant():
    kernel = ir.parse(COUNTED.replace("    v0:i64 = load where[p0]\n    v1:i64 = inside v0 of 4\n", "").replace(
        "    buffer where i64 6\n", "").replace("y[v1]", "y[1]"))
    memory = {"y": np.zeros(4, np.float32)}
    reference.run(kernel, memory)
    assert memory["y"].tolist() == [0, 6, 0, 0]
    check_compiled(lambda i: torch.full_like(i, 2).scatter_add(0, torch.zeros_like(i), torch.full_like(i, 2)),
                   places(3, below=3))


# ---- as_strided_scatter ------------------------------------------------------------------------------------------
def integers(*shape: int) -> Tensor:
    return torch.randint(-5, 5, shape, generator=torch.Generator().manual_seed(sum(shape)))


PLACES = [((3,), (2,), 1), ((2, 2), (1, 6), 0), ((2, 3), (7, 1), 2), ((1, 4), (0, 5), 3), ((), (), 4),
          ((2, 2, 2), (12, 1, 4), 1)]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_scattering_by_strides(place, dtype):
    x, new = integers(4, 6).to(dtype), (integers(*place[0]) + 50).to(dtype)
    if dtype.is_floating_point:
        x, new = x.requires_grad_(), new.requires_grad_()
    made = check_compiled(lambda x, new: torch.as_strided_scatter(x, new, *place), x, new)
    assert not any("aten.as_strided_scatter" in line for one in made[:1] for line in one.schedule)


@pytest.mark.parametrize("layout", ["inside", "transposed", "empty", "an argument that begins inside"])
def test_scattering_by_strides_into_other_layouts(layout):
    """The start counts from the beginning of the memory, not of the tensor."""
    x, new = integers(5, 6).float(), torch.tensor([50.0, 60, 70])
    part = {"inside": lambda x: (x * 2)[1:], "transposed": lambda x: (x * 2).t(), "empty": lambda x: (x * 2)[:0],
            "an argument that begins inside": lambda x: x}[layout]
    if layout == "empty":
        new = new[:0]

    def program(x, new):
        y = part(x)
        start = y.storage_offset()
        return (torch.as_strided_scatter(y, new, new.shape, (3,), start + 2), y.as_strided((1, 2), (1, 2), start) * 2,
                torch.as_strided_scatter(y, new, new.shape, (3,)))
    if layout.startswith("an argument"):
        run = sot.to_static(program, backend=Kernels())
        torch.testing.assert_close(run(x[1:], new), program(x[1:], new))
        sot.reset()
    else:
        check_compiled(program, x, new)


def test_elements_that_share_places_are_called():
    x, new = integers(6).float(), torch.arange(6.0).reshape(2, 3)
    made = check_compiled(lambda x, new: torch.as_strided_scatter(x, new, (2, 3), (2, 1)).sum() * 0, x, new)
    assert any("aten.as_strided_scatter" in line for one in made for line in one.schedule)


# ---- beside a reduction ------------------------------------------------------------------------------------------
def _zeros(x: Tensor) -> Tensor:
    return torch.zeros_like(x, dtype=torch.int64)


TOGETHER = {    # with the kernels that run
    "values to one place": (2, lambda x: (x.exp().sum(), torch.ones(3).scatter_add(0, _zeros(x), x.exp()))),
    "one value to one place": (3, lambda x: (
        (x[0] * torch.arange(x.numel())).exp().sum(), torch.ones(3).scatter_add(0, _zeros(x), x[0].expand(x.numel())))),
    "one value to many places": (2, lambda x: (
        (x[0] * torch.arange(x.numel())).exp().sum(), torch.ones(4000).index_put(
            (torch.arange(x.numel()),), x[0].expand(x.numel()), accumulate=True))),
    "values to one place, stored": (2, lambda x: (x.cos().sum(), torch.ones(3).index_put((_zeros(x),), (x * 0).cos()))),
}


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("size", [5, 300])
def test_each_point_is_stored_or_added(name, size):
    count, f = TOGETHER[name]
    made, = check_compiled(f, torch.rand(size) / 100)
    assert made.cost.kernels == count, made.program


# ---- in place --------------------------------------------------------------------------------------------------
CHANGED = {     # kernels that run: one more if the old contents are copied
    "a product": (1, lambda x, i: (x @ x).index_put((i,), x[:3])),
    "returned as well": (2, lambda x, i: ((y := x @ x), y.index_put((i,), x[:3]))),
    "a view of what is returned": (2, lambda x, i: ((y := x @ x), y.unsqueeze(0).squeeze(0).index_put((i,), x[:3]))),
    "its own elements": (2, lambda x, i: (y := x @ x).index_put((i.new_tensor([1, 2, 3, 4, 0]),), y)),
    "an argument": (2, lambda x, i: x.index_put((i,), x[:3])),
    "a part": (2, lambda x, i: (x @ x).t().index_put((i,), x[:3])),
    "of an operator that may keep it": (2, lambda x, i: torch.cdist(x, x).index_put((i,), x[:3])),
}


@pytest.mark.parametrize("name", CHANGED)
def test_only_memory_that_nothing_else_reads_is_changed_in_place(name):
    count, f = CHANGED[name]
    made, = check_compiled(f, torch.rand(5, 5), torch.tensor([3, 0, 2]))
    assert made.cost.kernels == count, made.program
