"""Branches that random numbers decide: a layer that is left out if ``torch.rand([]) < p``.

Both sides are taken sooner or later, so a graph that ends at the branch, or that assumes one side, is of little use.
Where the backend runs its graphs as they are, such a branch is one node, ``if_else``: Python's ``if`` between two
subgraphs. It differs from ``torch.cond`` in that all results are the program's: the tensor itself where a side passes
it on, changes in place, random numbers, no gradients for what was not taken. What cannot be merged in this way makes
the branch a break, as if its values came from data.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from sot.bytecode.flow import JUMPS, asking, flow_of, ways
from sot.graph import NumberRef
from sot.graph.nodes import OWN_LAYOUT
from sot.graph.regions import has_memory, if_else
from sot.guards import draws
from sot.guards.assumptions import Part, Point, RestartCapture
from sot.guards.terms import Term, leaves
from sot.interpreter.builtins.numbers import of_tensors
from sot.interpreter.torch_ops.torch_calls import note_written, torch_call
from sot.torch_compat.functions import is_in_transform
from sot.values import deferred_scalars
from sot.values.base import Const
from sot.values.deferred_scalars import DeferredScalar
from sot.values.numbers import DynamicNumber, applied, is_dynamic
from sot.values.objects import TupleValue
from sot.values.tensor import TensorNumber, TensorValue, has_own_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sot.graph import TensorRef
    from sot.graph.regions import Region
    from sot.interpreter.frame import Frame
    from sot.interpreter.machine import Machine
    from sot.values.base import Value
    from sot.values.tensor import TensorBool

EXACT = 1 << 52
STEP_LIMIT = 64     # operations between random numbers and a condition


def is_one(m: Machine, value: Value) -> bool:
    """Whether the current instruction is a jump that this value decides, and such a branch."""
    if not isinstance(value, (TensorValue, TensorNumber)) or isinstance(value.ref, NumberRef):
        return False
    fake, frame = value.ref.fake, m.frames[-1]
    at = asking(frame.instrs, frame.last)
    if may_be(m) and fake.numel() == 1 and not is_in_transform(fake) and not (
            isinstance(value, TensorValue) and has_own_code(value.pytype)) and (
            frame.instrs[at].op in JUMPS and not refused(m, frame, at) and goes_on(frame, at)
            and is_drawn(value.ref.node)):
        return True
    deferred_scalars.refuse_drawn(*terms_of(value.ref.node))
    return False


def may_be(m: Machine) -> bool:
    """Whether the graph may have such a node here."""
    region, assumed = m.builder.region, m.assumptions
    return not (Part.BRANCHES in assumed.plain or assumed.control_flow or assumed.compiles or m.of_compilers or m.modes
                or m.has_symbols or (m.watch is not None if region is None else not region.is_plain))


def refused(m: Machine, frame: Frame, at: int) -> bool:
    return any((frame.native, pc) in m.assumptions.refused for pc in (frame.last, at))


def goes_on(frame: Frame, at: int) -> bool:
    """Whether no side of a jump always raises."""
    flow = flow_of(frame.native)
    return all(flow.place[pc] in flow.unraised for pc in ways(frame.instrs, at))


def is_drawn(node: Any) -> bool:
    """Whether a value is computed from random numbers and constants alone."""
    todo, seen, draws_now = [node], set[fx.Node](), False
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method") or len(seen) > STEP_LIMIT:
            return False
        draws_now = draws_now or bool(node.meta.get("draws")) or "drawn" in node.meta
        todo += operands_of(node)
    return draws_now


def operands_of(node: fx.Node) -> list[Any]:
    """What the value of a node depends on, up to numbers that Python draws. A result of ``if_else`` that is a constant
    on both sides depends on the test.
    """
    if node.meta.get("of_constants"):
        return [node.args[0].args[0]]       # type: ignore[union-attr]
    return [] if "drawn" in node.meta else node.all_input_nodes


# ---- numbers that Python draws ---------------------------------------------------------------------------------------
def compared(m: Machine, symbol: str, a: Value, b: Value) -> Value | None:
    """The comparison of a number that Python's or NumPy's generator draws, or of one read off a tensor of random
    numbers, with a constant, as a truth of the graph, if a branch or a variable takes it. Otherwise the number is
    needed before the graph, which is a break where it is drawn.
    """
    if not (may_be_drawn(a) and is_exact(b) or may_be_drawn(b) and is_exact(a)) or not may_be(m):
        return None
    return of_tensors.binary(m, symbol, *(in_graph(m, v) if may_be_drawn(v) else v for v in (a, b)))


def may_be_drawn(value: Value) -> bool:
    if isinstance(value, DynamicNumber):
        return value.varies and any(map(draws.is_drawn, leaves(value.term)))
    shown = value.reading.shown if isinstance(value, DeferredScalar) and value.reading and value.is_in_graph else None
    return shown is not None and shown.is_unchanged and is_drawn(shown.tensor.ref.node)


def is_exact(value: Value) -> bool:
    """Whether it is a constant of less than 53 bits: the float of an int compares with it as the int does."""
    return isinstance(value, Const) and not is_dynamic(value) and type(value.real) in (int, float) and (
        abs(value.real) < EXACT)


def is_taken(frame: Frame) -> bool:
    """Whether the result of the current comparison goes to a jump or into a variable."""
    here, after = (frame.instrs[frame.last + i].op for i in (0, 1))
    return here == "COMPARE_OP" and (after in JUMPS or after in ("TO_BOOL", "STORE_FAST"))


def in_graph(m: Machine, number: Value) -> Value:
    """A number as a 0-d tensor of a float."""
    if isinstance(number, DeferredScalar):
        assert number.reading is not None
        flat = torch_call(m, "call_method", "reshape", [number.reading.shown.tensor, TupleValue([])], {})
        made = torch_call(m, "call_method", "double", [flat], {})
        assert isinstance(made, TensorValue)
        return TensorNumber(made.ref, float)
    assert isinstance(number, DynamicNumber)
    given = applied(m, "float", number) if number.pytype is int else number
    assert given is not None
    made = torch_call(m, "call_function", torch.full, [TupleValue([]), given], {"dtype": Const(torch.float64)})
    assert isinstance(made, TensorValue) and made.ref.node is not None
    made.ref.node.meta["drawn"] = (number.term,)
    return TensorNumber(made.ref, float)


def terms_of(node: Any) -> list[Term]:
    """How the numbers that Python draws are computed, of those that a value depends on."""
    todo, seen, found = [node], set[fx.Node](), list[Term]()
    while todo:
        node = todo.pop()
        if isinstance(node, fx.Node) and node not in seen and len(seen) <= STEP_LIMIT:
            seen.add(node)
            found += node.meta.get("drawn", ())
            todo += operands_of(node)
    return found


# ---- the node ----------------------------------------------------------------------------------------------------
def restart(test: TensorBool, point: Point, why: str) -> NoReturn:
    """Capture again, because the sides have changed fakes already, with a break at the branch, or where Python draws
    the number.
    """
    deferred_scalars.refuse_drawn(*terms_of(test.ref.node))
    raise RestartCapture(why, refused={point: why})


def record(m: Machine, test: TensorBool, modules: Sequence[fx.Node], operands: Sequence[TensorRef],
           results: Sequence[TensorRef], regions: Sequence[Region]) -> fx.Node:
    """The node, with what its subgraphs do besides computing results."""
    made = [node for region in regions for node in region.nodes]
    node = m.builder.record("call_function", if_else, (test.ref, *modules, tuple(operands)), {},
                            tuple(ref.fake for ref in results), m.stack_trace())
    for name in ("draws", "draws_in_order", OWN_LAYOUT, "refuses"):
        node.meta[name] = any(inner.meta.get(name) for inner in made)
    if written := set[int]().union(*(inner.meta.get("changes", ()) for inner in made)):
        note_written(m, node, written)
    return node


def why_inexact(a: TensorValue, b: TensorValue) -> str:
    """Why one result cannot stand for these tensors: it would show the program something else than either of them."""
    if a.pytype is not torch.Tensor or b.pytype is not torch.Tensor or a.attrs or b.attrs:
        return "is an instance of a subclass, or has attributes"
    if a.fake.requires_grad != b.fake.requires_grad:
        return "requires grad on one side only"
    if not (is_ordinary(a.fake) and is_ordinary(b.fake)):
        return "is a leaf that requires grad, or does not begin and end where its memory does"
    return ""


def is_ordinary(fake: torch.Tensor) -> bool:
    """Whether it is like a new tensor of its shape, dtype, strides and device."""
    if not has_memory(fake) or fake.is_conj() or fake.is_neg() or fake.is_inference():
        return False
    like = torch.empty_like(fake)
    return not (fake.requires_grad and fake.is_leaf) and fake.storage_offset() == 0 and (
        like.stride() == fake.stride() and like.untyped_storage().nbytes() == fake.untyped_storage().nbytes())


