"""Members of enums that differ from call to call: their numbers vary like others."""
from __future__ import annotations

import dataclasses
import enum

import pytest
import torch
from harness import Programs
from varying_floats import Compiling

import sot

numbers, others = Programs(), Programs()
X = torch.linspace(-1, 1, 8)
W = torch.nn.Parameter(X.clone())


class Level(enum.IntEnum):
    LOW, MIDDLE, HIGH, TOP, LAST = 2, 3, 5, 7, 9


class Rate(enum.Enum):
    LOW, MIDDLE, HIGH, TOP, LAST = 0.1, 0.2, 0.3, 0.4, 0.5


class Renamed(enum.Enum):
    LOW, MIDDLE, HIGH = 0.1, 0.2, 0.3

    @property
    def value(self):
        return self._value_ * 2


class Shifted(int, enum.Enum):
    """``int(member)`` is not its value."""

    def __new__(cls, number):
        made = int.__new__(cls, number + 10)
        made._value_ = number
        return made
    LOW, MIDDLE, HIGH = 2, 3, 5


@dataclasses.dataclass
class Config:
    factor: float


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, how):
        ctx.how = how
        return x * number_of(how)

    @staticmethod
    def backward(ctx, g):
        return g * number_of(ctx.how), None


def number_of(how):
    return how.value if isinstance(how, enum.Enum) else how.factor


@numbers
def a_value(member):
    return X * member.value, member


@numbers
def an_operand(member):
    return X * (member if isinstance(member, int) else member._value_)


@numbers
def an_autograd_function(member):
    W.grad = None
    y = Scaled.apply(W, member)
    y.sum().backward()
    return y.detach(), W.grad.clone()


@others
def a_name(member):
    return X * len(member.name), X * member.value


@others
def an_identity(member):
    return X * 2 if member is type(member).MIDDLE else X * member.value


@others
def a_key(member):
    return X * {Level.LOW: 1, Rate.LOW: 2, Shifted.LOW: 3}.get(member, 4)


@others
def a_comparison(member):
    return X * member.value if member == type(member)(member.value) else X


@others
def an_integer(member):
    return X * member if isinstance(member, int) else X


def run(fn, members, backend):
    compiling = Compiling(backend)
    translated = sot.to_static(fn, backend=compiling)
    for member in members:
        torch.testing.assert_close(flat(translated(member)), flat(fn(member)), rtol=0, atol=0)
    return compiling.graphs


def flat(result):
    return [v.value if isinstance(v, enum.Enum) else v for v in (result if isinstance(result, tuple) else (result,))]


@numbers.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Level, Rate])
def test_the_number_of_a_member_is_compiled_twice(fn, backend, kind):
    assert run(fn, list(kind), backend) == 2


@others.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [Level, Rate, Shifted, Renamed])
def test_what_else_is_read_of_a_member_is_its_own(fn, backend, kind):
    if fn is a_comparison and kind is Renamed:
        pytest.skip("its value is none of the class")
    run(fn, list(kind) * 2, backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_object_is_an_argument_of_an_autograd_function(backend):
    assert run(an_autograd_function, [Config(1 + i / 3) for i in range(5)], backend) == 2
