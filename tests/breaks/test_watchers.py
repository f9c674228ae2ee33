"""A function that watches frames, lifetimes or sizes is run as if there were no capture; its callers are captured."""
from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch
from harness import check

import sot

X = torch.arange(1.0, 4.0)


def reasons(translated):
    return [c.stopped.reason.name for c in translated.captures if c.stopped]


class Thing:
    pass


def dies(thing):
    gone = weakref.ref(thing)
    del thing
    return gone() is None


def test_an_argument_dies_when_it_is_deleted():
    def f(x):
        y = x + 1
        return y * 2 if dies(Thing()) else y
    assert torch.equal(f(X), (X + 1) * 2)
    assert reasons(check(f, X, graphs=2, breaks=1)) == ["WATCHES"]


@pytest.mark.parametrize("collection", [weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet])
def test_an_entry_dies_with_an_object_of_the_call(collection):
    kept = collection()

    def f(x):
        thing = Thing()
        if isinstance(kept, weakref.WeakSet):
            kept.add(thing)
        else:
            kept[thing if collection is weakref.WeakKeyDictionary else "key"] = thing if (
                collection is weakref.WeakValueDictionary) else x
        before = len(kept)
        del thing
        return x + 1, before, len(kept)
    check(f, X, graphs=0)


def test_a_finalizer_of_an_object_of_the_call():
    def f(x, log):
        thing = Thing()
        weakref.finalize(thing, log.append, "gone")
        thing = log.append("after")
        return x + 1, list(log)
    check(f, X, [])


def test_a_class_with_a_finalizer():
    def f(x, log):
        class Noisy:
            def __del__(self):
                log.append("gone")

        def use(noisy):
            log.append("used")
        use(Noisy())
        log.append("after")
        return x + 1
    for wrap in (lambda f: f, lambda f: sot.to_static(f, backend="eager")):
        log = []
        wrap(f)(X, log)
        assert log == ["used", "gone", "after"]


def test_lines_of_a_traceback():
    def fails():
        try:
            raise ValueError
        except ValueError:
            raise KeyError from None

    def lines(error):
        found, at = [], error.__traceback__
        while at:
            found.append((at.tb_frame.f_code.co_name, at.tb_lineno))
            at = at.tb_next
        return found

    def f(x):
        try:
            fails()
        except KeyError as e:
            return x + 1, lines(e)[-1]
    check(f, X)


def test_sizes():
    def f(x):
        return x + 1, sys.getsizeof([1, 2]), sys.getrefcount(Thing())
    assert reasons(check(f, X, graphs=0)) == ["WATCHES"]


def test_what_it_calls_can_be_captured_elsewhere():
    def inner(x):
        return x * 2

    def watching(x):
        return inner(x), sys.getsizeof(())

    def f(x):
        return inner(x) + watching(x)[0]
    check(f, X, graphs=2, breaks=1)
    nested = sot.to_static(inner, backend="eager")

    def calls_translated(x):
        return nested(x), sys.getsizeof(())
    outer = sot.to_static(calls_translated, backend="eager")
    assert torch.equal(outer(X)[0], X * 2)
    assert torch.equal(outer(X)[0], X * 2)
    assert len(nested.captures) == 1


@pytest.mark.slow
def test_what_the_collector_calls_is_left_alone():
    """It runs within whatever makes an object, also one of capture's."""
    seen = []

    def noticed(phase):
        return phase + "!"

    def callback(phase, info):
        seen.append(noticed(phase))

    def f(x):
        gc.collect()
        return x + 1
    gc.callbacks.append(callback)
    try:
        translated = check(f, X, again=False)
    finally:
        gc.callbacks.remove(callback)
    assert seen[:2] == ["start!", "stop!"]
    assert not {"callback", "noticed"} & {c.place.function for c in translated.captures}


def test_a_proxy_of_what_is_gone(monkeypatch):
    monkeypatch.setenv("SOT_STRICT", "1")

    def f(x):
        try:
            return getattr(proxy, "size")   # noqa: B009 - as the program may do
        except ReferenceError as e:
            return str(e), x + 1
    thing = Thing()
    proxy = weakref.proxy(thing)
    del thing
    check(f, X)
