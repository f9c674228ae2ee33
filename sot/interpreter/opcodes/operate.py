"""Operators, comparisons, subscripts, calls, formatting and pattern matching."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sot.bytecode import NULL_FIRST, Instr
from sot.bytecode.flow import JUMPS
from sot.interpreter.builtins import iteration, operators
from sot.interpreter.builtins.common import asked_identical
from sot.interpreter.builtins.containers import subscript
from sot.interpreter.control_flow import predicates, random_branches
from sot.interpreter.frame import DISCARD, PUSH_BOOL, PUSH_NOT
from sot.interpreter.opcodes.table import op
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.polyfills import language
from sot.support.errors import Break, Reason
from sot.values.base import ENTERED, NONE, NULL, Const, Value, boolean
from sot.values.deferred_scalars import DeferredScalar
from sot.values.iterators import SliceValue
from sot.values.numbers import is_dynamic
from sot.values.objects import DictValue, TupleValue
from sot.values.tensor import TensorBool
from sot.values.text import joined, varies

if TYPE_CHECKING:
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine

SEQUENCE_FLAG, MAPPING_FLAG = 1 << 5, 1 << 6     # Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
CONVERSIONS = {1: str, 2: repr, 3: ascii}


# ---- operators
@op("BINARY_OP")
def binary_op(m: Machine, frame: Frame, instr: Instr) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    m.push_result(operators.binary(m, instr.arg, left, right))


@op("COMPARE_OP")
def compare_op(m: Machine, frame: Frame, instr: Instr) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    drawn = random_branches.compared(m, instr.arg, left, right) if random_branches.is_taken(frame) else None
    m.push_result(operators.compare(m, instr.arg, left, right) if drawn is None else drawn)


@op("UNARY_NEGATIVE")
def unary_negative(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(operators.unary(m, "-", frame.stack.pop()))


@op("UNARY_INVERT")
def unary_invert(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(operators.unary(m, "~", frame.stack.pop()))


def decide(m: Machine, frame: Frame) -> bool | TensorBool | None:
    """Pop a value and decide its truth. None: user code was entered, and the instruction will run again."""
    value = frame.stack.pop()
    known = predicates.decide(m, value)
    if known is ENTERED:
        frame.pc = frame.last
        return None
    return known


@op("UNARY_NOT")
def unary_not(m: Machine, frame: Frame, instr: Instr) -> None:
    push_or_again(frame, predicates.negated(m, frame.stack.pop()))


def push_or_again(frame: Frame, result: Any) -> None:
    """Push the result. ENTERED: user code was entered, and the instruction will run again."""
    if result is ENTERED:
        frame.pc = frame.last
    else:
        frame.stack.append(result)


@op("TO_BOOL")
def to_bool(m: Machine, frame: Frame, instr: Instr) -> None:
    if frame.instrs[frame.pc].op not in JUMPS:       # no branch needs the truth
        return push_or_again(frame, predicates.truth(m, frame.stack.pop()))
    known = decide(m, frame)
    if known is not None:
        frame.stack.append(known if isinstance(known, TensorBool) else boolean(known))


@op("IS_OP")
def is_op(m: Machine, frame: Frame, instr: Instr) -> None:
    right, left = frame.stack.pop(), frame.stack.pop()
    frame.stack.append(boolean(asked_identical(m, left, right) != instr.arg))


@op("CONTAINS_OP")
def contains_op(m: Machine, frame: Frame, instr: Instr) -> None:
    container, item = frame.stack.pop(), frame.stack.pop()
    found = container.contains(m, item)
    kind = PUSH_NOT if instr.arg else PUSH_BOOL
    if found is ENTERED:
        m.frames[-1].on_return = kind
    else:
        push_truth(m, found, kind)


def push_truth(m: Machine, value: Value, kind: str) -> None:
    """Push ``bool(value)`` or its negation."""
    if isinstance(value, DeferredScalar) and value.pytype is bool:
        return m.frames[-1].stack.append(value if kind == PUSH_BOOL else graph_numbers.inverted(m, value))
    known = operators.truth(m, value)
    if known is ENTERED:
        m.frames[-1].on_return = kind
    else:
        m.frames[-1].stack.append(boolean(known is (kind == PUSH_BOOL)))


# ---- subscripts
@op("BINARY_SUBSCR")
def binary_subscr(m: Machine, frame: Frame, instr: Instr) -> None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    m.push_result(owner.getitem(m, key))


@op("STORE_SUBSCR")
def store_subscr(m: Machine, frame: Frame, instr: Instr) -> None:
    key, owner, value = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    owner.setitem(m, key, value)


@op("DELETE_SUBSCR")
def delete_subscr(m: Machine, frame: Frame, instr: Instr) -> None:
    key, owner = frame.stack.pop(), frame.stack.pop()
    subscript.delitem(m, owner, key)


@op("BINARY_SLICE")
def binary_slice(m: Machine, frame: Frame, instr: Instr) -> None:
    stop, start, owner = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    m.push_result(owner.getitem(m, make_slice([start, stop, NONE])))


@op("STORE_SLICE")
def store_slice(m: Machine, frame: Frame, instr: Instr) -> None:
    stop, start, owner, value = (frame.stack.pop() for _ in range(4))
    owner.setitem(m, make_slice([start, stop, NONE]), value)


@op("BUILD_SLICE")
def build_slice(m: Machine, frame: Frame, instr: Instr) -> None:
    parts = frame.stack[-instr.arg:]
    del frame.stack[-instr.arg:]
    frame.stack.append(make_slice([*parts, NONE][:3]))


def make_slice(parts: list[Value]) -> Value:
    if all(isinstance(p, Const) and not is_dynamic(p) for p in parts):
        return Const(slice(*(p.real for p in parts)))
    return SliceValue(parts)


# ---- calls
def called(first: Value, second: Value) -> tuple[Value, list[Value]]:
    """The two slots below the arguments: the callable, and ``self`` if there is one."""
    if NULL_FIRST and first is NULL:
        return second, []
    return first, [] if second is NULL else [second]


def pop_callable(frame: Frame) -> tuple[Value, list[Value]]:
    second, first = frame.stack.pop(), frame.stack.pop()
    return called(first, second)


@op("CALL")
def call(m: Machine, frame: Frame, instr: Instr) -> None:
    count, names = instr.arg
    args = frame.stack[len(frame.stack) - count:]
    del frame.stack[len(frame.stack) - count:]
    function, self_ = pop_callable(frame)
    positional = count - len(names)
    kwargs = dict(zip(names, args[positional:], strict=True))
    m.push_result(function.call(m, self_ + args[:positional], kwargs))


@op("CALL_FUNCTION_EX")
def call_function_ex(m: Machine, frame: Frame, instr: Instr) -> None:
    given = frame.stack.pop() if instr.arg else DictValue(dict)
    starred = frame.stack.pop()
    function, self_ = pop_callable(frame)
    args = iteration.tuple_items(m, starred)
    if args is None and not iteration.is_iterable(m, starred):
        m.enter(language.refuse_starred, [function, starred], {}, DISCARD)
    elif args is None:
        m.push_result(m.enter(language.apply_iterable, [function, starred, given]))
    elif not isinstance(given, DictValue):
        m.push_result(m.enter(language.apply_mapping, [function, starred, given]))
    else:
        kwargs = {k: given.get(m, k) for k in given.keys(m)}
        if not all(type(k) is str for k in kwargs):
            raise Break(Reason.BAD_CALL, "keywords must be strings")
        m.push_result(function.call(m, self_ + list(args), kwargs))


# ---- text
def format_value(m: Machine, value: Value, spec: Value) -> Value:
    return Const(format).call(m, [value, spec], {})


@op("CONVERT_VALUE")
def convert_value(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(Const(CONVERSIONS[instr.arg]).call(m, [frame.stack.pop()], {}))


@op("FORMAT_SIMPLE")
def format_simple(m: Machine, frame: Frame, instr: Instr) -> None:
    value = frame.stack.pop()
    m.push_result(value if value.pytype is str else format_value(m, value, Const("")))


@op("FORMAT_WITH_SPEC")
def format_with_spec(m: Machine, frame: Frame, instr: Instr) -> None:
    spec, value = frame.stack.pop(), frame.stack.pop()
    m.push_result(format_value(m, value, spec))


@op("BUILD_STRING")
def build_string(m: Machine, frame: Frame, instr: Instr) -> None:
    parts = frame.stack[-instr.arg:]
    del frame.stack[-instr.arg:]
    if all(isinstance(p, Const) and not varies(p) for p in parts):
        frame.stack.append(Const("".join(p.real for p in parts)))
    else:
        frame.stack.append(joined(parts))


# ---- pattern matching (PEP 634)
@op("MATCH_SEQUENCE")
def match_sequence(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(boolean(bool(frame.stack[-1].pytype.__flags__ & SEQUENCE_FLAG)))


@op("MATCH_MAPPING")
def match_mapping(m: Machine, frame: Frame, instr: Instr) -> None:
    frame.stack.append(boolean(bool(frame.stack[-1].pytype.__flags__ & MAPPING_FLAG)))


@op("GET_LEN")
def get_len(m: Machine, frame: Frame, instr: Instr) -> None:
    m.push_result(Const(len).call(m, [frame.stack[-1]], {}))


@op("MATCH_KEYS")
def match_keys(m: Machine, frame: Frame, instr: Instr) -> None:
    subject, keys = frame.stack[-2:]
    m.push_result(m.enter(language.match_keys, [subject, keys]))


@op("MATCH_CLASS")
def match_class(m: Machine, frame: Frame, instr: Instr) -> None:
    names, cls, subject = frame.stack.pop(), frame.stack.pop(), frame.stack.pop()
    if not isinstance(cls, Const) or not isinstance(names, TupleValue):
        raise Break(Reason.UNSUPPORTED, f"a class pattern with {cls}")
    m.push_result(m.enter(language.match_class, [subject, cls, Const(instr.arg), names]))
