"""What a value needs of the writer of emitted code, which lies further up; see ``Value.rebuild`` and ``codegen``."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import fx

    from sot.graph import TensorRef
    from sot.guards.origin import Origin


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
