"""The source of values that an expression had computed before a break, which are named ``__stack_0`` and so on."""
from __future__ import annotations

import linecache
from types import CodeType

from sot.bytecode import decode
from sot.bytecode.frame_layout import VALUE, slot_parameter
from sot.bytecode.instr import Instr
from sot.bytecode.resume_origin import origin
from sot.bytecode.stack_effects import net_effect

LONGEST = 60
WITHOUT_RESULT = ("NOP", "RESUME", "POP_", "STORE_", "DELETE_", "PUSH_NULL", "KW_NAMES")


def names_of_slots(code: CodeType) -> dict[str, str]:
    """For resume code: the parameters that hold stack values, with their source."""
    rest = origin(code)
    if rest is None:
        return {}
    instrs, slots = decode(rest.code).instrs, rest.layout.slots
    # Composed code knows the place of the call. The result of the call is not among the slots.
    end, depth = (rest.pc, len(slots)) if rest.next_pc is None else (rest.pc + 1, len(slots) + 1)
    if rest.next_pc is None and any(instr.target == end for instr in instrs):
        return {}       # a jump led there, and not the instructions before it
    makers = {i: maker_of(instrs, end, depth, i) for i, kind in enumerate(slots) if kind == VALUE}
    return {slot_parameter(i): text for i, maker in makers.items()
            if maker is not None and (text := text_of(rest.code, maker))}


def maker_of(instrs: list[Instr], end: int, depth: int, slot: int) -> Instr | None:
    """The instruction before ``end`` that pushed a slot; None if finding it needs to follow jumps. ``depth`` is the
    depth of the stack at the end.
    """
    targets = {instr.target for instr in instrs}
    for at, instr in reversed([*enumerate(instrs[:end])]):
        before = depth - net_effect(instr)
        if before <= slot < depth or before >= depth == slot + 1 and not instr.op.startswith(WITHOUT_RESULT):
            return instr
        if instr.target is not None or at in targets:
            return None
        depth = before
    return None


def text_of(code: CodeType, instr: Instr) -> str:
    """The expression of an instruction, if it is short and on one line."""
    line, last, begin, end = instr.pos
    if line is None or line != last or begin is None or end is None:
        return ""
    text = linecache.getline(code.co_filename, line).encode()[begin:end].decode(errors="replace").strip()
    return text if len(text) <= LONGEST else ""
