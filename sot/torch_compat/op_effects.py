"""Effects of an operation's kernels besides computing: drawing random numbers, or raising on values.

If a graph fails, Python runs the frame from its start (see ``sot/codegen/exit.py``). Before that the states of the
random generators are restored, and no input may have been changed. So capture records both effects for each kernel
that runs on fake tensors.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from torch._higher_order_ops.effects import has_effects
from torch._ops import OpOverload, OpOverloadPacket
from torch._prims_common import is_contiguous_or_false

from sot.torch_compat.operators.overlaps import changes_what_it_reads, is_expanded

# Kernels that look at values and may refuse them: indices out of range, division by zero, matrices without an inverse.
REFUSE_VALUES = frozenset((
    "index", "index_put", "_index_put_impl", "index_select", "index_add", "index_copy", "index_fill", "index_reduce",
    "gather", "scatter", "scatter_add", "scatter_reduce", "take", "put", "embedding", "embedding_renorm",
    "_embedding_bag", "_embedding_bag_forward_only", "nll_loss_forward", "nll_loss2d_forward", "multi_margin_loss",
    "multilabel_margin_loss_forward", "_ctc_loss", "binary_cross_entropy", "multinomial", "bernoulli", "normal",
    "poisson", "binomial", "_assert_async", "_assert_scalar", "max_unpool2d", "max_unpool3d", "segment_reduce",
    "bincount", "histc", "div", "floor_divide", "remainder", "fmod", "pow", "cholesky", "cholesky_inverse",
    "cholesky_solve", "inverse", "lu_solve", "_linalg_svd", "_linalg_eigh", "_linalg_det", "_linalg_slogdet",
    "_linalg_solve_ex", "_linalg_check_errors", "searchsorted", "bucketize", "masked_scatter", "histogram",
    "_histogramdd_bin_edges", "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "linspace", "logspace",
    "lu_unpack", "fake_quantize_per_channel_affine_cachemask"))
# Operations made of kernels that look at values only where these are no fakes, so no kernel tells.
CHECKING_COMPOSITES = frozenset(("one_hot",))
# Operations of which compilers keep the result but not the exception, in versions of torch that do not know that checks
# are effects.
LOSING_CHECKS = frozenset(() if has_effects(torch.ops.aten._linalg_check_errors.default) else (
    "one_hot", "inverse", *(f"linalg_{n}" for n in (
        "inv", "cholesky", "solve", "lu_factor", "ldl_factor", "matrix_power", "tensorinv", "tensorsolve"))))
# Before torch 2.12 Inductor draws other numbers than eager for these, even if it is told to draw eager's.
DRAWN_OTHERWISE = frozenset(() if torch.__version__ >= "2.12" else ("rrelu_with_noise",))
BOOLS_REFUSED = frozenset((torch.ops.aten.sub, torch.ops.aten.sub_, torch.ops.aten.rsub))
HARMLESS = frozenset(f"linalg_{n}" for n in (
    "vector_norm", "cross", "matmul", "vecdot", "diagonal", "multi_dot", "matrix_exp", "householder_product", "qr",
    "solve_triangular"))
# Those that raise only for an index out of range, with the places of the dimension and the index; which of them count
# negative indices from the end.
BY_INDEX = {"index_copy": (1, 2), "index_select": (1, 2), "index_add": (1, 2), "index_fill": (1, 2), "gather": (1, 2),
            "scatter": (1, 2), "scatter_add": (1, 2), "scatter_reduce": (1, 2), "embedding": (0, 1)}
OPTIONS = frozenset(("alpha", "include_self"))      # the other arguments of these kernels
FROM_THE_END = frozenset(("index", "index_put", "index_fill"))
WHOLE_NUMBERS_ONLY = frozenset(("div", "floor_divide", "remainder", "fmod", "pow"))
# They refuse parameters that are in tensors; numbers have been refused by the time that the graph is made.
OF_TENSORS_ONLY = {"bernoulli": ("default", "Tensor", "out"), "normal": ("Tensor", "float_Tensor"),
                   "linspace": ("Tensor", "Scalar_Tensor"), "logspace": ("Tensor", "Scalar_Tensor")}
TORCHS_OWN = frozenset(("aten", "prim", "prims"))
COLLECTIVES = "_c10d_functional"    # they raise only when another process has gone, not because of values
# Kernels that want tensors of one dtype. Others that compute no element by itself may mix these dtypes.
OF_ONE_DTYPE = frozenset(("mm", "mv", "bmm", "dot", "vdot", "addmm", "addmv", "addbmm", "baddbmm", "linear",
                          "convolution"))
MIXED = frozenset((torch.float32, torch.bfloat16, torch.float16))
CONVERTING = frozenset(("copy", "where", "type_as"))
# Kernels that refuse a dimension that their first argument does not have, while their fakes do not.
ALONG_A_DIMENSION = frozenset(("sort", "argsort", "_softmax", "_log_softmax"))
# Kernels that make a tensor of numbers, with the places of the numbers among the arguments.
MAKING = {"full": slice(1, 2), "scalar_tensor": slice(0, 1), "linspace": slice(0, 2), "logspace": slice(0, 2),
          "range": slice(0, 3)}
# Whether the memory is large enough, fakes do not tell.
OF_PLACES_IN_MEMORY = frozenset((torch.ops.aten.as_strided, torch.ops.aten.as_strided_))
# Kernels refuse this integer and lesser ones as a size or a shift. Fakes do not. (``SymInt::MAX_UNREPRESENTABLE_INT``)
TOO_SMALL = -(1 << 62)


def draws(kernel: Any, args: tuple, kwargs: dict[str, Any] | None) -> bool:
    """Whether it takes random numbers from a generator. Attention takes none if its ``dropout_p`` is 0."""
    if torch.Tag.nondeterministic_seeded not in kernel.tags:
        return False
    place, dropout = dropout_of(kernel)
    if place >= 0:
        dropout = args[place] if place < len(args) else (kwargs or {}).get("dropout_p", dropout)
    return not (isinstance(dropout, float) and dropout == 0)


def draws_in_order_of_memory(kernel: Any, args: tuple) -> bool:
    """Whether it draws into memory that is not contiguous. The order of the numbers may depend on that memory, and
    AOTAutograd draws into other memory.
    """
    return torch.Tag.nondeterministic_seeded in kernel.tags and bool(args) and isinstance(args[0], torch.Tensor) and (
        changes_first(kernel) and not is_contiguous_or_false(args[0]))


def is_drawn_otherwise(kernel: Any) -> bool:
    """Whether a compiler draws other numbers than PyTorch for it."""
    return kernel._opname in DRAWN_OTHERWISE


@functools.cache
def changes_first(kernel: Any) -> bool:
    """Whether a kernel writes to its first argument."""
    first = kernel._schema.arguments[0].alias_info
    return first is not None and first.is_write


@functools.cache
def dropout_of(kernel: Any) -> tuple[int, Any]:
    """The index of ``dropout_p`` among a kernel's arguments (-1 for none), and its default."""
    found = [(i, a.default_value) for i, a in enumerate(kernel._schema.arguments) if a.name == "dropout_p"]
    return found[0] if found else (-1, None)


@functools.cache
def refusing(kernel: Any) -> str:
    """The name of a kernel that may raise on values, or nothing."""
    name = kernel._opname.rstrip("_")
    if kernel.namespace == COLLECTIVES:
        return ""
    if kernel.namespace not in TORCHS_OWN:
        return name
    return name if name in REFUSE_VALUES or (name.startswith("linalg_") and name not in HARMLESS) else ""


def is_of_torch(function: Any) -> bool:
    """Whether a function, method or operator is torch's own."""
    owner = getattr(function, "__objclass__", function)
    module = getattr(owner, "__module__", None) or ""
    if module.startswith("torch._ops."):
        return module.rpartition(".")[2] in TORCHS_OWN
    return module.partition(".")[0] == "torch"


def is_for_effects(target: Any) -> bool:
    """Whether an operator of a program returns nothing and changes no argument, so that it is called for what else it
    does. Compilers remove most of these.
    """
    kernels = [target] if isinstance(target, OpOverload) else [
        getattr(target, name) for name in target.overloads()] if isinstance(target, OpOverloadPacket) else []
    return any(kernel.namespace not in TORCHS_OWN and not kernel._schema.returns and not kernel._schema.is_mutable
               for kernel in kernels)


# Operations that take complex numbers. Views take them as well, and are recognised by their schema.
OF_COMPLEX = frozenset((
    "abs", "add", "addmm", "angle", "bmm", "cat", "clone", "copy", "cos", "cosh", "cumsum", "div", "dot", "eq",
    "empty_like", "exp", "fill", "flip", "index", "index_add", "index_put", "index_select", "log", "mean", "mm", "mul",
    "mv", "ne", "neg", "new_zeros", "ones_like", "pow", "reciprocal", "roll", "rsub", "sgn", "sigmoid", "sin", "sinh",
    "sqrt", "square", "stack", "sub", "sum", "tan", "tanh", "_to_copy", "vdot", "where", "zero", "zeros_like",
    "_conj_physical", "conj_physical", "_local_scalar_dense", "resolve_conj", "resolve_neg", "contiguous", "to"))


def may_refuse(kernel: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> bool:
    """Whether it may raise because of its arguments' values or their memory, which fake tensors do not have."""
    return refuses_otherwise(kernel, args, kwargs) or refuses_by_name(kernel, args)


def refuses_otherwise(kernel: Any, args: tuple, kwargs: dict[str, Any] | None) -> bool:
    """Whether it may raise for another reason than what the kernel is."""
    if kernel._schema.is_mutable and (
            changes_what_it_reads(kernel, args, kwargs or {}) or changes_expanded(args)
            or draws_numbers_for(kernel, args) or changes_inference_tensors(kernel, args)
            or changes_what_was_turned(kernel, args)):
        return True
    if any(isinstance(a, torch.Tensor) and a.dtype.is_complex for a in args) and is_of_reals(kernel):
        return True
    if refuses_numbers(kernel, args, kwargs or {}):
        return True
    if kernel.overloadpacket in OF_PLACES_IN_MEMORY and (
            any(has_symbol(a) for a in args[1:]) or is_outside(*args, **(kwargs or {}))):
        return True
    if refuses_dtypes(kernel, args) or has_too_small(args) or refuses_dimension(kernel, args, kwargs):
        return True
    if kernel.overloadpacket in BOOLS_REFUSED:      # which fakes do not tell
        return any(isinstance(a, bool) or (isinstance(a, torch.Tensor) and a.dtype is torch.bool) for a in args)
    return False


def has_symbol(value: Any) -> bool:
    return any(map(has_symbol, value)) if isinstance(value, (list, tuple)) else isinstance(value, torch.SymInt)


def is_outside(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
               ) -> bool:
    """Whether the tensor's memory may not have all of these places."""
    offset = tensor.storage_offset() if storage_offset is None else storage_offset
    places, memory = number_of_places(size, stride, offset), tensor.untyped_storage().nbytes()
    return type(places) is not int or type(memory) is not int or places * tensor.itemsize > memory


def number_of_places(size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    """How many elements a memory needs for these sizes and strides, which may be symbols."""
    if any(type(n) is int and n == 0 for n in size):
        return 0
    return (storage_offset or 0) + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=False))


def has_too_small(args: Sequence[Any]) -> bool:
    """Whether an integer among the arguments, also within lists, is too small for torch to take it as a size."""
    return any(has_too_small(a) if isinstance(a, (list, tuple)) else type(a) is int and a <= TOO_SMALL for a in args)


def refuses_dimension(kernel: Any, args: tuple, kwargs: dict[str, Any] | None) -> bool:
    """Whether its first argument does not have the dimension that the kernel needs."""
    if kernel._opname not in ALONG_A_DIMENSION or not isinstance(args[0], torch.Tensor):
        return False
    dim, dims = (kwargs or {}).get("dim", args[1] if len(args) > 1 else -1), max(args[0].dim(), 1)
    return type(dim) is int and not -dims <= dim < dims


def refuses_dtypes(kernel: Any, args: tuple) -> bool:
    """Whether its tensors may have dtypes that do not go together. Many fakes do not check that."""
    dtypes = {dtype for dtype in (a.dtype for a in args if isinstance(a, torch.Tensor))
              if dtype.is_floating_point or dtype.is_complex}
    if len(dtypes) < 2 or torch.Tag.pointwise in kernel.tags:
        return False
    name = kernel._opname.rstrip("_")
    return name in OF_ONE_DTYPE or not (dtypes <= MIXED or name in CONVERTING)


def refuses_by_name(kernel: Any, args: tuple) -> bool:
    """Whether it may raise because it is a kernel that looks at values."""
    name = refusing(kernel)
    if name in OF_TENSORS_ONLY:
        return kernel._overloadname.startswith(OF_TENSORS_ONLY[name])
    if name == "index_put" and fills_a_mask(*args[1:3]) or name == "div" and "mode" not in kernel._overloadname:
        return False        # the quotient of whole numbers is a float
    return bool(name) and not (name in WHOLE_NUMBERS_ONLY and (
        is_positive(args[1:2]) or any(isinstance(a, torch.Tensor) and a.dtype.is_floating_point for a in args)))


def fills_a_mask(indices: list, value: torch.Tensor) -> bool:
    """Whether ``x[mask] = number``: the mask has a shape that fits, and its values are no positions."""
    return value.dim() == 0 and all(index is not None and index.dtype is torch.bool for index in indices)


def is_positive(divisor: tuple) -> bool:
    """Whether it is a number by which whole numbers are always divided without an error, and to which they are
    raised.
    """
    return bool(divisor) and type(divisor[0]) is int and divisor[0] > 0


def bounds_of_indices(kernel: Any, args: tuple, kwargs: dict[str, Any] | None) -> list[tuple] | None:
    """The indices for which a kernel may raise, each with the size of what it selects from, whether it may count from
    the end, and the value that a loss ignores; None if the kernel may raise for anything else.
    """
    name = refusing(kernel)
    if refuses_otherwise(kernel, args, kwargs) or kernel.namespace not in TORCHS_OWN:
        return None
    if name in ("nll_loss_forward", "nll_loss2d_forward"):
        scores, target, _, _, ignored = args
        classes = scores.shape[min(scores.dim(), 2) - 1]
        return [(target, classes, False, ignored)] if target.dtype is torch.int64 else None
    if name in BY_INDEX and not (kwargs or {}).keys() - OPTIONS:
        dim, at = BY_INDEX[name]
        if name == "embedding":
            found = [(args[at], args[0].shape[0])]
        elif len(args) > at and type(args[dim]) is int and args[0].dim():
            found = [(args[at], args[0].shape[args[dim]])]
        else:
            return None
    elif name in ("index", "index_put"):
        found = [(index, size) for index, size in zip(args[1], args[0].shape, strict=False) if index is not None]
    else:
        return None
    if any(index.dtype not in (torch.int64, torch.int32) for index, _ in found):
        return None
    return [(index, size, name in FROM_THE_END, None) for index, size in found]


def refuses_numbers(kernel: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a number may not fit into the dtype of the result: of the first tensor, or of a tensor that is made."""
    name, dtype = kernel._opname, kwargs.get("dtype")
    if args and isinstance(args[0], torch.Tensor):
        return any(not fits(a, dtype or args[0].dtype) for a in (*args[1:], *kwargs.values()))
    if name == "randint":       # it makes no number that is as large as its bound
        *lows, high = [a for a in args[:2] if isinstance(a, int)] or [0]
        return dtype is torch.bool or any(not fits(a, dtype or torch.int64) for a in (*lows, high - 1))
    numbers = args[MAKING[name]] if name in MAKING else ()
    return any(not fits(a, dtype or default_dtype(a)) for a in numbers)


def default_dtype(number: Any) -> torch.dtype:
    """The dtype of a tensor that torch makes of a number."""
    if isinstance(number, int):
        return torch.int64
    return torch.get_default_dtype().to_complex() if isinstance(number, complex) else torch.get_default_dtype()


def fits(number: Any, dtype: torch.dtype) -> bool:
    """Whether a kernel can convert a number to the dtype. Fakes do not try to. A float that varies is assumed to fit,
    because it has no value yet.
    """
    if type(number) not in (int, float, complex) or dtype is torch.bool:
        return True
    if type(number) is complex:
        return fits(number.real, dtype) and (fits(number.imag, dtype) if dtype.is_complex else number.imag == 0)
    if not isfinite(number):
        return dtype.is_floating_point or dtype.is_complex
    least, most = limits(dtype)
    return least <= number <= most


def limits(dtype: torch.dtype) -> tuple[float, float]:
    """The least and the largest finite number that torch converts to the dtype."""
    if dtype is torch.bool:
        return -sys.float_info.max, sys.float_info.max
    known = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    return known.min, known.max


@functools.cache
def is_of_reals(kernel: Any) -> bool:
    """Whether it may refuse complex numbers; kernels check that when they run."""
    name = kernel._opname.rstrip("_")
    return name not in OF_COMPLEX and not any(
        a.alias_info is not None and not a.alias_info.is_write for a in kernel._schema.returns)


def draws_numbers_for(kernel: Any, args: tuple) -> bool:
    """Whether it draws numbers of a dtype that may have no kernel."""
    return torch.Tag.nondeterministic_seeded in kernel.tags and bool(args) and isinstance(
        args[0], torch.Tensor) and not args[0].dtype.is_floating_point


def casts(args: tuple) -> bool:
    """Whether the result of an operation in place may have a dtype that does not fit the first argument."""
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or first.dtype.is_complex:
        return False
    return not first.dtype.is_floating_point or any(
        isinstance(a, complex) or (isinstance(a, torch.Tensor) and a.dtype.is_complex) for a in args)


@functools.cache
def out_of_place(kernel: Any) -> Any:
    """The functional kernel for an in-place kernel, or None."""
    name = kernel._opname
    if not name.endswith("_") or torch.Tag.nondeterministic_seeded in kernel.tags:
        return None
    packet = getattr(getattr(torch.ops, kernel.namespace), name[:-1], None)
    return getattr(packet, kernel._overloadname, None)


def changes_expanded(args: tuple) -> bool:
    """Whether the first argument, which is changed, has an element twice."""
    first: Any = args[0] if args else None
    return isinstance(first, torch.Tensor) and first.layout is torch.strided and is_expanded(first)


# They update running statistics, and say nothing about it in their schema.
NORMALIZING = frozenset(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_batch_norm_impl_index"))


@functools.cache
def _changing(kernel: Any) -> str:
    name = kernel._opname
    return name if name in NORMALIZING or kernel._schema.is_mutable else ""


def changes_unversioned(kernel: Any, args: tuple) -> bool:
    """Whether it changes a tensor without its version counter."""
    name = _changing(kernel)
    if name in NORMALIZING:
        return args[5] is not False and any(isinstance(a, torch.Tensor) for a in args[3:5])     # args[5]: training
    return bool(name) and (_writes_beside_self(kernel) or any(
        isinstance(a, torch.Tensor) and a.is_inference() for a in (*args, *changed_lists(kernel, args))))


def changes_inference_tensors(kernel: Any, args: tuple) -> bool:
    """Whether it may raise because an inference tensor is changed outside of inference mode. Fakes do not, if the
    tensor is a view, or in a list.
    """
    return not torch.is_inference_mode_enabled() and any(
        isinstance(a, torch.Tensor) and a.is_inference() for a in (*args[:1], *changed_lists(kernel, args)))


def changes_what_was_turned(kernel: Any, args: tuple) -> bool:
    """Whether it changes a tensor with a history that ``t_``, ``unsqueeze_`` or another such view in place has turned.
    Autograd fails then if the tensor retains its gradient. Fakes of inputs do not retain theirs.
    """
    first: Any = args[0] if args else None
    if not isinstance(first, torch.Tensor) or not first.requires_grad:
        return False
    if torch.Tag.inplace_view in kernel.tags:
        first.turned = True     # type: ignore[attr-defined]
        return False
    return hasattr(first, "turned")


def changed_lists(kernel: Any, args: tuple) -> list[torch.Tensor]:
    """The tensors of lists that an operation changes in place (``_foreach_add_``). Fakes of them get no new version."""
    return [tensor for i in _positions_of_changed_lists(kernel) for tensor in args[i]] if _changing(kernel) else []


@functools.cache
def _positions_of_changed_lists(kernel: Any) -> tuple[int, ...]:
    return tuple(i for i, a in enumerate(kernel._schema.arguments) if not a.kwarg_only and a.is_write and isinstance(
        a.type, torch.ListType))


@functools.cache
def _writes_beside_self(kernel: Any) -> bool:
    """Whether it changes arguments without their version counters: the flag that a GradScaler reads, the range of an
    observer."""
    return kernel.namespace in TORCHS_OWN and any(
        a.alias_info is not None and a.alias_info.is_write and not a.kwarg_only and a.name != "self"
        for a in kernel._schema.arguments)
