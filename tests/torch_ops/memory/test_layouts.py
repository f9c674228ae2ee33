"""Strides of results are those of PyTorch's kernels, also where its rules for fakes give others."""
import pytest
import torch
from harness import check, check_by
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F

import sot
from sot.torch_compat.operators.layouts import ANYWHERE, DENSE_LIKE, ON_CPU

aten = torch.ops.aten
IMAGE = torch.linspace(0.1, 0.9, 160).reshape(2, 4, 5, 4)
LAYOUTS = {
    "contiguous": IMAGE, "channels_last": IMAGE.to(memory_format=torch.channels_last),
    "transposed": IMAGE.mT.contiguous().mT, "permuted": IMAGE.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1),
    "with_gaps": torch.cat((IMAGE, IMAGE), -1)[..., ::2], "expanded": IMAGE[:1].expand(2, 4, 5, 4),
    "rows": IMAGE[:, :, :1].expand(2, 4, 5, 4)}
LIKE, NONE = (IMAGE + 1).mT.contiguous().mT, (None, None)
WITH_LIKE = {row: lambda x, row=row: row(x, LIKE) for row in (
    aten.copysign.Tensor, aten.floor_divide.default, aten.xlogy.Tensor, aten.special_xlog1py.default,
    aten.heaviside.default, aten.logaddexp.default, aten.logaddexp2.default, aten.complex.default, aten.polar.default,
    aten.isin.Tensor_Tensor, aten.normal.Tensor_Tensor)}
NORMS = {row: lambda x, row=row, more=more: row(x, *NONE, torch.zeros(4), torch.ones(4), *more) for row, more in (
    (aten.native_batch_norm.default, (True, 0.1, 1e-5)), (aten._native_batch_norm_legit.default, (True, 0.1, 1e-5)),
    (aten._native_batch_norm_legit_no_training.default, (0.1, 1e-5)))}
OTHERS = {
    aten.div.Tensor_mode: lambda x: aten.div.Tensor_mode(x, LIKE, rounding_mode="floor"),
    aten.huber_loss.default: lambda x: aten.huber_loss.default(x, LIKE, 0),
    aten.binary_cross_entropy.default: lambda x: aten.binary_cross_entropy.default(x, LIKE / 2, None, 0),
    aten.pow.Scalar: lambda x: aten.pow.Scalar(2, x),
    aten.isin.Tensor_Scalar: lambda x: aten.isin.Tensor_Scalar(x, 1.0),
    aten.poisson.default: aten.poisson.default, aten.normal.float_Tensor: lambda x: aten.normal.float_Tensor(0.0, x),
    aten.rrelu_with_noise.default: lambda x: aten.rrelu_with_noise.default(x, torch.empty_like(x)),
    aten.addr.default: lambda x: aten.addr.default(x[0, 0], x[0, 0, :, 0], x[0, 0, 0], beta=0.0),
    aten._native_batch_norm_legit.no_stats: lambda x: aten._native_batch_norm_legit.no_stats(x, *NONE, True, 0.1, 1e-5),
    aten.log_sigmoid_forward.default: lambda x: aten.log_sigmoid_forward.default(x)[0],
    aten.roll.default: lambda x: (aten.roll.default(x, [1], [2]), aten.roll.default(x, [1, 1], [0, 3]),
                                  aten.roll.default(x, [1])),
    aten.max_unpool2d.default: lambda x: aten.max_unpool2d.default(
        *aten.max_pool2d_with_indices.default(x, [2, 2]), [5, 4]),
    aten.channel_shuffle.default: lambda x: aten.channel_shuffle.default(x, 2),
    aten.native_channel_shuffle.default: lambda x: aten.native_channel_shuffle.default(x, 2)}
ROWS = {**WITH_LIKE, **NORMS, **OTHERS}


def test_each_row_has_a_program():
    assert ROWS.keys() == ANYWHERE.keys() | ON_CPU.keys()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_program_reads_the_strides_of_the_kernel(row, layout):
    operation = ROWS[row]

    def program(x):
        made = operation(x)
        made = made if isinstance(made, tuple) else (made,)
        return [(y.stride(), y.is_contiguous(), y.contiguous() is y) for y in made if y.dim() > 1]

    x = LAYOUTS[layout]
    assert sot.to_static(program, backend="eager")(x) == program(x)


@pytest.mark.parametrize("dims", [(0,), (1,), (-1,), (0, 1), (3, 0), (2, 1, 0)])
@pytest.mark.parametrize("made", [
    lambda x: x[:1].to(memory_format=torch.channels_last).unfold(-1, 1, 1), lambda x: x[:, :1],
    lambda x: x[..., :1].to(memory_format=torch.channels_last), lambda x: x[:0].to(memory_format=torch.channels_last),
    lambda x: x.unsqueeze(0).to(memory_format=torch.channels_last_3d)])
def test_parts_that_roll_joins_have_formats_of_their_own(made, dims):
    def program(x):
        y = made(x)
        return y.roll((1,) * len(dims), dims).stride(), y.roll((0,) * len(dims), dims).stride()
    assert sot.to_static(program, backend="eager")(IMAGE) == program(IMAGE)


def roll_in_place(x):
    moved = x.roll(1, 2)
    flat = moved.contiguous()
    flat.zero_()
    return moved, flat is moved


def divide_in_place(x):
    whole = (x * 9) // LIKE
    whole.contiguous().add_(1)
    return whole


def power_in_place(x):
    power = 2 ** x
    power.flatten()[0] = 7
    return power


def view_of_norm(x):
    return F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True).view(2, -1) + 1


def no_view_of_roll(x):
    moved = x.roll((1, 1), (2, 3))
    try:
        return moved.view(2, -1)
    except RuntimeError as e:
        return str(e)


def view_of_sigmoid(x):
    return F.logsigmoid(x).view(-1) * 2


PROGRAMS = [roll_in_place, divide_in_place, power_in_place, view_of_norm, no_view_of_roll, view_of_sigmoid]


@pytest.mark.parametrize("layout", ["channels_last", "transposed"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_changes_and_views_follow_these_strides(program, layout):
    check(program, LAYOUTS[layout].clone())


@pytest.mark.parametrize("layout", ["channels_last", "transposed"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_so_do_those_of_compiled_graphs(program, layout):
    check_by("aot_eager", program, LAYOUTS[layout].clone())


def test_gradients_with_these_strides():
    def program(x):
        return F.batch_norm(x * 2, None, None, training=True).view(2, -1).sin()
    check_by("aot_eager", program, LAYOUTS["transposed"].clone().requires_grad_())


def test_a_normalization_of_transposed_rows_is_compiled_with_the_rest():
    """Its kernel returns a contiguous tensor, and torch's rule does not."""
    def program(x):
        return F.batch_norm(x.relu().mT, None, None, training=True).mT.sin()
    graphs = []

    def compiler(module, examples):
        graphs.append(module)
        return module.forward
    translated = sot.to_static(program, backend=aot_autograd(fw_compiler=compiler))
    x = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
    torch.testing.assert_close(translated(x), program(x))
    assert len(graphs) == 1


@pytest.mark.parametrize("shape", [(2, 6), (1, 6), (6, 2), (6, 1), (1, 1)])
@pytest.mark.parametrize("name", sorted(operator.__name__ for operator in DENSE_LIKE))
def test_a_tensor_like_another_has_its_strides_also_in_dimensions_of_size_one(name, shape):
    def program(x):
        part, more = x.T[:, ::2], {"full_like": (3,), "randint_like": (3,)}.get(name, ())
        like = getattr(torch, name)
        return (like(part, *more).stride(), like(part, *more, dtype=torch.float64).stride(),
                like(part[:, 0], *more).stride(), like(part[::3], *more).stride(),
                like(part, *more, memory_format=torch.contiguous_format).stride())
    for backend in ("eager", "aot_eager"):
        assert sot.to_static(program, backend=backend)(torch.zeros(shape)) == program(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_a_view_of_an_empty_tensor_in_its_own_shape_has_its_strides(dtype):
    def program(x):
        row, matrix = x[0, 2:2], x.conj()[:, 2:2]
        return (row.view(-1).stride(), row.view(0).stride(), row.view(0, 1).stride(), row.flatten().stride(),
                matrix.view(2, 0).stride(), matrix.view(0, 2).stride(), row.view(-1)._is_view(), matrix.is_conj())
    x = torch.zeros(2, 8, dtype=dtype)[:, ::2]
    for backend in ("eager", "aot_eager"):
        assert sot.to_static(program, backend=backend)(x) == program(x)


def test_strides_where_sizes_vary():
    def reading(x):
        return x.roll(1, 2).stride(), F.logsigmoid(x).stride(), (2 ** x).stride()
    translated = sot.to_static(reading, backend="eager")
    for batch in (2, 3, 4, 5):
        x = torch.rand(batch, 4, 5, 4).to(memory_format=torch.channels_last)
        assert translated(x) == reading(x)
    assert len(translated.captures) == 2


def test_a_graph_that_cannot_be_cut_has_such_an_operation():
    """Only ``requires_grad_`` breaks it."""
    def program(x):
        moved = x.roll(1, 2)
        x.requires_grad_()
        return moved.contiguous().zero_(), moved
    check_by("aot_eager", program, LAYOUTS["channels_last"].clone(), breaks=1)


@pytest.mark.parametrize("product", [
    lambda x, m: x @ m, lambda x, m: m @ x, lambda x, m: torch.matmul(x, m), lambda x, m: F.linear(x, m),
    lambda x, m: x[None] @ m, lambda x, m: torch.einsum("i,ij->j", x, m)])
def test_whether_a_product_is_a_view_where_sizes_vary(product):
    """torch decomposes a product of symbolic sizes, into views of tensors that its kernel does not make."""
    def program(x):
        made = product(x, torch.eye(x.shape[0]))
        return made._is_view(), made.relu()._is_view(), x[1:]._is_view()
    translated = sot.to_static(program, backend="eager")
    for size in (3, 4, 5, 6):
        assert translated(torch.ones(size)) == program(torch.ones(size))


FREE = {     # strides that find no element: of dimensions with one element, and of tensors without elements
    "a row": torch.ones(2, 6)[:1, :5], "a part of a row": torch.ones(6, 12)[:1, ::2],
    "a transposed row": torch.ones(1, 6).mT, "a column": torch.ones(6, 12)[:, :1],
    "a transposed part": torch.ones(3, 7, 2).mT[:1, :, :3], "between": torch.ones(2, 3, 3)[:, :1],
    "none": torch.ones(6)[2:2], "none with gaps": torch.ones(6)[2:2:2], "no column": torch.ones(3, 14)[:, ::2][:, :0],
    "one element": torch.ones(3, 3)[::2, ::2][1:, 1:]}
BY_ANY_RULE = {
    "+ 1": lambda x: x + 1, "+ x": lambda x: x + x, "< 1": lambda x: x < 1, "relu": torch.relu, "exp": torch.exp,
    "clamp": lambda x: x.clamp(0), "sort": lambda x: x.sort().values, "full_like": lambda x: torch.full_like(x, 2),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "sort of a sum": lambda x: (x + x).sort(0).values, "a view of it": lambda x: x.sort(0).values.unsqueeze(0)}


@pytest.mark.parametrize("rule", BY_ANY_RULE)
@pytest.mark.parametrize("layout", FREE)
def test_strides_that_find_no_element_are_those_of_the_kernel(layout, rule):
    operation = BY_ANY_RULE[rule]

    def program(x):
        return operation(x).stride(), operation(x).stride(0), operation(x).stride(dim=-1)

    check_by("eager", program, FREE[layout])


def test_a_branch_on_a_stride_that_finds_no_element_takes_the_side_of_python():
    def program(x):
        y = x.sort().values
        return y * 2 if y.stride(0) == 1 else y - 1, torch.ones(9).as_strided((1,), (y.stride(0),))

    check_by("eager", program, torch.ones(6)[2:2:2])


def test_the_graph_is_asked_for_a_stride_only_if_a_kernel_may_choose_it():
    def operations(x):
        graph, = sot.explain(lambda x: x * (x + 1).stride(0))(x).graphs
        return graph.operations

    assert operations(torch.ones(1, 3)) == 2
    assert operations(torch.ones(3, 1).mT) == 3
