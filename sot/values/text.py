"""Text that shows tensors: an f-string which becomes a string when, and only if, somebody looks at it.

Checks format the message of an error that never happens. A break for each of those would cut the graph for nothing.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from sot.errors import Break, NotRebuildable, Reason
from sot.graph.builder import version_of
from sot.values.base import Const, Value
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.emit import Emitter


class TextValue(Value):
    """``format(tensor, spec)``, alone or with other text around it. The tensor must not change before it is made."""

    pytype = str

    def __init__(self, parts: list[Const | ShownTensor]) -> None:
        self.parts = parts

    def rebuild(self, e: Emitter) -> str:
        parts = [p.expression(e) if isinstance(p, ShownTensor) else e.value(p) for p in self.parts]
        return e.variable(self, f"''.join(({''.join(p + ', ' for p in parts)}))")

    def __str__(self) -> str:
        return "text that shows a tensor"


def joined(parts: list[Value]) -> TextValue:
    """The text of an f-string of which a part shows a tensor."""
    found: list[Const | ShownTensor] = []
    for part in parts:
        if isinstance(part, TextValue):
            found += part.parts
        elif isinstance(part, Const):
            found.append(part)
        else:
            raise Break(Reason.OPAQUE_VALUE, "a string made at run time")
    return TextValue(found)


class ShownTensor:
    """One tensor in the text, as it is now."""

    def __init__(self, tensor: TensorValue, spec: str) -> None:
        self.tensor, self.spec, self.version = tensor, spec, version_of(tensor.fake)

    def expression(self, e: Emitter) -> str:
        if version_of(self.tensor.fake) != self.version:
            raise NotRebuildable(f"{self.tensor}, which is shown and then changed in place,")
        return f"format({e.value(self.tensor)}, {self.spec!r})"
