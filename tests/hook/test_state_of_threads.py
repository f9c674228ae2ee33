"""What all threads share is left as it was, also where one capture waits for another one."""
import gc
import threading
import time

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
