"""Compile generated modules for a GPU that is not here, and say what each kernel takes of it.

    python -m sot.backends.triton.offline 80,90 module.py ...

prints a line of JSON for each kernel and architecture: registers and bytes spilled, a thread. Needs no GPU, but a
process in which Triton's interpreter is off.
"""
from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from sot.backends.triton import runtime
from sot.backends.triton.launching import launchers

PTXAS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def compiled(path: Path, architecture: int) -> Iterator[dict[str, Any]]:
    """Each kernel of the module for ``sm_<architecture>``."""
    for launcher in launchers(runtime.load(path)):
        built = triton.compile(launcher.source(), target=GPUTarget("cuda", architecture, 32),
                               options=dict(launcher.options))
        yield {"module": path.stem, "kernel": launcher.kernel.__name__, "arch": architecture,
               **resources(built.asm["ptx"], architecture)}


def resources(ptx: str, architecture: int) -> dict[str, int]:
    """What the assembler says of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        name = f"sm_{architecture}{'a' if architecture == 90 else ''}"
        done = subprocess.run([PTXAS, "-v", f"--gpu-name={name}", str(source), "-o", str(source) + ".cubin"],
                              capture_output=True, text=True, check=True)
    spilled, registers = SPILLS.findall(done.stderr), REGISTERS.findall(done.stderr)
    return {"spilled": sum(int(a) + int(b) for a, b in spilled), "registers": max(map(int, registers))}


def main(arguments: Sequence[str]) -> None:
    architectures, *paths = arguments
    for path in paths:
        for architecture in architectures.split(","):
            for row in compiled(Path(path), int(architecture)):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
