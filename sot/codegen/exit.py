"""The emitted exit of a trace: the code of an entry after its graph."""
from __future__ import annotations

from dataclasses import dataclass

from sot.codegen.emit import Emitter
from sot.codegen.names import Names
from sot.codegen.resume_points import HandedOn, leave
from sot.graph import TensorRef
from sot.guards.draws import AllDrawn
from sot.guards.origin import ById
from sot.interpreter.torch_ops.overrides import write_modes
from sot.interpreter.trace import Returned, Trace

PLAIN = ("return PLAIN",)


@dataclass(frozen=True)
class Exit:
    """The last lines of an entry: they make new objects, write mutations, and return.

    Arguments:
        names: the names that the lines use.
        lines: Python source.
        outputs: the outputs of the graph that the lines use, each with its name.
        leaves: whether the frame continues after the entry.
        handed_on: the functions that continue it, and their variables whose numbers may differ.
    """

    names: Names
    lines: tuple[str, ...]
    outputs: tuple[tuple[TensorRef, str], ...] = ()
    leaves: bool = False
    handed_on: tuple[HandedOn, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether Python runs the frame."""
        return self.lines == PLAIN


def plain_exit() -> Exit:
    """The exit of a frame with nothing to capture: Python runs it."""
    return Exit(Names(), PLAIN)


def write_exit(trace: Trace, emitter: type[Emitter] = Emitter) -> Exit:
    """Emit the exit of a trace. Raises NotRebuildable, RestartCapture."""
    e = emitter(trace)
    handed_on: list[HandedOn] = []
    if trace.draws.final[1]:
        e.ref(AllDrawn(ById(trace.draws)))       # the generators must advance even if no number is used
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
