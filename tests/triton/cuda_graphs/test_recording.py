"""CUDA graphs: what can be recorded, and which calls are launched."""
from __future__ import annotations

import contextlib
import logging
import threading

import pytest
import torch

pytest.importorskip("triton", reason="the package triton is not installed")

from recorder import Calls, Memory, full

from sot.backends.triton.cuda_graphs import Recorded, RecordedBySizes


def test_the_generators_of_the_program_are_registered():
    generator = torch.Generator()
    calls = Calls(lambda x: [x + torch.rand(3, generator=generator)], 1, generators=[generator])
    generator.manual_seed(3)
    drawn = [calls(torch.zeros(3))[0].clone() for _ in range(4)]
    assert calls.memory.generators == [generator]
    generator.manual_seed(3)
    torch.testing.assert_close(drawn, [torch.rand(3, generator=generator) for _ in range(4)])


def test_what_cannot_be_recorded_is_launched(caplog):
    calls = Calls(lambda x: [x + 1], 1)

    def refuse(run, inputs, generators):
        calls.memory.recorded += 1
        run(inputs)
        raise RuntimeError("operation not permitted when stream is capturing")
    calls.memory.record = refuse
    with caplog.at_level(logging.DEBUG, logger="sot.backends"):
        results = [calls(full(i))[0][0].item() for i in range(5)]
    assert results == [1, 2, 3, 4, 5] and calls.memory.recorded == 1
    assert "recording failed: operation not permitted" in caplog.text


def test_results_in_other_memory_are_launched():
    """A tensor on the CPU would have the values of the recording."""
    calls = Calls(lambda x: [x + 1, torch.zeros(2, device="meta")], 2)
    for i in range(4):
        assert calls(full(i))[0].tolist() == [i + 1] * 2
    assert calls.memory.replayed == 0


def test_an_exception_of_the_program_leaves_a_recording_as_it_is():
    fails = []

    def failing(x):
        if fails:
            raise ValueError("the program's")
        return [x + 1]
    calls = Calls(failing, 1)
    x = full(1)
    calls(x)
    calls(x)
    fails.append(True)
    for _ in range(2):
        with pytest.raises(ValueError, match="the program's"):
            calls(full(2))
        assert not calls.run.busy.locked()
    fails.clear()
    assert calls(x)[0].tolist() == [2, 2]


def test_a_call_within_a_call_and_one_of_another_thread_are_launched():
    inner = []

    def nested(x):
        if x[0] == 3 and not inner:
            inner.append(None)
            inner[0] = calls(full(7))[0]
        return [x * 2]
    calls = Calls(nested, 1)
    for i in range(4):
        assert calls(full(i))[0].tolist() == [2 * i] * 2
    assert inner[0].tolist() == [14, 14]
    calls.run.busy.acquire(blocking=False)      # another thread is between its replay and what it hands out
    replayed, result = calls.memory.replayed, []
    thread = threading.Thread(target=lambda: result.extend(calls(full(4))))
    thread.start()
    thread.join(60)
    assert result[0].tolist() == [8, 8] and calls.memory.replayed == replayed


def test_each_replay_follows_the_last_one():
    """Inputs are copied to places that a replay on another stream may still read."""
    calls = Calls(lambda x: [x * 2], 1)
    order = []
    calls.memory.follow = lambda: order.append(calls.run.recording and calls.run.recording.places[0][0].item())
    for i in range(4):
        calls(full(i))
    assert order == [1, 1, 2], "before the copy of the input"


def test_results_of_inference_mode_are_not_handed_out_elsewhere():
    calls = Calls(lambda x: [x * 2], 1)
    x = full(1)
    for i in range(8):
        with torch.inference_mode() if i < 4 else contextlib.nullcontext():
            assert calls(x)[0].is_inference() == (i < 4)
    assert calls.memory.recorded == 2


def test_each_set_of_sizes_has_its_own_recording(monkeypatch):
    monkeypatch.setattr(RecordedBySizes, "LIMIT", 3)
    made: list[Memory] = []

    def double(inputs):
        return [inputs[0] * 2]

    def recorded():
        made.append(Memory())
        return Recorded(double, 1, made[-1])
    run = RecordedBySizes(double, recorded)
    for n in (2, 3, 1, 2, 3, 2, 3, 5, 5, 5):
        x = torch.randn(n)
        torch.testing.assert_close(run([x]), [x * 2])
    assert [memory.recorded for memory in made] == [1, 1, 0], "not for the fourth set"
