"""Setting and putting back what the hook asks in this thread, and in those that set nothing themselves."""
from __future__ import annotations

import threading
from types import TracebackType

from sot._hook import PLAIN, Callback, set_callback, set_default


class Switch:
    """What ``enable`` and ``disable`` answer: in a ``with`` statement, what was before comes back at its end.

    What the main thread says counts for every thread that says nothing itself.
    """

    def __init__(self, callback: Callback | None) -> None:
        self.is_main = threading.current_thread() is threading.main_thread()
        self.default = set_default(callback) if self.is_main else None
        self.before = set_callback(callback or PLAIN)

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        set_callback(self.before)
        if self.is_main:
            set_default(self.default)
