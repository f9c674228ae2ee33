"""The capture policy decides which code of a whole program is captured.

It captures code if the expected gain is more than the cost, and if the budget allows it. While Python runs a program,
the hook counts the calls, the tensor operations and the Python frames of each code object (sot/csrc/hook/observe.c).
After some calls, and each time that their number has doubled, the hook asks the policy. The cost of a capture is paid
once and grows with operations and frames. The gain comes with each later call: a graph runs the same operations, but no
Python frames. The number of later calls is estimated from the pace of the code's calls so far.

    SOT_BUDGET=0.2,2    captures take at most a share of 0.2 of the running time, plus 2 seconds
    SOT_BUDGET=all      every function is captured at its first call, whatever it costs

This file imports neither torch nor the interpreter, so a program that never captures does not load them.
"""
from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType

from sot import _hook
from sot.bytecode.code_table import CodeTable
from sot.support.places import shortened
from sot.support.settings import EVERYTHING, Budget
from sot.torch_compat.dynamo import state

Clock = Callable[[], float]

# ---- costs and gains, in seconds; measured on the programs of benchmarks/programs.py ----
LOADING = 0.3               # the translator, if it is not loaded
LOADING_TORCH = 0.9         # the same for what captures need of torch
PER_CAPTURE = 0.03
PER_OPERATION = 0.002
PER_FRAME = 0.0004
SAVED_PER_FRAME = 0.4e-6    # see benchmarks/saved_by_frames.py
PER_CALL = 2e-6             # guards, and calling a graph
TO_COME = 300.0             # seconds that a program is expected to go on running when it has just begun
AT_ONCE = 0.02              # seconds; calls that follow each other so fast say nothing about the pace of later ones

WATCHED = 4                 # calls that Python runs before a decision
FRAMES_PER_OPERATION = 16   # code with more frames than that is bookkeeping: following it costs more than it gives
FRAMES_IN_GRAPH = 10        # frames for each operation that a graph replaces at most: others are not about tensors
LATER = 2.0                 # how many times its cost a capture has to gain that was found poor before
FEWEST = 4                  # operations a call that a graph has at least
OPERATIONS_PER_BREAK = 8    # fewer operations do not pay for a break
PATIENCE = 4                # calls for which code waits for a caller that may be captured and inline it
PATIENCE_IN_MODULE = 100
DEARER = 4.0                # how many times as much each further capture of a function has to gain


@dataclass(frozen=True)
class Work:
    """The work that a code object has done while Python ran it, summed over all calls.

    Arguments:
        calls: the number of calls.
        operations: tensor operations in the code and its callees, except those that graphs ran.
        in_modules: the part of ``operations`` that ran in the forward() of modules that the code called.
        frames: the number of Python frames in it, its own included.
        frames_in_modules: the part of ``frames`` that ran in the forward() of modules that the code called.
        is_module: whether the code is the forward() of a module.
    """

    calls: int
    operations: int
    in_modules: int
    frames: int
    frames_in_modules: int
    is_module: bool

    @property
    def own(self) -> int:
        """The operations that only a capture of this code covers."""
        return self.operations if self.is_module else self.operations - self.in_modules

    @property
    def own_frames(self) -> int:
        """The frames that only a capture of this code covers."""
        return self.frames if self.is_module else self.frames - self.frames_in_modules

    @property
    def per_call(self) -> float:
        return self.own / max(self.calls, 1)

    @property
    def cost(self) -> float:
        """The cost of one capture, in seconds."""
        return PER_CAPTURE + (PER_OPERATION * self.operations + PER_FRAME * self.frames) / max(self.calls, 1)

    @property
    def saved(self) -> float:
        """What one captured call saves, in seconds."""
        frames = min(self.own_frames, FRAMES_IN_GRAPH * self.own)
        return SAVED_PER_FRAME * frames / max(self.calls, 1) - PER_CALL

    @property
    def is_dense(self) -> bool:
        """Whether the code is tensor work, and not bookkeeping with a few tensor operations."""
        return self.per_call >= FEWEST and self.own_frames <= FRAMES_PER_OPERATION * self.own

    @property
    def why_poor(self) -> str:
        """Why a capture of this code does not pay."""
        if self.own_frames > FRAMES_PER_OPERATION * self.own:
            return f"mostly Python: {self.own_frames / max(self.own, 1):.0f} function calls for each tensor operation"
        return (f"too little work to pay for a capture: {self.own_frames / max(self.calls, 1):.0f} function calls and "
                f"{self.per_call:.0f} tensor operations a call, {self.calls} calls")


def work_of(code: CodeType) -> Work:
    return Work(*_hook.work_of(code))


def name_of(code: CodeType) -> str:
    return f"{code.co_qualname.replace('<locals>.', '')} ({shortened(code.co_filename)}:{code.co_firstlineno})"


def cost_of_loading() -> float:
    """The cost, in seconds, of loading what captures need and the program has not loaded."""
    return LOADING * ("sot.driver.translator" not in sys.modules) + LOADING_TORCH * (not state.is_loaded())


class Verdict(Enum):
    CAPTURE = "capture it now"
    LATER = "it has been called too few times to tell"
    POOR = "it costs more than it gives"
    WAITS = "a caller may be captured, and inline it"
    BUDGET = "the budget is used up"


@dataclass
class Policy:
    """What a program has spent on captures, and whether it may spend more.

    Arguments:
        budget: the limit.
        clock: returns seconds.
        cpu_clock: returns the seconds that this thread has worked.
        before: the seconds that the program ran before this object was made.
        compile_time: the seconds that the backend is expected to take before the first graph, for each graph, and for
            each of its operations.
        share_of_expected: the share of these seconds that the last graph took. Caches make it small.
        graphs: how many graphs the backend has compiled.
    """

    budget: Budget = field(default_factory=Budget)
    clock: Clock = time.perf_counter
    cpu_clock: Clock = time.thread_time     # a machine with other work makes a capture longer, but no dearer
    before: float = field(default_factory=time.process_time)
    spent: float = 0.0
    left_out: Counter[str] = field(default_factory=Counter)
    compile_time: tuple[float, float, float] = (0.0, 0.0, 0.0)
    share_of_expected: float = 1.0
    graphs: int = 0

    def __post_init__(self) -> None:
        self.began = self.clock()
        self._since = CodeTable(lambda code: (self.clock(), work_of(code).calls))   # the start of its pace
        self._paid: CodeTable[float] = CodeTable(lambda code: 0.0)  # the seconds of work that its last capture took
        self._left: CodeTable[str] = CodeTable(lambda code: "")     # why Python runs this code
        self._nested: CodeTable[None] = CodeTable(lambda code: None)    # code that has run inside itself

    @property
    def takes_all(self) -> bool:
        return self.budget == EVERYTHING

    # ---- the decision
    def verdict(self, code: CodeType, is_users: Callable[[CodeType], bool]) -> Verdict:
        """Whether to capture this code at a call without an entry; ``is_users`` says which callers may be captured."""
        if self.takes_all:
            return Verdict.CAPTURE
        now, work = self.clock(), work_of(code)
        self._since.of(code)
        if code in _hook.running():
            self._nested.of(code)
        if work.calls < WATCHED:
            verdict = Verdict.LATER
            self.leave(code, f"{verdict.value}: {work.calls}")
        elif self.is_nested(code, work):
            verdict = Verdict.POOR
            self.leave(code, "it runs inside itself, so what one call of it does is not known")
        elif code.co_name == "__init__" or not self.pays(code, work, now):      # an object is usually made once
            verdict = Verdict.POOR
            self.leave(code, work.why_poor)
        elif self.waits(code, work, now, is_users):
            verdict = Verdict.WAITS
        elif work.cost + self.compiling(work) > self.allowance(now):
            verdict = Verdict.BUDGET
            self.left_out[code.co_qualname] += 1
            self.leave(code, verdict.value)
        else:
            self._left.take(code)
            return Verdict.CAPTURE
        soon = work.calls + 1 + work.calls // 4
        _hook.ask_again(code, soon if verdict is Verdict.WAITS else max(WATCHED, 2 * work.calls))
        return verdict

    def pays(self, code: CodeType, work: Work, now: float, times: float = 1.0) -> bool:
        """Whether ``times`` the expected gain, or the gain once it has grown so much, is more than the cost.

        The first decision is made with the pace of a few calls. Later ones take more to be other than the first: a
        capture late in a program has less time to pay.
        """
        cost = work.cost + cost_of_loading()
        _, before = self._since.of(code)
        return work.is_dense and self.to_come(code, work.calls - before, now) * work.saved * times > (
            cost if work.calls < 2 * WATCHED else LATER * cost)

    def to_come(self, code: CodeType, calls: int, now: float) -> float:
        """The number of further calls that is expected after ``calls`` of them since the start of the code's pace.

        A first capture trusts that the program goes on for long. A further one replaces only a part of the calls, often
        late in the program: it trusts that the program goes on for as long as it has been running. If no capture has
        answered a call yet, those values were no good example, and the next capture counts as the first.
        """
        since, _ = self._since.of(code)
        ahead = self.running(now) if _hook.times_of(code)[1][0] else TO_COME + now - self.began
        return calls / max(now - since, AT_ONCE) * ahead

    def is_nested(self, code: CodeType, work: Work) -> bool:
        """Whether code has run inside itself: a decorator's wrapper around several functions, or recursion. Its work is
        the sum of calls that have little in common. Modules of one class are alike, and a model may be inside another.
        """
        return not work.is_module and self._nested.has(code)

    def waits(self, code: CodeType, work: Work, now: float, is_users: Callable[[CodeType], bool]) -> bool:
        """Whether a caller that contains this code may be captured at its next call."""
        for caller in _hook.running():
            if caller is code or not is_users(caller):
                continue
            of_caller = work_of(caller)
            if self.is_nested(caller, of_caller):
                continue
            if of_caller.calls == 0:
                patience = PATIENCE_IN_MODULE if caller.co_name == "forward" else PATIENCE
                if work.calls < patience:
                    return True
            elif of_caller.calls < WATCHED:
                if of_caller.is_dense and of_caller.saved > work.saved:
                    return True
            elif _hook.get_entries(caller) or self.pays(caller, of_caller, now, times=4):
                return True
        return False

    # ---- what is left to Python
    def leave(self, code: CodeType, why: str) -> None:
        """Record why Python runs this code."""
        self._left.put(code, why)

    def left_to_python(self) -> list[tuple[CodeType, str]]:
        return [(code, self._left.of(code)) for code in self._left.codes()]

    # ---- the budget
    def running(self, now: float | None = None) -> float:
        """The number of seconds that the program has been running."""
        return self.before + (self.clock() if now is None else now) - self.began

    def allowance(self, now: float | None = None) -> float:
        """The number of seconds that captures may take now."""
        return self.budget.share * self.running(now) + self.budget.seconds - self.spent

    def compiling(self, work: Work) -> float:
        """The seconds that the backend is expected to take for the graph of this code."""
        return self.share_of_expected * self.expected(work.operations / max(work.calls, 1))

    def expected(self, operations: float) -> float:
        """The same for the next graph of so many operations, if nothing is cached."""
        loading, graph, operation = self.compile_time
        return graph + operation * operations + (0.0 if self.graphs else loading)

    def compiled(self, seconds: float, operations: int) -> None:
        """Note that the backend took so long for a graph. Its backward pass is compiled later, in about the same time.
        """
        if expected := self.expected(operations):
            self.share_of_expected = min(2 * seconds / expected, 1.0)
        self.graphs += 1

    @contextmanager
    def spending(self, code: CodeType | None = None) -> Iterator[None]:
        """A context whose time is charged to the budget. ``code`` is what is captured, if any."""
        start, cpu_start = self.clock(), self.cpu_clock()
        try:
            yield
        finally:
            self.spent += self.clock() - start
            if code is not None:
                self._paid.put(code, self.cpu_clock() - cpu_start)
                self._since.put(code, (self.clock(), work_of(code).calls))

    # ---- captures of one function again
    def may_recapture(self, code: CodeType, captures: int, misses: int) -> bool:
        """Whether code may be captured again after ``captures`` captures. ``misses`` is the number of calls without a
        fitting entry since the last of them.
        """
        if self.takes_all:
            return True
        work, now = work_of(code), self.clock()
        cost = max(work.cost, self._paid.of(code))
        if misses >= WATCHED and self.to_come(code, misses, now) * work.saved > cost * DEARER ** (captures - 1):
            if max(cost, work.cost + self.compiling(work)) <= self.allowance(now):
                return True
            self.left_out[code.co_qualname] += 1
        elif misses >= WATCHED:
            self.leave(code, f"no capture fits all calls, and after {captures} another one costs more than it gains")
        _hook.ask_again(code, work.calls + 1 + misses // 4)
        return False

    def may_break(self, code: CodeType, breaks: int) -> bool:
        """Whether it pays to leave and enter the function at so many breaks in a call."""
        return self.takes_all or work_of(code).per_call >= OPERATIONS_PER_BREAK * breaks
