"""The parts of later stages that values need: the machine, and the emitter."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import fx

    from sot.graph import GraphBuilder, NumberRef, TensorRef
    from sot.guards.assumptions import Assumptions, Variation
    from sot.guards.guards import Guard, RelationGuard
    from sot.guards.origin import Origin
    from sot.guards.symbols import Symbols


class Machine(Protocol):
    """The part of a capture's state that values read and change."""

    varies: Variation                       # which numbers may differ at the next call
    varying_numbers: dict[Origin, Any]      # those met so far, with their current values
    number_inputs: dict[Origin, NumberRef]
    input_origins: dict[int, Origin]        # of the graph's inputs, by the id of their references
    by_id: dict[int, tuple[Any, Any]]       # an object that existed before, and its value
    mutated: dict[int, Any]                 # values of existing objects that have been changed, by their id
    entered: Any                            # the contexts in which the program runs
    shown: list[Any]                        # output and text that are made after the graph
    state_log: list[Any]                    # the changes of torch's global state
    modes: tuple[Any, ...]                  # of ``__torch_function__``, which are active
    asks_classes: bool                      # whether torch looks for __torch_function__ in arguments' classes
    of_compilers: bool                      # see ``Graph``
    array_memory: Any
    assumptions: Assumptions
    builder: GraphBuilder
    frames: list[Any]                       # of the calls that are being executed
    guards: dict[Guard, Any]                # met so far
    compared: set[type]                     # types of objects whose identity was compared
    watch: list[Any] | None                 # values that were changed in the branch that is being executed

    @property
    def symbols(self) -> Symbols:
        """The symbols of sizes and numbers that may differ."""

    def guard(self, guard: Guard) -> None:
        """Add a condition for the reuse of the entry."""

    def note_assumptions(self, of_operator: bool = False) -> list[RelationGuard]:
        """Guard what torch has assumed about symbols since the last call, and return the guards."""

    def varying_number(self, example: Any, origin: Origin, symbol: Any = None) -> Any:
        """The Value of a number that may differ at the next call."""

    def touch(self, value: Any, undo: Callable[[], None] | None = None) -> None:
        """Announce a mutation."""

    def undoable(self, undo: Callable[[], Any]) -> None:
        """Add the undo of a change that does not belong to an object."""

    def enter(self, function: Any, args: list[Any]) -> Any:
        """Push a frame of a Python function."""

    def throw(self, kind: type, *args: Any) -> Any:
        """Raise a builtin exception in the captured program."""

    def settle_at(self, items: list, index: int) -> Any:
        """The Value at an index of a list that may contain Lazy items."""

    def settle(self, items: list) -> list[Any]:
        """The Values of a list that may contain Lazy items."""


class Emitter(Protocol):
    """Writes the second half of an entry. Each value is made once."""

    def ref(self, origin: Origin) -> str:
        """The variable that holds the value of an origin."""

    def const(self, value: object, hint: str = "k") -> str:
        """The name of an object that the entry holds."""

    def literal(self, value: Any) -> str:
        """The text of a constant."""

    def constant(self, value: Any, place: Origin | None) -> str:
        """The expression of a constant that may have existed before."""

    def key(self, key: Any) -> str:
        """The expression of a dict's key."""

    def tuple_display(self, parts: Iterable[str]) -> str:
        """The expression of a new tuple."""

    def value(self, value: Any) -> str:
        """The expression of a value, which is made at most once."""

    def line(self, text: str) -> None:
        """Write a line."""

    def variable(self, value: Any, expression: str) -> str:
        """Assign a value to a new variable and return its name."""

    def later(self, fill: Callable[[], None]) -> None:
        """Fill an object once it exists."""

    def flush(self) -> None:
        """Fill all objects that wait for it."""

    def complete(self, value: Any) -> None:
        """Fill an object before the code that follows."""

    def output(self, ref: TensorRef) -> str:
        """The variable of an output of the graph."""

    def output_before(self, node: fx.Node, ref: TensorRef) -> str:
        """The variable for the state of a tensor before an operation of the graph."""

    def tensor_with_attrs(self, value: Any) -> str:
        """Make a tensor with attributes."""

    def write_attrs(self, name: str, value: Any) -> None:
        """Write the attributes of a tensor."""

    def new_object(self, obj: Any) -> str:
        """Make an instance of a class without its ``__init__``."""

    def fill_attrs(self, name: str, obj: Any) -> None:
        """Write the attributes of a new object."""

    def generator(self, value: Any) -> str:
        """Make a generator and advance it to its current state."""

    def set_position(self, iterator: str, index: int) -> None:
        """Move an iterator."""

    @property
    def trace(self) -> Any:
        """The trace that is emitted."""
