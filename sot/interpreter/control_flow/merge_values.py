"""Merges the two states after a branch on a tensor into one.

Both sides are executed up to the place where they meet, and each leaves an ``End``. ``Merge`` walks the two ends side
by side. A value that is the same on both sides stays. If both sides have a tensor of the same shape, dtype and device,
or a truth, the pair becomes an output of the subgraphs, and a new value stands for it. Tuples, lists, dicts and
objects that the sides have made are merged part by part. Everything else differs. A variable that differs becomes
``Undecided``, which is refused when it is read. Any other difference refuses the branch at once.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sot.graph import TensorRef
from sot.guards.assumptions import Point, RestartCapture
from sot.interpreter.control_flow import random_branches
from sot.interpreter.frame import Frame
from sot.support.errors import article
from sot.values.base import ABSENT, Const, Lazy, Value
from sot.values.callables import CellValue
from sot.values.objects import DictValue, ListValue, ObjectValue, TupleValue
from sot.values.objects.keys import PythonKey
from sot.values.tensor import TensorBool, TensorNumber, TensorValue, has_own_code
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64}
LIMIT = 1 << 62


class Differ(Exception):
    """Two values cannot be merged. The text says how they differ."""


class Undecided(Value):
    """A variable whose value depends on a tensor and could not be merged. It must not be read."""

    def __init__(self, point: Point, why: str) -> None:
        self.point, self.why = point, why

    def refuse(self) -> Any:
        raise RestartCapture(self.why, refused={self.point: self.why})

    def rebuild(self, e: Emitter) -> str:
        return self.refuse()


Output = TensorRef | int | float | None     # None: the value does not matter


class Pair(NamedTuple):
    """An output of both subgraphs: what each side returns, and the reference to the merged result."""

    first: Output
    second: Output
    ref: TensorRef


class Contents(NamedTuple):
    """How to read and write the contents of a container."""

    read: Callable[[Any], Any]
    write: Callable[[Machine, Any, Any], None]


def write_list(m: Machine, value: ListValue, items: list) -> None:
    m.touch(value)
    value.items = items


def write_dict(m: Machine, value: DictValue, overlay: dict) -> None:
    m.touch(value)
    value.overlay = overlay


CONTENTS: dict[type, Contents] = {
    CellValue: Contents(lambda cell: cell.contents, lambda m, cell, value: cell.set(m, value)),
    ListValue: Contents(lambda value: list(value.items), write_list),
    DictValue: Contents(lambda value: dict(value.overlay), write_dict),
}


class Merge:
    """Merges the values of two ends. ``pairs`` is what the subgraphs must return for that."""

    def __init__(self, m: Machine, like: TensorBool, is_plain: bool = False) -> None:
        self.m, self.is_plain = m, is_plain     # is_plain: whether results are those of either side, not copies
        self.like = like                        # a truth on the device of the branch
        self.pairs: list[Pair] = []
        self.made: dict[tuple[int, int], Value] = {}
        self.partners: dict[int, int] = {}      # mutable values are merged one to one
        self.kept: list[Any] = []

    def value(self, a: Any, b: Any, what: str) -> Any:
        """The merged value of two values. Raises Differ."""
        if a is b:
            return a
        a, b = settled(self.m, a), settled(self.m, b)
        if a is b or same_constant(a, b):
            return a
        if a is ABSENT or b is ABSENT:
            raise Differ(f"{what} is set on one side only")
        key = (id(a), id(b))
        if key not in self.made:
            self.kept += [a, b]
            self.made[key] = self._merged(a, b, what)
        return self.made[key]

    def _merged(self, a: Value, b: Value, what: str) -> Value:
        if isinstance(a, TensorValue) and isinstance(b, TensorValue):
            return self._tensor(a, b, what)
        if is_number(a) and is_number(b) and a.pytype is b.pytype and (a.pytype is bool or not self.is_plain):
            return self._number(a, b)
        if type(a) is not type(b) or a.pytype is not b.pytype:
            raise Differ(f"{what} is {kind_of(a)} on one side and {kind_of(b)} on the other")
        if isinstance(a, TupleValue):
            return TupleValue(self._items(a, b, what), a.pytype)
        if a.real is ABSENT and b.real is ABSENT and isinstance(a, ObjectValue) and isinstance(b, ObjectValue):
            self._pair_up(a, b, what)
            if isinstance(a, ListValue) and isinstance(b, ListValue):
                return self._list(a, b, what)
            return self._object(a, b, what)
        raise Differ(f"{what} is {a} on one side and {b} on the other")

    def _tensor(self, a: TensorValue, b: TensorValue, what: str) -> Value:
        shape = {"shape": tuple, "dtype": str, "device": str, "layout": str}
        for name, show in shape.items():
            x, y = getattr(a.fake, name), getattr(b.fake, name)
            if x != y:
                raise Differ(f"{what} is a tensor of {name} {show(x)} on one side and of {name} {show(y)} on the other")
        if strides(a.fake) != strides(b.fake):
            raise Differ(f"{what} is a tensor with strides {strides(a.fake)} on one side and {strides(b.fake)} on the "
                         f"other (call .contiguous() on both)")
        if has_own_code(a.pytype) or has_own_code(b.pytype):
            raise Differ(f"{what} is an instance of a subclass of Tensor")
        if self.is_plain and (why := random_branches.why_inexact(a, b)):
            raise Differ(f"{what} {why}")
        grad = torch.is_grad_enabled() and (a.fake.requires_grad or b.fake.requires_grad)
        made = TensorValue(self.pair(a.ref, b.ref, a.fake, grad))
        if self.is_plain:
            made.may_be = frozenset((a.ref, b.ref)) | a.may_be | b.may_be
        return made

    def _number(self, a: Value, b: Value) -> Value:
        first, second = (v.ref if isinstance(v, TensorNumber) else v.real for v in (a, b))
        with self.m.builder.fake_mode:
            fake = torch.empty((), dtype=DTYPES[a.pytype], device=self.like.ref.fake.device)
        ref = self.pair(first, second, fake, False)
        return TensorBool(ref) if a.pytype is bool else TensorNumber(ref, a.pytype)

    def alone(self, value: Any, which: int, what: str) -> Value:
        """A value that matters on one side only. Raises Differ."""
        value = settled(self.m, value)
        if isinstance(value, Const):
            return value
        if not isinstance(value, (TensorValue, TensorNumber)) or (
                isinstance(value, TensorValue) and has_own_code(value.pytype)):
            raise Differ(f"{what} is set on one side only")
        if self.is_plain:
            raise Differ(f"{what} is set on one side only")
        grad = torch.is_grad_enabled() and value.ref.fake.requires_grad
        first, second = (value.ref, None) if which == 0 else (None, value.ref)
        ref = self.pair(first, second, value.ref.fake, grad)
        if isinstance(value, TensorValue):
            return TensorValue(ref)
        return TensorBool(ref) if isinstance(value, TensorBool) else TensorNumber(ref, value.pytype)

    def pair(self, first: Output, second: Output, like: torch.Tensor, grad: bool) -> TensorRef:
        ref = TensorRef(fake_result(self.m, like, grad))
        self.pairs.append(Pair(first, second, ref))
        return ref

    def _items(self, a: Any, b: Any, what: str) -> list[Value]:
        x, y = self.m.settle(a.items), self.m.settle(b.items)
        if len(x) != len(y):
            raise Differ(f"{what} has {len(x)} elements on one side and {len(y)} on the other")
        return [self.value(p, q, f"{what}[{i}]") for i, (p, q) in enumerate(zip(x, y, strict=True))]

    def _pair_up(self, a: Value, b: Value, what: str) -> None:
        if self.partners.setdefault(id(a), id(b)) != id(b) or self.partners.setdefault(~id(b), id(a)) != id(a):
            raise Differ(f"{what} is one object under two names on one side, and two objects on the other")

    def _list(self, a: ListValue, b: ListValue, what: str) -> Value:
        if a.maxlen != b.maxlen or a.has_attrs or b.has_attrs:
            raise Differ(f"{what} is {a} on one side and {b} on the other")
        made = ListValue([], a.pytype)
        made.maxlen = a.maxlen
        self.made[id(a), id(b)] = made
        made._items += self._items(a, b, what)
        return made

    def _object(self, a: ObjectValue, b: ObjectValue, what: str) -> Value:
        if type(a) not in (ObjectValue, DictValue) or len(a.new_args) != len(b.new_args):
            raise Differ(f"{what} is {a} on one side and {b} on the other")
        made = self.made[id(a), id(b)] = type(a)(a.pytype)
        assert isinstance(made, ObjectValue)
        made.new_args = [self.value(p, q, what) for p, q in zip(a.new_args, b.new_args, strict=True)]
        made.slots = self.mapping(a.slots, b.slots, what)
        if a._attrs is not None or b._attrs is not None:
            made.attrs.overlay = self.mapping(a.attrs.overlay, b.attrs.overlay, what)
        if isinstance(a, DictValue) and isinstance(b, DictValue) and isinstance(made, DictValue):
            if a.default_factory is not b.default_factory:
                raise Differ(f"{what} has two default factories")
            made.default_factory, made.key_values = a.default_factory, dict(a.key_values)
            made.overlay = self.mapping(a.overlay, b.overlay, what)
        return made

    def mapping(self, a: dict, b: dict, what: str) -> dict:
        if list(a) != list(b):
            raise Differ(f"{what} has the keys {list(map(str, a))} on one side and {list(map(str, b))} on the other")
        return {k: self.value(a[k], b[k], f"{what}[{k!r}]") for k in a}

    def contents(self, kind: type, a: Any, b: Any, what: str) -> Any:
        """The merged contents of a container, in the form of ``CONTENTS``."""
        if kind is DictValue:
            return self.mapping(a, b, what)
        if kind is ListValue and len(a) == len(b):
            return [self.value(p, q, f"{what}[{i}]") for i, (p, q) in enumerate(zip(a, b, strict=True))]
        if kind is ListValue:
            raise Differ(f"{what} has {len(a)} elements on one side and {len(b)} on the other")
        return self.value(a, b, what)


# ---- properties of values ---------------------------------------------------------------------------------------
def settled(m: Machine, value: Any) -> Any:
    return wrap(m, value.real, value.origin) if isinstance(value, Lazy) else value


def same_constant(a: Any, b: Any) -> bool:
    """Whether both are the same immutable object, or equal ones that Python may share."""
    if not isinstance(a, Const) or not isinstance(b, Const) or a.pytype is not b.pytype:
        return False
    x, y = a.real, b.real
    return x is y or (isinstance(x, (int, str, bytes, float, complex)) and x == y and repr(x) == repr(y))


def is_number(value: Value) -> bool:
    """Whether it is a number that a 0-d tensor can hold: bool, int of 64 bits, float."""
    if isinstance(value, TensorNumber):
        return True
    return isinstance(value, Const) and value.pytype in DTYPES and (value.pytype is not int or abs(value.real) < LIMIT)


def kind_of(value: Value) -> str:
    if isinstance(value, TensorValue):
        return "a tensor"
    return str(value) if isinstance(value, Const) else article(value.pytype.__name__)


def is_dense(fake: torch.Tensor) -> bool:
    """Whether the elements fill the memory between the first and the last, without overlap."""
    return fake.layout == torch.strided and torch.empty_like(fake).stride() == fake.stride()


def strides(fake: torch.Tensor) -> tuple[int, ...]:
    """The strides of a subgraph's result: those of the tensor, or those of a copy if elements overlap or have gaps."""
    if fake.layout != torch.strided:
        return ()
    return fake.stride() if is_dense(fake) else torch.empty_like(fake).stride()


def fake_result(m: Machine, like: torch.Tensor, grad: bool) -> Any:
    with m.builder.fake_mode, torch.no_grad():
        made = torch.empty_like(like, requires_grad=False)
    if not grad:
        return made
    with m.builder.fake_mode, torch.enable_grad():
        return made.requires_grad_().clone()


def reachable(roots: Iterable[Any]) -> set[int]:
    """The ids of all values that can be reached from these values, frames and containers. Containers of the program,
    for example the globals of a function, may contain themselves.
    """
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        item = todo.pop()
        if isinstance(item, (Value, Frame, dict, list, tuple)):
            if id(item) in seen:
                continue
            seen.add(id(item))
        if isinstance(item, (Value, Frame)):
            if isinstance(item, Frame):
                todo += [item.locals, item.cells, item.stack, item.function, item.default]
            else:
                todo.append(vars(item))
        elif isinstance(item, dict):
            todo += dict.values(item)
            todo += [k.value if isinstance(k, PythonKey) else k for k in dict.keys(item)
                     if isinstance(k, (Value, PythonKey))]
        elif isinstance(item, list):        # it may be of a class of the program, with iterators of its own
            todo += list.__iter__(item)
        elif isinstance(item, tuple):
            todo += tuple.__iter__(item)
    return seen
