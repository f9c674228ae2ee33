"""What the frame hook promises of threads and of deep recursion."""
import inspect
import os
import sys
import threading
import weakref

import pytest
from hooked import callback_set, in_thread, is_installed, skipped, with_entries
from hooked import no_callback_left as no_callback_left

from sot import _hook
from sot._hook import PLAIN

# ---- threads -------------------------------------------------------------------------------------


def test_a_callback_belongs_to_its_thread():
    def fn():
        return "frame"

    def in_its_own_thread():
        before = _hook.get_callback(), fn()
        with callback_set():
            return before, fn()

    with_entries(fn, lambda: "entry")
    with callback_set():
        assert in_thread(in_its_own_thread) == ((None, "frame"), "entry")
        assert fn() == "entry"
    assert in_thread(fn) == "frame"


def test_threads_without_a_callback_of_their_own_ask_the_default():
    def fn():
        return "frame"

    def with_none():
        before = _hook.set_callback(PLAIN)
        try:
            return fn(), _hook.get_callback()
        finally:
            _hook.set_callback(before)

    def default(function, arguments):
        return None

    with_entries(fn, lambda: "entry")
    assert _hook.set_default(default) is None
    try:
        assert is_installed() and fn() == "entry" and in_thread(fn) == "entry"
        assert in_thread(with_none) == with_none() == ("frame", None)
        assert _hook.get_callback() is default
    finally:
        assert _hook.set_default(None) is default
    assert fn() == "frame" and not is_installed()


@pytest.mark.parametrize("own", [True, False])
def test_what_code_that_is_left_alone_calls_is_left_alone_whoever_has_the_callback(own):
    seen = []

    def callback(function, arguments):
        seen.append(function.__name__)

    def inner():
        return "frame"

    def alone():
        return inner()

    def calls():
        before = _hook.set_callback(callback) if own else None
        try:
            return alone(), inner()
        finally:
            if own:
                _hook.set_callback(before)

    _hook.leave_alone(alone.__code__)
    _hook.skip(calls.__code__)
    _hook.set_default(callback)
    try:
        assert in_thread(calls) == calls() == ("frame", "frame")
        assert seen.count("inner") == 2 and is_installed()
    finally:
        _hook.set_default(None)


def test_the_evaluator_is_installed_only_while_a_thread_has_a_callback():
    assert not is_installed()
    with callback_set():
        assert is_installed()
        with callback_set():
            pass
        assert is_installed()
        in_thread(lambda: _hook.set_callback(print) and _hook.set_callback(None))
        assert is_installed()
    assert not is_installed()


def test_a_thread_that_ends_gives_up_its_callback():
    class Callback:
        def __call__(self, function, arguments):
            return None

    def leaving_it_set():
        callback = Callback()
        _hook.set_callback(callback)
        return weakref.ref(callback), is_installed()

    alive, installed = in_thread(leaving_it_set)
    assert installed and not is_installed()
    assert alive() is None


def test_a_forked_child_keeps_only_its_own_thread():
    ready, done = threading.Event(), threading.Event()

    def other():
        _hook.set_callback(lambda function, arguments: None)
        ready.set()
        done.wait(300)
        _hook.set_callback(None)

    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(300)
    pid = os.fork()
    if pid == 0:
        os._exit(int(is_installed()))
    done.set()
    thread.join(300)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_many_threads_at_once():
    def fn(x):
        return "frame"

    def hammer(i, results):
        for _ in range(200):
            with callback_set():
                results.append(fn(i))

    with_entries(fn, lambda x: x)
    results = [[] for _ in range(8)]
    threads = [threading.Thread(target=hammer, args=(i, results[i])) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert results == [[i] * 200 for i in range(8)]
    assert not is_installed()


# ---- recursion -----------------------------------------------------------------------------------


def depth_here():
    return len(inspect.stack(0))


def test_recursion_through_entries_goes_as_deep_as_without_the_hook():
    def hooked(n):
        return "frame"

    @skipped
    def entry(n):
        return 0 if n == 0 else 1 + hooked(n - 1)

    @skipped
    def left_alone(n):
        return 0 if n == 0 else 1 + left_alone(n - 1)

    with_entries(hooked, entry)
    depth = sys.getrecursionlimit() - depth_here() - 20
    with callback_set():
        assert hooked(depth) == depth
        assert left_alone(depth) == depth


@pytest.mark.parametrize("skip_entry", [True, False])
def test_endless_recursion_through_an_entry_is_a_recursion_error(skip_entry):
    def fn(n):
        return "frame"

    def entry(n):
        return fn(n + 1)

    _hook.reset(entry.__code__)
    with_entries(fn, skipped(entry) if skip_entry else entry)
    with callback_set(), pytest.raises(RecursionError):
        fn(0)


def test_endless_recursion_without_any_frame_is_a_recursion_error():
    def fn():
        return "frame"

    def other():
        return "frame"

    with_entries(fn, other)
    with_entries(other, fn)
    with callback_set(), pytest.raises(RecursionError):
        fn()


def test_endless_recursion_is_a_recursion_error_whatever_the_limit():
    def fn(n):
        return "frame"

    @skipped
    def entry(n):
        return fn(n + 1)

    @skipped
    def plain(n):
        return plain(n + 1)

    with_entries(fn, entry)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        for endless in (fn, plain):
            with callback_set(), pytest.raises(RecursionError):
                endless(0)
    finally:
        sys.setrecursionlimit(limit)


def test_a_thread_with_a_small_stack_is_hooked_too():
    def fn():
        return "frame"

    def hooked():
        with callback_set():
            return fn()

    with_entries(fn, lambda: "entry")
    size = threading.stack_size(128 * 1024)
    try:
        assert in_thread(hooked) == "entry"
    finally:
        threading.stack_size(size)


def test_frames_are_released_at_every_position_of_the_data_stack():
    """A frame may be the first of a chunk, which is then given back with it."""

    def small(x):
        return "frame"

    def large(x):
        a = b = c = d = e = f = g = h = i = j = k = l = m = n = o = p = x
        return a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p

    @skipped
    def down(n):
        if n == 0:
            return [(small(n), large(n)) for _ in range(3)]
        return down(n - 1)

    with_entries(small, lambda x: "small")
    with_entries(large, lambda x: "large")
    with callback_set():
        for n in range(400):
            assert down(n) == [("small", "large")] * 3
