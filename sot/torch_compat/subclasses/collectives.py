"""Collectives that change tensors, as operations that graphs can hold: one that starts, and one that waits.

Each sends what the function of torch.distributed sends, so a rank that runs a graph meets one that runs Python. Fakes
and compilers know the functional form. The parameters of a function here are those of torch's that it supports, and the
first is what the collective writes.
"""
from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.functional_tensor import FunctionalTensor

from sot.torch_compat.fake_tensors import FakeTensor

TRACED = FakeTensor, FunctionalTensor


def operations() -> Any:
    importlib.import_module("torch.distributed._functional_collectives")    # registers them
    return torch.ops._c10d_functional


def group_or_world(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def name_of(group: Any) -> str:
    return group_or_world(group).group_name


def name_of_reduction(op: Any) -> str:
    names = importlib.import_module("torch.distributed._functional_collectives").REDUCE_OP_TO_STR
    return names[dist.ReduceOp.SUM if op is None else op]


def all_reduce(tensor: torch.Tensor, op: Any = None, group: Any = None) -> torch.Tensor:
    return operations().all_reduce(tensor, name_of_reduction(op), name_of(group))


def broadcast(tensor: torch.Tensor, src: int) -> torch.Tensor:
    """In the group of all processes, where the rank of a process is its global one."""
    return operations().broadcast(tensor, src, name_of(None))


def all_gather_single(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
    return operations().all_gather_into_tensor(input_tensor, group_or_world(group).size(), name_of(group))


def all_gather(tensor_list: Sequence[torch.Tensor], tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
    return operations().all_gather_into_tensor(
        tensor.reshape(-1), group_or_world(group).size(), name_of(group))


def reduce_scatter_single(output: torch.Tensor, input: torch.Tensor, op: Any = None, group: Any = None) -> torch.Tensor:
    return operations().reduce_scatter_tensor(
        input, name_of_reduction(op), group_or_world(group).size(), name_of(group))


def all_to_all_single(output: torch.Tensor, input: torch.Tensor, output_split_sizes: Any = None,
                      input_split_sizes: Any = None, group: Any = None) -> torch.Tensor:
    ranks = group_or_world(group).size()
    equal = [input.shape[0] // ranks] * ranks
    return operations().all_to_all_single(
        input, output_split_sizes or equal, input_split_sizes or equal, name_of(group))


def fits(operation: Any, args: Sequence[Any], named: dict[str, Any]) -> bool:
    """Whether the tensors have the shapes and dtypes of which all backends make the same."""
    code = operation.__code__
    given = dict(zip(code.co_varnames, args, strict=False)) | named
    group = group_or_world(given.get("group"))
    needed = code.co_varnames[:code.co_argcount - len(operation.__defaults__ or ())]
    if not {*needed} <= {*given} or not isinstance(group, dist.ProcessGroup):
        return False
    if operation in (all_reduce, broadcast):
        return True
    ranks = group.size()
    outputs, input = (given[name] for name in needed)
    if operation is all_gather:
        return len(outputs) == ranks and all((o.shape, o.dtype) == (input.shape, input.dtype) for o in outputs)
    if outputs.dtype != input.dtype or outputs.shape[1:] != input.shape[1:] or not (outputs.dim() and input.dim()):
        return False
    if operation is all_to_all_single:
        splits = [given.get(name) for name in ("output_split_sizes", "input_split_sizes")]
        return all(n and len(n) == ranks and sum(n) == t.shape[0] or not n and t.shape[0] % ranks == 0
                   for n, t in zip(splits, (outputs, input), strict=True))
    whole, part = (outputs, input) if operation is all_gather_single else (input, outputs)
    return whole.shape[0] == part.shape[0] * ranks


def finish(result: torch.Tensor, *outputs: torch.Tensor) -> None:
    """Wait, and write the result."""
    result = operations().wait_tensor(result)
    parts = [result] if len(outputs) == 1 else result.chunk(len(outputs))
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part.view(output.shape))


@functools.cache
def class_of_finished() -> Any:
    class FinishedWork(dist.Work):
        """The object of a collective for which the graph has waited."""

        def wait(self, timeout: Any = None) -> bool:
            return True

        def is_completed(self) -> bool:
            return True

        is_success = is_completed
    return FinishedWork


def finished_work() -> Any:
    return class_of_finished()()


FUNCTIONS = (all_reduce, broadcast, all_gather_single, all_gather, reduce_scatter_single, all_to_all_single)
STARTED: dict[str, Callable[..., torch.Tensor]] = {
    **{function.__name__: function for function in FUNCTIONS},
    "all_gather_into_tensor": all_gather_single, "reduce_scatter_tensor": reduce_scatter_single,    # before torch 2.13
} if dist.is_available() else {}
WORK: Any = dist.Work if dist.is_available() else None
BACKEND: Any = importlib.import_module("torch._C._distributed_c10d").Backend if dist.is_available() else None


def started(function: Any) -> Callable[..., torch.Tensor] | None:
    """The operation that starts what a function of torch.distributed does."""
    of_distributed = function.__module__ == "torch.distributed.distributed_c10d"
    return STARTED.get(function.__qualname__) if of_distributed else None


def methods_of_groups(*names: str) -> dict[str, Any]:
    """The methods of process groups that this torch has, and the getters of their properties."""
    found = vars(dist.ProcessGroup) if dist.is_available() else {}
    raw = {name: found[name] for name in names if name in found}
    return {name: method.fget if isinstance(method, property) else getattr(method, "__func__", method)
            for name, method in raw.items()}


def classes_of_options() -> list[type]:
    """The classes of the objects that tell a method of process groups what to do."""
    module = importlib.import_module("torch._C._distributed_c10d") if dist.is_available() else None
    return [kind for name, kind in vars(module).items() if name.endswith("Options") and not name.startswith("_")
            ] if module else []


# ---- methods of process groups
Tensors = Sequence[torch.Tensor]


def any_shape(first: Tensors, others: Tensors, ranks: int, parts: Sequence[Sequence[int]]) -> bool:
    return True


def equal_shapes(first: Tensors, others: Tensors, ranks: int, parts: Sequence[Sequence[int]]) -> bool:
    """A tensor on one side, and a tensor of each process on the other, or none where another process has them."""
    counts = len(first), len(others)
    shape, *shapes = [t.shape for t in (*first, *others)]       # sizes that vary have no hash
    return counts in ((1, ranks), (ranks, 1), (1, 0), (0, 1)) and all(other == shape for other in shapes)


def one_a_process(first: Tensors, others: Tensors, ranks: int, parts: Sequence[Sequence[int]]) -> bool:
    return len(first) == len(others) == ranks


def whole_and_part(first: Tensors, others: Tensors, ranks: int, parts: Sequence[Sequence[int]]) -> bool:
    sizes = sorted((first[0].numel(), others[0].numel()))
    return sizes[0] * ranks == sizes[1]


def in_parts(first: Tensors, others: Tensors, ranks: int, parts: Sequence[Sequence[int]]) -> bool:
    """``parts`` are the sizes along the first axis, or nothing for equal ones."""
    sizes = first[0].shape[:1], others[0].shape[:1]
    return first[0].shape[1:] == others[0].shape[1:] and all(
        len(size) == 1 and (len(part) == ranks and sum(part) == size[0] if part else size[0] % ranks == 0)
        for size, part in zip(sizes, parts, strict=True))


# A method that communicates, and whether it takes tensors: those of its first argument, to which it writes, and others.
METHODS: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(("send", "recv", "recv_anysource", "allreduce", "allreduce_coalesced", "reduce", "broadcast",
                     "barrier", "monitored_barrier"), any_shape),
    **dict.fromkeys(("allgather", "gather", "scatter", "reduce_scatter"), equal_shapes),
    **dict.fromkeys(("_allgather_base", "all_gather_single", "_reduce_scatter_base", "reduce_scatter_single"),
                    whole_and_part),
    **dict.fromkeys(("alltoall_base", "all_to_all_single"), in_parts),
    "alltoall": one_a_process,
}
READ_ONLY = frozenset({"send"})                 # they do not write to it
WITHOUT_WORK = frozenset({"monitored_barrier"})     # they return when they are done
SENT = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32,
                  torch.int64})     # by all backends
OF_INTEGERS = ("BAND", "BOR", "BXOR")


def takes(name: str, first: Tensors, others: Tensors, ranks: int, op: Any, parts: Sequence[Sequence[int]]) -> bool:
    """Whether a method takes tensors, with this reduction, whatever the backend of the group is."""
    tensors = *first, *others
    if len({(t.dtype, t.device) for t in tensors}) > 1 or not {t.dtype for t in tensors} <= SENT:
        return False
    if op is not None and tensors and tensors[0].dtype.is_floating_point and any(
            op == getattr(dist.ReduceOp, name_) for name_ in OF_INTEGERS):
        return False
    return METHODS[name](first, others, ranks, parts)


def communication(name: str, call: Callable[..., Any], written: Sequence[int],
                  ) -> tuple[Callable[..., None], Callable[[Any], Callable[..., None]]]:
    """Two functions of tensors: one that begins what ``call`` begins with them, and the one that waits for it, made for
    a time limit. ``written`` are the indices of the tensors that others change.
    """
    works: dict[int, Any] = {}      # of each thread, between the two

    def start(*tensors: torch.Tensor) -> None:
        if not any(isinstance(tensor, TRACED) for tensor in tensors):
            works[threading.get_ident()] = call(*tensors)
        else:
            for i in written:
                tensors[i].copy_(torch.empty(tensors[i].shape))     # a change; what is like a constant has its values

    def waiting(timeout: Any) -> Callable[..., None]:
        def wait(*tensors: torch.Tensor) -> None:
            work = None if any(isinstance(t, TRACED) for t in tensors) else works.pop(threading.get_ident())
            if work is not None:    # with some backends it is done
                work.wait() if timeout is None else work.wait(timeout)
        return opaque(wait, f"{name}_ends")
    return opaque(start, f"{name}_begins"), waiting


def opaque(function: Any, text: str) -> Callable[..., None]:
    function.__name__ = function.__qualname__ = text
    function.is_opaque = True
    return function
