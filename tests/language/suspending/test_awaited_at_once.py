"""A translated coroutine that awaits others: those that do not suspend are a part of its piece."""
import asyncio
import contextlib
import io

import pytest
import torch

import sot

LOG = []


async def scaled(v, k=2):
    LOG.append("scaled")
    print("scaled by", k)
    return v * k


async def waits(v):
    y = v + 1
    await asyncio.sleep(0)
    return y * 2


async def fails(v):
    raise ValueError(f"{v.dim()} dimensions")


class Managed:
    def __init__(self, v):
        self.v = v

    async def __aenter__(self):
        LOG.append("in")
        return self.v * 2

    async def __aexit__(self, kind, *rest):
        LOG.append(str(kind))
        return kind is KeyError


async def two(v):
    return await scaled(v) + await scaled(v, 3)


async def nested(v):
    async def deep(n):
        return v * 2 if n == 0 else await deep(n - 1) + 1
    return await deep(4)


async def in_a_context(v):
    async with Managed(v) as w:
        w = w + await scaled(w)
        raise KeyError
    return w


async def that_fail(v):
    try:
        await fails(v)
    except ValueError as e:
        return str(e), e.__context__, await scaled(v)


async def in_finally(v):
    try:
        return await scaled(v)
    finally:
        LOG.append(str(await scaled(v, 5)))


async def in_a_list(v):
    return [await scaled(v, i) for i in range(3)]


async def awaited_twice(v):
    once = scaled(v)
    result = await once
    try:
        await once
    except RuntimeError as e:
        return str(e), result


async def before_and_after_one_that_waits(v):
    return await scaled(v) + await waits(v) + await scaled(v, 4)


async def of_no_coroutine(v):
    return await v.dim()


def outcome(fn):
    LOG.clear()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            result = asyncio.run(fn(torch.ones(3)))
        except TypeError as e:
            result = repr(e)
    return str(result), list(LOG), printed.getvalue()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(("fn", "graphs"), [
    (two, 1), (nested, 1), (in_a_context, 1), (that_fail, 1), (in_finally, 1), (in_a_list, 1), (awaited_twice, 1),
    (before_and_after_one_that_waits, 2), (of_no_coroutine, 0)], ids=lambda p: getattr(p, "__name__", None))
def test_awaited_at_once(fn, graphs, backend):
    translated, want = sot.to_static(fn, backend=backend), outcome(fn)
    for _ in range(3):
        assert outcome(translated) == want
    assert len(sot.translation_of(translated).graphs) == graphs
    assert not [c.stopped for c in sot.translation_of(translated).captures if c.stopped]
