"""Compiles generated modules for a GPU that is not present, and reports the resources of each kernel.

    python -m sot.backends.triton.offline 80,90 module.py ...

prints a line of JSON for each kernel and architecture: registers and spilled bytes per thread, how it accesses memory,
or why it does not compile. It needs no GPU, but a process in which Triton's interpreter is off.
"""
from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas

from sot.backends.errors import one_line
from sot.backends.triton import runtime
from sot.backends.triton.binaries import text_of
from sot.backends.triton.launching import Launcher, launchers

SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
ACCESS = re.compile(r"\b(?P<way>ld|st)\.global(?:\.[\w:]+)*?(?:\.v(?P<count>\d+))?\.[bfsu](?P<bits>\d+)\s")
# Products and quotients of places in 64 bits. (mul.wide makes an address of a 32-bit place: one instruction.)
WIDE_INDEX = re.compile(r"\b(?:mul\.lo|mad\.lo|mul\.hi|div|rem)\.[su]64\s")


def distinct(paths: Iterable[Path]) -> Iterator[tuple[Path, Launcher]]:
    """The kernels of modules. Kernels that differ only in their names are listed once."""
    seen: set[str] = set()
    for path in paths:
        for launcher in launchers(runtime.load(path)):
            text = text_of(launcher.kernel).replace(launcher.kernel.__name__, "kernel")
            key = f"{text} {launcher.types} {launcher.constants} {launcher.options}"
            if key not in seen:
                seen.add(key)
                yield path, launcher


def compiled(launcher: Launcher, architecture: int) -> dict[str, Any]:
    """The resources of a kernel on ``sm_<architecture>``, or why it cannot be compiled for it."""
    try:
        built = triton.compile(launcher.source(), target=GPUTarget("cuda", architecture, 32),
                               options=dict(launcher.options))
        ptx = built.asm["ptx"]
        return resources(ptx, architecture) | accesses(ptx) | {"shared": built.metadata.shared}
    except Exception as error:
        return {"failed": one_line(error), "spilled": 0, "registers": 0}


def resources(ptx: str, architecture: int) -> dict[str, int]:
    """The resources of a kernel, from the assembler that Triton takes for this architecture."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx)
        name = f"sm_{architecture}{'a' if architecture == 90 else ''}"
        command = [get_ptxas(architecture).path, "-v", f"--gpu-name={name}", str(source), "-o", f"{source}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    spilled, registers = SPILLS.findall(done.stderr), REGISTERS.findall(done.stderr)
    return {"spilled": sum(int(a) + int(b) for a, b in spilled), "registers": max(map(int, registers))}


def accesses(ptx: str) -> dict[str, int]:
    """The loads and stores of global memory, how many of them move 16 bytes a thread, and 64-bit index arithmetic."""
    found = [(m["way"], int(m["count"] or 1) * int(m["bits"])) for m in ACCESS.finditer(ptx)]
    row = {name: sum(w == way for w, _ in found) for way, name in (("ld", "loads"), ("st", "stores"))}
    row |= {name: sum(w == way and bits >= 128 for w, bits in found)
            for way, name in (("ld", "wide loads"), ("st", "wide stores"))}
    return row | {"64-bit index operations": len(WIDE_INDEX.findall(ptx))}


def main(arguments: Sequence[str]) -> None:
    architectures, *paths = arguments
    for path, launcher in distinct(map(Path, paths)):
        for architecture in map(int, architectures.split(",")):
            row = {"module": path.stem, "kernel": launcher.kernel.__name__, "arch": architecture}
            print(json.dumps(row | compiled(launcher, architecture)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
