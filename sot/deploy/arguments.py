"""The arguments of a saved method, from its input_spec: examples for the capture, and the sizes that may differ."""
from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sot.deploy.errors import SaveError
from sot.deploy.structure import Record
from sot.frontend.input_spec import InputSpec
from sot.support.user_annotations import mark_dynamic, name_of

# Examples for dimensions that may differ: distinct, and not 0 or 1. A model may have room for a few rows only, or need
# sizes that it can halve several times, or squares.
SIZES = (7, 11, 13, 17, 19, 23, 29, 31)
OTHERS = ((3, 2, 4, 5, 6), (64, 96, 128, 160, 192, 224), (36, 64, 16, 100, 144, 196))
LARGER = 192
Key = str       # of a dimension that may differ: its name, or "dimension 1 of x"


class Dimensions:
    """The dimensions that may differ, and their sizes in the examples.

    Two dimensions without names may have to be equal (the batch of two arguments). The first capture gives them
    different sizes. If it fails, its error names the sizes that did not fit, and ``join`` makes these equal.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.keys: dict[tuple[str, int], Key] = {}     # by the tensor's name in messages, and the dimension
        for where, spec in specs(entries):
            for i, size in enumerate(spec.shape):
                if not isinstance(size, int):
                    self.keys[where, i] = size or f"dimension {i} of {where}"
        unlike = dict.fromkeys(self.keys.values())
        self.sizes = {key: SIZES[n % len(SIZES)] + 32 * (n // len(SIZES)) for n, key in enumerate(unlike)}
        self.integer = 0        # all elements of integer tensors in the examples
        self._has_integers = any(holds_integers(spec.dtype) for _, spec in specs(entries))
        self._tried: set[int] = set()
        self._others = list(OTHERS)

    def size(self, where: str, i: int, given: int | str | None) -> int:
        return given if isinstance(given, int) else self.sizes[self.keys[where, i]]

    def join(self, message: str) -> bool:
        """Make two dimensions that an error names equal, or all of one position. Returns False if there are none
        left.
        """
        numbers = [int(text) for text in re.findall(r"\d+", message)]
        unlike = sorted({size for size in self.sizes.values() if size in numbers}, key=numbers.index)
        if len(unlike) > 1:
            self._equate(unlike[:2])
            return True
        for position in sorted({i for _, i in self.keys} - self._tried):
            self._tried.add(position)
            found = {self.sizes[key] for (_, i), key in self.keys.items() if i == position}
            if len(found) > 1:
                self._equate(sorted(found))
                return True
        return False

    def resize(self) -> bool:
        """Take other examples: integers that are not 0, as lengths are, then other sizes, all of them at first. Returns
        False if none are left.
        """
        if self._has_integers and not self.integer:
            self.integer, self._tried = 1, set()
            return True
        count = len(self.sizes)
        while self._others:
            sizes = self._others.pop(0)
            if 0 < count <= len(sizes):
                self.sizes, self._tried = dict(zip(self.sizes, sizes, strict=False)), set()
                return True
        return False

    def enlarge(self, keys: Iterable[Key]) -> None:
        """Make some of the examples larger."""
        small = {self.sizes[key] for key in keys}
        self.sizes = {key: size + LARGER if size in small else size for key, size in self.sizes.items()}

    def equal(self, one: Key, other: Key) -> dict[Key, int] | None:
        """The sizes with two dimensions equal; None if they are, or if the user gave each a name."""
        unnamed = one.startswith("dimension ") or other.startswith("dimension ")
        if not unnamed or self.sizes[one] == self.sizes[other]:
            return None
        return {key: self.sizes[one] if size == self.sizes[other] else size for key, size in self.sizes.items()}

    def _equate(self, sizes: list[int]) -> None:
        self.sizes = {key: sizes[0] if size in sizes else size for key, size in self.sizes.items()}


def holds_integers(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def specs(entries: Mapping[str, Any]) -> Iterator[tuple[str, InputSpec]]:
    """Every InputSpec with the name of its tensor in messages."""
    for name, entry in entries.items():
        for path, leaf in pytree.tree_flatten_with_path(entry)[0]:
            if isinstance(leaf, InputSpec):
                yield leaf.name or f"{name}{pytree.keystr(path)}", leaf


def bind(fn: Callable[..., Any], spec: Any) -> inspect.BoundArguments:
    """The entries as the arguments of a call."""
    if spec is None:
        raise SaveError(f"save needs an input_spec for {name_of(fn)}: a description of its arguments, for example "
                        f"[sot.InputSpec((None, 16))]")
    try:
        signature = inspect.signature(fn)
        if isinstance(spec, Mapping):
            return signature.bind(**spec)
        return signature.bind(*(spec if isinstance(spec, list | tuple) else [spec]))
    except TypeError as e:
        raise SaveError(f"the input_spec does not fit {name_of(fn)}: {e}") from e


def examples(entries: Mapping[str, Any], dimensions: Dimensions) -> dict[str, Any]:
    """Example values for the entries."""
    described = iter(list(specs(entries)))

    def example(entry: Any) -> Any:
        if not isinstance(entry, InputSpec):
            return entry
        where, spec = next(described)
        shape = [dimensions.size(where, i, size) for i, size in enumerate(spec.shape)]
        if holds_integers(spec.dtype):
            return torch.full(shape, dimensions.integer, dtype=spec.dtype)
        return torch.zeros(shape, dtype=spec.dtype) if spec.dtype is torch.bool else torch.rand(shape, dtype=spec.dtype)
    return {name: pytree.tree_map(example, entry) for name, entry in entries.items()}


def is_object(value: Any) -> bool:
    """Whether it is an instance of a dataclass that the program may have for an argument."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type | InputSpec)


def is_named(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def containers(value: Any) -> Any:
    """An argument as a file takes it: a dataclass (an output of transformers, too) and a Record are dicts, and a named
    tuple is a tuple.
    """
    if is_object(value):
        return {field.name: containers(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if is_named(value) or type(value) in (list, tuple):
        return (list if type(value) is list else tuple)(map(containers, value))
    if type(value) in (dict, Record):
        return dict(zip(value, map(containers, value.values()), strict=True))
    return value


def objects(value: Any, given: Any) -> Any:
    """The inverse of ``containers``: ``given`` with the dataclasses of ``value``, and dynamic sizes in these."""
    if is_object(value):
        made = copy.copy(value)
        for field in dataclasses.fields(value):
            before, after = getattr(value, field.name), objects(getattr(value, field.name), given[field.name])
            if isinstance(before, InputSpec):       # the check of a call reaches no attributes
                for i, size in enumerate(before.shape):
                    if not isinstance(size, int):
                        mark_dynamic(after, i)
            if after is not before:
                (object.__setattr__ if value.__dataclass_params__.frozen else setattr)(made, field.name, after)
        return made
    if is_named(value):
        return type(value)(*map(objects, value, given))
    if type(value) in (list, tuple):
        return type(value)(map(objects, value, given))
    if type(value) in (dict, Record):
        return {key: objects(part, given[key]) for key, part in value.items()}
    return given


def dynamic_shapes(entries: Mapping[str, Any], dimensions: Dimensions) -> dict[str, Any]:
    """The sizes that differ, in the form that torch.export requires. It refuses a dimension with a name if the program
    accepts not all sizes, so no dimension has one there: the file has the names, and ``check`` compares these.
    """
    def dynamic(entry: Any) -> Any:
        if not isinstance(entry, InputSpec):
            return None
        return {i: torch.export.Dim.DYNAMIC for i, size in enumerate(entry.shape) if not isinstance(size, int)} or None
    return {name: pytree.tree_map(dynamic, entry) for name, entry in entries.items()}


def tensor_names(bound: inspect.BoundArguments) -> list[str | None]:
    """The name in messages of each leaf of the arguments of a call, in the order of torch.export."""
    entries = dict(bound.arguments)
    names: list[str | None] = []
    for name, entry in entries.items():
        for path, leaf in pytree.tree_flatten_with_path(entry)[0]:
            names.append(f"{name}{pytree.keystr(path)}" if isinstance(leaf, torch.Tensor) else None)
    return names


def has_specs(entry: Any) -> bool:
    return any(isinstance(e, InputSpec) for e in pytree.tree_leaves(entry))


def has_objects(entry: Any) -> bool:
    return any(map(is_object, pytree.tree_leaves(entry, is_leaf=is_object)))


def without_examples(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries for a check of the call. Values without an InputSpec, and objects, are not checked."""
    return {name: entry if has_specs(entry) and not has_objects(entry) else None for name, entry in entries.items()}
