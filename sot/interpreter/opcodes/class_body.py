"""The names of a class body: they are stored in a namespace, which is searched first."""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from sot.bytecode import Instr
from sot.interpreter.frame import is_of_enum
from sot.interpreter.opcodes.names import builtin, empty_cell
from sot.interpreter.opcodes.table import op
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import FunctionValue
from sot.values.classes import MemberValue
from sot.values.objects import DictValue

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine


def names_of(frame: Frame) -> DictValue:
    if frame.names is None:
        raise Break(Reason.CLASS_BODY)
    return frame.names


@op("LOAD_BUILD_CLASS")
def load_build_class(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(Const(builtins.__build_class__))


@op("LOAD_NAME")
def load_name(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(look_up(m, frame, names_of(frame), instr.arg))


def look_up(m: Machine, frame: Frame, names: DictValue, name: str) -> Value:
    value = own_name(m, frame, names, name)
    if value is ABSENT:
        value = m.namespace(frame.namespace).get(m, name)
    return builtin(m, frame, name) if value is ABSENT else value


def own_name(m: Machine, frame: Frame, names: DictValue, name: str) -> Value:
    """A name of the class body itself; ABSENT if it has not been stored."""
    value = names.get(m, name)
    if is_of_enum(frame) and value is not ABSENT and type(value) not in (Const, FunctionValue):
        raise Break(Reason.CLASS_BODY, f" of an enum that reads {name}, which the enum may have replaced")
    return value


@op("STORE_NAME")
def store_name(m: Machine, frame: Frame, instr: Instr) -> None:
    names, value = names_of(frame), frame.stack.pop()
    if is_of_enum(frame) and (names.get(m, instr.arg) is not ABSENT or isinstance(value, MemberValue) and any(
            names.get(m, name) is value for name in names.keys(m))):
        raise Break(Reason.CLASS_BODY, f" of an enum that stores {instr.arg} or its value twice")
    names.set(m, instr.arg, value)


@op("DELETE_NAME")
def delete_name(m: Machine, frame: Frame, instr: Instr) -> None:
    names = names_of(frame)
    if names.get(m, instr.arg) is ABSENT:
        m.throw(NameError, f"name {instr.arg!r} is not defined")
    if is_of_enum(frame):
        raise Break(Reason.CLASS_BODY, f" of an enum that deletes {instr.arg}")
    names.delete(m, instr.arg)


@op("SETUP_ANNOTATIONS")
def setup_annotations(m: Machine, frame: Frame, instr: Instr) -> None:
    names = names_of(frame)
    if names.get(m, "__annotations__") is ABSENT:
        names.set(m, "__annotations__", DictValue(dict))


@op("LOAD_LOCALS")
def load_locals(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(names_of(frame))


@op("LOAD_CLASSDEREF")
def load_class_deref(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(or_cell(m, frame, names_of(frame), instr.arg))


@op("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(or_cell(m, frame, popped_names(frame), instr.arg))


@op("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(look_up(m, frame, popped_names(frame), instr.arg))


def popped_names(frame: Frame) -> DictValue:
    names = frame.stack.pop()
    if not isinstance(names, DictValue):
        raise Break(Reason.CLASS_BODY)
    return names


def or_cell(m: Machine, frame: Frame, names: DictValue, name: str) -> Value:
    value = own_name(m, frame, names, name)
    if value is ABSENT:
        value = frame.cells[name].get(m)
    if value is ABSENT:
        empty_cell(m, frame, name)
    return value
