"""``torch.autograd.Function``: one node of the graph.

Forward and backward are executed symbolically into two subgraphs, so every value that they read is guarded. The node
calls the program's own class. When a compiler traces the node, it runs the subgraphs instead, with the numbers that
vary as inputs: a trace of the program's code would keep their values.

Where autograd records nothing, because no argument needs a gradient, the call is a call of the forward.

A function that cannot be captured runs on fake tensors, if its forward at least can be executed without side effects.
Such a node is only for a backend that runs graphs as they are. Otherwise there is a break.
"""
from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx
from torch.nn.modules._functions import BackwardHookFunction

from sot.graph.refs import ModuleRef, NumberRef, TensorRef
from sot.graph.regions import Region, shares_memory
from sot.guards.assumptions import Part
from sot.interpreter.control_flow.higher_order import follow_call
from sot.interpreter.control_flow.join import keep_states
from sot.interpreter.control_flow.merge_values import reachable
from sot.interpreter.control_flow.speculate import Refusal, Start
from sot.interpreter.loop import evaluate, trial
from sot.interpreter.objects import attributes
from sot.interpreter.torch_ops.hooks import node_hooks
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills import torch_code
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.autograd_nodes import spent_leaves
from sot.torch_compat.functions import has_tangent, is_traced, transforms_are_active
from sot.torch_compat.global_state import SET_GRAD
from sot.values.base import NONE, Const, Value
from sot.values.callables import known_function
from sot.values.objects import ObjectValue, TupleValue
from sot.values.tensor import TensorValue, refuse_instances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sot.interpreter.control_flow.speculate import End
    from sot.interpreter.machine import Machine

Function = torch.autograd.Function
# What a forward may tell its context that the subgraphs do not do.
UNSUPPORTED = {"dirty_tensors": "mark_dirty", "materialize_grads": "set_materialize_grads",
               "saved_for_forward": "save_for_forward"}


@handles(getattr(vars(Function)["apply"], "__func__", vars(Function)["apply"]))      # C code since torch 2.15
def apply(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, inputs = args[0].real, args[1:]
    if kwargs or not isinstance(cls, type) or not issubclass(cls, Function):
        raise Break(Reason.OPAQUE_CALL, "autograd.Function.apply")
    if Part.FUNCTIONS in m.assumptions.plain:
        why = m.assumptions.plain[Part.FUNCTIONS]
        raise Break(Reason.GRADIENT, f"the backend cannot compile {cls.__name__}: {why}")
    refuse_instances(f"{cls.__name__}.apply", inputs)
    if cls is BackwardHookFunction:     # the module's hooks are put on this node
        if m.assumptions.compiles:
            raise Break(Reason.SIDE_EFFECT, "a backward hook of a module, which a compiling backend would not call,")
        m.builder.keeps_nodes = True
    if (m.modes or transforms_are_active()) and id(cls) in m.made_classes:
        raise Break(Reason.GRADIENT, f"a mode or a transform would ask {cls.__name__}, which the call makes,")
    if m.modes or transforms_are_active():      # torch or the mode asks the class itself
        return as_it_is(m, cls, inputs, is_asked=True)
    start = Start(m, m.frames[-1])
    if records_nothing(inputs) and cls is not BackwardHookFunction:
        try:
            return forward_alone(m, cls, inputs)
        except (Refusal, Break):
            start.restore()
    try:
        result = CapturedFunction(m, cls, inputs).record()
        if cls is BackwardHookFunction:
            node_hooks.note(m, inputs, result)
        return result
    except (Refusal, Break) as e:
        start.restore()
        if m.assumptions.compiles:
            raise Break(Reason.GRADIENT, f"the backend cannot compile {cls.__name__}: {e}") from None
        if id(cls) in m.made_classes:
            raise Break(Reason.GRADIENT, f"{cls.__name__}, which the call makes, is not in the graph: {e}") from None
    return as_it_is(m, cls, inputs)


def records_nothing(inputs: list[Value]) -> bool:
    """Whether autograd makes no node for a call with these arguments. It looks only at tensors that are arguments."""
    fakes = [v.fake for v in inputs if isinstance(v, TensorValue)]
    return not any(torch.is_grad_enabled() and f.requires_grad or has_tangent(f) for f in fakes)


def forward_alone(m: Machine, cls: Any, inputs: list[Value]) -> Value:
    """The result of a call that autograd does not record: that of the forward. Raises Refusal where autograd would
    return another object, and where the program could see the context afterwards.
    """
    args = [Const(cls), Const(is_new_style(cls)), TupleValue([Const(needs_grad(v)) for v in inputs]), *inputs]
    made = evaluate(m, known_function(m, torch_code.forward_without_gradients), args, raises=True)
    result, context = made.items_list(m)  # type: ignore[misc]
    assert isinstance(context, ObjectValue)
    if context.attrs.overlay.keys() & UNSUPPORTED.keys() or id(context) in reachable(
            [*m.frames, result, *m.mutated.values()]):
        raise Refusal("its context is used later")
    found = result.items_list(m) or () if type(result) is TupleValue else [result]
    refuse_instances(f"{cls.__name__}.forward", found)
    given = [v.fake for v in inputs if isinstance(v, TensorValue)]
    for value in found:
        if not isinstance(value, (TensorValue, Const)) or isinstance(value, TensorValue) and (
                value.fake.requires_grad or any(shares_memory(value.fake, fake) for fake in given)):
            raise Refusal(f"it returns {value}")
    return result


def as_it_is(m: Machine, cls: Any, inputs: list[Value], is_asked: bool = False) -> Value:
    """A node that runs the program's code, which is first executed on a trial."""
    context = ObjectValue(FunctionCtx)
    context.attrs.overlay["needs_input_grad"] = TupleValue([Const(needs_grad(v)) for v in inputs])
    forward = attributes.load_from_class(m, cls, "forward")
    result = trial(m, forward, inputs if is_new_style(cls) else [context, *inputs])
    if is_new_style(cls):
        trial(m, attributes.load_from_class(m, cls, "setup_context"), [context, TupleValue(inputs), result])
    refuse_saved_inference_tensors(m, context)
    target = node_target(cls)
    target.is_asked = is_asked      # type: ignore[attr-defined]
    return torch_call(m, "call_function", target, inputs, {})


def refuse_saved_inference_tensors(m: Machine, context: Any) -> None:
    """Break if the forward saves inference tensors for the backward. Autograd raises then, after it has run."""
    saved = context.attrs.overlay.get("to_save", NONE)
    if any(isinstance(v, TensorValue) and v.fake.is_inference() for v in saved.items_list(m) or ()):
        raise Break(Reason.GRADIENT, "an inference tensor that is saved for the backward,")


def is_new_style(cls: Any) -> bool:
    return cls.setup_context is not Function.setup_context


def needs_grad(value: Value) -> bool:
    fake = getattr(value, "fake", None)
    return fake is not None and fake.requires_grad


def node_target(cls: type, layout: Layout | None = None) -> Callable[..., Any]:
    """A plain function of the class's module, so that the printed graph refers to it by name."""
    def call(*args: Any) -> Any:
        if layout is None:
            return cls.apply(*args)  # type: ignore[attr-defined]
        forward, backward, *values = args
        if layout.reads_state or is_traced():
            return layout.function.apply(layout, forward, backward, *values)
        return cls.apply(*values[:layout.inputs])  # type: ignore[attr-defined]
    if layout is not None:
        call.layout = layout    # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = f"{cls.__name__}_apply"
    if cls.__module__.partition(".")[0] != "torch":     # fx takes a function of torch from there by its name
        call.__module__ = cls.__module__
    call.autograd_function = cls    # type: ignore[attr-defined]
    return call


def is_function_of_program(target: Any) -> bool:
    """Whether the target of a node calls an autograd function that the program defines."""
    return hasattr(target, "autograd_function")


def runs_code_of_program(target: Any) -> bool:
    """The same for a function whose code a compiler would trace, where a subgraph could be in its place."""
    return is_function_of_program(target) and layout_of(target) is None and not target.is_asked


def layout_of(target: Any) -> Layout | None:
    """How the arguments of a node are passed to the two subgraphs, which are its first arguments."""
    return getattr(target, "layout", None)


# ---- the call of a captured function ----------------------------------------------------------------------------
class Layout:
    """How the values of a node are passed to its two subgraphs.

    Arguments:
        cls: the program's class.
        inputs: how many of the values are arguments of the program's call. The others are what its code reads.
        forward, backward: which values the subgraphs take. The backward takes the gradients before, and what the
            forward has saved after them.
        results: how many results the forward has. What it returns after them is saved. 0 if it returns no tuple.
        constant: which results are not differentiable.
        reads_state: whether the program has changed objects that the code may read, and that are written after the
            graph; or whether the call makes the class.
        sets_grad: whether the backward turns gradients off or on. The subgraph sets them back to off.
    """

    def __init__(self, cls: type, inputs: int, forward: list[int], backward: list[int], results: int,
                 constant: list[int], reads_state: bool, sets_grad: bool) -> None:
        self.inputs, self.forward, self.backward, self.results = inputs, forward, backward, results
        self.constant, self.reads_state, self.sets_grad = constant, reads_state, sets_grad
        self.function: Any = type(cls.__name__, (OfSubgraphs,), {"__module__": cls.__module__})


class OfSubgraphs(Function):
    """An autograd function whose forward and backward are subgraphs."""

    @staticmethod
    def forward(ctx: Any, layout: Layout, forward: Any, backward: Any, *values: Any) -> Any:
        made = forward(*(values[i] for i in layout.forward))
        count = max(layout.results, 1)
        kept = [*(values[i] for i in layout.backward), *made[count:]]
        ctx.backward, ctx.layout, ctx.given = backward, layout, len(values)
        ctx.others = [None if isinstance(v, torch.Tensor) else v for v in kept]
        ctx.save_for_backward(*(v if isinstance(v, torch.Tensor) else None for v in kept))
        ctx.mark_non_differentiable(*(made[i] for i in layout.constant))
        return made[:count] if layout.results else made[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.layout.sets_grad and torch.is_grad_enabled():
            raise NotImplementedError("a gradient of a captured backward that turns gradients off")
        kept = [v if other is None else other for v, other in zip(ctx.saved_tensors, ctx.others, strict=True)]
        found = iter(ctx.backward(*grads, *kept))
        needed = [next(found) if i < ctx.layout.inputs else None for i in range(ctx.given)]
        return None, None, None, *needed


def is_of_subgraphs(node: Any) -> bool:
    """Whether a node of a history runs a captured backward."""
    return issubclass(node._forward_cls, OfSubgraphs)


class CapturedFunction:
    """One call of an autograd function, as a node with two subgraphs. Raises Refusal."""

    def __init__(self, m: Machine, cls: Any, inputs: list[Value]) -> None:
        self.m, self.cls, self.inputs = m, cls, inputs
        self.forward, self.backward = Region(m.builder), Region(m.builder)
        self.is_made = id(cls) in m.made_classes        # then there is no class before the graph that it could call
        self.reads_state = bool(m.mutated) or self.is_made
        self.sets_grad = False

    def record(self) -> Value:
        m = self.m
        ends = [self.follow(self.forward, torch_code.forward_of_function, [
            Const(self.cls), Const(is_new_style(self.cls)), TupleValue([Const(needs_grad(v)) for v in self.inputs]),
            *self.inputs])]
        result, context = ends[0].value.items_list(m)  # type: ignore[union-attr, misc]
        refuse_saved_inference_tensors(m, context)
        results, constant = self.results_of(result, context)
        for ref in results:
            with m.builder.fake_mode, torch.no_grad():
                self.backward.parameter(TensorRef(torch.empty_like(ref.fake)), "gradient")  # type: ignore[arg-type]
        ends.append(self.follow(self.backward, torch_code.backward_of_function, [
            Const(self.cls), context, *map(TensorValue, self.backward.parameters)]))
        gradients = self.gradients_of(ends[1].value)
        keep_states(m, ends)
        return self.node(results, constant, gradients, type(result) is TupleValue)

    def follow(self, region: Region, function: Any, args: list[Value]) -> End:
        builder, start = self.m.builder, Start(self.m, self.m.frames[-1])
        in_vain = builder.freed_in_vain
        with torch.no_grad():
            try:
                end = follow_call(self.m, known_function(self.m, function), args, region)
            except BaseException:
                start.restore()     # here, because what undoes ``enable_grad`` sets gradients to off
                raise
        if builder.freed_in_vain and not in_vain:   # the subgraph takes gradients, maybe only of what it has made
            builder.freed_in_vain = any(isinstance(ref.fake, torch.Tensor) and spent_leaves(ref.fake) is not None
                                        for ref in region.taken())
        if end.touched:
            touch = next(iter(end.touched.values()))
            raise Refusal(f"{touch.where} changes {touch.value}, which was there before")
        if (changed := region.changed()) is not None:
            raise Refusal(f"it changes {changed.label or 'a tensor'} in place")
        self.sets_grad = any(setter is SET_GRAD for setter, *_ in end.states)
        end.states = [entry for entry in end.states if entry[0] is not SET_GRAD]    # autograd sets it back
        if any(node.meta.get("draws") for node in region.nodes) and region is self.backward:
            raise Refusal("its backward draws random numbers")
        return end

    def results_of(self, result: Value, context: Any) -> tuple[list[TensorRef], list[int]]:
        """The results of the forward, and which of them are not differentiable."""
        told = context.attrs.overlay
        for name, method in UNSUPPORTED.items():
            if name in told:
                raise Refusal(f"it calls {method}")
        found = result.items_list(self.m) if type(result) is TupleValue else [result]
        if not found or not all(isinstance(v, TensorValue) for v in found):
            raise Refusal(f"it returns {result}")
        refuse_instances(f"{self.cls.__name__}.forward", found)
        refs = [v.ref for v in found]  # type: ignore[attr-defined]
        marked = told.get("non_differentiable")
        ids = {id(v.ref) for v in (marked.items_list(self.m) or ()) if isinstance(v, TensorValue)} if marked else set()
        return refs, [i for i, ref in enumerate(refs) if id(ref) in ids]

    def gradients_of(self, result: Value | None) -> list[TensorRef | None]:
        """The gradients for the inputs. Autograd accepts None for more inputs than there are."""
        assert result is not None
        found: Sequence[Value] = (result.items_list(self.m) or ()) if type(result) is TupleValue else [result]
        if len(found) < len(self.inputs) or any(v is not NONE and v.real is not None
                                                for v in found[len(self.inputs):]):
            raise Refusal("its backward returns another number of gradients")
        if not all(isinstance(v, TensorValue) or v is NONE or isinstance(v, Const) and v.real is None for v in found):
            raise Refusal("its backward returns something else than gradients")
        return [v.ref if isinstance(v, TensorValue) else None for v in found[:len(self.inputs)]]

    def node(self, results: list[TensorRef], constant: list[int], gradients: list[TensorRef | None],
             is_tuple: bool) -> Value:
        m, forward, backward = self.m, self.forward, self.backward
        for region, refs in ((forward, results), (backward, gradients)):
            for ref in refs:
                if ref is not None:
                    region.node_of(ref)
        saved = [ref for ref in backward.taken() if forward.is_inside(ref)]
        backward_takes = [ref for ref in backward.taken() if not forward.is_inside(ref)]
        for ref in saved:
            forward.node_of(ref)
        forward_takes = forward.taken()
        given = [self.ref_of(v) for v in self.inputs]
        inputs = [NONE if ref is None else v for ref, v in zip(given, self.inputs, strict=True)]
        known = [*(id(ref) for ref in given)]
        others = [ref for ref in {id(r): r for r in (*forward_takes, *backward_takes)}.values() if id(ref) not in known]
        known += map(id, others)
        layout = Layout(self.cls, len(given), [known.index(id(ref)) for ref in forward_takes],
                        [known.index(id(ref)) for ref in backward_takes], len(results) if is_tuple else 0, constant,
                        self.reads_state or None in given, self.sets_grad)
        names = (backward.close(gradients, [*backward_takes, *saved], "backward"),
                 forward.close([*results, *saved], forward_takes, "forward"))
        modules = [Given(ModuleRef(m.builder.modules[name], m.builder.subgraph(name))) for name in reversed(names)]
        return torch_call(m, "call_function", node_target(layout.function if self.is_made else self.cls, layout), [
            *modules, *inputs, *map(Given, others)], {})

    def ref_of(self, value: Value) -> Any:
        """The tensor or number of the graph that an input is; the input itself if the graph has it as a constant; None
        for an object that only the subgraphs know.
        """
        try:
            found = value.graph_argument(self.m, {}, True)
        except Break as stop:
            if stop.reason is not Reason.OPAQUE_VALUE or issubclass(value.pytype, torch.Tensor):
                raise
            return None
        if isinstance(found, NumberRef) and issubclass(value.pytype, Enum):
            return None
        return found if isinstance(found, TensorRef) else value


class Given(Value):
    """A part of the graph as an argument of an operation."""

    def __init__(self, ref: TensorRef) -> None:
        self.ref = ref

    def graph_argument(self, m: Any, found: dict[int, Any], as_number: bool = False) -> Any:
        return self.ref
