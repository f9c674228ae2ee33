"""Containers and functions: creation, filling and unpacking."""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from sot.bytecode import Instr
from sot.interpreter.builtins import operators
from sot.interpreter.builtins.common import ELEMENT, key_of, overridden
from sot.interpreter.builtins.containers import sets
from sot.interpreter.builtins.exceptions import groups
from sot.interpreter.builtins.iteration import is_iterable, known_items, listed_items
from sot.interpreter.frame import DISCARD
from sot.interpreter.opcodes.operate import called
from sot.interpreter.opcodes.table import op
from sot.interpreter.unwinding import not_stop_iteration
from sot.polyfills import language
from sot.support.errors import Break, Reason
from sot.values.base import ABSENT, Const, Value
from sot.values.callables import CellValue, FunctionValue
from sot.values.iterators import IteratorValue
from sot.values.objects import DictValue, ListValue, SetValue, TupleValue

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine


def pop_many(frame: Frame, count: int) -> list[Value]:
    at = len(frame.stack) - count
    values = frame.stack[at:]
    del frame.stack[at:]
    return values


# ---- displays
@op("BUILD_TUPLE")
def build_tuple(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(TupleValue(pop_many(frame, instr.arg)))


@op("BUILD_LIST")
def build_list(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(ListValue(pop_many(frame, instr.arg)))


@op("BUILD_SET")
def build_set(m: Machine, frame: Frame, instr: Instr) -> None:
    made = SetValue({})
    for value in pop_many(frame, instr.arg):
        made.items.setdefault(key_of(m, value, ELEMENT), value)
    frame.stack.append(made)


@op("BUILD_MAP")
def build_map(m: Machine, frame: Frame, instr: Instr) -> None:
    flat = pop_many(frame, 2 * instr.arg)
    frame.stack.append(new_dict(m, zip(flat[::2], flat[1::2], strict=True)))


@op("BUILD_CONST_KEY_MAP")
def build_const_key_map(m: Machine, frame: Frame, instr: Instr) -> None:
    keys = frame.stack.pop().items_list(m) or []
    frame.stack.append(new_dict(m, zip(keys, pop_many(frame, instr.arg), strict=True)))


def new_dict(m: Machine, pairs) -> DictValue:
    made = DictValue(dict)
    for key, value in pairs:
        real = key_of(m, key)
        made.overlay[real] = value
        made.key_values.setdefault(real, key)
    return made


# ---- filling, for displays with stars and for comprehensions
@op("LIST_APPEND")
def list_append(m: Machine, frame: Frame, instr: Instr) -> None:
    value, items = frame.stack.pop(), frame.stack[-instr.arg]
    if not isinstance(items, ListValue):
        raise Break(Reason.UNSUPPORTED, f"filling {items}")
    items.extend(m, [value])


@op("SET_ADD")
def set_add(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    Const(set.add).call(m, [frame.stack[-instr.arg], value], {})


@op("MAP_ADD")
def map_add(m: Machine, frame: Frame, instr: Instr) -> None:
    value, key = frame.stack.pop(), frame.stack.pop()
    table = frame.stack[-instr.arg]
    if not isinstance(table, DictValue):
        raise Break(Reason.UNSUPPORTED, f"filling {table}")
    table.set(m, key_of(m, key), value, key)


@op("LIST_EXTEND")
def list_extend(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    items = frame.stack[-instr.arg]
    elements = listed_items(m, value)
    if elements is None and not is_iterable(m, value):
        m.throw(TypeError, f"Value after * must be an iterable, not {value.pytype.__name__}")
    if elements is None or not isinstance(items, ListValue):
        m.enter(language.extend, [items, value], {}, DISCARD)
        return
    items.extend(m, elements)


@op("SET_UPDATE")
def set_update(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    members = frame.stack[-instr.arg]
    elements = known_items(m, value)
    if elements is None or not isinstance(members, SetValue):
        m.enter(language.update_set, [members, value], {}, DISCARD)
        return
    more = sets.made_of(m, elements).items
    members.change(m, sets.union(members.items, more), "set.update", sets.source_of(m, value, more))


@op("DICT_UPDATE")
def dict_update(m: Machine, frame: Frame, instr: Instr) -> None:
    other, table = frame.stack.pop(), frame.stack[-instr.arg]
    if not isinstance(table, DictValue):
        raise Break(Reason.UNSUPPORTED, f"filling {table}")
    if (given := read_as_dict(m, other)) is not None:
        fill(m, table, given)
    else:
        m.enter(language.update_dict, [table, other], {}, DISCARD)


@op("DICT_MERGE")
def dict_merge(m: Machine, frame: Frame, instr: Instr) -> None:
    other, table = frame.stack.pop(), frame.stack[-instr.arg]
    if not isinstance(table, DictValue):
        raise Break(Reason.UNSUPPORTED, f"filling {table}")
    given = read_as_dict(m, other)
    if given is not None and all(table.get(m, key) is ABSENT for key in given.keys(m)):
        fill(m, table, given)
    else:
        function, _ = called(*frame.stack[-instr.arg - 3:-instr.arg - 1])
        m.enter(language.merge_keywords, [function, table, other], {}, DISCARD)


def read_as_dict(m: Machine, value: Value) -> DictValue | None:
    return value if isinstance(value, DictValue) and not overridden(m, value, "__iter__") else None    # as C decides it


def fill(m: Machine, table: DictValue, other: DictValue) -> None:
    for key in other.keys(m):
        table.set(m, key, other.get(m, key), other.key_value(m, key))


# ---- taking apart
def elements_of(m: Machine, frame: Frame, value: Value, how: Any, count: int) -> list[Value] | None:
    """The elements to unpack. None: user code was entered, and the instruction will run again on a list. ``how`` is the
    polyfill that takes them one by one.
    """
    elements = None if isinstance(value, IteratorValue) else known_items(m, value)
    if elements is None:
        if not is_iterable(m, value):
            m.throw(TypeError, f"cannot unpack non-iterable {value.pytype.__name__} object")
        frame.pc = frame.last
        m.enter(how, [value, Const(count)])
    return elements


@op("UNPACK_SEQUENCE")
def unpack_sequence(m: Machine, frame: Frame, instr: Instr) -> None:
    count, unpacked = instr.arg, frame.stack.pop()
    elements = elements_of(m, frame, unpacked, language.take, count + 1)
    if elements is None:
        return
    if len(elements) < count:
        m.throw(ValueError, f"not enough values to unpack (expected {count}, got {len(elements)})")
    if len(elements) > count:
        m.throw(ValueError, too_many(unpacked, count, len(elements)))
    frame.stack += reversed(elements)


def too_many(unpacked: Value, count: int, got: int) -> str:
    """CPython's message, which differs between versions: since 3.14 it counts the values of a list, tuple or dict."""
    sized = unpacked.pytype in (list, tuple, dict)
    try:
        exec("_, " * count + "= values", {"values": [None] * got if sized else iter([None] * got)})
    except ValueError as e:
        return str(e)
    raise AssertionError("there are as many names as values")


@op("UNPACK_EX")
def unpack_ex(m: Machine, frame: Frame, instr: Instr) -> None:
    before, after = instr.arg
    elements = elements_of(m, frame, frame.stack.pop(), language.collect, before)
    if elements is None:
        return
    if len(elements) < before + after:
        m.throw(ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(elements)})")
    end = len(elements) - after
    frame.stack += reversed(elements[end:])
    frame.stack.append(ListValue(elements[before:end]))
    frame.stack += reversed(elements[:before])


# ---- intrinsics
@op("CALL_INTRINSIC_1")
def call_intrinsic_1(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    if instr.arg == "LIST_TO_TUPLE":
        frame.stack.append(TupleValue(value.items_list(m) or []))
    elif instr.arg == "UNARY_POSITIVE":
        m.push_result(operators.unary(m, "+", value))
    elif instr.arg == "STOPITERATION_ERROR":
        frame.stack.append(not_stop_iteration(m, frame, value))
    else:
        raise Break(Reason.OPCODE, f"CALL_INTRINSIC_1 {instr.arg}")


@op("CALL_INTRINSIC_2")
def call_intrinsic_2(m: Machine, frame: Frame, instr: Instr) -> None:
    if instr.arg != "PREP_RERAISE_STAR":
        raise Break(Reason.OPCODE, f"CALL_INTRINSIC_2 {instr.arg}")
    raised, error = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(groups.to_reraise(m, error, raised))


# ---- functions
DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE, ANNOTATE = 1, 2, 4, 8, 16


@op("MAKE_FUNCTION")
def make_function(m: Machine, frame: Frame, instr: Instr) -> None:
    code = frame.stack.pop().constant()
    assert isinstance(code, types.CodeType)
    function = FunctionValue(code, frame.namespace, name=code.co_qualname)
    for flag in (CLOSURE, ANNOTATIONS, KEYWORD_DEFAULTS, DEFAULTS):
        if (instr.arg or 0) & flag:
            set_part(m, function, flag, frame.stack.pop())
    frame.stack.append(function)


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(m: Machine, frame: Frame, instr: Instr) -> None:
    function, value = frame.stack.pop(), frame.stack.pop()
    assert isinstance(function, FunctionValue)
    set_part(m, function, instr.arg, value)
    frame.stack.append(function)


def set_part(m: Machine, function: FunctionValue, flag: int, value: Value) -> None:
    if flag == ANNOTATE:        # a function that computes the annotations
        function.fields["__annotate__"] = value
        return
    items = value.items_list(m) if not isinstance(value, DictValue) else []
    if flag == DEFAULTS:
        function.defaults, function.made_defaults = tuple(items or ()), value
    elif flag == KEYWORD_DEFAULTS:
        assert isinstance(value, DictValue)
        function.kwdefaults = {k: value.get(m, k) for k in value.keys(m)}
    elif flag == CLOSURE:
        function.closure = tuple(c for c in items or () if isinstance(c, CellValue))
    elif isinstance(value, DictValue):
        function.annotations = value
    else:   # names and values in turn
        flat = items or []
        function.annotations = new_dict(m, zip(flat[::2], flat[1::2], strict=True))
