"""Sets and restores the callback of the hook, for this thread and for threads without their own."""
from __future__ import annotations

import threading
from types import TracebackType

from sot._hook import PLAIN, Callback, set_callback, set_default


class Switch:
    """The result of ``enable`` and ``disable``. A ``with`` statement restores the previous setting at its end.

    A setting in the main thread applies to every thread without its own.
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
