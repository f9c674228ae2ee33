"""Text that shows tensors: an f-string which becomes a string when, and only if, somebody looks at it.

Checks format the message of an error that never happens. A break for each of those would cut the graph for nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sot.errors import Break, NotRebuildable, Reason
from sot.graph.refs import version_of
from sot.torch_compat import is_symbolic, storage_id
from sot.values.base import Const, Value
from sot.values.numbers import DynamicNumber, is_dynamic, is_finite
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from sot.emit import Emitter
    from sot.execute.machine import Machine


class TextValue(Value):
    """``format(tensor, spec)`` or the like, alone or with other text around it."""

    pytype = str

    def __init__(self, parts: list[Const | ShownTensor]) -> None:
        self.parts = parts

    def rebuild(self, e: Emitter) -> str:
        parts = [p.expression(e) if isinstance(p, ShownTensor) else e.value(p) for p in self.parts]
        return e.variable(self, f"''.join(({''.join(p + ', ' for p in parts)}))")

    def __str__(self) -> str:
        return "text that shows a tensor"


@dataclass(frozen=True)
class ShownNumbers:
    """Text made of numbers of which some vary: by ``render`` here, by ``code`` of their expressions in emitted code."""

    numbers: Sequence[Value]
    render: Callable[..., str]
    code: Callable[..., str]

    def now(self) -> str:
        return self.render(*(n.real for n in self.numbers))

    def expression(self, e: Emitter) -> str:
        return self.code(*map(e.value, self.numbers))


class NumberText(Const):
    """Text that shows numbers which vary from call to call; whoever looks at it makes them constants."""

    def __init__(self, parts: list[str | ShownNumbers]) -> None:
        self.parts = parts
        self._text: str | None = None
        self.pytype = str
        self.origin = None

    @property
    def varies(self) -> bool:
        return self._text is None

    @property
    def real(self) -> Any:
        if self._text is None:
            self._text = "".join(p if isinstance(p, str) else p.now() for p in self.parts)
        return self._text

    def rebuild(self, e: Emitter) -> str:
        if self._text is not None:
            return e.literal(self._text)
        parts = (repr(p) if isinstance(p, str) else p.expression(e) for p in self.parts)
        return e.variable(self, f"''.join(({''.join(p + ', ' for p in parts)}))")

    def __str__(self) -> str:
        return "text that shows a number"


def number_text(numbers: Sequence[Value], render: Callable[..., str], code: Callable[..., str]) -> NumberText | None:
    """The text that ``render`` makes of numbers; None if none of them varies, or Python refuses them."""
    if not any(map(is_dynamic, numbers)) or not all(
            isinstance(n, Const) and not isinstance(n, NumberText) for n in numbers):
        return None
    try:
        render(*(n.example if isinstance(n, DynamicNumber) else n.real for n in numbers))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return NumberText([ShownNumbers(numbers, render, code)])


def percent_of_numbers(m: Machine, text: Value, values: Value) -> NumberText | None:
    """``text % values`` of numbers of which some vary."""
    form, numbers = text.constant(), m.settle(values.items) if isinstance(values, TupleValue) else [values]
    if not all(is_finite(m, n).real for n in numbers if is_dynamic(n)):      # there is no %d of others
        return None
    return number_text(numbers, lambda *v: form % v, lambda *codes: f"({form!r} % ({', '.join(codes)},))")


def made_later(*values: Value) -> bool:
    """Are these strings of which one, at least, is made after the graph?"""
    later = any(isinstance(v, TextValue) or isinstance(v, NumberText) and v.varies for v in values)
    return later and all(v.pytype is str for v in values)


def joined(parts: list[Value]) -> Value:
    """The text of an f-string of which a part shows a tensor, or a number that varies."""
    if all(isinstance(p, Const) for p in parts):
        return NumberText([piece for p in parts for piece in (
            p.parts if isinstance(p, NumberText) and p.varies else [p.real])])
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
    """One tensor, as it is now, in text or output that is made after the graph; ``template`` has a hole for it.

    If the graph changes it later, what is shown is a copy that the graph makes right before.
    """

    def __init__(self, m: Machine, tensor: TensorValue, template: str = "{}") -> None:
        self.tensor, self.template = tensor, template
        self.changed_by: fx.Node | None = None
        self._version, self._requires_grad = version_of(tensor.fake), tensor.fake.requires_grad
        m.shown.append(self)
        m.undoable(m.shown.pop)

    def note_change(self, m: Machine, node: fx.Node, changed: set[int]) -> None:
        """The node changes memory, by its ids."""
        if self.changed_by is None and storage_id(self.tensor.fake) in changed:
            self.changed_by = node
            m.undoable(lambda: setattr(self, "changed_by", None))

    def expression(self, e: Emitter) -> str:
        shown = self.tensor
        before = self.changed_by
        if self._requires_grad is not shown.fake.requires_grad or before is None and (
                version_of(shown.fake) != self._version):
            raise NotRebuildable(f"{shown}, which is shown and then changed,")
        if before is None:
            return self.template.format(e.value(shown))
        if self._requires_grad or shown.pytype is not torch.Tensor or is_symbolic(shown.fake):  # whose copies differ
            raise NotRebuildable(f"{shown}, which is shown and then changed in place,")
        return self.template.format(e.output(e.machine.builder.copy_before(before, shown.ref)))
