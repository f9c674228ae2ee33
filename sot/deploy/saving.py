"""save: capture, export, write."""
from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sot.deploy.errors import SaveError
from sot.deploy.trace import capture
from sot.frontend.api import translation_of
from sot.frontend.input_spec import InputSpec
from sot.support.user_annotations import name_of
from sot.torch_compat.archive import write_archive

FORMAT = 1
METADATA = "sot.json"
MAIN = "model"              # the name that torch.export.load looks for
CONSTANTS = (bool, int, float, str)
SIZES = (7, 11, 13, 17)     # of dimensions that may differ, in examples: unlike each other, and neither 0 nor 1


def save(model_or_fn: Any, path: str | os.PathLike[str], *, input_spec: Any = None,
         methods: Mapping[str, Any] | None = None) -> Path:
    """Capture a model or a function, and write it to ``path + ".pt2"``, torch.export's own format.

    Arguments:
        model_or_fn: a torch.nn.Module (its ``forward`` is saved), or a function. It is captured in the mode that it is
            in: ``eval()`` first for a model to be served.
        path: where to; the name of the file without its ending.
        input_spec: for each argument in order, or by name: an InputSpec, an example tensor, or a list, tuple or dict
            of them; any other value is a constant of what is saved. Dimensions of None, or with a name, may differ when
            the file is used. Without it, the one that ``to_static`` was given.
        methods: names of several methods of the model, each with its input_spec, for one file: they share weights.

    Returns the path that was written. Raises SaveError, with the line that is the problem, for what is not one whole
    graph.
    """
    target = translation_of(model_or_fn)
    owner = model_or_fn if isinstance(model_or_fn, torch.nn.Module) else None
    if methods is None:
        spec = input_spec if input_spec is not None else target.settings.input_spec if target else None
        methods = {"forward": spec}
    elif input_spec is not None or owner is None:
        raise SaveError("methods is for a model, and has an input_spec for each: leave input_spec out")
    programs: dict[str, Any] = {}
    layouts: dict[str, dict[str, Any]] = {}
    for method, spec in methods.items():
        key = MAIN if not programs else method
        programs[key], layouts[method] = export(method_of(model_or_fn, owner, method), owner, spec)
        layouts[method]["program"] = key
    file = Path(f"{os.fspath(path)}.pt2")
    file.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"format": FORMAT, "methods": layouts, "name": name_of(model_or_fn), "torch": torch.__version__,
                "training": owner is None or owner.training}
    write_archive(file, programs, {METADATA: json.dumps(metadata)})
    return file


def method_of(target: Any, owner: torch.nn.Module | None, method: str) -> Callable[..., Any]:
    if owner is None:
        return getattr(target, "__wrapped__", target)
    fn = getattr(owner, method, None)
    if not callable(fn):
        raise SaveError(f"{name_of(owner)} has no method {method!r}")
    return fn


def export(fn: Callable[..., Any], owner: torch.nn.Module | None, spec: Any) -> tuple[Any, dict[str, Any]]:
    """The torch.export.ExportedProgram of one method, and how its arguments are given."""
    if spec is None:
        raise SaveError(f"save needs an input_spec for {name_of(fn)}: what its arguments are, for example "
                        f"[sot.InputSpec((None, 16))]")
    bound = bind(fn, spec)
    entries = dict(bound.arguments)
    sizes: dict[str, int] = {}
    for name, entry in entries.items():
        bound.arguments[name] = example(entry, sizes)
    checked = {name: entry if has_specs(entry) else None for name, entry in entries.items()}
    captured = capture(fn, owner, bound.args, bound.kwargs, checked)
    dims: dict[str, Any] = {}
    shapes = {name: dynamic(entry, dims) for name, entry in entries.items()}
    try:
        program = torch.export.export(captured, bound.args, bound.kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as e:
        raise SaveError(f"{name_of(fn)} is captured whole, and torch.export cannot take the graph: {type(e).__name__}: "
                        f"{e}") from e
    constants = {name: entry for name, entry in entries.items() if entry is None or isinstance(entry, CONSTANTS)}
    return program, {"positional": list(entries)[:len(bound.args)], "keyword": list(bound.kwargs),
                     "constants": constants}


# ---- what an input_spec says ------------------------------------------------------------------------------
def bind(fn: Callable[..., Any], spec: Any) -> inspect.BoundArguments:
    """The entries as the arguments of a call."""
    try:
        signature = inspect.signature(fn)
        return signature.bind(**spec) if isinstance(spec, Mapping) else signature.bind(*as_list(spec))
    except TypeError as e:
        raise SaveError(f"the input_spec does not fit {name_of(fn)}: {e}") from e


def as_list(spec: Any) -> list[Any]:
    return list(spec) if isinstance(spec, list | tuple) else [spec]


def example(entry: Any, sizes: dict[str, int]) -> Any:
    """A value that an entry describes; equal names are equal sizes."""
    if isinstance(entry, InputSpec):
        shape = [size if isinstance(size, int) else size_of(size, sizes) for size in entry.shape]
        floats = entry.dtype.is_floating_point or entry.dtype.is_complex
        return torch.randn(shape, dtype=entry.dtype) if floats else torch.zeros(shape, dtype=entry.dtype)
    return pytree.tree_map(lambda e: example(e, sizes), entry) if is_container(entry) else entry


def size_of(name: str | None, sizes: dict[str, int]) -> int:
    key = name or f"dimension {len(sizes)}"
    return sizes.setdefault(key, SIZES[len(sizes) % len(SIZES)] + 8 * (len(sizes) // len(SIZES)))


def dynamic(entry: Any, dims: dict[str, Any]) -> Any:
    """What torch.export wants to know about sizes that differ."""
    if isinstance(entry, InputSpec):
        return {i: dims.setdefault(size, torch.export.Dim(size)) if isinstance(size, str) else torch.export.Dim.DYNAMIC
                for i, size in enumerate(entry.shape) if not isinstance(size, int)} or None
    return pytree.tree_map(lambda e: dynamic(e, dims), entry) if is_container(entry) else None


def is_container(entry: Any) -> bool:
    return isinstance(entry, list | tuple | dict)


def has_specs(entry: Any) -> bool:
    return any(isinstance(e, InputSpec) for e in pytree.tree_leaves(entry))
