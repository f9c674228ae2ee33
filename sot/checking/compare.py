"""Copies of values that share memory as the originals do, and the differences between two values."""
from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from sot.support.user_annotations import InModule


# ---- copies -----------------------------------------------------------------------------------------------
def copied(value: Any) -> Any:
    """A deep copy in which tensors are leaves, and in which tensors share memory as the originals do.

    Raises the exception of ``copy.deepcopy`` for a value that cannot be copied.
    """
    memo: dict[int, Any] = {}
    storages: dict[int, torch.UntypedStorage] = {}
    found = list(tensors(value))
    for tensor in found:
        memo[id(tensor)] = copied_tensor(tensor, storages)
    memo[id(memo)] = found        # keeps them alive: deepcopy knows objects by their id
    return copy.deepcopy(value, memo)


def copied_tensor(tensor: torch.Tensor, storages: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    if tensor.layout is not torch.strided or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)
    storage = tensor.untyped_storage()
    key = storage._cdata
    if key not in storages:
        storages[key] = storage.clone()
    with torch.no_grad():
        twin = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        twin.set_(storages[key], tensor.storage_offset(), tensor.shape, tensor.stride())
    if isinstance(tensor, torch.nn.Parameter):
        twin = torch.nn.Parameter(twin, requires_grad=tensor.requires_grad)
    elif tensor.requires_grad:
        twin.requires_grad_()
    if tensor.is_leaf and tensor.grad is not None:
        twin.grad = tensor.grad.clone()
    return twin


def tensors(value: Any, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """The tensors in a value: in containers, in the attributes of objects, in modules."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from tensors(item, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from tensors(item, seen)
    elif not isinstance(value, type) and not callable(getattr(value, "__get__", None)):
        for item in getattr(value, "__dict__", {}).values():
            yield from tensors(item, seen)


# ---- differences ------------------------------------------------------------------------------------------
def difference(got: Any, want: Any, path: str, seen: set[tuple[int, int]] | None = None) -> str | None:
    """A sentence about the first place where two values differ; None if they agree by torch.testing."""
    seen = set() if seen is None else seen
    if got is want or (id(got), id(want)) in seen:
        return None
    seen.add((id(got), id(want)))
    if type(got) is not type(want):
        return f"{path} is {kind(got)}, and plain Python has {kind(want)}"
    if isinstance(got, torch.Tensor):
        return tensor_difference(got, want, path)
    if isinstance(got, list | tuple):
        if len(got) != len(want):
            return f"{path} has {len(got)} items, and plain Python has {len(want)}"
        return first(difference(a, b, f"{path}[{i}]", seen) for i, (a, b) in enumerate(zip(got, want, strict=True)))
    if isinstance(got, dict):
        if [*map(repr, got)] != [*map(repr, want)]:
            return f"{path} has the keys {[*got]}, and plain Python has {[*want]}"
        return first(difference(a, b, f"{path}[{k!r}]", seen)
                     for (k, a), b in zip(got.items(), want.values(), strict=True))
    if isinstance(got, BaseException):
        return difference(got.args, want.args, f"the {type(got).__name__}'s args", seen)
    if type(got).__eq__ is object.__eq__:
        return None if callable(got) and not isinstance(got, torch.nn.Module) else difference(
            attributes(got), attributes(want), f"vars({path})", seen)
    return None if is_equal(got, want) else f"{path} is {got!r:.80}, and plain Python has {want!r:.80}"


def attributes(value: Any) -> dict[str, Any]:
    """Remove the mark of a translated module, whose copies are not translated."""
    return {name: item for name, item in getattr(value, "__dict__", {}).items() if not isinstance(item, InModule)}


def tensor_difference(got: torch.Tensor, want: torch.Tensor, path: str) -> str | None:
    if got.requires_grad != want.requires_grad:
        return f"{path}.requires_grad is {got.requires_grad}, and in plain Python {want.requires_grad}"
    try:
        torch.testing.assert_close(got, want, equal_nan=True, check_stride=True)
    except (AssertionError, TypeError, NotImplementedError) as e:
        return f"{path}: {' '.join(str(e).split())}"
    return None


def gradients(outputs: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None] | None:
    """The gradients of the sum of all outputs; None where there are none. ``.grad`` does not change."""
    wanted = [t for t in inputs if t.requires_grad]
    roots = [t for t in tensors(outputs) if t.requires_grad and t.grad_fn is not None]
    if not wanted or not roots:
        return None
    return list(torch.autograd.grad(roots, wanted, [torch.ones_like(t) for t in roots], retain_graph=True,
                                    allow_unused=True))


def is_equal(got: Any, want: Any) -> bool:
    try:
        return bool(got == want or got != got and want != want)
    except Exception:       # a user's __eq__ that fails: no difference can be reported
        return True


def kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"


def first(sentences: Iterable[str | None]) -> str | None:
    return next((text for text in sentences if text), None)
