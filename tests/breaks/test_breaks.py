"""Where capture cannot go on, Python does one instruction, and capture goes on behind it: nothing is lost."""
from __future__ import annotations

import contextlib
import math
import os
import tempfile
import weakref

import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 5.0)


# ---- each kind of place
def in_the_middle(x):
    y = x * 2
    n = y.sum().item()
    return y + n


def in_a_branch(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def in_a_conditional_expression(x):
    y = x * 2
    return (y + 1 if y.sum() > 0 else y - 1) * 3


def in_and_or(x):
    y = x * 2
    return (y.sum() > 0 and y.min() > 0) or y


def in_an_argument(x):
    return torch.stack([x + 1, x * float(x.sum()), x - 1])


def in_a_starred_call(x):
    return max(*(x * 2).tolist(), 3, key=lambda v: -v), x + 1


def in_a_comprehension(x):
    return [v * float(v.sum()) for v in (x, x + 1)]


def in_with(x):
    with torch.no_grad():
        y = x * 2
        n = "ny"[int(y[0] > 0)]
        y = y + 1
    return y * 3, n, torch.is_grad_enabled()


def in_nested_with(x):
    log = []

    @contextlib.contextmanager
    def tracked(name):
        log.append(("enter", name))
        try:
            yield name
        finally:
            log.append(("leave", name))
    with tracked("a"), tracked("b") as b:
        y = x * 2
        n = float(y[0])
        y = y + n
    return y, log, b


def in_try(x):
    try:
        y = x * 2
        n = float(y[0])
        y = y + 1
        if n > 0:
            raise ValueError(n)
    except ValueError as e:
        y = y * e.args[0]
    finally:
        y = y + 1
    return y


def in_except(x):
    try:
        raise ValueError("one")
    except ValueError as e:
        y = x * float(x.sum())
        text = str(e)
    return y, text


def in_finally(x):
    log = []
    try:
        try:
            {}["missing"]
        finally:
            log.append(float(x.sum()))
            x = x * 2
    except KeyError:
        x = x + 1
    return x, log


def in_for(xs):
    total, log = torch.zeros(4), []
    for x in xs:
        total = total + x
        log.append(float(total.sum()))
        total = total * 0.5
    return total, log


def in_for_with_break_and_continue(xs):
    total = torch.zeros(4)
    for i, x in enumerate(xs):
        if i == 1:
            continue
        total = total + x
        if total.sum() > 30:
            break
    else:
        total = total - 1
    return total


def in_while(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


def in_nested_loops(xs):
    log = []
    for x in xs:
        for y in xs:
            log.append(float((x * y).sum()))
    return log, xs[0] + 1


def in_unpacking(x):
    a, b, *c = x.tolist()
    return x * a, b, c


def in_a_subscript(x):
    i = int(x.sum())
    return x[i % 4] * 2, "abcdefghijklmn"[i]


def in_a_format(x):
    y = x * 2
    return f"{'ny'[int(y.sum() > 0)]:>6} {y!r}", y + 1


def in_a_match(x):
    match (x * 2).sum().item():
        case n if n > 0:
            return x + n
        case _:
            return x


def in_del_and_reassignment(x):
    y = x * 2
    del x
    n = y.sum().item()
    try:
        x  # noqa: F821
    except UnboundLocalError as e:
        return y + n, str(e)


@pytest.mark.parametrize(("fn", "graphs"), [
    (in_the_middle, 2), (in_a_branch, 2), (in_a_conditional_expression, None), (in_and_or, None),
    (in_an_argument, None), (in_a_starred_call, None), (in_a_comprehension, None), (in_with, 2),
    (in_nested_with, 2), (in_try, None), (in_except, None), (in_finally, None), (in_while, None),
    (in_unpacking, None), (in_a_subscript, None), (in_a_format, 2), (in_a_match, None),
    (in_del_and_reassignment, 2),
], ids=lambda v: getattr(v, "__name__", None))
def test_a_break_loses_nothing(fn, graphs):
    check(fn, X, graphs=graphs, settings={"data_sizes": "break"})


@pytest.mark.parametrize("fn", [in_the_middle, in_nested_with, in_del_and_reassignment], ids=lambda f: f.__name__)
def test_a_number_that_goes_into_operations_breaks_nothing(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [in_for, in_for_with_break_and_continue, in_nested_loops], ids=lambda f: f.__name__)
def test_a_break_in_a_loop(fn):
    check(fn, [X, X + 1, X - 3, X * 5], again=False)


@pytest.mark.slow
def test_a_loop_stays_a_loop():
    translated = check(in_for, [X + i for i in range(60)], again=False)
    graphs = len(translated.captures)
    xs = [X + i for i in range(300)]
    assert torch.equal(translated(xs)[0], in_for(xs)[0])
    assert len(translated.captures) <= graphs + 3


@pytest.mark.slow
def test_ten_thousand_iterations_need_no_deeper_stack():
    def f(x):
        n = 0
        while x.sum() < 10_000:
            x = x + 1
        return x, n
    check(f, torch.zeros(1), again=False)


@pytest.mark.slow
def test_a_recursion_deeper_than_capture_follows_is_pythons():
    def endless(x):
        try:
            return endless(x)
        except ValueError:
            return x

    def deep(x, n):
        return deep(x * 0.5, n - 1) + 1 if n else x

    def f(x):
        try:
            endless(x)
        except RecursionError:
            x = x + 1
        return deep(x, 250)
    translated = sot.to_static(f, backend="eager")
    assert torch.equal(translated(X), f(X)) and torch.equal(translated(X), f(X))
    assert len(translated.captures) < 10


# ---- calls
def inner(x):
    x = x * 2
    n = "ny"[int(x.sum() > 0)]
    return x + 1, n


def middle(x, k=2):
    y, n = inner(x * k)
    return y - 1, n


def outer(x):
    y, n = middle(x + 1, k=3)
    return y * 4, n


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.b(self.half(self.a(x)))

    def half(self, x):
        return x / 2 if x.sum() > 0 else x


def test_a_break_in_inlined_calls_resumes_every_frame():
    check(inner, X, graphs=2)
    check(middle, X, graphs=2)
    check(outer, X, graphs=2)


def test_a_break_in_a_module():
    torch.manual_seed(0)
    check(Model(), torch.ones(4))


def test_a_break_in_a_generator():
    def pieces(x):
        for i in range(3):
            yield x * float(x.sum()) + i

    def f(x):
        total = x + 1
        for p in pieces(x):
            total = total + p
        return total
    check(f, X)


def test_a_live_generator_survives_a_break():
    def pieces(x):
        try:
            for i in range(3):
                got = yield x * i
                if got is not None:
                    yield got
        finally:
            x = None

    def f(x):
        g = pieces(x)
        a = next(g)
        n = float(x.sum())
        return a, n, next(g), g.send(x - 1), [*g]
    check(f, X)


def test_closures_share_their_cells_across_a_break():
    def f(x):
        n = 0

        def bump(k):
            nonlocal n
            n += k
            return n
        bump(1)
        y = x * float(x.sum())
        bump(2)
        return y, n, bump(3), n
    check(f, X)


def test_super_works_behind_a_break():
    class Base:
        def go(self, x):
            return x + 1

    class Derived(Base):
        def go(self, x):
            n = float(x.sum())
            return super().go(x) * n
    check(lambda x: Derived().go(x), X)


def test_identity_survives_a_break():
    def f(x, items):
        table = {"items": items, "x": x}
        n = float(x.sum())
        table["items"].append(n)
        return table["items"] is items, table["x"] is x, items
    check(f, X, [1])


def test_mutations_before_a_break_are_seen_by_what_runs_there():
    seen = []

    @sot.not_to_static
    def look(items, table):
        seen.append((list(items), dict(table)))

    def f(x, items, table):
        items.append(1)
        table["k"] = x + 1
        look(items, table)
        items.append(2)
        return x * 2
    check(f, X, [], {})
    assert [s[0] for s in seen] == [[1]] * 4 and all("k" in s[1] for s in seen)


# ---- exceptions
class Odd(Exception):
    pass


def raises(x):
    y = x * 2
    if y.shape[0] == 4:
        raise Odd("four", 4)
    return y


def raises_from(x):
    try:
        {}["k"]
    except KeyError as e:
        raise ValueError("bad") from e


def raises_in_torch(x):
    y = x * 2
    return y @ torch.ones(7, 7)


def catches_from_torch(x):
    y = x * 2
    try:
        y @ torch.ones(7, 7)
    except RuntimeError as e:
        return y + 1, type(e).__name__


def raises_in_python(x):
    return math.sqrt(-x.shape[0])


def reraises(x):
    try:
        raise Odd("again")
    except Odd:
        x = x + 1
        raise


@pytest.mark.parametrize("fn", [raises, raises_from, raises_in_torch, catches_from_torch, raises_in_python, reraises])
def test_exceptions_are_pythons(fn):
    check(fn, X)


def test_an_exception_keeps_the_mutations_before_it():
    def f(x, items):
        items.append(x + 1)
        raise Odd(len(items))
    check(f, X, [])


def test_the_traceback_names_the_users_line():
    with pytest.raises(Odd) as info:
        sot.to_static(raises, backend="eager")(X)
    last = info.traceback[-1]
    assert str(last.path) == __file__ and last.lineno + 1 == raises.__code__.co_firstlineno + 3


# ---- what the report says
def test_every_break_has_a_reason_a_place_and_a_remedy():
    found = sot.explain(in_a_branch)(X).breaks
    assert len(found) == 1
    assert found[0].reason.name == "TENSOR_TRUTH" and found[0].place.file == __file__
    assert found[0].place.source == "if y.sum() > 0:" and "torch.where" in found[0].hint


def test_a_break_in_a_call_shows_the_users_stack():
    found = sot.explain(outer)(X).breaks[0]
    assert [p.function for p in found.stack] == ["outer", "middle", "inner"]


def test_graph_break_breaks():
    def f(x):
        y = x + 1
        sot.graph_break()
        return y * 2
    check(f, X, graphs=2, breaks=1)


def test_full_graph_refuses_a_break():
    def f(x):
        return x + len([0] * int(x.sum().item()))
    with pytest.raises(sot.CaptureError, match="item"):
        sot.to_static(f, full_graph=True)(X)


# ---- what a variable keeps alive, though nothing reads it any more
class Thing:
    pass


def a_folder(x):
    folder = tempfile.TemporaryDirectory()
    path = folder.name
    first = os.path.isdir(path)
    os.stat(path)
    return x + 1, first, os.path.isdir(path)


def things(x):
    alive = weakref.WeakSet()
    pair = [Thing(), 1], Thing()
    alive.add(pair[1])
    alive.add(pair[0][0])
    y = x + len(alive)
    pair = None
    return y, len(alive)


def a_thing_to_the_end(x, alive):
    thing = Thing()
    alive.add(thing)
    y = x + len(alive)
    for _ in range(3):
        y = y + float(y.sum()) + len(alive)
    return y


def test_objects_live_as_long_as_their_variables():
    check(a_folder, X)
    check(things, X)
    alive = weakref.WeakSet()
    check(lambda x: (a_thing_to_the_end(x, alive), len(alive)), X)
