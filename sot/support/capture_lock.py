"""Whose turn it is to capture, among the threads of a program."""
from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """One thread captures at a time: torch's state is changed meanwhile, and what one captures may do for the next."""

    WAIT = 10.0     # seconds; who captures may wait for the thread that waits here

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.lock = threading.RLock()

    @contextmanager
    def turn(self) -> Iterator[str]:
        """How it was got: "at once", "waited", or "" if somebody else has not finished in time."""
        lock = self.lock
        how = "at once" if lock.acquire(blocking=False) else "waited" if lock.acquire(timeout=self.WAIT) else ""
        try:
            yield how
        finally:
            if how:
                lock.release()


TURNS = Turns()
if hasattr(os, "register_at_fork"):     # in a child nobody would release it
    os.register_at_fork(after_in_child=TURNS.renew)
