"""New frames of Python functions and of generators: arguments are bound to parameters."""
from __future__ import annotations

import contextlib
import inspect
import types
from typing import TYPE_CHECKING, Any

from sot.bytecode import decode
from sot.interpreter import unroll_limit
from sot.interpreter.frame import PUSH, Frame
from sot.polyfills.rebuilt import REBUILT
from sot.support.errors import Break, Reason
from sot.support.own_code import is_own
from sot.values.base import ABSENT, ENTERED, Lazy, Value
from sot.values.callables import FunctionValue
from sot.values.iterators import CoroutineValue, GeneratorValue, PolyfilledGenerator
from sot.values.objects import DictValue, TupleValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


def enter(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value],
          on_return: str = PUSH) -> Value:
    """Push a frame of a Python function."""
    unroll_limit.refuse_left(m, m.frames[-1])
    unroll_limit.refuse_varying(m, m.frames[-1], function.name)
    unroll_limit.note_call(m)
    m.frames.append(new_frame(m, function, args, kwargs, on_return))
    return ENTERED


def new_frame(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value],
              on_return: str) -> Frame:
    frame = Frame(decode(function.code), function.namespace, function)
    frame.on_return = on_return
    frame.locals.update(bind_arguments(m, function, args, kwargs))
    frame.cells.update(zip(function.code.co_freevars, function.closure, strict=True))
    return frame


def bind_arguments(m: Machine, function: FunctionValue, args: list[Value],
                   kwargs: dict[str, Value]) -> dict[str, Value]:
    """The parameters of a call, by name. A call that does not fit raises Python's TypeError."""
    code, names = function.code, function.code.co_varnames
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    bound: dict[str, Any] = dict(zip(names[:positional], args, strict=False))
    rest = args[positional:]
    more: dict[str, Value] = {}
    by_name = names[code.co_posonlyargcount:positional + keyword_only]
    for name, value in kwargs.items():
        if name not in by_name:
            more[name] = value
        elif name in bound:
            refuse_call(m, function, args, kwargs)
        else:
            bound[name] = value
    for i, default in enumerate(function.defaults, positional - len(function.defaults)):
        if names[i] not in bound:
            bound[names[i]] = settled(m, default)
    for name in names[positional:positional + keyword_only]:
        if name not in bound and (default := keyword_default(m, function, name)) is not None:
            bound[name] = settled(m, default)
    if any(name not in bound for name in names[:positional + keyword_only]):
        refuse_call(m, function, args, kwargs)
    at = positional + keyword_only
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[at]] = TupleValue(rest)
        at += 1
    elif rest:
        refuse_call(m, function, args, kwargs)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[names[at]] = keywords = DictValue(dict)
        keywords.overlay.update(more)
    elif more:
        refuse_call(m, function, args, kwargs)
    return bound


NOTHING = (lambda: None).__code__


def refuse_call(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Raise the TypeError of a call that does not fit. CPython makes it, for a function with the same parameters."""
    code = function.code
    if is_own(code.co_filename):        # it stands for C code, whose text is different
        raise Break(Reason.BAD_CALL, function.name)
    parameters = code.replace(
        co_code=NOTHING.co_code, co_consts=NOTHING.co_consts, co_exceptiontable=b"", co_freevars=(), co_cellvars=(),
        co_flags=code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_OPTIMIZED))
    like = types.FunctionType(parameters, {}, code.co_name, (None,) * len(function.defaults))
    like.__qualname__ = function.load_attr(m, "__qualname__").constant()
    like.__kwdefaults__ = {
        name: None for name in code.co_varnames[code.co_argcount:code.co_argcount + code.co_kwonlyargcount]
        if keyword_default(m, function, name) is not None}
    try:
        like(*(None for _ in args), **dict.fromkeys(kwargs))
    except TypeError as e:
        m.throw(TypeError, *e.args)
    raise Break(Reason.BAD_CALL, function.name)


def keyword_default(m: Machine, function: FunctionValue, name: str) -> Any:
    """The default of a parameter, or None if it is required. The program may have changed the dict."""
    held, real = function.made_kwdefaults, getattr(function.real, "__kwdefaults__", None)
    if real is not None and id(real) in m.by_id:
        held = m.by_id[id(real)][1]
    if held is None:
        return function.kwdefaults.get(name)
    found = held.get(m, name)
    return None if found is ABSENT else found


def settled(m: Machine, value: Any) -> Value:
    return wrap(m, value.real, value.origin) if isinstance(value, Lazy) else value


def make_coroutine(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A coroutine or async generator that has not begun. Emitted code makes it unless capture drives it: Python warns
    of a coroutine that is never awaited.
    """
    awaited = function.code.co_flags & inspect.CO_COROUTINE
    made = GeneratorValue(begun_frame(m, function, args, kwargs),
                          types.CoroutineType if awaited else types.AsyncGeneratorType)
    made.frame.generator = made
    coroutine = CoroutineValue(made, function.name)
    m.effect(lambda e: None if made.started else e.value(coroutine))
    return coroutine


def make_generator(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A suspended generator."""
    frame = begun_frame(m, function, args, kwargs)
    of_c = REBUILT.get(function.code)
    frame.generator = PolyfilledGenerator(frame, *of_c) if of_c else GeneratorValue(frame, types.GeneratorType)
    if m.frames[-1].native.co_filename != contextlib.__file__:      # contextlib runs its generators to their end
        m.generators.append(frame.generator)
        m.undoable(m.generators.pop)
    return frame.generator


def begun_frame(m: Machine, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Frame:
    """The frame of a call that suspends at once. It has run up to RETURN_GENERATOR."""
    frame = new_frame(m, function, args, kwargs, PUSH)
    for instr in frame.instrs:
        frame.pc += 1
        if instr.op == "MAKE_CELL":
            frame.make_cell(instr.arg)
        elif instr.op == "RETURN_GENERATOR":
            break
    frame.last = frame.pc - 1
    return frame
