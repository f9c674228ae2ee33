"""Whether kernels can be compiled and run here, and why not."""

from __future__ import annotations

import functools
import os
from importlib.util import find_spec

import torch

OLDEST = (8, 0)  # of the devices that Triton's compiler supports well


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


@functools.cache
def obstacle() -> str:
    """Why Triton cannot be used for CUDA tensors here; empty if it can."""
    if find_spec("triton") is None:
        return "the package triton is not installed"
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    capability = torch.cuda.get_device_capability()
    if capability < OLDEST:
        return f"the CUDA device is of compute capability {capability[0]}.{capability[1]}, older than 8.0"
    return ""


def kernel_device() -> str:
    """The type of device of the tensors that kernels are made for; empty if there is none."""
    if find_spec("triton") is not None and interpreted():
        return "cpu"
    return "" if obstacle() else "cuda"
