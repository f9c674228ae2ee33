"""Whose turn it is to capture, among the threads of a program."""
from __future__ import annotations

import os
import threading
from contextlib import suppress


class Turns:
    """One thread captures at a time: torch's state is changed meanwhile, and what one captures may do for the next."""

    WAIT = 10.0     # seconds; who captures may wait for the thread that waits here

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.lock = threading.RLock()

    def is_mine(self) -> bool:
        return bool(self.lock._is_owned())      # type: ignore[attr-defined]

    def give_up(self) -> None:
        """Release the lock, if this thread has it."""
        with suppress(RuntimeError):    # it is not ours, or not any more
            while True:
                self.lock.release()

    def take(self) -> str:
        """How it was got: "at once", "waited", or "" if another thread has not finished in time.

        ``give_up`` gives it back, once for however many captures within captures.
        """
        if self.is_mine() or self.lock.acquire(blocking=False):
            return "at once"
        return "waited" if self.lock.acquire(timeout=self.WAIT) else ""


TURNS = Turns()
if hasattr(os, "register_at_fork"):     # in a child process no thread would release it
    os.register_at_fork(after_in_child=TURNS.renew)
