"""What generated modules call, and how they are loaded."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import torch


def view(tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    """The tensor of these sizes and strides that begins ``offset`` elements after ``tensor`` does."""
    return tensor.as_strided(shape, strides, tensor.storage_offset() + offset)


def changing(*tensors: torch.Tensor) -> None:
    """Count the changes that kernels are about to make of these, as torch's own operators do."""
    torch.autograd.graph.increment_version([t for t in tensors if not t.is_inference()])


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor itself if its elements lie as expected, otherwise a copy in which they do."""
    if tensor.stride() == strides:
        return tensor
    if all(n == 1 or a == b for n, a, b in zip(tensor.shape, tensor.stride(), strides, strict=True)):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def load(path: Path) -> ModuleType:
    """The generated module in this file; its function ``run`` is the program."""
    spec = importlib.util.spec_from_file_location(f"sot_generated_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
