"""Numbers that a model computes of sizes, and of numbers that its calls change, are computed by the file."""
import copy
import math

import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.deploy.errors import SaveError

FUNCTIONS = {
    "log": math.log, "log2": math.log2, "sqrt": math.sqrt, "cos": math.cos, "tanh": math.tanh,
    "exp": lambda n: math.exp(-0.01 * n), "warm-up": lambda n: min(1.0, n / 10), "decay": lambda n: 0.9 ** n,
    "inverse root": lambda n: n ** -0.5, "square": lambda n: n ** 2, "rounded up": lambda n: math.ceil(n / 2),
    "rounded down": lambda n: math.floor(n * 3 / 4), "of several": lambda n: 0.1 + 2 * math.exp(-n) / math.log(n + 1)}


class OfSizes(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return x * self.function(x.shape[1])


class OfCalls(OfSizes):
    calls = 0

    def forward(self, x):
        self.calls = self.calls + 1
        return x * self.function(self.calls)


class Padded(nn.Module):
    """Parts of four, the last one padded."""

    def forward(self, x):
        parts = math.ceil(x.shape[1] / 4)
        return nn.functional.pad(x, (0, parts * 4 - x.shape[1])).view(x.shape[0], parts, 4).mean(-1)


@pytest.mark.parametrize("make", [OfSizes, OfCalls])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_numbers_that_vary(make, function, tmp_path):
    model = make(function)
    model.calls = 1
    loaded = sot.load(sot.save(copy.deepcopy(model), tmp_path / "m", input_spec=[InputSpec(("b", "t"))]))
    for shape in ((2, 3), (3, 7), (2, 11), (5, 4)):
        x = torch.randn(shape)
        torch.testing.assert_close(loaded(x), model(x))


class Average(nn.Module):
    """A moving average whose weight follows the number of what it has seen, up to a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.seen += x.shape[0]
        self.mean.lerp_(x.mean(0), 1 - min(0.9, (1 + self.seen) / (10 + self.seen)))
        return x - self.mean, self.seen


def test_a_quotient_of_numbers_that_calls_change(tmp_path):
    model = Average()
    loaded = sot.load(sot.save(copy.deepcopy(model), tmp_path / "m", input_spec=[InputSpec((None, 4))]))
    for n in 3, 2, 7:
        x = torch.randn(n, 4)
        (got, seen), (want, expected) = loaded(x), model(x)
        torch.testing.assert_close(got, want)
        assert seen == expected


def test_a_number_of_parts(tmp_path):
    loaded = sot.load(sot.save(Padded(), tmp_path / "m", input_spec=[InputSpec(("b", "t"))]))
    for shape in ((2, 3), (3, 8), (2, 9)):
        x = torch.randn(shape)
        assert torch.equal(loaded(x), Padded()(x))


def test_a_condition_on_a_rounded_quotient(tmp_path):
    class Branching(nn.Module):
        def forward(self, x):
            return x * 2 if math.ceil(x.shape[1] / 2) > 1 else x

    loaded = sot.load(sot.save(Branching(), tmp_path / "m", input_spec=[InputSpec(("b", "t"))]))
    x = torch.randn(2, 3)
    assert torch.equal(loaded(x), x * 2)
    with pytest.raises(ValueError, match="ceil"):
        loaded(torch.randn(2, 2))


ROUNDED = {
    "int": lambda n: int(n * 0.3), "of a root": lambda n: int(math.sqrt(n)), "of a power": lambda n: int(n ** 0.5),
    "to the even one": lambda n: round(n * 0.5), "of a quotient": lambda n: round(n / 3),
    "at least one": lambda n: max(1, int(n * 0.1)), "up": lambda n: math.ceil(n * 0.7),
    "down": lambda n: math.floor(math.log2(n)), "of several": lambda n: int(n * 0.3) + 2 * round(n * 0.1) // 2}


@pytest.mark.parametrize("function", ROUNDED.values(), ids=ROUNDED)
def test_integers_made_of_floats(function, tmp_path):
    """A size that is made of floats is not the constant that it is for the examples."""
    def f(x):
        return x[:, :function(x.shape[1])].sum(1), x.new_zeros(function(x.shape[1]))

    loaded = sot.load(sot.save(f, tmp_path / "m", input_spec=[InputSpec(("b", "t"))]))
    for shape in ((2, 3), (3, 7), (2, 10), (1, 40), (4, 2)):
        x = torch.randn(shape)
        for got, want in zip(loaded(x), f(x), strict=True):
            assert torch.equal(got, want)


def test_a_square_grid_of_patches(tmp_path):
    def f(x):
        side = int(x.shape[1] ** 0.5)
        return x.view(x.shape[0], side, side, 4).mean(1)

    loaded = sot.load(sot.save(f, tmp_path / "m", input_spec=[InputSpec(("b", "t", 4))]))
    for shape in ((2, 9, 4), (1, 64, 4), (3, 4, 4)):
        x = torch.randn(shape)
        assert torch.equal(loaded(x), f(x))
    with pytest.raises(ValueError, match=r"int\(t \*\* 0.5\).*test_saved_numbers.py:\d+ \(return x.view"):
        loaded(torch.randn(2, 10, 4))


def test_an_integer_that_tensors_may_round_otherwise_is_refused(tmp_path):
    with pytest.raises(SaveError, match=r"computes the number int\(x.shape\[1\] \*\* 0.33"):
        sot.save(lambda x: x[:, :int(x.shape[1] ** (1 / 3))], tmp_path / "m", input_spec=[InputSpec((2, None))])
