"""Readers of containers that ignore overridden methods, so that guards and capture run no user code; and their keys."""
from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

import torch

BUILTIN = (dict, list, tuple, set, frozenset)
# Types that C compares without running user code.
CONSTANTS = frozenset({int, float, complex, str, bytes, bool, type(None), type(Ellipsis), torch.dtype, torch.device,
                       torch.layout, torch.memory_format})
PRINTED = CONSTANTS | {range, torch.Size}       # whose repr() is short, and runs no user code either


def keys_of(mapping: Mapping) -> tuple[Any, ...]:
    """The keys of a dict, or of a proxy of one, in order."""
    kind = type(mapping)
    if issubclass(kind, OrderedDict):
        return tuple(OrderedDict.__iter__(mapping))  # type: ignore[arg-type]
    return tuple(dict.__iter__(mapping)) if issubclass(kind, dict) else tuple(mapping)  # type: ignore[arg-type]


def has_key(mapping: Mapping, key: object) -> bool:
    return dict.__contains__(mapping, key) if issubclass(type(mapping), dict) else key in mapping


def stored_item(mapping: dict, key: object) -> object:
    """The value of a key, also in a subclass, whose ``__missing__`` (of a defaultdict) could add the key. KeyError."""
    found = dict.get(mapping, key, mapping)
    if found is mapping and not dict.__contains__(mapping, key):
        raise KeyError(key)
    return found


def length_of(container: Collection) -> int:
    base: Any = next((base for base in BUILTIN if issubclass(type(container), base)), None)
    return len(container) if base is None else base.__len__(container)


def table_size(value: Any) -> int:
    """The memory in bytes of a set or frozenset, which tells the size of its table."""
    return (frozenset if isinstance(value, frozenset) else set).__sizeof__(value)


def same_key(a: object, b: object) -> bool:
    """Whether these are equal keys of a dict. Tensors are compared by identity, whatever ``==`` does."""
    return a is b or not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor) and a == b


def hash_of_key(key: object) -> int:
    try:
        return hash(key)
    except TypeError:       # a slice, before Python 3.12
        return hash(type(key))


def text_of_key(key: object) -> str:
    """The key as a program writes it. The ``repr()`` of other objects may take long, fail or have effects."""
    if type(key) is tuple:
        return f"({', '.join(map(text_of_key, key))}{',' * (len(key) == 1)})"
    if isinstance(key, enum.Enum):
        return f"{type(key).__name__}.{key._name_}"
    if isinstance(key, type | FunctionType):
        return key.__qualname__
    return repr(key) if type(key) in PRINTED else f"a {type(key).__qualname__}"
