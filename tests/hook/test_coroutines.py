"""Coroutines are Python's; the functions that they call are captured."""
import asyncio
import gc

import pytest
import torch
from harness import Counter, check

import sot
from sot.support.errors import Reason

X = torch.arange(6.0).reshape(2, 3)


def step(x, k=1):
    return torch.relu(x * 2 + k).sum()


async def waits(x, k=1):
    await asyncio.sleep(0)
    return step(x, k)


class Context:
    async def __aenter__(self):
        return 3

    async def __aexit__(self, *error):
        return False


async def numbers(x):
    for k in range(3):
        yield x * k


async def everything(x):
    async with Context() as scale:
        found = [step(v) * scale async for v in numbers(x)]
        found += [await waits(x, k) for k in range(2)]
    try:
        await asyncio.wait_for(asyncio.sleep(1), 0.001)
    except asyncio.TimeoutError:
        found.append(step(x, 5))
    return torch.stack(found)


async def together(x):
    return sum(await asyncio.gather(*[waits(x + k) for k in range(3)]))


async def in_time(x):
    return await asyncio.wait_for(waits(x), 1)


@pytest.mark.parametrize("main", [in_time, together, everything])
def test_a_loop_that_is_run_in_a_captured_function(main):
    def fn(x):
        y = x + 1
        return asyncio.run(main(y)) * 2
    translated = check(fn, X)
    reasons = [c.stopped.reason for c in translated.captures if c.stopped and "in fn" in str(c.stopped)]
    assert reasons[0] == Reason.SIDE_EFFECT and Reason.SUSPENDS not in reasons


def test_functions_that_a_coroutine_calls():
    backend = Counter()
    translated = sot.to_static(step, backend=backend)

    async def main(x):
        found = []
        for k in range(4):
            await asyncio.sleep(0)
            found.append(translated(x, k))
        return found
    got = asyncio.run(main(X))
    assert [v.item() for v in got] == [step(X, k).item() for k in range(4)]
    assert len(backend.graphs) == 2     # k is 0, then a number


def test_the_whole_program():
    backend = Counter()
    with sot.enable(backend=backend):
        got = asyncio.run(everything(X))
    assert torch.equal(got, asyncio.run(everything(X)))
    assert backend.graphs


@pytest.mark.slow
def test_a_coroutine_that_is_never_awaited():
    def fn(x):
        waits(x)
        return x + 1
    for f in (fn, sot.to_static(fn, backend="eager")):
        with pytest.warns(RuntimeWarning, match="coroutine 'waits' was never awaited"):
            assert f(X).sum() == (X + 1).sum()
            gc.collect()


def test_a_coroutine_that_is_made_inside_and_awaited_outside():
    def fn(x):
        y = x * 2
        return waits(y, k=3), y.sum()
    translated = sot.to_static(fn, backend="eager")
    for _ in range(2):
        made, total = translated(X)
        want, _ = fn(X)
        assert torch.equal(asyncio.run(made), asyncio.run(want)) and total == (X * 2).sum()
    assert all(c.stopped is None for c in sot.translation_of(translated).captures)
