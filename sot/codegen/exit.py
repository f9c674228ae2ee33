"""The exit of a trace, as it is written: what an entry does when its graph has run."""
from __future__ import annotations

from dataclasses import dataclass

from sot.codegen.emit import Emitter
from sot.codegen.names import Names
from sot.codegen.resume_points import HandedOn, leave
from sot.graph import TensorRef
from sot.interpreter.torch_ops.overrides import write_modes
from sot.interpreter.trace import Returned, Trace

PLAIN = ("return PLAIN",)


@dataclass(frozen=True)
class Exit:
    """The last lines of an entry, which make new objects, write what has changed, and return.

    Arguments:
        names: those that the lines use.
        lines: Python source.
        outputs: the results of the graph that the lines use, each with its name.
        leaves: does something go on in the frame after the entry?
        handed_on: what goes on, and which of its variables have numbers that may differ.
    """

    names: Names
    lines: tuple[str, ...]
    outputs: tuple[tuple[TensorRef, str], ...] = ()
    leaves: bool = False
    handed_on: tuple[HandedOn, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Does Python run the frame?"""
        return self.lines == PLAIN


def plain_exit() -> Exit:
    """Of a frame in which there is nothing to capture: Python runs it."""
    return Exit(Names(), PLAIN)


def write_exit(trace: Trace, emitter: type[Emitter] = Emitter) -> Exit:
    """What becomes of the values at the end of a trace. Raises NotRebuildable, RestartCapture."""
    e = emitter(trace)
    handed_on: list[HandedOn] = []
    try:
        if isinstance(trace.exit, Returned):
            result = e.value(trace.exit.value)
        else:
            function, args, handed_on = leave(e, trace.exit, trace.shows_frames)
            result = f"Tail({function}, ({args}))"
        e.flush()
        e.replay()
        write_modes(e)
    finally:
        e.abandon()
    e.line(f"return {result}")
    return Exit(e.names, (*e.lines,), (*e.outputs.values(),), not isinstance(trace.exit, Returned), (*handed_on,))
