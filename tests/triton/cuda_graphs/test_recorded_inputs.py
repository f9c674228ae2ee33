"""CUDA graphs: inputs that move, that do not, and that are changed."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed")

from recorder import Calls, full

from sot.backends.triton.cuda_graphs import ATTEMPTS


# ---- inputs --------------------------------------------------------------------------------------------------------
def test_inputs_that_move_are_copied_and_the_others_read_where_they_are():
    weight = torch.randn(3)
    calls = Calls(lambda x, w: [x * w], 1)
    xs = [torch.randn(3) for _ in range(6)]
    for x in xs:
        torch.testing.assert_close(calls(x, weight)[0], x * weight)
    assert calls.counts == (1, 5)
    assert set(calls.run.recording.places) == {0}
    weight.add_(1)      # an optimizer's step
    torch.testing.assert_close(calls(xs[0], weight)[0], xs[0] * weight)
    assert calls.memory.recorded == 1


@pytest.mark.parametrize("layout", ["every second", "turned", "repeated", "repeated twice", "empty", "a number"])
def test_an_input_that_moves_keeps_its_strides(layout):
    """Kernels are compiled for them."""
    def made():
        x = torch.randn(6, 4)
        return {"every second": x[:, ::2], "turned": x.t(), "repeated": x[:1].expand(5, 4), "empty": x[:0],
                "repeated twice": x[0, 0].expand(2, 3), "a number": x[0, 0]}[layout]
    strides = made().stride()

    def double(x):
        assert x.stride() == strides
        return [x * 2]
    calls = Calls(double, 1)
    kept = [made() for _ in range(5)]
    for x in kept:
        torch.testing.assert_close(calls(x)[0], x * 2)
    assert calls.counts == (1, 4)


def test_an_input_that_moves_after_all_is_copied_from_then_on():
    weight = torch.randn(3)
    calls = Calls(lambda x, w: [x * w], 1)
    xs, weights = ([torch.randn(3) for _ in range(9)] for _ in range(2))
    for x in xs[:4]:
        calls(x, weight)
    for x, moved in zip(xs[4:], weights):
        torch.testing.assert_close(calls(x, moved)[0], x * moved)
    assert calls.memory.recorded == 2 and set(calls.run.recording.places) == {0, 1}


def test_an_input_that_has_moved_is_copied_even_if_it_stays_later():
    calls, weight = Calls(lambda x, w: [x * w], 1), torch.ones(2)
    for i in range(3):
        calls(full(i), weight)
    x = full(3)
    for _ in range(2):
        calls(x, full(1))
    x, weight = full(4), full(5)
    for _ in range(2):
        assert calls(x, weight)[0].tolist() == [20, 20]
    assert 0 in calls.run.recording.places and calls.memory.recorded == 2


def test_an_input_that_moved_once_is_read_where_it_is_then():
    weight = torch.randn(3)
    calls = Calls(lambda w: [w * 2], 1)
    for _ in range(3):
        calls(weight)
    moved = torch.randn(3)
    for _ in range(3):
        torch.testing.assert_close(calls(moved)[0], moved * 2)
    assert calls.counts == (2, 4) and not calls.run.recording.places


def test_one_call_with_others_inputs_changes_nothing():
    """A backward graph is called once with new memory if its forward graph was launched one by one."""
    kept = torch.randn(3)
    calls = Calls(lambda w: [w * 2], 1)
    for _ in range(3):
        calls(kept)
    for _ in range(5):
        other = torch.randn(3)
        torch.testing.assert_close(calls(other)[0], other * 2)
        torch.testing.assert_close(calls(kept)[0], kept * 2)
    assert calls.counts == (1, 7) and not calls.run.recording.places


def test_there_is_an_end_to_recording_again():
    calls = Calls(lambda *xs: [sum(xs)], 1)
    fixed, gone = [torch.ones(2) for _ in range(8)], []
    calls(*fixed)
    for i in range(8):
        for _ in range(2):
            gone.append(fixed[i])
            fixed[i] = torch.ones(2)
            assert calls(*fixed)[0].tolist() == [8, 8]
    assert calls.memory.recorded == ATTEMPTS


def test_the_last_recording_stays():
    calls = Calls(lambda x: [x * 2], 1)
    calls.run.attempts = ATTEMPTS - 1
    x = torch.ones(2)
    for _ in range(4):
        calls(x)
    assert calls.counts == (1, 3)


def test_inputs_in_other_memory_are_launched_with():
    calls = Calls(lambda x, y: [x + 1], 1)
    for _ in range(4):
        calls(torch.zeros(2), torch.empty(2, device="meta"))
    assert calls.memory.recorded == 0 and calls.launched == 4


# ---- inputs that the graph changes ---------------------------------------------------------------------------------
def test_inputs_are_changed_where_they_are_and_nothing_is_copied():
    total = torch.zeros(2)
    calls = Calls(lambda x, total: [total.add_(x) * 2], 1, changed=[1])
    at, versions = total.data_ptr(), []
    for i in range(6):
        assert calls(full(1), total)[0].tolist() == [2 * i + 2] * 2
        assert total.tolist() == [i + 1] * 2
        versions.append(total._version)
    assert calls.counts == (1, 5) and total.data_ptr() == at and 1 not in calls.run.recording.places
    assert versions == [1, 2, 3, 4, 5, 6]


def test_inputs_that_move_are_changed_as_well():
    calls = Calls(lambda x, total: [total.add_(x) * 2], 1, changed=[1])
    totals = [full(10 * i) for i in range(6)]
    for i, total in enumerate(totals):
        assert calls(full(1), total)[0].tolist() == [20 * i + 2] * 2
        assert total.tolist() == [10 * i + 1] * 2 and total._version == 1
    assert calls.counts == (1, 5) and set(calls.run.recording.places) == {0, 1}


def test_autograd_notices_what_a_replay_has_changed():
    x, total = full(3).requires_grad_(), torch.zeros(2)
    calls = Calls(lambda total: [total.add_(1).sum()], 1, changed=[0])
    calls(total)
    calls(total)
    loss = (x * total).sum()
    calls(total)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert calls.counts == (1, 2)


def test_a_module_that_cannot_be_recorded_changes_its_inputs_once():
    total = torch.zeros(2)
    calls = Calls(lambda x, total: [total.add_(x) * 2], 1, changed=[1])
    calls.memory.record = lambda *given: (_ for _ in ()).throw(RuntimeError("not permitted"))
    for i in range(4):
        calls(full(1), total)
        assert total.tolist() == [i + 1] * 2
