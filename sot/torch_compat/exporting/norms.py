"""Normalizations ask in Python whether they have more than one value. A symbol is 2 or more for torch.export, so a
program would not raise for one.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

CHECKS = {"_verify_batch_size": ((0, *range(2, 8)), "value per channel"),
          "_verify_spatial_size": ((*range(2, 8),), "spatial element")}


@contextmanager
def with_their_checks() -> Iterator[None]:
    """While this is entered, programs get operations that check it."""
    before = {name: getattr(F, name) for name in CHECKS}
    try:
        for name, (dims, what) in CHECKS.items():
            setattr(F, name, checking(before[name], dims, f"Expected more than 1 {what} when training"))
        yield
    finally:
        for name, check in before.items():
            setattr(F, name, check)


def checking(check: Callable[..., None], dims: Sequence[int], text: str) -> Callable[..., None]:
    """``check`` of a shape, or an operation that does the same for the sizes of these dimensions."""
    def checked(size: Sequence[Any]) -> None:
        count: Any = math.prod(size[i] for i in dims if i < len(size))
        varies = isinstance(count, torch.SymInt)
        if varies:
            torch._assert_async(torch.full((), count, dtype=torch.int64) != 1, text)
        else:
            check(size)
    return checked
