"""The functions that generated modules call, and the loading of modules."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import torch


def view(tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The tensor of these sizes and strides that begins ``offset`` elements after ``tensor``."""
    return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)


def changing(*tensors: torch.Tensor) -> None:
    """Increase the versions of tensors that kernels are about to change, as torch's operators do."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor itself if it has the expected layout, otherwise a copy that has it."""
    if tensor.stride() == strides:
        return tensor
    if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    written = made
    for dim, stride in enumerate(strides):
        if stride == 0 and tensor.shape[dim] > 1:   # all of it is one place in memory, which torch refuses to write
            written, tensor = written.narrow(dim, 0, 1), tensor.narrow(dim, 0, 1)
    written.copy_(tensor)
    return made


def load(path: Path) -> ModuleType:
    """The generated module in this file. Its function ``run`` is the program."""
    spec = importlib.util.spec_from_file_location(f"sot_generated_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
