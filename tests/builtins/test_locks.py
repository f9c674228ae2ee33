"""Locks that the call makes are counts of the trace, also inside of the classes of ``threading``. One that existed
before may be held by another thread: Python acquires it.
"""
import threading

import torch
from harness import Programs, check

import sot

X = torch.arange(1.0, 5.0)
program = Programs()
EXISTING = threading.Lock()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@program
def a_with_statement(x):
    lock = threading.Lock()
    with lock:
        y, inside = x * 2, lock.locked()
    return y, inside, lock.locked(), type(lock).__name__


@program
def what_acquire_returns(x):
    lock = threading.Lock()
    return x + 1, lock.acquire(), lock.acquire(False), lock.acquire(blocking=False), lock.release()


@program
def a_release_too_many(x):
    lock = threading.Lock()
    try:
        lock.release()
    except RuntimeError as e:
        return x + 1, str(e)


@program
def a_reentrant_lock(x):
    lock = threading.RLock()
    with lock, lock:
        y = x + 1
    try:
        lock.release()
    except RuntimeError as e:
        return y, str(e)


@program
def events_conditions_and_semaphores(x):
    event, condition, semaphore = threading.Event(), threading.Condition(), threading.Semaphore(2)
    event.set()
    with condition:
        y = x + 1
        condition.notify_all()
    semaphore.acquire()
    return y, event.is_set(), semaphore._value


@program
def released_by_an_exception(x):
    lock = threading.Lock()
    try:
        with lock:
            raise ValueError("inside")
    except ValueError as e:
        return x * 2, lock.locked(), str(e)


def test_a_lock_that_leaves_the_call_is_as_the_call_left_it():
    def f(x):
        free, held, twice = threading.Lock(), threading.Lock(), threading.RLock()
        held.acquire()
        twice.acquire()
        twice.acquire()
        return x + 1, [free, held, twice]

    _, (free, held, twice) = sot.to_static(f, backend="eager")(X)
    assert not free.locked() and held.locked()
    twice.release()
    twice.release()
    assert twice.acquire(blocking=False)


def a_lock_that_existed_before(x):
    with EXISTING:
        y = x * 2
    return y, EXISTING.locked()


def a_break_while_it_is_held(x):
    lock = threading.Lock()
    with lock:
        y = x * float(x.sum().item() > 3 or 2)
        if x.sum() > 3:
            y = y + lock.locked()
    return y, lock.locked()


def test_python_acquires_a_lock_that_existed_before():
    check(a_lock_that_existed_before, X)


def test_a_break_keeps_the_lock():
    check(a_break_while_it_is_held, X)
