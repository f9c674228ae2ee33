"""The rule for operators of the program, and for those of torch whose kernel only takes a number: see
``sot/torch_compat/operators/with_numbers.py``.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from sot.torch_compat.operators.with_numbers import names_of, numbers_of, taking_tensor


@functools.cache
def with_tensors(operator: Any) -> Callable[..., Any]:
    """A function that calls an operator which takes floats, some of which may be 0-d tensors."""
    names, floats = names_of(operator), numbers_of(operator)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        varying = {name: v for name, v in given.items() if name in floats and isinstance(v, torch.Tensor)}
        numbers = torch.stack(list(varying.values()))
        args = tuple(0.0 if name in varying else v for name, v in zip(names, args, strict=False))
        kwargs = {name: 0.0 if name in varying else v for name, v in kwargs.items()}
        return taking_tensor(operator)(numbers, [names.index(name) for name in varying], *args, **kwargs)
    call.__name__ = call.__qualname__ = f"{operator.__name__.replace('.', '_')}_with_tensors"
    return call
