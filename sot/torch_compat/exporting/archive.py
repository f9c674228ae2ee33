"""torch.export's archives: torch.export.save calls package_pt2, which also takes several programs."""
from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sot.torch_compat.symbolic_shapes import example_of

PACKAGE = "torch.export.pt2_archive._package"      # a second to import, so only when needed
SERIALIZE = "torch._export.serde.serialize"


class SerializeError(Exception):
    """torch.export cannot write a graph into a file."""


def write_archive(path: Path, programs: dict[str, Any], extra: dict[str, str]) -> None:
    """Write exported programs, by name, and texts beside them. Raises SerializeError."""
    for program in programs.values():
        program._example_inputs = None      # they would be pickled
    try:
        import_module(PACKAGE).package_pt2(str(path), exported_programs=programs, extra_files=extra)
    except import_module(SERIALIZE).SerializeError as e:
        raise SerializeError(str(e)) from e


def read_archive(path: Path) -> dict[str, Any]:
    """The programs of an archive."""
    return import_module(PACKAGE).load_pt2(str(path)).exported_programs


def is_operator(library: str, name: str, overload: str) -> bool:
    """Whether ``torch.ops`` has this operator in this process."""
    found = getattr(getattr(getattr(torch.ops, library, None), name, None), overload, None)
    return isinstance(found, torch._ops.OpOverload)


def with_examples(program: Any) -> Any:
    """The program with example inputs, which AOTInductor asks for: zeros of the dtypes and sizes of its capture."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    leaves = [zeros(values[name]) if name in values else name for name in program.graph_signature.user_inputs]
    program._example_inputs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return program


def zeros(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return in_capture(value)
    return torch.zeros([in_capture(size) for size in value.shape], dtype=value.dtype, device=value.device)


def in_capture(number: Any) -> Any:
    return example_of(number) if isinstance(number, torch.SymInt | torch.SymFloat) else number
