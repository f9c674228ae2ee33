"""Modes and wrappers around captured code: torch.compile inside, TorchFunctionMode, and what stays with Python."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import check
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import sot

X = torch.arange(12.0).reshape(3, 4) / 6


@torch.compile(backend="eager")
def compiled(x):
    return x.sin() * 2


@sot.not_to_static
def left_to_python(x):
    return compiled(x) + 1


def test_a_function_of_torch_compile_is_followed():
    check(lambda x: compiled(x) + 1, X, graphs=1, breaks=0)


def test_torch_compile_and_the_translator_leave_each_other_alone():
    check(lambda x: left_to_python(x * 2) + 1, X, graphs=2, breaks=1)


# ---- modes of __torch_function__
class Log(TorchFunctionMode):
    """Writes down what it is asked, and doubles what sin gives."""

    def __init__(self, log):
        self.log = log

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append((func.__name__, types, len(args), sorted(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


class Cosine(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return torch.cos(*args) if func is torch.sin else func(*args, **(kwargs or {}))


def operations(x):
    log = []
    with Log(log):
        y = torch.sin(x) + 1 - x * 2
        y = 2 - y / 3
        y[0] = x[1]
        y += x.T.mT.sum(dim=0).shape[0]
        z = F.relu(y, inplace=False), torch.ones(2, dtype=torch.int64), x.size(0), x.dtype, -y, y > 1, x.requires_grad
        a, b, c = F.softmax(x, -1)
        log.append("end")
        w = torch.stack([a, b, c]), len(y), nn.functional.linear(x, x)
    return log, y, z, w, x.sin()


def nested(x):
    with Cosine(), Log(log := []):
        return torch.sin(x), log


def in_a_function(x):
    def inner(v):
        return torch.sin(v)
    with Cosine():
        y = inner(x)
    return y, inner(x)


def a_mode_made_before(mode, x):
    with mode:
        return torch.sin(x) + len(x)


class Index(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__getitem__ and isinstance(args[1], int):
            return args[0].select(0, -args[1] - 1)
        return func(*args, **(kwargs or {}))


def writes_of_python(x):
    with Index():
        rows = [x[0], x[1] + 1]
        rows.append(x[-1:])
    return rows


@pytest.mark.parametrize("fn", [operations, nested, in_a_function, writes_of_python], ids=lambda f: f.__name__)
def test_a_mode_sees_every_operation(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_mode_from_outside():
    check(a_mode_made_before, Cosine(), X, graphs=1, breaks=0)


class Refuses(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            raise ValueError("no sines")
        return func(*args, **(kwargs or {}))


def breaks_under_a_mode(x):
    with Cosine():
        y = torch.sin(x)
        n = y.sum().item()
        z = torch.sin(y) * n
    return z, torch.sin(x)


def errors_under_a_mode(x):
    try:
        with Refuses():
            return x * 2, torch.sin(x)
    except ValueError as e:
        return str(e), torch.sin(x)


@pytest.mark.parametrize("fn", [breaks_under_a_mode, errors_under_a_mode], ids=lambda f: f.__name__)
def test_a_break_under_a_mode_keeps_the_mode(fn):
    check(fn, X)
    assert torch._C._len_torch_function_stack() == 0


# ---- a device as a context
CPU = torch.device("cpu")


def on_a_device(x):
    with torch.device("meta") as device:
        made = torch.zeros(3), torch.tensor([1.0]), torch.arange(3), torch.nn.Linear(4, 4).weight
        there, here, default = [m.device for m in made], torch.ones(2, device="cpu"), torch.get_default_device()
        y = x * 2 + torch.zeros_like(x)
    return there, here, y, device, default, torch.zeros(1), torch.get_default_device()


def on_devices_within_devices(x):
    try:
        with CPU, torch.device("meta"):
            device = torch.ones(2).device
            raise ValueError("left")
    except ValueError as e:
        return str(e), device, torch.ones(4) + x


@pytest.mark.parametrize("fn", [on_a_device, on_devices_within_devices], ids=lambda f: f.__name__)
def test_a_device_is_a_mode(fn):
    check(fn, X, graphs=1, breaks=0)


def test_a_break_on_a_device_stays_there():
    def fn(x):
        with torch.device("meta"):
            y = x + 1
            sot.graph_break()
            z = torch.zeros(4)
        return y, z.device, torch.zeros(2)
    check(fn, X, breaks=1)


class Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 1


def test_a_mode_below_the_operations_is_a_break():
    def dispatched(x):
        with Dispatches():
            return x.sin() + 1
    check(dispatched, X)
    assert torch._C._len_torch_dispatch_stack() == 0
