"""Calls of constants (classes, builtins, torch operations) and of Python functions.

A callable is looked up, in this order, in the handlers, the polyfills, the torch operations and the pure functions. A
Python function is inlined. A class goes through ``__new__`` and ``__init__``. Python makes all other calls, between
two graphs.
"""
from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from sot import _hook
from sot.bytecode.resume_origin import origin as rest_of
from sot.guards.assumptions import RestartCapture
from sot.guards.guards import short
from sot.guards.origin import Attr
from sot.interpreter.builtins.classes import SEEN_THROUGH
from sot.interpreter.builtins.common import fold
from sot.interpreter.builtins.numbers.varying import FUNCTIONS as OF_NUMBERS
from sot.interpreter.builtins.numbers.varying import may_vary, of_numbers
from sot.interpreter.builtins.pure import PURE
from sot.interpreter.effects import progress_bars
from sot.interpreter.entering import make_coroutine, make_generator
from sot.interpreter.frame import PUSH_WHOLE
from sot.interpreter.objects import attributes, optimizers
from sot.interpreter.objects.lookup import class_value, lookup
from sot.interpreter.objects.marked_calls import marked_call
from sot.interpreter.objects.names_used import guard_names
from sot.interpreter.torch_ops import deferred_scalars, overrides
from sot.interpreter.torch_ops.constructors import specimens
from sot.interpreter.torch_ops.data_sizes.float_arguments import is_code_for_numbers
from sot.interpreter.torch_ops.torch_calls import is_operation, operation
from sot.interpreter.torch_ops.wrappers import collectives, instances, library_functions, sharded_modules
from sot.interpreter.watchers import refuse_watcher
from sot.polyfills import builtin as polyfill
from sot.support import user_annotations
from sot.support.errors import Break, Reason, Skip
from sot.support.registry import BY_CODE, HANDLERS, POLYFILLS, is_among
from sot.torch_compat.callables import compiled_original, disabled_step, is_left_to_python
from sot.torch_compat.dynamo.marks import disabled_code, disables_all, is_disallowed
from sot.torch_compat.subclasses.wrappers import is_wrapper_class
from sot.values.base import ABSENT, ANSWERS, ENTERED, Const, NotConstant, Value
from sot.values.callables import FunctionValue, known_function
from sot.values.constants import is_value_of_torch
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


# Types whose ``__call__`` calls the wrapped function.
CALLABLES = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType,
             types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)


# Modules with functions that stop the program for inspection.
DEBUGGERS = frozenset({"pdb", "bdb", "ipdb", "pudb", "pydevd", "debugpy", "code", "IPython"})


NO_INSTANCES = 1 << 7       # Py_TPFLAGS_DISALLOW_INSTANTIATION


# ---- callables without Python code
@ANSWERS.add((Const, "call"))
def call_known(m: Machine, const: Const, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a constant: a class, a builtin, an operation."""
    real = const.real
    if deferred_scalars.among(*args, *kwargs.values()) and not is_operation(real):
        found = deferred_scalars.called(m, real, args, kwargs)
        if found is not None:
            return found
    if specimens.among(*args, *kwargs.values()) and is_operation(real):
        return specimens.called(m, real, args, kwargs)
    if is_disallowed(real):
        raise Break(Reason.NOT_COMPILED, describe(real))
    found = special_case(m, real, args, kwargs)
    if found is not None:
        return found
    if is_operation(real):
        return operation(m, real, args, kwargs)
    if isinstance(real, types.MethodWrapperType) and real.__name__ == "__get__" and args:
        return attributes.bind_descriptor(m, real.__self__, args[0])
    if is_among(PURE, real):
        found = fold(m, real, args, kwargs)
        if found is not None:
            return found
    if isinstance(real, type):
        return call_class(m, const, args, kwargs)
    return call_instance(m, const, args, kwargs)


def call_instance(m: Machine, const: Const, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a constant that is an instance: an itemgetter, a generic alias, by its type's ``__call__``."""
    if const.pytype is types.GenericAlias and getattr(const.real.__origin__, "__dictoffset__", 1) == 0:
        return Const(const.real.__origin__).call(m, args, kwargs)       # instances of others get an attribute of it
    raw, owner = lookup(None, const.pytype, "__call__")
    handler = HANDLERS.find(raw)
    if handler is not None and owner not in CALLABLES:
        return handler(m, [const, *args], kwargs)
    if isinstance(raw, types.FunctionType) and owner is not object:
        return class_value(m, raw, owner, "__call__").call(m, [const, *args], kwargs)
    if raw is ABSENT:
        m.throw(TypeError, f"{const.pytype.__name__!r} object is not callable")
    raise Break(Reason.OPAQUE_CALL, describe(const.real))


def special_case(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if args and not kwargs and is_among(OF_NUMBERS, real) and any(map(may_vary, args)):
        found = of_numbers(m, real, args)
        if found is not None:
            return found
    handler = HANDLERS.find(real)
    if handler is not None:
        if isinstance(real, OF_C) and not takes(real, len(args), frozenset(kwargs)):
            raise Break(Reason.BAD_CALL, f"{describe(real)}()")
        try:
            return handler(m, args, kwargs)
        except RestartCapture:      # also where the reason is a value that is no constant yet
            raise
        except NotConstant as e:
            raise Break(Reason.UNSUPPORTED, f"{describe(real)} of {e}") from None
    function = POLYFILLS.find(real)
    if function is not None:
        return call_function(m, known_function(m, function), args, kwargs)
    return None


OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


@functools.cache
def takes(function: Any, count: int, keywords: frozenset[str]) -> bool:
    """Whether a function of C takes so many positional arguments and these keywords. If not, Python raises. Some
    functions do not tell.
    """
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return True
    try:
        signature.bind(*[None] * count, **dict.fromkeys(keywords))
    except TypeError:
        return False
    return True


def describe(real: Any) -> str:
    name = getattr(real, "__qualname__", None) or getattr(real, "__name__", None)
    module = getattr(real, "__module__", None)
    owner = getattr(real, "__objclass__", None)
    if name is None:
        return short(real)
    if owner is not None or not module or module == "builtins":
        return name
    return f"{module}.{name.removeprefix('_VariableFunctionsClass.')}"


def call_class(m: Machine, const: Const, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls = const.real
    if is_wrapper_class(cls):
        return instances.construct(m, cls, args, kwargs)
    if cls.__flags__ & NO_INSTANCES:
        raise Break(Reason.OPERATION_FAILED, f"{cls.__qualname__} cannot be made by programs")
    if is_value_of_torch(cls) and (made := fold(m, cls, args, kwargs)) is not None:
        return made
    maker, owner = lookup(None, type(cls), "__call__")
    if isinstance(maker, types.FunctionType):
        return class_value(m, maker, owner, "__call__").call(m, [const, *args], kwargs)
    if isinstance(maker, type):     # it binds nothing: a TypedDict is called as dict
        return class_value(m, maker, owner, "__call__").call(m, args, kwargs)
    if not isinstance(maker, types.WrapperDescriptorType):
        raise Break(Reason.OPAQUE_CALL, cls.__qualname__)
    return m.enter(polyfill.type_call, [const, *args], kwargs)


# ---- Python functions
def guarded_repr(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """``__repr__`` in a wrapper that stops the recursion of objects that contain themselves."""
    names = function.code.co_freevars
    inner = function.closure[names.index("user_function")].get(m)
    for frame in m.frames:
        if frame.on_return == PUSH_WHOLE and frame.native is getattr(inner, "code", None) and (
                frame.locals.get(frame.native.co_varnames[0]) is args[0]):
            return function.closure[names.index("fillvalue")].get(m) if "fillvalue" in names else Const("...")
    result = inner.call(m, args, kwargs)
    if result is ENTERED:
        m.frames[-1].on_return = PUSH_WHOLE
    return result


@ANSWERS.add((FunctionValue, "call"))
def call_function(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a Python function: one with a special rule, a generator function, or one to inline."""
    if function.real is not ABSENT:
        found = special_case(m, function.real, args, kwargs)
        if found is None:
            found = marked_call(m, function, args, kwargs)
        if found is not None:
            return found
        if is_operation(function.real) and not m.modes and not is_code_for_numbers(function.real, args, kwargs) and (
                not overrides.is_seen_through(m, function.code, args)):
            return operation(m, function.real, args, kwargs)
        if is_among(PURE, function.real) and (found := fold(m, function.real, args, kwargs)) is not None:
            guard_names(m, function.real)
            return found
        if function.code in SEEN_THROUGH:
            return guarded_repr(m, function, args, kwargs)
        if (original := compiled_original(function.real)) is not None:
            origin = function.origin and Attr(function.origin, "_torchdynamo_orig_callable")
            return wrap(m, original, origin).call(m, args, kwargs)
        if is_left_to_python(function.real):    # torch wraps some functions once torch.compile is imported
            found = special_case(m, getattr(function.real, "__wrapped__", None), args, kwargs)
            if found is not None:
                return found
            if (step := disabled_step(function.real)) is not None:
                optimizers.follow(m, function)
                inner = known_function(m, step)
                inner.is_wrapped = True
                return inner.call(m, args, kwargs)
        if rest_of(function.real.__code__) is None:      # not the rest of one, after a break in it
            found = library_functions.called(m, function.real, args, kwargs) or collectives.called(
                m, function.real, args, kwargs) or progress_bars.called(
                m, function.real, args, kwargs) or sharded_modules.called(m, function, args)
            if found is not None:
                return found
        refuse_marked(m, function, args)
    if disables_all(function.code):     # the program has just made it
        name = function.fields.get("__qualname__")
        raise Break(Reason.NOT_COMPILED, str(name.constant()) if isinstance(name, Const) else function.name)
    if function.code in BY_CODE:
        return BY_CODE[function.code](m, function, args, kwargs)
    refuse_watcher(function)
    flags = function.code.co_flags
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return make_coroutine(m, function, args, kwargs)
    if flags & inspect.CO_GENERATOR:
        return make_generator(m, function, args, kwargs)
    return m.enter(function, args, kwargs)


def refuse_marked(m: Machine, function: FunctionValue, args: list[Value]) -> None:
    """Break before a function that is marked to be run by Python."""
    module = str(function.namespace.get("__name__"))
    if id(function.code) in user_annotations.ROOTS:
        raise Break(Reason.OBSERVED)
    if user_annotations.is_ignored(module):
        raise Break(Reason.IGNORED, function.name)
    forward = function.code.co_name == "forward" and bool(args) and issubclass(args[0].pytype, torch.nn.Module)
    if str(function.real.__module__).startswith("torch.optim.") and not forward:
        optimizers.follow(m, function)
    if is_left_to_python(function.real):
        if (code := disabled_code(function.real)) is not None:
            _hook.skip(code)
        raise Break(Reason.NOT_COMPILED, function.name)
    if module.partition(".")[0] in DEBUGGERS:
        raise Skip(Reason.DEBUGGER, f"{module}.{function.name}")
