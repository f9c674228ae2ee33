"""Introspection other than by attributes: signatures, weak references, the program's own frames."""
from __future__ import annotations

import inspect
import sys
import threading
import typing
import weakref
from collections.abc import Callable
from types import CellType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from sot.graph.builder import has_changed
from sot.guards.class_guards import RefersGuard
from sot.guards.origin import Address, Arg, Identity, Item, Referent
from sot.interpreter.builtins.common import fold, hosts
from sot.interpreter.entering import keyword_default, settled
from sot.interpreter.loop import evaluate
from sot.interpreter.objects import attributes
from sot.interpreter.objects.computed_attributes import VALUES
from sot.interpreter.objects.lookup import class_value, lookup
from sot.interpreter.torch_ops import deferred_scalars
from sot.interpreter.torch_ops.data_sizes import asked_in_graph
from sot.interpreter.wrapping import is_plain_class
from sot.support.errors import Break, Reason, Skip
from sot.support.registry import handles
from sot.values.base import ABSENT, NONE, Const, LazyConst, NotConstant, Value
from sot.values.callables import BoundMethod, FunctionValue, known_function
from sot.values.constants import is_library
from sot.values.objects import DictValue, ObjectValue, ReadOnlyDict, TupleValue
from sot.values.objects.identities import IdentityNumber, has_identity_number
from sot.values.objects.references import WeakReference
from sot.values.tensor import TensorValue, has_own_code
from sot.values.wrapping import wrap, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine


@handles(inspect.signature)
def signature(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The function is already guarded, so its signature is as constant as its code."""
    target = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(target, BoundMethod) and isinstance(target.function, FunctionValue):
        found = signature_of_function(m, target.function)
        return Const(found.replace(parameters=list(found.parameters.values())[1:]))
    if isinstance(target, FunctionValue):
        return Const(signature_of_function(m, target))
    if isinstance(target, Const) and isinstance(target.real, type):
        for cls, name in ((type(target.real), "__call__"), *((target.real, part) for part in SHOWN_BY_CLASSES)):
            raw, owner = lookup(m, cls, name)
            if raw is not ABSENT:
                class_value(m, raw, owner, name)
        return Const(signature_of(m, target.real))
    raise Break(Reason.UNSUPPORTED, f"the signature of {target}")


SHOWN_BY_CLASSES = ("__signature__", "__new__", "__init__")     # what gives a class its signature


def signature_of_function(m: Machine, function: FunctionValue) -> inspect.Signature:
    """Of a function that the trace has made, it is that of a function with the same code and constants."""
    if function.real is not ABSENT:
        hold_signature(m, function)
        return signature_of(m, function.real)
    attributes = function.attrs.attrs.overlay if function.attrs is not None else {}
    wrapped = attributes.get("__wrapped__", ABSENT)
    if "__signature__" in attributes or (wrapped is not ABSENT and not isinstance(wrapped, FunctionValue)):
        raise Break(Reason.UNSUPPORTED, f"the signature of {function}")
    if isinstance(wrapped, FunctionValue):
        return signature_of_function(m, wrapped)
    annotations = function.load_attr(m, "__annotations__")
    if not isinstance(annotations, DictValue):
        raise Break(Reason.UNSUPPORTED, "the annotations of a function made during capture")
    try:
        like = FunctionType(function.code, {}, function.code.co_name, tuple(
            settled(m, value).constant() for value in function.defaults), tuple(CellType() for _ in function.closure))
        first = function.code.co_argcount
        by_name = {name: keyword_default(m, function, name) for name in function.code.co_varnames[
            first:first + function.code.co_kwonlyargcount]}
        like.__kwdefaults__ = {
            name: settled(m, value).constant() for name, value in by_name.items() if value is not None}
        like.__annotations__ = {name: annotations.get(m, name).constant() for name in annotations.keys(m)}
    except NotConstant:
        raise Break(Reason.UNSUPPORTED, f"the signature of {function}, whose defaults are made at run time") from None
    return signature_of(m, like)


def hold_signature(m: Machine, function: FunctionValue) -> None:
    """Guard the attributes that give a function the signature of another one."""
    for name in ("__signature__", "__wrapped__"):
        found = function.load_held(m, name)
        if isinstance(found, FunctionValue):
            hold_signature(m, found)


def signature_of(m: Machine, target: Any) -> inspect.Signature:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError) as e:        # many C classes have none
        return m.throw(type(e), *e.args)


# One object a value, for as long as the process lives.
KINDS_OF_SINGLETONS = (type(None), bool, type(...), type(NotImplemented))


@handles(id)
def identity(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``id`` of an object that existed before is a constant until another object is met in its place. Of a tensor
    that is an argument, and of an object that capture makes, only equality with other such numbers is known.
    """
    if len(args) != 1 or kwargs:
        raise Break(Reason.UNSUPPORTED, "id()")
    value = args[0]
    if isinstance(value, Const) and value.pytype in KINDS_OF_SINGLETONS:
        return Const(id(value.constant()))
    if not isinstance(value, Const) and value.origin is not None and not is_tensor_argument(value):
        real = value.ref.real if isinstance(value, TensorValue) else value.real
        origin = Identity(value.origin)
        if real is not ABSENT and real is not None and not m.varies.number(origin):
            return LazyConst(m, id(real), origin)
    return identity_number(m, id, value)


def is_tensor_argument(value: Value) -> bool:
    """Whether it is a tensor that each call passes anew."""
    place = value.origin.base if isinstance(value.origin, Item) else value.origin
    return isinstance(value, TensorValue) and isinstance(place, Arg)


@handles(torch.Tensor.data_ptr)
def data_ptr(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The address of a weight's memory is a constant until it differs. Programs find tied weights by it."""
    value = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(value, TensorValue) and value.origin is not None and value.ref.real is not None and not (
            is_tensor_argument(value) or m.modes or has_own_code(value.pytype) or has_changed(m.builder)):
        origin = Address(value.origin)
        if not m.varies.number(origin):
            return LazyConst(m, value.ref.real.data_ptr(), origin)
    if (answer := asked_in_graph.answer_of_method(m, "data_ptr", args, kwargs)) is not None:
        return answer
    raise Break(Reason.TENSOR_VALUE, "data_ptr")


def identity_number(m: Machine, function: Any, value: Value) -> Value:
    """The result of ``id`` or ``hash``, as a number that is read after the graph."""
    point = deferred_scalars.here(m)
    if not has_identity_number(value) or not deferred_scalars.can_read(m, point):
        raise Break(Reason.UNSUPPORTED, f"{function.__name__} of {value}")
    return IdentityNumber(m, function, value, frozenset({point}))


@handles(torch.Tensor.__hash__)
def hash_of_tensor(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or m.modes or has_own_code(args[0].pytype):
        raise Break(Reason.UNSUPPORTED, "hash of a tensor")
    return identity_number(m, id, args[0])


@handles(object.__hash__)
def hash_of_object(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs or lookup(m, args[0].pytype, "__hash__")[0] is not object.__hash__:
        raise Break(Reason.UNSUPPORTED, "object.__hash__")
    value = args[0]
    if isinstance(value, Const) and value.pytype in KINDS_OF_SINGLETONS:
        return Const(hash(value.constant()))
    number = identity(m, args, {})
    if isinstance(number, LazyConst):
        number.constant()       # a guard
        return Const(hash(value.real))
    return identity_number(m, hash, value)


@handles(weakref.ReferenceType.__new__)
def new_reference(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``ref(obj)`` for an object that lives longer than the call, as WeakKeyDictionary makes it for a key."""
    cls, target, *callback = args
    if isinstance(target, Const):
        raise Break(Reason.WATCHES, "a weak reference to a constant")
    if target.origin is None or target.real is ABSENT:      # the pieces around a break would keep the object
        raise Skip(Reason.WATCHES, "a weak reference to an object of the call")
    if cls.constant() is not weakref.ReferenceType or kwargs or any(v is not NONE for v in callback):
        raise Break(Reason.WATCHES, "a weak reference with a callback")
    try:
        m.guard(RefersGuard(target.origin, weakref.ref(target.real)))
    except TypeError as e:
        return m.throw(TypeError, *e.args)
    return WeakReference(target)


@handles(weakref.ReferenceType.__init__)
def init_reference(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], WeakReference):
        raise Break(Reason.WATCHES, "a weak reference with a callback")
    return NONE


@handles(weakref.ReferenceType.__call__)
def referent(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``ref()`` of a weak reference that existed before."""
    if isinstance(args[0], WeakReference):
        return args[0].target
    if args[0].origin is None:
        raise Break(Reason.OPAQUE_CALL, "a weak reference")
    return wrap(m, args[0].real(), Referent(args[0].origin))


def _proxy_method(name: str) -> None:
    method = getattr(MappingProxyType, name)

    @handles(method)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(args[0], ReadOnlyDict):
            return Const(getattr(args[0].of.pytype, name)).call(m, [args[0].of, *args[1:]], kwargs)
        try:
            result = method(*(a.constant() for a in args))
        except NotConstant:
            what = f"{name}() of the dict of a class, with a value that is not known during capture,"
            raise Break(Reason.OPAQUE_VALUE, what) from None
        except KeyError as e:
            return m.throw(KeyError, *e.args)
        if name in ("keys", "values", "items", "__iter__"):
            return attributes.load(m, TupleValue([signature_value(m, v) for v in result]), "__iter__").call(m, [], {})
        return signature_value(m, result)


def signature_value(m: Machine, real: Any) -> Value:
    if isinstance(real, tuple):
        return TupleValue([signature_value(m, v) for v in real])
    return Const(real) if isinstance(real, inspect.Parameter) else wrap_new(m, real)


for _name in ("keys", "values", "items", "get", "copy", "__getitem__", "__contains__", "__len__", "__iter__", "__or__",
              "__reversed__", "__eq__", "__ne__"):
    _proxy_method(_name)


# ---- annotations ------------------------------------------------------------------------------------------------
FORWARD_REFERENCES = 3      # annotationlib.Format.FORWARDREF


@handles(typing.get_type_hints)
def type_hints(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Of a function that the trace has made, text is evaluated as the program's code, so its names are guarded."""
    target, options = args[0] if len(args) == 1 else None, hosts(m, [*kwargs.values()])
    how = dict(zip(kwargs, options or (), strict=False))
    form = how.pop("format", VALUES)
    if not isinstance(target, FunctionValue) or target.real is not ABSENT or options is None or (
            form not in (VALUES, FORWARD_REFERENCES) or not {*how} <= {"include_extras"}):
        found = fold(m, typing.get_type_hints, args, kwargs)
        return m.enter(known_function(m, typing.get_type_hints), args, kwargs) if found is None else found
    annotations = target.load_attr(m, "__annotations__")
    if not isinstance(annotations, DictValue):
        raise Break(Reason.UNSUPPORTED, "the annotations of a function made during capture")
    hints = DictValue(dict)
    for name in annotations.keys(m):
        held = annotations.get(m, name)
        if isinstance(held, Const) and type(held.real) is str:
            held = of_text(m, target, held.real, raises=form == VALUES)
        hints.overlay[name] = hint(m, held, how)
    return hints


def of_text(m: Machine, target: FunctionValue, text: str, raises: bool) -> Value:
    try:
        code = compile(f"lambda: ({text})", m.user_position()[0], "eval").co_consts[0]
    except SyntaxError as e:
        raise Break(Reason.OPERATION_FAILED, str(e)) from None
    return evaluate(m, FunctionValue(code, target.namespace, name="annotation"), [], raises)


class NoNames(dict):
    """A namespace for annotations without text: to evaluate text takes names, and there are none, not even builtins."""

    def __contains__(self, name: object) -> bool:
        raise NameError(name)

    __getitem__ = __contains__


def hint(m: Machine, annotation: Value, how: dict[str, Any]) -> Value:
    """What typing makes of an annotation. Text within it is not evaluated."""
    found = hosts(m, [annotation])
    if found is None:
        return annotation

    def annotated() -> None: ...
    annotated.__annotations__ = {"hint": found[0]}
    nowhere = NoNames(__builtins__={})
    try:
        made = typing.get_type_hints(annotated, nowhere, nowhere, **how)["hint"]
    except Exception:
        raise Break(Reason.UNSUPPORTED, f"the annotation {annotation}") from None
    return annotation if made is found[0] else Const(type(None)) if made is type(None) else wrap_new(m, made)


# ---- protocols -------------------------------------------------------------------------------------------------
def fits_protocol(m: Machine, value: Value, cls: Any) -> bool:
    """``isinstance`` of a protocol, for an object that the trace has made."""
    shown = stand_in(m, value, cls)
    if shown is None:
        raise Break(Reason.UNSUPPORTED, f"isinstance of the protocol {cls.__qualname__}")
    try:
        return isinstance(shown, cls)
    except TypeError as e:      # it is not for such checks
        return m.throw(TypeError, *e.args)


def stand_in(m: Machine, value: Value, cls: Any) -> Any:
    """An object of the same class that has the same attributes, for ``typing`` to ask. None if that would run
    properties and hooks, which are code of the program.
    """
    kind: Any = value.pytype
    if kind is torch.Tensor and isinstance(value, TensorValue) and not value.attrs:
        return torch.empty(0)
    annotated = {name for c in cls.__mro__ for name in vars(c).get("__annotations__", ())}      # up to CPython 3.11
    found = [lookup(m, kind, name) for name in {*dir(cls), *getattr(cls, "__protocol_attrs__", annotated)}]
    if not isinstance(value, ObjectValue) or not is_plain_class(kind) or any(
            is_code(lookup(m, kind, name)[0]) for name in ("__getattr__", "__getattribute__")) or any(
            is_code(getattr(type(raw), "__get__", None)) or isinstance(raw, property)
            for raw, owner in found if not is_library(owner.__module__)):
        return None
    shown = object.__new__(kind)
    held = {name: value.attrs.get(m, name) for name in value.attrs.keys(m)} if value.has_attrs else {}
    for name, item in {**held, **value.slots}.items():
        if type(name) is str:
            object.__setattr__(shown, name, None if item.pytype is type(None) else name)
    return shown


def is_code(raw: Any) -> bool:
    return isinstance(raw, FunctionType)


# ---- frames -----------------------------------------------------------------------------------------------
def _watch(function: Callable[..., Any]) -> None:
    """A function that watches code needs to see all of it, in its own frame."""
    @handles(function)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        raise Skip(Reason.DEBUGGER, f"{function.__name__}()")


for _function in (breakpoint, sys.breakpointhook, sys.settrace, sys.setprofile, sys.call_tracing, threading.settrace,
                  threading.setprofile):
    _watch(_function)


# The attributes that step code shares with the function whose frame it stands for.
SAME_OF_FRAMES = frozenset({"f_lineno", "f_globals", "f_builtins"})
SAME_OF_CODE = frozenset({"co_name", "co_qualname", "co_filename", "co_firstlineno"})


@handles(sys._getframe, inspect.currentframe)
def get_frame(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Python calls it. A caller that keeps a frame expects it to continue with the function's variables. So Python
    runs all of a function whose frame is read. A break suffices for code that only reads names and lines, as the
    standard library does, except ``inspect``.
    """
    module = str(m.frames[-1].namespace.get("__name__")).partition(".")[0]
    if not asks_for_names(m.frames[-1]) and (module == "inspect" or module not in sys.stdlib_module_names):
        raise Skip(Reason.FRAME, f"a call of sys._getframe() in {module}")
    m.shows_frames = True
    raise Break(Reason.FRAME, "a call of sys._getframe()")


def asks_for_names(frame: Frame) -> bool:
    """Whether the current instruction reads only attributes that step code also has."""
    following = [i.arg for i in frame.instrs[frame.pc:frame.pc + 2] if i.op == "LOAD_ATTR"]
    return following[:1] == ["f_code"] and not SAME_OF_CODE.isdisjoint(following[1:]) or (
        not SAME_OF_FRAMES.isdisjoint(following[:1]))


@handles(sys._current_frames, sys._current_exceptions)
def frames_of_threads(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Skip(Reason.FRAME, "a call of sys._current_frames()")
