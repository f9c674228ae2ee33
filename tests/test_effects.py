"""Output is replayed after the graph, in order, and costs no graph."""
from __future__ import annotations

import logging
import warnings

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
        return y
    check(f, X)


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
        print(Thing())
        return x + 1
    check(f, X)


def records(fn, *args):
    found = []

    class Keep(logging.Handler):
        def emit(self, record):
            found.append((record.levelname, record.getMessage(), record.pathname, record.lineno, record.funcName))
    logger, handler = logging.getLogger("sot.tests"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        fn(*args)
    finally:
        logger.removeHandler(handler)
    return found


def test_logging():
    def f(x):
        log = logging.getLogger("sot.tests")
        log.info("n=%d", x.numel())
        y = x * 2
        log.warning("shape %s", tuple(y.shape))
        return y
    translated = sot.to_static(f, backend="eager")
    assert records(translated, X) == records(f, X)
    assert not [c.stopped for c in translated.captures if c.stopped and c.place.function == "f"]


def shown(fn, *args):
    with warnings.catch_warnings(record=True) as log:
        warnings.simplefilter("always")
        fn(*args)
        return [(str(w.message), w.category, w.filename, w.lineno) for w in log]


def test_warnings_name_the_users_line():
    def helper():
        warnings.warn("deprecated", DeprecationWarning, stacklevel=2)

    def f(x):
        warnings.warn("careful")
        y = x * 2
        helper()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen")
        warnings.warn("last", FutureWarning)
        return y
    translated = sot.to_static(f, backend="eager")
    assert shown(translated, X) == shown(f, X)
    assert shown(translated, X) == shown(f, X)
    assert not [c.stopped for c in translated.captures if c.stopped]


def test_warnings_around_a_break():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen")
            n = float(x.sum())
            warnings.warn("nor this")
        warnings.warn("seen")
        return x * n
    assert shown(sot.to_static(f, backend="eager"), X) == shown(f, X)
