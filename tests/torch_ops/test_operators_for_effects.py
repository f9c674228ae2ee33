"""Operators of a program that return nothing and change no argument: Python calls them, for their effects."""
from __future__ import annotations

import pytest
import torch

import sot

LOG: list[tuple[str, list[float]]] = []


@torch.library.custom_op("sot_effects::note", mutates_args=())
def note(x: torch.Tensor, tag: str) -> None:
    LOG.append((tag, x.tolist()))


@note.register_fake
def _(x, tag):
    return None


@torch.library.custom_op("sot_effects::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    LOG.append(("counted", x.tolist()))
    return x + 1


@counted.register_fake
def _(x):
    return torch.empty_like(x)


def notes(x, write):
    LOG.clear()
    y = x + 1
    write(y, "first")
    z = y * 2
    write(z, "second")
    return z, len(LOG), [*LOG]


def log_of(function, write):
    return function(torch.ones(2), write), [*LOG]


@pytest.mark.parametrize("write", [note, torch.ops.sot_effects.note, torch.ops.sot_effects.note.default],
                         ids=["function", "packet", "overload"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_effects_happen_in_order_and_are_seen(backend, write):
    translated = sot.to_static(notes, backend=backend)
    for _ in range(2):
        (got, *seen), log = log_of(translated, write)
        (right, *known), right_log = log_of(notes, write)
        assert torch.equal(got, right)
        assert (seen, log) == (known, right_log)


def test_capture_does_not_call_an_operator_of_the_program_with_a_tensor_made_of_a_number():
    def fn(x, number):
        return x * counted(torch.tensor(number))
    translated = sot.to_static(fn)
    for number in (1, 1, 2):
        LOG.clear()
        assert torch.equal(translated(torch.ones(2), number), torch.ones(2) * (number + 1))
        assert LOG == [("counted", number)]
