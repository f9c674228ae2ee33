"""Executes a frame symbolically and chooses the exit of its trace.

The exit is the return of the frame if emitted code can rebuild the returned value, and a break otherwise. The break
stays in the innermost frame that can be resumed and whose values can be rebuilt, outside of libraries without tensor
work.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType

import torch

from sot.bytecode import Code
from sot.codegen.exit import Exit, plain_exit, write_exit
from sot.driver.plain_libraries import depth_outside
from sot.guards.assumptions import Assumptions, RestartCapture
from sot.guards.origin import Inputs
from sot.interpreter.effects.torch_warnings import without_warnings
from sot.interpreter.loop import run
from sot.interpreter.machine import Machine
from sot.interpreter.outcomes import Return
from sot.interpreter.suspension import refuse_unclean
from sot.interpreter.torch_ops.data_sizes.counters import step_function
from sot.interpreter.trace import Broken, Returned, Suspended, Trace, changed_numbers, trace_of
from sot.reports.records import BreakRecord, Capture
from sot.reports.wording import said
from sot.support.collector import paused_collector
from sot.support.errors import Break, CaptureError, NotRebuildable, Reason, Skip
from sot.support.own_code import is_own
from sot.support.places import Place
from sot.torch_compat.fake_tensors import quiet
from sot.torch_compat.global_state import GlobalState, in_level

# torch's code of transforms and of operators that take functions. No break can stay inside: the levels of a transform
# end with the graph, and this code has branched on the fact that it is being compiled. torch's code for several
# processes is a call as a whole too: it calls C++ after each few instructions, and modules of the program inside of it
# are captured on their own. So are the clipping of gradients, where what is a break for one of them is one for all, and
# the set-up of backward hooks of modules.
UNCUT = tuple(os.path.join(Path(torch.__file__).parent, *parts) for parts in (
    ("_functorch", ""), ("_higher_order_ops", ""), ("nn", "attention", "flex_attention.py"),
    ("distributed", ""), ("nn", "parallel", ""), ("nn", "utils", "clip_grad.py"), ("utils", "hooks.py")))


@contextmanager
def executed(function: FunctionType, code: Code, inputs: Inputs, state: GlobalState, assumptions: Assumptions,
             record: Capture, full_graph: bool, write: Callable[[Trace], Exit] = write_exit,
             ) -> Iterator[tuple[Trace, Exit]]:
    """The trace of a call up to its exit, and the emitted exit. Both are void at the end of the capture.

    Raises Skip, RestartCapture, and CaptureError at a break of a ``full_graph``.
    """
    with ExitStack() as stack:
        with record.timed("execute"), quiet(), paused_collector():      # the first machine imports torch._dynamo
            machine = stack.enter_context(Machine(function, code, inputs, state, assumptions))
            with without_warnings(machine):
                try:
                    trace, exit = execute(machine, record, full_graph, write)
                except Exception:
                    record.reached = record.stopped.stack if record.stopped else stack_of(machine)
                    raise
                finally:
                    machine.restore_state()
        counters = changed_numbers(trace) - assumptions.varying
        if counters and not assumptions.static:
            raise RestartCapture("numbers change that were assumed to be constant", varying=frozenset(counters))
        yield trace, exit


def execute(machine: Machine, record: Capture, full_graph: bool,
            write: Callable[[Trace], Exit]) -> tuple[Trace, Exit]:
    """Run a machine up to the exit of its frame."""
    done = run(machine)
    assert done is not None
    if isinstance(done, Return):
        refuse_unclean(machine, going_on=False)
        try:
            return written(machine, Returned(done.value), write)
        except NotRebuildable as e:
            cause = Break(Reason.UNSUPPORTED, str(e))
    else:
        cause = done.cause
    step = step_function(machine)
    if step and step not in machine.assumptions.plain_optimizers:
        raise RestartCapture(str(cause), plain_optimizers={step: str(cause)})
    record.stopped = describe(machine, cause)
    if full_graph and cause.reason is not Reason.UNCAUGHT:
        raise CaptureError(f"full_graph=True, but capture stops: {record.stopped}. {record.stopped.hint}")
    return leave_at(machine, cause, write)


def leave_at(machine: Machine, cause: Break, write: Callable[[Trace], Exit]) -> tuple[Trace, Exit]:
    """The exit at a break, in the innermost frame that can be resumed. Raises Skip if no frame can."""
    reason, top = cause, len(machine.frames) - 1
    for depth in range(min(resumable_depth(machine), depth_outside(machine)), -1, -1):
        machine.rollback(depth)
        if in_level(machine.state_log):
            continue
        refuse_unclean(machine, going_on=True)
        frames = tuple(map(Suspended.of, machine.frames))
        try:
            return written(machine, Broken(cause, frames, machine.handled, cause.loop if depth == top else None), write)
        except NotRebuildable as e:
            reason = Break(Reason.UNSUPPORTED, str(e))
    raise Skip(reason.reason, reason.detail)


def written(machine: Machine, exit: Returned | Broken, write: Callable[[Trace], Exit]) -> tuple[Trace, Exit]:
    """The trace up to an exit, and the emitted exit. Raises NotRebuildable."""
    trace, guards = trace_of(machine, exit), len(machine.guards)
    found = plain_exit() if isinstance(exit, Returned) and trace.operations == 0 else write(trace)
    if len(machine.guards) != guards:
        raise AssertionError("a guard was added after the trace was finished")
    return trace, found


def resumable_depth(machine: Machine) -> int:
    """The greatest depth at which a break may stay: outside of generators, of this package, and of torch's code that is
    not cut.
    """
    for i, frame in enumerate(machine.frames[1:], 1):
        if not frame.resumable or frame.mark is None or is_own(
                frame.native.co_filename) or frame.native.co_filename.startswith(UNCUT):
            return i - 1
    return len(machine.frames) - 1


def describe(machine: Machine, cause: Break) -> BreakRecord:
    """The record of a break, with the user's stack at it."""
    stack = stack_of(machine)
    return BreakRecord(cause.reason, said(cause.detail, {}), stack[-1], stack)


def stack_of(machine: Machine) -> tuple[Place, ...]:
    """The user's stack, outermost first."""
    return tuple(Place(f.native.co_filename, f.line, f.native.co_name) for f in machine.frames
                 if not is_own(f.native.co_filename))
