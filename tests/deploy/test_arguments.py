"""Dataclasses and named tuples as arguments: a file takes them, dicts, tuples and records."""
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import nn

import sot
from sot import InputSpec
from sot.frontend.input_spec import InputSpecError


@dataclass
class Batch:
    x: torch.Tensor
    mask: torch.Tensor | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Nested:
    batches: list
    bias: torch.Tensor


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, batch, *, more=None):
        y = self.linear(batch.x) * batch.scale
        if batch.mask is not None:
            y = y * batch.mask[:, None]
        return Batch(y, None if more is None else more["b"].x + len(y))


class OfNested(nn.Module):
    def forward(self, nested):
        return sum(batch.x.sum(1) for batch in nested.batches) + nested.bias


@pytest.fixture
def saved(tmp_path):
    def save_and_load(model, spec, **more):
        return sot.load(sot.save(model, tmp_path / "m", input_spec=spec, **more))
    return save_and_load


def test_a_dataclass_is_an_argument(saved):
    model = Net()
    loaded = saved(model, [Batch(InputSpec((None, 4)), InputSpec((None,)), 0.5)])
    for n in 3, 6:
        batch = Batch(torch.randn(n, 4), torch.rand(n), 0.5)
        want = model(batch)
        for given in batch, vars(batch):
            torch.testing.assert_close(loaded(given).x, want.x)
    want.x.sum().backward()
    loaded(batch).x.sum().backward()
    torch.testing.assert_close(loaded.linear.weight.grad, model.linear.weight.grad)
    with pytest.raises(InputSpecError, match="must be equal"):
        loaded(Batch(torch.randn(3, 4), torch.rand(2), 0.5))
    with pytest.raises(TypeError, match="of 1 values; this was saved with 3"):
        loaded(torch.randn(3, 4))
    with pytest.raises(RuntimeError, match="scale.* to be equal to 0.5"):
        loaded(Batch(torch.randn(3, 4), torch.rand(3), 2.0))


def test_dataclasses_in_containers_and_of_none(saved):
    model = Net()
    loaded = saved(model, {"batch": Batch(InputSpec(("n", 4))), "more": {"b": Batch(InputSpec(("m", 2)))}})
    for n, m in (3, 5), (6, 2):
        given = Batch(torch.randn(n, 4)), {"b": Batch(torch.randn(m, 2))}
        got, want = loaded(given[0], more=given[1]), model(given[0], more=given[1])
        torch.testing.assert_close((got.x, got.mask), (want.x, want.mask))


def test_a_dataclass_in_a_dataclass(saved):
    loaded = saved(OfNested(), [Nested([Batch(InputSpec((None, 3))), Batch(InputSpec((None, 5)))], InputSpec((None,)))])
    for n in 4, 7:
        given = Nested([Batch(torch.randn(n, 3)), Batch(torch.randn(n, 5))], torch.randn(n))
        torch.testing.assert_close(loaded(given), OfNested()(given))


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor | None = None


def test_a_named_tuple_is_an_argument(saved):
    def f(pair, others):
        scale = 1 if others["p"].y is None else 2
        return pair._replace(x=pair.x + pair.y), others["p"].x * scale

    loaded = saved(f, [Pair(InputSpec(("n", 4)), InputSpec(("n", 4))), {"p": Pair(InputSpec((None,)))}])
    for n, m in (3, 5), (1, 2):
        given = Pair(torch.randn(n, 4), torch.randn(n, 4)), {"p": Pair(torch.randn(m))}
        (got, other), (want, expected) = loaded(*given), f(*given)
        assert torch.equal(got.x, want.x) and torch.equal(got.y, want.y) and torch.equal(other, expected)
    with pytest.raises(InputSpecError, match=r"must be equal \(n\)"):
        loaded(Pair(torch.randn(3, 4), torch.randn(2, 4)), given[1])


def test_a_record_of_one_model_is_the_argument_of_another(saved, tmp_path):
    first = saved(Net(), [Batch(InputSpec((None, 4)))])
    second = sot.load(sot.save(Net(), tmp_path / "second", input_spec=[Batch(InputSpec((None, 4)))]))
    x = torch.randn(2, 4)
    assert second(Batch(torch.cat([first(Batch(x)).x, x[:, :1]], 1))).x.shape == (2, 3)
    record = first(Batch(x))
    record["x"] = x
    torch.testing.assert_close(second(record).x, second(Batch(x)).x)


def test_an_argument_whose_shape_is_changed_in_place(tmp_path):
    def f(x):
        return x.t_() * 2

    example = torch.randn(3, 4)
    loaded = sot.load(sot.save(f, tmp_path / "m", input_spec=[example]))
    assert example.shape == (3, 4)
    for call in loaded, f:
        x = torch.arange(12.0).view(3, 4)
        assert torch.equal(call(x), 2 * torch.arange(12.0).view(3, 4).t()) and x.shape == (4, 3)
