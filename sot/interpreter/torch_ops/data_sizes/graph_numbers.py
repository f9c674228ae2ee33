"""Numbers of the graph that depend on data: what ``item`` reads, the size of ``x[mask]``, and what follows from them.

The program sees such a number as a deferred scalar. Each is a symbol of torch's, whose value capture never knows. The
graph computes the number with Python's own functions on Python's numbers, so its value is the program's. If that
raises, Python runs the frame again and raises.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from sot.bytecode.resume_origin import source
from sot.graph import NumberRef, TensorRef
from sot.guards.assumptions import Part, Point, RestartCapture
from sot.guards.symbols import on_numbers
from sot.interpreter.control_flow import failures
from sot.support.errors import Break, Reason
from sot.torch_compat.fake_tensors import is_symbolic
from sot.values.base import Const, Value
from sot.values.deferred_scalars import SIZE_BITS, DeferredScalar, NeededNow
from sot.values.numbers import DynamicNumber, number_ref

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

EXAMPLES = {int: None, float: 0.5, bool: True}      # where the metadata of a result does not depend on the number
MAY_RAISE = frozenset(("/", "//", "%", "**", "int", "float"))


def may_be(m: Machine) -> bool:
    """Whether numbers that depend on data may be part of the graph here."""
    return not (Part.SIZES in m.assumptions.plain or m.modes or m.builder.region is not None or m.watch is not None)


# ---- where they come from ---------------------------------------------------------------------------------------
def read(m: Machine, tensor: TensorRef, kind: type, index: tuple[int, ...], points: frozenset[Point]) -> NumberRef:
    """The number in a tensor, or in an element of it. ``points`` are where the program reads it."""
    function, operands = (element, (tensor, *index)) if index else (torch.Tensor.item, (tensor,))
    if not may_be(m):
        raise NeededNow(points)
    try:
        with m.symbols.admitted():
            fake = m.builder.run("call_function", function, operands, {})
    except Exception:  # noqa: BLE001 - torch has no symbol for it
        raise NeededNow(points) from None
    made = NumberRef(fake, EXAMPLES[kind], "", function, operands)
    define(m, fake, made, points)
    m.builder.compute(made, m.stack_trace())
    return made


def read_numpy(m: Machine, number: TensorRef, kind: type, points: frozenset[Point]) -> NumberRef:
    """The Python number of a number of NumPy."""
    if not may_be(m):
        raise NeededNow(points)
    dtype = {int: torch.int64, float: torch.float64, bool: torch.bool}[kind]
    with m.symbols.admitted():
        fake = m.builder.run("call_function", lambda: torch.empty((), dtype=dtype).item(), (), {})
    made = NumberRef(fake, EXAMPLES[kind], "", kind, (number,))
    define(m, fake, made, points)
    m.builder.compute(made, m.stack_trace())
    return made


def element(tensor: torch.Tensor, *index: int) -> Any:
    """The target of the node that reads a number of ``tensor.tolist()``."""
    return tensor[index].item()


def define(m: Machine, fake: Any, made: NumberRef, points: frozenset[Point]) -> None:
    """Record which number of the graph a new symbol stands for."""
    m.builder.has_data_sizes = True
    for symbol in m.symbols.data.symbols_of(fake):
        m.symbols.of_data[symbol] = made
        m.symbols.points[symbol] = points


def of_symbol(m: Machine, number: Any) -> Value:
    """The value of a symbolic number that torch has computed, such as the size of a result."""
    symbols = m.symbols.data.symbols_of(number)
    kind = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)]
    points = points_of(m, symbols)
    made = of_expression(m, m.symbols.torch.expression(number), number)
    if made is None:
        raise NeededNow(points) if points else Break(Reason.TENSOR_SHAPE, str(number))
    return scalar(made, kind, points)


def of_expression(m: Machine, expression: Any, fake: Any = None) -> Any:
    """The number of the graph for an expression of torch's; None if it has an unknown symbol."""
    term = m.symbols.data_term(expression)
    made = None if term is None else of_term(m, term)
    if isinstance(made, NumberRef) and fake is not None and made not in m.symbols.of_data.values():
        made.fake = fake
    return made


def of_term(m: Machine, term: Any) -> Any:
    if isinstance(term, NumberRef) or not isinstance(term, tuple):
        return term if isinstance(term, NumberRef) else number_ref(m, term)
    parts = tuple(of_term(m, part) for part in term[1:])
    if not any(isinstance(part, NumberRef) for part in parts):
        return number_ref(m, term)
    function = on_numbers(term[0])
    return NumberRef(function(*map(fake_of, parts)), None, "", function, parts)


def fake_of(part: Any) -> Any:
    return part.fake if isinstance(part, NumberRef) else part


def scalar(made: NumberRef, kind: type, points: frozenset[Point]) -> DeferredScalar:
    """The value of a number that the graph returns if the program needs it."""
    value = DeferredScalar(kind, points, lambda e: e.output(made), SIZE_BITS if kind is int else 64,
                           number=lambda m: made)
    value.hold(made)
    return value


# ---- what follows from them ---------------------------------------------------------------------------------------
def operand(m: Machine, value: Value) -> Any:
    """A number as an operand in the graph."""
    if isinstance(value, DeferredScalar):
        return value.graph_number(m)
    if isinstance(value, DynamicNumber) and value.varies:
        return value.ref(m)
    return value.constant()


def computed(m: Machine, name: str, kind: type, values: list[Value]) -> NumberRef:
    """A function (of ``sot/guards/terms.py``) of numbers, in the graph."""
    operands = tuple(operand(m, value) for value in values)
    function = on_numbers(name)
    points = frozenset[Point]().union(*(v.points for v in values if isinstance(v, DeferredScalar)))
    try:
        fake = function(*map(fake_of, operands))
    except Exception:  # noqa: BLE001 - torch has no such function for symbols, or needs their value
        raise NeededNow(points) from None
    may_raise = name in MAY_RAISE and not divides_floats(name, values)
    made = NumberRef(fake, EXAMPLES[kind], "", function, operands, may_raise)
    if may_raise:
        m.builder.fake_mode.may_refuse = True
        failures.expect(m, name)
        m.builder.compute(made, m.stack_trace())
    return made


def divides_floats(name: str, values: list[Value]) -> bool:
    """Whether it divides a float by one that is known not to be zero."""
    left, right = values[0], values[-1]
    if name not in ("/", "//", "%") or left.pytype is not float or right.pytype is not float:
        return False
    return right.is_nonzero if isinstance(right, DeferredScalar) else (
        not isinstance(right, DynamicNumber) and bool(right.constant()))


def at_once(m: Machine, name: str, kind: type, values: list[Value]) -> DeferredScalar:
    """The same as a value, for a function that may raise: it is computed where the program computes it."""
    made = computed(m, name, kind, values)
    return scalar(made, kind, frozenset[Point]().union(*(v.points for v in values if isinstance(v, DeferredScalar))))


# ---- their truth ------------------------------------------------------------------------------------------------
def as_truth(m: Machine, value: DeferredScalar) -> DeferredScalar:
    """``bool(value)``"""
    return value if value.pytype is bool else DeferredScalar(
        bool, value.points, lambda e: f"{e.value(value)} != 0", number=lambda m: computed(
            m, "!=", bool, [value, Const(0)]))


def inverted(m: Machine, value: DeferredScalar) -> DeferredScalar:
    """``not value``"""
    truth = as_truth(m, value)

    def number(m: Machine) -> NumberRef:
        return opposite(truth.graph_number(m))
    return DeferredScalar(bool, value.points, lambda e: f"not {e.value(value)}", depth=value.depth + 1,
                          number=number if truth.is_in_graph else None)


def known_truth(m: Machine, value: DeferredScalar) -> bool | None:
    """The truth of a number, if it follows from what is known: a size is not negative, and so on."""
    if not value.is_in_graph or not may_be(m):
        return None
    fake = fake_of(as_truth(m, value).graph_number(m))
    if not isinstance(fake, torch.SymBool):
        return bool(fake)
    if m.symbols.data.is_known_true(fake):
        return True
    return False if m.symbols.data.is_known_true(torch.sym_not(fake)) else None


def opposite(truth: NumberRef) -> NumberRef:
    return NumberRef(torch.sym_not(truth.fake), None, "", torch.sym_not, (truth,))


def check(m: Machine, truth: NumberRef, holds: bool, text: str) -> None:
    """An assertion in the graph. If it fails, Python runs the frame from its start."""
    if not holds:
        truth = opposite(truth)
    m.builder.fake_mode.may_refuse = True
    failures.expect(m, "an assertion about a number", is_ours=True)
    m.builder.record_check(assert_holds, (truth, text), m.stack_trace())
    m.symbols.take_assertions()
    waiting = [*m.symbols.unchecked]
    torch._check(truth.fake)        # from here on torch relies on it
    m.symbols.take_assertions()
    m.symbols.unchecked = waiting   # the graph makes this one


class Mismatch(RuntimeError):
    """What capture has assumed about sizes or numbers does not hold. ``text`` is the key of the assumption."""

    def __init__(self, text: str, more: str = "") -> None:
        super().__init__(text + more)
        self.text = text


@dataclass(frozen=True)
class Guess:
    """What torch has assumed about sizes that depend on data, and what to do if it does not hold.

    Arguments:
        name: the operation that needed it.
        line: the user's line of that operation.
        points: the places where the program makes these sizes. If Python runs these, nothing is assumed.
    """

    name: str
    line: tuple[str, int]
    points: frozenset[Point]


def note_guess(m: Machine, name: str, text: str, symbols: Iterable[Any]) -> None:
    """Keep what an assertion of the graph assumes about these symbols, for the case that it fails."""
    points = points_of(m, symbols)
    known = m.guesses.get(text)
    m.guesses[text] = Guess(name, m.user_position()[:2], points) if known is None else replace(
        known, points=known.points | points)


def points_of(m: Machine, symbols: Iterable[Any]) -> frozenset[Point]:
    """The places where the program makes the numbers for which these symbols stand."""
    return frozenset[Point]().union(*(m.symbols.points.get(s, ()) for s in symbols))


def refuse_unsure(m: Machine, name: str, symbols: Iterable[Any]) -> NoReturn:
    """Break at what shows whether a tensor is a view or a copy. A compiled graph returns copies: for it Python reads
    the numbers first.
    """
    why = f"{name} of a tensor that is a view or a copy, depending on sizes,"
    if m.assumptions.interprets:
        raise Break(Reason.TENSOR_SHAPE, why)
    raise RestartCapture(why, read_at_once=points_of(m, symbols))


def assert_holds(truth: Any, text: str) -> None:
    """The target of an assertion's node."""
    if truth is False:
        raise Mismatch(text)
    if truth is not True:       # a compiler traces the graph
        torch.ops.aten._assert_scalar.default(truth, text)


def assume(m: Machine, truth: DeferredScalar) -> None:
    """``torch._check(truth)``: from here on torch relies on it. The assertion becomes part of the graph."""
    fake = fake_of(truth.graph_number(m))
    try:
        torch._check(fake)
    except Exception as error:  # noqa: BLE001 - the condition is known to be false, so Python will raise
        raise Break(Reason.OPERATION_FAILED, str(error).partition("\n")[0]) from None


def here(m: Machine) -> Point:
    return source(m.frames[-1].native, m.frames[-1].last)


def have_data_sizes(m: Machine, fakes: Any) -> bool:
    return any(isinstance(fake, torch.Tensor) and is_symbolic(fake) and m.symbols.data.depends_on_data(fake)
               for fake in fakes)
