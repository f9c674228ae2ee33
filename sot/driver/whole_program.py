"""The callback of the hook while a whole program is translated: it asks the capture policy before the translator.

The translator, with the interpreter and the parts of torch that it needs, is loaded at the first capture.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch

from sot import _hook
from sot.driver.capture_policy import Policy, Verdict
from sot.driver.gain import gain_of
from sot.driver.scope import EVERYTHING, Scope, is_users
from sot.reports.gain import Gain


class Answers(Protocol):
    """The part of a translator that is used here."""

    def answer(self, function: FunctionType, inputs: tuple) -> Callable | _hook.Sentinel | None: ...


class WholeProgram:
    """Translates what is worth it, as long as its callback is set.

    Arguments:
        make: makes the translator when it is first needed.
        policy: decides what is captured.
        scope: the modules that are translated.
    """

    def __init__(self, make: Callable[[WholeProgram], Answers], policy: Policy, scope: Scope = EVERYTHING) -> None:
        self._make, self.policy, self.scope = make, policy, scope
        self.callback = _hook.Callback(self._asked, not policy.takes_all)
        self.translator: Any = None
        _hook.observe(torch.Tensor, torch.nn.Module)

    def load(self) -> Any:
        """The translator."""
        if self.translator is None:
            with self.policy.spending():
                self.translator = self._make(self)
        return self.translator

    def _asked(self, function: FunctionType, inputs: tuple) -> Callable | _hook.Sentinel | None:
        """The entry for a call, or None if Python must run it."""
        code = function.__code__
        if self.scope.leaves_alone(code, str(function.__globals__.get("__name__")), self.callback):
            return None
        if is_loading_data():
            stop()
            return None
        if not self.has_captured(code) and self.policy.verdict(code, self.may_capture) is not Verdict.CAPTURE:
            return None
        return self.load().answer(function, inputs)

    def has_captured(self, code: CodeType) -> bool:
        """Whether this program has entries for the code. The hook's may belong to a model given to to_static."""
        if self.translator is None:
            return False
        states = self.translator.states
        return states.has(code) and bool(states.of(code).entries)

    def gain(self) -> Gain:
        """The gain so far."""
        captured = [*self.translator.states.codes()] if self.translator is not None else []
        return gain_of(self.policy, captured, self.callback)

    def may_capture(self, code: CodeType) -> bool:
        """Whether this code may be captured, judging by its file."""
        return is_users(code, "") and not _hook.is_skipped(code, self.callback)


def is_loading_data() -> bool:
    """Whether this process is a worker of a data loader."""
    workers = sys.modules.get("torch.utils.data")
    return workers is not None and workers.get_worker_info() is not None


def stop() -> None:
    """Stop translating the program in this process. Functions given to to_static are still translated."""
    _hook.set_callback(_hook.PLAIN)
    _hook.set_default(None)


def program_of(callback: Any) -> WholeProgram | None:
    """The whole program that a callback belongs to, or None."""
    owner = getattr(getattr(callback, "__wrapped__", None), "__self__", None)
    return owner if isinstance(owner, WholeProgram) else None
