"""Signals that arrive while a function is captured: their handlers run between two instructions of the program, never
where torch's C++ has called Python, since an exception there may end the process."""
import signal
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sot

X = torch.arange(3.0)


def program(x):
    return (x * 2).sin() + x.cos() * 3


class Alarm(Exception):
    """Raised by a handler of the program."""


@pytest.fixture(autouse=True)
def interrupts_raise():
    """Also where the test run was started with interrupts ignored, as a job in the background is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def arriving(monkeypatch):
    """Sends this process a signal within operations of the next capture; says how many have begun and ended."""
    numbers, dispatch = [0, 0], FakeTensorMode.__torch_dispatch__

    def called_by_torch(self, *args, **kwargs):
        numbers[0] += 1
        if numbers[0] in at:
            signal.raise_signal(number)
        result = dispatch(self, *args, **kwargs)
        numbers[1] += 1
        return result

    def arrive(which=signal.SIGINT, operations=(3,)):
        nonlocal number, at
        number, at = which, operations
        monkeypatch.setattr(FakeTensorMode, "__torch_dispatch__", called_by_torch)
        return numbers
    number, at = 0, ()
    return arrive


@pytest.fixture
def handled():
    """Sets the handler of a signal; sets the old ones back."""
    before = {}

    def set_handler(number, handler):
        before.setdefault(number, signal.getsignal(number))
        signal.signal(number, handler)
    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_waits_for_the_end_of_an_operation(arriving, monkeypatch):
    begun = arriving()
    f = sot.to_static(program, backend="eager")
    with pytest.raises(KeyboardInterrupt):
        f(X)
    assert begun == [3, 3]
    torch.testing.assert_close(f(X), program(X))
    assert f.captures[-1].graph is not None and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("raised", [Alarm, SystemExit])
def test_what_a_handler_raises_reaches_the_program(raised, arriving, handled):
    def handler(number, frame):
        raise raised("late")
    handled(signal.SIGUSR1, handler)
    arriving(signal.SIGUSR1)
    f = sot.to_static(program, backend="eager")
    with pytest.raises(raised, match="late"):
        f(X)
    torch.testing.assert_close(f(X), program(X))
    assert not f.captures[-1].fallback


def test_a_handler_that_raises_nothing_runs_and_the_capture_goes_on(arriving, handled):
    seen = []
    handled(signal.SIGUSR1, lambda number, frame: seen.append(number))
    arriving(signal.SIGUSR1, (2, 4))
    f = sot.to_static(program, backend="eager")
    torch.testing.assert_close(f(X), program(X))
    assert seen == [signal.SIGUSR1] * 2 and len(f.captures) == 1


def test_a_signal_in_the_last_operation_is_not_lost(arriving):
    f = sot.to_static(lambda x: x.sin(), backend="eager")
    assert arriving(signal.SIGINT, (1,)) == [0, 0]
    with pytest.raises(KeyboardInterrupt):
        f(X)
    torch.testing.assert_close(f(X), X.sin())


def test_backends_see_signals_at_once():
    """Compiling may take minutes, and a backend may wait for processes."""
    def backend(module, inputs):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            seen.append("at once")
        return module.forward
    seen = []
    f = sot.to_static(program, backend=backend)
    torch.testing.assert_close(f(X), program(X))
    assert seen == ["at once"]
    f = sot.to_static(program, backend=lambda module, inputs: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        f(X)


def test_a_capture_in_another_thread_does_not_hold_up_the_main_one(arriving):
    """Python handles signals in the main thread, which does not capture."""
    failed = []

    def capture():
        try:
            torch.testing.assert_close(sot.to_static(program, backend="eager")(X), program(X))
        except BaseException as e:  # noqa: BLE001 - to be shown
            failed.append(e)
    arriving()
    thread = threading.Thread(target=capture)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        thread.join(60)
        signal.raise_signal(signal.SIGINT)      # at the latest
    thread.join(60)
    assert not failed


def test_handlers_stay_what_they_are(handled):
    handled(signal.SIGUSR1, lambda *_: None)
    handled(signal.SIGUSR2, signal.SIG_IGN)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    flags = caught()
    sot.to_static(program, backend="eager")(X)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert caught() == flags


def caught():
    """What the system says of this process's signals."""
    with open("/proc/self/status") as status:
        return [line for line in status if line.startswith(("SigIgn", "SigCgt", "SigBlk"))]
