"""What all threads share is left as it was, also where one capture waits for another one."""
import gc
import threading
import time

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sot


def test_the_collector_is_on_after_a_capture_that_has_waited_for_another(monkeypatch):
    dispatch, begun, go_on = FakeTensorMode.__torch_dispatch__, threading.Event(), threading.Event()

    def slow(self, *args, **kwargs):
        begun.set()
        go_on.wait(60)
        return dispatch(self, *args, **kwargs)
    monkeypatch.setattr(FakeTensorMode, "__torch_dispatch__", slow)
    programs = [sot.to_static(f, backend="eager") for f in (lambda x: x + 1, lambda x: x + 2)]
    results: dict[int, torch.Tensor] = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: programs[i](torch.ones(2))})) for i in (0, 1)]
    assert gc.isenabled()
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    time.sleep(0.2)         # the second one waits for the first
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert gc.isenabled()
    assert results[0].tolist() == [2, 2] and results[1].tolist() == [3, 3]


def compiling_at(own=None):
    """A translation by a backend that compiles, and the thresholds of the collector that it finds. It sets them to
    ``own``.
    """
    found = []

    def backend(gm, example_inputs):
        found.append(gc.get_threshold())
        if own:
            gc.set_threshold(*own)
        return lambda *inputs: gm(*inputs)
    program = sot.to_static(lambda x: x.sin() + 1, backend=backend)
    program(torch.ones(2))      # now the backend is known to compile
    found.clear()
    return program, found


@pytest.mark.parametrize("own, sees", [
    pytest.param((700, 11, 12), (500_000, 11, 12), id="rarely, while a backend compiles"),
    pytest.param((0, 11, 12), (0, 11, 12), id="never, as the program wants"),
    pytest.param((10**6, 11, 12), (10**6, 11, 12), id="more rarely, as the program wants"),
])
def test_when_the_collector_runs_is_as_it_was_after_a_compilation(own, sees):
    before = gc.get_threshold()
    try:
        gc.set_threshold(*own)
        program, found = compiling_at()
        program(torch.ones(2, 2))
        assert found == [sees]
        assert gc.get_threshold() == own
    finally:
        gc.set_threshold(*before)


def test_thresholds_of_the_collector_that_a_backend_sets_stay():
    before = gc.get_threshold()
    try:
        program, _ = compiling_at((555, 5, 5))
        program(torch.ones(2, 2))
        assert gc.get_threshold() == (555, 5, 5)
    finally:
        gc.set_threshold(*before)
