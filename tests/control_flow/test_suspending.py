"""Generator functions, coroutine functions and async generator functions that are translated themselves: whatever a
caller sends or throws, they do what Python's do, and each piece between two suspensions is captured.
"""
import asyncio
import contextlib
import functools
import io

import pytest
import torch
from harness import Counter, Programs, chain, same

import sot

X = torch.arange(1.0, 5.0)
generator, coroutine, stream = Programs(), Programs(), Programs()

NEXT, CLOSE = ("__next__",), ("close",)
HISTORIES = {
    "to the end": [NEXT] * 9, "closed": [NEXT, NEXT, CLOSE, NEXT], "closed at once": [CLOSE, NEXT],
    "sent": [NEXT, ("send", 2.0), ("send", 3.0), ("send", None), NEXT, NEXT], "sent at once": [("send", 1), NEXT],
    "thrown": [NEXT, ("throw", ValueError("v")), NEXT, NEXT, ("throw", ValueError("w")), NEXT],
    "thrown late": [NEXT, NEXT, NEXT, ("throw", KeyError("k")), NEXT],
    "thrown at once": [("throw", ValueError(1)), NEXT],
    "stopped": [NEXT, ("throw", StopIteration(3)), NEXT],
}


def seen(made, history):
    """What a generator does, step by step."""
    found, out = [], io.StringIO()
    with contextlib.redirect_stdout(out):
        for name, *args in history:
            try:
                found.append(getattr(made, name)(*args))
            except Exception as e:  # noqa: BLE001 - to be compared
                found.append(chain(e))
        del made
    return found, out.getvalue()


@generator
def numbers(x, n=3):
    y = x * 2
    for i in range(n):
        got = yield y.sum() + i
        if got is not None:
            y = y * got
    return y.sin()


@generator
def handlers(x):
    y = x + 1
    for k in range(2):
        try:
            y = y * 2
            yield y
            y = y + 1
        except ValueError as e:
            print("caught", e)
            yield y * 3
            with contextlib.suppress(KeyError):
                yield y * 4
        finally:
            print("finally", k)
    yield y


@generator
def delegations(x):
    def inner(v):
        try:
            got = yield v
            return got
        finally:
            print("inner ends")
    first = yield from inner(x * 2)
    second = yield from (x[0], x[1])
    return (first, second, (yield from numbers(x, 1)))


@generator
def managers(x):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        yield x + 1
    with torch.no_grad(), contextlib.ExitStack() as stack:
        stack.callback(print, "left")
        yield (x * 2).sum() + len(out.getvalue())
    yield x


@generator
def inside_of_expressions(x):
    total = 0
    values = [(yield x), torch.add((yield x + 1), 1) if x.ndim > 1 else 2, {"k": (yield x + 2)}]

    def add(v):
        nonlocal total
        total += v
        return total
    for _ in range(2):
        yield add(2), total, values
    yield functools.partial(add, 1)()
    found = []
    found.append((yield x * 3))
    yield found, x.add((yield x), alpha=2) if found[0] is not None else x.sub((yield 1) or 1)


@generator
def raising(x):
    try:
        yield x * 2
        raise KeyError("own")
    except KeyError as e:
        try:
            yield x * 3
        except ValueError as f:
            raise RuntimeError("other") from f
        raise TypeError("third") from e


@generator
def arguments(x, *rest, k=2, **more):
    yield x * k, rest, more
    del rest
    yield x + k


@generator.each
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_generators_do_what_pythons_do(fn, history):
    translated = sot.to_static(fn, backend="eager")
    for _ in range(2):
        assert not same(seen(translated(X.clone()), history), seen(fn(X.clone()), history))


@generator.each
def test_they_have_the_name_and_refuse_what_does_not_fit(fn):
    translated = sot.to_static(fn, backend="eager")
    made, plain = translated(X), fn(X)
    assert (made.__name__, made.__qualname__, type(made)) == (plain.__name__, plain.__qualname__, type(plain))
    with pytest.raises(TypeError, match="argument"):
        translated()


def test_each_piece_is_one_graph():
    def pieces(x):
        y = x * 2
        yield y.sum()
        y = y.sin() + 1
        yield y
        return y.cos()
    counter = Counter()
    translated = sot.to_static(pieces, backend=counter)
    for _ in range(3):
        assert len(list(translated(X))) == 2
    assert len(counter.graphs) == 3 and all(c.stopped is None for c in sot.translation_of(translated).captures)


class Entered:
    """A manager whose methods work on tensors."""

    def __init__(self, x):
        self.x = x

    def __enter__(self):
        return self.x * 2

    def __exit__(self, kind, value, tb):
        self.x = self.x + 1
        return kind is KeyError


def test_a_with_whose_block_suspends_does_not_break_the_graph():
    def blocks(x):
        manager = Entered(x)
        with manager as y:
            yield y
            yield y.sin()
            raise KeyError
        with torch.no_grad(), manager as y:
            yield y
        yield manager.x
    translated = sot.to_static(blocks, backend="eager")
    for _ in range(3):
        assert not same(list(translated(X)), list(blocks(X)))
    found = sot.translation_of(translated)
    assert len(found.graphs) == 4 and all(c.stopped is None for c in found.captures)


def test_a_method_and_a_closure():
    class Decoder:
        def __init__(self):
            self.steps, self.weight = 0, torch.eye(4)

        def decode(self, x):
            while self.steps < 3:
                self.steps += 1
                x = (x @ self.weight).tanh()
                yield x
    a, b = Decoder(), Decoder()
    translated = sot.to_static(a.decode, backend="eager")
    assert not same(list(translated(X)), list(b.decode(X))) and a.steps == b.steps == 3
    Decoder.decode = sot.to_static(Decoder.decode, backend="eager")
    assert len(list(Decoder().decode(X))) == 3


def test_gradients_flow_through_pieces():
    def pieces(x):
        y = x * 2
        yield y
        yield (y * y).sum()
    v, w = X.clone().requires_grad_(), X.clone().requires_grad_()
    [*sot.to_static(pieces, backend="eager")(v)][1].backward()
    [*pieces(w)][1].backward()
    assert torch.equal(v.grad, w.grad)


@pytest.mark.parametrize("flag", [True, False])
def test_a_variable_that_may_have_no_value(flag):
    def unknown(x, flag):
        if flag:
            y = x
        yield x
        try:
            yield y
        except UnboundLocalError as e:
            yield str(e)
    assert not same(list(sot.to_static(unknown, backend="eager")(X, flag)), list(unknown(X, flag)))


# ---- coroutines ---------------------------------------------------------------------------------------------------
async def later(x):
    await asyncio.sleep(0)
    return x + 1


class Session:
    def __init__(self):
        self.log = []

    async def __aenter__(self):
        self.log.append("in")
        return self

    async def __aexit__(self, kind, value, tb):
        await asyncio.sleep(0)
        self.log.append(kind)
        return kind is KeyError


@coroutine
async def awaiting(x):
    y = x * 2
    z = await later(y)
    return (z * y).sum(), await asyncio.gather(later(x), later(z))


@coroutine
async def inside_of_method_calls(x):
    found = []
    found.append(await later(x))
    found.append(x.add(await later(x), alpha=2))
    return found


@coroutine
async def managed(x):
    session = Session()
    async with session as s:
        y = await later(x)
    async with session:
        raise KeyError("gone")
    return y, s.log


@coroutine
async def looping(x):
    async def rows():
        for i in range(3):
            await asyncio.sleep(0)
            yield x * i
    total = 0
    async for row in rows():
        total = total + row
    else:
        total = total * 2
    return total, [r async for r in rows() if r.sum() > 1]


@coroutine
async def failing(x):
    try:
        await asyncio.wait_for(asyncio.sleep(10), 0.001)
    except asyncio.TimeoutError as e:
        await asyncio.sleep(0)
        raise ValueError(type(e).__name__) from None


@coroutine
async def what_cannot_be_awaited(x):
    try:
        await x.sum()
    except TypeError as e:
        return str(e)


@coroutine.each
def test_coroutines_do_what_pythons_do(fn):
    translated = sot.to_static(fn, backend="eager")

    def outcome(f):
        try:
            return asyncio.run(f(X))
        except Exception as e:  # noqa: BLE001 - to be compared
            return chain(e)
    for _ in range(2):
        assert not same(outcome(translated), outcome(fn))


def test_a_coroutine_that_is_cancelled_cleans_up():
    def run(translate):
        log = []

        async def work(x):
            y = x * 2
            try:
                await asyncio.sleep(10)
            finally:
                log.append(y.sum())

        async def main():
            task = asyncio.ensure_future(translate(work)(X))
            await asyncio.sleep(0)
            task.cancel()
            return [type(e).__name__ for e in await asyncio.gather(task, return_exceptions=True)], log
        return asyncio.run(main())
    assert not same(run(lambda fn: sot.to_static(fn, backend="eager")), run(lambda fn: fn))


@stream
async def values(x):
    for i in range(3):
        x = x * 2
        got = yield x.sum() + i
        await asyncio.sleep(0)
        if got:
            x = x + got


@stream
async def guarded(x):
    try:
        yield x + 1
        yield x + 2
    except ValueError as e:
        yield str(e)
    finally:
        await asyncio.sleep(0)
        print("end")


@stream.each
@pytest.mark.parametrize("history", [
    [("__anext__",)] * 4, [("__anext__",), ("asend", 2.0), ("asend", 1.0)],
    [("__anext__",), ("aclose",), ("__anext__",)],
    [("__anext__",), ("athrow", ValueError("v")), ("__anext__",)],
], ids=["to the end", "sent", "closed", "thrown"])
def test_async_generators_do_what_pythons_do(fn, history):
    async def run(f):
        made, found = f(X), []
        for name, *args in history:
            try:
                found.append(await getattr(made, name)(*args))
            except BaseException as e:  # noqa: BLE001 - to be compared
                found.append(chain(e))
        await made.aclose()
        return found
    translated = sot.to_static(fn, backend="eager")
    for _ in range(2):
        assert not same(asyncio.run(run(translated)), asyncio.run(run(fn)))
