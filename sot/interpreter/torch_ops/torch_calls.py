"""Tensor operations: run on fake tensors, recorded as graph nodes.

``torch_call`` is the only entry. The operation runs on the fakes first. Its result decides:

* a tensor that was an argument (``x.add_``, ``out=``): the same Value, and a node for the effect;
* new tensors, alone or in tuples and lists: a node, and ``getitem`` nodes for its parts;
* no tensor (a size, a dtype, a bool): a constant, and no node.

An operation that needs a tensor's value, or that raises, is a break. Python then runs it, or raises.
"""
from __future__ import annotations

import re
import sys
import types
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.graph import NumberRef, TensorRef, fake_rules
from sot.graph.nodes import bound
from sot.graph.number_rules import is_of_lists, takes_tensors
from sot.graph.refs import version_of
from sot.guards.assumptions import RestartCapture
from sot.guards.guards import IsGuard
from sot.guards.origin import Attr, known
from sot.interpreter.control_flow import failures, refusals
from sot.interpreter.effects import uncaptured_code
from sot.interpreter.effects.torch_warnings import taken, warn_later
from sot.interpreter.numpy_ops import numpy_arrays
from sot.interpreter.objects import tensor_facts
from sot.interpreter.torch_ops import deferred_scalars, elements, known_values, lost_when_compiled, overrides
from sot.interpreter.torch_ops.data_sizes import (
    asked_in_graph,
    counters,
    given_as_tensors,
    integers,
    operations,
    refused_numbers,
)
from sot.interpreter.torch_ops.data_sizes.float_arguments import with_number_places
from sot.interpreter.torch_ops.refused_changes import refuse_changes
from sot.interpreter.torch_ops.wrappers import ragged_sizes
from sot.interpreter.torch_ops.wrappers.code_of_classes import admit, refusal_of
from sot.support.errors import Break, Reason
from sot.torch_compat import functions
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.fake_tensors import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    enable_python_dispatcher,
    forget_constant,
    is_symbolic,
)
from sot.torch_compat.op_effects import CHECKING_COMPOSITES, is_for_effects
from sot.torch_compat.subclasses.wrappers import is_wrapper_class
from sot.torch_compat.tensors import ASKED_METHODS, CONSTANT_RESULTS, storage_ids
from sot.values.base import NONE, Const, Opaque, Value
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue, overrides_operations
from sot.values.wrapping import wrap_new

if TYPE_CHECKING:
    from torch import fx

    from sot.interpreter.machine import Machine

NO_DATA = "its data is not allocated yet"     # a fake tensor's message when C++ reads its values

LEAF_MODULES = frozenset({"torch.nn.functional", "torch.functional", "torch._tensor", "torch.fft", "torch.linalg",
                          "torch.special"})
# Python functions of these modules that are inlined like user code, or that show a tensor to Python.
NOT_LEAVES = frozenset({"__repr__", "__format__", "__str__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__array__",
                        "__setstate__", "__iter__", "__len__", "backward", "register_hook", "storage", "__dir__",
                        "share_memory_", "register_post_accumulate_grad_hook", "is_scripting", "_type",
                        "has_torch_function", "has_torch_function_unary", "handle_torch_function", "from_numpy",
                        "from_file", "frombuffer", "_print", "_canonical_mask", "_none_or_dtype", "_mha_shape_check",
                        "gaussian_nll_loss"})
# Methods of tensors that show their values or their memory to Python.
READS = frozenset({"item", "tolist", "numpy", "data_ptr", "untyped_storage", "storage", "__array__", "__dlpack__",
                   "__int__", "__float__", "__index__", "__complex__"})
READ_LATER = frozenset({"item", "tolist", "int", "float"})      # after the graph, if that is not too late
SCALES = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}   # factors of the second operand
ITEMS = {"__getitem__": 2, "__setitem__": 3}     # how many arguments they take
DROPOUTS = frozenset({"dropout", "alpha_dropout", "feature_alpha_dropout"})
PUBLIC = re.compile(r"torch(\.(?!_)\w+)*")      # modules whose functions programs replace
BUILTIN_KINDS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                 torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def is_operation(real: Any) -> bool:
    """Whether it is a function of torch that becomes a node unchanged."""
    if isinstance(real, types.FunctionType):
        private = real.__name__.startswith("_") and not real.__name__.startswith("__")
        return real.__module__ in LEAF_MODULES and real.__name__ not in NOT_LEAVES and not private
    if isinstance(real, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if not isinstance(real, BUILTIN_KINDS) or real.__name__ in NOT_LEAVES:
        return False
    owner = getattr(real, "__objclass__", None)
    if owner is not None:
        return issubclass(owner, functions.TensorBase)
    module = getattr(real, "__module__", None) or ""
    if module in functions.OPERATION_MODULES:
        return True
    return module in functions.VARIABLE_FUNCTIONS and hasattr(functions.variable_functions, real.__name__)


def operation(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a function for which ``is_operation`` holds, as a method of its first argument if it is one."""
    name = real.__name__
    if name == "select":
        elements.guard_index(m, *args, **kwargs)
    if name in ITEMS and len(args) == ITEMS[name] and not kwargs and isinstance(args[0], TensorValue):
        return getattr(args[0], name.strip("_"))(m, *args[1:]) or NONE
    if getattr(real, "__objclass__", None) is None and real.__module__ != "torch._tensor":
        return torch_call(m, "call_function", real, args, kwargs)
    if not args or not isinstance(args[0], TensorValue):
        what = f"Tensor.{name} of an object that is not a tensor"
        raise args[0].refusal(what) if args and isinstance(args[0], Opaque) else Break(Reason.OPAQUE_CALL, what)
    if name in READS and name not in ("item", "tolist"):
        if name == "numpy" and overrides.asked(m, args[0]):
            raise Break(Reason.TENSOR_VALUE, name)
        if name == "numpy" and (array := numpy_arrays.to_array(m, args, kwargs)) is not None:
            return array
        if name == "numpy" and len(args) == 1 and not kwargs and (
                later := deferred_scalars.array(m, args[0])) is not None:
            return later
        raise Break(Reason.TENSOR_VALUE, name)
    if vars(functions.TensorBase).get(name) is real:
        tensor_facts.refuse_replaced(m, args[0], name)     # the graph calls a method by its name
    renamed = isinstance(real, types.FunctionType) and vars(torch.Tensor).get(name) is not real
    if renamed and overrides.asked(m, args[0]):     # other arguments are passed on
        raise Break(Reason.OPAQUE_CALL, f"a wrapper of Tensor.{name}")
    if name in asked_in_graph.FIRST and (answer := asked_in_graph.answer_of_method(m, name, args, kwargs)) is not None:
        return answer
    if name in ASKED_METHODS and len(args) == 1 and not m.modes and not overrides.asked(m, args[0]):
        return tensor_facts.fact(m, args[0], name)
    return torch_call(m, "call_method", name, args, kwargs)


TENSOR_MAKERS = torch.tensor, torch.as_tensor, torch.asarray


def holds_numpy(m: Machine, value: Value) -> bool:
    if isinstance(value, (ListValue, TupleValue)):
        return any(holds_numpy(m, v) for v in m.settle(value.items))
    return isinstance(value, Const) and issubclass(value.pytype, np.generic)


def graph_arguments(m: Machine, name: str, args: list[Value], found: dict[int, TensorValue],
                    numbers: Collection[int | str]) -> Iterator[Any]:
    in_lists = name.startswith("_foreach") or name in ("tensor", "as_tensor", "new_tensor", "asarray")
    for i, value in enumerate(args):
        yield value.graph_argument(
            m, found, i in numbers and (in_lists or not isinstance(value, (ListValue, TupleValue))))


def torch_call(m: Machine, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value],
               reason: Reason = Reason.TENSOR_VALUE) -> Value:
    """Run an operation on the fakes and record it; see the head of the file."""
    if args and target in TENSOR_MAKERS and numpy_arrays.holds(m, args[0]):
        return numpy_arrays.tensor_of(m, target, args, kwargs)
    refuse_replaced_operator(m, kind, target, args)
    if m.of_compilers:
        args, kwargs = with_numbers_of_step(m, target, args, kwargs)
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    args, kwargs = given_as_tensors.as_numbers(m, name, args, kwargs)
    args, kwargs = integers.read(m, target, args, kwargs)
    found: dict[int, TensorValue] = {}
    args, kwargs, numbers = with_number_places(m, name, target, args, kwargs)
    graph_args = tuple(graph_arguments(m, name, args, found, numbers))
    graph_kwargs = {k: v.graph_argument(m, found, k in numbers) for k, v in kwargs.items()}
    numpy_arrays.refuse(name, args)
    is_asked = m.modes or any(overrides.asked(m, value) for value in found.values())
    answer = overrides.through_overrides(m, kind, target, graph_args, graph_kwargs, found) if is_asked else (
        counters.counter(m, name, args, kwargs))
    if answer is not None:
        return answer
    refuse_others(found)
    if name == "requires_grad_" and m.assumptions.compiles and not transformed(args[0]):
        return lost_when_compiled.require_grad(args[0], *args[1:], **kwargs)   # type: ignore[arg-type]
    asked = fake_rules.node_of(target, graph_args, graph_kwargs)
    lost_when_compiled.refuse_arguments(m, name, asked, found)
    kind = "call_method" if isinstance(asked[0], str) else "call_function"
    refuse_call(m, kind, name, args, asked)
    refs = {key: value.current().ref for key, value in found.items()}
    before = {key: (ref.fake.requires_grad, version_of(ref.fake)) for key, ref in refs.items()}
    m.builder.lift(refs.values())
    concrete = (takes_tensors(target) or is_of_lists(target)) and is_concrete(name, graph_args, found)
    try:
        result, call = run_on_fakes(m, kind, name, asked, reason, concrete)
    except Break as stop:
        return read_otherwise(m, name, args, kwargs, stop)
    refuse_changes(m, name, found.values(), [*refs.values()], [
        ref for key, ref in refs.items() if version_of(ref.fake) != before[key][1]])
    integers.check(m, name, target, args, kwargs, m.note_assumptions(of_operator=True))
    refused_numbers.keep(m, name, asked, [*args, *kwargs.values()], refs.values(), result)
    differing = operations.prepare(m, kind, name, call, result, found, before) if m.has_data_sizes else None
    if any(map(holds_number, call[1])):
        forget_constant(result)
    lost_when_compiled.refuse_results(m, name, result, found)
    changed = any(value.ref.fake.requires_grad != before[key][0] for key, value in found.items())
    if not changed and not has_tensor(result) and result is not None:
        return constant_result(m, name, result, found)
    if result is None and (not found or is_for_effects(asked[0])):
        raise Break(Reason.SIDE_EFFECT, name)
    failures.expect(m, name, call=call)
    written = {memory for key, value in found.items() if key in before and version_of(value.ref.fake) != before[key][1]
               or m.builder.fake_mode.changes_unversioned for memory in storage_ids(value.ref.fake)}
    if written and any(is_wrapper_class(value.pytype) for value in found.values()):
        m.builder.changes_traceless = True      # the versions of inner tensors do not show it
    follows = isinstance(result, torch.Tensor) and id(result) not in found or gives_back(name, *call[1], **call[2])
    node = record(m, name, call, result, written, seen=not follows or changed or bool(written) or call is not asked)
    made = operations.noted(m, name, structure(m, node, result, found), call, differing)
    note_leaves(m, changed, made, found)
    note_other_memory(m, call, made)
    return made


def note_other_memory(m: Machine, call: known_values.Call, made: Value) -> None:
    """Record a result whose changes show in another tensor, but not in its version."""
    if not isinstance(made, TensorValue):
        return
    if call[0] is getattr and call[1][1] == "data":
        m.builder.untracked.append(made.ref)
    if call[0] is fake_rules.part_of_sparse:        # its fake is no part of that of the sparse tensor
        m.builder.untraced.append(made.ref)


def constant_result(m: Machine, name: str, result: Any, found: dict[int, TensorValue]) -> Value:
    """A result without tensors. The parts of an empty tensor are none."""
    if name.partition(".")[0] not in CONSTANT_RESULTS and result not in ((), []):
        raise Break(Reason.TENSOR_VALUE, name)
    for value in found.values():
        value.ref.see()
    return ragged_sizes.read(m, next(iter(found.values())), result) if found else wrap_new(m, result)


def refuse_others(found: dict[int, TensorValue]) -> None:
    for value in found.values():
        if not isinstance(value, TensorValue):
            raise Break(Reason.OPAQUE_VALUE, f"{value} as an argument of a tensor operation")


def with_numbers_of_step(m: Machine, target: Any, args: list[Value], kwargs: dict[str, Value]) -> tuple[list, dict]:
    """Where a step of an optimizer has a tensor in place of a number: ``x.add_(y, alpha=s)`` as ``x.add_(y * s)``, and
    a weight of ``lerp`` in the dtype of the result.
    """
    name = (target if isinstance(target, str) else getattr(target, "__name__", "")).rstrip("_")
    if name == "lerp" and len(args) == 3 and all(isinstance(v, TensorValue) for v in args) and (
            args[2].fake.dim() == 0 and args[2].fake.dtype is torch.float64):   # type: ignore[attr-defined]
        weight = torch_call(m, "call_method", "to", [args[2], Const(args[0].fake.dtype)], {})   # type: ignore[attr-defined]
        return [*args[:2], weight], kwargs
    keyword = SCALES.get(name)
    scale = kwargs.get(keyword) if keyword else None
    if keyword is None or not isinstance(scale, TensorValue) or len(args) < 2:
        return args, kwargs
    scaled = torch_call(m, "call_method", "mul", [args[1], scale], {})
    return [args[0], scaled, *args[2:]], {k: v for k, v in kwargs.items() if k != keyword}


def read_otherwise(m: Machine, name: str, args: list[Value], kwargs: dict[str, Value], stop: Break) -> Value:
    """What an operation tells of values, read after the graph or by the graph, or the break."""
    if stop.reason is not Reason.TENSOR_VALUE:
        raise stop
    if len(args) == 1 and not kwargs and can_wait(m, name, args[0]):
        return read_later(m, name, args[0])     # type: ignore[arg-type]
    if name == "int" and len(args) == 1 and can_wait(m, "item", args[0]):   # of a float, which may be a NaN
        return deferred_scalars.whole(m, read_later(m, "item", args[0]))    # type: ignore[arg-type]
    if name == "complex" and len(args) == 1 and not kwargs and can_wait(m, "item", args[0]):
        return deferred_scalars.complex_number(read_later(m, "item", args[0]))  # type: ignore[arg-type]
    answer = asked_in_graph.answer_of_method(m, name, args, kwargs)
    if answer is None and name.partition(".")[0] == "allclose":
        close = torch_call(m, "call_method", "all", [torch_call(m, "call_function", torch.isclose, args, kwargs)], {})
        answer = read_later(m, "item", close) if can_wait(m, "item", close) else None   # type: ignore[arg-type]
    if answer is None:
        raise stop
    return answer


def can_wait(m: Machine, name: str, tensor: Value) -> bool:
    """Whether the number or the list in a tensor may be read after the graph."""
    return name in READ_LATER and not is_wrapper_class(tensor.pytype) and (
        deferred_scalars.begin_to_read(m, name, tensor))


def read_later(m: Machine, name: str, tensor: TensorValue) -> Value:
    """The number, or list of numbers, that is read off a tensor after the graph."""
    warn_later(m)
    if tensor.fake.requires_grad or overrides_operations(tensor.pytype):
        detached = torch_call(m, "call_method", "detach", [tensor], {})
        assert isinstance(detached, TensorValue)
        tensor = detached
    return deferred_scalars.read(m, name, tensor.current())


def refuse_call(m: Machine, kind: str, name: str, args: list[Value], call: known_values.Call) -> None:
    """Break at a call that no graph does as the program does it."""
    uncaptured_code.refuse(m, call[0])
    if name in given_as_tensors.KEEP_NUMPYS_TYPES and any(holds_numpy(m, v) for v in args):
        raise Break(Reason.OPAQUE_VALUE, f"a number of NumPy as an argument of {name}")
    if name.startswith("quantize_per_"):
        raise Break(Reason.UNSUPPORTED, f"{name}, which returns a quantized tensor,")
    if "out" in call[2]:
        refuse_resize(m, kind, name, call)
    if name.rstrip("_") in ("as_strided", "as_strided_copy", "as_strided_scatter"):
        lost_when_compiled.refuse_places(m, name, args[0] if args else None, call)


def record(m: Machine, name: str, call: known_values.Call, result: Any, written: set[int], seen: bool) -> fx.Node:
    """The node of an operation. It records whose memory the operation writes to, and whether it may raise."""
    kind = "call_method" if isinstance(call[0], str) else "call_function"
    node = m.builder.record(kind, bound_target(m, call[0]), *call[1:], result, m.stack_trace(), seen=seen)
    node.meta["refuses"] = m.builder.fake_mode.may_refuse
    if m.warned:
        node.meta["torch_warns"] = taken(m)
    if written:
        note_written(m, node, m.array_memory.sharing(written))
    return node


def bound_target(m: Machine, target: Any) -> Any:
    """The target of a node that calls ``target``, whatever the program puts in its place. The text of a graph looks up
    a function of torch by its name when the graph runs.
    """
    is_function = isinstance(target, (types.BuiltinFunctionType, types.FunctionType))
    module = sys.modules.get(target.__module__) if is_function else None
    if module is None or not PUBLIC.fullmatch(module.__name__) or target.__name__ not in vars(module):
        return target
    if vars(module)[target.__name__] is not target:
        return bound(target)
    m.guard(IsGuard(Attr(known(module, module.__name__), target.__name__), target))
    return target


def note_written(m: Machine, node: fx.Node, written: set[int]) -> None:
    """Record the memory that a node writes to."""
    node.meta["changes"] = written
    for shown in m.shown if m.builder.region is None else ():     # for a node in a subgraph its own node does it
        shown.note_change(m, node, written)


def refuse_replaced_operator(m: Machine, kind: str, target: Any, args: list[Value]) -> None:
    """Break if the program has replaced an operator of tensors, or the method that it is, with its own function. torch
    tells modes of the method.
    """
    if kind == "call_method":
        name = target if target.startswith("__") else ""
    else:
        name = target.__name__ if getattr(target, "__module__", None) in ("_operator", "builtins") else ""
    if not name:
        return
    for prefix, value in zip(("__", "__r"), args, strict=False):
        if isinstance(value, TensorValue):
            plain = name.strip("_")
            for each in (f"{prefix}{plain}__", plain):
                tensor_facts.refuse_replaced(m, value, each)


def gives_back(name: str, *args: Any, **kwargs: Any) -> bool:
    """Whether the operation returns its argument whatever that is, as dropout does outside of training."""
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return name in DROPOUTS and training is False


def run_on_fakes(m: Machine, kind: str, name: str, call: known_values.Call, reason: Reason,
                 concrete: bool) -> tuple[Any, known_values.Call]:
    """The fake result, and the call to record: another one, if this one asks for values that are known."""
    m.warned.clear()
    try:
        result = m.builder.run(kind, *call, concrete)
        if name.partition(".")[0] in CHECKING_COMPOSITES and not m.builder.fake_mode.may_refuse:
            m.builder.fake_mode.note_refusal()
        return result, call
    except DataDependentOutputException:
        why = reason, "" if reason is Reason.TENSOR_TRUTH else name
        if (made := without_values(m, kind, call, concrete)) is not None:
            return made, call
    except (DynamicOutputShapeException, UnsupportedOperatorException):
        why = Reason.TENSOR_SHAPE, name
    except (Break, RestartCapture):
        raise
    except Exception as e:
        text = str(e).strip().splitlines()
        why = Reason.OPERATION_FAILED, f"{name}: {text[0] if text else type(e).__name__}"
        if NO_DATA not in str(e):
            if m.has_data_sizes and operations.is_of_data(m, e, call):
                # a fake remembers the symbol of its number, which Python cannot have
                if (found := elements.answer(m, name, call[1])) is not None:
                    return found
                raise Break(reason if name in READ_LATER else Reason.TENSOR_SHAPE, name) from None
            if m.has_symbols and integers.may_read(m):
                raise integers.read_first(m, why[1]) from None
            if m.has_symbols:
                raise RestartCapture(why[1], static=True) from None
            refusals.raise_as_called(m, name, call)
            raise Break(*why) from None
    found = known_values.answer(m, kind, *call) or elements.answer(m, name, call[1])
    if found is None and reason is not Reason.TENSOR_TRUTH and (
            made := operations.answer(m, kind, name, call)) is not None:
        return made, call
    if found is None:
        raise Break(*why)
    return found


def without_values(m: Machine, kind: str, call: known_values.Call, concrete: bool) -> Any:
    """The fake result of an operation that only checks values. torch's Python version of it does not check."""
    try:
        with enable_python_dispatcher():
            result = m.builder.run(kind, *call, concrete)
    except Exception:  # noqa: BLE001 - there is no such version
        return None
    m.builder.fake_mode.note_refusal()
    return result if isinstance(result, torch.Tensor) else None


def refuse_resize(m: Machine, kind: str, name: str, call: known_values.Call) -> None:
    """Break if a tensor given as ``out`` has another shape than the result: torch resizes it and warns."""
    target, args, kwargs = call
    given = kwargs["out"] if isinstance(kwargs["out"], tuple) else (kwargs["out"],)
    if not all(isinstance(ref, TensorRef) and operations.is_nonempty(m, ref.fake) for ref in given):
        return
    try:
        made = m.builder.run(kind, target, args, {k: v for k, v in kwargs.items() if k != "out"})
    except Exception:  # noqa: BLE001 - what is wrong with it is seen when it runs with its ``out``
        return
    made = made if isinstance(made, tuple) else (made,)
    if any(not operations.is_shape(m, result, ref.fake.shape) for result, ref in zip(made, given, strict=False)):
        raise Break(Reason.SIDE_EFFECT, f"{name}, which resizes its out,")


def is_concrete(name: str, args: tuple, found: dict[int, TensorValue]) -> bool:
    """Whether an operation may get the numbers of the captured call: none of them is part of a slice, or an index into
    a dimension whose size varies.
    """
    if "item" not in name and name != "select":
        return True
    keys = [k for a in args[1:] for k in (a if isinstance(a, tuple) else (a,))]
    return not any(isinstance(k, slice) for k in keys) and not any(is_symbolic(v.ref.fake) for v in found.values())


def holds_number(arg: Any) -> bool:
    """Whether one of the numbers that a tensor is made of varies."""
    return any(map(holds_number, arg)) if isinstance(arg, (list, tuple)) else isinstance(arg, NumberRef)


def transformed(value: Value) -> bool:
    return isinstance(value, TensorValue) and functions.is_in_transform(value.fake)


def note_leaves(m: Machine, changed: bool, made: Value, found: dict[int, TensorValue]) -> None:
    """Record the leaves that the graph makes, also those that it makes of its inputs."""
    for value in [*(found.values() if changed else ()), made]:
        fake = value.ref.fake if isinstance(value, TensorValue) else None
        if fake is not None and not refused(fake) and fake.is_leaf and id(fake) not in m.leaves and (
                fake.requires_grad and not functions.is_in_transform(fake)):
            m.leaves[id(fake)] = value
            m.made_leaves.add(id(fake))


def has_tensor(result: Any) -> bool:
    if isinstance(result, torch.Tensor):
        return True
    return isinstance(result, (tuple, list)) and any(has_tensor(v) for v in result)


def structure(m: Machine, node: fx.Node, result: Any, found: dict[int, TensorValue]) -> Value:
    """The Value of a node's result."""
    if isinstance(result, torch.Tensor):
        if id(result) in found:
            return found[id(result)]
        value = TensorValue(m.builder.adopt(node, result), _type_of(m, result))
        found[id(result)] = value
        return value
    if isinstance(result, (tuple, list)) and has_tensor(result):
        items = [structure(m, m.builder.item(node, i, v), v, found) if has_tensor(v) else wrap_new(m, v)
                 for i, v in enumerate(result)]
        return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
    return NONE if result is None else wrap_new(m, result)


def _type_of(m: Machine, fake: torch.Tensor) -> type:
    kind = type(fake)
    if is_wrapper_class(kind):
        if why := refusal_of(m, kind, fake):
            raise Break(Reason.UNSUPPORTED, f"a result of class {kind.__qualname__} ({why})")
        admit(m, kind)
        return kind
    return torch.nn.Parameter if isinstance(fake, torch.nn.Parameter) else torch.Tensor
