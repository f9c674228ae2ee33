"""CUDA graphs without CUDA: a recorder that runs the same function again, into the same memory."""
from __future__ import annotations

import ctypes
import logging

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed")

from sot.backends.triton.cuda_graphs import ATTEMPTS, Recorded, RecordedBySizes


class Memory:
    """Records like CUDA: a replay works on the memory that was there when it was recorded."""

    def __init__(self) -> None:
        self.recorded, self.replayed, self.generators = 0, 0, []

    def records(self, tensor):
        return tensor.device.type == "cpu"

    def record(self, run, inputs, generators):
        self.recorded += 1
        self.generators = list(generators)
        places = [unheld(v) for v in inputs]
        results = run(inputs)

        def replay():
            self.replayed += 1
            for old, new in zip(results, run(list(places))):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        return results, replay


def unheld(tensor):
    """The same memory, which is free to go: a CUDA graph holds nothing but addresses."""
    memory = (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=torch.float32).as_strided(tensor.shape, tensor.stride())


class Calls:
    """A module's function under test, and what it was given."""

    def __init__(self, fn, visible, **more) -> None:
        self.memory, self.launched = Memory(), 0
        self.fn = fn
        self.run = Recorded(self._launch, visible, graphs=self.memory, **more)

    def _launch(self, inputs):
        self.launched += 1
        given = list(inputs)
        inputs.clear()
        return self.fn(*given)

    def __call__(self, *args):
        return self.run(list(args))


def test_inputs_that_move_are_copied_and_the_others_read_where_they_are():
    weight = torch.randn(3)
    calls = Calls(lambda x, w: [x * w], 1)
    xs = [torch.randn(3) for _ in range(6)]
    results = [calls(x, weight)[0] for x in xs]
    torch.testing.assert_close(results, [x * weight for x in xs])
    assert (calls.memory.recorded, calls.memory.replayed) == (1, 5)
    assert set(calls.run.recording.places) == {0} and set(calls.run.recording.addresses) == {1}
    weight.add_(1)      # an optimizer's step
    torch.testing.assert_close(calls(xs[0], weight)[0], xs[0] * weight)
    assert calls.memory.recorded == 1


def test_results_that_the_program_keeps_stay_as_they_are():
    calls = Calls(lambda x: [x + 1], 1)
    xs = [torch.full((2,), float(i)) for i in range(5)]
    kept = [calls(x)[0] for x in xs]
    assert [k[0].item() for k in kept] == [1, 2, 3, 4, 5]


def test_nothing_is_replayed_over_what_autograd_keeps():
    calls = Calls(lambda x: [x.sum(), x * 2], 1)        # a loss, and what is kept for the backward graph
    xs = [torch.full((2,), float(i)) for i in range(6)]
    calls(xs[0])
    kept = [calls(x)[1] for x in xs[1:4]]       # three forward passes, no backward pass in between
    assert [k[0].item() for k in kept] == [2, 4, 6]
    assert calls.memory.replayed == 1
    del kept
    assert calls(xs[4])[1][0].item() == 8
    assert calls.memory.replayed == 2


def test_what_the_forward_graph_keeps_is_not_copied_for_the_backward_graph():
    forward = Calls(lambda x: [x.sum(), x * 2], 1)
    backward = Calls(lambda kept, seed: [kept * seed], 1, after=3)
    xs, seeds = ([torch.full((2,), start + i) for i in range(7)] for start in (0.0, 3.0))
    for i in range(7):
        loss, kept = forward(xs[i])
        grad, = backward(kept, seeds[i])
        assert grad[0].item() == 2 * i * (3 + i)
        del kept, loss
    assert forward.memory.replayed == 6 and backward.memory.replayed == 4
    assert set(backward.run.recording.addresses) == {0}


def test_a_result_that_is_an_input_is_the_input_of_this_call():
    weight = torch.randn(2, 3)
    calls = Calls(lambda x, w: [x @ w, w.t(), x], 1)
    for i in range(4):
        x = torch.full((1, 2), float(i))
        result, turned, same = calls(x, weight)
        torch.testing.assert_close((result, turned, same), (x @ weight, weight.t(), x))
        assert turned.data_ptr() == weight.data_ptr()
        del result, turned, same


def test_an_input_that_moves_after_all_is_copied_from_then_on():
    weight = torch.randn(3)
    calls = Calls(lambda x, w: [x * w], 1)
    xs = [torch.randn(3) for _ in range(9)]
    for x in xs[:4]:
        calls(x, weight)
    for x in xs[4:]:
        moved = torch.randn(3)
        torch.testing.assert_close(calls(x, moved)[0], x * moved)
    assert calls.memory.recorded == 2 and set(calls.run.recording.places) == {0, 1}


def test_the_generators_of_the_program_are_registered():
    generator = torch.Generator()
    calls = Calls(lambda x: [x + torch.rand(3, generator=generator)], 1, generators=[generator])
    for _ in range(3):
        calls(torch.zeros(3))
    assert calls.memory.generators == [generator]


def test_inputs_in_other_memory_are_launched_with():
    calls = Calls(lambda x, y: [x + 1], 1)
    for _ in range(4):
        calls(torch.zeros(2), torch.empty(2, device="meta"))
    assert calls.memory.recorded == 0 and calls.launched == 4


def test_what_cannot_be_recorded_is_launched(caplog):
    calls = Calls(lambda x: [x + 1], 1)

    def refuse(run, inputs, generators):
        calls.memory.recorded += 1
        raise RuntimeError("operation not permitted when stream is capturing")
    calls.memory.record = refuse
    with caplog.at_level(logging.DEBUG, logger="sot.backends"):
        results = [calls(torch.full((1,), float(i)))[0].item() for i in range(5)]
    assert results == [1, 2, 3, 4, 5] and calls.memory.recorded == 1
    assert "recording failed: operation not permitted" in caplog.text


def test_there_is_an_end_to_recording_again():
    calls = Calls(lambda *xs: [sum(xs)], 1)
    fixed = [torch.ones(2) for _ in range(8)]
    calls(*fixed)
    calls(*fixed)
    for i in range(8):
        fixed[i] = torch.ones(2)
        assert calls(*fixed)[0].tolist() == [8, 8]
    assert calls.memory.recorded == ATTEMPTS + 1


def test_each_set_of_sizes_has_its_own_recording(monkeypatch):
    monkeypatch.setattr(RecordedBySizes, "LIMIT", 3)
    made: list[Memory] = []

    def double(inputs):
        return [inputs[0] * 2]

    def recorded():
        made.append(Memory())
        return Recorded(double, 1, graphs=made[-1])
    run = RecordedBySizes(double, recorded)
    for n in (2, 3, 1, 2, 3, 2, 3, 5, 5, 5):
        x = torch.randn(n)
        torch.testing.assert_close(run([x]), [x * 2])
    assert [memory.recorded for memory in made] == [1, 1, 0], "not for the fourth set"
