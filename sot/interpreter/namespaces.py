"""The names that code sees: ``locals``, ``globals``, ``vars``, and ``exec`` and ``eval`` of text that is known.

The code of a text runs in a frame whose names are in a dict, as a class body's. Python resumes no such frame, so a
break inside is one at the call.
"""
from __future__ import annotations
import __future__

import builtins
from types import CodeType
from typing import TYPE_CHECKING, Any

from sot.bytecode import ONE_LOCALS_DICT
from sot.bytecode.resume_origin import whole_code
from sot.interpreter.builtins.common import is_none, run_native, take
from sot.interpreter.frame import PUSH_WHOLE, Frame, is_of_enum
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import FunctionValue, MadeGlobals
from sot.values.objects import DictValue
from sot.values.wrapping import wrap

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag


@handles(vars)
def vars_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    obj, = take("vars", args, kwargs, "object")
    return locals_(m, [], {}) if obj is None else obj.load_attr(m, "__dict__")


@handles(locals)
def locals_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    frame = m.frames[-1]
    if is_of_enum(frame):
        raise Break(Reason.CLASS_BODY, " of an enum that uses its namespace")
    if frame.names is not None:     # the body of a class
        return frame.names
    table = frame.variables if ONE_LOCALS_DICT else None
    if table is None:
        table = DictValue(dict)
        if ONE_LOCALS_DICT:
            frame.variables = table
            m.undoable(lambda: setattr(frame, "variables", None))
    for name in variables_of(frame):
        value = variable(m, frame, name)
        if value is not ABSENT:
            table.set(m, name, value)
        elif table.get(m, name) is not ABSENT:
            table.delete(m, name)
    return table


def variables_of(frame: Frame) -> dict[str, None]:
    """The names of a frame's variables, in the order of ``locals()``."""
    code = whole_code(frame.native)
    return dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars, *frame.locals, *frame.cells))


def variable(m: Machine, frame: Frame, name: str) -> Value:
    """The value of a variable, or ABSENT."""
    if name in frame.cells:
        return frame.cells[name].get(m)
    value = frame.locals.get(name, ABSENT)
    if value is not ABSENT and not isinstance(value, Value):
        value = frame.locals[name] = wrap(m, value.real, value.origin)
    return value


@handles(globals)
def globals_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return m.namespace(m.frames[-1].namespace)


@handles(exec)
def exec_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    source, globals_, names, closure = take("exec", args, kwargs, "source", "globals", "locals", "closure", required=1)
    if not is_none(closure):
        raise Break(Reason.SIDE_EFFECT, "exec() with cells")
    if is_none(globals_) and is_none(names) and m.frames[-1].names is None:
        raise Break(Reason.SIDE_EFFECT, "exec() that may change the variables of a function")
    return run(m, source, globals_, names, "exec")


@handles(eval)
def eval_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    source, globals_, names = take("eval", args, kwargs, "source", "globals", "locals", required=1)
    if source.pytype is str:
        source = Const(source.constant().lstrip(" \t"))
    return run(m, source, globals_, names, "eval")


def run(m: Machine, source: Value, globals_: Value | None, names: Value | None, mode: str) -> Value:
    """Enter the frame of the code. Without dicts, it is in the variables of the frame that calls."""
    code, caller = code_of(m, source, mode), m.frames[-1]
    if is_none(globals_):
        namespace, found = caller.namespace, m.namespace(caller.namespace)
        names = locals_(m, [], {}) if is_none(names) else names
    else:
        found = dict_of(m, globals_, mode)
        namespace = namespace_of(m, found, mode)
    function = FunctionValue(code, namespace, name=code.co_name)
    held = found if is_none(names) else dict_of(m, names, mode)
    result = m.enter(function, [])
    frame = m.frames[-1]
    frame.on_return, frame.names = PUSH_WHOLE, held
    return result


def dict_of(m: Machine, value: Value | None, mode: str) -> DictValue:
    if not isinstance(value, DictValue) or value.pytype is not dict:
        raise Break(Reason.SIDE_EFFECT, f"{mode}() in what is not a dict")
    return value


def namespace_of(m: Machine, names: DictValue, mode: str) -> dict:
    """The dict of a frame with these global names. Python puts the builtins into a dict without them."""
    own = names.get(m, "__builtins__")
    if own is ABSENT:
        names.set(m, "__builtins__", m.namespace(vars(builtins)))
    elif own.real is not builtins and own.real is not vars(builtins):
        raise Break(Reason.SIDE_EFFECT, f"{mode}() with other builtins")
    if names.real is not ABSENT:
        return names.real
    if id(names) not in m.entered.made_globals:
        made = m.entered.made_globals[id(names)] = MadeGlobals(names)
        m.namespaces[id(made)] = names
    return m.entered.made_globals[id(names)]


def code_of(m: Machine, source: Value, mode: str) -> CodeType:
    """The code of text, with the features that the calling code imports from ``__future__``; or code itself."""
    text: Any = source.constant()
    if isinstance(text, CodeType) and not text.co_freevars:
        return text
    if not isinstance(text, str):
        raise Break(Reason.SIDE_EFFECT, f"{mode}() of what is not text")
    key = text, mode, m.frames[-1].native.co_flags & FUTURE
    if key not in CODES:
        made = run_native(m, compile, text, "<string>", mode, key[2], True).real
        while len(CODES) >= MOST_CODES:
            del CODES[next(iter(CODES))]
        CODES[key] = made
    return CODES[key]


# The code objects, which entries and caches know by identity.
CODES: dict[tuple[str, str, int], CodeType] = {}
MOST_CODES = 256
