"""Calls that do not fit, modules that do not exist, and what else Python refuses or reads by name."""
from __future__ import annotations

import collections
import contextlib
import functools
import sys
import types
from typing import NamedTuple

import pytest
import torch
from harness import Programs, check, same

import sot

X = torch.arange(1.0, 5.0)
program = Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
@program.each
def test_with_backends(fn, backend):
    assert not same(sot.to_static(fn, backend=backend)(X.clone()), fn(X.clone()), "result")


def refused(f, *args, **kwargs):
    try:
        return f(*args, **kwargs)
    except TypeError as e:
        return str(e)


# ---- calls -------------------------------------------------------------------------------------------------------
class Layer:
    def __init__(self, size, *, bias):
        self.size = size

    def __call__(self, x, scale=1):
        return x * scale

    @staticmethod
    def plain(a, b):
        return a

    @classmethod
    def of(cls, a):
        return a


@program
def calls_of_functions(x):
    def f(a, b, /, c=3, *, d, e=5):
        return a

    def g(a):
        return a

    def h(*rest, k):
        return k

    return (x * 2, refused(f), refused(f, 1), refused(f, 1, 2), refused(f, 1, 2, d=4, z=1), refused(f, 1, 2, 3, 4, d=5),
            refused(f, 1, b=2, d=3), refused(f, a=1, b=2, d=3), refused(g, 1, 2, 3), refused(g, 1, a=2), refused(h, 1),
            refused(f, 1, 2, d=4))


@program
def calls_of_methods(x):
    made = Layer(2, bias=True)
    return (refused(Layer), refused(Layer, 1), refused(Layer, 1, 2, bias=3), refused(made), refused(made, x, 2, 3),
            refused(made, x, by=2), refused(made.plain, 1), refused(Layer.of), refused(Layer.of, 1, 2), x + 1)


@program
def calls_of_closures_and_generators(x):
    k = 3

    def rows(a):
        yield a * k

    return refused(lambda a: a * k), refused(rows), refused(rows, 1, 2), [*rows(x)]


@program
def calls_of_renamed_functions(x):
    def f(a):
        return a

    @functools.wraps(f)
    def g(b, c):
        return b

    g.__qualname__ = "another.name"
    return refused(g, x), refused(functools.partial(f, 1), 2), x * 2


@program
def a_call_that_fits_another_signature(x):
    def new(a, b):
        return a + b

    def old(a):
        return a * 2

    for f in (new, old):
        try:
            return f(x)
        except TypeError:
            continue


def test_a_default_that_is_deleted():
    def f(a, b=1):
        return a * b

    def run(x):
        return refused(f, x)
    check(run, X)
    translated = sot.to_static(run, backend="eager")
    assert torch.equal(translated(X), X)
    f.__defaults__ = None
    assert translated(X) == run(X)


# ---- imports -------------------------------------------------------------------------------------------------------
@program
def imports_that_fail(x):
    try:
        import a_module_that_is_missing.part as fast
    except ModuleNotFoundError as e:
        fast = e.name, e.path, e.msg, str(e), e.args
    try:
        import torch.a_missing_part  # noqa: F401
    except ImportError as e:
        return x * 2, fast, e.name, str(e)


@program
def an_optional_library(x):
    try:
        from another_missing_module import fused
    except ImportError:
        fused = None
    return fused(x) if fused else x.sin()


@program
def imports_by_the_builtin(x):
    of_part = __import__("os.path", fromlist=["join"])
    return (__import__("torch").cos(x), __import__("os.path").__name__, of_part.__name__,
            __import__("torch.nn.functional", globals(), locals(), ("relu",), 0).relu(x))


def test_a_module_that_appears(monkeypatch):
    def run(x):
        try:
            import a_module_that_appears as found
        except ImportError:
            return x
        return x * found.scale

    translated = sot.to_static(run, backend="eager")
    assert torch.equal(translated(X), X)
    module = types.ModuleType("a_module_that_appears")
    module.scale = 3
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert torch.equal(translated(X), X * 3)


def test_a_file_of_a_module_that_appears(tmp_path, monkeypatch):
    def run(x):
        try:
            import a_file_that_appears as found
        except ImportError:
            return x
        return x * found.scale

    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    translated = sot.to_static(run, backend="eager")
    assert torch.equal(translated(X), X)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a_file_that_appears.py").write_text("scale = 4\n")
    sys.path.append(str(other))
    try:
        assert torch.equal(translated(X), X * 4)
    finally:
        sys.modules.pop("a_file_that_appears", None)


# ---- by name and by index ------------------------------------------------------------------------------------------
class Position:
    def __init__(self, i):
        self.i = i

    def __index__(self):
        return self.i

    def __dir__(self):
        return ("b", "a")


@program
def indexed_by_objects(x):
    i = Position(1)
    return "text"[i], range(5)[i], b"ab"[i], (1, 2)[i], x * 2


@program
def listed_names(x):
    return dir(Position(1)), x + 1


@program
def named_tuples_with_defaults(x):
    Made = collections.namedtuple("Made", ["a", "b"], defaults=[1])
    return [*Made(x * 2)], Made(x, 2).b, Made._field_defaults


# ---- operations ----------------------------------------------------------------------------------------------------
def message(f):
    try:
        return f()
    except (RuntimeError, IndexError, ValueError, TypeError) as e:
        return type(e).__name__, str(e), e.args


@program
def operations_that_refuse(x):
    y = torch.ones(2, 2)
    return [message(f) for f in (
        lambda: x.view(3, 3), lambda: y @ torch.ones(3, 3), lambda: torch.cat([x, y]), lambda: y[2], lambda: y.sum(5),
        lambda: x + torch.ones(3), lambda: torch.stack([x, torch.ones(3)]), lambda: y.T.view(4), lambda: x.squeeze(3),
        lambda: torch.nn.functional.linear(x, torch.ones(2, 3)), lambda: x.expand(3, 3), lambda: y.permute(0, 0),
        lambda: torch.nn.functional.conv2d(x, y), lambda: x.unflatten(0, (3, 2)), lambda: y.transpose(0, 4))], x * 2


@program
def the_first_layout_that_fits(x):
    for shape in ((3, 3), (5, -1), (2, 2)):
        with contextlib.suppress(RuntimeError):
            return x.view(shape) * 2


@program
def a_fallback_after_changes(x):
    seen = []
    x.add_(1)
    try:
        seen.append("tried")
        x.add_(torch.ones(3, 3, 3))
        seen.append("never")
    except RuntimeError as e:
        seen.append(str(e))
        x.mul_(2)
    return x + 1, seen


@program
def chained_exceptions(x):
    try:
        try:
            x @ torch.ones(3, 2)
        except RuntimeError as e:
            raise ValueError("shapes") from e
    except ValueError as e:
        return x * 2, str(e.__cause__), e.__context__ is e.__cause__


def test_a_refusal_by_other_sizes():
    def run(x):
        try:
            return x.view(2, 2)
        except RuntimeError:
            return x * 2
    translated = sot.to_static(run, backend="eager")
    for n in (4, 5, 6, 4, 7, 8, 9, 4):
        assert torch.equal(translated(torch.ones(n)), run(torch.ones(n)))


def test_a_refusal_of_leaves():
    def run(w, x):
        try:
            w.add_(1)
        except RuntimeError as e:
            return (w * x).sum(), str(e)
    w = torch.ones(4, requires_grad=True)
    assert not same(sot.to_static(run, backend="eager")(w, X), run(w, X), "result")
    with torch.no_grad():
        assert sot.to_static(run, backend="eager")(w, X) is None


CALLED = []


@torch.library.custom_op("sot_refused::pick", mutates_args=())
def pick(x: torch.Tensor) -> torch.Tensor:
    CALLED.append(x.shape[0])
    if x.shape[0] == 3:
        raise ValueError("three")
    return x * 2


@pick.register_fake
def _(x):
    if x.shape[0] == 3:
        raise ValueError("three")
    return torch.empty_like(x)


def test_an_operator_of_the_program_is_called_by_the_program_only():
    def f(x):
        try:
            return pick(x)
        except ValueError as e:
            return x + len(str(e))
    translated = sot.to_static(f, backend="eager")
    for call in (f, translated):
        CALLED.clear()
        for _ in range(3):
            assert torch.equal(call(torch.ones(3)), torch.full((3,), 6.0))
        assert CALLED == [3, 3, 3]


class Two(NamedTuple):
    a: int
    b: int


WRONG = {
    "a list": lambda x: torch.full((2,), [1.0, 2.0]),
    "a tuple": lambda x: torch.full((2,), (1, 2)),
    "a size": lambda x: torch.full((2,), x.shape),
    "a named tuple": lambda x: torch.full((2,), Two(1, 2)),
    "a dict": lambda x: x.sum({"a": [1]}),
    "a slice": lambda x: x.sum(slice(1, 2)),
    "a list of tensors": lambda x: torch.full((2,), [x, x]),
    "a list in a list": lambda x: x.view([[1]]),
    "a weight": lambda x: torch.full((2,), WEIGHT),
    "a weight among others": lambda x: torch.relu(x, WEIGHT),
}
WEIGHT = torch.nn.Parameter(torch.ones(2), requires_grad=False)


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_messages_name_the_classes_of_arguments(call):
    def run(x):
        try:
            return call(x)
        except TypeError as e:
            return str(e)
    want = run(X)
    assert isinstance(want, str) and sot.to_static(run, backend="eager")(X) == want


def test_a_refusal_in_inference_mode():
    def run(x):
        try:
            with torch.inference_mode():
                return x + torch.ones(3)
        except RuntimeError as e:
            return str(e), x * 2
    translated = sot.to_static(run, backend="eager")
    assert not same(translated(X), run(X), "result")
    assert not any(capture.fallback for capture in translated.captures)


def test_a_number_that_is_too_large():
    def run(x, n):
        try:
            x += n
        except (RuntimeError, OverflowError) as e:
            return type(e), str(e), x * 2
        return x
    translated = sot.to_static(run, backend="eager")
    assert not same(translated(X.clone(), 3 << 70), run(X.clone(), 3 << 70), "result")
    assert not same(translated(X.long(), 3 << 70), run(X.long(), 3 << 70), "result")
    assert not any(c.stopped is not None and c.stopped.reason.name == "INTERNAL" for c in translated.captures)
