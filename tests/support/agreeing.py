"""Functions with branches on tensors, called plainly and as one graph.

``agree`` calls a function plainly and translated, on arguments that take every way: results, gradients, exceptions and
random numbers are the same, and one graph serves all of them, whether the backend runs ``torch.cond`` and
``while_loop`` as torch does or as Python's own ``if`` and ``while``. ``refused`` is for those that cannot be one graph.
"""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from harness import Counter, outcome, same
from torch import nn

import sot
from sot.support.errors import CaptureError

UP, DOWN = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])
WAYS = ((UP,), (DOWN,))


class Failures(Counter):
    """A backend that runs graphs as torch does, and remembers where one raised: Python would run the frame then."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: list[Exception] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: Any) -> Callable:
        forward = super().__call__(gm, inputs)

        def run(*args: Any) -> Any:
            try:
                return forward(*args)
            except Exception as e:
                self.raised.append(e)
                raise
        return run


def targets(gm: torch.fx.GraphModule) -> list[str]:
    """The names of what a graph and its subgraphs call."""
    return [str(getattr(n.target, "__name__", n.target)) for m in gm.modules() if isinstance(m, torch.fx.GraphModule)
            for n in m.graph.nodes if n.op in ("call_function", "call_method")]


def fresh(args: tuple) -> tuple:
    return tuple(copy.deepcopy(a) for a in args)


def without_missing(grads: Any, like: Any) -> Any:
    """torch.cond gives zeros where plain Python gives no gradient."""
    return [torch.zeros_like(h) if g is None and h is not None else g for g, h in zip(grads or (), like or ())]


def agree(fn: Callable, *cases: tuple, uses: str = "cond") -> torch.fx.GraphModule:
    """The one graph of a function that agrees with plain Python on all cases."""
    counter = Failures()
    for backend in (counter, "eager"):
        original = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
        translated = sot.to_static(fn, full_graph=True, backend=backend)
        for case in cases:
            want, got = outcome(original, fresh(case), {}), outcome(translated, fresh(case), {})
            if got.raised is not None and want.raised is None:
                raise got.raised
            assert bool(counter.raised) == (want.raised is not None and backend is counter), counter.raised
            counter.raised.clear()
            for name in ("raised", "result", "printed", "args", "random"):
                assert (differs := same(getattr(got, name), getattr(want, name), name)) is None, (case, differs)
            expected = without_missing(want.grads, got.grads) if backend is counter else want.grads or []
            assert (differs := same(got.grads or [], expected, "grads")) is None, (case, differs)
        captures = sot.translation_of(translated).captures
        assert len(captures) == 1, [(c.name, str(c.stopped), c.recompiled_because) for c in captures]
    assert len(counter.graphs) == 1
    assert uses in targets(counter.graphs[0])
    return counter.graphs[0]


def refused(fn: Callable, *args: Any, naming: str, line: int) -> str:
    """The error of a function that cannot be one graph; without full_graph it breaks there, and is right."""
    with pytest.raises(CaptureError) as caught:
        sot.to_static(fn, full_graph=True)(*copy.deepcopy(args))
    message = str(caught.value)
    assert naming in message, message
    assert f"line {fn.__code__.co_firstlineno + line} in f" in message, message
    broken = sot.to_static(fn, control_flow="graph")
    want, got = outcome(fn, *copy.deepcopy((args, {}))), outcome(broken, *copy.deepcopy((args, {})))
    for name in ("raised", "result", "printed", "args", "grads"):
        assert (differs := same(getattr(got, name), getattr(want, name), name)) is None, differs
    assert any(c.stopped and c.stopped.reason.name == "BRANCH" for c in broken.captures)
    return message
