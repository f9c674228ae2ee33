"""The rows of ``sot/values/wrapping.py``, one per kind of object. Objects without a row are plain objects or
opaque.
"""
from __future__ import annotations

import contextvars
import dataclasses
import datetime
import functools
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.graph import GeneratorRef
from sot.graph.fake_rules import is_sparse
from sot.guards.guards import CodeGuard, EqualsGuard, IsGuard, SameGuard, TypeGuard
from sot.guards.of_objects.range_iterators import RANGE_ITERATOR
from sot.guards.of_objects.warning_logs import NoLogGuard, gets_warnings
from sot.guards.origin import Arg, Attr, CellContents, Item, Origin, known
from sot.guards.tensor_guards import SparseGuard, TensorGuard, facts_of_sparse
from sot.interpreter.builtins.containers import existing as existing_containers
from sot.interpreter.torch_ops import uninitialized
from sot.interpreter.torch_ops.wrappers import instances
from sot.support import user_annotations
from sot.support.errors import Break, Reason
from sot.support.lookups import own_dict
from sot.torch_compat.autograd_nodes import refused
from sot.torch_compat.dynamo.marks import dynamic_ranges
from sot.torch_compat.fake_tensors import FakeTensor, UnsupportedFakeTensorException
from sot.torch_compat.functions import DISABLED, is_in_transform
from sot.torch_compat.subclasses.wrappers import is_wrapper
from sot.torch_compat.tensors import Layout, plain_tensor
from sot.values import other_numbers
from sot.values.arrays import ArrayValue, may_call_numpy
from sot.values.base import ABSENT, NONE, Const, LazyConst, Opaque, OtherTensor, Value, boolean
from sot.values.callables import BoundMethod, CellValue, FunctionValue
from sot.values.classes import is_in_made_class
from sot.values.constants import (
    DTYPES,
    EQUAL_TYPES,
    IDENTITY_TYPES,
    KNOWN_BY_IDENTITY,
    NUMBERS_AND_TEXT,
    NUMPY_SCALARS,
    SINGLETONS,
    cannot_change,
    is_constant,
    is_library,
    is_number_of_library,
    is_value_of_torch,
    module_of,
)
from sot.values.generators import GeneratorOfNumbers
from sot.values.iterators import StartedRange
from sot.values.numbers import is_member_with_number
from sot.values.objects import DictValue, ExceptionValue, ListValue, ObjectValue, SetValue, TupleValue
from sot.values.objects.contexts import ContextVarValue, LocalValue
from sot.values.tensor import TensorValue
from sot.values.text import varying_text
from sot.values.wrapping import COMPUTED, EXISTING, wrap, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
DATES = (datetime.date, datetime.time, datetime.timedelta, datetime.timezone)


def owner_of(origin: Origin) -> Any:
    """The module, class or namespace in which a name was looked up; ABSENT for other origins."""
    base = getattr(origin, "namespace", None) or getattr(origin, "base", None)
    held = getattr(base, "held", None)
    return ABSENT if held is None else held.value


def stays(origin: Origin) -> bool:
    """Whether an origin refers to the same object at every call, without a guard."""
    owner = owner_of(origin)
    return owner is not ABSENT and cannot_change(owner)


# ---- existing objects -----------------------------------------------------------------------------------
@EXISTING.add(*SINGLETONS)
def singleton(m: Machine, real: Any, origin: Origin) -> Value:
    m.guard(IsGuard(origin, real))
    return Const(real, origin)


@EXISTING.add(*NUMBERS_AND_TEXT)
def number_or_text(m: Machine, real: Any, origin: Origin) -> Value:
    kind = type(real)
    m.guard(TypeGuard(origin, kind))
    if kind is not bytes and m.varies.number(origin):
        return varying_text(m, real, origin) if kind is str else m.varying_number(real, origin)
    return LazyConst(m, real, origin)


@EXISTING.add(object)
def existing(m: Machine, real: Any, origin: Origin) -> Value:
    """An object of any class."""
    kind = type(real)
    if m.varies.number(origin) and (kind is complex or issubclass(kind, NUMPY_SCALARS) or is_member_with_number(real)):
        m.guard(TypeGuard(origin, kind))
        return other_numbers.existing(m, real, origin)
    if kind in EQUAL_TYPES or kind in DTYPES or issubclass(kind, NUMPY_SCALARS) or is_value_of_torch(kind):
        m.guard(EqualsGuard(origin, real))
        return Const(real, origin)
    if kind is types.BuiltinFunctionType and not isinstance(real.__self__, (types.ModuleType, type, type(None))):
        return _builtin_method(m, real, origin)
    if kind in IDENTITY_TYPES or kind.__module__ == "typing" or is_number_of_library(kind) or (
            issubclass(kind, KNOWN_BY_IDENTITY) and not isinstance(kind.__getattribute__, types.FunctionType)):
        if not stays(origin):
            m.guard(IsGuard(origin, real))
        return Const(real, origin)
    return shared(m, real, origin)


def shared(m: Machine, real: Any, origin: Origin) -> Value:
    """An object with identity: the same Value for the same object, whatever path led to it."""
    if id(real) in m.by_id:
        value = m.by_id[id(real)][1]
        if value.origin is not None and is_in_made_class(value.origin, m.made_classes):
            m.guard(IsGuard(origin, real))      # the stand-in of the class does not stay
        elif value.origin != origin and value.origin is not None:
            m.guard(SameGuard(origin, value.origin))
        return value
    if id(real) in m.namespaces:        # the globals of a function
        m.guard(IsGuard(origin, real))
        return m.namespaces[id(real)]
    if id(real) in m.changed_uncaptured:
        raise Break(Reason.SIDE_EFFECT, m.changed_uncaptured[id(real)])
    if m.has_warned and type(real) is list:
        refuse_log(m, real, origin)
    value = _existing(m, real, origin)
    if isinstance(value, ObjectValue):
        _keep_apart(m, real, value)
    m.by_id[id(real)] = (real, value)
    return value


def refuse_log(m: Machine, real: list, origin: Origin) -> None:
    """Break if the list gets the warnings of this capture, which come later."""
    if gets_warnings(real):
        raise Break(Reason.SIDE_EFFECT, "a warning in a list that the program reads")
    m.guard(NoLogGuard(origin))


def _keep_apart(m: Machine, real: Any, value: ObjectValue) -> None:
    """Break: an object and its ``__dict__``, or two objects with one, would not see each other's changes."""
    if type(real) is dict:
        owner = m.dict_owners.get(id(real))
    elif value.pytype.__dictoffset__ == 0:
        return
    else:
        held = id(own_dict(real))
        owner = m.dict_owners.get(held, value if held in m.by_id else None)
        m.dict_owners[held] = value
    if owner is not None:
        raise Break(Reason.UNSUPPORTED, f"the __dict__ of {owner} beside the object")


def _existing(m: Machine, real: Any, origin: Origin) -> Value:
    kind = type(real)
    if issubclass(kind, torch.Tensor):      # not what __class__ claims
        return _tensor(m, real, origin)
    m.guard(TypeGuard(origin, kind))
    maker = WRAPPERS.get(kind)
    if maker is not None:
        return maker(m, real, origin)
    for base, maker in SUBCLASS_WRAPPERS:
        if issubclass(kind, base):
            return maker(m, real, origin)
    if is_plain_class(kind):
        return ObjectValue(kind, real, origin)
    return Opaque(real, origin)


HEAP_TYPE = 1 << 9
OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType)
WRITTEN_IN_PYTHON: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def is_plain_class(kind: type) -> bool:
    """Whether instances consist only of a ``__dict__`` and Python-level slots."""
    return all(c is object or is_written_in_python(c) for c in kind.__mro__)


def is_written_in_python(cls: type) -> bool:
    """Whether it is the class of a class statement. Some C classes are on the heap, too: ``threading.local``."""
    found = WRITTEN_IN_PYTHON.get(cls)
    if found is None:
        found = WRITTEN_IN_PYTHON[cls] = bool(cls.__flags__ & HEAP_TYPE) and not any(
            isinstance(raw, OF_C) and raw.__objclass__ is cls for raw in vars(cls).values())
    return found


MAY_DIFFER = frozenset(("__module__", "__doc__", "__qualname__", "__new__", "__init__", "__repr__", "__annotations__",
                        "__firstlineno__", "__static_attributes__", "__torch_function__", "__dict__", "__weakref__"))


@functools.cache
def is_plain_tensor(kind: type) -> bool:
    """Whether it is Tensor, Parameter, or a class of parameters that only adds members and overrides none."""
    if kind in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return True
    own = kind.__mro__[:kind.__mro__.index(torch.nn.Parameter)] if issubclass(kind, torch.nn.Parameter) else ()
    disabled = getattr(kind, "__torch_function__", None) is DISABLED
    return bool(own) and disabled and not any(
        name not in MAY_DIFFER and hasattr(torch.Tensor, name) for cls in own for name in vars(cls))


def is_followed_tensor(kind: Any) -> bool:
    """Whether capture follows the code of a class of tensors: it adds to Tensor, or has a ``__torch_function__``."""
    if not isinstance(kind, type) or not issubclass(kind, torch.Tensor):
        return False
    if is_plain_tensor(kind):
        return True
    own = kind.__mro__[:kind.__mro__.index(torch.Tensor)]
    return type(kind) is type(torch.Tensor) and not any(is_library(cls.__module__) for cls in own) and not any(
        name not in MAY_DIFFER and hasattr(torch.Tensor, name) or name in ("__slots__", "__del__")
        for cls in own for name in vars(cls)) and all(
        isinstance(vars(cls).get("__torch_function__", DISABLED), (classmethod, staticmethod, type(DISABLED)))
        for cls in own)


def other_kind(real: torch.Tensor) -> str | None:
    """The description of a tensor that graphs do not support; None for one that they do."""
    kind = type(real)
    if not is_followed_tensor(kind):
        return f"an instance of {kind.__qualname__}, a subclass of Tensor"
    if is_in_transform(real):
        return "a tensor inside of a transform of torch.func"
    if real.is_nested or real.layout != torch.strided:
        return "a nested tensor" if real.is_nested else "a sparse tensor"
    return "a quantized tensor" if real.is_quantized else None


def _tensor(m: Machine, real: torch.Tensor, origin: Origin) -> Value:
    kind = type(real)
    if is_wrapper(real):
        return instances.existing(m, real, origin)
    if kind in uninitialized.BECOMES:
        return uninitialized.existing(m, real, origin)
    if kind is torch.Tensor and is_sparse(real) and (found := sparse(m, real, origin)) is not None:
        return found
    if other := other_kind(real):
        m.guard(TypeGuard(origin, kind))
        return OtherTensor(real, origin, other)
    try:
        fake, layout = symbolic_fake(m, real, origin)
        ref = m.builder.input(real, str(origin), fake)
    except (UnsupportedFakeTensorException, RuntimeError, AssertionError):
        # for example a view of a tensor that is not strided, or of one that was changed under no_grad
        m.guard(TypeGuard(origin, kind))
        return Opaque(real, origin)
    guard = TensorGuard.of(origin, real, layout)
    m.guard(guard)
    m.examples[guard] = real
    value = TensorValue(ref, kind, origin)
    if ref.fake.is_leaf and ref.fake.requires_grad:
        m.leaves[id(ref.fake)] = value
    m.input_origins[id(value.ref)] = origin
    return value


def sparse(m: Machine, real: torch.Tensor, origin: Origin) -> TensorValue | None:
    """A sparse tensor that existed before; None if torch has no fake of it. Its fake has no elements."""
    facts = facts_of_sparse(real)
    try:
        fake = m.builder.fake_mode.from_tensor(real, static_shapes=True)
        if facts_of_sparse(fake) != facts or is_in_transform(real):
            return None
    except Exception:  # noqa: BLE001 - torch may have no fake for a layout
        return None
    m.guard(SparseGuard(origin, facts))
    ref = m.builder.input(real, str(origin), fake)
    value = TensorValue(ref, torch.Tensor, origin)
    if fake.is_leaf and fake.requires_grad:
        m.leaves[id(fake)] = value
    m.input_origins[id(ref)] = origin
    return value


def symbolic_fake(m: Machine, real: torch.Tensor, origin: Origin) -> tuple[FakeTensor | None, Layout | None]:
    """The fake tensor of one with sizes that may differ, and what of its layout may not; None for another."""
    dims = m.varies.dims(origin, real)
    strides = m.varies.strides(origin, real)
    if not dims and not strides or real.is_conj() or real.is_neg() or (
            plain_tensor(real) is not real) or refused(real):   # guards would ask its class for its sizes
        return None, None
    fake, layout = m.symbols.tensor(real, origin, dims, strides, dynamic_ranges(real))
    m.varying_numbers.update({dims[i]: real.shape[i] for i in dims})
    m.varying_numbers.update({strides[i]: real.stride(i) for i in strides})
    m.note_assumptions()
    return fake, layout


@EXISTING.add(types.FunctionType)
def function(m: Machine, real: types.FunctionType, origin: Origin) -> Value:
    key = id(real)
    if key in m.by_id:
        value = m.by_id[key][1]
        if value.origin is not None and value.origin != origin:
            m.guard(IsGuard(origin, real) if not per_call(origin) else SameGuard(origin, value.origin))
        return value
    if (owner := owner_of(origin)) is not ABSENT and is_library(module_of(owner)):
        if not stays(origin):
            m.guard(IsGuard(origin, real))
        value = FunctionValue.existing(m, real, known(real, real.__qualname__))
    else:
        m.guard(IsGuard(Attr(origin, "__globals__"), real.__globals__) if per_call(origin) else IsGuard(origin, real))
        m.guard(CodeGuard(origin, real))
        value = FunctionValue.existing(m, real, origin)
    m.by_id[key] = (real, value)
    return value


def per_call(origin: Origin) -> bool:
    """Whether it is an argument, or reached from one. A function there may be a new closure at every call."""
    while True:
        if isinstance(origin, Arg):
            return True
        if isinstance(origin, (Attr, Item, CellContents)):
            origin = origin.base
        else:
            return False


def _method(m: Machine, real: types.MethodType, origin: Origin) -> Value:
    if not isinstance(real.__func__, (types.FunctionType, *IDENTITY_TYPES)):
        return Opaque(real, origin)     # any callable may be there
    function = wrap(m, real.__func__, Attr(origin, "__func__"))
    return BoundMethod(function, wrap(m, real.__self__, Attr(origin, "__self__")), real.__func__.__name__, origin)


def _builtin_method(m: Machine, real: types.BuiltinFunctionType, origin: Origin) -> Value:
    """A method of an existing C object, such as ``items.append``."""
    owner, descriptor = real.__self__, getattr(type(real.__self__), real.__name__, None)
    if not isinstance(descriptor, types.MethodDescriptorType):
        if not stays(origin):
            m.guard(EqualsGuard(origin, real))
        return Const(real, origin)
    m.guard(TypeGuard(origin, type(real)))
    m.guard(EqualsGuard(Attr(origin, "__name__"), real.__name__))
    return BoundMethod(Const(descriptor), wrap(m, owner, Attr(origin, "__self__")), real.__name__, origin)


def _cell(m: Machine, real: types.CellType, origin: Origin) -> Value:
    return CellValue.existing(m, "cell", real, origin)


def _partial(m: Machine, real: functools.partial, origin: Origin) -> Value:
    value = ObjectValue(functools.partial, real, origin)
    value.slots = {"func": wrap(m, real.func, Attr(origin, "func")),
                   "args": wrap(m, real.args, Attr(origin, "args")),
                   "keywords": wrap(m, real.keywords, Attr(origin, "keywords"))}
    return value


def _exception(m: Machine, real: BaseException, origin: Origin) -> Value:
    return ExceptionValue(type(real), [], real, origin)


def _translated(m: Machine, real: user_annotations.Translated, origin: Origin) -> Value:
    return wrap(m, real.__wrapped__, Attr(origin, "__wrapped__"))


def _generator(m: Machine, real: torch.Generator, origin: Origin) -> Value:
    value = GeneratorOfNumbers(GeneratorRef(real, label=str(origin)), origin)
    m.input_origins[id(value.ref)] = origin
    return value


def _array(m: Machine, real: np.ndarray, origin: Origin) -> Value:
    if not may_call_numpy(m):
        return OtherTensor(real, origin, "a NumPy array")
    return ArrayValue.existing(m, real, origin)


def _local(m: Machine, real: Any, origin: Origin) -> Value:
    """A ``threading.local``. An ``__init__`` in Python would run in guards, once for each thread."""
    kind = type(real)
    if any(isinstance(f, types.FunctionType) for f in (kind.__init__, kind.__getattribute__)):
        return Opaque(real, origin)
    return LocalValue(kind, real, origin)


WRAPPERS: dict[type, Callable] = {
    **existing_containers.WRAPPERS,
    types.SimpleNamespace: lambda m, real, origin: ObjectValue(types.SimpleNamespace, real, origin),
    types.MethodType: _method, types.CellType: _cell, functools.partial: _partial, np.ndarray: _array,
    torch.Generator: _generator, RANGE_ITERATOR: lambda m, real, origin: StartedRange(real, origin),
    contextvars.ContextVar: lambda m, real, origin: ContextVarValue(real, origin),
}
SUBCLASS_WRAPPERS: list[tuple[type, Callable]] = [
    *((kind, existing_containers.WRAPPERS[kind]) for kind in (dict, list, tuple, set)),
    (BaseException, _exception),
    (user_annotations.Translated, _translated),
    (threading.local, _local),
    (np.ndarray, lambda m, real, origin: OtherTensor(real, origin, "a NumPy array")),
]


# ---- objects that capture holds itself ------------------------------------------------------------------
@COMPUTED.add(type(None))
def nothing(m: Machine, real: None) -> Value:
    return NONE


@COMPUTED.add(bool)
def truth(m: Machine, real: bool) -> Value:
    return boolean(real)


@COMPUTED.add(*SYMBOLIC)
def symbol(m: Machine, real: Any) -> Value:
    return m.symbolic(real)


@COMPUTED.add(list)
def new_list(m: Machine, real: list) -> Value:
    return ListValue([wrap_new(m, v) for v in real])


@COMPUTED.add(dict)
def new_dict(m: Machine, real: dict) -> Value:
    value = DictValue(dict)
    for k, v in real.items():
        value.overlay[k] = wrap_new(m, v)
    return value


@COMPUTED.add(object)
def computed(m: Machine, real: Any) -> Value:
    kind = type(real)
    if isinstance(real, tuple):
        return TupleValue([wrap_new(m, v) for v in real], kind)
    if is_constant(real):
        return Const(real)
    if kind in (set, frozenset):
        return SetValue({v: wrap_new(m, v) for v in real}, kind)
    if isinstance(real, (torch.finfo, torch.iinfo, np.finfo, np.iinfo, re.Match, *DATES)) or (
            dataclasses.is_dataclass(real)):
        return Const(real)
    raise Break(Reason.OPAQUE_VALUE, f"an object of type {kind.__qualname__}")
