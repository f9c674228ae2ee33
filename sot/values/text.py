"""Text that varies, or that shows tensors or deferred scalars. The string is made only if the program uses it.

Checks often format the message of an error that never happens. A break for each of them would split the graph for no
gain.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sot.graph.refs import version_of
from sot.guards.origin import Length, Origin
from sot.support.errors import Break, NotRebuildable, Reason
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.global_state import PRINT_OPTIONS, SET_DEFAULT_DTYPE, with_print_options
from sot.torch_compat.tensors import storage_id
from sot.values.base import Const, LazyConst, NotConstant, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import is_finite
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.tensor import TensorValue, has_own_code

if TYPE_CHECKING:
    from torch import fx

    from sot.values.protocols import Emitter, Machine

CHARACTER = re.compile("%[^%a-zA-Z]*c")     # takes a string of one character, or its code point
FIELD = re.compile("%[^%a-zA-Z]*[hlL]?[a-zA-Z%]")
SHOWN_AS_THEY_COME = (int, float, str)


class TextValue(Value):
    """``format(tensor, spec)`` or similar, alone or with other text around it."""

    pytype = str

    def __init__(self, parts: list[Const | ShownTensor | ShownNumber]) -> None:
        self.parts = parts

    def rebuild(self, e: Emitter) -> str:
        parts = [e.value(p) if isinstance(p, Const) else p.expression(e) for p in self.parts]
        return e.variable(self, f"''.join(({''.join(p + ', ' for p in parts)}))")

    def __str__(self) -> str:
        return "text that shows a tensor"


@dataclass(frozen=True)
class ShownNumber:
    """A deferred scalar in text. ``template`` has a placeholder for it."""

    number: DeferredScalar
    template: str

    def expression(self, e: Emitter) -> str:
        return self.template.format(e.value(self.number))


@dataclass(frozen=True)
class ShownNumbers:
    """Text made of numbers of which some vary. ``render`` makes it here; ``code`` writes it in emitted code."""

    numbers: Sequence[Value]
    render: Callable[..., str]
    code: Callable[..., str]

    def now(self) -> str:
        return self.render(*(n.real for n in self.numbers))

    def expression(self, e: Emitter) -> str:
        return self.code(*map(e.value, self.numbers))


class VaryingText(Const):
    """Text that varies from call to call, or shows varying numbers or text. Code that reads it makes them
    constants.
    """

    def __init__(self, parts: list[str | ShownNumbers], source: Origin | None = None) -> None:
        self.parts, self.source = parts, source     # where it is, if it existed before
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

    @property
    def place(self) -> Origin | None:
        return self.source

    @property
    def numbers(self) -> Iterator[Value]:
        """The numbers that it shows."""
        return (n for p in self.parts if isinstance(p, ShownNumbers) for n in p.numbers)

    @property
    def example(self) -> str:
        """Its value in the captured call. This does not make it a constant."""
        return "".join(p if isinstance(p, str) else p.render(*map(example_of, p.numbers)) for p in self.parts)

    @property
    def unguarded(self) -> str:
        return self.example

    def characters(self, m: Machine) -> Value | None:
        """Its length as a varying number; None if the text has been read, or is made here."""
        if not self.varies or self.source is None:
            return None
        return m.varying_number(len(self.example), Length(self.source))

    def truth(self, m: Machine) -> bool | None:
        found = self.characters(m)
        return super().truth(m) if found is None else found.truth(m)

    def rebuild(self, e: Emitter) -> str:
        if self._text is not None:
            return super().rebuild(e)
        if len(self.parts) == 1 and isinstance(self.parts[0], ShownNumbers):
            return e.variable(self, self.parts[0].expression(e))
        parts = (repr(p) if isinstance(p, str) else p.expression(e) for p in self.parts)
        return e.variable(self, f"''.join(({''.join(p + ', ' for p in parts)}))")

    def __str__(self) -> str:
        return "text that differs from call to call"


def varying_text(m: Machine, text: str, origin: Origin) -> VaryingText:
    """A string that existed before and had another value at another call."""
    return VaryingText([ShownNumbers([LazyConst(m, text, origin)], str, str)], origin)


def varies(value: Value) -> bool:
    """Whether it is a number or text that varies, or that the program has not read yet."""
    if isinstance(value, VaryingText):
        return value.varies
    return isinstance(value, LazyConst) and value.is_unread and value.pytype in SHOWN_AS_THEY_COME


def example_of(value: Any) -> Any:
    """The value of a number or text in the captured call. This does not make it a constant."""
    return value.unguarded


def number_text(numbers: Sequence[Value], render: Callable[..., str], code: Callable[..., str]) -> VaryingText | None:
    """The text that ``render`` makes of numbers and text; None if none of it varies, or if Python refuses it."""
    if not any(map(varies, numbers)) or not all(isinstance(n, Const) for n in numbers):
        return None
    try:
        render(*map(example_of, numbers))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return VaryingText([ShownNumbers(numbers, render, code)])


def text_of_container(m: Machine, name: str, value: Value) -> VaryingText | None:
    """``str`` or ``repr`` of a list, tuple, torch.Size or dict with a varying part; None if no part varies."""
    leaves: list[Value] = []
    try:
        build = layout(m, value, leaves)
    except (NotConstant, RecursionError):
        return None
    return number_text(leaves, lambda *v: repr(build(iter(v), host_of)),
                       lambda *codes: f"{name}({build(iter(codes), display_of)})")


def layout(m: Machine, value: Value, leaves: list[Value]) -> Callable[[Iterator, Callable], Any]:
    """Collect the constants in nested containers. The result rebuilds the containers with other constants."""
    if isinstance(value, DictValue) and value.pytype is dict and not value.namespace:
        items = [part for k in value.keys(m) for part in (value.key_value(m, k), value.get(m, k))]
    elif isinstance(value, (ListValue, TupleValue)) and value.pytype in (list, tuple):
        items = m.settle(value.items)
    elif isinstance(value, TupleValue) and value.pytype is torch.Size:
        items = [Const(torch.Size), *m.settle(value.items)]     # emitted code has no name for the class
    elif isinstance(value, Const) and value.pytype.__module__ == "builtins":
        leaves.append(value)
        return lambda given, make: next(given)
    else:
        raise NotConstant(value)
    parts = [layout(m, item, leaves) for item in items]
    return lambda given, make: make(value.pytype, [part(given, make) for part in parts])


def host_of(kind: type, items: list) -> Any:
    if kind is torch.Size:
        return kind(items[1:])
    return dict(zip(items[::2], items[1::2], strict=True)) if kind is dict else kind(items)


def display_of(kind: type, items: list[str]) -> str:
    if kind is dict:
        return "{" + ", ".join(f"{k}: {v}" for k, v in zip(items[::2], items[1::2], strict=True)) + "}"
    if kind is torch.Size:
        return f"{items[0]}([{', '.join(items[1:])}])"
    return f"[{', '.join(items)}]" if kind is list else f"({''.join(item + ', ' for item in items)})"


def percent_of_numbers(m: Machine, text: Value, values: Value) -> VaryingText | None:
    """``text % values`` for numbers of which some vary."""
    form, numbers = text.constant(), m.settle(values.items) if isinstance(values, TupleValue) else [values]
    if not any(map(varies, numbers)) or not all(isinstance(n, Const) for n in numbers) or CHARACTER.search(form):
        return None
    if not all(is_finite(m, n).real for n in whole_numbers(form, numbers) if n.pytype is float and varies(n)):
        return None
    return number_text(numbers, lambda *v: form % v, lambda *codes: f"({form!r} % ({', '.join(codes)},))")


def whole_numbers(form: str, values: Sequence[Value]) -> Iterable[Value]:
    """The values that ``%d`` and similar fields convert to integers, or all values if that is not known."""
    fields = [field for field in FIELD.findall(form) if field[-1] != "%"]
    if not any(field[-1] in "diouxX" for field in fields):
        return ()
    if len(fields) != len(values) or "*" in form:
        return values
    return (value for field, value in zip(fields, values, strict=True) if field[-1] in "diouxX")


def made_later(*values: Value) -> bool:
    """Whether these are strings of which at least one is made after the graph."""
    return any(isinstance(v, TextValue) or varies(v) for v in values) and all(v.pytype is str for v in values)


def joined(parts: list[Value]) -> Value:
    """The text of an f-string that shows a tensor or a varying number."""
    if all(isinstance(p, Const) for p in parts):
        return VaryingText([piece for p in parts for piece in pieces_of(p)])
    found: list[Const | ShownTensor | ShownNumber] = []
    for part in parts:
        if isinstance(part, TextValue):
            found += part.parts
        elif isinstance(part, Const):
            found.append(part)
        else:
            raise Break(Reason.OPAQUE_VALUE, "a string made at run time")
    return TextValue(found)


def pieces_of(text: Value) -> list[str | ShownNumbers]:
    """A string as the parts of a varying text."""
    if not varies(text):
        return [text.real]
    return text.parts if isinstance(text, VaryingText) else [ShownNumbers([text], str, str)]


class ShownTensor:
    """A tensor in its current state, in text or output that is made after the graph. ``template`` has a placeholder
    for it.

    If the graph changes the tensor later, a copy is shown, which the graph makes right before the change.
    """

    def __init__(self, m: Machine, tensor: TensorValue, template: str = "{}") -> None:
        if has_own_code(tensor.pytype):
            raise Break(Reason.UNSUPPORTED, f"text of an instance of {tensor.pytype.__qualname__}")
        if any(setter is SET_DEFAULT_DTYPE for setter, _, _ in m.state_log):     # text names other dtypes than that
            raise Break(Reason.SIDE_EFFECT, "text that shows a tensor, after torch.set_default_dtype()")
        if tensor.current() is not tensor and tensor.pytype is not torch.Tensor:     # the text names its class
            raise Break(Reason.UNSUPPORTED, f"text of {tensor} after a change of its .data")
        self.tensor, self.template = tensor.current(), template
        self.changed_by: fx.Node | None = None
        self.options = changed_print_options(m)
        self.is_kept = False        # the tensor itself is kept, not only its text
        self._version, self._requires_grad = version_of(tensor.fake), tensor.fake.requires_grad
        m.shown.append(self)
        m.undoable(m.shown.pop)

    @property
    def is_unchanged(self) -> bool:
        return self.changed_by is None and version_of(self.tensor.fake) == self._version

    def note_change(self, m: Machine, node: fx.Node, changed: set[int]) -> None:
        """Record that the node changes memory with these ids."""
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
            return self.written(e, e.value(shown))
        if self._requires_grad or shown.pytype is not torch.Tensor or is_symbolic(shown.fake):  # copies of these differ
            raise NotRebuildable(f"{shown}, which is shown and then changed in place,")
        return self.written(e, e.output_before(before, shown.ref))

    def written(self, e: Emitter, tensor: str) -> str:
        if self.options is None or self.template.endswith("()"):    # what reads values shows no text
            return self.template.format(tensor)
        if self.is_kept:
            raise NotRebuildable(f"{self.tensor} in a log record, beside options for printing that change,")
        make = e.const(Text) if self.template == "{}" else f"(lambda t: {self.template.format('t')})"
        return f"{e.const(with_print_options)}({e.const(self.options)}, {make}, {tensor})"


class Text:
    """Stands for a tensor in output: it has the tensor's text as it is now."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.text = repr(tensor)

    def __repr__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return format(self.text, spec)


def changed_print_options(m: Machine) -> dict[str, Any] | None:
    """torch's options for printing tensors as they are at this point; None if the trace has not changed them."""
    _, value = m.by_id.get(id(PRINT_OPTIONS), (None, None))
    return print_options(m, value) if value is not None and value.has_attrs and id(value.attrs) in m.mutated else None


def print_options(m: Machine, value: Value) -> dict[str, Any]:
    return {name: value.load_attr(m, name).constant() for name in vars(PRINT_OPTIONS)}
