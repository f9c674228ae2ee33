"""The capture lock: one thread of a program captures at a time."""
from __future__ import annotations

import os
import threading
from contextlib import suppress


class Turns:
    """One thread captures at a time, because a capture changes torch's state, and the next thread may use its
    result.
    """

    WAIT = 10.0     # seconds; the capturing thread may be waiting for the thread that waits here

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.lock = threading.RLock()

    def is_mine(self) -> bool:
        return bool(self.lock._is_owned())      # type: ignore[attr-defined]

    def give_up(self) -> None:
        """Release the lock, if this thread has it."""
        with suppress(RuntimeError):    # another thread holds it, or none
            while True:
                self.lock.release()

    def take(self) -> str:
        """How the lock was acquired: "at once", "waited", or "" if another thread has not finished in time.

        One call of ``give_up`` releases it, however many captures are nested.
        """
        if self.is_mine() or self.lock.acquire(blocking=False):
            return "at once"
        return "waited" if self.lock.acquire(timeout=self.WAIT) else ""


TURNS = Turns()
if hasattr(os, "register_at_fork"):     # in a child process no thread would release it
    os.register_at_fork(after_in_child=TURNS.renew)
