"""Output to streams, deferred in order. It does not break the graph.

Emitted code makes the call after the graph has run, in the order of the program. The arguments are kept in their
current
state: containers are copied; for tensors see ``ShownTensor``.
"""
from __future__ import annotations

import io
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from sot.interpreter.builtins.common import hosts, slot, take, throw_like
from sot.interpreter.builtins.containers import hosted
from sot.interpreter.effects.uncaptured_code import refuse_stream
from sot.interpreter.numpy_ops import numpy_functions
from sot.polyfills import output as polyfill
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import NONE, Const, NotConstant, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import is_dynamic
from sot.values.objects import DictValue, ListValue, TupleValue
from sot.values.objects.hosted import HostedValue
from sot.values.tensor import TensorValue
from sot.values.text import ShownTensor, TextValue, layout, varies
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.support.registry import Handler
    from sot.values.protocols import Emitter

Write = Callable[["Emitter"], str]
UNKNOWN = "{} of a value that is not known during capture"


def defer(m: Machine, function: Any, args: list[Value], kwargs: dict[str, Value], what: str) -> Value:
    """Make emitted code call ``function`` with these arguments in their current state."""
    positional = [deferred(m, a, what) for a in args]
    return replay(m, called(function, positional, {k: deferred(m, v, what) for k, v in kwargs.items()}))


def called(function: Any, positional: list[Write], named: dict[str, Write]) -> Write:
    def call(e: Emitter) -> str:
        parts = [write(e) for write in positional] + [f"{k}={write(e)}" for k, write in named.items()]
        return f"{e.const(function)}({', '.join(parts)})"
    return call


def deferred(m: Machine, value: Value, what: str) -> Write:
    """The writer of an argument of a deferred call."""
    value = numpy_functions.shown(m, value)
    if isinstance(value, TensorValue):
        return ShownTensor(m, value).expression
    if isinstance(value, DeferredScalar) and value.is_array:
        raise value.needed()
    if isinstance(value, (TextValue, DeferredScalar)) or holds_varying(m, value):
        return lambda e: e.value(value)
    if contains_varying(m, value):
        return display(m, value, what)
    if isinstance(value, TupleValue):
        m.settle(value.items)
    try:
        constant = value.constant()
    except (NotConstant, RecursionError):
        return display(m, value, what)
    return lambda e: e.literal(constant)


def contains_varying(m: Machine, value: Value) -> bool:
    """Whether it consists of lists, tuples, dicts and constants, of which some vary."""
    leaves: list[Value] = []
    try:
        layout(m, value, leaves)
    except (NotConstant, RecursionError):
        return False
    return any(map(varies, leaves))


def display(m: Machine, value: Value, what: str) -> Write:
    """A list, tuple or dict with tensors in it, written as a display."""
    if value.pytype in (list, tuple) and isinstance(value, (ListValue, TupleValue)) and (
            items := m.settle(value.items)) and value not in items:
        items_written = [deferred(m, v, what) for v in items]
        left, right = "[]" if value.pytype is list else "()"
        return lambda e: f"{left}{''.join(write(e) + ', ' for write in items_written)}{right}"
    if isinstance(value, DictValue) and value.pytype is dict and not value.namespace:
        keys = [value.key_value(m, k) for k in value.keys(m)]
        values = [value.get(m, k) for k in value.keys(m)]
        pairs = [(deferred(m, k, what), deferred(m, v, what)) for k, v in zip(keys, values, strict=True)]
        return lambda e: f"{{{''.join(f'{key(e)}: {item(e)}, ' for key, item in pairs)}}}"
    raise Break(Reason.SIDE_EFFECT, what)


def holds_varying(m: Machine, value: Value) -> bool:
    """Whether it is a varying number, text that shows one, or a tuple of these and of constants."""
    if isinstance(value, TupleValue) and value.pytype in (tuple, torch.Size):
        items = m.settle(value.items)
        return any(holds_varying(m, v) for v in items) and all(isinstance(v, Const) or holds_varying(m, v)
                                                               for v in items)
    return varies(value)


def replay(m: Machine, call: Write) -> Value:
    m.effect(lambda e: e.line(call(e)))
    return NONE


# ---- print -------------------------------------------------------------------------------------------------
@handles(print)
def print_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """An object with its own ``__str__`` is formatted now. For a file of the user, its ``write`` is called."""
    file = kwargs.get("file", NONE)
    if is_none(file) and (set_here := standard_output(m)) is not None:
        file, kwargs = set_here, {**kwargs, "file": set_here}
    if isinstance(file, HostedValue):
        return print_to_hosted(m, file, args, {k: v for k, v in kwargs.items() if k != "file"})
    if not is_none(file) and not is_standard(file):
        if not isinstance(slot(m, file, "write"), types.FunctionType):
            raise Break(Reason.SIDE_EFFECT, "print to a file")
        return m.enter(polyfill.print_to, args, kwargs)
    if is_none(file) and not hasattr(type(sys.stdout), "write"):
        raise Break(Reason.SIDE_EFFECT, "print to an unusual stream")
    if any(says_itself(m, a) for a in args):
        return m.enter(polyfill.print_parts, args, kwargs)
    refuse_stream(m, "stdout" if is_none(file) or file.real is sys.stdout else "stderr")
    what = UNKNOWN.format("print")
    options = {k: deferred(m, v, what) for k, v in kwargs.items() if k != "file"}
    if not is_none(file):
        options["file"] = lambda e: e.value(file)
    return replay(m, called(print, [deferred(m, a, what) for a in args], options))


def print_to_hosted(m: Machine, file: HostedValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``print`` to a stream that the program has made: its text has to be known."""
    text, values = io.StringIO(), hosts(m, [*args, *kwargs.values()])
    if values is None or any(says_itself(m, a) for a in args):
        raise Break(Reason.SIDE_EFFECT, "print to a file")
    try:
        print(*values[:len(args)], **dict(zip(kwargs, values[len(args):], strict=True)), file=text)
    except Exception as e:
        return throw_like(m, e)
    hosted.called(m, type(file.hosted).write, file, [Const(text.getvalue())], {})
    return NONE


def standard_output(m: Machine) -> Value | None:
    """What the program has set as ``sys.stdout``, if that is not the one from before the call."""
    namespace = m.namespaces.get(id(vars(sys)))
    found = None if namespace is None else namespace.overlay.get("stdout")
    return None if found is None or is_standard(found) else found


def set_output(m: Machine, value: Value) -> None:
    """``sys.stdout = value``. Emitted code does the same between the output before and after. Output to a stream that
    the call has made is in it already then.
    """
    overlay = m.namespace(vars(sys)).overlay
    before = overlay.get("stdout")
    m.undoable(lambda: overlay.pop("stdout") if before is None else overlay.update(stdout=before))
    overlay["stdout"] = value
    m.effect(lambda e: e.line(f"{e.const(sys)}.stdout = {e.value(value)}"))


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.real is None


def is_standard(value: Value) -> bool:
    """Whether it is the standard output or standard error stream."""
    return value.real is sys.stdout or value.real is sys.stderr


def says_itself(m: Machine, value: Value) -> bool:
    """Whether Python code of the value, or of something in it, formats it."""
    if isinstance(value, (Const, TensorValue, TextValue)) or is_dynamic(value) or issubclass(value.pytype, str):
        return False
    if isinstance(value, (ListValue, TupleValue)) and value.pytype in (list, tuple, torch.Size):
        return any(says_itself(m, v) for v in m.settle(value.items) if v is not value)
    if isinstance(value, DictValue) and value.pytype is dict:
        return any(says_itself(m, value.key_value(m, k)) or says_itself(m, value.get(m, k)) for k in value.keys(m))
    return any(isinstance(slot(m, value, name), types.FunctionType) for name in ("__str__", "__repr__")) or (
        issubclass(value.pytype, (BaseException, list, tuple, dict)))


# ---- streams -----------------------------------------------------------------------------------------------
def on_standard(m: Machine, args: list[Value], name: str) -> Value:
    if not args or not is_standard(args[0]):
        raise Break(Reason.SIDE_EFFECT, f"{name}() of a file")
    return args[0]


def of_stream(in_memory: Any, of_file: Any) -> Callable[[Handler], Handler]:
    """Registers the handler of a method for standard streams. Streams that the program has made have it, too."""
    def register(handler: Handler) -> Handler:
        @handles(in_memory, of_file)
        def either(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
            if args and isinstance(args[0], HostedValue):
                return hosted.called(m, in_memory, args[0], args[1:], kwargs)
            return handler(m, args, kwargs)
        return either
    return register


def is_dropped(m: Machine) -> bool:
    """Whether the program drops the result of the current call."""
    frame = m.frames[-1]
    return frame.instrs[frame.pc].op == "POP_TOP"


@of_stream(io.StringIO.write, io.TextIOWrapper.write)
def write(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    stream = on_standard(m, args, "write")
    text, = take("write", args[1:], kwargs, "s", required=1)
    if text.pytype is not str:
        raise Break(Reason.BAD_CALL, "write()")
    length = None if is_dropped(m) else text
    if length is not None and not isinstance(text, Const):
        raise Break(Reason.SIDE_EFFECT, "the length of text that is made after the graph")
    shown = deferred(m, text, UNKNOWN.format("write()"))
    replay(m, lambda e: f"{e.value(stream)}.write({shown(e)})")
    return NONE if length is None else wrap_new(m, len(length.constant()))


@of_stream(io.StringIO.writelines, io.TextIOWrapper.writelines)
def writelines(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    on_standard(m, args, "writelines")
    return m.enter(polyfill.writelines, args, kwargs)


@of_stream(io.StringIO.flush, io.TextIOWrapper.flush)
def flush(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    stream = on_standard(m, args, "flush")
    return replay(m, lambda e: f"{e.value(stream)}.flush()")
