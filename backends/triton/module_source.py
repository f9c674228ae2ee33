"""The Python module of a program: its kernels, and ``run``, which allocates, launches and calls.

``run(inputs, constants)`` takes a list of the inputs, which it empties so that their memory may go, and what the text
cannot hold: constant tensors and objects, in the order of ``Module.constants``.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import torch

from sot.backends.triton.blocks import chosen
from sot.backends.triton.expressions import DEVICE_FUNCTIONS, FURTHER_FUNCTIONS, REDUCE, SCAN
from sot.backends.triton.kernel_source import Blocks, source
from sot.graph.ir import Kernel
from sot.graph.program import Buffer, Extern, Program, Step, View
from sot.graph.schedule import is_view

FUNCTIONS = sorted({*DEVICE_FUNCTIONS, *FURTHER_FUNCTIONS, *REDUCE.values(), *SCAN.values(), "to_bf16", "require"})
POINTERS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i64": "i64", "i32": "i32", "i16": "i16",
            "i8": "i8", "u8": "u8", "b1": "i1"}
HEAD = """import torch
import triton
import triton.language as tl

from sot.backends.triton import runtime
"""


@dataclasses.dataclass(frozen=True)
class Module:
    text: str
    constants: tuple[Any, ...]


def module(program: Program, title: str, interpreted: bool) -> Module:
    return ModuleWriter(program, title, interpreted).module()


class ModuleWriter:
    def __init__(self, program: Program, title: str, interpreted: bool) -> None:
        self.program, self.title, self.interpreted = program, title, interpreted
        self.objects: list[Any] = []
        self.kernels: dict[str, str] = {}      # the name of each kernel by its body, so that equal ones are one
        self.texts: list[str] = []
        self.signatures: dict[str, tuple[Kernel, Blocks]] = {}
        self.last_use = self._last_uses()

    def module(self) -> Module:
        body = list(self._run())
        body = ["    " + line for line in body]
        functions = [name for name in FUNCTIONS if any(re.search(rf"(?<![.\w]){name}\(", text) for text in self.texts)]
        head = [f'"""{self.title}"""', HEAD.rstrip()]
        head += [f"from sot.backends.triton.device import {', '.join(functions)}"] if functions else []
        text = "\n".join([*head, "", *("\n" + t + "\n" for t in self.texts),
                          *self._signatures(), "", "", "def run(inputs, constants):", *body]) + "\n"
        return Module(text, (*self.program.constants.values(), *self.objects))

    def _signatures(self) -> Iterator[str]:
        yield "# What each kernel is compiled for: its buffers, its block sizes, and the compiler's options."
        yield "SIGNATURES = {"
        for name, (kernel, blocks) in self.signatures.items():
            types = ", ".join(f'"{n}": "*{POINTERS[m.dtype]}"' for n, m in kernel.buffers.items())
            yield f"    {name}: ({{{types}}}, {sizes_of(kernel, blocks)}, {options_of(kernel, blocks)}),"
        yield "}"

    # ---- run
    def _run(self) -> Iterator[str]:
        names = [*self.program.inputs]
        lines = [line for step in enumerate(self.program.steps) for line in self._step(*step)]
        constants = [*self.program.constants, *(f"object_{i}" for i in range(len(self.objects)))]
        if names:
            yield f"{', '.join(names)}, = inputs"
            yield "inputs.clear()"
        if constants:
            yield f"{', '.join(constants)}, = constants"
        devices = {b.device for b in self.program.buffers.values() if b.device.type == "cuda"}
        if devices:
            yield f"with torch.cuda.device({min(d.index or 0 for d in devices)}):"
            yield from ("    " + line for line in lines or ["pass"])
        else:
            yield from lines
        outputs = [self._argument(o) for o in self.program.outputs]
        yield f"return [{', '.join(outputs)}]"

    def _step(self, number: int, step: Step) -> Iterator[str]:
        yield from self._launch(step) if isinstance(step, Kernel) else self._call(step)
        if gone := self.last_use.get(number):
            yield f"del {', '.join(gone)}"

    def _launch(self, kernel: Kernel) -> Iterator[str]:
        for name in kernel.buffers:
            if name in kernel.written() - kernel.changed() and name not in self.program.inputs:
                yield f"{name} = {allocation(self.program.buffers[name])}"
        blocks = chosen(kernel, self.interpreted)
        settings = {**sizes_of(kernel, blocks), **options_of(kernel, blocks)}
        given = ", ".join([*kernel.buffers, *(f"{k}={v}" for k, v in settings.items())])
        yield f"{self._kernel(kernel, blocks)}[({blocks.grid(kernel)},)]({given})"

    def _kernel(self, kernel: Kernel, blocks: Blocks) -> str:
        """The name of the function; kernels that differ in the names of buffers only share one."""
        plain = canonical(kernel)
        key = source(plain, blocks)
        if key not in self.kernels:
            name = self._fresh(title_of(kernel))
            self.kernels[key] = name
            self.signatures[name] = (plain, blocks)
            self.texts.append(source(dataclasses.replace(plain, name=name), blocks).rstrip())
        return self.kernels[key]

    def _fresh(self, name: str) -> str:
        return f"{name}_{len(self.texts)}"

    def _call(self, step: Extern) -> Iterator[str]:
        args = [self._argument(a) for a in step.args]
        args += [f"{k}={self._argument(v)}" for k, v in step.kwargs.items()]
        call = f"{self._callee(step.target)}({', '.join(args)})"
        if step.note:
            yield f"# {step.note}"
        if not step.many:
            name = step.outputs[0]
            yield f"{name} = {call}" if name else call
        else:
            yield f"{', '.join(name or '_' for name in step.outputs)}, = {call}"
        if not is_view(step):
            for name in step.written():
                yield from self._checked(self.program.buffers[name])

    def _checked(self, buffer: Buffer) -> Iterator[str]:
        """Operators may lay out their results otherwise than their fake versions promised."""
        if len(buffer.shape) > 1 and buffer.strides:
            yield f"{buffer.name} = runtime.laid_out({buffer.name}, {buffer.strides})"

    def _callee(self, target: Any) -> str:
        if isinstance(target, torch._ops.OpOverload):
            return f"torch.ops.{target}"
        return self._object(target)

    def _object(self, value: Any) -> str:
        for i, known in enumerate(self.objects):
            if known is value:
                return f"object_{i}"
        self.objects.append(value)
        return f"object_{len(self.objects) - 1}"

    def _argument(self, value: Any) -> str:
        match value:
            case View():
                return self._view(value)
            case list():
                return f"[{', '.join(map(self._argument, value))}]"
            case tuple():
                return f"({''.join(self._argument(v) + ', ' for v in value)})"
            case bool() | int() | str() | None | torch.dtype() | torch.layout() | torch.memory_format():
                return str(value) if not isinstance(value, str) else repr(value)
            case float():
                return repr(value) if value - value == 0 else f'float("{value}")'
            case complex():
                return repr(value)
            case torch.device():
                return f'torch.device("{value}")'
        return self._object(value)

    def _view(self, view: View) -> str:
        buffer = self.program.buffers[view.buffer]
        if view == buffer.view():
            return view.buffer
        return f"runtime.view({view.buffer}, {view.shape}, {view.strides}, {view.offset})"

    # ---- lifetimes
    def _last_uses(self) -> dict[int, list[str]]:
        """Which buffers are not needed any more after a step."""
        kept = self.program.kept() - frozenset(self.program.inputs) - self.program.constants.keys()
        kept |= {v.buffer for v in _views_of(self.program.outputs)}
        last: dict[str, int] = {}
        for i, step in enumerate(self.program.steps):
            for name in (*sorted(step.read()), *sorted(step.written())):
                last[name] = i
        gone: dict[int, list[str]] = {}
        for name, i in last.items():
            if name not in kept and name not in self.program.constants:
                gone.setdefault(i, []).append(name)
        return gone


def _views_of(outputs: tuple) -> Iterator[View]:
    return (o for o in outputs if isinstance(o, View))


def canonical(kernel: Kernel) -> Kernel:
    """The same kernel with buffers named in0, in1, ... and out0, out1, ... in order."""
    names: dict[str, str] = {}
    written = kernel.written()
    counts = {"in": 0, "out": 0}
    for name in kernel.buffers:
        side = "out" if name in written else "in"
        names[name] = f"{side}{counts[side]}"
        counts[side] += 1
    return dataclasses.replace(
        kernel, name="kernel",
        body=tuple(dataclasses.replace(s, buffer=names.get(s.buffer, "")) for s in kernel.body),
        stores=tuple(dataclasses.replace(s, buffer=names[s.buffer]) for s in kernel.stores),
        buffers={names[n]: m for n, m in kernel.buffers.items()})


def sizes_of(kernel: Kernel, blocks: Blocks) -> dict[str, int]:
    return {"ROWS": blocks.rows} | ({"COLUMNS": blocks.columns} if kernel.reduced else {})


def options_of(kernel: Kernel, blocks: Blocks) -> dict[str, Any]:
    """For the compiler. Positions are only checked in a debug build, whose checks of overflow are not wanted."""
    checked = {"debug": True, "sanitize_overflow": False}
    return {"num_warps": blocks.warps} | (checked if any(s.op == "inside" for s in kernel.body) else {})


def title_of(kernel: Kernel) -> str:
    """A short name: what the kernel does that is not moving or adding."""
    telling = ["max", "sum", "prod", "min", "exp", "erf", "tanh", "log", "rsqrt", "sqrt", "sin", "pow"]
    ops = {s.op for s in kernel.body}
    found = [op for op in telling if op in ops][:3]
    return "_".join(["reduce" if kernel.reduced else "map", *found])


def allocation(buffer: Buffer) -> str:
    where = f'dtype={buffer.dtype}, device="{buffer.device}"'
    return f"torch.empty_strided({buffer.shape}, {buffer.strides}, {where})"
