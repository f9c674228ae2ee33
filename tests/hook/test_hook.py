"""What the frame hook promises: sot/csrc/hook/hook.c, read as a specification."""
import contextlib
import gc
import sys
import traceback
import types
import weakref

import pytest
from hooked import arguments_seen, callback_set, skipped, with_entries
from hooked import no_callback_left as no_callback_left

from sot import _hook
from sot._hook import MISS, PLAIN

# ---- entries -------------------------------------------------------------------------------------


def test_the_answer_of_an_entry_is_the_result_of_the_frame():
    ran = []

    def fn(x):
        ran.append(x)

    with_entries(fn, lambda x, cell: x + 1)
    with callback_set():
        assert fn(1) == 2
    assert ran == []
    assert fn(1) is None and ran == [1]


def test_entries_are_asked_in_order_until_one_does_not_miss():
    asked = []

    def entry(name, answer):
        return lambda x: asked.append(name) or answer

    def fn(x):
        return "frame"

    with_entries(fn, entry("a", MISS), entry("b", "answer"), entry("c", "never"))
    with callback_set():
        assert fn(0) == "answer"
    assert asked == ["a", "b"]


def test_an_entry_that_says_plain_ends_the_search_and_the_frame_runs():
    called = []

    def fn(x, y=2):
        z = x + y
        return [z for _ in range(2)]

    with_entries(fn, lambda x, y: PLAIN, lambda x, y: "never")
    with callback_set(lambda function, arguments: called.append(function)):
        assert fn(1) == [3, 3]
    assert fn not in called


def test_an_entry_may_answer_none_true_or_any_other_value():
    def fn():
        return "frame"

    for value in (None, False, 0, "", [], NotImplemented, ...):
        with_entries(fn, lambda: value)
        with callback_set():
            answer = fn()
        assert answer is value


def test_an_entry_gets_positional_keyword_only_star_and_double_star_arguments():
    def fn(a, /, b, *rest, c, d=4, **more):
        local = a
        return local

    assert arguments_seen(fn, 1, 2, 3, c=5, e=6) == [1, 2, 5, 4, (3,), {"e": 6}]


def test_an_entry_gets_the_cells_of_the_closure_after_the_arguments():
    first, second = 1, 2

    def fn(x):
        return x, first, second

    assert arguments_seen(fn, 0) == [0, *fn.__closure__]


def test_an_argument_that_an_inner_function_captures_is_passed_as_a_value():
    def fn(x, unused):
        return lambda: x

    assert arguments_seen(fn, 7, 8) == [7, 8]


def test_a_closure_of_any_size_is_passed():
    for count in (1, 11, 12, 13, 40):
        names = [f"v{i}" for i in range(count)]
        source = f"def make({', '.join(names)}):\n def fn(x): return x, {', '.join(names)}\n return fn"
        namespace = {}
        exec(source, namespace)
        fn = namespace["make"](*range(count))
        cells = arguments_seen(fn, -1)
        assert cells[0] == -1
        assert sorted(cell.cell_contents for cell in cells[1:]) == list(range(count))


def test_an_exception_from_an_entry_is_the_exception_of_the_frame():
    def fn():
        return "frame"

    def entry():
        raise KeyError("from the entry")

    with_entries(fn, entry)
    with callback_set(), pytest.raises(KeyError) as caught:
        fn()
    names = [line.name for line in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "entry" and "fn" not in names


def test_an_entry_sees_the_exception_being_handled_and_the_caller_of_the_frame():
    seen = []

    def fn():
        return "frame"

    @skipped
    def entry():
        seen.append((sys.exc_info()[0], sys._getframe(1).f_code.co_name))

    @skipped
    def caller():
        try:
            raise ValueError
        except ValueError:
            fn()

    with_entries(fn, entry)
    with callback_set():
        caller()
    assert seen == [(ValueError, "caller")]


def test_functions_called_by_an_entry_are_hooked():
    def inner():
        return "frame"

    def fn():
        return "frame"

    with_entries(inner, lambda: "inner")
    with_entries(fn, lambda: ["fn", inner()])
    with callback_set():
        assert fn() == ["fn", "inner"]


def test_methods_and_calls_with_unpacking_are_hooked():
    class Thing:
        def method(self, *args, k=0):
            return "frame"

    with_entries(Thing.method, lambda self, k, args: (type(self), args, k))
    with callback_set():
        assert Thing().method(1, 2) == (Thing, (1, 2), 0)
        assert Thing().method(*[1], **{"k": 3}) == (Thing, (1,), 3)
        assert list(map(Thing().method, [5])) == [(Thing, (5,), 0)]


@pytest.mark.slow
def test_entries_may_be_replaced_and_reset_while_one_of_them_runs():
    def fn(x):
        return "frame"

    def replacing(x):
        with_entries(fn, lambda x: "new")
        gc.collect()
        return MISS

    def resetting(x):
        _hook.reset(fn.__code__)
        gc.collect()
        return MISS

    with callback_set():
        with_entries(fn, replacing, lambda x: "old")
        assert fn(0) == "old"
        assert fn(0) == "new"
        with_entries(fn, resetting, lambda x: "old")
        assert fn(0) == "old"
        assert fn(0) == "frame"


def test_an_entry_may_remove_the_callback():
    def fn():
        return "frame"

    with_entries(fn, lambda: _hook.set_callback(None) and MISS)
    with callback_set():
        assert fn() == "frame"


def test_entries_are_read_back_and_reset_forgets_them_and_skip():
    def fn():
        pass

    code, entry = fn.__code__, print
    assert _hook.get_entries(code) == () and not _hook.is_skipped(code)
    _hook.set_entries(code, (entry, entry))
    _hook.skip(code)
    assert _hook.get_entries(code) == (entry, entry) and _hook.is_skipped(code)
    _hook.reset(code)
    assert _hook.get_entries(code) == () and not _hook.is_skipped(code)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _hook.set_entries((lambda: 0).__code__, (1,)),
        lambda: _hook.set_entries((lambda: 0).__code__, [print]),
        lambda: _hook.set_entries(print, ()),
        lambda: _hook.get_entries(print),
        lambda: _hook.skip(print),
        lambda: _hook.skip((lambda: 0).__code__, print),
        lambda: _hook.set_default(1),
        lambda: _hook.Callback(1),
        lambda: _hook.is_skipped(None),
        lambda: _hook.reset(None),
        lambda: _hook.plain(1),
        lambda: _hook.set_callback(1),
        lambda: type(MISS)(),
    ],
)
def test_wrong_arguments_raise_type_error(call):
    with pytest.raises(TypeError):
        call()


def test_the_sentinels_name_themselves():
    assert [repr(v) for v in (MISS, PLAIN, _hook.PLAIN_INSIDE)] == ["<sot.MISS>", "<sot.PLAIN>", "<sot.PLAIN_INSIDE>"]


# ---- the callback --------------------------------------------------------------------------------


def test_plain_inside_leaves_one_call_and_all_that_it_calls_to_python():
    def inner():
        return 1

    def fn():
        return inner() + 1

    asked = []
    with callback_set(lambda function, arguments: asked.append(function) or (
            _hook.PLAIN_INSIDE if len(asked) == 1 else None)):
        assert [fn(), fn()] == [2, 2]
    assert asked[:3] == [fn, fn, inner]


def test_a_frame_left_alone_may_raise_and_the_callback_is_there_again():
    def fn():
        raise KeyError("x")

    asked = []
    with callback_set(lambda function, arguments: _hook.PLAIN_INSIDE if asked.append(function) or function is fn
                      else None):
        for _ in range(2):
            with pytest.raises(KeyError):
                fn()
    assert asked.count(fn) == 2


def test_the_callback_gets_the_function_and_its_arguments():
    free = 3

    def fn(x, *rest, k):
        return free

    seen = []
    with callback_set(lambda *call: seen.append(call)):
        assert fn(1, 2, k=4) == 3
    assert seen[0] == (fn, (1, 4, (2,), *fn.__closure__))


def test_a_callable_from_the_callback_answers_the_frame():
    def fn(x):
        return "frame"

    answers = {"value": lambda x: x + 1, "miss": lambda x: MISS, "plain": lambda x: PLAIN}
    results = {}
    for name, entry in answers.items():
        with callback_set(lambda function, arguments: entry if function is fn else None):
            results[name] = fn(1)
    assert results == {"value": 2, "miss": "frame", "plain": "frame"}


def test_an_exception_from_the_callback_is_the_exception_of_the_frame():
    def fn():
        return "frame"

    def strict(function, arguments):
        if function is fn:
            raise NotImplementedError(function.__name__)

    with pytest.raises(NotImplementedError, match="fn"), callback_set(strict):
        fn()


def test_the_callback_is_hidden_while_it_runs():
    seen = []

    def helper():
        return "frame"

    def callback(function, arguments):
        seen.append((function.__name__, helper()))

    def fn():
        pass

    with_entries(helper, lambda: "hooked")
    with callback_set(callback):
        fn()
    assert seen[0] == ("fn", "frame")


def test_skipped_code_is_left_alone():
    def fn():
        return "frame"

    seen = []
    with_entries(skipped(fn), lambda: "entry")
    with callback_set(lambda function, arguments: seen.append(function)):
        assert fn() == "frame"
    assert fn not in seen


def test_code_may_be_left_alone_where_one_callback_is_set():
    def fn():
        return "frame"

    with_entries(fn, lambda: "entry")
    first, second = (_hook.Callback(lambda function, arguments: None) for _ in range(2))
    _hook.skip(fn.__code__, first)
    assert [_hook.is_skipped(fn.__code__, c) for c in (first, second, None)] == [True, False, False]
    for callback, answer in ((first, "frame"), (second, "entry"), (print, "entry")):
        with callback_set(callback):
            assert fn() == answer
    _hook.reset(fn.__code__)
    assert not _hook.is_skipped(fn.__code__, first)


def test_code_that_is_left_alone_keeps_no_callback_alive():
    def fn():
        return "frame"

    for _ in range(100):
        callback = _hook.Callback(lambda function, arguments: None)
        _hook.skip(fn.__code__, callback)
        gone = weakref.ref(callback)
        del callback
        assert gone() is None
    asked = []
    with callback_set(_hook.Callback(lambda function, arguments: asked.append(function))):
        assert fn() == "frame"
    assert asked[0] is fn


def test_set_callback_returns_the_previous_one():
    def first(function, arguments):
        return None

    assert _hook.set_callback(first) is None
    assert _hook.get_callback() is first
    assert _hook.set_callback(None) is first
    assert _hook.get_callback() is None


def test_the_callback_may_replace_itself():
    def fn():
        return "frame"

    def callback(function, arguments):
        _hook.set_callback(None)
        return lambda: "answer"

    with callback_set():
        _hook.set_callback(callback)
        assert fn() == "answer"
        assert fn() == "frame"


# ---- frames that are left alone ------------------------------------------------------------------


def names_seen(fn, *args):
    names = []
    with callback_set(lambda function, arguments: names.append(function.__name__)):
        fn(*args)
    return names


def test_generators_and_coroutines_are_left_alone():
    def generator():
        yield 1
        yield from [2]

    async def coroutine():
        return 3

    async def asynchronous():
        yield 4

    @types.coroutine
    def iterable():
        yield 5

    def fn():
        assert [*generator()] == [1, 2]
        started = generator()
        next(started)
        with contextlib.suppress(KeyError):
            started.throw(KeyError)
        with contextlib.suppress(StopIteration):
            coroutine().send(None)
        with contextlib.suppress(StopIteration):
            asynchronous().__anext__().send(None)
        assert next(iterable()) == 5

    for left_alone in (generator, coroutine, asynchronous, iterable):
        with_entries(left_alone, lambda: pytest.fail("asked"))
    names = names_seen(fn)
    assert "fn" in names
    assert not {"generator", "coroutine", "asynchronous", "iterable"} & {*names}


def test_class_bodies_modules_and_executed_code_are_left_alone():
    def fn():
        class Body:
            x = 1

        exec("y = 1")
        exec(compile("z = 1", "module", "exec"), {})

    def without_arguments():
        return "frame"

    names = names_seen(fn)
    assert "Body" not in names and "<module>" not in names
    assert "without_arguments" not in names_seen(exec, without_arguments.__code__)


@pytest.mark.parametrize("set_tracer", [sys.settrace, sys.setprofile])
def test_a_thread_that_traces_runs_everything_plainly(set_tracer):
    def fn():
        return "frame"

    events = []

    def tracer(frame, event, arg):
        if frame.f_code is fn.__code__:
            events.append(event)
        return tracer

    with_entries(fn, lambda: "entry")
    with callback_set():
        set_tracer(tracer)
        traced = fn()
        set_tracer(None)
        untraced = fn()
    assert (traced, untraced) == ("frame", "entry")
    assert "call" in events and "return" in events


def test_audit_hooks_are_left_alone():
    """They run within whatever is audited, such as `id` in the middle of a translated loop."""
    audited = []

    def hook(event, args):
        if listening and event == "builtins.id":
            audited.append(noticed(event))

    def noticed(event):
        return event

    listening = True
    sys.addaudithook(hook)
    names = names_seen(lambda: id(hook))
    listening = False
    assert audited and "hook" not in names and "noticed" not in names and "<lambda>" in names
