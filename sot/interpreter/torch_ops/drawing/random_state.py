"""Random states: seeds, states that are read and written, generators. Each call is a node, so the graph draws the same
numbers as Python and leaves the same state.

A backend that compiles its graph may draw other numbers, or at other times. There each of these calls is a break.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import GeneratorRef, TensorRef
from sot.graph.generator_nodes import (
    generator_state,
    new_generator,
    seed_all,
    seed_all_anew,
    seed_generator,
    seed_generator_anew,
    seed_gpus,
    set_generator_state,
)
from sot.guards.draws import is_drawn
from sot.guards.terms import leaves
from sot.interpreter.builtins.common import take
from sot.interpreter.torch_ops.data_sizes import asked_in_graph
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.values.base import ABSENT, NONE, Const, Value
from sot.values.deferred_scalars import DeferredScalar
from sot.values.generators import GeneratorOfNumbers, refuse_draws
from sot.values.numbers import DynamicNumber, is_dynamic, within
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known

if TYPE_CHECKING:
    from torch import fx

    from sot.interpreter.machine import Machine

FIRST_SEED = torch.Generator().initial_seed()
STATE_SIZE = torch.get_rng_state().numel()


def record(m: Machine, function: Any, *args: Any, result: Any = None) -> fx.Node:
    """The node of a call that changes the random state or depends on it."""
    refuse_draws(m)
    m.builder.fake_mode.draws = True
    node = m.builder.record("call_function", function, args, {}, result, m.stack_trace())
    node.meta["draws"] = True
    return node


def seed_argument(m: Machine, value: Value) -> Any:
    """A seed as an argument of a node."""
    if isinstance(value, DeferredScalar):
        if value.pytype is not int or not value.is_in_graph:
            raise value.needed()
        return value.graph_number(m)
    if isinstance(value, DynamicNumber) and value.pytype is int and (
            any(map(is_drawn, leaves(value.term))) or within(m, value, -1 << 63, (1 << 64) - 1)):
        return value.ref(m) if value.varies else value.constant()
    if not isinstance(value, Const) or type(value.real) is not int or not -1 << 63 <= value.real < 1 << 64:
        raise Break(Reason.RANDOM, "a seed that is not an integer of 64 bits, or")
    return value.real


def state_argument(value: Value | None) -> TensorRef:
    if not isinstance(value, TensorValue) or (value.fake.dtype, tuple(value.fake.shape), value.fake.device.type) != (
            torch.uint8, (STATE_SIZE,), "cpu"):
        raise Break(Reason.RANDOM, "a random state that is not the CPU's, or")
    return value.ref


def a_state(m: Machine, function: Any, *args: Any) -> Value:
    """The tensor that represents a state."""
    with m.builder.fake_mode:
        fake: Any = torch.empty(STATE_SIZE, dtype=torch.uint8)
    return TensorValue(m.builder.adopt(record(m, function, *args, result=fake), fake))


# ---- generators
@handles(torch.Generator)
def make(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    device, = take("Generator", args, kwargs, "device")
    if device is not None and (not isinstance(device, Const) or torch.device(device.real).type != "cpu"):
        raise Break(Reason.RANDOM, "a generator that is not the CPU's, or")
    made = GeneratorOfNumbers(GeneratorRef(None, record(m, new_generator)))
    made.seed = Const(FIRST_SEED)
    return made


def of_cpu(m: Machine, value: Value) -> GeneratorOfNumbers:
    if not isinstance(value, GeneratorOfNumbers):
        raise Break(Reason.RANDOM, "a generator that is not the CPU's, or")
    return value.of_cpu(m)


def note_seed(m: Machine, generator: GeneratorOfNumbers, seed: Value | None) -> None:
    before = generator.seed
    m.undoable(lambda: setattr(generator, "seed", before))
    is_known = isinstance(seed, Const) and not is_dynamic(seed) and seed.real >= 0 or isinstance(seed, DeferredScalar)
    generator.seed = seed if is_known else None


@handles(torch.Generator.manual_seed)
def seed(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, given = take("manual_seed", args, kwargs, "self", "seed", required=2)
    generator = of_cpu(m, value)
    record(m, seed_generator, generator.ref, seed_argument(m, given))
    note_seed(m, generator, given)
    return generator


def seed_anew(m: Machine, generator: GeneratorOfNumbers, function: Any, *operands: Any) -> Value:
    """A seed that the system draws is a number of the graph."""
    refuse_draws(m)
    if not asked_in_graph.can_ask(m, []):
        raise Break(Reason.RANDOM, "a call that sets or reads the random state, or")
    m.builder.fake_mode.draws = True
    number = asked_in_graph.answered(m, "seed", int, function, operands, bits=64)
    note_seed(m, generator, number)
    return number


@handles(torch.Generator.seed)
def seed_of_the_system(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = take("seed", args, kwargs, "self", required=1)
    generator = of_cpu(m, value)
    return seed_anew(m, generator, seed_generator_anew, generator.ref)


@handles(torch.Generator.initial_seed)
def initial_seed(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    generator = of_cpu(m, args[0]) if len(args) == 1 and not kwargs else None
    if generator is not None and generator.seed is not None and not may_be_another(m, generator):
        return generator.seed
    raise Break(Reason.RANDOM, "reading the seed of a generator, or")


def may_be_another(m: Machine, generator: GeneratorOfNumbers) -> bool:
    """Whether other generators exist that may be the same object at the next call."""
    return generator.real is not ABSENT and any(
        isinstance(value, GeneratorOfNumbers) and value is not generator for _, value in m.by_id.values())


@handles(torch.Generator.get_state)
def get_state(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return a_state(m, generator_state, of_cpu(m, args[0]).ref)


@handles(torch.Generator.set_state)
def set_state(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, given = take("set_state", args, kwargs, "self", "new_state", required=2)
    generator = of_cpu(m, value)
    record(m, set_generator_state, generator.ref, state_argument(given))
    note_seed(m, generator, None)
    return generator


# ---- the global states
def default_generator(m: Machine) -> GeneratorOfNumbers:
    found = wrap_known(m, torch.default_generator)
    assert isinstance(found, GeneratorOfNumbers)
    return found


@handles(torch.random.manual_seed)
def seed_everything(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given, = take("manual_seed", args, kwargs, "seed", required=1)
    record(m, seed_all, seed_argument(m, given))
    generator = default_generator(m)
    note_seed(m, generator, given)
    return generator


@handles(torch.cuda.manual_seed_all, torch.cuda.manual_seed)
def seed_of_gpus(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given, = take("manual_seed", args, kwargs, "seed", required=1)
    if torch.cuda.device_count() > 1:
        raise Break(Reason.RANDOM, "a call that seeds some of several GPUs, or")
    record(m, seed_gpus, seed_argument(m, given))
    return NONE


@handles(torch.random.get_rng_state)
def get_rng_state(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("get_rng_state", args, kwargs)
    return a_state(m, generator_state, default_generator(m).ref)


@handles(torch.random.set_rng_state)
def set_rng_state(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given, = take("set_rng_state", args, kwargs, "new_state", required=1)
    set_state(m, [default_generator(m), given], {})
    return NONE


@handles(torch.random.initial_seed)
def initial_seed_of_all(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return initial_seed(m, [default_generator(m)], {})


@handles(torch.random.seed)
def any_seed(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    take("seed", args, kwargs)
    return seed_anew(m, default_generator(m), seed_all_anew)
