"""What the frame hook keeps alive and for how long, and that it lives beside other evaluators."""
import contextlib
import gc
import os
import sys
import threading
import traceback
import warnings
import weakref

import pytest
from hooked import callback_set, evaluator, is_installed, skipped, with_entries
from hooked import no_callback_left as no_callback_left

from sot import _hook
from sot._hook import MISS, PLAIN

try:
    from torch._C._dynamo.eval_frame import get_eval_frame_callback, set_eval_frame
except ImportError:      # a debug build of Python has no torch
    pass

# ---- lifetimes -----------------------------------------------------------------------------------


def test_arguments_are_released_with_the_frame():
    class Thing:
        pass

    def fn(x, *rest, **more):
        return "frame"

    with_entries(fn, lambda *arguments: len(arguments))
    things = Thing(), Thing(), Thing()
    counts = [sys.getrefcount(thing) for thing in things]
    with callback_set():
        for _ in range(100):
            assert fn(things[0], things[1], k=things[2]) == 3
    assert [sys.getrefcount(thing) for thing in things] == counts


def test_a_finalizer_run_by_releasing_a_frame_may_run_python():
    ran = []

    class Thing:
        def __del__(self):
            ran.append(fn(0))

    def fn(x):
        return "frame"

    with_entries(fn, lambda x: "entry")
    with callback_set():
        assert fn(Thing()) == "entry"
    assert ran == ["entry"]


def test_the_last_reference_to_a_function_may_be_its_frame():
    answer = skipped(lambda: "answer")
    with callback_set(lambda function, arguments: answer if arguments == () else None):
        answers = [eval("lambda: 'frame'")() for _ in range(10)]
    assert answers == ["answer"] * 10


def test_entries_die_with_their_code_object():
    class Entry:
        def __call__(self):
            return "entry"

    fn = eval("lambda: 'frame'")
    entry = Entry()
    alive = weakref.ref(entry)
    with_entries(fn, entry)
    del entry
    assert alive() is not None
    del fn
    assert alive() is None


@pytest.mark.slow
def test_frames_seen_by_the_callback_outlive_the_call():
    kept = []

    def callback(function, arguments):
        if function is fn:
            frame = sys._getframe()
            kept.extend([frame, frame.f_back])
            return lambda x: "answer"

    def fn(x):
        return "frame"

    @skipped
    def caller():
        local = "local of the caller"
        return fn(local)

    with callback_set(callback):
        assert caller() == "answer"
    gc.collect()
    own, back = kept
    assert own.f_locals["function"] is fn and own.f_back is back
    assert back.f_code is caller.__code__ and back.f_locals["local"] == "local of the caller"
    assert back.f_back.f_code.co_name == "test_frames_seen_by_the_callback_outlive_the_call"
    own.clear(), back.clear()


@pytest.mark.slow
def test_frames_seen_by_a_traceback_of_the_callback_outlive_the_call():
    def fn(x):
        return "frame"

    def callback(function, arguments):
        if function is fn:
            raise LookupError

    try:
        with callback_set(callback):
            fn(object())
    except LookupError as error:
        kept = error.__traceback__
    gc.collect()
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(kept)]
    assert names[-1] == "callback" and "fn" not in names
    traceback.clear_frames(kept)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_a_million_calls_leak_nothing():
    free = "cell"

    def hit(x, *rest, k=None, **more):
        return free

    def missed(x):
        return x

    def failing(x):
        return x

    @skipped
    def rounds(count):
        for _ in range(count):
            hit(argument, argument, k=argument, m=argument)
            missed(argument)
            try:
                failing(argument)
            except KeyError:
                pass
            plain(argument)

    @skipped
    def raising(x):
        raise KeyError

    @skipped
    def callback(function, arguments):
        return skipped(lambda x: x) if function is missed else None

    argument = object()
    plain = _hook.plain(missed)
    with_entries(hit, skipped(lambda x, k, rest, more, cell: cell.cell_contents))
    with_entries(missed, skipped(lambda x: MISS))
    with_entries(failing, raising)
    with callback_set(callback):
        rounds(10_000)
        gc.collect()
        before = sys.getrefcount(argument), len(gc.get_objects()), resident_bytes()
        rounds(250_000)
        gc.collect()
        after = sys.getrefcount(argument), len(gc.get_objects()), resident_bytes()
    assert after[0] == before[0]
    assert abs(after[1] - before[1]) < 50
    assert after[2] - before[2] < 4 << 20


@pytest.mark.skipif(not hasattr(_hook, "debug_counts"), reason="needs a build with SOT_HOOK_DEBUG=1")
def test_the_debug_build_counts_what_is_kept_alive():
    before = _hook.debug_counts()
    fn = with_entries(eval("lambda: 0"), print, print)
    plain = _hook.plain(fn)
    during = _hook.debug_counts()
    assert {name: during[name] - before[name] for name in ("slots", "entries", "plains")} == {
        "slots": 1,
        "entries": 2,
        "plains": 1,
    }
    del fn, plain
    assert _hook.debug_counts() == before


def test_statistics_count_what_happened():
    def fn(answer):
        return "frame"

    with_entries(fn, lambda answer: answer)
    _hook.skip(_hook.get_entries(fn.__code__)[0].__code__)

    @skipped
    def calls():
        before = _hook.stats()
        fn("hit"), fn(PLAIN), fn(MISS)
        return before, _hook.stats()

    with callback_set(lambda function, arguments: None):
        before, after = calls()
    assert {name: after[name] - before[name] for name in after} == {
        "hooked": 3,
        "hits": 1,
        "misses": 1,
        "plain": 2,
    }


# ---- other evaluators ----------------------------------------------------------------------------


def test_torch_compile_works_above_and_below_the_hook():
    torch = pytest.importorskip("torch")

    def hooked(x):
        return "frame"

    def leave(x):
        answer = hooked(x)
        _hook.set_callback(None)
        return answer

    graphs = []

    def backend(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module

    disabled = torch._dynamo.disable(leave)
    _hook.reset(disabled.__code__)     # a capture that has met this wrapper of torch's leaves alone what it calls

    def fn(x):
        return x + 1, disabled(x)

    with_entries(hooked, lambda x: "entry")
    compiled = torch.compile(fn, backend=backend)
    for _ in range(2):
        _hook.set_callback(lambda function, arguments: None)
        result, answer = compiled(torch.ones(2))
        assert result.tolist() == [2.0, 2.0] and answer == "entry"
        assert len(graphs) == 1
        assert not is_installed() or hooked(0) == "frame"

    def inside(x):
        with callback_set():
            return hooked(x)

    result = torch.compile(lambda x: (x + 1, torch._dynamo.disable(inside)(x)), backend=backend)
    assert result(torch.ones(2))[1] == "entry"
    assert not is_installed()


def test_no_other_evaluator_stays_installed_because_the_hook_went_above_it():
    torch = pytest.importorskip("torch")
    before = evaluator()

    def nothing(function, arguments):
        return None

    def fn(x):
        y = x + 1
        _hook.set_callback(None)
        _hook.set_callback(nothing)     # above the compiler, which is above the first
        return y

    with warnings.catch_warnings(), callback_set(nothing):
        warnings.simplefilter("ignore")     # the compiler does not know set_callback()
        assert torch.compile(fn, backend="eager")(torch.ones(2)).tolist() == [2.0, 2.0]
    assert evaluator() == before


def hooked(x):
    return "frame"


@contextlib.contextmanager
def evaluator_of_torch():
    """torch's evaluator is installed, as while a compiled function runs."""
    pytest.importorskip("torch")
    before = set_eval_frame(False)
    try:
        yield
    finally:
        set_eval_frame(before)


@contextlib.contextmanager
def other_thread(context):
    """Another thread is inside `context`."""
    inside, leave = threading.Event(), threading.Event()

    def run():
        with context():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(60)
    try:
        yield
    finally:
        leave.set()
        thread.join(60)


def test_an_evaluator_that_removes_the_hook_when_it_leaves_does_so_until_the_next_callback():
    with_entries(hooked, lambda x: "entry")
    before = evaluator()
    with contextlib.ExitStack() as other:
        with evaluator_of_torch():
            other.enter_context(other_thread(callback_set))
        assert not is_installed()    # torch has set back what was there before it
        with callback_set():
            assert hooked(0) == "entry"
    assert evaluator() == before


def test_a_chain_of_evaluators_that_is_a_cycle_ends():
    with_entries(hooked, lambda x: "entry")
    _hook.step_aside_for(get_eval_frame_callback)

    def numbers():
        yield from [1, 2]

    with contextlib.ExitStack() as other:
        with callback_set():
            other.enter_context(other_thread(evaluator_of_torch))       # torch's above the hook
            assert hooked(0) == "entry"
        with callback_set():                                            # and below
            assert hooked(0) == "entry" and list(numbers()) == [1, 2] and sorted([2, 1], key=lambda x: x) == [1, 2]
    assert hooked(0) == "frame"
