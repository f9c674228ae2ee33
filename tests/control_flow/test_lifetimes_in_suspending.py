"""A value dies where the generator or coroutine that is translated lets go of it, as in Python."""
import pytest
import torch
from harness import Programs

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


class Told:
    """Writes to a log when it dies."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(f"end of {self.name}")


def closing(log):
    try:
        yield 1
    finally:
        log.append("closed")


@program
def a_variable_that_is_bound_again(x, log):
    for i in range(3):
        made = closing(log)
        log.append(next(made))
        yield x + i


@program
def what_was_sent(x, log):
    sent = yield x + 1
    sent = None
    log.append((x + 2).sum().item())
    yield sent


async def awaited(x, log):
    for i in range(3):
        made = closing(log)
        log.append(next(made))
        await Pause()
        log.append((x + i).sum().item())


class Pause:
    def __await__(self):
        yield


def steps(fn, log):
    made = fn(X, log)
    made.send(None)
    for i in range(4):
        try:
            made.send(None if i else Told(log, "sent"))
        except StopIteration:
            break
    log.append("end")


@program.each
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_generators(fn, backend):
    translated, want = sot.to_static(fn, backend=backend), []
    steps(fn, want)
    for _ in range(2):
        log = []
        steps(translated, log)
        assert log == want


def test_coroutines():
    translated, want = sot.to_static(awaited, backend="eager"), []
    steps(awaited, want)
    for _ in range(2):
        log = []
        steps(translated, log)
        assert log == want
