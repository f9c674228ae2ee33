"""The NumPy functions, methods and operators that go into graphs (``numpy_arrays.py``).

A row names, by position, the arguments that may be arrays or numbers computed by the graph: dtype and shape of the
result do not depend on their values. All other arguments are constants. Everything else is left to Python: results
whose shape depends on values (``nonzero``, ``unique``), Python numbers (``array_equal``), random numbers, files,
callbacks, and functions whose Python code warns about values (``nanmean``).
"""
from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sot.interpreter.builtins.common import fold, take
from sot.interpreter.builtins.pure import NUMPY
from sot.interpreter.entering import make_generator
from sot.interpreter.numpy_ops import numpy_arrays, tensors_as_arrays
from sot.interpreter.torch_ops import deferred_scalars, overrides
from sot.interpreter.torch_ops.data_sizes import graph_numbers
from sot.interpreter.torch_ops.torch_calls import torch_call
from sot.polyfills.iteration import by_index
from sot.support.errors import Break, Reason
from sot.support.registry import HANDLERS, handles
from sot.values.arrays import METADATA, SCALARS, VIEWS, ArrayValue, may_call_numpy
from sot.values.base import ANSWERS, FALSE, NONE, Const, Opaque, Value
from sot.values.callables import BoundMethod, known_function
from sot.values.deferred_scalars import DeferredScalar
from sot.values.iterators import SliceValue
from sot.values.numbers import DynamicNumber
from sot.values.objects import ListValue, TupleValue
from sot.values.tensor import TensorValue
from sot.values.wrapping import wrap_known, wrap_new

if TYPE_CHECKING:
    from sot.interpreter.machine import Machine
    from sot.support.registry import Handler

ALL = "0123456"
# NumPy never warns in these, whatever the values are, unless a dtype is given;
QUIET_FUNCTIONS = {
    "": "zeros ones empty eye identity tri",
    "0": "copy zeros_like ones_like empty_like reshape ravel transpose swapaxes moveaxis rollaxis expand_dims squeeze "
         "concatenate stack vstack hstack dstack column_stack split array_split hsplit vsplit dsplit tile repeat roll "
         "flip fliplr flipud rot90 atleast_1d atleast_2d atleast_3d tril triu sort argsort argmax argmin any all real "
         "imag",
    "01": "searchsorted take take_along_axis"}
# in these it may warn.
FUNCTIONS = {
    "": "arange",
    "0": "array ascontiguousarray sum prod mean std var max min amax amin ptp cumsum cumprod trace round around diff "
         "average median quantile percentile pad gradient nansum nanprod nan_to_num angle count_nonzero",
    "1": "full",
    "01": "append digitize dot inner outer vdot kron cross tensordot full_like linspace logspace convolve correlate "
          "isclose",
    "012": "where clip interp", "0123": "meshgrid", "123456": "einsum"}
WRITING_FUNCTIONS = {"01": "copyto fill_diagonal"}
LINEAR = {"0": "norm det"}
FOURIER = {"0": "fft ifft rfft irfft fft2 ifft2 fftn ifftn fftshift ifftshift"}
QUIET_METHODS = {"0": "reshape ravel flatten transpose swapaxes squeeze copy repeat argmax argmin argsort all any view "
         "__copy__",
                 "01": "searchsorted take"}
METHODS = {"0": "astype sum prod mean std var max min ptp cumsum cumprod round trace conj conjugate",
           "01": "dot", "012": "clip"}
WRITING = {"0": "sort", "01": "fill"}
POSITIONS = "take",
QUIET_UFUNCS = frozenset(f.__name__ for f in (
    np.logical_and, np.logical_or, np.logical_xor, np.logical_not, np.isnan, np.isinf, np.isfinite, np.signbit,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.copysign))
QUIET = frozenset((operator.and_, operator.or_, operator.xor, operator.invert, operator.iand, operator.ior,
                   operator.ixor))
ASKING = np.ndim, np.shape, np.size, np.result_type, np.can_cast, np.iscomplexobj, np.isrealobj, np.isscalar


# ---- calls ------------------------------------------------------------------------------------------------------
def call(m: Machine, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value], data: str,
         quiet: bool, **more: Any) -> Value:
    """A call of which the arguments at the positions ``data`` may be arrays."""
    values = [*args, *kwargs.values()]
    refuse_others(m, values)
    if may_call_numpy(m) and any(numpy_arrays.holds(m, v, TensorValue) for v in values):
        if isinstance(target, np.ufunc):
            return tensors_as_arrays.ufunc_of_tensors(
                m, target, args, kwargs, lambda given: call(m, kind, target, given, {}, data, quiet, **more))
        args, kwargs = tensors_as_arrays.as_arrays(m, kind, target, args, kwargs)
        return call(m, kind, target, args, kwargs, data, quiet, **more)
    real = args[0].pytype.__dict__.get(target) if kind == "call_method" else target
    if real in NUMPY and not any(numpy_arrays.holds(m, v) for v in values) and (found := folded(m, real, args, kwargs)):
        return found
    given = [v if str(i) in data else fixed(m, v) for i, v in enumerate(args)]
    named = {k: v if k in ("out", "where") else fixed(m, v) for k, v in kwargs.items()}
    return numpy_arrays.array_call(m, kind, target, given, named, quiet=quiet and "dtype" not in kwargs, **more)


def refuse_others(m: Machine, values: list[Value]) -> None:
    for value in values:
        if isinstance(value, DeferredScalar):
            raise value.needed()
        if isinstance(value, Opaque):
            raise value.refusal(str(value))


def folded(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function of constants, unless it is an array."""
    try:
        return fold(m, real, args, kwargs)
    except Break as stop:
        if stop.reason is Reason.OPAQUE_VALUE:
            return None
        raise


def fixed(m: Machine, value: Value) -> Value:
    """An argument that the layout of the result may depend on, as a constant."""
    if numpy_arrays.holds(m, value):
        raise Break(Reason.TENSOR_SHAPE, f"NumPy with {value} as an argument")
    if isinstance(value, DynamicNumber):
        return Const(value.real)
    if isinstance(value, (ListValue, TupleValue)) and numpy_arrays.holds(m, value, DynamicNumber):
        items = [fixed(m, v) for v in m.settle(value.items)]
        return ListValue(items) if isinstance(value, ListValue) else TupleValue(items)
    return value


def function(target: Any, data: str, quiet: bool, written: tuple[int, ...] = ()) -> Handler:
    positions = (1,) if target.__name__ in POSITIONS else ()

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call(m, "call_function", target, args, kwargs, data, quiet, written=written,
                    positions=positions if len(args) > 1 else ())
    return handler


def method(name: str, data: str, quiet: bool, writes: bool = False) -> Handler:
    written, positions = (0,) if writes else (), (1,) if name in POSITIONS else ()

    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args or not isinstance(args[0], ArrayValue) or writes and not args[0].is_array:
            return not_ours(m, getattr(np.generic, name, None), args, kwargs, name)
        return call(m, "call_method", name, args, kwargs, data, quiet, written=written,
                    positions=positions if len(args) > 1 else ())
    return handler


def not_ours(m: Machine, real: Any, args: list[Value], kwargs: dict[str, Value], name: str) -> Value:
    """A method of a number that is a constant, or of another value."""
    if real is not None and args and isinstance(args[0], Const):
        if (found := fold(m, real, args, kwargs)) is not None:
            return found
    refuse_others(m, args)
    raise Break(Reason.OPAQUE_CALL, f"NumPy's {name}")


def _register() -> None:
    for data, names in WRITING_FUNCTIONS.items():
        for name in names.split():
            HANDLERS[getattr(np, name)] = function(getattr(np, name), data, False, written=(0,))
    for module, table, quiet in ((np, QUIET_FUNCTIONS, True), (np, FUNCTIONS, False), (np.linalg, LINEAR, False),
                                 (np.fft, FOURIER, False)):
        for data, names in table.items():
            for target in (getattr(module, name) for name in names.split() if hasattr(module, name)):
                HANDLERS[target] = function(target, data, quiet)
    for ufunc in {f for f in vars(np).values() if isinstance(f, np.ufunc)}:
        HANDLERS[ufunc] = function(ufunc, ALL, ufunc.__name__ in QUIET_UFUNCS)
    for kind in SCALARS:
        HANDLERS[kind] = function(kind, "0", False)
    for methods, quiet, writes in ((QUIET_METHODS, True, False), (METHODS, False, False), (WRITING, False, True)):
        for data, names in methods.items():
            for name in names.split():
                for owner in (np.ndarray, np.generic):
                    if name in vars(owner):
                        HANDLERS[vars(owner)[name]] = method(name, data, quiet, writes)


_register()


def asking(target: Any) -> Handler:
    """A handler for a property of the layout."""
    def handler(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
        refuse_others(m, [*args, *kwargs.values()])
        if any(isinstance(v, TensorValue) for v in args):
            raise Break(Reason.OPAQUE_CALL, f"{target.__name__} of a tensor")
        given = [Const(v.layout.specimen()) if isinstance(v, ArrayValue) else v for v in args]
        found = fold(m, target, given, kwargs)
        if found is None:
            raise Break(Reason.OPAQUE_CALL, f"numpy.{target.__name__}")
        return found
    return handler


for _target in ASKING:
    HANDLERS[_target] = asking(_target)


# ---- operators --------------------------------------------------------------------------------------------------
OPERANDS = (ArrayValue, Const, ListValue, TupleValue)


@ANSWERS.add((ArrayValue, "unary"))
def unary(m: Machine, value: ArrayValue, function: Any, name: str, symbol: str) -> Value:
    return operate(m, function, value)


def operate(m: Machine, target: Any, *operands: Value, inplace: Any = None) -> Value:
    """An operator with an array or NumPy number as an operand. ``inplace`` is the operator for arrays."""
    first = operands[0]
    if inplace is not None and isinstance(first, ListValue):
        raise arrays_refusal(operands)
    writes = inplace is not None and (isinstance(first, TensorValue) or (
        isinstance(first, ArrayValue) and first.is_array))
    target = inplace if writes else target
    if any(isinstance(v, TensorValue) for v in operands):
        return beside_tensor(m, target, *operands)
    for value in operands:
        if not isinstance(value, OPERANDS) or value.pytype in (str, bytes) or (
                isinstance(value, (ListValue, TupleValue)) and value.pytype not in (list, tuple)):
            raise value.refusal(str(value)) if isinstance(value, Opaque) else arrays_refusal(operands)
    return numpy_arrays.array_call(m, "call_function", target, list(operands), {}, quiet=target in QUIET,
                        written=(0,) if writes else ())


def arrays_refusal(operands: tuple[Value, ...]) -> Break:
    return next(v.refusal() for v in operands if isinstance(v, ArrayValue))


def beside_tensor(m: Machine, target: Any, *operands: Value) -> Value:
    """A NumPy number next to a tensor is a number. torch warns of an array there."""
    if any(isinstance(v, ArrayValue) and v.is_array for v in operands):
        raise arrays_refusal(operands)
    return torch_call(m, "call_function", target, list(operands), {})


# ---- subscripts -------------------------------------------------------------------------------------------------
def parts_of(m: Machine, key: Value) -> list[Value]:
    return list(m.settle(key.items)) if isinstance(key, TupleValue) else [key]


def is_mask(part: Value) -> bool:
    return isinstance(part, ArrayValue) and part.layout.dtype.kind == "b"


def refuse_key(m: Machine, key: Value, may_mask: bool) -> Value:
    """Break at a key on which the size of the selected part depends. Varying numbers become constants."""
    if isinstance(key, DeferredScalar):
        raise key.needed()
    for part in parts_of(m, key):
        if isinstance(part, (SliceValue, ListValue, TupleValue)) and (
                any(numpy_arrays.holds(m, v) for v in getattr(part, "slice_parts", ()) or getattr(part, "items", ()))):
            raise Break(Reason.TENSOR_SHAPE, "a subscript of an array")
        if is_mask(part) and not (may_mask and part.is_array):      # type: ignore[attr-defined]
            raise Break(Reason.TENSOR_SHAPE, "a mask of an array")
        if isinstance(part, (TensorValue, DeferredScalar)):
            raise Break(Reason.OPAQUE_VALUE, f"{part} as a subscript of an array")
    if isinstance(key, TupleValue):
        return TupleValue([fixed_part(m, v) for v in m.settle(key.items)])
    return fixed_part(m, key)


def fixed_part(m: Machine, part: Value) -> Value:
    if isinstance(part, SliceValue):
        return SliceValue([fixed(m, v) for v in part.slice_parts])
    return part if isinstance(part, ArrayValue) else fixed(m, part)


@ANSWERS.add((ArrayValue, "getitem"))
def getitem(m: Machine, obj: ArrayValue, key: Value) -> Value:
    """``a[key]``"""
    if isinstance(key, Const) and type(key.real) is int and (shape := obj.layout.shape) and key.real >= shape[0]:
        m.throw(IndexError, f"index {key.real} is out of bounds for axis 0 with size {shape[0]}")
    key = refuse_key(m, key, False)
    at = (1,) if any(isinstance(v, ArrayValue) for v in parts_of(m, key)) else ()
    return numpy_arrays.array_call(m, "call_function", operator.getitem, [obj, key], {}, positions=at)


@ANSWERS.add((ArrayValue, "setitem"))
def setitem(m: Machine, obj: ArrayValue, key: Value, value: Value) -> None:
    """``a[key] = value``"""
    if isinstance(value, (TensorValue, Opaque, DeferredScalar)) or not isinstance(value, OPERANDS):
        raise Break(Reason.OPAQUE_VALUE, f"storing {value} in an array")
    is_single = isinstance(value, Const) or isinstance(value, ArrayValue) and not value.layout.shape
    key = refuse_key(m, key, is_single)
    at = (1,) if any(isinstance(v, ArrayValue) for v in parts_of(m, key)) else ()
    numpy_arrays.array_call(m, "call_function", operator.setitem, [obj, key, value], {}, quiet=fits(obj, value),
                            written=(0,), positions=at)


def fits(obj: ArrayValue, value: Value) -> bool:
    """Whether it can be stored without a warning about lost information."""
    dtype = obj.layout.dtype
    if isinstance(value, ArrayValue):
        return np.can_cast(value.layout.dtype, dtype)
    if not isinstance(value, Const) or isinstance(value, DynamicNumber):
        return False
    try:
        with np.errstate(all="raise"):
            dtype.type(value.real)
    except Exception:  # noqa: BLE001 - NumPy will say what is wrong with it
        return False
    return True


LONGEST_LIST = 64


# ---- single elements --------------------------------------------------------------------------------------------
def item(m: Machine, given: ArrayValue, to: type | None = None) -> Value:
    """``float(number)``, ``int(number)`` or ``number.item()``: read after the graph, or a number of the graph."""
    value: Any = given
    kind = {"f": float, "i": int, "u": int, "b": bool}.get(value.layout.dtype.kind)
    if value.is_array and kind is not None and not value.layout.shape:
        value = numpy_arrays.array_call(m, "call_function", operator.getitem, [value, TupleValue([])], {})
    point = deferred_scalars.here(m)
    if value.is_array or kind is None or not deferred_scalars.can_read(m, point):
        raise Break(Reason.TENSOR_VALUE, f"the value of {value}")
    deferred_scalars.count(m, point)
    points = frozenset({point})
    found = DeferredScalar(kind, points, lambda e: f"{e.value(value)}.item()",
                           number=lambda m: graph_numbers.read_numpy(m, value.ref, kind, points))
    return found if to in (None, kind) else deferred_scalars.reckoned(m, to, [found], {})


def shown(m: Machine, value: Value) -> Value:
    """Text of a number that is made after the graph; any other value unchanged."""
    kind = {"f": float, "i": int, "u": int}.get(value.layout.dtype.kind) if isinstance(value, ArrayValue) else None
    point = deferred_scalars.here(m)
    if kind is None or value.is_array or not deferred_scalars.can_read(m, point):     # type: ignore[attr-defined]
        return value
    deferred_scalars.count(m, point)
    return DeferredScalar(kind, frozenset({point}), lambda e: e.value(value))


@handles(np.ndarray.item, np.generic.item)
def item_(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], ArrayValue) and args[0].is_array and args[0].layout.shape and not kwargs:
        return item(m, element(m, args[0], args[1:]))
    if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue):
        return not_ours(m, np.generic.item, args, kwargs, "item")
    return item(m, args[0])


def element(m: Machine, value: ArrayValue, index: list[Value]) -> Any:
    """The element of ``array.item(*index)``; without an index the only one."""
    given = [fixed(m, part).constant() for part in index]
    try:
        value.layout.specimen().item(*given)
    except (IndexError, TypeError, ValueError):     # what NumPy refuses, for example a bool
        raise Break(Reason.OPERATION_FAILED, f"item() of {value}") from None
    shape, flat = value.layout.shape, len(given) < 2
    place = given[0] if len(given) == 1 else 0
    at = np.unravel_index(place + prod(shape) if place < 0 else place, shape) if flat else given
    return numpy_arrays.array_call(m, "call_function", operator.getitem, [value, Const(tuple(map(int, at)))], {})


@handles(np.ndarray.tolist, np.generic.tolist)
def tolist(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(value, ArrayValue):
        return not_ours(m, np.generic.tolist, args, kwargs, "tolist")
    shape = value.layout.shape
    if not value.is_array or not shape:
        return item(m, value)
    if prod(shape) > LONGEST_LIST:
        raise Break(Reason.TENSOR_VALUE, "tolist")

    def part(*index: int) -> Value:
        if len(index) == len(shape):
            return item(m, element(m, value, [*map(Const, index)]))
        return ListValue([part(*index, i) for i in range(shape[len(index)])])
    return part()


@handles(np.ndarray.__len__)
def length(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    value, = args
    if not isinstance(value, ArrayValue) or not value.layout.shape:
        raise Break(Reason.OPERATION_FAILED, f"len() of {value}")
    return Const(value.layout.shape[0])


@handles(np.ndarray.__iter__)
def iterate(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """An array is iterated by index. Each step sees its current state."""
    value, = args
    if not isinstance(value, ArrayValue) or not value.layout.shape:
        raise Break(Reason.OPERATION_FAILED, f"iteration over {value}")
    return make_generator(m, known_function(m, by_index), [value], {})


# ---- between tensors and arrays ---------------------------------------------------------------------------------
@handles(np.asarray)
def asarray(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """For a tensor it is ``tensor.numpy()``."""
    if len(args) != 1 or kwargs or not isinstance(args[0], TensorValue):
        return call(m, "call_function", np.asarray, args, kwargs, "0", False)
    found = numpy_arrays.to_array(m, args, {})
    if found is None:
        raise Break(Reason.TENSOR_VALUE, "numpy.asarray")
    return found


@handles(torch.Tensor.__array__)
def array_of_tensor(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, dtype = take("__array__", args, kwargs, "self", "dtype", required=1)
    if not isinstance(tensor, TensorValue):
        raise Break(Reason.OPAQUE_CALL, "Tensor.__array__")
    array = tensors_as_arrays.array_of(m, tensor)
    if dtype is None or dtype is NONE:
        return array
    return call(m, "call_method", "astype", [array, dtype], {"copy": FALSE}, "0", False)


@handles(torch.Tensor.__array_wrap__)
def wrap_array(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor, array = take("__array_wrap__", args, kwargs, "self", "array", required=2)
    if not isinstance(tensor, TensorValue) or m.modes or overrides.asked(m, tensor):
        raise Break(Reason.OPAQUE_CALL, "Tensor.__array_wrap__")
    return tensors_as_arrays.wrapped(m, array)


@handles(torch.from_numpy)
def from_numpy(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    refuse_others(m, args)
    if len(args) != 1 or kwargs or not isinstance(args[0], ArrayValue):
        raise Break(Reason.OPAQUE_CALL, "torch.from_numpy")
    return numpy_arrays.tensor_of(m, torch.from_numpy, args, kwargs)


# ---- attributes
@ANSWERS.add((ArrayValue, "load_attr"))
def load_attr(m: Machine, obj: ArrayValue, name: str) -> Value:
    if name in METADATA:
        found = METADATA[name](obj.layout)
        return Const(found) if name == "dtype" else wrap_new(m, found)
    if name in VIEWS and obj.is_array:
        return numpy_arrays.array_call(m, "call_function", getattr, [obj, Const(name)], {})
    if name == "__class__":
        return wrap_known(m, obj.pytype)
    found = getattr(obj.pytype, name, None)
    if found is None:
        message = f"{obj.pytype.__module__}.{obj.pytype.__name__!r} object has no attribute {name!r}"
        raise Break(Reason.OPERATION_FAILED, message)
    if callable(found):
        return BoundMethod(Const(found), obj, name)
    raise obj.refusal()
