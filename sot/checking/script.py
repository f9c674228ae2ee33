"""A program that shows a difference again, on its own."""
from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from sot.backends import Backend, backend_name

SMALL = 64      # elements that are written out
SCRIPT = '''"""{title}"""
import torch
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
    """Write it, and beside it the inputs that are too large to be written out; answers where.

    ``folder`` is made if it is not there; without one, a new folder for temporary files.
    """
    folder = folder or Path(tempfile.mkdtemp(prefix="sot-check-"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "difference.py"
    code = "\n".join(f"    {line}".rstrip() for line in module.code.strip().splitlines())
    texts = [written(value, folder / f"input{i}.pt") for i, value in enumerate(inputs)]
    imports, name = reference(backend)
    path.write_text(SCRIPT.format(title=title.replace('"""', "'''"), imports=imports, code=code, backend=name,
                                  inputs="[" + "".join(f"\n    {text}," for text in texts) + "\n]"), encoding="utf-8")
    return path


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


def reference(backend: Backend) -> tuple[str, str]:
    """How a program gets the backend: an import, and an expression."""
    name, module = getattr(backend, "__name__", ""), inspect.getmodule(backend)
    if module is not None and name.isidentifier() and getattr(module, name, None) is backend:
        return f"from {module.__name__} import {name}\n", name
    return "", f"lookup_backend({backend_name(backend)!r})"
