"""Output is replayed after the graph, in order, and costs no graph; what has other effects is left to Python."""
from __future__ import annotations

import contextlib
import functools
import io
import os
import random
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 5.0)


def test_print_of_constants():
    def f(x):
        print("start", x.shape[0], end="|")
        y = x * 2
        print("middle", tuple(y.shape), [1, 2], {"a": 1}, sep=",")
        return y + 1
    check(f, X, graphs=1, breaks=0)


def test_print_of_tensors_shows_their_values():
    def f(x):
        y = x * 2
        print("y is", y)
        z = y + 1
        print(z.sum())
        return z
    check(f, X, graphs=1, breaks=0)


def test_a_tensor_that_changes_after_it_is_printed():
    def f(x):
        y = x * 2
        print(y)
        y.add_(1)
        print(y)
        print([y], (y,), {"y": y})
        y[1:].zero_()
        return y
    check(f, X, graphs=1, breaks=0)


@pytest.mark.parametrize("change", [
    lambda y: y.requires_grad_(), lambda y: y.data.add_(1), lambda y: y.t_(), lambda y: torch.neg(y, out=y)],
    ids=["requires_grad_", "data", "t_", "out"])
def test_a_tensor_whose_looks_change_after_it_is_printed(change):
    def f(x):
        y = x.clone()
        print(y)
        change(y)
        print(y)
        return y.detach()
    check(f, X)


def test_a_leaf_and_an_input_that_change_after_they_are_printed():
    def f(x):
        p = torch.nn.Parameter(x.clone())
        print(p, x)
        with torch.no_grad():
            p.mul_(2)
            x.mul_(3)
        print(p, x)
        return p.detach()
    check(f, X)


def test_a_tensor_of_inference_mode_that_changes_after_it_is_printed():
    def f(x):
        with torch.inference_mode():
            y = x + 1
            print(y)
            y.add_(1)
            print(y)
        return x * 2
    check(f, X)


def test_containers_are_shown_as_they_were():
    def f(x):
        items, table = [x, 1], {"a": (x + 1, [2])}
        print(items, table)
        items.append(3)
        table["b"] = 4
        print(items, table)
        return x + len(items)
    check(f, X, graphs=1, breaks=0)


def test_print_around_a_break_and_an_exception():
    def f(x):
        print("before")
        n = float(x.sum())
        print("after", n)
        try:
            print("in try")
            raise ValueError("no")
        except ValueError as e:
            print("caught", e)
        finally:
            print("finally")
        raise KeyError("end")
    check(f, X)


def test_print_in_a_loop_and_a_called_function():
    def show(i):
        print("round", i)
        return i

    def f(x):
        for i in range(3):
            x = x + show(i)
        return x
    check(f, X, graphs=1, breaks=0)


def test_print_of_an_object_runs_its_str():
    class Thing:
        def __str__(self):
            return "a thing"

    def f(x):
        print(str(Thing()))
        print(Thing(), [1], Thing(), sep="-", end="!")
        return x + 1
    check(f, X, graphs=1, breaks=0)


def test_an_object_is_shown_as_it_was():
    class Counter:
        def __init__(self, x):
            self.n, self.x = 0, x

        def __repr__(self):
            print("asked")
            return f"Counter({self.n}, {self.x})"

    def f(x):
        counter = Counter(x + 1)
        print("first", counter)
        counter.n += 1
        print([counter], {"c": counter})
        return counter.x
    check(f, X, graphs=1, breaks=0)


def test_an_object_that_cannot_be_shown():
    class Broken:
        def __str__(self):
            raise ValueError("no")

    def f(x):
        try:
            print("before", Broken(), "after")
        except ValueError as e:
            print("caught", e)
        return x + 1
    check(f, X)


def test_print_to_streams():
    def f(x):
        print("out", x.shape, file=sys.stdout, flush=True)
        print("nowhere else", file=None)
        sys.stdout.write("written\n")
        sys.stdout.write(f"{x.sum()}\n")
        sys.stdout.writelines(["a\n", "b\n"])
        sys.stdout.flush()
        n = sys.stdout.write("three")
        return x + n
    check(f, X, graphs=1, breaks=0)


def test_standard_error(capsys):
    def f(x):
        print("careful", x.sum(), file=sys.stderr)
        sys.stderr.write("done\n")
        return x + 1
    f(X)
    plain = capsys.readouterr().err
    translated = sot.to_static(f, backend="eager")
    translated(X)
    assert capsys.readouterr().err == plain
    assert not [c.stopped for c in translated.captures if c.stopped]


def test_print_to_a_file_written_in_python():
    class Tee:
        def __init__(self):
            self.parts = []

        def write(self, text):
            self.parts.append(text)

    def f(x):
        tee = Tee()
        print("a", x.shape[0], file=tee, sep="|")
        print(end="", file=tee)
        return x + len(tee.parts), tee.parts
    check(f, X, graphs=1, breaks=0)


def test_a_stream_of_the_programs_own():
    def f(x):
        stream = io.StringIO()
        print("hidden", file=stream)
        stream.write(str(x))
        with contextlib.redirect_stdout(stream):
            print("redirected", x * 2)
        print("shown")
        return x + 1, stream.getvalue()
    check(f, X)


def draws(x):
    random.seed(3)
    items = [1, 2, 3, 4]
    random.shuffle(items)
    own = random.Random(5)
    y = x * random.random() + own.randint(0, 9)
    return y, items, random.sample(range(9), 3), random.choice("abc"), random.gauss(0, 1), own.choices([1, 2], k=3)


def draws_in_a_branch(x):
    x = x + 1
    if random.random() < 0.5:
        return x * 2
    return x * random.uniform(1, 2)


def draws_of_numpy(x):
    np.random.seed(0)
    generator = np.random.default_rng(1)
    shares = np.random.multinomial(5, [0.5, 0.5])
    return x * float(np.random.rand()) + float(generator.random()), np.random.randint(9), generator.integers(5), shares


@pytest.mark.parametrize("fn", [draws, draws_in_a_branch, draws_of_numpy])
def test_random_numbers_of_python_and_numpy(fn):
    """The numbers, and the state of the generators afterwards, are Python's; the report says why it breaks."""
    def run(fn):
        random.seed(11)
        np.random.seed(12)
        return [fn(X) for _ in range(3)], random.getstate(), np.random.get_state()[1].tolist()
    translated = sot.to_static(fn, backend="eager")
    assert str(run(translated)) == str(run(fn))
    reasons = {c.stopped.reason.name for c in translated.captures if c.stopped and c.place.function == fn.__name__}
    assert reasons == {"RANDOM"}


def reads_the_clock(x):
    start = time.perf_counter()
    y = x + 1
    return y, time.perf_counter() >= start


def changes_the_environment(x):
    os.environ["SOT_TEST_VALUE"] = "3"
    y = x + int(os.environ["SOT_TEST_VALUE"])
    del os.environ["SOT_TEST_VALUE"]
    return y, os.environ.get("SOT_TEST_VALUE", "gone")


@pytest.mark.parametrize("fn", [reads_the_clock, changes_the_environment])
def test_the_clock_and_the_environment(fn):
    translated = check(fn, X, breaks=2)
    assert {c.stopped.reason.name for c in translated.captures if c.stopped} == {"SIDE_EFFECT"}
    assert "SOT_TEST_VALUE" not in os.environ


def test_the_environment_is_guarded(monkeypatch):
    def f(x):
        return x + 1 if os.environ.get("SOT_TEST_SWITCH") == "on" else x - 1
    translated = check(f, X, graphs=1, breaks=0)
    monkeypatch.setenv("SOT_TEST_SWITCH", "on")
    assert torch.equal(translated(X), X + 1)


class WarnsWhenMade:
    def __init__(self):
        warnings.warn("made", UserWarning, stacklevel=2)


def warns_of_its_caller(*args):
    warnings.warn("called", UserWarning, stacklevel=2)
    return 1


def test_code_in_c_between_has_no_level():
    def run(x):
        made = WarnsWhenMade()
        made = type(made)()
        total = sum(map(warns_of_its_caller, [1, 2]))
        total += functools.partial(warns_of_its_caller, 1)()
        return x + total

    def said(fn):
        with warnings.catch_warnings(record=True) as log:
            warnings.simplefilter("always")
            fn(torch.ones(2))
        return [(str(each.message), each.filename, each.lineno) for each in log]
    translated = sot.to_static(run, backend="eager")
    for _ in range(2):
        assert said(translated) == said(run)
    assert not any(capture.stopped for capture in sot.translation_of(translated).captures)
