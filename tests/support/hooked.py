"""Functions with entries, and callbacks for a while: what the tests of the frame hook are written with."""
import contextlib
import ctypes
import threading
from pathlib import Path

import pytest

from sot import _hook

# A small model as source: each program that executes it gets a new class, whose code the hook has not seen.
NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(8)])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu() + 1
        return x
"""


@contextlib.contextmanager
def callback_set(callback=lambda function, arguments: None):
    previous = _hook.set_callback(callback)
    try:
        yield
    finally:
        _hook.set_callback(previous)


@pytest.fixture(autouse=True)
def no_callback_left():
    yield
    assert _hook.set_callback(None) is None


def skipped(fn):
    _hook.skip(fn.__code__)
    return fn


def with_entries(fn, *entries):
    _hook.set_entries(fn.__code__, entries)
    return fn


def arguments_seen(fn, *args, **kwargs):
    """The arguments that the hook hands to an entry of fn."""
    seen = []
    with_entries(fn, lambda *arguments: seen.extend(arguments))
    with callback_set():
        fn(*args, **kwargs)
    return seen


class _Symbol(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("_base", ctypes.c_void_p), ("_name", ctypes.c_char_p),
                ("_address", ctypes.c_void_p)]


def evaluator():
    """The name of the binary whose evaluator is called for frames."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Main.restype = ctypes.c_void_p
    current = api._PyInterpreterState_GetEvalFrameFunc
    current.argtypes, current.restype = [ctypes.c_void_p], ctypes.c_void_p
    found = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(current(api.PyInterpreterState_Main())), ctypes.byref(found))
    return Path(found.file.decode()).name


def is_installed():
    return evaluator() == Path(_hook.__file__).name


def in_thread(fn):
    result = []
    thread = threading.Thread(target=lambda: result.append(fn()))
    thread.start()
    thread.join(300)
    return result[0]
