"""Leaving a function anywhere and going on elsewhere is not noticed: `sot.resume` against plain Python.

The driver runs a function one instruction at a time: E at `pc`, then, in place of the R that E leaves
to, E at the place where that R would start, and so on.
"""

import contextlib
import gc
import inspect
import sys
import types
import weakref

import pytest

from sot import _hook
from sot.bytecode import decode
from sot.resume import (
    NULL,
    SAVED,
    VALUE,
    Layout,
    Tail,
    argument_order,
    call_code,
    can_resume,
    generator_code,
    live_names,
    origin,
    resume_code,
    run,
    source,
    step_code,
)

LOG = []


class State:
    """A frame that is stopped: what a Tail says."""

    def __init__(self, code, pc, layout, closure, values, namespace):
        self.code, self.pc, self.layout, self.closure, self.values = code, pc, layout, closure or None, values
        self.namespace = namespace


    def call(self, code, *last):
        return types.FunctionType(code, self.namespace, closure=self.closure)(*self.values, *last)

    def step(self):
        """Run one instruction: the state after it, or the result."""
        result = self.call(step_code(self.code, self.pc, self.layout))
        return State.of(result) if type(result) is Tail else result

    def step_thunk(self, answer=None):
        """The same with a call taken out of it, as when the callee has been inlined."""
        instr = decode(self.code).instrs[self.pc]
        if instr.op != "CALL" or "locals" in self.code.co_names:
            return self.step()
        count, keywords = instr.arg
        depth = len(self.layout.slots) - count - 2
        stack = {what: value for (_, what), value in zip(argument_order(self.code, self.layout), self.values)}
        fn, *args = [stack[n] for n in range(depth, depth + count + 2) if n in stack]
        named = {name: args.pop() for name in reversed(keywords)}
        values = self.values[: len(self.values) - sum(n in stack for n in range(depth, depth + count + 2))]
        outer = State(self.code, self.pc, Layout(self.layout.slots[:depth], self.layout.names), self.closure, values,
                      self.namespace)
        keep = decode(self.code).instrs[self.pc + 1].op != "POP_TOP"
        code = call_code(self.code, self.pc, self.pc + 2 - keep, outer.layout, keep)
        callee = fn_of(fn, args, named)
        result = outer.call(code, callee if answer is None else lambda: answer(callee, ()))
        if answer is not None:
            return run(result.function, *result.take())
        return State.of(result) if type(result) is Tail else result

    def step_composed(self):
        """The same where the callee goes on in a function of its own: both rests are one function, C."""
        return self.step_thunk(Tail)

    def finish(self):
        """Run all the rest in R."""
        return run(self.call, resume_code(self.code, self.pc, self.layout))

    @staticmethod
    def of(tail):
        at = origin(tail.function.__code__)
        return State(at.code, at.pc, at.layout, tail.function.__closure__, tail.args, tail.function.__globals__)


def fn_of(fn, args, named):
    return lambda: fn(*args, **named)


def start(fn, *args):
    """The frame of fn(*args), about to run the first instruction of the body."""
    code = fn.__code__
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    variables = bound.arguments
    cells = tuple(types.CellType(*(variables[n] for n in [n] if n in variables)) for n in code.co_cellvars)
    pc = 1 + next(n for n, i in enumerate(decode(code).instrs) if i.op == "RESUME")
    names = [n for n in variables if n not in code.co_cellvars and n in live_names(code, pc)]
    layout = Layout((), tuple(names))
    values = [variables[name] for _, name in argument_order(code, layout)]
    return State(code, pc, layout, cells + (fn.__closure__ or ()), values, fn.__globals__)


def steps(state, count=10**6, step=State.step):
    handled = sys.exception()
    while count and isinstance(state, State):
        count -= 1
        if can_resume(state.code, state.pc, state.layout):  # between LOAD_FAST_AND_CLEAR and MAKE_CELL
            return state.finish()
        state = step(state)
        assert sys.exception() is handled
    return state


def outcome(fn, *args):
    """What one can tell about a call."""
    LOG.clear()
    try:
        result = fn(*args)
    except BaseException as e:
        result = [type(e), str(e), type(e.__context__), type(e.__cause__), lines(e)]
    return result, [*LOG]


def lines(exception):
    tb, found = exception.__traceback__, []
    while tb:
        name = tb.tb_frame.f_code.co_name
        if name in NAMES:
            found.append((name, tb.tb_lineno))
        tb = tb.tb_next
    return found


# ---------------------------------------------------------------------------------------------------
# The functions


class Manager:
    def __init__(self, suppress=()):
        self.suppress = suppress

    def __enter__(self):
        LOG.append("enter")
        return self

    def __exit__(self, kind, value, tb):
        LOG.append(("exit", kind, type(sys.exception())))
        return kind in self.suppress


def arithmetic(a):
    b = a * 2 - 1
    b += 3
    c = -b, ~b, not b, +b, a < b < 100, a is b, a not in [b], a and b or 7
    return c, b if a > 1 else (a, b), 1 < a <= 2


def containers(a):
    d = {"x": a, **{"y": 1}}
    d["z"] = [*range(a), a]
    first, *rest = d["z"] + [1, 2]
    (p, q), r = (a, a), {1, *rest}
    s = d["z"][0:2]
    d["z"][1:1] = [5]
    del d["y"], d["z"][0]
    return d, first, rest, p, q, r, s, [1, 2, 3][::2], (z := a) + z


def strings(a):
    return f"{a!r:>5}|{a}|{a:03d}|{a!s}|{'x' * a:{a + 3}}", f"{a=}"


def calls(a):
    def inner(x, *args, k=1, **kw):
        return x, args, k, kw

    few = [1, 2]
    return inner(a, *few, k=3, **{"m": 4}), inner(a, 2, k=2), "a,b".split(","), [3, 1].sort(), max(*few), dict(a=a)


def loops(a):
    total = 0
    for x in range(a):
        for y in "abc":
            if y == "b" and x == 1:
                continue
            if x == 3:
                break
            total += x
        else:
            total += 100
    while total > 50:
        total -= 60
        if total == 43:
            return "early"
    else:
        total += 1
    return total


def catches(a):
    out = []
    for x in range(a):
        try:
            try:
                out.append(10 // x)
                if x == 2:
                    raise KeyError(x)
                if x == 3:
                    raise OSError("not caught") from ValueError()
            except ZeroDivisionError as e:
                out.append((str(e), type(sys.exception())))
                continue
            finally:
                out.append(("finally", type(sys.exception())))
        except (KeyError, IndexError):
            try:
                raise TypeError
            except TypeError as inner:
                out.append((type(inner.__context__), type(sys.exception())))
            out.append(type(sys.exception()))
        else:
            out.append("else")
    return out


def returns_from_finally(a):
    for x in range(5):
        try:
            try:
                if x == a:
                    return "from try"
                1 // (x - 2)
            except ZeroDivisionError:
                if a > 3:
                    return "from except", str(sys.exception())
                raise
            finally:
                LOG.append(x)
        finally:
            if a == 3:
                return "from finally"


def reraises(a):
    try:
        try:
            [][a]
        except IndexError as e:
            if a:
                raise
            raise RuntimeError("other") from e
    except LookupError:
        LOG.append("lookup")
        raise


def managers(a):
    with Manager((ZeroDivisionError,)) as m, Manager():
        LOG.append(m.suppress)
        for x in range(3):
            with contextlib.suppress(KeyError):
                if x == a:
                    return x
                if x == 2:
                    1 // 0
                {}[x]
    if a > 5:
        with Manager():
            raise OSError(a)
    return "end"


def groups(a):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), OSError(a)][: a + 1])
    except* ValueError as e:
        LOG.append(len(e.exceptions))
    except* TypeError:
        if a == 1:
            raise KeyError("new")
    return "all handled"


def closures(a, b=2):
    total, unset = 0, [0]

    def add(n):
        nonlocal total
        total += n + a  # noqa: F821
        return total

    for b in range(3):
        add(b)
        a += 1
        fn = lambda: (b, a, total)  # noqa: F821
        if b == 5:
            late = 1
    try:
        (lambda: late)()
    except NameError as e:
        LOG.append(str(e))
    del a
    return fn.__closure__[1].cell_contents, add(0) if unset is None else total, [(lambda: i)() for i in range(3)]


def comprehensions(a):
    x = "outer"
    squares = [x * x for x in range(a) if x % 2]
    pairs = {x: [y for y in range(x)] for x in squares}
    return squares, pairs, {x for x in (1, 1)}, x, sum(z for z in range(a)), [lambda: k for k in range(2)][0]()


def raises_in_comprehension(a):
    try:
        return [10 // (a - n) for n in range(a + 1)]
    except ZeroDivisionError:
        n = "n is mine"
        return [n for _ in range(2)], n


def matching(a):
    out = []
    for value in ({"k": a, "more": 1}, [a, 2, 3], 3 + 0j, (), "s"):
        match value:
            case {"k": 1 | 2 as k, **rest}:
                out.append((k, rest))
            case [first, *_, last] if first:
                out.append((first, last))
            case complex(real=r):
                out.append(r)
            case []:
                out.append("empty")
            case _:
                out.append("other")
    return out


def definitions(a, *args, k: int = 3, **kw):
    import os.path as p
    from collections import OrderedDict, deque
    global made

    class Local(Manager):
        size: int = a

        def get(self, z=k, *, y: int = 4):
            return super().__enter__() is self, self.size, z, y

    made = Local
    made.size += 1
    assert a != 3, f"not {a}"
    return Local().get(), p.sep, OrderedDict, deque, args, kw


def unbound(a):
    if a > 1:
        x = 1
    del a
    try:
        a
    except NameError as e:
        LOG.append(str(e))
    return x


def sees_all(a):
    b = a + 1
    c = [dict(locals()) for _ in range(1)] if sys.version_info < (3, 12) else None
    return sorted(locals()) == ["a", "b", "c"], eval("a + b"), sorted(vars())


class Base:
    def method(self, a):
        return "base", a

    @property
    def size(self):
        return 3


class Derived(Base):
    def method(self, a):
        plain = super()
        return super().method(a), plain.method(1), super().size, super(Derived, self).method(2), __class__


def calls_super(a):
    return Derived().method(a)


def generates(a):
    try:
        for x in range(a):
            try:
                got = yield x
                LOG.append(got)
            except ValueError as e:
                got = yield ("caught", str(e), type(sys.exception()))
            finally:
                LOG.append("finally")
        with Manager((KeyError,)):
            yield from (inner for inner in "ab")
    finally:
        LOG.append("closing")
    return (lambda: a)()


FUNCTIONS = [
    arithmetic, containers, strings, calls, loops, catches, returns_from_finally, reraises, managers, groups,
    closures, comprehensions, raises_in_comprehension, matching, definitions, unbound, sees_all,
]
NAMES = {fn.__name__ for fn in FUNCTIONS} | {"method", "generates"}
CASES = [pytest.param(fn, a, id=f"{fn.__name__}-{a}") for fn in FUNCTIONS for a in range(5)]
METHOD = pytest.param(Derived.method, None, id="method")


def arguments(fn, a):
    return (Derived(), 5) if fn is Derived.method else (a,)


# ---------------------------------------------------------------------------------------------------
# E and R


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
# R again, and what is kept


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
        functions.add(tail.function)
        return State.of(tail)

    assert steps(start(f, 1000), step=step) == f(1000)
    assert len(functions) == len(places) < 30


def test_the_trampoline_needs_no_stack():
    depths = set()

    def loop(n, total):
        depths.add(len(inspect.stack(0)))
        return Tail(loop, (n - 1, total + n)) if n else total

    assert run(loop, 10_000, 0) == sum(range(10_001))
    assert len(depths) == 1


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
