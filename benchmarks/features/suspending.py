"""Generators and coroutines of Python's language reference."""
from __future__ import annotations

import asyncio

import torch

from .program import Group

# ---- generators ----
generators = Group("generators")


def rows(x):
    for row in x:
        got = yield row * 2
        if got:
            yield got


@generators
def consumed_inside(x):
    return list(rows(x)), sum(rows(x)), [a for a in rows(x)]


@generators
def sent_and_thrown(x):
    def g():
        try:
            while True:
                k = yield x.sum()
                if k is None:
                    return
                yield x * k
        except ValueError as e:
            yield str(e)
    a = g()
    first = next(a)
    second = a.send(3)
    return first, second, a.throw(ValueError("stop"))


@generators
def delegated(x):
    def inner():
        got = yield x
        return got * 2

    def outer():
        result = yield from inner()
        yield result
    g = outer()
    return next(g), g.send(x + 1), list(outer_list(x))


def outer_list(x):
    yield from (x[0], x[1])
    yield from range(2)


@generators
def closed_early(x):
    log = []

    def g():
        try:
            yield x * 2
            yield x * 3
        finally:
            log.append("closed")
    a = g()
    y = next(a)
    a.close()
    return y, log


@generators
def results_of_generators(x):
    def g():
        yield x
        return x * 3
    a = g()
    next(a)
    try:
        next(a)
    except StopIteration as e:
        return e.value


@generators
def pipelines(x):
    def source():
        for i in range(6):
            yield x * i

    def batched(it, n):
        batch = []
        for item in it:
            batch.append(item)
            if len(batch) == n:
                yield torch.stack(batch)
                batch = []
    return [b.sum(0) for b in batched(source(), 2)]


@generators
def infinite(x):
    def count():
        n = 0
        while True:
            yield x + n
            n += 1
    out = []
    for v in count():
        out.append(v)
        if len(out) == 3:
            break
    return out


@generators.drives(pieces=1)
def generators_returned_to_the_caller(translate, x):
    def doubled(v):
        return (row * 2 for row in v), len(v)
    rows, n = translate(doubled)(x)
    return list(rows), n


@generators.drives(pieces=3)
def translated_generators(translate, x):
    def stream(v):
        y = v * 2
        yield y.sum()
        y = y.sin() + 1
        yield y.sum()
        return y.cos() * 2
    g = translate(stream)(x)
    out = []
    try:
        while True:
            out.append(next(g))
    except StopIteration as e:
        return out, e.value


@generators.drives(pieces=2)
def translated_generators_that_receive(translate, x):
    def stream(v):
        total = v.new_zeros(())
        while True:
            k = yield total
            if k is None:
                return
            total = total + (v * k).sum()
    g = translate(stream)(x)
    return [next(g), g.send(2.0), g.send(3.0)]


@generators.drives(pieces=2)
def translated_streams_of_tokens(translate, x):
    w = torch.arange(16.0).reshape(4, 4) / 16

    def generate(state, n):
        for _ in range(n):
            state = (state @ w).tanh()
            yield state.argmax(-1)
    return list(translate(generate)(x, 4))


# ---- coroutines ----
coroutines = Group("async")


async def scaled_later(x, k):
    await asyncio.sleep(0)
    return x * k


async def immediate(x):
    return x.sin()


@coroutines.drives(pieces=1)
def translated_coroutines(translate, x):
    async def run(v):
        return v * 2 + 1
    return asyncio.run(translate(run)(x))


@coroutines.drives(pieces=2)
def translated_coroutines_that_wait(translate, x):
    async def run(v):
        y = v * 2
        await asyncio.sleep(0)
        return y.sin() + 1
    return asyncio.run(translate(run)(x))


@coroutines.drives(pieces=1)
def translated_coroutines_that_call_others(translate, x):
    async def run(v):
        return await immediate(v) * 2 + await immediate(v + 1)
    return asyncio.run(translate(run)(x))


@coroutines.drives(pieces=2)
def translated_handlers(translate, x):
    w = torch.ones(4, 4)
    answers = []

    async def handle(v):
        h = (v @ w).relu()
        await asyncio.sleep(0)
        answers.append(h.softmax(-1))

    async def main():
        f = translate(handle)
        await asyncio.gather(*(f(x + i) for i in range(3)))
    asyncio.run(main())
    return answers


@coroutines.drives(pieces=2)
def translated_async_generators(translate, x):
    async def stream(v):
        for i in range(3):
            v = v * 2
            yield v.sum()

    async def main():
        return [s async for s in translate(stream)(x)]
    return asyncio.run(main())


class Session:
    def __init__(self, log):
        self.log = log

    async def __aenter__(self):
        self.log.append("in")
        return self

    async def __aexit__(self, *exc):
        self.log.append("out")


@coroutines.drives(pieces=1)
def translated_async_managers(translate, x):
    log = []

    async def run(v):
        async with Session(log):
            return v * 2
    return asyncio.run(translate(run)(x)), log


@coroutines
def driven_by_hand(x):
    c = immediate(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value * 2


@coroutines
def loops_inside(x):
    return asyncio.run(scaled_later(x, 3)) + 1
