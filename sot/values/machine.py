"""What a value needs of the machine that follows the program, which lies further up: guards, the journal, symbols."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sot.graph import NumberRef
    from sot.guards.assumptions import Variation
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

    @property
    def symbols(self) -> Symbols:
        """Of the sizes and numbers that may differ."""

    def guard(self, guard: Guard) -> None:
        """What must hold at another call."""

    def note_assumptions(self) -> None:
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

    @property
    def attributes(self) -> Any: ...

    @property
    def calls(self) -> Any: ...

    @property
    def torch_call(self) -> Any: ...

    @property
    def array_call(self) -> Any: ...

    @property
    def set_data(self) -> Any: ...

    @property
    def through_overrides(self) -> Any: ...

    @property
    def wrap(self) -> Any: ...

    @property
    def wrap_new(self) -> Any: ...

    @property
    def wrap_known(self) -> Any: ...

    @property
    def wrap_attr(self) -> Any: ...

    @property
    def is_constant(self) -> Any: ...

    @property
    def compares_by_python(self) -> Any: ...
