"""Operations are tried with small tensors, to learn what their fakes do not tell: that torch has no kernel for a dtype
("not implemented for 'Long'"), or that an operation refuses a number.

An operation is tried once for each combination of dtypes, and of numbers where these matter.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from sot.torch_compat.symbolic_shapes import example_of

EVERYWHERE = frozenset((torch.float32, torch.float64))     # nearly all kernels exist for these
OF_INTEGERS = ("bitwise_", "__", "gcd", "lcm")      # how kernels of integers only begin
MADE_OF_NUMBERS = ("rand", "normal", "linspace", "logspace")       # kernels without tensors that want floats
FEW, MANY = 8, 1 << 16      # how far sizes are cut for a trial, and the elements of a trial with the sizes as they are
# Kernels that are not tried: those of other layouts and libraries, and those that need not check the sizes they get.
UNTRIED = ("sparse", "_coo", "_csr", "quantize", "nested", "cudnn", "miopen", "mkldnn", "_fused", "_thnn", "backward")
MISSING = "not implemented for"
_errors: dict[tuple, str] = {}


def error_of(kernel: Any, args: tuple, kwargs: dict[str, Any] | None) -> str:
    """What a kernel raises for these dtypes, or nothing. If there is no such kernel, it contains ``MISSING``."""
    tensors: list[torch.Tensor] = []
    kinds = [_kind(part, tensors) for part in (*args, *(kwargs or {}).items())]
    dtypes = {t.dtype for t in tensors} | ({kwargs["dtype"]} if kwargs and kwargs.get("dtype") else set())
    name = kernel._opname
    if (dtypes <= EVERYWHERE and not name.startswith(OF_INTEGERS)) or not _can_be_tried(kernel, name, tensors, kwargs):
        return ""
    return _error_once((kernel, *kinds), kernel, args, kwargs or {}, tensors)


def is_refused(function: Callable[..., Any], args: tuple, kwargs: dict[str, Any], numbers: tuple[float, ...]) -> bool:
    """Whether a function of torch refuses these numbers, which are among its arguments, or the dtypes of its tensors.
    Its rule for fakes may know neither.
    """
    tensors: list[torch.Tensor] = []
    kinds = [_kind(part, tensors) for part in (*args, *kwargs.items())]
    if not (tensors and _are_plain(tensors) and (numbers or {t.dtype for t in tensors} - EVERYWHERE)):
        return False
    return bool(_error_once((function, *kinds, *map(repr, numbers)), function, args, kwargs, tensors))


def _kind(part: Any, tensors: list[torch.Tensor]) -> Any:
    """What matters of an argument for the choice of a kernel."""
    if isinstance(part, torch.Tensor):
        tensors.append(part)
        return part.dtype, part.dim(), part.device.type
    if isinstance(part, (list, tuple)):
        return tuple(_kind(p, tensors) for p in part)
    return part if isinstance(part, (str, bool, torch.dtype)) else type(part)


def _can_be_tried(kernel: Any, name: str, tensors: list[torch.Tensor], kwargs: dict[str, Any] | None) -> bool:
    device = (kwargs or {}).get("device") or "cpu"
    return (kernel.namespace == "aten" and not kernel.is_view and not any(part in name for part in UNTRIED)
            and (bool(tensors) or name.startswith(MADE_OF_NUMBERS)) and torch.device(device).type == "cpu"
            and _are_plain(tensors))


def _are_plain(tensors: list[torch.Tensor]) -> bool:
    return all(t.layout is torch.strided and t.device.type == "cpu" for t in tensors)


def _error_once(key: tuple, function: Any, args: tuple, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> str:
    if key not in _errors:
        _errors[key] = _error(function, args, kwargs, tensors)
    return _errors[key]


def _error(function: Any, args: tuple, kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> str:
    """What it raises for small tensors because of their dtypes, or for ones and zeros of the sizes as they are."""
    error = _tried(function, args, kwargs, tensors, FEW, 1)
    if not error or MISSING in error:
        return error
    if not tensors or sum(math.prod(map(_known, t.shape)) for t in tensors) > MANY:
        return ""
    return _tried(function, args, kwargs, tensors, MANY, 1) and _tried(function, args, kwargs, tensors, MANY, 0)


def _known(size: Any) -> int:
    """A size in the captured call; one of data is taken for a large one."""
    known = size if type(size) is int else example_of(size)
    return MANY if known is None else int(known)


def _tried(function: Any, args: tuple, kwargs: dict[str, Any], tensors: list[torch.Tensor], most: int,
           fill: int) -> str:
    """What it raises for tensors of this number, whose sizes are cut, or nothing."""
    made: dict[int, torch.Tensor] = {}

    def small(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            shape = [min(_known(size), most) for size in part.shape]
            return made.setdefault(id(part), torch.full(shape, fill, dtype=part.dtype, device="cpu"))
        if isinstance(part, (list, tuple)):
            return type(part)(map(small, part))
        if isinstance(part, torch.Generator):
            return None
        if isinstance(part, torch.SymInt) or type(part) is int and not tensors:
            return min(_known(part), FEW)
        return part
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            function(*map(small, args), **{name: small(part) for name, part in kwargs.items()})
    except Exception as e:  # noqa: BLE001 - the caller judges it
        return f"{type(e).__name__}: {e}"
    finally:
        torch.set_rng_state(state)
    return ""
