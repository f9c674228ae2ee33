"""Operations whose results have sizes that depend on data: run on fakes with symbols, recorded like any other.

What torch assumes about the symbols on the way becomes an assertion of the graph. Where torch may have guessed, the
graph compares the sizes of the result with those that capture found (``as_captured``). If one of these fails, Python
runs the frame: a guess is never silently wrong.
"""
from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import NumberRef, TensorRef
from sot.graph.builder import changes_unseen
from sot.graph.refs import version_of
from sot.interpreter.control_flow import early_checks, failures
from sot.interpreter.objects import tensor_facts
from sot.interpreter.torch_ops.data_sizes import examples, graph_numbers, refused_numbers
from sot.interpreter.torch_ops.known_values import refs_in
from sot.support.errors import Break, Reason
from sot.torch_compat.tensors import VALUES, storage_id
from sot.values.base import Value
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.interpreter.torch_ops.known_values import Call

VIEWING = frozenset({"view", "view_as"})
OF_LAYOUT = VIEWING | {"stride", "is_contiguous", "dim_order"}
Differing = tuple[set[Any], tuple[int, ...] | None] | None


def as_captured(tensor: torch.Tensor, text: str, sizes: tuple[int, ...], numbers: tuple[int, ...],
                differ: tuple[int, ...] | None) -> None:
    """The target of the node that compares a result with what capture has found.

    A compiler that traces the graph makes the same guess as capture. So its graph compares the ``numbers`` that
    decide with the values for which examples ``differ`` (see ``Examples``).

    Arguments:
        text: the key of the guess.
    """
    if any(isinstance(n, torch.SymInt | torch.SymFloat | torch.SymBool) for n in (*sizes, *numbers)):
        if differ is None:
            raise graph_numbers.Mismatch(text, ", or not: a compiled graph cannot tell")
        for number in numbers:
            for value in differ:
                graph_numbers.assert_holds(number != value, text)
        return
    if tensor.dim() != len(sizes) or any(n != m for n, m in zip(tensor.shape, sizes, strict=True)):
        raise graph_numbers.Mismatch(text, f": {sizes}, not {tuple(tensor.shape)}")


def answer(m: Machine, kind: str, name: str, call: tuple) -> Any:
    """The fake result of an operation whose result depends on data; None if it cannot be part of the graph."""
    if name in VALUES or not graph_numbers.may_be(m) or graph_numbers.here(m) in m.assumptions.read_at_once:
        return None
    symbols = m.symbols
    try:
        with symbols.admitted():
            result = m.builder.run(kind, *call)
    except Exception:  # noqa: BLE001 - torch needs a value, or has no rule
        return None
    tensors = [*examples.tensors_in(result)]
    bare = {symbol for symbol, _, _ in bare_symbols(m, tensors)}
    unknown = {s for t in tensors for s in symbols.data.symbols_of(t)} - bare - symbols.of_data.keys()
    return None if unknown else result


def is_of_data(m: Machine, error: Exception, call: Call) -> bool:
    """Whether a call has failed on fakes because it depends on data, and not as it would in the program."""
    return isinstance(error, m.symbols.data.GuardOnDataDependentSymNode) or (
        m.symbols.data.takes_integers_only(error) and bool(symbols_given(m, call)))


def bare_symbols(m: Machine, tensors: list[torch.Tensor]) -> Iterator[tuple[Any, Any, tuple]]:
    """The symbols of data that are a size or the offset of one of these tensors, with their numbers and the call that
    reads them.
    """
    for tensor in tensors:
        sizes = [(size, (torch.Tensor.size, tensor, dim)) for dim, size in enumerate(tensor.shape)]
        for number, read in [*sizes, (tensor.storage_offset(), (torch.Tensor.storage_offset, tensor))]:
            if isinstance(number, torch.SymInt) and m.symbols.torch.expression(number).is_Symbol:
                yield from ((symbol, number, read) for symbol in m.symbols.data.symbols_of(number))


# ---- before the node of an operation is recorded --------------------------------------------------------------
def prepare(m: Machine, kind: str, name: str, call: Call, result: Any, found: dict[int, TensorValue],
            before: dict[int, tuple]) -> Differing:
    """Break where capture would rely on a guess, and record what torch has assumed. If the graph has to compare the
    sizes of the result, returns the symbols that decide, and the values for which examples have other sizes.
    """
    m.symbols.take_assertions()
    if m.symbols.unchecked:
        assert_what_is_known(m, name, any(
            before.get(id(ref.fake), (None, -1))[1] != ref.version for ref in m.builder.changed_inputs()))
    numbers = any(isinstance(ref, NumberRef) and ref.real is None for ref in refs_in(call[1:]))
    if not numbers and not graph_numbers.have_data_sizes(m, (value.ref.fake for value in found.values())):
        return None
    if m.builder.region is not None:
        raise Break(Reason.BRANCH, f"{m.position()}: {name} of a tensor whose size depends on data")
    written = {storage_id(v.ref.fake) for key, v in found.items() if version_of(v.ref.fake) != before[key][1]}
    if written & m.symbols.unsure:
        graph_numbers.refuse_unsure(m, name, symbols_given(m, call))
    refuse_unsure_layout(m, name, found)
    if symbols_in(m, result) - m.symbols.of_data.keys():     # the result has new symbols
        return None
    tried = examples.compared(m, kind, call, result, numbers)
    if not m.builder.fake_mode.may_refuse and (tried.raise_too or refused_numbers.refuses_sizes(m, name, call)):
        m.builder.fake_mode.note_refusal()
    if not tried.agree and result is not None and not any(True for _ in examples.tensors_in(result)):
        raise Break(Reason.TENSOR_SHAPE, name)
    memory = examples.memory_of(examples.tensors_in(result))
    if not tried.are_views:
        given = [other for value in found.values() for other in tensor_facts.inputs_sharing(m, value)]
        if given and not m.assumptions.interprets:
            raise Break(Reason.TENSOR_SHAPE, f"{name}, which returns a view or a copy, depending on sizes,")
        m.symbols.unsure |= memory | examples.memory_of(v.ref.fake for v in found.values())
    if not (tried.are_views and tried.have_strides) or has_unsure_layout(m, found):
        m.symbols.unsure_layouts |= memory
    return None if tried.agree or result is None else (symbols_given(m, call), tried.differ)


def has_unsure_layout(m: Machine, found: dict[int, TensorValue]) -> bool:
    return not m.symbols.unsure_layouts.isdisjoint(examples.memory_of(value.ref.fake for value in found.values()))


def refuse_unsure_layout(m: Machine, name: str, found: dict[int, TensorValue]) -> None:
    """Break at a question about strides that follow from data, and let a view with a new shape raise."""
    if name in OF_LAYOUT and has_unsure_layout(m, found):
        if name not in VIEWING or not m.assumptions.interprets:
            raise Break(Reason.TENSOR_SHAPE, f"{name} of a tensor whose strides depend on data,")
        m.builder.fake_mode.note_refusal()


def symbols_given(m: Machine, call: Call) -> set[Any]:
    """The symbols of data in the sizes and numbers that an operation gets."""
    return {s for ref in refs_in(call[1:]) for s in m.symbols.data.symbols_of(ref.fake)}


def symbols_in(m: Machine, result: Any) -> set[Any]:
    return {s for tensor in examples.tensors_in(result) for s in m.symbols.data.symbols_of(tensor)}


def settle(m: Machine) -> None:
    """Record what torch has assumed outside of an operation."""
    m.symbols.take_assertions()
    assert_what_is_known(m, "torch._check", bool(m.builder.changed_inputs()))


def assert_what_is_known(m: Machine, name: str, was_changed: bool) -> None:
    """Assertions about numbers that the graph has already."""
    waiting = []
    for expression in m.symbols.unchecked:
        truth = graph_numbers.of_expression(m, expression)
        if truth is None:
            if expression.free_symbols & m.symbols.of_data.keys():      # else it is about symbols of torch alone
                waiting.append(expression)
            continue
        if is_always_true(truth):
            continue
        text = m.symbols.data.text_of(expression)
        graph_numbers.note_guess(m, name, text, expression.free_symbols)
        unseen = changes_unseen(m.builder)
        if not (unseen or was_changed):
            m.builder.record_check(graph_numbers.assert_holds, (truth, text), m.stack_trace())
            m.builder.refuses = True
            m.refusals.note(m)
            m.builder.draws_then_refuses = m.builder.draws_then_refuses or m.builder.fake_mode.draws
        elif unseen or not early_checks.asserted(m, truth, graph_numbers.assert_holds, text):
            raise Break(Reason.TENSOR_SHAPE, f"{name}, after a change of an input,")
    m.symbols.unchecked = waiting


def is_always_true(truth: Any) -> bool:
    """Whether it is no number of the graph, or says that a size or an offset is not negative."""
    return not isinstance(truth, NumberRef) or truth.function is operator.ge and truth.operands[1] == 0 and getattr(
        truth.operands[0], "function", None) in (torch.Tensor.size, torch.Tensor.storage_offset)


# ---- after it -----------------------------------------------------------------------------------------------------
def noted(m: Machine, name: str, made: Value, call: Call, differing: Differing) -> Value:
    """The value of the result of a call, after its new symbols are defined. ``differing``: see ``prepare``."""
    if not m.has_data_sizes:
        return made
    results = [v for v in tensor_values(made) if isinstance(v.ref.fake, torch.Tensor)]
    define(m, results, call)
    if m.symbols.unchecked:
        assert_what_is_known(m, name, bool(m.builder.changed_inputs()))
        if m.symbols.unchecked:
            raise Break(Reason.TENSOR_SHAPE, f"{name}, if {m.symbols.unchecked[0]}")
    if differing is not None:
        for value in results:
            compare(m, name, value.ref, *differing)
    return made


def tensor_values(value: Value) -> Iterator[TensorValue]:
    if isinstance(value, TensorValue):
        yield value
    elif isinstance(value, (ListValue, TupleValue)):
        for item in value.items:
            yield from tensor_values(item)


def define(m: Machine, results: list[TensorValue], call: Call) -> None:
    """Record where the graph has the sizes for which new symbols stand."""
    given = symbols_given(m, call)
    points = graph_numbers.points_of(m, given) | {graph_numbers.here(m)}
    refs = {id(value.ref.fake): value.ref for value in results}
    for symbol, number, (function, tensor, *dim) in [*bare_symbols(m, [value.ref.fake for value in results])]:
        known = m.symbols.of_data.get(symbol)
        if known is None or known.node is None:
            made = NumberRef(number, None, "", function, (refs[id(tensor)], *dim))
            graph_numbers.define(m, number, made, points)
            m.symbols.made_from[symbol] = given.union(*(m.symbols.made_from.get(s, ()) for s in given))
            m.builder.compute(made, m.stack_trace())


def compare(m: Machine, name: str, ref: TensorRef, symbols: set[Any], differ: tuple[int, ...] | None) -> None:
    """Let the graph compare the sizes of a tensor with those that capture has found."""
    sizes = []
    for size in ref.fake.shape:
        number = graph_numbers.of_expression(m, m.symbols.torch.expression(size)) if isinstance(
            size, torch.SymInt) else size
        if number is None:
            raise Break(Reason.TENSOR_SHAPE, name)
        sizes.append(number)
    m.builder.fake_mode.may_refuse = True
    failures.expect(m, name, is_ours=True)
    text = f"shape {tuple(ref.fake.shape)}"
    graph_numbers.note_guess(m, name, text, symbols)
    numbers = tuple(m.symbols.of_data[s] for s in sorted(symbols, key=str) if s in m.symbols.of_data)
    m.builder.record_check(as_captured, (ref, text, (*sizes,), numbers, differ), m.stack_trace())


# ---- results that are given as ``out`` ----------------------------------------------------------------------------
def is_nonempty(m: Machine, fake: Any) -> bool:
    """Whether it is a tensor with elements, or with a number of elements that depends on data."""
    return isinstance(fake, torch.Tensor) and (
        (m.has_data_sizes and graph_numbers.have_data_sizes(m, [fake])) or fake.numel() > 0)


def is_shape(m: Machine, fake: torch.Tensor, shape: tuple[Any, ...]) -> bool:
    """Whether a tensor has this shape. Of a size that depends on data that is only known if it follows."""
    if not m.has_data_sizes:
        return fake.shape == shape
    known = m.symbols.data.is_known_true
    return fake.dim() == len(shape) and all(known(size == other) for size, other in zip(fake.shape, shape, strict=True))
