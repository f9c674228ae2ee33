"""Operations that make or take quantized tensors, or nested tensors with strides. Fakes do not have these, so capture
runs the operations twice, on real tensors of the same kind with different elements (``specimen_values.py``). An
operation of which the results differ in more than their elements is a break, and so is a change in place.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sot.graph import TensorRef
from sot.interpreter.control_flow import failures
from sot.interpreter.effects.torch_warnings import taken
from sot.interpreter.numpy_ops.memory import Memory
from sot.interpreter.torch_ops import overrides
from sot.interpreter.torch_ops.constructors.specimen_values import Specimens, SpecimenTensor
from sot.support.errors import Break, Reason
from sot.support.registry import handles
from sot.torch_compat.fake_tensors import is_symbolic
from sot.torch_compat.functions import is_in_transform, nested_makers
from sot.torch_compat.global_state import in_level
from sot.torch_compat.tensors import CONSTANT_RESULTS, is_plain, storage_id
from sot.values.base import ANSWERS, NONE, Const, Value
from sot.values.iterators import SequenceIterator
from sot.values.numbers import is_dynamic
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from torch import fx

    from sot.interpreter.machine import Machine

# Methods whose results without tensors do not depend on elements.
CONSTANTS = CONSTANT_RESULTS | {"q_scale", "q_zero_point", "qscheme", "q_per_channel_axis"}
SIZE_LIMIT = 1 << 20        # elements of a real tensor in place of one of the program


def among(*values: Value) -> bool:
    return any(isinstance(value, SpecimenTensor) for value in values)


def called(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call an operation one of whose arguments is such a tensor, or whose result is one."""
    name = getattr(real, "__name__", str(real))
    if not m.assumptions.interprets or m.modes or m.builder.region is not None or m.watch is not None or (
            in_level(m.state_log)):
        raise Break(Reason.OTHER_TENSOR, f"a result of {name} is a quantized or a nested tensor")
    trials = [Trial(m, real, args, kwargs, high) for high in (False, True)]
    results = tuple(trial.result for trial in trials)
    if described(results[0]) != described(results[1]):
        raise Break(Reason.TENSOR_VALUE, name)
    if not any(isinstance(result, torch.Tensor) for result in parts(results[0])):
        if name not in CONSTANTS:
            raise Break(Reason.TENSOR_VALUE, name)
        return Const(results[0]) if isinstance(results[0], torch.qscheme) else wrap_new(m, results[0])
    return recorded(m, real, args, kwargs, trials)


class Trial:
    """The operation on real tensors."""

    def __init__(self, m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value], high: bool) -> None:
        self.m, self.high = m, high
        self.given: list[tuple[Value, torch.Tensor]] = []
        name = getattr(real, "__name__", str(real))
        m.warned.clear()
        try:
            with torch.no_grad():
                values, named = [self.argument(v) for v in args], {k: self.argument(v) for k, v in kwargs.items()}
                versions = [tensor._version for _, tensor in self.given]
                self.result = real(*values, **named)
        except Break:
            raise
        except Exception as e:
            raise Break(Reason.OPERATION_FAILED, f"{name}: {e}".splitlines()[0]) from None
        if versions != [tensor._version for _, tensor in self.given]:
            raise Break(Reason.SIDE_EFFECT, f"{name}, which changes a quantized or a nested tensor,")

    def argument(self, value: Value) -> Any:
        if isinstance(value, (ListValue, TupleValue)) and value.pytype in (list, tuple, torch.Size):
            return value.pytype(map(self.argument, self.m.settle(value.items)))
        if isinstance(value, SpecimenTensor):
            made = value.specimens[self.high]
        elif isinstance(value, TensorValue):
            made = self.like(value)
        elif isinstance(value, Const) and not is_dynamic(value):
            return value.real
        else:
            raise Break(Reason.OTHER_TENSOR, f"{value} beside a quantized or a nested tensor")
        self.given.append((value, made))
        return made

    def like(self, value: TensorValue) -> torch.Tensor:
        fake = value.fake
        if value.pytype is not torch.Tensor or fake.requires_grad or is_symbolic(fake) or fake.numel() > SIZE_LIMIT or (
                is_in_transform(fake) or fake.layout is not torch.strided or fake.device.type != "cpu"
                or overrides.asked(self.m, value)):
            raise Break(Reason.OTHER_TENSOR, f"{value} beside a quantized or a nested tensor")
        made = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        return made.fill_(self.high)

    def memory_of(self, m: Machine, result: torch.Tensor) -> Memory | None:
        """The memory of the argument that a result is a view of."""
        for value, tensor in self.given:
            if storage_id(tensor) == storage_id(result):
                return value.memory if isinstance(value, SpecimenTensor) else m.array_memory.of(value.fake)  # type: ignore[attr-defined]
        return None


@ANSWERS.add((SpecimenTensor, "len"))
def len_of_specimen(m: Machine, value: SpecimenTensor) -> Value:
    try:
        return Const(len(value.specimens[0]))
    except (RuntimeError, TypeError) as e:      # a nested tensor of matrices has none
        raise Break(Reason.OPERATION_FAILED, str(e)) from None


@ANSWERS.add((SpecimenTensor, "iterate"))
def iterate_specimen(m: Machine, value: SpecimenTensor) -> Value:
    rows = called(m, torch.Tensor.unbind, [value], {})
    assert isinstance(rows, (ListValue, TupleValue))
    return SequenceIterator(None, m.settle(rows.items), type(iter(())))


def parts(result: Any) -> tuple:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def described(result: Any) -> Any:
    """What of a result must not depend on elements."""
    if isinstance(result, (tuple, list)):
        return type(result), [described(part) for part in result]
    if not isinstance(result, torch.Tensor):
        return type(result), result
    if type(result) is not torch.Tensor or result.layout is not torch.strided or result.requires_grad:
        raise Break(Reason.OTHER_TENSOR, f"a result of {type(result).__name__} and {result.layout}")
    if result.is_nested:
        return "nested", result.dtype, result._nested_tensor_size().tolist(), result._nested_tensor_strides().tolist()
    return (result.dtype, result.shape, result.stride(), *quantization(result))


def quantization(tensor: torch.Tensor) -> tuple:
    if not tensor.is_quantized:
        return ()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return tensor.qscheme(), tensor.q_scale(), tensor.q_zero_point()
    return tensor.qscheme(), tensor.q_per_channel_axis()


def recorded(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value], trials: list[Trial]) -> Value:
    """The node of the operation, and the values of its results."""
    m.builder.fake_mode.start_operation()
    m.builder.fake_mode.note_refusal()
    failures.expect(m, real.__name__)
    given, named = tuple(argument(m, v) for v in args), {k: argument(m, v) for k, v in kwargs.items()}
    first, second = (trial.result for trial in trials)
    node = m.builder.record("call_function", real, given, named, None, m.stack_trace())
    node.meta["refuses"] = True
    if m.warned:
        node.meta["torch_warns"] = taken(m)
    if isinstance(first, torch.Tensor):
        return made(m, node, trials[0], (first, second))
    items = [made(m, m.builder.item(node, i, None), trials[0], pair) if isinstance(pair[0], torch.Tensor)
             else wrap_new(m, pair[0]) for i, pair in enumerate(zip(first, second, strict=True))]
    return ListValue(items) if isinstance(first, list) else TupleValue(items)


def argument(m: Machine, value: Value) -> Any:
    if isinstance(value, (ListValue, TupleValue)):
        return value.pytype(argument(m, v) for v in m.settle(value.items))
    if isinstance(value, (SpecimenTensor, TensorValue)):
        assert isinstance(value.ref, TensorRef)
        return value.ref
    return value.constant()


def made(m: Machine, node: fx.Node, trial: Trial, pair: Specimens) -> Value:
    result = pair[0]
    if (same := next((value for value, tensor in trial.given if tensor is result), None)) is not None:
        return same
    memory = trial.memory_of(m, result)
    if result.is_nested or result.is_quantized:
        return SpecimenTensor(pair, node, memory or Memory())
    if not is_plain(result):
        raise Break(Reason.OTHER_TENSOR, f"a result of {node.target}")
    fake = m.builder.fake_mode.from_tensor(without_base(result), static_shapes=True)
    node.meta["example_value"] = fake
    value = TensorValue(m.builder.adopt(node, fake))
    if memory is not None:
        m.array_memory.add(memory, fake)
        m.builder.untracked.append(value.ref)
    return value


def without_base(result: torch.Tensor) -> torch.Tensor:
    """A tensor of the same metadata, which is a view of a plain tensor if this one is a view of another kind."""
    if not result._is_view():
        return result
    memory = torch.empty(result.untyped_storage().nbytes() // result.itemsize, dtype=result.dtype)
    return memory.as_strided(result.shape, result.stride(), result.storage_offset())


def _maker(real: Any) -> None:
    @handles(real)
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs.get("requires_grad", NONE).constant():
            raise Break(Reason.OTHER_TENSOR, "a nested tensor that requires grad")
        return called(m, real, args, kwargs)


for _real in (torch.quantize_per_tensor, torch.quantize_per_channel, *nested_makers):
    _maker(_real)
