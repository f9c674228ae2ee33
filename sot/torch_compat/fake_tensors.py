"""Fake tensors: the metadata of an operation's result, computed without data. Their mode also records effects."""
from __future__ import annotations

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.nested._internal.nested_int import NestedIntNode
from torch.utils._pytree import tree_leaves

from sot.torch_compat import op_effects
from sot.torch_compat.operators import layouts, rules, trials
from sot.torch_compat.operators.matching_shapes import COMPARED
from sot.torch_compat.operators.overlaps import changes_what_it_reads
from sot.torch_compat.operators.remembered import remembered_results
from sot.torch_compat.operators.size_trials import kernel_refuses_sizes
from sot.torch_compat.subclasses.wrappers import plain_parts

__all__ = ["DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "RecordingFakeMode", "UnsupportedFakeTensorException", "UnsupportedOperatorException",
           "enable_python_dispatcher", "forget_constant", "forget_tensors", "is_symbolic", "new_fake_mode", "quiet"]

rules.fix()


def is_symbolic(fake: torch.Tensor) -> bool:
    """Whether a size or stride of a fake tensor is a symbol."""
    return bool(fake._has_symbolic_sizes_strides)


def has_constant(fake: Any) -> bool:
    """Whether torch knows the contents of a fake tensor. Where a compiler traces, it calls operators with them."""
    return isinstance(fake, FakeTensor) and fake.constant is not None


def forget_constant(fake: Any) -> None:
    """torch knows the contents of a fake tensor that is made of Python numbers. At the next call they may differ."""
    if isinstance(fake, FakeTensor):
        fake.constant = None


# The second and third results of these are integers. Fake kernels of torch 2.11 give them the dtype of the input, and
# compilers that use these kernels compute with it.
_aten = torch.ops.aten
POSITIONS_AND_COUNTS = frozenset({_aten._unique2.default, _aten.unique_dim.default, _aten.unique_consecutive.default,
                                  _aten.unique_dim_consecutive.default})


DEVICE = torch.ops.prim.device.default      # torch's C++ code asks for it, several times for an operation
ragged_sizes = itertools.count(1 << 40)     # of fakes: the program has none of these numbers


class RecordingFakeMode(FakeTensorMode):
    """A fake mode that remembers whether kernels drew random numbers, or may raise on values."""

    indices: Sequence[tuple] | None = ()     # for which kernels may raise; None: for something else, too
    draws = draws_now = may_refuse = changes_unversioned = draws_in_order = False
    changes_what_it_reads = False
    is_refused = False      # by torch for these dtypes, for certain; compilers may compute something
    has_own_layout = False     # a result that torch's rules, and so compilers, lay out differently than the kernel
    is_inside = False       # of an operation, whose fake kernel may be made of others. torch runs it once in a process
    has_symbols = False
    is_running = False      # an operation for capture, rather than for a compiler that traces with this mode
    results: Any = None         # those of operations of this trace, see operators/remembered.py
    remembered: Any = None      # the same, while capture runs an operation
    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            return self.run_operator(func, args, kwargs or {})
        if func is DEVICE:
            return args[0].device
        if self.is_inside:
            return super().__torch_dispatch__(func, types, args, kwargs)
        self.note(func, args, kwargs)
        if func.namespace not in op_effects.TORCHS_OWN:
            self.forget_constants(tree_leaves((args, kwargs)))
        versions = [(tensor, tensor._version) for tensor in op_effects.changed_lists(func, args)
                    if not tensor.is_inference()]
        self.is_inside = True
        try:
            if func in COMPARED:
                COMPARED[func](*args, **(kwargs or {}))
            compute = functools.partial(super().__torch_dispatch__, func, types, args, kwargs)
            result: Any = compute() if self.remembered is None else self.remembered.run(
                self, func, args, kwargs or {}, compute)
            result = layouts.as_given(self, func, args, kwargs or {}, result)
            made = layouts.as_kernel(self, func, args, result)
            self.has_own_layout = self.has_own_layout or made is not result
            result = made
        finally:
            self.is_inside = False
        if self.is_running and self.indices is not None and kernel_refuses_sizes(
                func, args, kwargs or {}, [size for _, size, *_ in self.indices], self.shape_env):
            self.note_refusal()
        torch.autograd.graph.increment_version([tensor for tensor, version in versions if tensor._version == version])
        if func in POSITIONS_AND_COUNTS and any(number.dtype is not torch.int64 for number in result[1:]):
            raise DynamicOutputShapeException(func)
        return result

    def forget_constants(self, values: Sequence[Any]) -> None:
        """Forget the contents of fakes that are made of Python numbers, and of their views. torch would call an
        operator with real tensors of these contents, but only those of torch itself compute and do nothing else.
        """
        for value in values:
            if has_constant(value):
                self.fake_tensor_converter.invalidate_constant_aliases(value.constant)
                forget_constant(value)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The context in which capture runs operations: the mode remembers their results. With symbols torch runs them
        by their Python decompositions, which keep symbols symbolic. Compilers trace with the same mode outside of this
        context, because they follow each symbol from the operation that computes it.
        """
        before, self.remembered, self.is_running = (self.remembered, self.is_running), self.results, True
        try:
            with self, enable_python_dispatcher() if self.has_symbols else contextlib.nullcontext():
                yield
        finally:
            self.remembered, self.is_running = before

    def from_tensor(self, tensor: torch.Tensor, *args: Any, **options: Any) -> FakeTensor:
        fake: Any = super().from_tensor(tensor, *args, **options)
        parts: Any = plain_parts(fake)
        for part in parts:      # torch 2.15 remembers the number in a tensor, which is another one at the next call
            part.item_memo = None
        return fake

    def create_symbolic_nested_int(self, *, nt_tensor_id: int | None = None) -> Any:
        """The size of a ragged dimension. It equals only itself, as in plain PyTorch, so it is no symbol."""
        return torch.SymInt(NestedIntNode(next(ragged_sizes) if nt_tensor_id is None else nt_tensor_id, 1))

    def note(self, func: Any, args: Any, kwargs: Any) -> None:
        """Record the effects of an operation that is about to run."""
        self.draws_now = self.draws_now or op_effects.draws(func, args, kwargs)
        self.draws = self.draws or self.draws_now
        self.draws_in_order = self.draws_in_order or op_effects.draws_in_order_of_memory(
            func, args) or op_effects.is_drawn_otherwise(func)
        if op_effects.may_refuse(func, args, kwargs):
            self.may_refuse = True
            bounds = op_effects.bounds_of_indices(func, args, kwargs)
            self.indices = None if bounds is None or self.indices is None else [*self.indices, *bounds]
        elif op_effects.casts(args) and self.refuses_cast(func, args, kwargs or {}):
            self.note_refusal()
            self.is_refused = True
        if error := trials.error_of(func, args, kwargs):
            self.is_refused = self.is_refused or trials.MISSING in error
            if self.is_refused or not self.may_refuse:
                self.note_refusal()
        self.changes_unversioned = self.changes_unversioned or op_effects.changes_unversioned(func, args)
        self.changes_what_it_reads = self.changes_what_it_reads or changes_what_it_reads(func, args, kwargs or {})

    def run_operator(self, operator: HigherOrderOperator, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operator that takes functions. torch looks up its rule by the exact class of the mode. The rule may ask
        the mode in turn.
        """
        rules = operator.python_key_table
        if type(self) in rules:
            return super().__torch_dispatch__(operator, (), args, kwargs)     # type: ignore[arg-type]
        rules[type(self)] = rules[FakeTensorMode]
        return rules[type(self)](self, *args, **kwargs)

    def start_operation(self) -> None:
        """Forget what was noted of the operation before."""
        self.may_refuse = self.changes_unversioned = self.draws_now = self.draws_in_order = False
        self.changes_what_it_reads = self.has_own_layout = self.is_refused = False
        self.indices = []

    def note_refusal(self, indices: Sequence[tuple] | None = None) -> None:
        """Record that the operation may raise, for these indices, or for something else."""
        self.may_refuse = True
        self.indices = None if indices is None or self.indices is None else [*self.indices, *indices]

    def refuses_cast(self, func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether an in-place operation will raise because its result has a dtype that does not fit. Fakes do not."""
        kernel = op_effects.out_of_place(func)
        if kernel is None:
            return False
        with contextlib.suppress(Exception), self:      # it raises by itself
            result = kernel(*args, **kwargs)
            return isinstance(result, torch.Tensor) and not torch.can_cast(result.dtype, args[0].dtype)
        return False


def forget_tensors(mode: FakeTensorMode) -> None:
    """Drop a mode's weak references to tensors with fakes, because ``swap_tensors`` refuses a tensor with weak
    references.
    """
    describer = mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.data.clear()
    describer.lookup_storage.data.clear()


def new_fake_mode() -> RecordingFakeMode:
    mode = RecordingFakeMode(allow_non_fake_inputs=False)
    mode.results = remembered_results()
    return mode


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Silence the loggers with these names, or else those that report errors of fake operations, which are ordinary
    outcomes here. A new level would empty the caches of all loggers, which capture reads.
    """
    loggers = [*map(logging.getLogger, names or ("torch._subclasses.fake_tensor", "torch._prims_common"))]
    before = [log.disabled for log in loggers]
    for log in loggers:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(loggers, before, strict=True):
            log.disabled = was_disabled
