"""A GPU that is not there: kernels are compiled for it and launched on it, and it notes what it is given.

    python tests/support/fake_gpu.py

compiles a program and calls it, in a process in which Triton's interpreter is off, and prints a line of JSON: how many
kernels were compiled, how many modules found, and the launches. Results are whatever was in memory.
"""
from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import sot
from sot.backends.triton import binaries
from sot.backends.triton.compiler import Compiler

launches: list[dict[str, Any]] = []
compiled: list[str] = []


class Utils:
    """What Triton asks of CUDA when it loads a kernel."""

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        return {"max_shared_mem": 160 * 1024, "multiprocessor_count": 100}

    @staticmethod
    def load_binary(name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
        assert kernel[:4] == b"\x7fELF"
        return object(), name, 32, 0, 1024


class Launch:
    """What runs a kernel: it is given the grid, the stream, the function, what goes with it, and the arguments."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.hinted = bool(src.attrs)

    def __call__(self, x: int, y: int, z: int, stream: int, function: str, metadata: Any, *rest: Any) -> None:
        launches.append({"name": function, "grid": x, "arguments": rest[3:], "hinted": self.hinted})


class FakeDriver:
    """Triton's driver of a GPU of compute capability 8.0."""

    utils, launcher_cls = Utils, Launch

    def get_current_device(self) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)

    def get_current_stream(self, device: int) -> int:
        return 7


def install() -> None:
    """Make it the GPU of this process, and count what is compiled for it."""
    driver.set_active(FakeDriver())
    compile_kernel = triton.compile

    def counting(source: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.append(source.fn.__name__)
        return compile_kernel(source, *args, **kwargs)

    triton.compile = counting


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, (64,), w) * x.sigmoid()


def main() -> None:
    install()
    made = Compiler("cpu", interpreted=False, strict=True)
    run = sot.to_static(program, backend=made)
    for rows in map(int, sys.argv[1:] or ["32"]):
        run(torch.randn(rows, 64, requires_grad=True), torch.randn(64, requires_grad=True))
    odd = torch.randn(32 * 64 + 1)[1:].view(32, 64)
    sot.to_static(lambda x: x + 1, backend=made)(odd)
    print(json.dumps({"compiled": compiled, "found": [m.found for m in made.made], "launches": launches,
                      "known": len(binaries.known)}))


if __name__ == "__main__":
    main()
