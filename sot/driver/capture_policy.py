"""Which code of a whole program is captured: where the gain is expected to be more than the cost, within a budget.

While Python runs a program, the hook counts what each code object does: calls, operations on tensors, Python frames
(sot/csrc/hook/observe.c). From the second call on it asks here, each time that the number of calls has doubled. A
capture costs time once, by operations and frames. It saves a little time at each later call, by operations. How many
calls will follow is estimated from how often the code was called so far.

    SOT_BUDGET=0.2,2    captures take at most a share of 0.2 of the running time, and 2 seconds
    SOT_BUDGET=all      capture everything at its first call, whatever it costs

This file imports neither torch nor the interpreter: a program that never captures does not load them.
"""
from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType

from sot import _hook
from sot.support.limits import EVERYTHING, Budget
from sot.support.places import shortened

Clock = Callable[[], float]

# ---- costs and gains, in seconds; measured on the programs of benchmarks/programs.py ----
PER_CAPTURE = 0.03
PER_OPERATION = 0.002
PER_FRAME = 0.0004
SAVED_PER_OPERATION = 3e-6
PER_CALL = 9e-6             # guards, and calling a graph
TO_COME = 300.0             # how much longer a program is expected to run, if it has just begun

JUST_BEGUN = 1.0            # before that nothing can be told

FRAMES_PER_OPERATION = 20   # more frames than that are bookkeeping, which costs more to follow than it gives
OPERATIONS_PER_BREAK = 8    # fewer do not pay for leaving and entering the function again
PATIENCE = 4                # calls for which code waits for a caller that may be captured, and inline it
PATIENCE_IN_MODULE = 100
DEARER = 4.0                # how many times as much each further capture of a function has to give


@dataclass(frozen=True)
class Work:
    """What code has done while Python ran it, in all calls together.

    Arguments:
        calls: how often it was called.
        operations: on tensors, in it and in what it calls, without what graphs ran.
        in_modules: those of them in the forward() of modules that it called.
        frames: the calls of Python functions in it, itself included.
        is_module: is it the forward() of modules?
    """

    calls: int
    operations: int
    in_modules: int
    frames: int
    is_module: bool

    @property
    def own(self) -> int:
        """The operations that nobody but it is captured for."""
        return self.operations if self.is_module else self.operations - self.in_modules

    @property
    def per_call(self) -> float:
        return self.own / max(self.calls, 1)

    @property
    def cost(self) -> float:
        """Of one capture, in seconds."""
        return PER_CAPTURE + (PER_OPERATION * self.operations + PER_FRAME * self.frames) / max(self.calls, 1)

    @property
    def saved(self) -> float:
        """By a captured call, in seconds."""
        return SAVED_PER_OPERATION * self.per_call - PER_CALL

    @property
    def is_dense(self) -> bool:
        """Is it tensor work, and not bookkeeping with some tensor work in it?"""
        return self.own > 0 and self.frames <= FRAMES_PER_OPERATION * self.own


    @property
    def why_poor(self) -> str:
        """Why a capture of it does not pay."""
        if not self.is_dense:
            return f"mostly Python: {self.frames / max(self.own, 1):.0f} calls of functions for a tensor operation"
        return f"too little work to pay for a capture: {self.per_call:.0f} tensor operations a call, {self.calls} calls"


def work_of(code: CodeType) -> Work:
    return Work(*_hook.work_of(code))


def name_of(code: CodeType) -> str:
    return f"{code.co_qualname.replace('<locals>.', '')} ({shortened(code.co_filename)}:{code.co_firstlineno})"


class Verdict(Enum):
    CAPTURE = "capture it now"
    LATER = "not yet"
    POOR = "it costs more than it gives"
    WAITS = "a caller may be captured, and inline it"
    BUDGET = "the budget is used up"


@dataclass
class Policy:
    """What a program has spent on captures, and whether it spends more.

    Arguments:
        budget: how much it may.
        clock: seconds.
        before: how long the program ran before this was made.
    """

    budget: Budget = field(default_factory=Budget)
    clock: Clock = time.perf_counter
    before: float = field(default_factory=time.process_time)
    spent: float = 0.0
    left_out: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.began = self.clock()
        self.since: float | None = None     # when tensor work was first asked about
        self._left: dict[int, tuple[weakref.ref[CodeType], str]] = {}   # to Python, and why

    @property
    def takes_all(self) -> bool:
        return self.budget == EVERYTHING

    # ---- the decision
    def verdict(self, code: CodeType, is_users: Callable[[CodeType], bool]) -> Verdict:
        """Whether this code is captured now, at a call that has no entry; ``is_users``: which callers may be."""
        if self.takes_all:
            return Verdict.CAPTURE
        now = self.clock()
        if self.since is None:
            self.since = now
        work = work_of(code)
        if code.co_name == "__init__" or not self.pays(work, now):     # objects are made once, as a rule
            verdict = Verdict.POOR
            self.leave(code, work.why_poor)
        elif self.waits(code, work, now, is_users):
            verdict = Verdict.WAITS
        elif work.cost > self.allowance(now):
            verdict = Verdict.BUDGET
            self.left_out[code.co_qualname] += 1
            self.leave(code, verdict.value)
        else:
            self._left.pop(id(code), None)
            return Verdict.CAPTURE
        _hook.ask_again(code, work.calls + 1 + work.calls // 4 if verdict is Verdict.WAITS else 2 * work.calls)
        return verdict

    def pays(self, work: Work, now: float, times: float = 1.0) -> bool:
        """Is the gain expected to be more than the cost, or to be that when it is so many ``times`` as much?"""
        return work.is_dense and self.to_come(work.calls, now) * work.saved * times > work.cost

    def to_come(self, calls: int, now: float) -> float:
        """How many calls are expected after these."""
        passed = now - (self.since if self.since is not None else now)
        return calls / (passed + JUST_BEGUN) * (TO_COME + passed)

    def waits(self, code: CodeType, work: Work, now: float, is_users: Callable[[CodeType], bool]) -> bool:
        """Is there a caller that may be captured at its next call, and has this code in it?"""
        for caller in _hook.running():
            if caller is code or not is_users(caller):
                continue
            of_caller = work_of(caller)
            if of_caller.calls == 0:
                patience = PATIENCE_IN_MODULE if caller.co_name == "forward" else PATIENCE
                if work.calls < patience:
                    return True
            elif _hook.get_entries(caller) or self.pays(of_caller, now, times=4):
                return True
        return False

    # ---- what is left to Python
    def leave(self, code: CodeType, why: str) -> None:
        """Note why Python runs this code."""
        self._left[id(code)] = weakref.ref(code), why

    def left_to_python(self) -> list[tuple[CodeType, str]]:
        return [(code, why) for reference, why in [*self._left.values()] if (code := reference()) is not None]

    # ---- the budget
    def running(self, now: float | None = None) -> float:
        """For how many seconds the program has been running."""
        return self.before + (self.clock() if now is None else now) - self.began

    def allowance(self, now: float | None = None) -> float:
        """How many seconds may be spent now."""
        return self.budget.share * self.running(now) + self.budget.seconds - self.spent

    @contextmanager
    def spending(self) -> Iterator[None]:
        """What happens inside is capture."""
        start = self.clock()
        try:
            yield
        finally:
            self.spent += self.clock() - start

    # ---- captures of one function again
    def may_recapture(self, code: CodeType, captures: int, misses: int) -> bool:
        """Is code captured again, of which no entry fits a call, for the time number ``misses`` since the last of its
        ``captures``?"""
        if self.takes_all:
            return True
        work, now = work_of(code), self.clock()
        if self.to_come(misses, now) * work.saved <= work.cost * DEARER ** (captures - 1):
            self.leave(code, f"no capture fits all calls, and after {captures} a further one costs more than it gives")
            return False
        if work.cost > self.allowance(now):
            self.left_out[code.co_qualname] += 1
            return False
        return True

    def may_break(self, code: CodeType, breaks: int) -> bool:
        """Does it pay to leave and enter the function so often in a call?"""
        return self.takes_all or work_of(code).per_call >= OPERATIONS_PER_BREAK * breaks
