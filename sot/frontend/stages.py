"""``python -m sot explain --stages f.py::f``: the result of each step of the pipeline, for one function.

The function is called once. Its arguments come from ``--call``, an expression over the names of the file such as
``f(torch.ones(3), 2)``, or from ``example_inputs`` in the file: a tuple of arguments, or a dict of such tuples by
function name. The default is no arguments.
"""
from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from sot.driver.translator import Translator
from sot.frontend.api import Settings, StaticFunction, StaticModule, original, refuse_unreachable
from sot.frontend.inspection import heading
from sot.reports.records import Capture
from sot.support.errors import SotError


class StagesError(SotError):
    """There is no such function, or there are no arguments for it."""


def stages(target: str, call: str | None, backend: str) -> str:
    """The page of a function, ``file.py::name`` or ``file.py::Class.name``. An exception of the call is raised.

    Raises StagesError, TargetError for a function that cannot be translated, UnknownBackendError.
    """
    file, _, path = target.partition("::")
    if not path or not Path(file).is_file():
        raise StagesError(f"{target!r} does not name a function: write FILE.py::NAME, with a file that exists")
    names = run_module(Path(file))
    holder, name, function = find(names, path)
    settings = Settings(backend)
    translator = Translator(settings.compiler(), shows_stages=True, takes_first_calls=True)
    translated = translate(function, settings, translator)
    if holder is names:
        holder[name] = translated
    else:
        setattr(holder, name, translated)
    if call is not None:
        eval(expression(call), names)
    else:
        translated(*arguments(names, path, function))
    if not translator.captures:
        raise StagesError(f"the call did not reach {path}, so nothing was captured")
    return "\n".join(page(translator.captures))


def run_module(path: Path) -> dict[str, Any]:
    """The names that a file defines. It is run as a module, not as a program."""
    sys.path.insert(0, str(path.resolve().parent))
    try:
        names = runpy.run_path(str(path), run_name=path.stem)
    finally:
        del sys.path[0]
    return names | {"torch": torch}


def find(names: dict[str, Any], path: str) -> tuple[Any, str, Any]:
    """The owner of a function, its name there, and the function. Raises StagesError."""
    *outer, name = path.split(".")
    holder: Any = names
    for step in outer:
        holder = holder.get(step) if holder is names else getattr(holder, step, None)
    found = holder.get(name) if holder is names else vars(holder).get(name) if hasattr(holder, "__dict__") else None
    if found is None:
        raise StagesError(f"there is no {path} in the file")
    return holder, name, found


def translate(function: Any, settings: Settings, translator: Translator) -> Any:
    if isinstance(function, torch.nn.Module):
        refuse_unreachable(function)
        return StaticModule(function, settings, translator)
    return StaticFunction(original(function, "explain --stages"), settings, translator)


def expression(call: str) -> CodeType:
    try:
        return compile(call, "<--call>", "eval")
    except SyntaxError as e:
        raise StagesError(f"--call takes an expression, such as \"f(torch.ones(3))\", not {call!r}: {e.msg}") from None


def arguments(names: dict[str, Any], path: str, function: Any) -> tuple:
    """The arguments for the function in the file. Raises StagesError if it takes others."""
    given = names.get("example_inputs", ())
    given = given.get(path, ()) if isinstance(given, dict) else given
    if not isinstance(given, tuple | list):
        raise StagesError(f"example_inputs has {type(given).__name__} for {path}: it takes a tuple of arguments")
    try:
        inspect.signature(getattr(function, "forward", function)).bind(*given)
    except TypeError as e:
        raise StagesError(f"{path} was not called: {e}. Give the call, such as --call \"f(torch.ones(3))\", or its "
                          f"arguments as example_inputs in the file") from None
    return tuple(given)


def page(captures: list[Capture]) -> Iterator[str]:
    """Each capture with its intermediate forms, under headings."""
    for i, capture in enumerate(captures):
        yield from ("",) * bool(i)
        yield f"==== {heading(capture)}"
        kernels = capture.graph.module.meta.get("kernels", ()) if capture.graph is not None else ()
        for title, text in [*capture.stages.items(), *(("kernels", made["source"]) for made in kernels)]:
            yield f"---- {title}"
            yield from (line.rstrip() for line in text.splitlines() if line.strip())
