"""What capture has found by name is what the next call finds by that name, or it is captured again.

Programs replace functions while they run, test suites all the time: functions of C, builtins, methods of tensors,
modules. Each case calls a translated function, replaces what a name stands for, calls it again, and once more when the
name stands for what it did before.
"""
import builtins
import contextlib
import copy
import functools
import io
import math
import operator
import os
import posixpath
import subprocess
import sys
import textwrap
import time
import types
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from harness import same

import sot
from sot.support.own_code import is_own

X = torch.arange(6.0).reshape(2, 3) / 3
MISSING = object()


@contextlib.contextmanager
def replaced(owner, name, value):
    before = vars(owner).get(name, MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def agree(fn, owner, name, value):
    """A function and its translation, before, while and after a name stands for something else."""
    g = sot.to_static(fn, backend="eager")
    before = fn(X)
    for _ in range(3):
        torch.testing.assert_close(g(X), before)
    with replaced(owner, name, value):
        expected, found, again = fn(X), g(X), g(X)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(again, expected)
    torch.testing.assert_close(g(X), before)


def joined(*parts):
    return "joined"


def uses_the_library(x):
    return x * len(textwrap.dedent("  a\n  b")) + len(os.path.join("a", "b"))


def reduces(x):
    return x * functools.reduce(operator.add, [1, 2, 3])


@pytest.mark.parametrize("owner, name, value, fn", [
    (math, "sqrt", lambda v: 100.0, lambda x: x * math.sqrt(4)),
    (math, "pi", 3.0, lambda x: x * math.pi),
    (time, "time", lambda: 5.0, lambda x: x * 0 + time.time() * 0 + (time.time() == 5.0)),
    (os.path, "exists", lambda p: True, lambda x: x * 2 if os.path.exists("/nowhere") else x),
    (posixpath, "join", joined, uses_the_library),
    (os, "getenv", lambda *a: "7", lambda x: x * float(os.getenv("SOT_NOT_SET", "1"))),
    (os, "fspath", lambda p: "longer than before", lambda x: x * len(os.path.join("a", "b"))),
    (operator, "add", lambda a, b: a * 10 + b, reduces),
    (functools, "reduce", lambda f, v: 7, reduces),
    (torch.cuda, "is_available", lambda: True, lambda x: x * 3 if torch.cuda.is_available() else x),
    (torch, "get_num_threads", lambda: 9, lambda x: x * torch.get_num_threads()),
    (torch.distributed, "is_initialized", lambda: True, lambda x: x * 5 if torch.distributed.is_initialized() else x),
    (torch, "relu", torch.sin, lambda x: torch.relu(x - 1)),
    (F, "gelu", F.relu, lambda x: F.gelu(x - 1)),
    (F, "gelu", mock.MagicMock(side_effect=torch.cos), lambda x: F.gelu(x - 1)),
], ids=lambda v: v if isinstance(v, str) else "")
def test_of_a_module(owner, name, value, fn):
    agree(fn, owner, name, value)


@pytest.mark.parametrize("name, value, fn", [
    ("len", lambda v: 50, lambda x: x * len([1, 2]) + max(1, 2)),
    ("max", lambda *v: 50, lambda x: x * len([1, 2]) + max(1, 2)),
    ("isinstance", lambda v, c: False, lambda x: x * 2 if isinstance(x, torch.Tensor) else x),
    ("range", lambda n: [5, 6], lambda x: sum((x * i for i in range(3)), x)),
    ("float", lambda v: 8.0, lambda x: x * float("2")),
    ("type", lambda v: int, lambda x: x * (2 if type(x) is int else 3)),
    ("sorted", lambda v: [9], lambda x: x * sorted([3, 2])[0]),
    ("new_builtin", 3.0, lambda x: x * getattr(builtins, "new_builtin", 1)),
], ids=lambda v: v if isinstance(v, str) else "")
def test_builtins(name, value, fn):
    agree(fn, builtins, name, value)


def test_a_name_that_appears():
    def f(x):
        try:
            return x * appearing  # noqa: F821
        except NameError:
            return x - 1
    agree(f, builtins, "appearing", 4.0)
    agree(f, sys.modules[__name__], "appearing", 5.0)
    agree(lambda x: x * getattr(math, "appearing", 2), math, "appearing", 5.0)


def test_a_print_of_the_program():
    """Whoever replaces ``print`` is still captured."""
    said = []
    with replaced(builtins, "print", lambda *v: said.append(v)):
        f = sot.to_static(lambda x: (print("a"), x + 1)[1], backend="eager")
        f(X), f(X)
    assert ("a",) in said


@pytest.mark.parametrize("name, value, fn", [
    ("sin", lambda s: s * 100, lambda x: x.sin() + 1),
    ("reshape", lambda s, *a: s * 7, lambda x: x.reshape(-1)),
    ("dim", lambda s: 7, lambda x: x * x.dim()),
    ("ndim", property(lambda s: 7), lambda x: x * x.ndim),
    ("T", property(lambda s: s * 7), lambda x: x.T),
    ("__add__", lambda s, o: s * 100, lambda x: x + 1),
    ("__radd__", lambda s, o: s * 100, lambda x: 1 + x),
    ("__neg__", lambda s: s * 100, lambda x: -x),
    ("__lt__", lambda s, o: s * 7, lambda x: x < 2),
    ("__truediv__", lambda s, o: s * 7, lambda x: x / 2),
    ("__len__", lambda s: 7, lambda x: x * len(x)),
    ("__iter__", lambda s: iter([s.reshape(-1)]), lambda x: torch.cat([*x])),
    ("brand_new", lambda s: s * 3, lambda x: x.brand_new() if hasattr(x, "brand_new") else x),
], ids=lambda v: v if isinstance(v, str) else "")
def test_of_tensors(name, value, fn):
    agree(fn, torch.Tensor, name, value)


SUBSCRIPTS = """
import torch, sot
f, x = sot.to_static(lambda x: x[0], backend="eager"), torch.arange(6.0).reshape(2, 3)
assert torch.equal(f(x), x[0]) and torch.equal(f(x), x[0])
torch.Tensor.__getitem__ = lambda s, o: s * 100
assert torch.equal(f(x), x * 100) and torch.equal(f(x), x * 100)
del torch.Tensor.__getitem__
assert torch.equal(f(x), x[0])
"""


@pytest.mark.slow
def test_subscripts_of_tensors():
    """In a process of its own: CPython leaves the class a slot of sequences, by which torch takes numbers for lists."""
    done = subprocess.run([sys.executable, "-c", SUBSCRIPTS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def module(name, **contents):
    made = types.ModuleType(name)
    vars(made).update(contents)
    return made


@pytest.mark.parametrize("names", [("m_replaced",), ("m_replaced.inner", "m_replaced")], ids=str)
def test_modules_that_a_function_imports(names):
    def whole(x):
        import m_replaced
        return x * m_replaced.v

    def part(x):
        from m_replaced import v
        return x * v

    def inner(x):
        import m_replaced.inner as i
        from m_replaced import inner as j
        return x * i.v + j.v

    def made(v):
        below = module("m_replaced.inner", v=v + 1)
        return {"m_replaced": module("m_replaced", v=v, inner=below, __path__=[]), "m_replaced.inner": below}

    for fn in (whole, part, inner):
        g = sot.to_static(fn, backend="eager")
        for modules in (made(2.0), made(3.0)):
            with mock.patch.dict(sys.modules, modules):
                for _ in range(2):
                    torch.testing.assert_close(g(X), fn(X))
        with mock.patch.dict(sys.modules, {**made(4.0), "m_replaced": None}), pytest.raises(ImportError):
            g(X)


def test_an_import_that_the_program_replaces():
    def f(x):
        import math as m
        return x * m.tau
    agree(f, builtins, "__import__", lambda *a: module("other", tau=2.0))


def test_modules_that_the_function_itself_puts_in_place(tmp_path, backend):
    """An import sees what the function has done before it."""
    (tmp_path / "m_on_the_path.py").write_text("v = 3.0")
    made = module("m_put_in_place", v=2.0)

    def f(x):
        sys.modules["m_put_in_place"] = made
        try:
            import m_put_in_place
            y = x * m_put_in_place.v
        finally:
            del sys.modules["m_put_in_place"]
        try:
            import m_put_in_place
        except ImportError as e:
            return y, str(e)

    def g(x):
        sys.path.insert(0, str(tmp_path))
        try:
            import m_on_the_path
            return x * m_on_the_path.v
        finally:
            sys.path.pop(0)
            sys.modules.pop("m_on_the_path", None)

    def h(x):
        before = sys.modules.pop("json")
        sys.modules["json"] = None
        try:
            import json
        except ImportError as e:
            return x + 1, str(e)
        finally:
            sys.modules["json"] = before
        return json

    for fn in f, g, h:
        translated = sot.to_static(fn, backend=backend)
        for _ in range(3):
            assert not same(translated(X), fn(X))


class Base:
    pass


class Derived(Base):
    def __init__(self):
        self.here = 3.0


@pytest.mark.parametrize("owner", [Base, Derived])
def test_an_attribute_that_a_class_gains(owner):
    made = Derived()
    agree(lambda x: x * getattr(made, "gained", 1.0), owner, "gained", 6.0)
    agree(lambda x: x * made.here, owner, "here", property(lambda self: 7.0, lambda self, v: None))


@pytest.mark.parametrize("settings", [{}, {"control_flow": "graph", "dynamic": False}], ids=["breaks", "graph"])
@pytest.mark.parametrize(("owner", "name"), [
    (copy, "copy"), (copy, "deepcopy"), (math, "copysign"), (math, "prod"), (math, "isfinite"), (time, "perf_counter"),
    (time, "monotonic")], ids=lambda v: getattr(v, "__name__", v))
def test_captures_do_not_call_what_the_program_has_replaced(owner, name, settings):
    """A mock counts its calls, or answers from a list. torch calls some of them itself."""
    original = getattr(owner, name)

    def stand_in(*args):
        assert not is_own(sys._getframe(1).f_code.co_filename)
        return original(*args)

    def f(x, k):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            print(x.sum(), flush=True)
        if x.max() > 100:
            raise ValueError("too large")
        if x.sum() > 1:
            x = x + 1
        draws = np.random.default_rng(7)
        return x * k + draws.random() + {0.5: 1, -0.0: 2}.get(k, 3), out.getvalue()

    with replaced(owner, name, stand_in):
        translated = sot.to_static(f, backend="eager", **settings)
        for args in ((X, -0.0), (X, 0.0), (X[:1], 0.5), (X, 0.25), (X.double(), 3)):
            result, text = translated(*args)
            expected, printed = f(*args)
            assert torch.equal(result, expected) and text == printed
    assert not any(capture.fallback for capture in translated.captures)
