"""Tensors in guards, reports and graphs: their checks, their summaries, and views of subclasses."""
from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._C._dynamo.guards import TensorGuards
from torch.multiprocessing.reductions import StorageWeakRef

from sot import _hook
from sot.torch_compat import native
from sot.torch_compat.functions import DISABLED, TensorBase
from sot.torch_compat.subclasses.wrappers import is_wrapper_class, plain_parts

try:
    from torch._custom_class_base import CustomClassBase as OpaqueBase
except ModuleNotFoundError:     # an older torch; in torch 2.15 its name logs a warning
    from torch._opaque_base import OpaqueBase

# How the metaclasses of these classes decide what is an instance, where capture knows the answer.
KNOWN_CHECKS = [vars(type(cls))["__instancecheck__"] for cls in (torch.nn.Parameter, torch.nn.Buffer, OpaqueBase)]

Layout = tuple[Sequence[int | None], Sequence[int | None]]      # sizes and strides; None is any


class TensorChecks:
    """Checks a fixed number of tensors at once: type, dtype, device, sizes, strides, requires_grad, keys.

    Tensors must also be pairwise different objects. 50 ns a tensor.
    """

    def __init__(self, examples: Sequence[torch.Tensor], layouts: Sequence[Layout | None] = ()) -> None:
        """``layouts``: sizes and strides to check in place of an example's; None matches any."""
        found = layouts or [None] * len(examples)
        sizes: Any = [list(t.size()) if at is None else list(at[0]) for t, at in zip(examples, found, strict=True)]
        strides: Any = [list(t.stride()) if at is None else list(at[1]) for t, at in zip(examples, found, strict=True)]
        with outside_transforms():
            checks = TensorGuards(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        self.check = checks.check


LEVELS = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode, torch._C.DispatchKey.FuncTorchDynamicLayerBackMode


def outside_transforms() -> contextlib.AbstractContextManager[Any]:
    """A context with the thread's dispatch keys, but for those of the levels of ``torch.func`` that capture is in.
    ``TensorGuards`` adds the keys to the tensor's, and calls are checked outside of these levels.
    """
    keys = torch._C._dispatch_tls_local_include_set()
    if not any(map(keys.has, LEVELS)):
        return contextlib.nullcontext()
    for level in LEVELS:
        keys = keys.remove(level)
    return torch._C._ForceDispatchKeyGuard(keys, torch._C._dispatch_tls_local_exclude_set())


def tensor_spec(example: torch.Tensor, layout: Layout) -> Any:
    """The specification that the guard program compares tensors with; None if C cannot express it."""
    if example.layout != torch.strided:
        return None
    return tensor_specs()(example, (tuple(layout[0]), tuple(layout[1])))


@functools.cache
def tensor_specs() -> Callable[[torch.Tensor, Layout], Any]:
    """The function that makes specifications: of ``sot._tensors``, a few nanoseconds per tensor, or of torch's own
    guards.
    """
    tensors = native.module("tensors")
    if tensors is None:
        _hook.use_slow_tensors(torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set)
        return slow_spec
    _hook.use_tensor_api(tensors.api)
    return lambda example, layout: tensors.spec(example, *layout, torch.Tensor)


# Tensors with one of these have their sizes elsewhere, or more than sizes.
NOT_PLAIN = [getattr(torch._C.DispatchKey, name) for name in (
    "Python", "FuncTorchGradWrapper", "FuncTorchBatched", "Functionalize", "NestedTensor")]


def slow_spec(example: torch.Tensor, layout: Layout) -> Any:
    keys = torch._C._dispatch_keys(example)
    if any(map(keys.has, NOT_PLAIN)):
        return None
    return _hook.slow_tensor_spec(TensorChecks([example], [layout]).check)


def versions_of(values: Sequence[Any]) -> list[int]:
    """The versions of the tensors among some values. Those of inference mode have none."""
    tensors = native.module("tensors")
    if tensors is not None:
        found: list[int] = tensors.versions(tuple(values), torch.Tensor)
        return found
    return [value._version for value in values if isinstance(value, torch.Tensor) and not value.is_inference()]


def tensor_summary(t: torch.Tensor, sizes: Sequence[int | None] = ()) -> str:
    """For example ``float32 tensor of shape (2, 3) on cpu, requires grad``. A size of None is any size."""
    if is_wrapper_class(type(t)):
        with without_subclasses():
            return f"{str(t.dtype)[6:]} {type(t).__qualname__} of shape {tuple(t.shape)} on {t.device}"
    kind = type(t).__name__.lower()
    t = plain_tensor(t)
    extra = ", requires grad" if t.requires_grad else ""
    layout = "" if t.layout == torch.strided else f", {t.layout}"
    strides = f", strides {tuple(t.stride())}" if (
        t.layout == torch.strided and not t.is_contiguous() and None not in sizes) else ""
    kind = f"{str(t.dtype)[6:]} {kind}"
    shape = ", ".join("any" if n is None else str(n) for n in sizes or t.shape) + "," * (t.dim() == 1)
    return f"{kind} of shape ({shape}) on {t.device}{strides}{layout}{extra}"


def storage_id(t: torch.Tensor) -> int:
    """An identifier of the storage: tensors that share memory have the same one."""
    while functorch.is_functorch_wrapped_tensor(t):
        t = functorch.get_unwrapped(t)
    return t.untyped_storage()._cdata if t.layout is torch.strided or t.is_nested else id(t)


def storage_ids(t: torch.Tensor) -> set[int]:
    """The identifiers of all storages that hold its elements: a wrapper has several."""
    return {storage_id(part) for part in plain_parts(t)}


def shared_memory(count: int, *tensors: torch.Tensor) -> tuple[tuple[int, Any, Any, int] | None, ...]:
    """For each tensor that shares its storage with one of the first ``count`` and is not that one: its place in
    ``tensors``, and where both begin. None for the others. Storages of other libraries (NumPy, DLPack) may have the
    memory of a storage of torch.
    """
    keys = [storage_id(tensor) for tensor in tensors]
    spans = {key: span_of(tensor) for key, tensor in zip(keys, tensors, strict=True)}
    groups = group_overlapping(spans)
    first: dict[int, int] = {}
    for i, key in enumerate(keys[:count]):
        first.setdefault(groups[key], i)
    places = [first.get(groups[key], i) for i, key in enumerate(keys)]
    return tuple(None if place == i else (place, tensors[place].storage_offset(), tensors[i].storage_offset(),
                                          spans[keys[i]][0] - spans[keys[place]][0]) for i, place in enumerate(places))


def span_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the storage of a tensor begins and ends in memory."""
    storage = tensor.untyped_storage()
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def group_overlapping(spans: dict[int, tuple[int, int]]) -> dict[int, int]:
    """For each storage one that stands for all that it is connected to by overlaps in memory."""
    groups: dict[int, int] = {}
    group, reached = 0, 0
    for key, (start, end) in sorted(spans.items(), key=operator.itemgetter(1)):
        if start >= reached and end > start:
            group = key
        groups[key] = group if end > start else key
        reached = max(reached, end)
    return groups


# ``Tensor.__torch_function__`` makes its results instances of the subclass.
convert_result = torch._tensor._convert

without_subclasses = torch._C.DisableTorchFunctionSubclass


def overrides_enabled(enabled: bool) -> Any:
    """A context in which torch looks for overrides in classes, as outside of a capture, or does not."""
    return torch._C._EnableTorchFunction() if enabled else contextlib.nullcontext()


def plain_tensor(value: Any) -> Any:
    """A plain tensor that views a tensor of a subclass that overrides operations. Other values are unchanged, and so
    are wrappers, whose elements are in other tensors.
    """
    kind = type(value)
    as_it_is = kind is torch.Tensor or not isinstance(value, torch.Tensor) or kind.__torch_function__ is DISABLED or (
        is_wrapper_class(kind))
    if as_it_is:
        return value
    try:
        return value.as_subclass(torch.Tensor)
    except RuntimeError:        # autograd refuses a view of several whose base has been changed in place
        with torch._C._AutoDispatchBelowAutograd():
            return value.as_subclass(torch.Tensor)


def is_plain(value: Any) -> bool:
    """Whether it is of a class that overrides no operation."""
    return plain_tensor(value) is value and not is_wrapper_class(type(value))


def plain_example(value: Any) -> Any:
    """Like ``plain_tensor``, for a backend: a tensor that shares the memory and is no instance of the subclass."""
    plain = plain_tensor(value)
    return plain if plain is value else plain.data.requires_grad_(plain.requires_grad)


def asking_no_class(graph: Callable, as_it_is: bool) -> Callable:
    """Wrap a graph so that it ignores the overrides of subclasses among its inputs.

    A compiled graph gets views of them, because its backward pass sees saved tensors without this context.
    """
    def run(*inputs: Any) -> Any:
        with without_subclasses():
            return graph(*inputs) if as_it_is else graph(*map(plain_tensor, inputs))
    return run


def of_inference_mode(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of inference mode with the memory of a tensor that has no history. Other classes and layouts stay as
    they are.
    """
    if (tensor.is_inference() or type(tensor) is not torch.Tensor or tensor.layout is not torch.strided
            or tensor.is_conj() or tensor.is_neg()):
        return tensor
    with torch.inference_mode():
        return tensor.new_empty(0).set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def versions(*tensors: torch.Tensor) -> tuple[int, ...]:
    """The version counter of each tensor. This calls no subclass."""
    with without_subclasses():
        return tuple(t._version for t in tensors)


def set_versions(tensors: Sequence[torch.Tensor], counters: Sequence[int]) -> None:
    """Set version counters back, for tensors that have their values of that time again."""
    torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(counters))


# ---- who uses a storage ---------------------------------------------------------------------------------------
class StorageUsers:
    """Counts who uses the storages of some tensors: other tensors, and the program, if it has the storage itself.

    Arguments:
        tensors: tensors with a storage each.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.storages = [t.untyped_storage() for t in tensors]      # a storage keeps its Python object from then on
        self.handles = [storage._cdata for storage in self.storages]

    def counts(self) -> list[int]:
        """The number of tensors of each storage, then that of references to its Python object."""
        return [*map(torch._C._storage_Use_Count, self.handles), *map(sys.getrefcount, self.storages)]

    def without_others(self) -> list[int]:
        """The counts if nothing but the tensors uses the storages."""
        return [count for count in _counts_of_one() for _ in self.storages]

    def others(self) -> list[int]:
        """The positions of the storages that something else uses."""
        counts, one = self.counts(), _counts_of_one()
        number = len(self.storages)
        return [i for i in range(number) if (counts[i], counts[i + number]) != one]


@functools.cache
def _counts_of_one() -> tuple[int, ...]:
    tensor = torch.empty(1)
    return tuple(StorageUsers([tensor]).counts())


def watch(tensor: torch.Tensor) -> Callable[[], bool]:
    """A function that says whether the memory of the tensor is still used, and does not keep it alive."""
    memory = StorageWeakRef(tensor.untyped_storage())
    return lambda: not memory.expired()


# ---- attributes -------------------------------------------------------------------------------------------
# Each attribute and method of torch.Tensor that returns no tensor is in one of three tables. A test checks that.
# CONSTANT is determined by what the guard on a tensor compares, and is read off the fake tensor.
# ASKED is not; it is read off the real tensor and gets its own guard.
# LEFT is left to Python, as are all names that are in no table.

# Attributes that follow from dtype, shape, strides, device, layout, requires_grad and dispatch keys.
CONSTANT_ATTRIBUTES = frozenset({
    "shape", "dtype", "device", "ndim", "requires_grad", "layout", "itemsize", "nbytes", "is_cuda", "is_cpu",
    "is_sparse", "is_quantized", "is_meta", "is_mps", "is_xla", "is_mkldnn", "is_nested", "is_sparse_csr", "is_xpu",
    "is_vulkan", "is_ipu", "is_mtia", "is_maia"})
# Methods, and functions of torch, of the same kind.
CONSTANT_METHODS = frozenset({
    "size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "get_device", "is_contiguous",
    "is_complex", "is_floating_point", "is_signed", "is_conj", "is_neg", "is_inference", "is_same_size", "type",
    "dim_order", "__len__", "__dlpack_device__", "_is_zerotensor", "dense_dim", "sparse_dim", "storage_type",
    "is_distributed", "_has_symbolic_sizes_strides"})
# These functions of torch take tensors and return constants.
CONSTANT_FUNCTIONS = frozenset({
    "is_tensor", "is_storage", "result_type", "can_cast", "promote_types", "broadcast_shapes", "numel",
    "_has_compatible_shallow_copy_type", "len", "sym_size", "sym_numel", "sym_stride", "sym_storage_offset",
    "eq", "ne", "__eq__", "__ne__",     # with values that are not tensors
    "_parse_to",    # of a dtype, a device or a tensor: what Module.to() changes
    "has_names", "is_grad_enabled", "is_inference_mode_enabled", "get_default_dtype", "typename"})

# These show values. A fake tensor knows those of a constant, and raises otherwise.
VALUES = frozenset({"item", "tolist", "bool", "int", "float", "complex", "index", "is_nonzero", "equal", "allclose",
                    "__contains__", "__bool__", "__int__", "__float__", "__complex__", "__index__", "__nonzero__",
                    "__long__"})
CONSTANT_RESULTS = CONSTANT_METHODS | CONSTANT_FUNCTIONS | VALUES

_Reader = Callable[[torch.Tensor], Any]
# Attributes and methods without arguments that are not determined by it, by their readers, which ignore overrides.
ASKED_ATTRIBUTES = frozenset({"is_leaf", "output_nr", "retains_grad"})
OF_SOT = frozenset({"storage_size", "takes_gradient"})      # no names of torch
ASKED: dict[str, _Reader] = {
    "_is_view": torch.Tensor._is_view, "storage_offset": torch.Tensor.storage_offset,
    "storage_size": lambda tensor: tensor.untyped_storage().nbytes(), "takes_gradient": lambda t: takes_gradient(t),
    **{name: vars(TensorBase)[name].__get__ for name in ASKED_ATTRIBUTES}}
ASKED_METHODS = frozenset(ASKED) - ASKED_ATTRIBUTES - OF_SOT


def ask(tensor: torch.Tensor, name: str) -> Any:
    """Read an attribute of a tensor. Overrides in its class and patches are ignored."""
    with without_subclasses():
        return ASKED[name](tensor)


def takes_gradient(tensor: torch.Tensor) -> bool:
    """Whether a backward pass gives this leaf a gradient. A view that was made without gradients requires grad as its
    base does, and is a leaf, but gets none.
    """
    if not tensor.is_leaf or not tensor._is_view():
        return tensor.is_leaf
    with torch.enable_grad():
        of_view = tensor.view_as(tensor).grad_fn
    return of_view is not None and of_view.next_functions[0][0] is not None     # what adds to .grad


def rule_of_changes(tensor: torch.Tensor) -> str:
    """The rule by which autograd takes or refuses a change of this tensor in place."""
    with without_subclasses():
        if not tensor._is_view() or tensor._base is None:
            return "leaf" if tensor.is_leaf else "result"
        base = "leaf" if tensor._base.is_leaf and tensor._base.requires_grad else "result"
        return f"view of a {base}, {torch._C._autograd._get_creation_meta(tensor).name}"


def creation_of(value: Any) -> Any:
    """The mode in which a view without a history was made; None of other values. It decides about changes in place."""
    with without_subclasses():
        if not isinstance(value, torch.Tensor) or value.requires_grad or not value._is_view() or value._base is None:
            return None
        return torch._C._autograd._get_creation_meta(value)


def set_creation(view: Any, mode: Any) -> None:
    """Set that mode, if it is such a view. Another one may be an own tensor with the same contents."""
    if creation_of(view) is not None:
        torch._C._autograd._set_creation_meta(view, mode)


# Left to Python: memory, counts, history, hooks, values.
LEFT = frozenset({
    # where the memory is, and what shares it
    "data_ptr", "const_data_ptr", "is_shared", "is_pinned", "is_set_to", "untyped_storage", "storage", "_typed_storage",
    "share_memory_", "_cdata", "_use_count", "_fix_weakref", "__dlpack__", "__dlpack_c_exchange_api__",
    "__cuda_array_interface__", "record_stream", "__sizeof__",
    # how often it was changed, and autograd's data
    "_version", "_base", "_grad", "_grad_fn", "_backward_hooks", "_post_accumulate_grad_hooks", "grad_dtype",
    "_has_grad_dtype_override", "_rev_view_func_unsafe", "_view_func", "_view_func_unsafe",
    # its values, in another form
    "numpy", "__array__", "__repr__", "__str__", "__format__", "__reversed__", "apply_", "map_", "map2_",
    # absent from strided tensors, or obsolete
    "_nnz", "_dimI", "_dimV", "is_coalesced", "q_scale", "q_zero_point", "q_per_channel_axis", "qscheme", "names",
    "has_names", "_update_names", "name", "volatile", "reinforce", "eig", "lstsq", "lu", "solve", "symeig",
    # attributes of the class statement in 3.13 and later
    "__annotate_func__", "__firstlineno__", "__static_attributes__",
    # how Python copies, stores and prints it
    "__reduce__", "__reduce_ex__", "_reduce_ex_internal", "__getstate__", "__setstate__", "__deepcopy__", "__dir__",
    "__array_priority__", "_clear_non_serializable_cached_data", "module_load"})
