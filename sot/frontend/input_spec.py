"""InputSpec: the required properties of a function's tensor arguments, checked at every call.

``to_static(fn, input_spec=[...])`` has an entry for each argument, in order, or ``{name: entry}``. An entry is an
InputSpec, a list or tuple of entries for a list or tuple, a dict of entries for a dict, or None for an argument that
is not checked. An argument without an entry must not contain tensors. The first parameter of a method (``self`` or
``cls``) has no entry.

``CallCheck`` is the checker of one function. It is made when the function is decorated, and refuses a specification
that no call could satisfy.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sot.guards.guards import short
from sot.support.errors import SotError, article
from sot.support.tracebacks import public
from sot.support.user_annotations import name_of
from sot.torch_compat.tensors import tensor_summary

Arguments = dict[str, Any]
Sizes = dict[str, tuple[int, str]]  # of named dimensions: the size, and the argument that had it first
Shape = tuple[int | str | None, ...]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class InputSpecError(SotError, ValueError):
    """An invalid specification, or a call that contradicts it."""


# ---- one tensor -----------------------------------------------------------------------------------------
@dataclass(frozen=True, init=False)
class InputSpec:
    """The rank, dimensions and dtype of a tensor.

    Arguments:
        shape: per dimension, an int for that size, None for any size, or a string for any size that equals all others
            of that name in the call.
        dtype: a torch.dtype or the name of one.
        name: the name of the tensor in messages; the default is the parameter.

    Raises InputSpecError for anything else.
    """

    shape: tuple[int | str | None, ...]
    dtype: torch.dtype
    name: str | None

    @public()
    def __init__(self, shape: Iterable[int | str | None], dtype: str | torch.dtype = "float32",
                 name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise InputSpecError(f"the name of an InputSpec must be a string, not {short(name)}")
        object.__setattr__(self, "shape", checked_shape(shape))
        object.__setattr__(self, "dtype", checked_dtype(dtype))
        object.__setattr__(self, "name", name)

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, name: str | None = None) -> InputSpec:
        """The InputSpec that only tensors like this one satisfy."""
        if not isinstance(tensor, torch.Tensor):
            raise InputSpecError(f"from_tensor() needs a tensor, not {short(tensor)}")
        return cls(tensor.shape, tensor.dtype, name)

    @classmethod
    def from_numpy(cls, array: np.ndarray, name: str | None = None) -> InputSpec:
        """The InputSpec of the tensor that ``torch.from_numpy`` makes of an array."""
        if not isinstance(array, np.ndarray):
            raise InputSpecError(f"from_numpy() needs a NumPy array, not {short(array)}")
        try:
            dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        except TypeError as error:
            raise InputSpecError(f"torch has no dtype for NumPy's {array.dtype}") from error
        return cls(array.shape, dtype, name)

    def __str__(self) -> str:
        sizes = ["any" if size is None else str(size) for size in self.shape]
        return f"{str(self.dtype)[6:]} tensor of shape ({', '.join(sizes)}{',' * (len(sizes) == 1)})"


def checked_shape(shape: Any) -> tuple[int | str | None, ...]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InputSpecError(f"the shape of an InputSpec is a list of dimensions, not {short(shape)}")
    return tuple(map(checked_size, shape))


def checked_size(size: Any) -> int | str | None:
    if size is None or isinstance(size, str) and size:
        return size
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
        meant = ". Did you mean None?" if size == -1 and not isinstance(size, bool) else ""
        raise InputSpecError(f"a dimension is an int from 0, None (any size) or a name (any size, equal to the others "
                             f"of that name), not {short(size)}{meant}")
    return int(size)


def checked_dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype):
        raise InputSpecError(f"the dtype of an InputSpec is a torch.dtype or the name of one, not {short(dtype)}")
    return found


# ---- one call -------------------------------------------------------------------------------------------
class CallCheck:
    """Checks the arguments of each call of a function.

    Arguments:
        fn: the function. A method or a module's forward must be bound.
        spec: the ``input_spec`` of to_static.

    Raises InputSpecError if ``spec`` is invalid for this function.
    """

    def __init__(self, fn: Callable[..., Any], spec: Any) -> None:
        self.name = name_of(fn)
        try:
            self.signature = inspect.signature(fn)
        except (TypeError, ValueError) as error:
            raise InputSpecError(f"{self.name} has no signature, so it cannot have an input_spec"
                                 ) from error
        self.without_self()
        self.entries = entries_by_name(self.name, self.parameters, spec)
        for name, entry in self.entries.items():
            check_entry(name, entry)

    def without_self(self) -> None:
        """Remove the parameters without entries from ``parameters``."""
        parameters = list(self.signature.parameters.values())
        first = parameters[0] if parameters else None
        self.owner = first.name if first and first.name in ("self", "cls") and first.kind in POSITIONAL else None
        self.parameters = parameters[1:] if self.owner else parameters

    def __call__(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Raises InputSpecError, which names the argument, if the arguments contradict the specification."""
        given, sizes = self.arguments(args, kwargs), Sizes()
        for name, entry in self.entries.items():
            if name not in given:
                raise self.error(f"argument '{name}' is missing: expected {expectation(entry)}")
            for problem in problems(name, entry, given[name], sizes):
                raise self.error(problem)
        for name in given.keys() - self.entries.keys():
            if holds_tensor(given[name]):
                raise self.error(f"argument '{name}' has no entry in input_spec, and is or contains a tensor: "
                                 f"{got(given[name])}")

    def arguments(self, args: tuple, kwargs: dict[str, Any]) -> Arguments:
        """The arguments of a call by name. Those of ``*rest`` are ``rest[0]``, ``rest[1]``, ..."""
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self.error(f"{error}; expected {self.expected()}") from None
        found = Arguments()
        for name, value in bound.items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                found.update((f"{name}[{i}]", item) for i, item in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found.update(value)
            elif name != self.owner:
                found[name] = value
        return found

    def expected(self) -> str:
        return ", ".join(f"{name}: {expectation(entry)}" for name, entry in self.entries.items()) or "no arguments"

    def shapes(self) -> dict[str, Shape]:
        """The shapes of the specification, by the expressions of their tensors in the program."""
        keywords = next((p.name for p in self.parameters if p.kind is inspect.Parameter.VAR_KEYWORD), "")
        known = {p.name for p in self.parameters}
        found: dict[str, Shape] = {}
        for name, entry in self.entries.items():
            found.update(shapes(name if name.partition("[")[0] in known else f"{keywords}[{name!r}]", entry))
        return found

    def error(self, problem: str) -> InputSpecError:
        return InputSpecError(f"{self.name}: {problem}")


def entries_by_name(function: str, parameters: list[inspect.Parameter], spec: Any) -> dict[str, Any]:
    """Entries by the names of ``CallCheck.arguments``."""
    star = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    any_keyword = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    if isinstance(spec, dict):
        known = [p.name for p in parameters]
        for name in spec:
            if name not in known and not any_keyword:
                raise InputSpecError(f"input_spec has an entry for {short(name)}, and {function} has no such "
                                     f"parameter; it has {', '.join(known) or 'none'}")
        return dict(spec)
    if not isinstance(spec, list | tuple):
        raise InputSpecError(f"input_spec is a list of InputSpec, one for each argument, not {short(spec)}")
    names = [p.name for p in parameters if p.kind in POSITIONAL]
    if star is None:
        names += [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    else:
        names += [f"{star}[{i}]" for i in range(len(spec) - len(names))]
    if len(spec) > len(names):
        raise InputSpecError(f"input_spec has {len(spec)} entries, and {function} takes {len(names)} "
                             f"arguments ({', '.join(names)})")
    return dict(zip(names, spec, strict=False))


def check_entry(name: str, entry: Any) -> None:
    """Raises InputSpecError if an entry is invalid."""
    if isinstance(entry, list | tuple):
        for i, item in enumerate(entry):
            check_entry(f"{name}[{i}]", item)
    elif isinstance(entry, dict):
        for key, item in entry.items():
            check_entry(f"{name}[{key!r}]", item)
    elif isinstance(entry, torch.Tensor):
        raise InputSpecError(f"the entry of input_spec for '{name}' is a tensor; use InputSpec.from_tensor(tensor)")
    elif entry is not None and not isinstance(entry, InputSpec):
        raise InputSpecError(f"the entry of input_spec for '{name}' is {short(entry)}; it must be an InputSpec, a "
                             f"list, tuple or dict of them, or None")


def shapes(name: str, entry: Any) -> Iterator[tuple[str, Shape]]:
    if isinstance(entry, InputSpec):
        yield name, entry.shape
    items = enumerate(entry) if isinstance(entry, list | tuple) else entry.items() if isinstance(entry, dict) else ()
    for key, item in items:
        yield from shapes(f"{name}[{key!r}]", item)


# ---- comparing an argument with its entry ---------------------------------------------------------------
def problems(name: str, entry: Any, value: Any, sizes: Sizes) -> Iterator[str]:
    """How the value of the argument ``name`` contradicts an entry."""
    if isinstance(entry, InputSpec):
        label = f" ({entry.name})" if entry.name not in (None, name) else ""
        yield from tensor_problems(f"argument '{name}'{label}", entry, value, sizes)
    elif isinstance(entry, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(entry):
            yield f"argument '{name}': expected {expectation(entry)}, got {got(value)}"
        else:
            for i, (inner, item) in enumerate(zip(entry, value, strict=True)):
                yield from problems(f"{name}[{i}]", inner, item, sizes)
    elif isinstance(entry, dict):
        if not isinstance(value, dict) or value.keys() != entry.keys():
            yield f"argument '{name}': expected {expectation(entry)}, got {got(value)}"
        else:
            for key, inner in entry.items():
                yield from problems(f"{name}[{key!r}]", inner, value[key], sizes)


def tensor_problems(what: str, spec: InputSpec, value: Any, sizes: Sizes) -> Iterator[str]:
    start = f"{what}: expected {article(str(spec))}, got {got(value)}"
    if not isinstance(value, torch.Tensor):
        yield start
    elif value.dtype != spec.dtype:
        yield f"{start}: the dtype differs"
    elif value.dim() != len(spec.shape):
        yield f"{start}: {value.dim()} dimensions, not {len(spec.shape)}"
    else:
        for i, (expected, size) in enumerate(zip(spec.shape, value.shape, strict=True)):
            if isinstance(expected, int) and size != expected:
                yield f"{start}: dimension {i} is {size}, not {expected}"
            elif isinstance(expected, str):
                known, where = sizes.setdefault(expected, (size, f"dimension {i} of {what}"))
                if size != known:
                    yield f"{start}: dimension {i} ({expected}) is {size}, and {where} is {known}"


def expectation(entry: Any) -> str:
    """A description of an entry."""
    if isinstance(entry, InputSpec):
        return article(str(entry))
    if isinstance(entry, list | tuple):
        return f"a list or tuple of {len(entry)}"
    return f"a dict with the keys {short(list(entry))}" if isinstance(entry, dict) else "anything"


def got(value: Any) -> str:
    """A description of an argument."""
    if isinstance(value, torch.Tensor):
        return article(tensor_summary(value))
    if isinstance(value, list | tuple):
        return article(f"{type(value).__name__} of {len(value)}")
    if isinstance(value, dict):
        return f"a dict with the keys {short(list(value))}"
    return f"{short(value)} ({type(value).__name__})"


def holds_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(holds_tensor, value))
    if isinstance(value, dict):
        return any(map(holds_tensor, value.values()))
    return isinstance(value, torch.Tensor)
