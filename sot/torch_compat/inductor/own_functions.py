"""Functions of the package that are nodes of graphs, as caches between processes know them."""
from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

from sot.torch_compat.compilers import imported

_cacheable: dict[str, str] = {}
_own: dict[Any, str] = {}


def traced_by_its_arguments(function: Callable) -> Callable:
    """A decorator for functions of the package that are nodes of graphs: what a tracer records of them depends on
    nothing but their arguments. AOTAutograd's cache refuses a graph with functions that it does not know.
    """
    code = inspect.unwrap(function).__code__
    name, checksum = f"{function.__module__}.{function.__name__}", checksum_of(code)
    _cacheable[name], _own[function] = checksum, f"{name}:{checksum}"
    return function


def checksum_of(code: CodeType) -> str:
    """A checksum of code that is the same in each process."""
    def text(value: Any) -> str:
        if isinstance(value, CodeType):     # its repr() has its address
            return text((value.co_code, value.co_consts, value.co_names))
        if isinstance(value, frozenset):    # of strings: the order depends on the process
            return f"frozenset{sorted(map(text, value))}"
        return f"({', '.join(map(text, value))})" if isinstance(value, tuple) else repr(value)

    return hashlib.sha256(text(code).encode()).hexdigest()


def own_function(function: Callable) -> str | None:
    """The name of such a function, with a checksum of its code; None for others."""
    return _own.get(function)


def caching_own_functions() -> AbstractContextManager[Any]:
    """A context in which AOTAutograd's cache knows those functions. Their code is part of its keys."""
    config = imported("torch._inductor.config")
    known = {**config.unsafe_marked_cacheable_functions, **_cacheable}
    return config.patch(unsafe_marked_cacheable_functions=known)
