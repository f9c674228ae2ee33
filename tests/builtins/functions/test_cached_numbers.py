"""Functions of ``functools.lru_cache`` that compute with numbers which vary from call to call."""

from __future__ import annotations

import functools

import pytest
import torch
from einops import rearrange, reduce, repeat
from harness import same
from torch import nn

import sot
from sot.interpreter.builtins import functional

SIZES = (4, 4, 5, 6, 7, 9)
FACTOR = {"factor": 2}


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x.detach() + 1
        heads = rearrange(x, "b n (h d) -> (b h) n d", h=2) * 2
        joined = rearrange(heads, "(b h) n d -> b n (h d)", h=2)
        return joined + repeat(reduce(joined, "b n d -> b d", "mean"), "b d -> b n d", n=x.shape[1])


def padded(n, multiple=4):
    if n <= 0:
        raise ValueError("a size, please")
    return rounded_up(n, multiple), n % multiple


def rounded_up(n, multiple):
    return -(-n // multiple) * multiple


cached_padded = functools.lru_cache(padded)


def logged(n):
    print("asked for", n)
    return n + 1


def listed(n):
    return [n]


def scaled(n):
    return n * FACTOR["factor"]


def table(n):
    return torch.arange(n)


CACHED = [functools.lru_cache(function) for function in (logged, listed, scaled, table)]


def calls(fn, sizes=SIZES):
    return [fn(torch.arange(8.0 * n).reshape(n, 1, 8)) for n in sizes]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_einops_is_captured_once_for_all_sizes(backend):
    model = Heads()
    expected = calls(model)
    translated = sot.to_static(model, backend=backend)
    assert same(expected, calls(translated)) is None
    assert len(sot.translation_of(translated).graphs) == 2
    assert torch.equal(model.last, torch.arange(72.0).reshape(9, 1, 8) + 1)


def test_a_cached_function_of_sizes_is_captured_once_for_all_sizes():
    fn = lambda x: x * cached_padded(x.shape[0])[0] + cached_padded(x.shape[0], multiple=3)[1]  # noqa: E731
    translated = sot.to_static(fn, backend="eager")
    assert same(calls(fn), calls(translated)) is None
    assert len(translated.graphs) == 2


@pytest.mark.parametrize("index", range(len(CACHED)))
def test_a_cached_function_that_does_more_runs_once_for_each_size(index, capsys):
    def fn(x):
        if x.shape[0] == 6:
            FACTOR["factor"] = 3
        result, again = CACHED[index](x.shape[0]), CACHED[index](x.shape[0])
        if type(result) is list:
            result.append(1)
            return x + sum(result), result is again
        return x + result.sum() if torch.is_tensor(result) else x + result, torch.is_tensor(result) and result is again

    found = []
    for called in (fn, sot.to_static(fn, backend="eager")):
        CACHED[index].cache_clear()
        FACTOR["factor"] = 2
        found.append((calls(called, (*SIZES, *SIZES)), capsys.readouterr().out))
    assert same(*found) is None


def test_the_exception_of_a_cached_function_is_raised():
    made = sot.to_static(lambda x, n: x + cached_padded(n)[0], backend="eager")
    assert [float(made(torch.zeros(()), n)) for n in (3, 5, 9)] == [4, 8, 12]
    with pytest.raises(ValueError, match="a size, please"):
        made(torch.zeros(()), -1)


@functools.lru_cache
def cached_times(n, more):
    return n * len(more)


def test_a_cached_function_of_a_library_takes_no_list(monkeypatch):
    """For a function in an installed file; the cache has no place for a list."""
    monkeypatch.setattr(functional, "is_installed", lambda file: file == __file__)

    def fn(x):
        try:
            return x * cached_times(x.shape[0], [1, 2])
        except TypeError as e:
            return x, str(e)

    assert same(calls(fn), calls(sot.to_static(fn, backend="eager"))) is None
