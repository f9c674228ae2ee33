"""Buffers and streams in memory that the program makes: capture makes the same objects and calls their methods.

A method gets known values. Its result is known, too, and emitted code makes the object in its last state. What is
made of values that only the graph knows is left to Python.
"""
from __future__ import annotations

import array
import functools
import io
from typing import TYPE_CHECKING, Any

from sot.interpreter.builtins.common import SLOT_TYPES, hosts, throw_like
from sot.interpreter.entering import make_generator
from sot.polyfills.iteration import by_index
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.base import ANSWERS, Const, Value
from sot.values.callables import known_function
from sot.values.objects.hosted import HostedValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.support.registry import Handler

CLASSES: tuple[Any, ...] = bytearray, array.array, io.StringIO, io.BytesIO
RESULTS = frozenset((*CLASSES, int, float, bool, str, bytes, list, tuple, type(None), type(NotImplemented)))
# They make objects, tell of the object as such, or take files.
OTHERS = frozenset(("__new__", "__init__", "__del__", "__repr__", "__getattribute__", "__setattr__", "__delattr__",
                    "__sizeof__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__copy__",
                    "__deepcopy__", "__buffer__", "__release_buffer__", "__class_getitem__", "getbuffer", "readinto",
                    "readinto1", "detach", "fileno", "buffer_info", "fromfile", "tofile"))
# Iteration of buffers is that of sequences.
SEQUENCES = bytearray, array.array
OF_OUTPUT = frozenset((io.StringIO.write, io.StringIO.writelines, io.StringIO.flush))    # in sot/interpreter/effects


def made(m: Machine, result: Any) -> Value:
    if type(result) not in RESULTS:
        raise Break(Reason.OPAQUE_VALUE, f"an object of class {type(result).__qualname__}")
    return HostedValue(result) if type(result) in CLASSES else wrap_new(m, result)


def computed(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value], name: str) -> Any:
    """The result of a function of C for known values. The program gets its exceptions."""
    values = hosts(m, [*args, *kwargs.values()])
    if values is None:
        raise Break(Reason.OPAQUE_CALL, f"{name} of a value that is not known during capture")
    try:
        return function(*values[:len(args)], **dict(zip(kwargs, values[len(args):], strict=True)))
    except Exception as e:
        return throw_like(m, e)


def called(m: Machine, method: Any, self_: HostedValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The result of a method of the object."""
    if method is io.BytesIO.seek and self_.saved is not None and not kwargs and len(args) == 1 and (
            args[0].constant() == 0):
        m.touch(self_)
        self_.at_start = True
        return Const(0)
    if self_.is_lent:
        raise Break(Reason.OPAQUE_VALUE, "a buffer whose bytes are not known")
    m.touch(self_)
    result = computed(m, functools.partial(method, self_.hosted), args, kwargs, method.__qualname__)
    return self_ if result is self_.hosted else made(m, result)


def after_constant(m: Machine, function: Any, a: Const, b: HostedValue) -> Value:
    """``a <operator> b``"""
    return made(m, computed(m, function, [a, b], {}, function.__name__))


@ANSWERS.add((HostedValue, "iterate"))
def iterate(m: Machine, value: HostedValue) -> Value:
    return value if value.is_stream else make_generator(m, known_function(m, by_index), [value], {})


def method_of(method: Any) -> Handler:
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args or not isinstance(args[0], HostedValue):
            raise Break(Reason.SIDE_EFFECT, f"{method.__qualname__}()")
        return called(m, method, args[0], args[1:], kwargs)
    return handler


def _made_by(kind: Any) -> None:
    @handles(kind)
    def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return HostedValue(computed(m, kind, args, kwargs, f"{kind.__name__}()"))


for _class in CLASSES:
    _made_by(_class)
    for _owner in _class.__mro__[:-1]:
        for _name, _method in vars(_owner).items():
            if isinstance(_method, SLOT_TYPES) and _name not in OTHERS and not (
                    _name == "__iter__" and _class in SEQUENCES) and _method not in OF_OUTPUT and (
                    _method not in HANDLERS):
                HANDLERS[_method] = method_of(_method)
