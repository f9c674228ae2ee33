"""``pickle`` and ``torch.save`` of tensors, and of lists and dicts of tensors, into memory that the call makes.

Capture keeps a copy of what is saved. Loading it makes another copy, whose tensors the graph saves and loads again. The
bytes themselves are not known, so Python runs what reads them.
"""
from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import fake_rules
from sot.interpreter.builtins.common import EXACT, take
from sot.interpreter.builtins.containers import copies
from sot.interpreter.objects.tensor_facts import fact
from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.support.errors import Break, NotRebuildable, Reason
from sot.support.registry import handles
from sot.torch_compat.functions import is_in_transform
from sot.torch_compat.tensors import storage_id
from sot.values.base import NONE, Const, Value
from sot.values.numbers import is_dynamic
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.objects.hosted import HostedValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from sot.interpreter.machine import Machine
    from sot.values.protocols import Emitter

PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Pickle(Value):
    """What ``pickle.dumps`` returns: ``content`` is a copy of what was saved."""

    pytype = bytes

    def __init__(self, content: Value) -> None:
        self.content = content

    def rebuild(self, e: Emitter) -> str:
        raise NotRebuildable("the bytes of a pickle")

    def __str__(self) -> str:
        return "the bytes of a pickle"


class Copying:
    """A copy of a value whose tensors are copied by ``function``."""

    def __init__(self, m: Machine, function: Callable[..., Any], name: str) -> None:
        self.m, self.function, self.name = m, function, name
        self.memory: set[int] = set()
        self.made: dict[int, Value] = {}

    def of(self, value: Value) -> Value:
        if id(value) not in self.made:
            self.made[id(value)] = self.new(value)
        return self.made[id(value)]

    def new(self, value: Value) -> Value:
        m = self.m
        if isinstance(value, TensorValue):
            return self.tensor(value)
        if isinstance(value, Const) and type(value.real) in PLAIN and not is_dynamic(value) and value.pytype in EXACT:
            return value
        if value.pytype is tuple and isinstance(value, TupleValue):
            return TupleValue([*map(self.of, m.settle(value.items))])
        if value.pytype is list and isinstance(value, ListValue):
            self.made[id(value)] = made = ListValue([])
            made.items = [*map(self.of, m.settle(value.items))]
            return made
        if value.pytype is dict and isinstance(value, DictValue) and value.owner is None and not value.namespace:
            self.made[id(value)] = table = DictValue()
            for key in value.keys(m):
                table.set(m, key, self.of(value.get(m, key)), self.of(value.key_value(m, key)))
            return table
        raise Break(Reason.SIDE_EFFECT, f"{self.name} of {value}")

    def tensor(self, value: TensorValue) -> Value:
        """A copy of a tensor that has nothing but its values, and its memory for itself."""
        fake = value.fake
        if (value.pytype is not torch.Tensor or value.attrs or fake.requires_grad or storage_id(fake) in self.memory
                or fake.layout is not torch.strided or fake.device.type != "cpu" or fake.is_conj() or fake.is_neg()
                or is_in_transform(fake) or not fake.is_contiguous() or copies.has_more(self.m, value)
                or fact(self.m, value, "_is_view").real or overrides.asked(self.m, value)):
            raise Break(Reason.SIDE_EFFECT, f"{self.name} of {value}")
        self.memory.add(storage_id(fake))
        return torch_call(self.m, "call_function", self.function, [value], {})


def saved(m: Machine, value: Value, name: str) -> Value:
    if not m.assumptions.interprets or m.modes or m.builder.region is not None:
        raise Break(Reason.SIDE_EFFECT, f"{name}()")
    return Copying(m, torch.clone, name).of(value)


@handles(pickle.dumps)
def dumps(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, protocol = take("dumps", args, kwargs, "obj", "protocol", required=1)
    if protocol is not None and protocol.constant() not in (None, *range(2, pickle.HIGHEST_PROTOCOL + 1)):
        raise Break(Reason.SIDE_EFFECT, "pickle.dumps()")
    return Pickle(saved(m, value, "pickle.dumps"))


@handles(pickle.loads)
def loads(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs or not isinstance(args[0], Pickle):
        raise Break(Reason.SIDE_EFFECT, "pickle.loads()")
    return Copying(m, fake_rules.pickled, "pickle.loads").of(args[0].content)


# ---- streams in memory
def save_into(m: Machine, value: Value, stream: Value, name: str) -> None:
    if not isinstance(stream, HostedValue) or type(stream.hosted) is not io.BytesIO or stream.is_lent or (
            stream.hosted.closed or stream.hosted.getvalue() or stream.hosted.tell()):
        raise Break(Reason.SIDE_EFFECT, f"{name}()")
    content = saved(m, value, name)
    m.touch(stream)
    stream.is_lent, stream.saved, stream.at_start = True, content, False


def load_from(m: Machine, stream: Value, function: Callable[..., Any], name: str) -> Value:
    if not isinstance(stream, HostedValue) or stream.saved is None or not stream.at_start:
        raise Break(Reason.SIDE_EFFECT, f"{name}()")
    m.touch(stream)
    stream.at_start = False
    return Copying(m, function, name).of(stream.saved)


@handles(torch.save)
def save(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 2 or kwargs:
        raise Break(Reason.SIDE_EFFECT, "torch.save()")
    save_into(m, args[0], args[1], "torch.save")
    return NONE


@handles(torch.load)
def load(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or any(name != "weights_only" or value.constant() not in (None, True, False)
                             for name, value in kwargs.items()):
        raise Break(Reason.SIDE_EFFECT, "torch.load()")
    return load_from(m, args[0], fake_rules.saved_and_loaded, "torch.load")


@handles(pickle.dump)
def dump(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 2 or kwargs:
        raise Break(Reason.SIDE_EFFECT, "pickle.dump()")
    save_into(m, args[0], args[1], "pickle.dump")
    return NONE


@handles(pickle.load)
def unpickle(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        raise Break(Reason.SIDE_EFFECT, "pickle.load()")
    return load_from(m, args[0], fake_rules.pickled, "pickle.load")
