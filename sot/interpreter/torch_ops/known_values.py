"""Tensors with known values: small integer inputs, and values computed only from them.

Positions, lengths, masks and the edges of graphs are such tensors. If a program reads their values
(``lengths.max().item()``, ``if ids.eq(0).any()``, ``x[mask]``), the operations are run on copies of the inputs, and
the values of these inputs are guarded. Like a number, such an input is a constant until its values have changed once.
From then on, and for a tensor of an input_spec, reading it is a break, unless it counts (``counters.py``).

The results are static: a number, an index of known positions, or a copy of a tensor that the entry holds.
"""
from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from sot.graph import NumberRef, TensorRef
from sot.graph.generator_nodes import NODES
from sot.graph.nodes import name_of
from sot.guards.origin import known
from sot.guards.tensor_guards import ValuesGuard
from sot.interpreter.torch_ops.drawing import known_draws
from sot.support.random_states import kept_random_states
from sot.torch_compat.fake_tensors import FakeTensor, is_symbolic
from sot.torch_compat.global_state import SET_GRAD
from sot.torch_compat.tensors import is_plain, storage_id

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

SOURCE_LIMIT = 4096         # elements of an input,
RESULT_LIMIT = 65536        # of a value computed from it,
WORK_LIMIT = 1 << 25        # bytes of all that is computed on the way: masks of attention are large,
STEP_LIMIT = 2000           # and operations in between
OWN = ("torch", "_operator", "builtins")
# Operations that take only the form of an operand: its dtype, shape, strides and device. The place of that operand.
FORMS = {**dict.fromkeys(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_empty",
                          "new_tensor"), 0),
         **dict.fromkeys(("expand_as", "view_as", "reshape_as", "type_as", "to"), 1)}
INDEXING = ("getitem", "__getitem__")


class NotKnown(Exception):
    """The value depends on something other than small integer inputs."""


# ---- operations for which fake tensors have no result --------------------------------------------------
Call = tuple[Any, tuple, dict]


def answer(m: Machine, kind: str, target: Any, args: tuple, kwargs: dict) -> tuple[Any, Call] | None:
    """The result of an operation that needs values, and the call to record for it; None if they are not known."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    for way in (with_numbers, with_positions, with_total, by_running):
        try:
            found = way(m, kind, name, target, args, kwargs)
        except Exception:  # noqa: BLE001, S112 - NotKnown, or the operation does not go that way
            continue
        if found is not None:
            return found
    return None


def with_numbers(m: Machine, kind: str, name: str, target: Any, args: tuple, kwargs: dict) -> tuple | None:
    """``torch.arange(n)`` with numbers in place of tensors of one element."""
    single = [ref for ref in refs_in((args[1:] if kind == "call_method" else args, kwargs))
              if not is_symbolic(ref.fake) and ref.fake.numel() == 1]
    if not single or any(map(is_mask, index_of(name, args))):       # a mask of one element is not a truth value
        return None
    numbers = {id(ref): value.item() for ref, value in zip(single, values_of(m, single), strict=True)}
    first = args[:1] if kind == "call_method" else ()
    new_args, new_kwargs = fx.node.map_aggregate(
        (args[len(first):], kwargs), lambda a: numbers.get(id(a), a) if isinstance(a, TensorRef) else a)
    result = m.builder.run(kind, target, (*first, *new_args), new_kwargs)
    done = any_tensor(result) or (result is None and name in ("setitem", "__setitem__"))
    return (result, (target, (*first, *new_args), new_kwargs)) if done else None


def with_positions(m: Machine, kind: str, name: str, target: Any, args: tuple, kwargs: dict) -> tuple | None:
    """``x[mask]`` with the positions at which the mask is true."""
    index = index_of(name, args)
    if not any(map(is_mask, index)):
        return None
    parts: list[Any] = []
    for part in index:
        if not is_mask(part):
            parts.append(part)
            continue
        mask, = values_of(m, [part])
        parts += [constant(m, found, "positions") for found in mask.nonzero(as_tuple=True)] if mask.dim() else [
            bool(mask)]
    call = (args[0], tuple(parts))
    return m.builder.run(kind, target, call, kwargs), (target, call, kwargs)


def index_of(name: str, args: tuple) -> tuple:
    """The parts of an index; none if the operation is not ``x[index]``."""
    if name not in INDEXING:
        return ()
    return args[1] if isinstance(args[1], tuple) else (args[1],)


def is_mask(part: Any) -> bool:
    return isinstance(part, TensorRef) and part.fake.dtype in (torch.bool, torch.uint8)


def with_total(m: Machine, kind: str, name: str, target: Any, args: tuple, kwargs: dict) -> tuple | None:
    """``x.repeat_interleave(repeats)`` with the size of its result."""
    repeats = kwargs.get("repeats", args[1] if len(args) > 1 else None)
    if name != "repeat_interleave" or not isinstance(repeats, TensorRef):
        return None
    value, = values_of(m, [repeats])
    x = args[0]
    dim = kwargs.get("dim", args[2] if len(args) > 2 else None)
    count = x.fake.numel() if dim is None else x.fake.size(dim)
    total = {**kwargs, "output_size": int(value.expand(count).sum())}
    return m.builder.run(kind, target, args, total), (target, args, total)


def by_running(m: Machine, kind: str, name: str, target: Any, args: tuple, kwargs: dict) -> tuple | None:
    """The result itself. A tensor among the results is a copy of one that the entry holds."""
    refs = list(refs_in((args, kwargs)))
    found = {id(ref): value for ref, value in zip(refs, values_of(m, refs), strict=True)}
    real_args, real_kwargs = fx.node.map_aggregate(
        (args, kwargs), lambda a: found[id(a)] if isinstance(a, TensorRef) else a)
    with torch.no_grad():
        result = call(kind, target, real_args, real_kwargs)
    if isinstance(result, torch.Tensor):
        if any(storage_id(result) == storage_id(value) for value in found.values()):
            return None
        held = constant(m, result, name)
        return m.builder.run("call_method", "clone", (held,), {}), ("clone", (held,), {})
    return None if any_tensor(result) else (result, (target, args, kwargs))


def constant(m: Machine, real: torch.Tensor, label: str) -> TensorRef:
    """A tensor that the entry holds, as an input of the graph."""
    ref = m.builder.input(real, label)
    m.input_origins[id(ref)] = known(real, label)
    m.builder.node_of(ref)
    return ref


def has_other_states(m: Machine, harmless: Container[Any] = (SET_GRAD,)) -> bool:
    """Whether the trace has changed what values are computed with, or memory behind torch's back. ``harmless``: the
    functions that change a state without which the values would be the same.
    """
    return m.array_memory.is_written or any(setter not in harmless for setter, *_ in m.state_log)


# ---- values ---------------------------------------------------------------------------------------------------
def values_of(m: Machine, refs: Iterable[TensorRef]) -> list[torch.Tensor]:
    """The values of tensors at this point of the trace. The inputs that they come from are guarded."""
    refs = list(refs)
    if has_other_states(m) or any(ref.node is not None and not is_symbolic(ref.fake)
                                  and ref.fake.numel() > RESULT_LIMIT for ref in refs):
        raise NotKnown
    inputs = {ref.node: ref for ref in m.builder.inputs}
    direct = {id(ref): ref for ref in refs if ref.node is None or ref.node in inputs}
    forms = set[fx.Node]()
    needed = slice_of(m, [ref.node for ref in refs if ref.node is not None], forms=forms)
    sources = [inputs[node] for node in needed if node in inputs]
    sources += [ref for ref in direct.values() if ref.node is None]
    steps = [node for node in m.builder.nodes if node in needed]
    origins = [source_origin(m, ref) for ref in sources]
    copies = {id(ref): copy_of(ref) for ref in sources}
    env: dict[Any, Any] = {node: of_form(node) for node in forms - needed}
    env |= {ref.node: copies[id(ref)] for ref in sources}
    run(steps, env)
    for node in forms:
        node.meta["seen"] = True
    for ref, origin in zip(sources, origins, strict=True):
        if origin is not None:
            m.guard(ValuesGuard(origin, copy_of(ref)))
    return [copies[id(ref)] if id(ref) in copies else env[ref.node] for ref in refs]


def run(steps: list[fx.Node], env: dict[Any, Any]) -> None:
    """Compute the values of nodes, and draw what they draw."""
    with torch.no_grad(), kept_random_states():
        for node in steps:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
            env[node] = call(node.op, node.target, args, kwargs)


def truth_by_sizes(m: Machine, ref: TensorRef) -> bool | None:
    """The truth of a tensor that the program makes of sizes and constants alone, such as the comparison of a mask with
    a causal one. Sizes are those of the captured call. None if it depends on anything else.
    """
    numbers: dict[Any, Any] = {node: found.real for node, found in m.builder.computed.items()}
    numbers |= {found.node: found.real for found in m.builder.inputs if isinstance(found, NumberRef)}
    if ref.node is None or m.builder.region is not None or m.array_memory.is_written:
        return None
    try:
        needed = slice_of(m, [ref.node], numbers)
        env = {node: numbers[node] for node in needed if node in numbers}
        if None in env.values() or any(node.op == "placeholder" for node in needed - env.keys()):
            return None
        run([node for node in m.builder.nodes if node in needed and node not in env], env)
        return bool(env[ref.node])
    except Exception:  # noqa: BLE001 - NotKnown, or an operation that does not go this way
        return None


def copy_of(ref: TensorRef) -> torch.Tensor:
    assert ref.real is not None
    return ref.real.detach().clone()


def source_origin(m: Machine, ref: TensorRef) -> Any:
    """The origin of an input whose values may be known; None for one that the entry holds anyway."""
    origin = m.input_origins.get(id(ref))
    real = ref.real
    if origin is None or not isinstance(real, torch.Tensor) or not is_plain(real) or real.layout is not torch.strided:
        raise NotKnown
    if hasattr(origin, "held"):
        return None
    if real.is_floating_point() or real.is_complex() or real.numel() > SOURCE_LIMIT or (
            origin in m.varies.origins or str(origin) in m.varies.named or is_symbolic(ref.fake)):
        raise NotKnown
    return origin


def slice_of(m: Machine, wanted: list[fx.Node], numbers: Container[fx.Node] = (),
             forms: set[fx.Node] | None = None) -> set[fx.Node]:
    """The nodes that values depend on: through arguments, and through in-place changes of memory. ``numbers`` are
    known, and so sizes may be symbols. ``forms`` gets the nodes whose form is needed, not their values; without it
    all values are needed.
    """
    changing = [node for node in m.builder.nodes if "changes" in node.meta]
    needed: set[fx.Node] = set()
    while True:
        follow(m, wanted, needed, numbers, forms)
        memory = memory_of(needed).keys() if changing else set()
        wanted = [node for node in changing if node not in needed and node.meta["changes"] & memory]
        if not wanted:
            break
    if not numbers and sum(memory_of((*needed, *(forms or ()))).values()) > WORK_LIMIT:
        raise NotKnown
    if forms and memory_of(forms).keys() & set[int]().union(*(node.meta["changes"] for node in changing)):
        raise NotKnown      # a change in place may change the form, and a fake has the last one
    if any(node.meta.get("draws") for node in needed) and not all(map(known_draws.is_exact, needed)):
        raise NotKnown
    return needed


def follow(m: Machine, wanted: list[fx.Node], needed: set[fx.Node], numbers: Container[fx.Node],
           forms: set[fx.Node] | None) -> None:
    while wanted:
        node = wanted.pop()
        if node in needed:
            continue
        if node in numbers:
            needed.add(node)
            continue
        state = known_draws.needed_for(m, node) if node.meta.get("draws") else []
        if state is None or len(needed) > STEP_LIMIT or not (
                numbers and all(isinstance(fake, torch.Tensor) for fake in fakes_of(node))
                or all(map(is_static, fakes_of(node)))):
            raise NotKnown
        needed.add(node)
        form = None
        if forms is not None and (form := form_taken(node)) is not None:
            forms.add(form)
        wanted += [*(given for given in node.all_input_nodes if given is not form), *state]


def form_taken(node: fx.Node) -> fx.Node | None:
    """The operand of which an operation takes only the form; None if it needs the values of all."""
    at = FORMS.get(name_of(node), len(node.args))
    operand = node.args[at] if at < len(node.args) else None
    if not isinstance(operand, fx.Node) or sum(operand is given for given in (*node.args, *node.kwargs.values())) > 1:
        return None
    fake = operand.meta.get("example_value")
    has_form = isinstance(fake, FakeTensor) and fake.layout is torch.strided and not is_symbolic(fake)
    return operand if has_form else None


def of_form(node: fx.Node) -> torch.Tensor:
    """A tensor that has the form of a node's result, and any values."""
    fake = node.meta["example_value"]
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def is_static(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and not is_symbolic(fake)


def memory_of(nodes: Iterable[fx.Node]) -> dict[int, int]:
    """The memory of the results of nodes, with its bytes."""
    return {storage_id(fake): fake.untyped_storage().nbytes() for node in nodes for fake in fakes_of(node)}


def fakes_of(node: fx.Node) -> Iterator[Any]:
    result = node.meta.get("example_value")
    if isinstance(result, (tuple, list)):
        yield from (item for item in result if isinstance(item, torch.Tensor))
    elif isinstance(result, torch.Tensor):
        yield result


def refs_in(value: Any) -> Iterator[TensorRef]:
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, slice):
        yield from refs_in((value.start, value.stop, value.step))
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from refs_in(item)


def any_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, (tuple, list)) and any(map(any_tensor, value)))


def call(kind: str, target: Any, args: tuple, kwargs: dict) -> Any:
    """Run a torch operation on real tensors, but no user code, which may have effects."""
    if kind == "call_method":
        target, args = getattr(args[0], target), args[1:]
    elif target not in NODES and (not str(getattr(target, "__module__", "")).startswith(OWN)
                                  or getattr(target, "namespace", "aten") != "aten"):
        raise NotKnown
    try:
        return target(*args, **kwargs)
    except Exception as e:
        raise NotKnown from e
