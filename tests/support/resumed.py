"""A function run one instruction at a time, and the functions that this is tried with.

The driver runs E at `pc`, then, in place of the R that E leaves to, E at the place where that R would start,
and so on.
"""
import contextlib
import inspect
import sys
import types

import pytest

from sot._hook import Tail, run
from sot.bytecode import decode
from sot.bytecode.frame_layout import Layout, argument_order
from sot.bytecode.liveness import live_names
from sot.bytecode.resume import can_resume, resume_code
from sot.bytecode.resume_origin import origin
from sot.bytecode.step import call_code, step_code

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
    c = [b for _ in range(1)]
    return sorted(locals()) == ["a", "b", "c"], b


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
