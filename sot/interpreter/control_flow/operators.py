"""torch's operators that take functions: ``flex_attention``, ``scan``, ``associative_scan`` and ``map``.

The Python code that torch has around an operator is executed like user code. The functions that the operator receives
become subgraphs. The tensors that a function has captured are further operands of the operator.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.graph.regions import Region, shares_memory
from sot.interpreter.builtins.common import take
from sot.interpreter.control_flow.higher_order import follow_call, refusing
from sot.interpreter.control_flow.join import keep_states, needs_gradients, refuse_symbols
from sot.interpreter.control_flow.merge_values import fake_result
from sot.interpreter.control_flow.results import tensors_of, with_tensors
from sot.interpreter.control_flow.speculate import Refusal
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat import functions
from sot.torch_compat.dynamo.modules import indexing
from sot.values.base import Const, Value
from sot.values.objects import TupleValue
from sot.values.tensor import TensorValue, refuse_instances

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine


class Subgraph:
    """A function of the program, executed for constants and tensors with the metadata of ``given``."""

    def __init__(self, m: Machine, function: Value, given: Sequence[torch.Tensor | Const], grads: bool = False,
                 context: AbstractContextManager | None = None) -> None:
        self.m, self.region = m, Region(m.builder)
        args = [item if isinstance(item, Const) else self.parameter(item, grads) for item in given]
        with context or nullcontext():
            end = follow_call(m, function, args, self.region)
        if end.touched:
            touch = next(iter(end.touched.values()))
            raise Refusal(f"{touch.where} changes {touch.value}, which was there before")
        assert end.value is not None
        keep_states(m, [end])
        self.value = end.value
        self.results = tensors_of(m, end.value)
        if not self.results:
            raise Refusal("a function returns no tensor")

    def parameter(self, like: torch.Tensor, grads: bool) -> Value:
        ref = TensorRef(fake_result(self.m, like, grads and like.is_floating_point()))
        self.region.parameter(ref, "given")
        return TensorValue(ref)

    @property
    def captured(self) -> tuple[TensorRef, ...]:
        return tuple(self.region.used())

    def close(self, captured: Sequence[TensorRef], alone: bool = False) -> str:
        """Finish the subgraph. ``captured``: its operands after those given. Returns its name."""
        return self.region.close(self.results, captured, "function", alone=alone)

    def refuse_shared(self) -> None:
        """Refuse results that share memory with an operand or with each other, as torch does."""
        for i, ref in enumerate(self.results):
            if not self.region.is_inside(ref) or self.region.sharing(ref) or any(
                    shares_memory(other.fake, ref.fake) for other in self.results[:i]):
                raise Refusal("a function returns an operand, a view of one, or a tensor twice")


def record(m: Machine, operator: Any, names: Sequence[str], arguments: Callable[..., tuple]) -> list[Value]:
    """The node of an operator and its results. ``arguments`` makes its arguments from the subgraphs."""
    try:
        fakes = m.builder.run("call_function", operator, arguments(*(m.builder.modules[name] for name in names)), {})
    except Exception as e:  # noqa: BLE001 - Python will say what is wrong with it
        raise Break(Reason.OPERATION_FAILED, f"{operator}: {e}") from None
    modules = [m.builder.subgraph(name) for name in names]
    node = m.builder.record("call_function", operator, arguments(*modules), {}, tuple(fakes), m.stack_trace())
    return [TensorValue(m.builder.adopt(m.builder.item(node, i, fake), fake)) for i, fake in enumerate(fakes)]


def tensors(m: Machine, what: str, values: Value) -> list[TensorRef]:
    """The tensors of a list that an operator receives."""
    items = values.items_list(m) or []
    refuse_instances(what, items)
    if not all(isinstance(item, TensorValue) for item in items):
        raise Refusal("it receives a value that is not a tensor")
    return [item.ref for item in items]     # type: ignore[attr-defined]


# ---- flex_attention -----------------------------------------------------------------------------------------------
@handles(functions.flex_attention)
@refusing("flex_attention")
def call_flex_attention(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    query, key, value, score, mask, scale, options = take(
        "flex_attention", args, kwargs, "query", "key", "value", "score_mod", "block_mask", "scale", "kernel_options",
        required=7)
    refuse_instances("flex_attention", (query, key, value))
    *blocks, mask_function = mask.items_list(m)
    places = [position(m, query.fake)] * 4
    scored = Subgraph(m, score, [query.fake.new_empty(()), *places], query.fake.requires_grad, indexing())
    masked = Subgraph(m, mask_function, places, context=indexing())
    for function in (scored, masked):
        if not isinstance(function.value, TensorValue):
            raise Refusal("a function returns more than a tensor")
    captured = scored.captured, masked.captured
    names = [scored.close(captured[0], alone=True), masked.close(captured[1], alone=True)]
    found: dict[int, Any] = {}
    fixed = [v.graph_argument(m, found) for v in (query, key, value, *blocks, scale)]
    chosen = options.host(m)

    def arguments(score_graph: Any, mask_graph: Any) -> tuple:
        return (*fixed[:3], score_graph, (*fixed[3:-1], mask_graph), fixed[-1], chosen, *captured)
    return TupleValue(record(m, functions.flex_attention, names, arguments))


def position(m: Machine, like: torch.Tensor) -> torch.Tensor:
    """A place in the scores, as score_mod and mask_mod receive it."""
    with m.builder.fake_mode:
        return torch.empty((), dtype=torch.int32, device=like.device)


# ---- scan, associative_scan, map ----------------------------------------------------------------------------------
def slices(m: Machine, refs: Sequence[TensorRef]) -> list[torch.Tensor]:
    """The first slices of tensors, as a function receives them."""
    with m.builder.fake_mode, torch.no_grad():
        return [ref.fake.select(0, 0) for ref in refs]


def followed(m: Machine, function: Value, given: Sequence[torch.Tensor | Const], refs: Sequence[TensorRef]) -> Subgraph:
    """A function that is called for each slice. Its operands require gradients if any tensor does that it uses."""
    refuse_symbols(m)
    made = Subgraph(m, function, given, needs_gradients(*refs))
    if needs_gradients(*made.captured) and not needs_gradients(*refs):
        made = Subgraph(m, function, given, True)
    made.refuse_shared()
    return made


@handles(functions.scan)
@refusing("scan")
def call_scan(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, init, over, _ = take("scan", args, kwargs, "combine_fn", "init", "xs", "additional_inputs", required=3)
    carried, rows = tensors(m, "scan", init), tensors(m, "scan", over)
    made = followed(m, function, [*(ref.fake for ref in carried), *slices(m, rows)], [*carried, *rows])
    captured = made.captured
    results = record(m, functions.scan, [made.close(captured)],
                     lambda graph: (graph, tuple(carried), tuple(rows), captured))
    return with_tensors(m, made.value, results)


@handles(functions.associative_scan)
@refusing("associative_scan")
def call_associative_scan(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, over, _ = take("associative_scan", args, kwargs, "combine_fn", "xs", "additional_inputs", required=2)
    rows = tensors(m, "associative_scan", over)
    made = followed(m, function, slices(m, [*rows, *rows]), rows)
    captured = made.captured
    results = record(m, functions.associative_scan, [made.close(captured)],
                     lambda graph: (graph, tuple(rows), captured))
    return with_tensors(m, made.value, results)


@handles(functions.map_rows)
@refusing("map")
def call_map(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    function, over, others = take("map", args, kwargs, "f", "xs", "args", required=3)
    rows = tensors(m, "map", over)
    rest = others.items_list(m) or []
    refuse_instances("map", rest)
    if not all(isinstance(item, (Const, TensorValue)) for item in rest):
        raise Refusal("it receives an argument that is neither a tensor nor a constant")
    given = [item.ref for item in rest if isinstance(item, TensorValue)]
    made = followed(m, function, [*slices(m, rows), *(item.fake if isinstance(item, TensorValue) else item
                                                      for item in rest)], [*rows, *given])
    captured = made.captured
    results = record(m, functions.map_rows, [made.close(captured)],
                     lambda graph: (graph, tuple(rows), (*given, *captured)))
    return with_tensors(m, made.value, results)
