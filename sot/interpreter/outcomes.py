"""The outcomes of symbolic execution, and the marks for rollbacks."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sot.support.errors import Break
from sot.values.base import Value

if TYPE_CHECKING:
    pass


class Mark(NamedTuple):
    """The state of the machine at the start of an instruction of one frame."""

    pc: int
    stack: tuple[Value, ...]
    graph: tuple[int, int]
    journal: int
    effects: int
    handled: Value | None


@dataclass
class Return:
    """The root frame returned a value."""

    value: Value


@dataclass
class Stopped:
    """Capture ended at a break in the frame on top of the stack."""

    cause: Break
    raised: Value | None = None     # the exception that would leave the frame

    def __post_init__(self) -> None:
        # Frames of the interpreter refer to it. Its traceback would make a cycle, and the user's frames that called
        # the interpreter would keep their variables until the garbage collector runs.
        self.cause.__traceback__ = self.cause.__context__ = None


class Touch(NamedTuple):
    """A value that was changed in a branch, and the place of the change."""

    value: Any
    where: str
