"""Disabled progress bars of tqdm, and code that makes them: ``torch.fx.Interpreter``."""
from __future__ import annotations

import collections
import io
import sys
import threading

import pytest
import torch
from harness import Programs, check
from torch import fx

import sot

tqdm = pytest.importorskip("tqdm")
auto = pytest.importorskip("tqdm.auto")
programs, interpreters, left = Programs(), Programs(), Programs()
STREAM = io.StringIO()


# ---- bars
@programs
def walks_items(x):
    for i in tqdm.tqdm(range(3), disable=True):
        x = x + i
    return x


@programs
def walks_tensors(x):
    out = []
    for row in tqdm.tqdm(x, disable=True, desc="rows"):
        out.append(row * 2)
    return out


@programs
def updates_by_hand(x):
    with tqdm.tqdm(total=5, disable=True) as bar:
        for _ in range(3):
            x = x * 2
            bar.update(1)
            bar.set_postfix(loss=1.0)
            bar.set_description("x")
    return x, bar.n, bar.desc, len(bar), bool(bar)


@programs
def counts_with_trange(x):
    for i in tqdm.trange(1, 4, disable=True, leave=False):
        x = x * i
    return x


@programs
def walks_with_the_class_of_notebooks(x):
    bar = auto.tqdm([x, x * 2], disable=True)
    return sum(bar), bar.total, bar.iterable_awaitable


@programs
def has_an_unknown_total(x):
    bar = tqdm.tqdm((x * i for i in range(3)), disable=True, total=float("inf"))
    return list(bar), bar.total, bar.leave


@programs
def returns_the_bar(x):
    bar = tqdm.tqdm([1, 2], disable=True, initial=4)
    bar.loss = x + 1
    return vars(bar)


@programs
def keeps_the_bar(x):
    bar = tqdm.tqdm([1, 2], disable=True)
    bar.loss = x + 1
    return [bar.n, bar.total, bar.loss], bar


@programs
def closes_twice(x):
    bar = tqdm.tqdm(disable=True)
    bar.close()
    bar.close()
    bar.refresh()
    bar.reset(total=3)
    return x + 1, bar.total


@programs
def reverses(x):
    return [x * i for i in reversed(tqdm.tqdm([1, 2, 3], disable=True))], 2 in tqdm.tqdm([1, 2], disable=True)


@programs
def is_in_a_list(x):
    bars = [tqdm.tqdm([x], disable=True) for _ in range(3)]
    return [t + 1 for bar in bars for t in bar]


@programs
def takes_unknown_arguments(x):
    return [t * x for t in tqdm.tqdm([1, 2], disable=True, nested=True, colour="red")]


@programs
def would_write_elsewhere(x):
    return [t * x for t in tqdm.tqdm([1, 2], disable=True, file=STREAM, write_bytes=True)]


@programs
def has_nothing_to_say(x):
    bar = tqdm.tqdm(disable=True)
    try:
        return bool(bar)
    except TypeError as e:
        return x + 1, str(e)


@programs.each
def test_a_disabled_bar_is_an_object_like_others(fn):
    is_whole = fn is not returns_the_bar
    check(fn, torch.ones(2, 3), graphs=1, breaks=0 if is_whole else None)


@left
def is_enabled(x):
    bar = tqdm.tqdm([1], disable=True)
    bar.disable = False
    bar.disable = True
    return x + 1


@left
def has_a_position(x):
    return x + 1, tqdm.tqdm([1], disable=True).pos


@left
def may_have_a_position(x):
    bar = tqdm.tqdm([1], disable=True)
    return x + 1, hasattr(bar, "pos"), bar.n


@left
def lists_its_attributes(x):
    return x + 1, sorted(vars(tqdm.tqdm([1], disable=True)))


@left
def is_compared(x):
    return x + 1, tqdm.tqdm([1], disable=True) <= tqdm.tqdm([2], disable=True)


class Bar(tqdm.tqdm):
    def __init__(self, items, silent):
        self.silent = silent
        super().__init__(items, disable=silent)


class Noting(tqdm.tqdm):
    noted = []

    def __setattr__(self, name, value):
        self.noted.append(name)
        super().__setattr__(name, value)


@left
def notes_its_attributes(x):
    Noting.noted.clear()
    bar = Noting([1], disable=True)
    return x + 1, list(Noting.noted), bar.n


@left
def has_a_constructor_of_its_own(x):
    return [x * i for i in Bar([1, 2], True)]


class Closing(tqdm.tqdm):
    def close(self):
        print("closed", self.disable)


@left
def has_a_finalizer_of_its_own(x):
    for i in Closing([1, 2], disable=True):
        x = x * i
    return x + 1


@left
def shows_something(x):
    return [x * i for i in tqdm.tqdm([1, 2], mininterval=1e9, bar_format="{desc}")]


@left.each
def test_what_other_bars_do_is_left_to_python(fn):
    check(fn, torch.ones(2))


def test_the_finalizer_of_a_bar_that_was_enabled(monkeypatch):
    def f(x):
        tqdm.tqdm([1], disable=True).disable = False
        return x + 1
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: found.append(str(what.exc_value)))
    f(torch.ones(2))
    sot.to_static(f, backend="eager")(torch.ones(2))
    assert len(found) == 2 and found[0] == found[1]


def test_the_position_is_the_first_free_one():
    outer = tqdm.tqdm([1], file=open("/dev/null", "w"))
    try:
        inner = sot.to_static(keeps_the_bar, backend="eager")(torch.ones(2))[1]
        assert inner.pos == keeps_the_bar(torch.ones(2))[1].pos == 1
        assert inner not in tqdm.tqdm._instances
    finally:
        outer.close()


def test_the_first_bar_of_a_class_starts_the_watching_thread():
    class Own(tqdm.tqdm):
        """Its module is not tqdm's, but its constructor is."""
    Own.monitor = None
    translated = sot.to_static(lambda x: [x + i for i in Own(range(2), disable=True)], backend="eager")
    translated(torch.ones(2))
    assert isinstance(Own.monitor, threading.Thread)
    Own.monitor.exit()


# ---- torch.fx.Interpreter
def traced(x):
    return torch.relu(x) * 2 + x


class Doubled(fx.Interpreter):
    def call_function(self, target, args, kwargs):
        return super().call_function(target, args, kwargs) * 2


class Renamed(fx.Interpreter):
    def call_method(self, target, args, kwargs):
        return super().call_method({"sin": "cos"}.get(target, target), args, kwargs)


class Counted(fx.Interpreter):
    def __init__(self, gm):
        super().__init__(gm)
        self.seen = []

    def run_node(self, n):
        self.seen.append((n.op, n.name))
        return super().run_node(n)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.scale = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.ones(3))

    def forward(self, x, *, bias=0):
        a, b = torch.split(self.first(x) * self.scale, 1)
        return {"a": a.sin() + bias, "b": [b, (a, b)], "c": x[:, 1:]}


TRACED, NET = fx.symbolic_trace(traced), fx.symbolic_trace(Net())
METHODS, FAILING, DEFAULTS, IN_PLACE = (fx.symbolic_trace(f) for f in (
    lambda x: x.sin().neg(), lambda x: x.view(7), lambda x, y=2: x * y, lambda x: x.add_(1)))


@interpreters
def runs_a_graph(x):
    return fx.Interpreter(TRACED).run(x)


@interpreters
def doubles_functions(x):
    return Doubled(TRACED).run(x)


@interpreters
def renames_methods(x):
    return Renamed(METHODS).run(x)


@interpreters
def runs_a_module(x):
    return fx.Interpreter(NET).run(x)


@interpreters
def goes_backward(x):
    out = Renamed(NET).run(x)
    NET.zero_grad()
    (out["a"].sum() + out["b"][1][1].sum()).backward()
    return NET.scale.grad, NET.first.weight.grad


@interpreters
def notes_the_nodes(x):
    counted = Counted(TRACED)
    return counted.run(x), counted.seen, len(counted.env)


@interpreters
def keeps_all_values(x):
    kept = fx.Interpreter(TRACED, garbage_collect_values=False)
    return kept.run(x), [v for v in kept.env.values()]


@interpreters
def runs_what_fails(x):
    try:
        return fx.Interpreter(FAILING).run(x)
    except RuntimeError as e:
        return x + 1, "While executing" in str(e)


@interpreters
def runs_twice(x):
    first = fx.Interpreter(TRACED)
    return first.run(first.run(x))


@interpreters
def takes_defaults(x):
    return fx.Interpreter(DEFAULTS).run(x), fx.Interpreter(DEFAULTS).run(x, 3)


@interpreters
def is_given_its_arguments_in_a_list(x):
    given = [x]
    return fx.Interpreter(TRACED).boxed_run(given), given


@interpreters
def changes_its_argument(x):
    return fx.Interpreter(IN_PLACE).run(x) * 2


@interpreters.each
def test_an_interpreter_is_followed(fn):
    is_whole = fn is not runs_what_fails
    check(fn, torch.ones(2, 3), graphs=1 if is_whole else None, breaks=0 if is_whole else None)


NODE = next(iter(TRACED.graph.nodes))
Pair = collections.namedtuple("Pair", "left right")


@pytest.mark.parametrize("mapped", [fx.node.map_arg, fx.node.map_aggregate])
def test_arguments_are_mapped_as_torch_does(mapped):
    def f(x):
        found = []
        for arg in (NODE, [NODE, 1], (NODE, (2,)), Pair(NODE, 1), {"a": NODE, "b": [None]}, slice(NODE, None, 2),
                    (), torch.Size([1]), "text", 3):
            out = mapped(arg, lambda item: x + 1 if item is NODE else item)
            found.append((type(out), [out.start, out.stop, out.step] if isinstance(out, slice) else out))
        return found
    check(f, torch.ones(2), graphs=1, breaks=0)
