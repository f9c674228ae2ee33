"""Readers of containers that ignore overridden methods, so that guards and capture run no user code."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

BUILTIN = (dict, list, tuple, set, frozenset)


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
