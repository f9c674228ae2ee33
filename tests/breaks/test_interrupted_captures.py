"""Ctrl-C or MemoryError at any point of a capture: torch's modes and the process are as they were, and calls go on."""
import gc
import os
import sys
import sysconfig

import pytest
import torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack

import sot
from sot import _hook
from sot.backends import BackendError
from sot.driver.translator import Translator
from sot.support.capture_lock import TURNS

LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
X = torch.arange(6.0).reshape(2, 3) / 3


def program(x):
    with torch.no_grad():
        y = torch.sin(x) + 1
    return y.sum() * x


def state():
    return (torch._C._len_torch_function_stack(), _len_torch_dispatch_stack(), torch.is_grad_enabled(),
            torch.get_default_dtype(), gc.isenabled(), gc.get_threshold(), type(torch.ones(2)), TURNS.is_mine(),
            _hook.get_callback())


class Interrupter:
    """Raises an exception at the n-th line that Python runs while a capture lasts."""

    def __init__(self, exception, n, monkeypatch):
        self.exception, self.left = exception, n
        # Kept alive: CPython 3.11 calls a borrowed trace function after it has made the frame's object, and finalizers
        # that the garbage collector runs there may end tracing by an exception.
        self.tracer = self.trace
        captured = Translator.take_turn

        def take_turn(*args):
            sys.settrace(self.tracer)
            try:
                return captured(*args)
            finally:
                sys.settrace(None)
        monkeypatch.setattr(Translator, "take_turn", take_turn)

    def trace(self, frame, event, arg):
        file = frame.f_code.co_filename
        if file.startswith(("<frozen", LIBRARY)) and "site-packages" not in file:
            return None     # Python's library holds locks of its own between two lines
        self.left -= 1
        if self.left == 0:
            raise self.exception
        return self.trace


@pytest.mark.slow
@pytest.mark.parametrize("exception", [KeyboardInterrupt, MemoryError])
def test_nothing_stays_behind(exception, monkeypatch):
    sot.to_static(lambda x: program(x) + 1, backend="eager")(X)     # what is imported and cached on first use
    before, want, n, finished = state(), program(X), 1, False
    while not finished:
        with monkeypatch.context() as patch:
            interrupter = Interrupter(exception, n, patch)
            f = sot.to_static(program, backend="eager")
            try:
                torch.testing.assert_close(f(X), want)
            except (exception, BackendError):     # of a backend that has no memory
                pass
            finished = interrupter.left > 0
        assert state() == before, f"after an interrupt at line {n}"
        n += 1 + n // 6
    torch.testing.assert_close(f(X), want)


def test_what_interrupts_the_setting_back_is_raised_when_it_is_done():
    tries = []

    def restore():
        tries.append(1)
        if len(tries) < 5:
            raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        _hook.undisturbed(restore, lambda: 3)
    assert len(tries) == 5
    tries.clear()
    with pytest.raises(ValueError, match="first"):
        _hook.undisturbed(restore, lambda: int("first"))
    assert _hook.undisturbed(lambda: None, int, "3") == 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_weights_can_be_swapped_after_a_capture(backend, trains, dynamic):
    m = torch.nn.Linear(3, 4)
    g = sot.to_static(m, backend=backend, dynamic=dynamic)
    for _ in range(3):
        y = g(X)
        if trains:
            y.sum().backward()
    m.zero_grad()
    del y
    torch.utils.swap_tensors(m.weight, torch.nn.Parameter(torch.ones(4, 3)))
    torch.testing.assert_close(g(X), torch.nn.functional.linear(X, torch.ones(4, 3), m.bias))
