"""Operations that may raise when the graph runs, depending on the values of their inputs.

If a graph raises, Python runs the frame from its start and raises. That is wrong if the graph has already changed its
inputs, because the change would happen twice; then the exception leaves the function instead. So there is a break
before an operation that may raise, if inputs have been changed and the program could see the difference: it catches
the exception, handles another exception (the context of the new one), or had another side effect before it. A saved
model has no frame that Python could run, so there is none before its operations.
"""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import torch

from sot.graph.builder import changes_unseen
from sot.graph.refs import TensorRef
from sot.interpreter.control_flow import early_checks
from sot.support.errors import Break, Reason
from sot.torch_compat.autograd_nodes import history
from sot.torch_compat.hooks import CALL_OF_MODULE, calls_after_exceptions
from sot.values.base import ABSENT
from sot.values.callables import BoundMethod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sot.graph.builder import GraphBuilder
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

RAISED = (IndexError, RuntimeError, ValueError, ZeroDivisionError)     # raised by kernels, depending on values


def expect(m: Machine, name: str, is_ours: bool = False, call: Call | None = None) -> None:
    """Record that an operation may raise when the graph runs. Break if Python could not run the frame again.

    Arguments:
        is_ours: whether the exception is not one of the program and must not leave the function.
        call: the operation, if its indices may be checked early.
    """
    builder, mode = m.builder, m.builder.fake_mode
    if call is not None and call[0] is torch.autograd.grad and mode.may_refuse and mode.indices is not None and (
            has_checked_indices(builder, call)):
        mode.may_refuse = False
    if any(catching.log is not None for catching in m.entered.catching):
        if not m.assumptions.interprets:
            raise Break(Reason.SIDE_EFFECT, f"{name}, which may warn, where warnings are recorded,")
        mode.note_refusal()
    changed = bool(builder.changed_inputs()) if mode.may_refuse or mode.changes_unversioned else False
    traceless = builder.changes_traceless or (mode.changes_unversioned and not changed) or builder.changes_untracked()
    if mode.may_refuse:
        now = not m.assumptions.of_file and (is_ours or is_seen(m))
        if now and changed and not traceless and call is not None and early_checks.checked(m, call, mode.indices):
            now = False
        elif now and (changed or traceless):
            raise Break(Reason.UNSUPPORTED, f"{name}, which may raise, after a change of an input,")
        else:
            m.refusals.note(m, now, call, mode.indices)
        builder.refuses = True
        builder.draws_then_refuses = builder.draws_then_refuses or mode.draws
    if traceless:
        refuse_lasting(m, name)
    builder.changes_traceless = traceless


def has_checked_indices(builder: GraphBuilder, call: Call) -> bool:
    """Whether the indices of a backward pass are those of its forward pass, which has run in the same graph before. The
    backward of an autograd function may have others.
    """
    outputs = call[1][0] if call[1] else call[2]["outputs"]
    ends = [outputs] if isinstance(outputs, TensorRef) else outputs
    return not changes_unseen(builder) and not any(
        isinstance(node, torch.autograd.function.BackwardCFunction) for _, node in history([end.fake for end in ends]))


def is_seen(m: Machine) -> bool:
    """Whether the program could see that an exception comes at this place: what it did before, or how it handles it."""
    return bool(m.mutated or m.effects or m.handled or any(catches(frame) for frame in m.frames))


def refuse_lasting(m: Machine, what: str) -> None:
    """Break before a change that cannot be undone, after an operation that may raise, if the program could see that."""
    if m.refusals.seen and not m.refusals.are_checked(m):
        raise Break(Reason.UNSUPPORTED, f"{what}, which cannot be undone, after an operation that may raise,")


class Refusals:
    """The operations so far that may raise when the graph runs.

    Arguments:
        seen: whether the program could see that one raises after a change that cannot be undone.
        noted: what checks of them need. None for those that cannot be checked before the graph.
        checked: how many of them the graph checks.
    """

    def __init__(self) -> None:
        self.seen = False
        self.noted: list[tuple[Call, Sequence[tuple]] | None] = []
        self.checked = 0

    def note(self, m: Machine, seen: bool = True, call: Call | None = None,
             indices: Sequence[tuple] | None = None) -> None:
        self.noted.append((call, indices) if call is not None and indices else None)
        m.undoable(self.noted.pop)
        if seen and not self.seen:
            self.seen = True
            m.undoable(lambda: setattr(self, "seen", False))

    def are_checked(self, m: Machine) -> bool:
        """Whether all of them are checked before the graph. Those that are not are checked now, if they can be."""
        before = self.checked
        for i, noted in enumerate(self.noted[before:], before):
            if noted is None or not (is_on_gpu(noted[1]) or early_checks.checked(m, *noted)):
                self.noted[i] = None    # it will not be possible later: more has been changed then
                break
            self.checked += 1
        if self.checked > before:
            m.undoable(lambda: setattr(self, "checked", before))
        return self.checked == len(self.noted)


def is_on_gpu(indices: Sequence[tuple]) -> bool:
    """Whether an index out of range ends the process, and does not raise."""
    return all(fake.device.type != "cpu" for fake, *_ in indices)


def catches(frame: Frame) -> bool:
    """Whether the frame handles an exception at its current instruction. Leaving torch's contexts does not count, nor
    does the call of a module, which raises again after the hooks that it has for this.
    """
    if frame.native is CALL_OF_MODULE and (real := frame.cells["self"].contents.real) is not ABSENT and (
            not calls_after_exceptions(real)):
        return False
    instrs, handlers = frame.instrs, frame.code.handlers
    index = instrs[frame.last].handler
    while index >= 0:
        depth, at = handlers[index].depth, handlers[index].target
        if instrs[at].op == "PUSH_EXC_INFO":
            at += 1
        else:       # made by Python's compiler, it tidies up and raises again: the end of a comprehension or a handler
            index = instrs[at].handler
            continue
        while instrs[at].op != "RERAISE":
            op = instrs[at].op
            if op == "LOAD_GLOBAL" and instrs[at + 1].op == "CHECK_EXC_MATCH":
                if may_be_caught_by(frame, instrs[at].arg) or instrs[at + 2].op != "POP_JUMP_IF_FALSE":
                    return True
                at = instrs[at + 2].target
            elif op == "WITH_EXCEPT_START":
                slots = 2 if instrs[at].arg else 1      # the exit method, and since 3.14 its self
                leave = frame.stack[depth - slots] if depth <= len(frame.stack) else None
                if not isinstance(leave, BoundMethod) or not leave.self_.pytype.__module__.startswith("torch."):
                    return True
                while instrs[at].op != "RERAISE":
                    at += 1
            else:
                return True
        index = instrs[at].handler
    return False


def may_be_caught_by(frame: Frame, name: str) -> bool:
    kind = frame.namespace.get(name, getattr(builtins, name, None))
    return not isinstance(kind, type) or any(issubclass(k, kind) for k in RAISED)
