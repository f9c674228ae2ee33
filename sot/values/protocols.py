"""What a value needs of the stages above it: of the machine that follows the program, of the writer of emitted code."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import fx

    from sot.graph import GraphBuilder, NumberRef, TensorRef
    from sot.guards.assumptions import Assumptions, Variation
    from sot.guards.guards import Guard
    from sot.guards.origin import Origin
    from sot.guards.symbols import Symbols


class Machine(Protocol):
    """The state of a capture, as far as values read and change it."""

    varies: Variation                       # which numbers may differ at the next call
    varying_numbers: dict[Origin, Any]      # those met so far, with the values that they have
    number_inputs: dict[Origin, NumberRef]
    input_origins: dict[int, Origin]        # of the graph's inputs, by the id of their references
    by_id: dict[int, tuple[Any, Any]]       # an object that existed before, and its value
    shown: list[Any]                        # output and text that are made after the graph
    modes: tuple[Any, ...]                  # of ``__torch_function__``, which are active
    asks_classes: bool                      # does torch ask arguments' classes for __torch_function__?
    array_memory: Any
    assumptions: Assumptions
    builder: GraphBuilder
    watch: list[Any] | None                 # what has been touched in the branch that is followed

    @property
    def symbols(self) -> Symbols:
        """Of the sizes and numbers that may differ."""

    def guard(self, guard: Guard) -> None:
        """What must hold at another call."""

    def note_assumptions(self, of_operator: bool = False) -> None:
        """Guard what torch has assumed about symbols since the last time."""

    def varying_number(self, example: Any, origin: Origin, symbol: Any = None) -> Any:
        """The Value of a number that may differ at the next call."""

    def touch(self, value: Any, undo: Callable[[], None] | None = None) -> None:
        """Announce a mutation."""

    def undoable(self, undo: Callable[[], Any]) -> None:
        """How to take back a change that is none of an object."""

    def enter(self, function: Any, args: list[Any]) -> Any:
        """Push a frame of a Python function."""

    def throw(self, kind: type, *args: Any) -> Any:
        """Raise a builtin exception in the captured program."""

    def settle_at(self, items: list, index: int) -> Any:
        """The Value at an index of a list that may hold Lazy places."""

    def settle(self, items: list) -> list[Any]:
        """The Values of a list that may hold Lazy places."""


class Emitter(Protocol):
    """Writes the source of an entry's second half, in which each value is made once."""

    def ref(self, origin: Origin) -> str:
        """The variable that holds what an origin names."""

    def const(self, value: object, hint: str = "k") -> str:
        """The name of an object that the entry holds."""

    def literal(self, value: Any) -> str:
        """The text of a constant."""

    def key(self, key: Any) -> str:
        """The expression of a dict's key."""

    def tuple_display(self, parts: Iterable[str]) -> str:
        """The expression of a new tuple."""

    def value(self, value: Any) -> str:
        """The expression of a value, which is made at most once."""

    def line(self, text: str) -> None:
        """Write a line."""

    def variable(self, value: Any, expression: str) -> str:
        """Give a value a variable; its name."""

    def later(self, fill: Callable[[], None]) -> None:
        """Fill an object once it exists."""

    def flush(self) -> None:
        """Fill what is to be filled."""

    def complete(self, value: Any) -> None:
        """Fill an object before what follows."""

    def output(self, ref: TensorRef) -> str:
        """The variable of an output of the graph."""

    def output_before(self, node: fx.Node, ref: TensorRef) -> str:
        """The variable of what a tensor was before an operation of the graph."""

    def tensor_with_attrs(self, value: Any) -> str:
        """Make a tensor that carries attributes."""

    def write_attrs(self, name: str, value: Any) -> None:
        """Write the attributes of a tensor."""

    def new_object(self, obj: Any) -> str:
        """Make an instance of a class without its ``__init__``."""

    def fill_attrs(self, name: str, obj: Any) -> None:
        """Write the attributes of a new object."""

    def generator(self, value: Any) -> str:
        """Make a generator that has run so far."""

    def set_position(self, iterator: str, index: int) -> None:
        """Move an iterator."""

    @property
    def trace(self) -> Any:
        """What is written."""
