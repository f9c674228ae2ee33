"""Collectives that change tensors in place, as operations that graphs can hold.

Each sends what the function of torch.distributed sends, so a rank that runs a graph meets one that runs Python. Fakes
and compilers know the functional form.
"""
from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def functional() -> Any:
    return importlib.import_module("torch.distributed._functional_collectives")


def group_or_world(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def put(output: torch.Tensor, result: torch.Tensor) -> None:
    """Write a result. Where a collective would raise, ``copy_`` would convert."""
    if (output.dtype, output.device, output.shape) != (result.dtype, result.device, result.shape):
        raise ValueError("a tensor of another dtype, device or shape than the result of the collective")
    output.copy_(result)


def all_reduce(tensor: torch.Tensor, op: Any = None, group: Any = None) -> None:
    fc = functional()
    name = fc.REDUCE_OP_TO_STR[dist.ReduceOp.SUM if op is None else op]
    put(tensor, fc.wait_tensor(fc.all_reduce(tensor, name, group_or_world(group))))


def broadcast(tensor: torch.Tensor, src: int) -> None:
    """In the group of all processes, where the rank of a process is its global one."""
    fc = functional()
    put(tensor, fc.wait_tensor(fc.broadcast(tensor, src, dist.group.WORLD)))


IN_PLACE: dict[str, Callable[..., None]] = {
    function.__name__: function for function in (all_reduce, broadcast)} if dist.is_available() else {}


def in_place(function: Any) -> Callable[..., None] | None:
    """The operation for a function of torch.distributed that changes a tensor in place."""
    of_distributed = function.__module__ == "torch.distributed.distributed_c10d"
    return IN_PLACE.get(function.__qualname__) if of_distributed else None


def methods_of_groups() -> list[Any]:
    """The methods of process groups whose results never change."""
    if not dist.is_available():
        return []
    raw = [vars(dist.ProcessGroup)[name] for name in ("rank", "size")]
    return [getattr(method, "__func__", method) for method in raw]
