"""Functions of torch that the program has replaced, as torch.fx does not know them.

fx writes a function of torch into the text of a graph by its name, which then is that of another function.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def without_name(function: Callable) -> Callable:
    """A function that calls this one. The text of a graph refers to it as a global of its own."""
    def original(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    original.__name__ = f"original_{function.__name__}"
    return original
