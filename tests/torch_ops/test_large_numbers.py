"""Floats that vary from call to call and do not fit the type of a tensor: torch refuses them, compiled or not."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import Programs, caught

import sot

program = Programs()


@program
def clamped(x, v):
    return x.clamp(max=v), x.clamp(min=v)


@program
def filled(x, v):
    return x.fill_(v).clone()


@program
def assigned(x, v):
    x[0] = v
    return x


@program
def like(x, v):
    return torch.full_like(x, v), x.new_full((2,), v)


@program
def scaled(x, v):
    return torch.add(x, x, alpha=v), torch.sub(x, x, alpha=v), x * v, x > v


@program
def masked(x, v):
    return x.masked_fill(x > 1, v), torch.where(x > 1, x, v), x.index_fill(0, torch.tensor([0]), v)


@program
def scattered(x, v):
    return x.scatter(0, torch.tensor([0]), v)


@program
def padded(x, v):
    return F.pad(x, (1, 1), value=v), F.threshold(x, v, 2.0)


@program
def lerped(x, v):
    return x.lerp(x + 1, v) if x.is_floating_point() else x + v


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@program.each
def test_torch_refuses_what_does_not_fit(fn, dtype):
    translated = sot.to_static(fn, backend="aot_eager")
    for v in (1.5, 2.5, 3.5, 1e308, 7e4, float("inf"), float("nan"), 4.5, -1e300):
        mine, theirs = torch.arange(1, 5).to(dtype), torch.arange(1, 5).to(dtype)
        assert str(caught(translated, mine, v)) == str(caught(fn, theirs, v)), v
        assert str(mine) == str(theirs), v


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", [lambda x, v: x.clamp_(torch.tensor(v)), lambda x, v: x.add_(torch.as_tensor(v * 2)),
                                    lambda x, v: x.copy_(torch.tensor(v, dtype=torch.float32))])
def test_a_tensor_of_a_number_that_does_not_fit_is_infinite(change, backend):
    translated = sot.to_static(change, backend=backend, full_graph=True)
    for v in (0.5, 1.5, 1e300, float("nan"), 2.5, -1e300, float("inf")):
        mine, theirs = torch.zeros(2), torch.zeros(2)
        assert str((translated(mine, v), mine)) == str((change(theirs, v), theirs)), v
    assert len(translated.captures) == 2


def clamp_of_torch_2_11(x, min=None, max=None):
    if None not in (min, max):
        return x.clamp_min(min).clamp_max(max)
    if min is not None:
        return x.clamp_min(min) if min == min else x.clone()
    return x.clamp_max(max) if max == max else x.clone()


@pytest.mark.filterwarnings("ignore:.*overrid")
@pytest.mark.parametrize("clamp", [lambda x, v: x.clamp(v), lambda x, v: torch.clip(x, max=v) * 2,
                                   lambda x, v: x.clamp(min=1, max=v)])
def test_a_bound_that_is_no_number_is_what_the_kernel_makes_of_it(clamp):
    """Until torch 2.12 a number that is NaN is no bound, and a tensor that is NaN makes all elements NaN."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("clamp", clamp_of_torch_2_11, "CPU")
        translated, x = sot.to_static(clamp, backend="aot_eager"), torch.arange(4.0)
        for v in (1.5, 2.5, float("inf"), float("nan"), 0.5, float("-inf"), float("nan")):
            assert str(translated(x, v)) == str(clamp(x, v)), v
        assert len(translated.captures) == 5     # finite: of one value, of many; each infinity; NaN


def test_numbers_that_fit_are_one_capture():
    translated = sot.to_static(lambda x, v: x.clamp(max=v) + x.masked_fill(x > 1, v), backend="aot_eager")
    for v in (1.5, 2.5, 3.5, -1e30, 0.5, 1e-40):
        translated(torch.arange(4.0), v)
    assert len(sot.translation_of(translated).captures) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_shift_that_torch_refuses_is_refused_after_the_changes_before_it(backend):
    def rolled(x, counts):
        counts["calls"] += 1
        x += 1
        return x.roll(-2**63, 0), x.roll((-2**62,), (0,))

    translated = sot.to_static(rolled, backend=backend)
    mine, theirs = (torch.zeros(3), {"calls": 0}), (torch.zeros(3), {"calls": 0})
    for _ in range(3):
        assert str(caught(translated, *mine)) == str(caught(rolled, *theirs))
        assert str(mine) == str(theirs)


def test_a_number_too_large_for_a_float_is_no_failure_of_capture():
    def program(x, n):
        try:
            return x.roll(n ** 40)
        except (RuntimeError, ValueError) as e:
            return type(e).__name__
    translated = sot.to_static(program, backend="eager")
    for n in (4 << 70, 5 << 70, 6 << 70, 3, 7 << 70):
        want, got = program(torch.arange(3.0), n), translated(torch.arange(3.0), n)
        assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    assert not any(capture.fallback for capture in sot.translation_of(translated).captures)
