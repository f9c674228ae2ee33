"""Writes a standalone program that reproduces a difference."""
from __future__ import annotations

import inspect
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends import Backend, BackendError, UnknownBackendError, backend_name, lookup_backend

SMALL = 64      # elements that are written out
SCRIPT = '''"""{title}"""
{path}import torch
from torch import device, inf, nan  # noqa: F401 - the graph may use them

from sot.backends import call_backend, lookup_backend
from sot.checking.graphs import graph_difference
{imports}

class Graph(torch.nn.Module):
{code}

inputs = {inputs}
graph = torch.fx.symbolic_trace(Graph())
compiled = call_backend({backend}, graph, inputs)
print(graph_difference(compiled, graph, inputs) or "no difference")
'''


def write_script(title: str, module: GraphModule, inputs: Sequence[Any], backend: Backend,
                 folder: Path | None = None) -> Path:
    """Write it, and beside it the inputs that are too large for the script. Returns the path.

    ``folder`` is made if it is not there; without one, a new folder for temporary files.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="sot-check-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = unused(folder)
    code = "\n".join(f"    {line}".rstrip() for line in module.code.strip().splitlines())
    texts = [written(value, folder / f"{path.stem}-input{i}.pt") for i, value in enumerate(inputs)]
    search, imports, name = reference(backend)
    path.write_text(SCRIPT.format(
        title=title.replace('"""', "'''"), path=search, imports=imports, code=code, backend=name,
        inputs="[" + "".join(f"\n    {text}," for text in texts) + "\n]"), encoding="utf-8")
    return path


def unused(folder: Path) -> Path:
    """A name that no earlier difference has: the file is made here."""
    for i in itertools.count(1):
        path = folder / ("difference.py" if i == 1 else f"difference-{i}.py")
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            continue
    raise AssertionError("there is always another name")


def written(value: Any, file: Path) -> str:
    """An expression for an input."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    grad = ".requires_grad_()" if value.requires_grad else ""
    plain = value.detach()
    if value.numel() > SMALL or not value.is_contiguous() or value.device.type != "cpu":
        torch.save(plain, file)
        return f"torch.load({str(file)!r}, weights_only=True){grad}"
    return f"torch.tensor({plain.tolist()!r}, dtype={value.dtype}).reshape({tuple(value.shape)}){grad}"


def reference(backend: Backend) -> tuple[str, str, str]:
    """How a program gets the backend: the paths of modules, an import, and an expression."""
    name, module = getattr(backend, "__name__", ""), inspect.getmodule(backend)
    file = getattr(module, "__file__", None)
    if module is not None and name.isidentifier() and getattr(module, name, None) is backend:
        if module.__name__ == "__main__" and file:      # run as a module: what is under __name__ == "__main__" is not
            return "", "import runpy\n", f"runpy.run_path({str(Path(file).resolve())!r}, run_name='program')[{name!r}]"
        search = f"import sys\n\nsys.path.append({str(home(module))!r})\n" if file else ""
        return search, f"from {module.__name__} import {name}\n", name
    shown = backend_name(backend)
    if known(shown, backend):
        return "", "", f"lookup_backend({shown!r})"
    return "", (f"\n\ndef backend(graph_module, example_inputs):\n"
                f"    raise SystemExit('write here how to get the backend {shown}, which has no name of its own')\n"
                ), "backend"


def home(module: ModuleType) -> Path:
    """The folder from which a module is imported."""
    file = Path(str(module.__file__)).resolve()
    return file.parents[module.__name__.count(".") + (file.name == "__init__.py")]


def known(name: str, backend: Backend) -> bool:
    """Whether importing that name gives this object."""
    try:
        return lookup_backend(name) == backend
    except (BackendError, UnknownBackendError):
        return False
