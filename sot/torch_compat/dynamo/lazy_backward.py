"""The compilation of a backward graph, which AOTAutograd leaves to the first backward pass: outside of any capture."""
from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

_contexts: list[Callable[[], AbstractContextManager]] = []
_entered: list[list[AbstractContextManager]] = []


def around_lazy_backward(context: Callable[[], AbstractContextManager]) -> None:
    """Let these compilations run in a context, from now on."""
    if context not in _contexts:
        _contexts.append(context)
    callback: Any = sys.modules.get("torch._dynamo.callback")      # AOTAutograd imports it
    if callback is not None and _start not in callback.callback_handler.start_callbacks:    # reset() drops them
        callback.callback_handler.register_start_callback(_start)
        callback.callback_handler.register_end_callback(_end)


def _start(args: Any) -> None:
    if args.callback_trigger.name == "LAZY_BACKWARD":
        _entered.append([context() for context in _contexts])
        for entered in _entered[-1]:
            entered.__enter__()


def _end(args: Any) -> None:
    if args.callback_trigger.name == "LAZY_BACKWARD" and _entered:
        for entered in reversed(_entered.pop()):
            entered.__exit__(None, None, None)
