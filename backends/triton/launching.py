"""How generated modules start their kernels: compiled ahead, in parallel, with little work for each launch.

A module has a ``Launcher`` for each kernel with its types, block sizes and hints. On a GPU its ``run`` is a function
written for these arguments, which passes addresses to Triton's driver. In the interpreter it is Triton's own.
"""
from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, CompiledKernel
from triton.runtime import driver

from sot.backends.triton import binaries
from sot.support.progress import working

ALIGNED = 16        # bytes of an address, or the divisor of a size, that allow wide loads


@dataclasses.dataclass(eq=False)
class Launcher:
    """One kernel, ready for calls.

    Arguments:
        kernel: a function decorated with ``triton.jit``.
        types: the types of its arguments in Triton's notation: ``*fp32``, ``i32``.
        constants: the values of its ``tl.constexpr`` parameters, which come last.
        options: the options of the compiler, including ``num_warps``.
        device: the number of its GPU.
    """

    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    device: int = 0

    def __post_init__(self) -> None:
        self.run: Callable[..., None] = self._interpreted if knobs.runtime.interpret else self._first

    def __call__(self, grid: int, *args: Any) -> None:
        """Run ``grid`` programs of the kernel."""
        self.run(grid, *args)

    def _interpreted(self, grid: int, *args: Any) -> None:
        self.kernel[(grid,)](*args, **self.constants, **self.options)

    def _first(self, grid: int, *args: Any) -> None:
        self.run = written(self)
        self.run(grid, *args)

    @property
    def pointers(self) -> list[str]:
        return [name for name, kind in self.types.items() if kind.startswith("*")]

    @property
    def sizes(self) -> list[str]:
        """The numbers among its arguments."""
        return [name for name, kind in self.types.items() if not kind.startswith("*")]

    def source(self, aligned: bool = True, multiples: bool = True) -> ASTSource:
        """The input of Triton's compiler: addresses are ``aligned`` to 16 bytes, and sizes are ``multiples`` of 16."""
        names = self.kernel.arg_names
        signature = {name: self.types.get(name, "constexpr") for name in names}
        constants = {(names.index(name),): value for name, value in self.constants.items()}
        hinted = [*(self.pointers if aligned else ()), *(self.sizes if multiples else ())]
        hints = {(names.index(name),): [["tt.divisibility", ALIGNED]] for name in hinted}
        return ASTSource(self.kernel, signature, constants, hints)

    def compiled(self, target: GPUTarget, aligned: bool = True, multiples: bool = True) -> CompiledKernel:
        """The kernel for a kind of GPU, from the cache if it is there."""
        return binaries.compiled(self.source(aligned, multiples), target, dict(self.options), self.device)


def written(launcher: Launcher) -> Callable[..., None]:
    """The function that launches on the device of the launcher, which is the current one.

    A kernel is compiled for addresses and sizes that 16 divides. At the first launch with others it is also compiled
    for sizes that 16 does not divide, or for any addresses.
    """
    target = driver.active.get_current_target()

    def otherwise(aligned: bool) -> Callable[..., None]:
        def launch(grid: int, *args: Any) -> None:
            if aligned not in made:
                made[aligned] = _function(launcher, launcher.compiled(target, aligned, False), {})
            made[aligned](grid, *args)
        made: dict[bool, Callable[..., None]] = {}
        return launch

    unaligned = otherwise(False)
    others = {"pointers": unaligned} | ({"sizes": otherwise(True)} if launcher.sizes else {})
    return _function(launcher, launcher.compiled(target), others)


def _function(launcher: Launcher, ready: CompiledKernel, others: Mapping[str, Callable[..., None]],
              ) -> Callable[..., None]:
    names: dict[str, Any] = {
        "enqueue": ready.run, "function": ready.function, "metadata": ready.packed_metadata,
        "device": launcher.device, "stream": driver.active.get_current_stream,
        **{f"other_{what}": function for what, function in others.items()}}
    exec(_text(launcher, others), names)
    return names["launch"]


def _text(launcher: Launcher, checked: Iterable[str]) -> str:
    """``launch(grid, in0, out0, n0)``: check what 16 divides, then launch."""
    parameters = ", ".join(launcher.types)
    lines = [f"def launch(grid, {parameters}):"]
    lines += [f"    {name}_at = {name}.data_ptr()" for name in launcher.pointers]
    numbers = {"pointers": [f"{name}_at" for name in launcher.pointers], "sizes": launcher.sizes}
    for what in checked:
        if numbers[what]:
            lines.append(f"    if ({' | '.join(numbers[what])}) & {ALIGNED - 1}:")
            lines.append(f"        return other_{what}(grid, {parameters})")
    given = [f"{name}_at" if name in launcher.pointers else name for name in launcher.types]
    given += [repr(value) for value in launcher.constants.values()]
    lines.append("    enqueue(grid, 1, 1, stream(device), function, metadata, None, None, None, "
                 f"{', '.join(given)})")
    return "\n".join(lines)


# ---- all kernels of a module -----------------------------------------------------------------------------
def launchers(module: ModuleType) -> Iterator[Launcher]:
    return (value for value in vars(module).values() if isinstance(value, Launcher))


def prepare(wanted: Iterable[Launcher], target: GPUTarget) -> int:
    """Compile kernels that are not in the cache, several at a time. Returns their number."""
    missing = [one for one in wanted if not binaries.has(one.source(), target, dict(one.options), one.device)]
    if not missing:
        return 0
    many = f"compiling {len(missing)} kernel{'s' * (len(missing) > 1)}"
    with working(many), ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
        for _ in pool.map(lambda one: one.compiled(target), missing):
            pass
    return len(missing)
