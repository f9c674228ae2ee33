"""Run a function plainly and translated, and compare everything a program can see.

``check`` is the specification's verb: results, mutated arguments, output, exceptions, gradients and random numbers of
the translated function are those of plain Python, on the first call and on the next, which captures nothing new.
"""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sot.frontend.api
from sot.backends import lookup_backend


def every_call(name: str) -> Callable[..., Any]:
    """A backend by its name that compiles the graph of each call, also of a first call like no later one."""
    backend = lookup_backend(name)
    return lambda gm, inputs: backend(gm, inputs)


class Counter:
    """A backend that keeps the graphs it gets and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Callable:
        self.graphs.append(gm)
        return gm.forward

    @property
    def operations(self) -> int:
        return sum(n.op in ("call_function", "call_method") for g in self.graphs for n in g.graph.nodes)


class Programs:
    """Functions that the same test is about: a decorator collects them, and ``each`` hands every one to the test."""

    def __init__(self) -> None:
        self.all: list[Callable] = []

    def __call__(self, fn: Callable) -> Callable:
        self.all.append(fn)
        return fn

    @property
    def each(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize("fn", self.all, ids=lambda fn: fn.__name__)


class Calls:
    """The same with arguments of each function's own: ``@calls(1, "a")``; the test takes ``fn`` and ``args``."""

    def __init__(self) -> None:
        self.all: list[tuple[Callable, tuple]] = []

    def __call__(self, *args: Any) -> Callable[[Callable], Callable]:
        def register(fn: Callable) -> Callable:
            self.all.append((fn, args))
            return fn
        return register

    @property
    def each(self) -> pytest.MarkDecorator:
        return pytest.mark.parametrize("fn, args", self.all, ids=lambda v: getattr(v, "__name__", ""))


def caught(fn: Callable, *args: Any) -> Any:
    """The result of a call, or what it raised: for programs that look at their own exceptions."""
    try:
        return fn(*args)
    except Exception as e:  # noqa: BLE001 - any, to be compared
        return type(e).__name__, str(e)


def chain(e: BaseException | None) -> Any:
    """An exception with all that hangs on it."""
    if e is None:
        return None
    return type(e).__name__, e.args, chain(e.__cause__), chain(e.__context__), e.__suppress_context__


@dataclasses.dataclass
class Outcome:
    """What one call did."""

    result: Any = None
    raised: BaseException | None = None
    printed: str = ""
    args: Any = None
    random: Any = None
    grads: Any = None


def outcome(fn: Callable, args: tuple, kwargs: dict) -> Outcome:
    torch.manual_seed(0)
    out = Outcome(args=(args, kwargs))
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        try:
            out.result = fn(*args, **kwargs)
        except Exception as e:  # noqa: BLE001 - to be compared
            out.raised = e
    out.printed = stream.getvalue()
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad and t.is_leaf]
    loss = [t.float().sum() for t in tensors(out.result) if t.requires_grad]
    if loss and leaves:
        sum(loss).backward()
        out.grads = [t.grad for t in leaves]
    out.random = torch.rand(2)
    return out


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, (list, tuple, set)):
        return [t for v in value for t in tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return []


def same(a: Any, b: Any, path: str = "result", seen: set | None = None) -> str | None:
    """Where two values differ, or None."""
    seen = set() if seen is None else seen
    if (id(a), id(b)) in seen:
        return None
    seen.add((id(a), id(b)))
    if type(a) is not type(b) and not made_for_one_object(type(a), type(b)):
        return f"{path}: {type(a)} is not {type(b)}"
    if isinstance(a, weakref.ref):
        return same(a(), b(), f"{path}()", seen)
    if isinstance(a, torch.Generator):
        return same(a.get_state(), b.get_state(), f"{path}.get_state()", seen)
    if isinstance(a, torch.Tensor) and (parts := parts_of(a)) is not None:
        return same((a.dtype, a.dim(), a.requires_grad, *parts), (b.dtype, b.dim(), b.requires_grad, *parts_of(b)),
                    path, seen)
    if isinstance(a, torch.Tensor):
        if (a.dtype, a.shape, a.requires_grad, a.stride()) != (b.dtype, b.shape, b.requires_grad, b.stride()):
            return f"{path}: {a.dtype} {a.shape} {a.requires_grad} is not {b.dtype} {b.shape} {b.requires_grad}"
        return None if torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True) else f"{path}: values"
    if isinstance(a, np.ndarray):
        if (a.dtype, a.shape, a.strides, a.flags.writeable) != (b.dtype, b.shape, b.strides, b.flags.writeable):
            return f"{path}: {a.dtype} {a.shape} {a.strides} is not {b.dtype} {b.shape} {b.strides}"
        return None if np.array_equal(a, b, equal_nan=a.dtype.kind == "f") else f"{path}: values"
    if isinstance(a, (list, tuple, deque)):
        if len(a) != len(b):
            return f"{path}: length {len(a)} is not {len(b)}"
        return first(same(p, q, f"{path}[{i}]", seen) for i, (p, q) in enumerate(zip(a, b)))
    if isinstance(a, dict):
        if len(a) != len(b) or not all(isinstance(k, type) or same_key(k, l, seen) for k, l in zip(a, b)):
            return f"{path}: keys {list(a)} are not {list(b)}"
        return first(same(p, q, f"{path}[{k!r}]", seen) for (k, p), q in zip(a.items(), b.values()))
    if isinstance(a, BaseException):
        return first((same(a.args, b.args, f"{path}.args", seen),
                      same(a.__cause__, b.__cause__, f"{path}.__cause__", seen),
                      same(a.__context__, b.__context__, f"{path}.__context__", seen)))
    if type(a).__eq__ is object.__eq__ and hasattr(a, "__dict__"):
        return same(vars(a), vars(b), f"{path}.__dict__", seen) if not callable(a) or isinstance(
            a, torch.nn.Module) else None
    return None if a == b or (a != a and b != b) else f"{path}: {a!r} is not {b!r}"


def made_for_one_object(a: type, b: type) -> bool:
    """Is it one class by its name, made anew for each of its objects (a traced module, a parametrized one)?"""
    return issubclass(a, torch.nn.Module) and (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def same_key(a: Any, b: Any, seen: set) -> bool:
    return not same(a, b, "key", seen) if isinstance(a, torch.Tensor) else a == b


def parts_of(t: torch.Tensor) -> list[Any] | None:
    """The tensors that make up one that is not strided, or that wraps others; otherwise None."""
    if t.layout is torch.sparse_coo:
        return [t.shape, t._indices(), t._values(), t.is_coalesced()]
    if t.layout in (torch.sparse_csr, torch.sparse_csc):
        return [t.shape, t.values(), t.to_dense()]
    if t.is_nested:
        return list(t.unbind())
    if hasattr(t, "__tensor_flatten__"):
        names, context = t.__tensor_flatten__()
        return [t.shape, context, *(getattr(t, name) for name in names)]
    return None


def first(found: Any) -> str | None:
    return next((f for f in found if f), None)


def check(fn: Callable, *args: Any, graphs: int | None = None, breaks: int | None = None, again: bool = True,
          kwargs: dict | None = None, settings: dict | None = None) -> sot.frontend.api.StaticFunction:
    """Compare; ``graphs`` and ``breaks`` are what the first call must take. ``again``: call twice. ``settings`` are
    those of to_static.
    """
    kwargs = kwargs or {}
    backend = Counter()
    original = copy.deepcopy(fn) if isinstance(fn, torch.nn.Module) else fn
    translated = sot.to_static(fn, backend=backend, **(settings or {}))
    translation = sot.translation_of(translated)
    for call in range(2 if again else 1):
        mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
        want, got = outcome(original, *theirs), outcome(translated, *mine)
        captures = translation.captures
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            differs = same(getattr(got, name), getattr(want, name), name)
            if name == "raised" and differs and got.raised is not None:
                raise got.raised
            assert not differs, f"call {call}: {differs}"
        internal = [c for c in captures if c.stopped is not None and c.stopped.reason.name == "INTERNAL"]
        assert not internal, internal[0].stopped
        if call == 0:
            stops = [c.stopped for c in captures if c.stopped is not None]
            assert graphs is None or len(backend.graphs) == graphs, (len(backend.graphs), [str(s) for s in stops])
            assert breaks is None or len(stops) == breaks, [str(s) for s in stops]
            count = len(backend.graphs)
        else:
            assert len(backend.graphs) == count, f"the second call recompiled: {captures[-1].recompiled_because}"
    return translation


def check_by(backend: str, fn: Callable, *args: Any, breaks: int | None = None, calls: int = 3) -> None:
    """Compare with a backend by its name. ``breaks`` is what the first call must take."""
    translated = sot.to_static(fn, backend=backend)
    for call in range(calls):
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        want, got = outcome(fn, theirs, {}), outcome(translated, mine, {})
        for name in ("raised", "result", "printed", "args", "grads", "random"):
            differs = same(getattr(got, name), getattr(want, name), name)
            if name == "raised" and differs and got.raised is not None:
                raise got.raised
            assert not differs, f"call {call}: {differs}"
        stops = [str(c.stopped) for c in sot.translation_of(translated).captures if c.stopped is not None]
        assert call or breaks is None or len(stops) == breaks, stops


class Plain:
    """An object with whatever attributes it is given."""

    shared = [1, 2]

    def __init__(self, **kw):
        self.__dict__.update(kw)

    def method(self, x):
        return x * self.k
