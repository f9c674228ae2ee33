"""Examples of dimensions that may differ: sizes that the model accepts, and sizes that must be, or may be, equal."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import SaveError
from sot.frontend.input_spec import InputSpecError


@pytest.fixture
def saved(tmp_path):
    def save_and_load(model, spec, **more):
        return sot.load(sot.save(model, tmp_path / "m", input_spec=spec, **more))
    return save_and_load


class Padded(nn.Module):
    """A longer mask is cut, so lengths that differ are another branch than equal ones."""

    def forward(self, x, mask):
        if mask.shape[1] > x.shape[1]:
            mask = mask[:, :x.shape[1]] * 2
        return x * mask


class Positions(nn.Module):
    """There are five positions: a longer text raises an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.randn(5, 4))

    def forward(self, x):
        return x + self.positions[:x.shape[1]]


class Halved(nn.Module):
    """Five times half the size: at a size of 7 a kernel is larger than what it runs over."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Conv2d(3, 3, 3, 2) for _ in range(4)))

    def forward(self, x):
        return self.layers(x)


class Sampled(nn.Module):
    """The text of torch's message about wrong parameters shows sizes."""

    def forward(self, logits, scale):
        drawn = torch.distributions.Categorical(logits=logits).sample()
        return drawn, torch.distributions.Normal(logits, F.softplus(scale)).rsample()


class OfSizes(nn.Module):
    """Only the size of an argument is used."""

    def forward(self, x, like):
        if like.shape[0] > 8:
            x = x * 2
        return x + torch.ones(like.shape[1]).sum()


def test_lengths_are_equal_where_the_model_asks_which_is_greater(saved):
    loaded = saved(Padded(), [InputSpec((None, None)), InputSpec((None, None))])
    for n, length in (3, 5), (2, 9):
        x, mask = torch.randn(n, length), torch.rand(n, length)
        assert torch.equal(loaded(x, mask), Padded()(x, mask))
    with pytest.raises(InputSpecError, match="equal|test_example_sizes.py"):
        loaded(torch.randn(2, 3), torch.rand(2, 4))


def test_lengths_with_names_of_their_own_stay_unequal(saved):
    loaded = saved(Padded(), [InputSpec(("n", "short")), InputSpec(("n", "long"))])
    x, mask = torch.randn(2, 3), torch.rand(2, 4)
    assert torch.equal(loaded(x, mask), Padded()(x, mask))
    with pytest.raises(InputSpecError, match=r"if mask.shape\[1\] > x.shape\[1\]"):
        loaded(x, mask[:, :3])


def test_a_model_that_takes_small_sizes_only(saved):
    model = Positions()
    loaded = saved(model, [InputSpec((None, None, 4))])
    for n, length in (9, 3), (2, 5):
        x = torch.randn(n, length, 4)
        assert torch.equal(loaded(x), model(x))


@pytest.mark.slow
def test_a_model_that_takes_large_sizes_only(saved):
    model = Halved()
    loaded = saved(model, [InputSpec((None, 3, None, None))])
    for shape in (2, 3, 70, 90), (3, 3, 128, 64):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), model(x))


class Patches(nn.Module):
    """Positions of patches, for images of any size. An image of less than 16 rows has one row of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(3, 4, 8, 8), nn.Parameter(torch.randn(1, 4, 3, 3))

    def forward(self, x):
        x = self.patches(x)
        positions = F.interpolate(self.positions, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return (x + positions).flatten(2)


@pytest.mark.slow
def test_sizes_are_not_limited_to_those_that_are_like_the_example(saved):
    model = Patches()
    loaded = saved(model, [InputSpec((None, 3, "height", "width"))])
    for shape in (2, 3, 40, 64), (1, 3, 128, 24):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), model(x))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(20, 4))

    def forward(self, x):
        return x + self.table[:x.shape[1]]


def test_a_size_beyond_a_limit_of_the_model_is_named(saved):
    model = Table()
    loaded = saved(model, [InputSpec((None, "length", 4))])
    for length in 5, 20:
        x = torch.randn(2, length, 4)
        assert torch.equal(loaded(x), model(x))
    with pytest.raises(InputSpecError, match="dimension 1 of x is 21, and the file is for sizes up to 20"):
        loaded(torch.randn(2, 21, 4))


def test_an_operator_that_takes_a_size_as_a_constant_is_refused_with_a_remedy(tmp_path):
    def f(x):
        return torch.histc(x, bins=x.shape[1])
    with pytest.raises(SaveError, match=r"dimension 1 of x cannot differ: an operator takes it only as a constant, at "
                       r".*test_example_sizes.py:\d+ \(return torch.histc.*torch.arange"):
        sot.save(f, tmp_path / "m", input_spec=[InputSpec((None, None))])


def test_a_method_that_raises_for_all_sizes_is_refused(tmp_path):
    with pytest.raises(SaveError, match=r"test_example_sizes.py:\d+"):
        sot.save(Positions(), tmp_path / "m", input_spec=[InputSpec((None, None, 3))])


@pytest.mark.slow
def test_distributions_take_any_size(saved):
    loaded = saved(Sampled(), [InputSpec((None, 4)), InputSpec((None, 4))])
    for n in 3, 9:
        given = torch.randn(n, 4), torch.randn(n, 4)
        torch.manual_seed(0)
        want = Sampled()(*given)
        torch.manual_seed(0)
        for got, expected in zip(loaded(*given), want, strict=True):
            torch.testing.assert_close(got, expected)


def test_an_argument_of_which_only_the_size_is_used(saved):
    loaded = saved(OfSizes(), [InputSpec((None, 4)), InputSpec((5, None))])
    x = torch.randn(3, 4)
    assert torch.equal(loaded(x, torch.zeros(5, 6)), OfSizes()(x, torch.zeros(5, 6)))
    loaded = saved(OfSizes(), [InputSpec((None, 4)), InputSpec((None, 4))])
    assert torch.equal(loaded(x, torch.zeros(9, 4)), OfSizes()(x, torch.zeros(9, 4)))
    with pytest.raises(InputSpecError, match=r"if like.shape\[0\] > 8"):
        loaded(x, torch.zeros(5, 4))


class Noted(nn.Module):
    def forward(self, x):
        return {"y": x * 2, "labels": ["a", "b"], "name": "double"}


class Described(nn.Module):
    def forward(self, x):
        return x * 2, f"of {x.shape[0]} rows"


def test_text_is_part_of_the_result(saved):
    loaded, x = saved(Noted(), [InputSpec((None, 3))]), torch.randn(2, 3)
    got, want = loaded(x), Noted()(x)
    assert torch.equal(got.pop("y"), want.pop("y")) and got == want


def test_text_that_differs_is_refused(tmp_path):
    with pytest.raises(SaveError, match="text that differs from call to call"):
        sot.save(Described(), tmp_path / "m", input_spec=[InputSpec((None, 3))])
