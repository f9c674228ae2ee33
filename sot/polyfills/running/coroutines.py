"""``asyncio.run`` for coroutines that wait for nothing but the other tasks, of which there are none."""
from __future__ import annotations

import contextvars


async def nothing():
    pass


def to_end_at_once(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as e:
        return e.value
    return waits()


def waits():
    """The coroutine waits for the loop; a handler breaks."""
    raise NotImplementedError


def run(main):
    return contextvars.copy_context().run(run_to_end, main)


def run_to_end(main):
    while True:
        try:
            waited = main.send(None)
        except StopIteration as e:
            return e.value
        if waited is not None:
            waits()
