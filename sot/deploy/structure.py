"""Results as plain containers, which any process can read, and back.

A file supports lists, tuples, dicts, tensors, numbers and None. A named tuple, a subclass of dict (the outputs of
transformers) and an object with attributes are saved as tuples and dicts. ``Shape`` records what they were. Loading
makes named tuples and Records of them, without the program's classes.
"""
from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch

from sot.deploy.errors import SaveError
from sot.support.errors import article

Shape = Any     # a JSON value: None for a leaf, [kind, more..., parts]
Leaf = Callable[[Any], Any]
ATOMS = (bool, int, float, str)
DEEPEST = 100


class Record(dict):
    """A result that was an object: its attributes by name, as keys, or by number as in a tuple."""

    def __getattr__(self, name: str) -> Any:
        try:
            return dict.__getitem__(self, name)
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key: Any) -> Any:
        return self.to_tuple()[key] if isinstance(key, int | slice) else dict.__getitem__(self, key)

    def to_tuple(self) -> tuple:
        """The attributes that are not None."""
        return tuple(value for value in self.values() if value is not None)


def plain(value: Any, leaf: Leaf, depth: int = 0) -> tuple[Any, Shape]:
    """A value in plain containers, and its Shape. ``leaf`` is applied to everything that is not a container."""
    if depth > DEEPEST:
        raise SaveError("it returns a structure that contains itself, or is too deep")
    kind = type(value)
    if isinstance(value, tuple):
        return sequence(value, leaf, depth)
    if kind is list:
        items, shapes = parts(value, leaf, depth)
        return items, ["list", shapes]
    if isinstance(value, dict):
        items, shapes = parts(checked(value).values(), leaf, depth)
        name = "dict" if kind.__module__ in ("builtins", "collections") else "record"
        return dict(zip(value, items, strict=True)), [name, shapes]
    if isinstance(value, str):
        return leaf(None), ["text", value, []]      # torch does not read text from the outputs of a program
    if isinstance(value, torch.Tensor | bool | int | float) or value is None or not hasattr(value, "__dict__"):
        return leaf(value), None
    return record(value, leaf, depth)


def sequence(value: Any, leaf: Leaf, depth: int) -> tuple[Any, Shape]:
    """A tuple, a named tuple, or one of torch's (``values, indices = x.max(1)``)."""
    items, shapes = parts(value, leaf, depth)
    fields = getattr(value, "_fields", None)
    if fields is None and hasattr(value, "n_fields"):
        known = [name for name in dir(value) if not name.startswith(("_", "n_")) and name not in dir(tuple)]
        fields = [next(name for name in known if getattr(value, name) is item) for item in value]
    return tuple(items), ["tuple", shapes] if fields is None else ["named", type(value).__name__, [*fields], shapes]


def record(value: Any, leaf: Leaf, depth: int) -> tuple[Any, Shape]:
    """An object, by those attributes that contain data. Raises SaveError if it contains no tensor."""
    found: dict[str, Any] = {}
    shapes = []
    for name, attribute in vars(value).items():
        if holds_data(attribute):
            found[name], shape = plain(attribute, leaf, depth + 1)
            shapes.append(shape)
    if not any(map(has_tensor, vars(value).values())):
        raise SaveError(f"it returns {article(type(value).__qualname__)}; return tensors, numbers, None, and lists, "
                        f"tuples, dicts and objects of them")
    return found, ["record", shapes]


def parts(values: Any, leaf: Leaf, depth: int) -> tuple[list[Any], list[Shape]]:
    found = [plain(value, leaf, depth + 1) for value in values]
    return [item for item, _ in found], [shape for _, shape in found]


def checked(value: dict[Any, Any]) -> dict[Any, Any]:
    for key in value:
        if type(key) not in ATOMS:
            raise SaveError(f"it returns a dict with the key {key!r}; keys are strings or numbers in a file")
    return value


def holds_data(value: Any, depth: int = 0) -> bool:
    """Whether an attribute may become part of a file: a tensor, a number, text, None, or a container or object of
    these.
    """
    if isinstance(value, torch.Tensor | bool | int | float | str) or value is None:
        return True
    if isinstance(value, list | tuple | dict):
        return depth < 8 and all(holds_data(part, depth + 1) for part in held(value))
    return has_tensor(value, depth)


def has_tensor(value: Any, depth: int = 0) -> bool:
    return isinstance(value, torch.Tensor) or depth < 8 and any(has_tensor(part, depth + 1) for part in held(value))


def held(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif hasattr(value, "__dict__") and not isinstance(value, type | torch.nn.Module) and not callable(value):
        yield from vars(value).values()


def restored(value: Any, shape: Shape) -> Any:
    """The value that ``plain`` was given, as far as a file supports it."""
    if shape is None:
        return value
    kind, *more, shapes = shape
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(map(restored, value, shapes))
    if kind == "text":
        return more[0]
    if kind == "named":
        name, fields = more
        return namedtuple(name, fields)(*map(restored, value, shapes))
    items = zip(value, map(restored, value.values(), shapes), strict=True)
    return Record(items) if kind == "record" else dict(items)
