"""save: capture, export, write."""
from __future__ import annotations

import inspect
import json
import os
import re
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from sot.deploy.arguments import (
    Dimensions,
    Key,
    bind,
    containers,
    dynamic_shapes,
    examples,
    objects,
    tensor_names,
    without_examples,
)
from sot.deploy.errors import FewSizesError, LoadError, SaveError, SaveWarning
from sot.deploy.module import Condition
from sot.deploy.program_text import is_guard
from sot.deploy.provenance import provenance, seal
from sot.deploy.safety import inspect_archive
from sot.deploy.sizes import as_data, asked_by_operators, bounded, described, explained, is_about_sizes, sizes_in
from sot.deploy.trace import Capture, capture, place_of
from sot.frontend.api import translation_of
from sot.graph.fake_rules import packed, padded
from sot.support.errors import Reason
from sot.support.tracebacks import public
from sot.support.user_annotations import name_of
from sot.torch_compat.exporting.archive import SerializeError, write_archive
from sot.torch_compat.exporting.asked import drop_asked
from sot.torch_compat.exporting.integers import with_divisions
from sot.torch_compat.exporting.norms import with_their_checks
from sot.torch_compat.exporting.other_sizes import node_of_one_size
from sot.torch_compat.exporting.recurrent import any_length
from sot.torch_compat.fake_tensors import quiet
from sot.torch_compat.global_state import undoing_regions

FORMAT = 2
METADATA = "sot.json"
MAIN = "model"              # the name that torch.export.load looks for
RAISED = Reason.OPERATION_FAILED, Reason.UNCAUGHT
CONSTANTS = (bool, int, float, str)


@public()
def save(model_or_fn: Any, path: str | os.PathLike[str], input_spec: Any = None, *,
         methods: Mapping[str, Any] | None = None, operators: Collection[str] = ()) -> Path:
    """Capture a model or a function, and write it to ``path + ".pt2"``, in torch.export's format.

    Arguments:
        model_or_fn: a torch.nn.Module (its ``forward`` is saved), or a function. It is captured in its current mode:
            call ``eval()`` first for a model that will be served.
        path: the name of the file, with or without its ending.
        input_spec: for each argument, in order or by name: an InputSpec, an example tensor, or a list, tuple or dict
            of these. Any other value is a constant in the file. Dimensions of None, or with a name, may differ in
            later calls. The default is the input_spec of ``to_static``.
        methods: names of several methods of the model, each with its input_spec, for one file. They share weights.
        operators: names of libraries whose operators the file may call, such as ``["torchvision"]``. ``load`` is given
            the same.

    Returns the path of the file. Raises SaveError, with the line of the problem, if the target is not captured as one
    graph.
    """
    if isinstance(model_or_fn, type):
        raise SaveError(f"save needs a model or a function, not the class {model_or_fn.__qualname__}: pass an instance")
    target = translation_of(model_or_fn)
    owner = model_or_fn if isinstance(model_or_fn, torch.nn.Module) else None
    if methods is None:
        spec = input_spec if input_spec is not None else target.settings.input_spec if target else None
        methods = {"forward": spec}
    elif input_spec is not None or owner is None:
        raise SaveError("methods is for a model, and has an input_spec for each: remove input_spec")
    programs: dict[str, Any] = {}
    layouts: dict[str, dict[str, Any]] = {}
    dropped: dict[str, None] = {}
    for method, spec in methods.items():
        key = MAIN if not programs else method
        programs[key], layouts[method], lost = export(method_of(model_or_fn, owner, method), owner, spec)
        layouts[method]["program"] = key
        dropped.update(dict.fromkeys(lost))
    file = Path(f"{os.fspath(path).removesuffix('.pt2')}.pt2")
    file.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"format": FORMAT, "methods": layouts, "name": name_of(model_or_fn), "provenance": provenance(),
                "training": owner is None or owner.training}
    try:
        write_archive(file, programs, {METADATA: json.dumps(metadata)})
    except SerializeError as e:
        raise SaveError(f"{metadata['name']} cannot be saved: {unwritten(e, programs.values())}") from e
    refuse_unloadable(file, operators)
    seal(file)
    if dropped:
        warnings.warn(f"{metadata['name']} is saved without these effects of a call, which a file cannot contain: "
                      f"{', '.join(dropped)}", SaveWarning, stacklevel=3)
    return file


def unwritten(error: SerializeError, programs: Iterable[Any]) -> str:
    """The operation that torch.export cannot write, and its line."""
    name = re.search(r"serializing node (\w+)", str(error))
    for node in (node for program in programs for node in program.graph.nodes if name and node.name == name[1]):
        return (f"torch.export cannot write {getattr(node.target, '__name__', node.target)}(){place_of(node)} into a "
                f"file. Compute it with tensors")
    return f"torch.export cannot write the graph: {str(error).splitlines()[0]}"


def refuse_unloadable(file: Path, operators: Collection[str]) -> None:
    """Remove the file and raise SaveError if load would refuse it, because an operator needs its own library."""
    try:
        inspect_archive(file, operators)
    except LoadError as e:
        file.unlink()
        raise SaveError(f"{e}. Operators of ATen need no library") from e


def method_of(target: Any, owner: torch.nn.Module | None, method: str) -> Callable[..., Any]:
    if owner is None:
        return getattr(target, "__wrapped__", target)
    fn = getattr(owner, method, None)
    if not callable(fn):
        raise SaveError(f"{name_of(owner)} has no method {method!r}")
    return fn


def export(fn: Callable[..., Any], owner: torch.nn.Module | None, spec: Any) -> tuple[Any, dict[str, Any], list[str]]:
    """The torch.export.ExportedProgram of one method, the layout of its arguments and results, and the dropped
    effects.
    """
    bound = bind(fn, spec)
    given = dict(bound.arguments)
    entries = containers(given)
    dimensions = Dimensions(entries)
    with any_length(packed, padded), torch.random.fork_rng(devices=[]):
        captured, program, conditions = for_many_sizes(fn, owner, bound, given, dimensions)
    drop_asked(program, is_guard)
    constants = {name: entry for name, entry in entries.items() if entry is None or isinstance(entry, CONSTANTS)}
    layout = {"positional": list(entries)[:len(bound.args)], "keyword": list(bound.kwargs), "constants": constants,
              "result": captured.shape, "conditions": [[*map(as_data, (c.term, c.text, c.line))] for c in conditions],
              "sizes": described(program, tensor_names(bound), dimensions)}
    return program, layout, captured.dropped


def for_many_sizes(fn: Callable[..., Any], owner: torch.nn.Module | None, bound: inspect.BoundArguments,
                   given: dict[str, Any], dimensions: Dimensions) -> tuple[Capture, Any, list[Condition]]:
    """The capture, the program, and its conditions on sizes. Other examples are tried if few sizes meet these: with
    three columns, ``view(rows, -1, 3)`` is for one group of columns.
    """
    first: Exception | None = None
    while True:
        try:
            return whole(fn, owner, bound, given, dimensions)
        except Exception as e:
            if first is None and not isinstance(e, FewSizesError):
                raise
            first = first or e
            if not dimensions.resize():
                raise first from None


def whole(fn: Callable[..., Any], owner: torch.nn.Module | None, bound: inspect.BoundArguments, given: dict[str, Any],
          dimensions: Dimensions) -> tuple[Capture, Any, list[Condition]]:
    """The capture, the program, and its conditions on sizes, for one set of examples."""
    captured = captured_method(fn, owner, bound, given, dimensions)
    if captured.static and dimensions.keys:     # torch.export would not see what the graph computes of a constant
        raise SaveError(f"{name_of(fn)} cannot be saved for sizes that differ: it is captured for one size only, "
                        f"because of {captured.static}. Move that out of the method, or give input_spec the sizes")
    names = tensor_names(bound)
    program = exported(captured, fn, bound, dynamic_shapes(containers(given), dimensions))
    if keys := bounded(program, names, dimensions, captured.module._sot_plan.conditions):
        captured, program = with_larger(keys, captured, program, fn, owner, bound, given, dimensions)
    with_divisions(program.graph_module)
    conditions = [c for c in captured.module._sot_plan.conditions if is_about_sizes(c.term)]
    try:
        conditions += asked_by_operators(program, names, conditions, captured.of_operators)
        if (node := node_of_one_size(program)) is not None:
            raise FewSizesError(f"torch.export makes a constant of a size of "
                                f"{getattr(node.target, '__name__', node.target)}(){place_of(node)}. Write -1 for it "
                                f"there, or give input_spec the sizes that it follows from")
    except SaveError as e:
        raise type(e)(f"{name_of(fn)} cannot be saved for sizes that differ: {e}") from e
    return captured, program, conditions


def exported(captured: Capture, fn: Callable[..., Any], bound: inspect.BoundArguments, shapes: Any) -> Any:
    """The ExportedProgram of a capture. Raises SaveError."""
    try:
        # torch warns of ranges that it cannot solve; see sizes.py
        with undoing_regions(), with_their_checks(), quiet("torch.fx.experimental.symbolic_shapes"):
            return torch.export.export(captured.module, bound.args, bound.kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as e:
        if (problem := explained(e, captured.guards)) is not None:
            raise SaveError(f"{name_of(fn)} cannot be saved: {problem}") from e
        raise SaveError(f"{name_of(fn)} is captured as a whole, but torch.export cannot export "
                        f"{refused_part(e, captured.module._sot_graph)}") from e


def refused_part(error: Exception, graph: torch.fx.GraphModule) -> str:
    """The operation at which torch.export failed, its line, and the reason."""
    lines = [f.line or "" for f in traceback.extract_tb(error.__traceback__) if "eval_with_key" in f.filename]
    nodes = {node.name: node for node in graph.graph.nodes}
    node = next((nodes[name] for line in reversed(lines) if (name := line.split()[0].rstrip(":")) in nodes), None)
    what = f"{getattr(node.target, '__name__', node.target)}(){place_of(node)}" if node is not None else "the graph"
    if node is not None and type(error).__name__ == "GuardOnDataDependentSymNode":
        return (f"{what}: it takes a number that depends on data, or is made of floats, only as a constant. Use a "
                f"constant, or compute it of sizes with integers (//)")
    return f"{what}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def with_larger(keys: Iterable[Key], captured: Capture, program: Any, fn: Callable[..., Any],
                owner: torch.nn.Module | None, bound: inspect.BoundArguments, given: dict[str, Any],
                dimensions: Dimensions) -> tuple[Capture, Any]:
    """The capture and program for larger examples: an image of 11 rows has one row of patches, which torch takes for a
    constant, so the file would be for images of 8 to 15 rows. Those for the smaller ones if that does not help.
    """
    before, arguments = dimensions.sizes, dict(bound.arguments)
    dimensions.enlarge(keys)
    try:
        larger = captured_once(fn, owner, bound, given, dimensions)
        found = exported(larger, fn, bound, dynamic_shapes(containers(given), dimensions))
        limits = bounded(found, tensor_names(bound), dimensions, larger.module._sot_plan.conditions)
        if not limits and not larger.static:
            return larger, found
    except Exception:       # noqa: BLE001 - the smaller ones have worked
        pass
    dimensions.sizes = before
    bound.arguments.update(arguments)
    return captured, program


def captured_method(fn: Callable[..., Any], owner: torch.nn.Module | None, bound: inspect.BoundArguments,
                    given: dict[str, Any], dimensions: Dimensions) -> Capture:
    """The capture of a method with the examples in ``bound``. Failures show which sizes must be equal, or that the
    method needs others.
    """
    first: Exception | None = None
    while True:
        try:
            found = captured_once(fn, owner, bound, given, dimensions)
            break
        except Exception as e:
            first = first or e
            if not dimensions.join(str(e)) and not (is_raised(first) and dimensions.resize()):
                raise first from None
    names = tensor_names(bound)
    while (sizes := equal_where_compared(found, names, dimensions)) is not None:
        before, dimensions.sizes = dimensions.sizes, sizes
        try:
            found = captured_once(fn, owner, bound, given, dimensions)
        except Exception:
            dimensions.sizes = before
            bound.arguments.update(examples(containers(given), dimensions))
            break
    return found


def captured_once(fn: Callable[..., Any], owner: torch.nn.Module | None, bound: inspect.BoundArguments,
                  given: dict[str, Any], dimensions: Dimensions) -> Capture:
    """The capture of a method with examples, which are in ``bound`` from now on."""
    bound.arguments.update(examples(containers(given), dimensions))
    real = inspect.BoundArguments(bound.signature, OrderedDict(objects(given, bound.arguments)))
    return capture(fn, owner, real.args, real.kwargs, without_examples(given))


def is_raised(error: Exception) -> bool:
    """Whether the method itself has raised an exception. It may accept other sizes."""
    return not isinstance(error, SaveError) or any(
        reason.value.message.partition(": ")[0] in str(error) for reason in RAISED)


def equal_where_compared(found: Capture, names: list[str | None], dimensions: Dimensions) -> dict[str, int] | None:
    """Sizes that are equal where the method asks whether one is greater, and the answer would refuse equal sizes: a
    mask is as long as its text unless a name says otherwise. None if there is no such condition.
    """
    for condition in found.module._sot_plan.conditions:
        if isinstance(condition.term, tuple) and condition.term[0] in ("<", ">"):
            places = {(str(names[position]), i) for position, i in sizes_in(condition.term)}
            keys = {key for place in places if (key := dimensions.keys.get(place)) is not None}
            if len(keys) == 2 and (sizes := dimensions.equal(*sorted(keys))) is not None:
                return sizes
    return None
