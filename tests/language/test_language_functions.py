"""The Python language reference: functions, closures, decorators and generators are captured exactly."""
from __future__ import annotations

import functools
import sys
import types

import pytest
import torch
from harness import Programs, caught, check, same

import sot

X = torch.arange(1.0, 5.0)
program, with_breaks = Programs(), Programs()


@program.each
def test_is_captured_whole(fn):
    check(fn, X, graphs=1, breaks=0)


@with_breaks.each
def test_is_right_with_breaks(fn):
    check(fn, X)


class Unpacks:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from range(self.n)


# ---- functions ------------------------------------------------------------------------------------------------------
def takes(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


@program
def parameters(x):
    def forward(*args, **kwargs):
        return takes(*args, **kwargs)
    t, d = (1, 2, 3), {"d": 4}
    return (takes(1, d=4), takes(1, 2, c=4, d=5), takes(*t, 4, 5, **d), takes(0, d=1, a=2, b=3, z=4), forward(*t, **d),
            takes(*[1], *(2,), **d, **{"e": 6}), takes(*"abc", d=x.shape), x + 1)


@with_breaks
def wrong_calls(x):
    def keyword_only(*, k):
        return k

    def positional_only(p, /):
        return p
    return (caught(lambda: takes()), caught(lambda: takes(1)), caught(lambda: positional_only(p=1)),
            caught(lambda: keyword_only(1)), caught(lambda: positional_only(1, 2)), caught(lambda: keyword_only(z=1)),
            caught(lambda: takes(1, 2, 3, c=4, d=5)), caught(lambda: takes(1, d=2, **{"d": 3})),
            caught(lambda: takes(*5)), caught(lambda: takes(**{1: 2})), caught(lambda: takes(**5)), x + 1)


def remembers(x, seen=[], *, table={}):  # noqa: B006
    seen.append(x.shape[0])
    table[len(seen)] = "k"
    return seen, table, x + 1


def test_mutable_defaults_persist():
    translated = sot.to_static(remembers, backend="eager")
    results = [[len(fn(X)[0]) for _ in range(3)] for fn in (remembers, translated)]
    assert results == [[1, 2, 3], [4, 5, 6]] and remembers.__defaults__[0] is translated(X)[0]
    assert len(remembers.__kwdefaults__["table"]) == 7


@program
def closures_over_loop_variables(x):
    late = [lambda: i for i in range(3)]
    early = [lambda i=i: i for i in range(3)]
    made = []
    for j in range(3):
        def f(k=j):
            return j, k, x.shape
        made.append(f)
    counters = []
    for _ in range(2):
        n = 0

        def count():
            nonlocal n
            n += 1
            return n
        counters.append(count)
    return ([f() for f in late], [f() for f in early], [f() for f in made], counters[0](), counters[1](),
            counters[0](), n, x + 1)


def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


@program
def recursion(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    def halve(x, depth):
        return x if depth == 0 else halve(x / 2, depth - 1)
    return factorial(20), fib(8), even(10), odd(7), halve(x, 5)


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return fn(*args, **kwargs), wrapper.calls
    wrapper.calls = 0
    return wrapper


def repeated(times, *, prefix="r"):
    def decorate(fn):
        def wrapper(*args):
            return [f"{prefix}{i}" for i in range(times)], [fn(*args) for _ in range(times)]
        return wrapper
    return decorate


class Counted:
    def __init__(self, fn):
        self.fn, self.n = fn, 0

    def __call__(self, *args):
        self.n += 1
        return self.n, self.fn(*args)


@program
def decorators(x):
    @repeated(2, prefix="p")
    @logged
    def f(v):
        """Doc."""
        return v + 1

    @Counted
    def g(v):
        return v * 2

    @logged
    def named(v):
        """Doc."""
        return v
    return (f(1), f(2), g(1), g(2), g.n, named.__name__, named.__doc__, named.__wrapped__(3), named(4), named.calls,
            x + 1)


@program
def functions_are_objects(x):
    def f(a, b=1, *, c: int = 2) -> str:
        """Says."""
        return a, b, c
    f.mark = "m"
    g = f
    table = {f: 1, len: 2}
    return (f.__name__, f.__doc__, f.__defaults__, f.__kwdefaults__, f.mark, g is f, table[g], f == g, callable(f),
            f.__code__.co_argcount, f.__call__(5), (lambda: 0).__name__, x + 1)


@program
def locals_and_star_names(x):
    def f(a, *args, **kwargs):
        b = 2
        kwargs["new"] = b
        return sorted(locals()), kwargs, args
    d = {"k": 1}
    return f(1, 2, **d), d, x + 1


# ---- generators -----------------------------------------------------------------------------------------------------
def echo(log):
    try:
        got = None
        while True:
            try:
                got = yield ("got", got)
            except ValueError as e:
                log.append(str(e))
                got = "handled"
            if got == "stop":
                return "returned"
    finally:
        log.append("finally")


@program
def generators_send_throw_close(x):
    log = []
    g = echo(log)
    a = [next(g), g.send(1), g.throw(ValueError("bad")), g.send(2)]
    try:
        g.send("stop")
    except StopIteration as e:
        a.append(e.value)
    a.append(caught(g.send, None))
    h = echo(log)
    next(h)
    h.close()
    h.close()
    i = echo(log)
    next(i)
    b = caught(i.throw, KeyError("k"))
    j = echo(log)
    c = caught(j.send, 5), caught(j.throw, ValueError("early")), list(j)
    return a, b, c, log, x + 1


@program
def yield_from(x):
    log = []

    def inner():
        got = yield 1
        log.append(got)
        yield from [2, 3]
        return "inner result"

    def outer():
        result = yield from inner()
        log.append(result)
        result = yield from (v for v in "ab")
        log.append(result)
        yield from Unpacks(2)
        return "outer"

    def outermost():
        log.append((yield from outer()))
    g = outermost()
    return [next(g), g.send("sent"), *g], log, x + 1


@program
def yield_from_throws(x):
    log = []

    def inner():
        try:
            yield 1
            yield 2
        except ValueError as e:
            log.append(repr(e))
            yield 3
        finally:
            log.append("inner done")

    def outer():
        try:
            yield from inner()
            yield 4
        except KeyError:
            log.append("outer caught")
            yield 5
        finally:
            log.append("outer done")
    g = outer()
    a = [next(g), g.throw(ValueError("v")), next(g), caught(next, g)]
    h = outer()
    b = [next(h), h.throw(KeyError("k")), caught(next, h)]
    i = outer()
    next(i)
    i.close()
    return a, b, log, x + 1


@program
def a_generator_left_in_a_named_handler(x):
    def gen():
        while True:
            try:
                yield x
            except ValueError as e:
                yield x * e.args[0]
    g = gen()
    next(g)
    return g.throw(ValueError(5))


@program
def generator_expressions(x):
    n = 2
    g = (v * n for v in range(4) if v)
    n = 3
    first = next(g)
    lazy = []
    h = (lazy.append(v) or v for v in range(3))
    before = list(lazy)
    next(h)
    return first, list(g), before, lazy, list(h), lazy, sum(x + v for v in range(3)), tuple(v for v in g), x + 1


@program
def infinite_and_nested_generators(x):
    def count(n):
        while True:
            yield n
            n += 1

    def take(n, it):
        for _, v in zip(range(n), it):
            yield v

    def tree(n):
        if n:
            yield from tree(n - 1)
            yield n
            yield from tree(n - 1)
    return list(take(3, count(5))), list(tree(3)), [*take(2, (v * v for v in count(2)))], x + 1


@program
def stop_iteration_in_a_generator(x):
    def g():
        yield 1
        raise StopIteration("inside")

    def h():
        yield next(iter([]))

    def cause():
        try:
            list(g())
        except RuntimeError as e:
            return str(e), type(e.__cause__).__name__, e.__cause__.args, e.__cause__ is e.__context__
    empty = (next(iter(())) for _ in "a")
    return caught(lambda: list(g())), caught(lambda: list(h())), caught(lambda: [*empty]), cause(), x + 1


@with_breaks
def map_of_stop_iteration(x):
    def f(v):
        if v == 2:
            raise StopIteration
        return v
    it = map(f, range(5))
    a = list(it)
    b = list(it)
    keep = filter(lambda v: f(v) or True, range(4))
    return a, b, list(keep), list(map(lambda p, q: f(p) + q, range(4), range(4))), x + 1


@program
def yield_in_an_except_block(x):
    log = []

    def g():
        try:
            raise ValueError("first")
        except ValueError as e:
            got = yield str(e)
            log.append((got, sys_exc()))
            try:
                raise KeyError("second")
            except KeyError as k:
                yield repr(k.__context__)
            yield 3
        log.append(sys_exc())
        yield 4
    it = g()
    a = [next(it), sys_exc(), it.send("sent"), sys_exc()]
    try:
        raise TypeError("outside")
    except TypeError:
        a += [next(it), sys_exc(), next(it), sys_exc()]
    return a, log, list(it), x + 1


def sys_exc():
    kind = sys.exc_info()[0]
    return kind and kind.__name__


def test_generators_leave_the_function():
    def f(x):
        def g():
            n = 0
            try:
                while True:
                    n += yield x + n
            finally:
                n = 100
        it = g()
        next(it)
        it.send(1)
        fresh = (v for v in range(3))
        return it, fresh, x * 2
    for fn in (f, sot.to_static(f, backend="eager")):
        for _ in range(2):
            it, fresh, y = fn(X)
            assert torch.equal(it.send(2), X + 3) and list(fresh) == [0, 1, 2] and torch.equal(y, X * 2)
            it.close()


def test_a_generator_that_handles_an_exception_leaves_the_function():
    def f(x):
        def g():
            try:
                raise ValueError("v")
            except ValueError as e:
                yield str(e)
                yield x + 1
        it = g()
        return next(it), it, x * 2
    for fn in (f, sot.to_static(f, backend="eager")):
        for _ in range(2):
            text, it, y = fn(X)
            assert text == "v" and torch.equal(next(it), X + 1) and list(it) == [] and torch.equal(y, X * 2)


@with_breaks
def coroutines_are_left_to_python(x):
    async def f(v):
        return v + 1
    c = f(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value, x * 2


# ---- globals that are a dict of the program
INCREMENTS = compile("def f(x):\n global N\n N += 1\n return x * N", "made", "exec").co_consts[0]


def called_with_globals(x, f, names):
    before = names["N"]
    y = f(x)
    names["N"] += 10
    return before, y, f(x), names["N"], f.__globals__ is names


def made_with_globals(x, f, names):
    made = {"N": names["N"]}
    exec("def g(x):\n global N\n N += 1\n return x * N", made)
    return made["g"](x), made["N"], f(x)


def called_then_looked_up(x, f, names):
    return f(x), f.__globals__["N"], f(x), names.get("N"), len(names)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [called_with_globals, made_with_globals, called_then_looked_up],
                         ids=lambda f: f.__name__)
def test_a_function_with_a_dict_of_the_program_as_its_globals(fn, backend):
    translated = sot.to_static(fn, backend=backend)
    for n in (1, 5, 1, 7):
        outcomes = []
        for run in (fn, translated):
            names = {"N": n}
            outcomes.append((run(X, types.FunctionType(INCREMENTS, names), names), names["N"]))
        assert same(outcomes[1], outcomes[0]) is None
    one, another = {"N": 1}, {"N": 2}
    assert same(translated(X, types.FunctionType(INCREMENTS, one), another),
                fn(X, types.FunctionType(INCREMENTS, {"N": 1}), {"N": 2})) is None
