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


def methods_of_groups(*names: str) -> list[Any]:
    if not dist.is_available():
        return []
    raw = [vars(dist.ProcessGroup)[name] for name in names]
    return [getattr(method, "__func__", method) for method in raw]


def message_nodes(name: str, group: Any, peer: int, tag: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Two functions of a tensor: one that begins to send or to receive it, and one that waits."""
    works: dict[int, Any] = {}      # of each thread, between the two

    def start(tensor: torch.Tensor) -> None:
        if not isinstance(tensor, TRACED):
            works[threading.get_ident()] = getattr(group, name)([tensor], peer, tag)
        elif name == "recv":
            tensor.zero_()      # a change

    def wait(tensor: torch.Tensor) -> None:
        if not isinstance(tensor, TRACED):
            works.pop(threading.get_ident()).wait()
    for function, text in ((start, f"{name}_begins"), (wait, f"{name}_ends")):
        function.__name__ = function.__qualname__ = text
        function.is_opaque = True   # type: ignore[attr-defined]
    return start, wait
