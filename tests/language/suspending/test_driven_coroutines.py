"""Coroutines that the captured program drives itself, contexts in which it runs, ranges that are under way."""
from __future__ import annotations

import asyncio
import contextvars
import gc
import warnings

import pytest
import torch
from harness import Counter, Programs, check, same

import sot

X = torch.arange(1.0, 5.0)
A = contextvars.ContextVar("A", default=1)
B = contextvars.ContextVar("B")
program = Programs()


@program
def copies_that_are_changed(x):
    c = contextvars.copy_context()

    def inside():
        token = A.set(A.get() * 10)
        B.set("b")
        return x * A.get(), token.old_value
    found = c.run(inside)
    return found, A.get(), B.get(None), c[A], c.get(B), B in c, c.get(A, 5)


@program
def copies_of_copies(x):
    c = contextvars.copy_context()

    def inside():
        d = contextvars.copy_context()

        def innermost():
            A.set(7)
            A.reset(A.set(8))
            return A.get()
        A.set(5)
        return d.run(innermost), A.get(), d[A]
    try:
        c.run(lambda: 1 / 0)
    except ZeroDivisionError:
        pass
    try:
        c[B]
    except KeyError as e:
        missing = type(e)
    return x * 2, c.run(inside), A.get(), c.run(A.get), missing


@program
def what_a_variable_held_before(x):
    token = B.set("b")
    other = B.set("c")
    found = token.old_value is contextvars.Token.MISSING, other.old_value is contextvars.Token.MISSING, other.old_value
    B.reset(other)
    B.reset(token)
    return x * 2, found, B.get(None)


async def waits(x, k):
    await asyncio.sleep(0)
    if k > 2:
        raise ValueError(k)
    return x * k


@program
def variables_in_a_loop(x):
    async def main():
        A.set(100)
        return x * A.get()
    return asyncio.run(main()), A.get()


@program
def exceptions_in_a_loop(x):
    async def main():
        try:
            await waits(x, 5)
        except ValueError as e:
            return await waits(x, 2), str(e)
    return asyncio.run(main())


@program
def exceptions_out_of_a_loop(x):
    try:
        asyncio.run(waits(x, 3))
    except ValueError as e:
        return x + 1, repr(e)


class Manager:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return True


@program
def managers_in_a_loop(x):
    async def main():
        async with Manager():
            raise ValueError
        return x * 2
    return asyncio.run(main())


@program
def thrown_into(x):
    async def main():
        try:
            await asyncio.sleep(0)
        except ValueError as e:
            return x * 2, str(e)
    c = main()
    c.send(None)
    try:
        c.throw(ValueError("t"))
    except StopIteration as e:
        return e.value


class Pending:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        return (yield self.value)


@program
def values_sent(x):
    async def main():
        a = await Pending(x)
        return a + await Pending(a * 2)
    c = main()
    found = [c.send(None), c.send(x * 3)]
    try:
        c.send(x)
    except StopIteration as e:
        found.append(e.value)
    return found


@program
def wrong_calls(x):
    async def one():
        return 1

    async def wrong(what):
        return await what

    async def stops():
        raise StopIteration(3)
    done, new, found = one(), one(), []
    asyncio.run(done)
    for call in (lambda: done.send(None), lambda: done.throw(KeyError()), lambda: wrong(done).send(None),
                 lambda: wrong(3).send(None), lambda: new.send(1), lambda: stops().send(None)):
        try:
            call()
        except Exception as e:
            found.append((type(e), str(e)))
    done.close()
    new.close()
    return x * 2, found


@program.each
def test_programs(fn):
    check(fn, X, graphs=1, breaks=0)


@pytest.mark.parametrize("fn", [variables_in_a_loop, exceptions_in_a_loop])
def test_in_a_loop_that_runs_already(fn):
    async def main():
        return sot.to_static(fn, backend="eager")(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # of a coroutine that is never awaited
        with pytest.raises(RuntimeError, match="running event loop"):
            asyncio.run(main())
        gc.collect()


def test_what_a_run_leaves_behind():
    def fn(x):
        return asyncio.run(waits(x, 2))
    translated = sot.to_static(fn, backend="eager")
    for _ in range(2):
        asyncio.set_event_loop(asyncio.new_event_loop())
        translated(X)
        with pytest.raises(RuntimeError, match="no current event loop"):
            asyncio.get_event_loop()


# ---- ranges that are under way ----
def sums(x, numbers):
    for i in numbers:
        x = x + i
    return x, next(numbers, "end")


def two_of_it(x, numbers):
    first = next(numbers)
    return x * first, next(numbers, None), [*zip(numbers, "abc")]


@pytest.mark.parametrize("fn", [sums, two_of_it])
@pytest.mark.parametrize("over, steps", [(range(3), 0), (range(10, 2, -3), 1), (range(2), 1)])
def test_iterators_over_ranges(fn, over, steps):
    def begun():
        made = iter(over)
        for _ in range(steps):
            next(made)
        return made
    backend = Counter()
    translated = sot.to_static(fn, backend=backend)
    for _ in range(2):
        a, b = begun(), begun()
        want, got = fn(X, a), translated(X, b)
        assert not same(got, want)
        assert [*a] == [*b]
    assert len(backend.graphs) == 1 and not any(c.stopped for c in translated.captures)


def test_a_loop_goes_on_behind_a_break():
    def fn(x, n):
        for i in range(n):
            x = x * i + 1
            sot.graph_break()
            x = x + 1
        return x
    translated = sot.to_static(fn, backend="eager")
    for n in (4, 6, 9, 0, 1):
        assert torch.equal(translated(X, n), fn(X, n))
    captures = len(translated.captures)
    assert torch.equal(translated(X, 300), fn(X, 300)) and len(translated.captures) == captures


def test_pieces_of_a_generator_take_the_next_number():
    def tokens(x, n):
        for i in range(n):
            x = x.sin() + i
            yield x
    backend = Counter()
    translated = sot.to_static(tokens, backend=backend)
    for _ in range(2):
        assert not same([*translated(X, 5)], [*tokens(X, 5)])
    found = sot.translation_of(translated).captures
    assert not [str(c.stopped) for c in found if c.stopped]
