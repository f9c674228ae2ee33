"""Leaving a function anywhere and going on elsewhere is not noticed: `sot.bytecode.resume` against plain Python."""
import contextlib
import gc
import inspect
import sys
import traceback
import types
import weakref

import pytest
from resumed import (
    CASES,
    FUNCTIONS,
    LOG,
    METHOD,
    Base,
    Derived,
    State,
    arguments,
    arithmetic,
    generates,
    loops,
    outcome,
    start,
    steps,
)

from sot import _hook
from sot._hook import Tail, run
from sot.bytecode import decode
from sot.bytecode.frame_layout import NULL, SAVED, VALUE, Layout, argument_order
from sot.bytecode.liveness import live_names
from sot.bytecode.resume import can_resume, generator_code, resume_code
from sot.bytecode.resume_origin import source
from sot.bytecode.step import call_code, step_code

# ---------------------------------------------------------------------------------------------------
# Step and resume code


@pytest.mark.parametrize("fn, a", [*CASES, METHOD])
def test_one_instruction_at_a_time(fn, a):
    args = arguments(fn, a)
    assert outcome(lambda: steps(start(fn, *args))) == outcome(fn, *args)


@pytest.mark.parametrize("fn, a", [*CASES, METHOD])
def test_the_rest_at_once(fn, a):
    """Up to each place one by one, then one instruction in E, and R by itself."""
    args = arguments(fn, a)
    expected = outcome(fn, *args)
    seen, count = set(), 0
    while isinstance(state := silently(steps, start(fn, *args), count), State):
        if state.pc not in seen:
            seen.add(state.pc)

            def one_and_the_rest():
                state = steps(start(fn, *args), count + 1)
                return state.finish() if isinstance(state, State) else state

            assert outcome(one_and_the_rest) == expected
        count += 1
    assert len(seen) > 5


def silently(fn, *args):
    with contextlib.suppress(BaseException):
        return fn(*args)


# ---------------------------------------------------------------------------------------------------
# Calls of which the inner frame breaks


@pytest.mark.parametrize("fn, a", CASES)
def test_calls_taken_out(fn, a):
    assert outcome(lambda: steps(start(fn, a), step=State.step_thunk)) == outcome(fn, a)


@pytest.mark.parametrize("fn, a", CASES)
def test_the_rests_of_caller_and_callee_are_one_function(fn, a):
    """At each call by itself: up to it one by one, then C."""
    args = arguments(fn, a)
    expected = outcome(fn, *args)
    count = 0
    while isinstance(state := silently(steps, start(fn, *args), count), State):
        if decode(state.code).instrs[state.pc].op == "CALL" and "locals" not in state.code.co_names:
            assert outcome(lambda: steps(start(fn, *args), count).step_composed()) == expected
        count += 1


def nested(fn, args, log):
    """The break is in the innermost of two frames: what the caller of the hook is given to run."""
    outer = start(fn, *args)
    while decode(outer.code).instrs[outer.pc].op != "CALL":
        outer = outer.step()

    def thunk():
        inner = start(outer.values[-1], 0)
        log.append("inner")
        return inner.call(step_code(inner.code, inner.pc, inner.layout))

    depth = len(outer.layout.slots) - 2
    frame = State(outer.code, outer.pc, Layout(outer.layout.slots[:depth], outer.layout.names), outer.closure,
                  outer.values[:-1], outer.namespace)
    return run(frame.call, call_code(frame.code, frame.pc, frame.pc + 1, frame.layout, True), thunk)


def test_the_handler_of_the_call_needs_variables_that_what_follows_does_not():
    def f(a, inner):
        try:
            return inner()
        except ZeroDivisionError:
            return a

    pc = at(f, "CALL")
    assert live_names(f.__code__, pc) == {"a"}
    assert live_names(f.__code__, pc + 1) == set()
    assert nested(f, (3, lambda b=0: 1 // b), []) == 3


def test_two_frames():
    def inner(b=0):
        return 10 // b

    def f(a, inner):
        try:
            return inner() + a
        except ZeroDivisionError as e:
            return str(e), a

    log = []
    assert nested(f, (3, inner), log) == f(3, inner)
    assert log == ["inner"]


# ---------------------------------------------------------------------------------------------------
# Generators


def in_except(a):
    try:
        {}[a]
    except KeyError:
        yield 1
        LOG.append((yield type(sys.exception())))
    try:
        yield [n for n in range(a)] + [(yield a)]
    except OSError as e:
        yield e.args


def of_a_generator(a):
    return (n + a for n in range(3))


def at_yield(fn, args, count):
    """The frame of the generator fn(*args), at its yield number `count`; n is sent to yield number n."""
    state, seen = start(fn, *args), 0
    while isinstance(state, State):
        if decode(state.code).instrs[state.pc].op != "YIELD_VALUE":
            state = state.step()
            continue
        slots, values = state.layout.slots, state.values[:-1]
        if seen == count:
            return State(state.code, state.pc + 1, Layout(slots[:-1], state.layout.names), state.closure, values,
                         state.namespace)
        sent = seen if decode(state.code).instrs[state.pc + 1].arg == 1 else None
        state = State(state.code, state.pc + 1, state.layout, state.closure, (*values, sent), state.namespace)
        seen += 1
    return None


def play(generator, script):
    LOG.clear()
    trace = []
    for name, *args in script:
        frame = generator.gi_frame
        trace.append((frame and frame.f_lineno, generator.gi_yieldfrom is None, inspect.getgeneratorstate(generator)))
        trace.append(outcome(getattr(generator, name), *args)[0])
        trace.append([*LOG])
    return trace


SCRIPTS = [
    [("send", None)] * 12,
    [("throw", ValueError), ("send", None), ("send", None), ("close",)],
    [("throw", KeyError), ("send", None)],
    [("send", None), ("throw", OSError), ("send", None), ("throw", StopIteration)],
    [("close",), ("send", None)],
    [("send", None), ("send", None), ("close",)],
]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
@pytest.mark.parametrize("fn", [generates, in_except], ids=lambda fn: fn.__name__)
def test_generators(fn, script):
    for count in range(20):
        state = at_yield(fn, (3,), count)
        if state is None:
            break
        assert can_resume(state.code, state.pc, state.layout, generator=True) is None
        code = generator_code(state.code, state.pc, state.layout)
        assert generator_code(state.code, state.pc, state.layout) is code
        after = at_yield(fn, (3,), count)
        again = after.call(generator_code(after.code, after.pc + 1, after.layout))
        rest = state.call(code)
        plain = fn(3)
        next(plain)
        for n in range(count):
            plain.send(n if plain.gi_yieldfrom is None else None)
        assert next(rest) is next(again) is None
        assert play(rest, script) == play(again, script) == play(plain, script)
    assert count > 2


def test_the_generator_of_an_expression():
    plain = of_a_generator(5)
    code, closure = plain.gi_code, tuple(types.CellType(5) for _ in plain.gi_code.co_freevars)
    instrs = decode(code).instrs
    pc = 1 + next(n for n, i in enumerate(instrs) if i.op == "YIELD_VALUE")
    layout = Layout((VALUE,), ())
    rest = types.FunctionType(generator_code(code, pc, layout), globals(), closure=closure)(iter([1, 2]))
    assert next(rest) is None
    assert list(rest) == [6, 7]


# ---------------------------------------------------------------------------------------------------
# Resume code that breaks again, and what is kept


@pytest.mark.slow
def test_r_counts_as_the_code_it_is_a_copy_of():
    for fn in FUNCTIONS:
        state = start(fn, 2)
        while isinstance(state, State):
            code = resume_code(state.code, state.pc, state.layout)
            assert (code.co_name, code.co_qualname, code.co_filename, code.co_firstlineno) == (
                fn.__code__.co_name, fn.__code__.co_qualname, fn.__code__.co_filename, fn.__code__.co_firstlineno)
            body, own = decode(state.code).instrs, decode(code).instrs
            places = [source(code, n)[1] for n in range(len(own))]
            for a, b in [(body[n], instr) for n, instr in zip(places, own) if n >= start(fn, 2).pc]:
                joined = (a.op, b.op) == ("CONVERT_VALUE", "FORMAT_SIMPLE")
                assert joined or (a.op, a.arg, a.pos) == (b.op, b.arg, b.pos)
            pc = len(own) - 1 - places[::-1].index(state.pc)
            assert resume_code(code, pc, state.layout) is code
            assert step_code(code, pc, state.layout) is step_code(state.code, state.pc, state.layout)
            if pc + 1 < len(own):
                outer = call_code(state.code, state.pc, source(code, pc + 1)[1], state.layout, True)
                assert call_code(code, pc, pc + 1, state.layout, True) is outer
            assert live_names(code, pc) == live_names(state.code, state.pc)
            assert argument_order(code, state.layout) == argument_order(state.code, state.layout)
            assert can_resume(code, 0, state.layout) == "the frame has not started"
            if can_resume(state.code, state.pc, state.layout):
                break
            state = silently(state.step)


def test_a_long_loop():
    def f(n):
        total = 0
        for x in range(n):
            total += len(str(x))
        return total

    places, functions = set(), set()

    def step(state):
        tail = state.call(step_code(state.code, state.pc, state.layout))
        if type(tail) is not Tail:
            return tail
        places.add(State.of(tail).pc)
        functions.add(tail.function.__code__)
        return State.of(tail)

    assert steps(start(f, 1000), step=step) == f(1000)
    assert len(functions) == len(places) < 30


def test_the_trampoline_needs_no_stack():
    depths = set()

    def depth(frame):
        return sum(1 for _ in traceback.walk_stack(frame))

    def loop(n, total):
        depths.add(depth(sys._getframe()))
        return Tail(loop, (n - 1, total + n)) if n else total

    assert run(loop, 10_000, 0) == sum(range(10_001))
    assert len(depths) == 1


@pytest.mark.slow
def test_nothing_keeps_an_operand_alive():
    class Big:
        pass

    def f(make, check):
        len([make()])
        return check()

    def make():
        made = Big()
        refs.append(weakref.ref(made))
        return made

    refs = []
    state = start(f, make, lambda: gc.collect() and refs[0]() is None or refs[0]() is None)
    while decode(state.code).instrs[state.pc].op != "BUILD_LIST":
        state = state.step()
    code, values = resume_code(state.code, state.pc, state.layout), state.values
    tail = Tail(types.FunctionType(code, globals()), values)
    del state, values
    before = _hook.set_callback(lambda function, args: None)     # from then on it is the hook that evaluates frames
    try:
        alive = not run(lambda: tail)
    finally:
        _hook.set_callback(before)
    assert not alive


# ---------------------------------------------------------------------------------------------------
# What is live, and what cannot be left


def at(fn, op, arg=None):
    return next(n for n, i in enumerate(decode(fn.__code__).instrs) if i.op == op and arg in (None, i.arg))


def test_live_names():
    def f(a, b, c):
        d = a
        try:
            b = d()
        except ValueError:
            return c
        del d
        return b

    assert live_names(f.__code__, at(f, "LOAD_FAST", "a")) == {"a", "c"}
    assert live_names(f.__code__, at(f, "LOAD_FAST", "d")) == {"d", "c"}
    assert live_names(f.__code__, at(f, "CALL")) == {"d", "c"}
    assert live_names(f.__code__, at(f, "DELETE_FAST", "d")) == {"d", "b"}
    assert live_names(f.__code__, at(f, "RETURN_VALUE")) == set()


def test_live_names_in_a_loop_and_with_locals():
    def loop(a, b):
        for x in a:
            if x:
                b = x
            a = b

    def sees(a, b):
        c = 1
        a.eval()
        return locals()

    def cell(a, b):
        return lambda: a

    assert live_names(loop.__code__, at(loop, "STORE_FAST", "x")) == {"b"}
    assert live_names(loop.__code__, at(loop, "STORE_FAST", "a")) == {"b"}
    assert live_names(sees.__code__, at(sees, "RETURN_VALUE")) == {"a", "b", "c"}
    assert live_names(cell.__code__, at(cell, "LOAD_CLOSURE")) == set()
    assert live_names(Derived.method.__code__, at(Derived.method, "RETURN_VALUE")) == {"self"}


def test_argument_order():
    layout = Layout((VALUE, NULL, SAVED, VALUE), ("b", "a"))
    assert argument_order(arithmetic.__code__, layout) == [("name", "a"), ("name", "b"), ("slot", 0), ("slot", 2),
                                                           ("slot", 3)]
    assert step_code(arithmetic.__code__, 3, layout).co_varnames[:2] == ("a", "b")


def test_what_cannot_be_left():
    class Captures(Base):
        def size_of(self):
            return super().size, lambda: self

    def hides(a):
        x = 1
        return [x for x in a], lambda: x

    async def waits(a):
        return a

    layout = Layout((), ())
    assert "generator" in can_resume(generates.__code__, 5, layout)
    assert "generator" in can_resume(waits.__code__, 5, layout)
    assert "not a generator" in can_resume(loops.__code__, 5, layout, generator=True)
    assert "not suspended" in can_resume(generates.__code__, 4, layout, generator=True)
    assert "inner function" in can_resume(Captures.size_of.__code__, 5, layout)
    assert "deleted" in can_resume(Derived.method.__code__, 5, layout)
    assert can_resume(Derived.method.__code__, 5, Layout((), ("self",))) is None
    assert (can_resume(hides.__code__, 5, layout) is None) == (sys.version_info < (3, 12))


def test_a_condition_that_is_no_bool():
    """The interpreter may not have made a bool of it, though CPython 3.13 would have."""
    pc = at(loops, "POP_JUMP_IF_FALSE")
    code = loops.__code__
    for value in ("", "x"):
        layout = Layout((VALUE,), ())
        tail = types.FunctionType(step_code(code, pc, layout), globals())(value)
        assert (State.of(tail).pc == pc + 1) == bool(value)
