"""Prints the intermediate forms of a call in the pipeline. The text is the same in each run, so tests can compare
it.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import CodeType

from sot.bytecode import Code
from sot.codegen.build_graph import Graph
from sot.guards.guard_program import GuardProgram
from sot.guards.guards import Guard
from sot.interpreter.trace import Line, Trace
from sot.support.places import shortened

ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def stages_of(instructions: Code, trace: Trace, graph: Graph | None, guards: Mapping[Guard, Line],
              program: GuardProgram, source: str) -> dict[str, str]:
    """The forms in the order in which they are made. Kernels are not included, because some backends make them at the
    first call.
    """
    found = {"instructions": "\n".join(instruction_lines(instructions)), "trace": str(trace)}
    if graph is not None:
        found["graph"] = graph.module.code.strip()
    found["guards"] = "\n".join(f"{guard}    # {shortened(file)}:{line}" for guard, (file, line) in guards.items())
    found["guard program"] = str(program)
    found["code"] = source.strip()
    return {title: ADDRESS.sub("", text) for title, text in found.items()}


def instruction_lines(code: Code) -> Iterator[str]:
    """The instructions with their source lines, and the handler of their exceptions."""
    line = None
    for i, instr in enumerate(code.instrs):
        shown = f"{instr.pos[0]:>4}" if instr.pos[0] not in (None, line) else "    "
        line = instr.pos[0] or line
        handler = f"    on error {code.handlers[instr.handler].target}" if instr.handler >= 0 else ""
        text = f"{instr.op} <code of {instr.arg.co_name}>" if isinstance(instr.arg, CodeType) else str(instr)
        yield f"{shown} {i:4} {text}{handler}"
