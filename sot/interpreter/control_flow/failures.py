"""Operations that may raise when the graph runs, because of the values they get.

A graph that raises is left to Python: it runs the frame from its start, and raises. That does not go where the graph
has changed its inputs by then, as it would do so twice; there the exception leaves the function. So a break comes
before an operation that may raise if inputs have been changed, and the program would see the difference: it catches
the exception, handles another one (the context of the new one), or has done something else before it.
"""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from sot.support.errors import Break, Reason
from sot.values.callables import BoundMethod

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine

RAISED = (IndexError, RuntimeError, ValueError, ZeroDivisionError)     # by kernels, about values


def expect(m: Machine, name: str, is_ours: bool = False) -> None:
    """Note that an operation just run on fakes may raise; a break where Python could not run the frame again.

    ``is_ours``: what it raises is not the program's exception, and must not leave the function.
    """
    builder, mode = m.builder, m.builder.fake_mode
    changed = bool(builder.changed_inputs()) if mode.may_refuse or mode.changes_unversioned else False
    traceless = builder.changes_traceless or (mode.changes_unversioned and not changed) or builder.changes_untracked()
    seen = m.refusal_seen
    if mode.may_refuse:
        now = is_ours or bool(m.mutated or m.effects or m.handled or any(catches(frame) for frame in m.frames))
        if now and (changed or traceless):
            raise Break(Reason.UNSUPPORTED, f"{name}, which may raise, after a change of an input,")
        seen = seen or now
        builder.refuses = True
        builder.draws_then_refuses = builder.draws_then_refuses or mode.draws
    if seen and traceless:
        raise Break(Reason.UNSUPPORTED, f"{name}, a change that leaves no trace, after what may raise,")
    m.refusal_seen, builder.changes_traceless = seen, traceless


def catches(frame: Frame) -> bool:
    """Does the frame do anything about an exception at its current instruction, but for leaving torch's contexts?"""
    instrs, handlers = frame.instrs, frame.code.handlers
    index = instrs[frame.last].handler
    while index >= 0:
        depth, at = handlers[index].depth, handlers[index].target
        while instrs[at].op != "RERAISE":
            op = instrs[at].op
            if op == "LOAD_GLOBAL" and instrs[at + 1].op == "CHECK_EXC_MATCH":
                if may_be_caught_by(frame, instrs[at].arg) or instrs[at + 2].op != "POP_JUMP_IF_FALSE":
                    return True
                at = instrs[at + 2].target
            elif op == "WITH_EXCEPT_START":
                slots = 2 if instrs[at].arg else 1      # the exit method, and since 3.14 what it is bound to
                leave = frame.stack[depth - slots] if depth <= len(frame.stack) else None
                if not isinstance(leave, BoundMethod) or not leave.self_.pytype.__module__.startswith("torch."):
                    return True
                while instrs[at].op != "RERAISE":
                    at += 1
            elif op in ("PUSH_EXC_INFO", "COPY", "POP_EXCEPT"):
                at += 1
            else:
                return True
        index = instrs[at].handler
    return False


def may_be_caught_by(frame: Frame, name: str) -> bool:
    kind = frame.namespace.get(name, getattr(builtins, name, None))
    return not isinstance(kind, type) or any(issubclass(k, kind) for k in RAISED)
