"""How symbolic execution ends, and the marks to which it can be taken back."""
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
        # Frames of ours refer to it: with its traceback they would make a circle, and the user's frames that called us
        # would keep their variables until the collector comes.
        self.cause.__traceback__ = self.cause.__context__ = None


class Touch(NamedTuple):
    """A value that was changed in a branch, and where."""

    value: Any
    where: str
