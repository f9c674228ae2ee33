"""Sizes that may differ when a file is used: what layers take any size, and dimensions that must be equal."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import LoadError, SaveError
from sot.deploy.program_text import is_allowed
from sot.deploy.safety import admitting
from sot.torch_compat.exporting.other_sizes import node_of_one_size


@pytest.fixture
def saved(tmp_path):
    def save_and_load(model, spec, **more):
        return sot.load(sot.save(model, tmp_path / "m", input_spec=spec, **more))
    return save_and_load


class Masked(nn.Module):
    def forward(self, x, lengths):
        return x * (torch.arange(x.shape[1])[None] < lengths[:, None])[..., None]


class Translator(nn.Module):
    """The mask is made inside, and torch compares it with a causal one."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.model(source, target, tgt_mask=mask)


class TrueForSmallSizes(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=bool((torch.arange(x.shape[1]) < 50).all()))


class Pairs(nn.Module):
    def forward(self, batch):
        return torch.cat([batch["a"] + batch["b"], batch["c"]], dim=1)


def test_dimensions_that_must_be_equal_are_found(saved):
    loaded = saved(Masked(), [InputSpec((None, None, 8)), InputSpec((None,), torch.long)])
    for n, length in (3, 5), (2, 9):
        x, lengths = torch.randn(n, length, 8), torch.arange(1, n + 1)
        assert torch.equal(loaded(x, lengths), Masked()(x, lengths))


@pytest.mark.slow
def test_a_condition_on_a_mask_that_is_made_inside(saved):
    model = Translator().eval()
    loaded = saved(model, [InputSpec(("batch", None, 8)), InputSpec(("batch", None, 8))])
    for n, before, after in (3, 5, 4), (2, 4, 9), (2, 7, 7):
        source, target = torch.randn(n, before, 8), torch.randn(n, after, 8)
        torch.testing.assert_close(loaded(source, target), model(source, target))


def test_a_condition_on_sizes_that_does_not_hold_is_an_error(saved):
    loaded, x = saved(TrueForSmallSizes(), [InputSpec((1, None, 4))]), torch.randn(1, 4, 4)
    torch.testing.assert_close(loaded(x), TrueForSmallSizes()(x))
    with pytest.raises(RuntimeError, match="condition on sizes is False, and was True"):
        loaded(torch.randn(1, 60, 4))


def test_more_than_two_of_them(saved):
    spec = {"a": InputSpec((None, None)), "b": InputSpec((None, None)), "c": InputSpec((None, None))}
    loaded = saved(Pairs(), [spec])
    batch = {"a": torch.randn(3, 4), "b": torch.randn(3, 4), "c": torch.randn(3, 6)}
    assert torch.equal(loaded(batch), Pairs()(batch))


@pytest.mark.parametrize(("make", "options"), [
    (nn.LSTM, {"batch_first": True}), (nn.LSTM, {"bidirectional": True, "num_layers": 2}), (nn.LSTM, {"proj_size": 3}),
    (nn.GRU, {"batch_first": True, "bidirectional": True}), (nn.RNN, {}), (nn.RNN, {"nonlinearity": "relu"}),
], ids=str)
def test_recurrent_layers_take_any_length(saved, make, options):
    layer = make(4, 6, **options)
    loaded = saved(layer, [InputSpec((None, None, 4))])
    for shape in (3, 5, 4), (2, 9, 4):
        x = torch.randn(shape)
        (got, got_state), (want, want_state) = loaded(x), layer(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(got_state, want_state)
        assert got.stride() == want.stride()


def test_a_recurrent_layer_trains_on(saved):
    layer = nn.LSTM(4, 6, batch_first=True)
    loaded, x = saved(layer, [InputSpec((None, None, 4))]), torch.randn(3, 5, 4)
    loaded(x)[0].square().sum().backward()
    layer(x)[0].square().sum().backward()
    for name, weight in layer.named_parameters():
        torch.testing.assert_close(dict(loaded.named_parameters())[name].grad, weight.grad)


def test_convolutions_take_any_size(saved):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    loaded = saved(model, [InputSpec((None, 3, None, None))])
    for shape in (2, 3, 40, 24), (1, 3, 16, 16):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), model(x))


def test_numbers_of_sizes_are_part_of_the_result(saved):
    loaded = saved(lambda x: {"y": x * x.shape[0], "rows": x.shape[0], "half": x.shape[1] // 2}, [
        InputSpec((None, None))])
    got = loaded(torch.ones(3, 8))
    assert (got["rows"], got["half"]) == (3, 4) and torch.equal(got["y"], torch.full((3, 8), 3.0))


def test_a_call_with_unequal_sizes_is_refused_in_the_users_words(saved):
    loaded = saved(Masked(), [InputSpec(("batch", None, 8)), InputSpec((None,), torch.long)])
    with pytest.raises(ValueError, match=r"dimension 0 of lengths is 2, and dimension 0 of x is 3: they must be equal "
                                         r"\(batch\)"):
        loaded(torch.randn(3, 5, 8), torch.ones(2, dtype=torch.long))
    with pytest.raises(ValueError, match="dimension 2 of x is 9; the model was saved with 8"):
        loaded(torch.randn(3, 5, 9), torch.ones(3, dtype=torch.long))
    with pytest.raises(ValueError, match="lengths must be of dtype int64, not float32"):
        loaded(torch.randn(3, 5, 8), torch.ones(3))
    with pytest.raises(ValueError, match="x must have 3 dimensions, not 2"):
        loaded(torch.randn(3, 5), torch.ones(3, dtype=torch.long))


def test_a_size_that_cannot_differ_is_named_with_its_line(saved):
    def f(x):
        return x * torch.arange(11.0)

    with pytest.raises(SaveError, match=r"x.*test_sizes.py") as failed:
        saved(f, [InputSpec((None, None))])
    assert "11" in str(failed.value)


def test_a_method_of_the_values_of_an_example_is_refused(saved):
    def f(x, n):
        return x[:, :int(n.max()) + 1]

    x = torch.randn(2, 4)
    with pytest.raises(SaveError, match=r"test_sizes.py"):
        saved(f, [InputSpec((2, 4)), torch.tensor([0, 1, 2])])
    loaded = saved(f, [InputSpec((2, 4)), InputSpec((3,), torch.long)])
    for n in ([0, 1, 2], [0, 0, 0], [3, 1, 0]):
        assert torch.equal(loaded(x, torch.tensor(n)), f(x, torch.tensor(n)))


def test_arguments_may_be_left_out_between_others(saved):
    class Net(nn.Module):
        def forward(self, x, scale=None, mask=None):
            return x if mask is None else x * mask

    loaded = saved(Net(), {"x": InputSpec((None,)), "mask": InputSpec((None,))})
    assert torch.equal(loaded(x=torch.ones(3), mask=torch.zeros(3)), torch.zeros(3))


@pytest.mark.parametrize("function", [
    lambda x: x.unfold(1, x.shape[1] // 2, 1), lambda x: x.diagonal(x.shape[1] // 2),
    lambda x: F.adaptive_max_pool1d(x[None], x.shape[1] // 2)], ids=["unfold", "diagonal", "pool"])
def test_a_computed_size_that_an_operator_takes_as_a_constant_is_refused_with_its_line(saved, function):
    with pytest.raises(SaveError, match=r"an operator takes a size only as a constant, at .*test_sizes.py:\d+.*: the "
                                        r"file would be for x.shape\[1\] // 2 == 5 only"):
        saved(function, [InputSpec((None, None))])


def test_sizes_that_an_operator_does_not_take_are_refused(saved):
    def f(x):
        return x.view(x.shape[0], -1, 3) * 2

    loaded = saved(f, [InputSpec((2, None))])
    for columns in 3, 6, 12:
        x = torch.randn(2, columns)
        assert torch.equal(loaded(x), f(x))
    with pytest.raises(ValueError, match=r"saved for .* as the program asks at .*test_sizes.py:\d+ \(return x.view"):
        loaded(torch.randn(2, 7))


def test_a_slice_that_is_shorter_for_other_sizes_is_refused(saved):
    """The graph has the length of the slice for a number."""
    def f(x):
        y = x[:, ::2][:, :4]
        return y.sum(1) / y.shape[1]

    loaded = saved(f, [InputSpec((None, None))])
    for shape in (4, 7), (3, 8):
        x = torch.randn(shape)
        assert torch.equal(loaded(x), f(x))
    with pytest.raises(ValueError, match=r"saved for .*x.shape\[1\].* // 2.* at .*test_sizes.py:\d+ \(y = x"):
        loaded(torch.randn(4, 5))


def test_windows_of_a_length_that_is_padded(saved):
    """torch asks much of the strides of what is padded and viewed."""
    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x):
            b, n, c = x.shape
            windows = F.pad(x, (0, 0, 0, -n % 4)).view(b, -1, 4, c).flatten(0, 1)
            return F.scaled_dot_product_attention(*self.qkv(windows).chunk(3, -1)).reshape(b, -1, c)[:, :n]

    model = Windows()
    loaded = saved(model, [InputSpec((None, None, 8))])
    for batch, length in (2, 8), (1, 1), (3, 5), (1, 13):
        x = torch.randn(batch, length, 8)
        assert torch.equal(loaded(x), model(x))


def test_whether_a_reshaped_tensor_is_a_view_may_depend_on_sizes(saved):
    def f(x):
        y = x.clone()
        y[:, ::2].t().reshape(-1).add_(1)
        return y

    loaded = saved(f, [InputSpec((None, None))])
    for shape in (4, 7), (3, 8), (4, 1), (1, 5), (1, 1):
        x = torch.randn(shape)
        assert torch.equal(loaded(x), f(x))


def test_what_torch_export_refuses_is_told_with_its_line(saved):
    with pytest.raises(SaveError, match=r"cannot export adaptive_avg_pool1d\(\) \(.*test_sizes.py:\d+ .*: it takes a "
                                        r"number that .* is made of floats, only as a constant"):
        saved(lambda x: F.adaptive_avg_pool1d(x, max(1, round(x.shape[2] / 3))), [InputSpec((1, 2, None))])


def test_a_number_of_selected_rows_is_no_result(saved):
    with pytest.raises(SaveError, match=r"returns a number \(int\) that depends on the values of a tensor"):
        saved(lambda x: x.unique(dim=0).shape[0], [InputSpec((None, 4))])


class SampleGradients(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return torch.vmap(torch.func.grad(lambda row: self.linear(row).square().sum()))(x)


def test_a_transform_that_torch_export_refuses_is_left(saved):
    with pytest.raises(SaveError, match=r"test_sizes.py:\d+ \(return torch.vmap"):
        saved(SampleGradients(), [InputSpec((None, 4))])
    assert torch.ones(2).untyped_storage().nbytes() == 8      # no tensor of a transform


@pytest.mark.parametrize("function", [
    lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    lambda x: F.adaptive_avg_pool2d(x, (x.shape[2] // 2, x.shape[3] // 2)), lambda x: x[:, :, ::2].squeeze(2) + 1],
    ids=["interpolate", "pool", "squeeze"])
def test_a_computed_size_may_be_one(saved, function):
    loaded = saved(function, [InputSpec((1, 2, None, None))])
    for shape in (1, 2, 8, 9), (1, 2, 2, 3), (1, 2, 16, 2):
        x = torch.randn(shape)
        assert torch.equal(loaded(x), function(x))


def test_sizes_for_which_the_program_takes_another_branch_are_refused(saved):
    def f(x):
        if x.shape[0] > 20:
            return x * 2
        return x + 1

    loaded = saved(f, [InputSpec((None, 4))])
    assert torch.equal(loaded(torch.ones(20, 4)), torch.full((20, 4), 2.0))
    with pytest.raises(ValueError, match=r"saved for x.shape\[0\] <= 20.*test_sizes.py:\d+ \(if x.shape\[0\] > 20:\)"):
        loaded(torch.ones(21, 4))


def alone(x):
    return x if x.shape[0] == 1 else x - x.mean(0)


def several(x):
    return x.std(0) if len(x) > 1 else x * 0


def at_least_two(x):
    return x * 2 if x.shape[0] >= 2 else x


def halves(x):
    return x * 2 if x.shape[0] // 3 >= 2 else x


@pytest.mark.parametrize(("function", "text"), [
    (alone, r"not x.shape\[0\] == 1"), (several, r"x.shape\[0\] > 1"), (at_least_two, r"x.shape\[0\] > 1"),
    (halves, r"x.shape\[0\] // 3 >= 2")], ids=["alone", "several", "at least two", "halves"])
def test_a_branch_on_a_size_of_one_is_one_on_sizes(saved, function, text):
    """torch takes no size for 0 or 1, and answers without a condition."""
    loaded, x = saved(function, [InputSpec((None, 4))]), torch.randn(6, 4)
    assert torch.equal(loaded(x), function(x))
    with pytest.raises(ValueError, match=rf"saved for {text}, as the program asks at .*test_sizes.py:\d+"):
        loaded(torch.randn(1, 4))


@pytest.mark.parametrize(("layer", "shape"), [
    (nn.BatchNorm1d(4), (None, 4)), (nn.BatchNorm2d(4), (None, 4, None, None)), (nn.InstanceNorm1d(4), (None, 4, None)),
    (nn.GroupNorm(4, 4), (None, 4, None))], ids=["batch", "images", "instance", "group"])
def test_normalizations_raise_for_one_value(saved, layer, shape):
    loaded = saved(layer, [InputSpec(shape)])
    for size in 3, 2:
        x = torch.randn([n or size for n in shape])
        assert torch.equal(loaded(x), layer(x))
    for call in layer, loaded:
        with pytest.raises((ValueError, RuntimeError), match="Expected more than 1 "):
            call(torch.randn([n or 1 for n in shape]))


def test_a_size_of_one_that_no_line_asks_for_is_accepted(saved):
    def f(x):
        if x.shape[0] > 100:
            x = x * 2
        return x - x.mean(0)
    loaded = saved(f, [InputSpec((None, 4))])
    for n in 1, 0, 3:
        x = torch.randn(n, 4)
        assert torch.equal(loaded(x), f(x))


@pytest.mark.slow
def test_a_loop_over_a_size_is_refused_with_its_line(saved):
    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 4)

        def forward(self, x):
            state = x.new_zeros(x.shape[0], 4)
            for step in range(x.shape[1]):
                state = self.cell(x[:, step], state)
            return state

    with pytest.raises(SaveError, match=r"dimension 1 of x cannot differ: .*for step in range\(x.shape\[1\]\).*"
                                        r"Use the size"):
        saved(Steps(), [InputSpec((None, None, 4))])
    loaded, x = saved(Steps(), [InputSpec((None, 3, 4))]), torch.randn(2, 3, 4)
    assert loaded(x).shape == (2, 4)


@pytest.fixture(scope="module")
def of_a_library():
    @torch.library.custom_op("sot_test_saving::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)
    return lambda x: twice(x) + 1


def test_an_operator_that_only_its_library_has_is_refused(of_a_library, saved, tmp_path):
    with pytest.raises(SaveError, match=r"calls torch.ops.sot_test_saving.twice.*operators=\['sot_test_saving'\]"):
        saved(of_a_library, [InputSpec((None,))])
    assert not list(tmp_path.iterdir())


def test_operators_of_a_library_that_is_named(of_a_library, tmp_path):
    file = sot.save(of_a_library, tmp_path / "m", [InputSpec((None,))], operators=["sot_test_saving"])
    loaded = sot.load(file, operators=["sot_test_saving"])
    assert torch.equal(loaded(torch.arange(7.0)), torch.arange(7.0) * 2 + 1)
    for operators in ([], ["aten"], ["sot_test_other"]):
        with pytest.raises(LoadError, match=r"operators=\['sot_test_saving'\]"):
            sot.load(file, operators=operators)


@pytest.mark.parametrize("target", ["torch.ops.sot_test_saving.missing.default", "torch.ops.sot_test_saving.name.upper",
                                    "torch.ops.sot_test_saving.__class__.mro", "torch.ops.higher_order.other"])
def test_what_a_library_does_not_define_is_refused(of_a_library, target):
    with admitting(["sot_test_saving", "higher_order"]):
        assert is_allowed("torch.ops.sot_test_saving.twice.default")
        assert not is_allowed(target)


def test_a_batch_may_be_larger_than_a_kernel_was_chosen_for(saved):
    model = nn.Conv1d(3, 4, 3).eval()
    loaded, x = saved(model, [InputSpec((None, 3, None))]), torch.randn(40, 3, 9)
    torch.testing.assert_close(loaded(x), model(x))


class Clipped(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy().clip(0, 1) * 2)


def test_numpy_on_a_tensor_is_refused_with_its_line(tmp_path):
    with pytest.raises(SaveError, match=r"computes with NumPy on a tensor \(.*x.numpy\(\).*Use torch's function"):
        sot.save(Clipped(), tmp_path / "m", input_spec=[InputSpec((2, 3))])


def with_a_constant(function, name, position, value):
    """The program of a function of (rows, 8), in which one argument of an operation is a constant."""
    program = torch.export.export(Whole(function), (torch.randn(7, 8),), dynamic_shapes=[{0: torch.export.Dim.AUTO}])
    for node in program.graph.nodes if name else ():
        if name in str(node.target):
            node.args = (node.args[0], [value if i == position else n for i, n in enumerate(node.args[1])])
    program.graph_module.recompile()
    return program


class Whole(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def by_rows(x):
    return (x * 2).view(x.shape[0], 2, 4).sum(1)


def selected(x):
    return x[x > 0].view(-1, 1) * 2


def limited(x):
    return x[:4].view(4, 8) + x[-4:].view(4, 8)


def test_a_constant_where_a_size_differs_is_found():
    """torch.export makes one of some sizes, and says that the program takes any."""
    assert node_of_one_size(with_a_constant(by_rows, "", 0, 0)) is None
    found = node_of_one_size(with_a_constant(by_rows, "view", 0, 7))
    assert found is not None and "view" in str(found.target)


@pytest.mark.parametrize("function", [selected, limited, lambda x: (x + 1, x.shape[0])])
def test_a_program_that_runs_for_other_sizes_is_not_refused(function):
    assert node_of_one_size(with_a_constant(function, "", 0, 0)) is None
