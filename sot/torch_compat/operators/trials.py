"""Operations are tried with small tensors, to learn what their fakes do not tell: that torch has no kernel for a dtype
("not implemented for 'Long'"), or that an operation refuses a number.

An operation is tried once for each combination of dtypes, and of numbers where these matter. If small tensors are
refused, it is also tried once for each combination of sizes.
"""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch

from sot.torch_compat.subclasses.wrappers import is_ragged
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
        return part.dtype, tuple(_known(size) == 0 for size in part.shape), part.device.type
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
    """What it raises for small tensors because of their dtypes, or for ones and zeros of the sizes as they are."""
    def number(part: Any) -> Any:
        return min(_known(part), FEW) if isinstance(part, torch.SymInt) or type(part) is int and not tensors else part

    if key not in _errors:
        _errors[key] = tried(function, args, kwargs, lambda size: min(_known(size), FEW), number, 1)
    if not (error := _errors[key]) or MISSING in error:
        return error
    shapes = [tuple(map(_known, t.shape)) for t in tensors]
    if not tensors or sum(map(math.prod, shapes)) > MANY:
        return ""
    if (whole := (*key, *shapes)) not in _errors:
        _errors[whole] = (tried(function, args, kwargs, _known, number, 1)
                          and tried(function, args, kwargs, _known, number, 0))
    return _errors[whole]


def _known(size: Any) -> int:
    """A size in the captured call; one of data, and that of a ragged dimension, is taken for a large one."""
    known = size if type(size) is int else None if is_ragged(size) else example_of(size)
    return MANY if known is None else int(known)


def tried(function: Any, args: tuple, kwargs: dict[str, Any], size: Callable[[Any], int],
          number: Callable[[Any], Any], fill: int) -> str:
    """What it raises for tensors of this number, or nothing.

    Arguments:
        size: the integer to take for a size.
        number: what to take for any other argument.
    """
    made: dict[int, torch.Tensor] = {}

    def small(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            if id(part) not in made:
                made[id(part)] = torch.full([*map(size, part.shape)], fill, dtype=part.dtype, device="cpu")
            return made[id(part)]
        if isinstance(part, (list, tuple)):
            return type(part)(map(small, part))
        if isinstance(part, torch.Generator):
            return None
        if isinstance(part, torch.device):
            return torch.device("cpu")
        return number(part)

    def call(_: float) -> float:
        function(*map(small, args), **{name: small(part) for name, part in kwargs.items()})
        return 0.0
    state, shows = torch.get_rng_state(), warnings.showwarning
    warnings.showwarning = lambda *shown: None
    try:
        # Warnings of kernels that are called by themselves are given to the function of torch that is active. So one is
        # made active, which turns them into Python's warnings here.
        with torch.no_grad():
            torch.zeros((), device="cpu").apply_(call)
    except Exception as e:  # noqa: BLE001 - the caller judges it
        return f"{type(e).__name__}: {e}"
    finally:
        torch.set_rng_state(state)
        warnings.showwarning = shows
    return ""
