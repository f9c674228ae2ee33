"""The Python module of a program: its kernels, and ``run``, which allocates, launches and calls.

``run(inputs, constants)`` takes a list of the inputs, which it empties so that their memory can be freed, and the
objects that the text cannot contain: constant tensors and objects, in the order of ``Module.constants``.
"""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from sot.backends.triton.source.blocks import chosen
from sot.backends.triton.source.expressions import DEVICE_FUNCTIONS, FURTHER_FUNCTIONS, REDUCE, SCAN, SUM_ROWS
from sot.backends.triton.source.kernel_source import (
    INT32_MAX,
    Blocks,
    group_source,
    is_wide,
    source,
    without_comments,
)
from sot.backends.triton.source.matmul import Matmul
from sot.backends.triton.source.matmul import source as matmul_source
from sot.backends.triton.source.sizes import fits
from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.memory import planned
from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.program import Buffer, Extern, Group, Program, Step, View
from sot.graph.kernels.schedule import is_view
from sot.graph.kernels.sized import with_arguments
from sot.graph.kernels.sizes import Facts, Number, Real, Size

FUNCTIONS = sorted({*DEVICE_FUNCTIONS, *FURTHER_FUNCTIONS, *REDUCE.values(), *SCAN.values(), SUM_ROWS,
                    "to_bf16", "factor", "require"})
POINTERS = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i64": "i64", "i32": "i32", "i16": "i16",
            "i8": "i8", "u8": "u8", "b1": "i1"}
HEAD = """import torch
import triton
import triton.language as tl

from sot.backends.triton import runtime
"""
LAUNCHER = "from sot.backends.triton.launching import Launcher"
Choose = Callable[[Kernel], Blocks]


@dataclasses.dataclass(frozen=True)
class Sized:
    """A kernel whose varying sizes are ``arguments``. ``wide``: its positions need 64 bits."""

    kernel: Kernel
    arguments: dict[str, Number]
    wide: bool

    @classmethod
    def of(cls, kernel: Kernel) -> Sized:
        return cls(*with_arguments(canonical(kernel)), is_wide(kernel))


@dataclasses.dataclass(frozen=True)
class Module:
    text: str
    constants: tuple[Any, ...]


def module(program: Program, title: str, interpreted: bool, facts: Facts | None = None,
           choose: Choose | None = None) -> Module:
    """The text of a program.

    Arguments:
        interpreted: will Triton's interpreter run it?
        facts: what is known about the sizes that vary, within whose context this is called.
        choose: the block sizes of each kernel; without it those of ``blocks.chosen``.
    """
    return ModuleWriter(program, title, interpreted, facts, choose).module()


class ModuleWriter:
    def __init__(self, program: Program, title: str, interpreted: bool, facts: Facts | None, choose: Choose | None,
                 ) -> None:
        self.program, self.title, self.interpreted, self.facts = program, title, interpreted, facts
        self.choose = choose or (lambda kernel: chosen(kernel, interpreted))
        self.objects: list[Any] = []
        # the name of each kernel by its body, so that equal kernels share a function
        self.kernels: dict[str, str] = {}
        self.texts: list[str] = []
        self.launchers: dict[str, str] = {}    # the name of each launcher by its text
        self.operators: dict[str, str] = {}    # the name of each operator that is called
        self.plan = planned(program)
        self.declared: set[str] = set()     # inputs whose change the text has declared
        self.last_use = self._last_uses()

    def module(self) -> Module:
        body = list(self._run())
        body = ["    " + line for line in body]
        functions = [name for name in FUNCTIONS if any(re.search(rf"(?<![.\w]){name}\(", text) for text in self.texts)]
        head = [f'"""{self.title}"""', HEAD.rstrip()]
        head += [f"from sot.backends.triton.device import {', '.join(functions)}"] if functions else []
        head += [LAUNCHER] if self.launchers else []
        text = "\n".join(body)
        called = [name for name in ("empty_cpu", "empty_cuda", "reinterpreted") if f"{name}(" in text]
        head += [f"from sot.torch_compat.inductor.allocation import {', '.join(called)}"] if called else []
        text = "\n".join([*head, "", *("\n" + t + "\n" for t in self.texts),
                          *self._launchers(), *(f"{name} = {target}" for target, name in self.operators.items()),
                          *self._fits(), "", "", "def run(inputs, constants):", *body]) + "\n"
        return Module(text, (*self.program.constants.values(), *self.objects))

    def _launchers(self) -> Iterator[str]:
        if self.launchers:
            yield "# How each kernel is compiled: types of its arguments, block sizes, and the compiler's options."
        yield from (f"{name} = {text}" for text, name in self.launchers.items())

    def _fits(self) -> Iterator[str]:
        if self.facts is not None:
            yield from ("", "", *fits(self.program.symbols, self.facts))

    # ---- run
    def _run(self) -> Iterator[str]:
        names = [*self.program.inputs]
        lines = list(self._steps())
        constants = [*self.program.constants, *(f"object_{i}" for i in range(len(self.objects)))]
        if names:
            yield f"{', '.join(names)}, = inputs"
            yield "inputs.clear()"
        if constants:
            yield f"{', '.join(constants)}, = constants"
        yield from (f"{name} = {place}" for name, place in self.program.symbols.items() if name != place)
        yield from lines
        outputs = [new_view(o) if i in self.program.apart else self._argument(o, self._view)
                   for i, o in enumerate(self.program.outputs)]
        yield f"return [{', '.join(outputs)}]"

    def _steps(self) -> Iterator[str]:
        """The steps in order. A change of the device also changes the current device, on whose stream kernels run."""
        current: int | None = None
        for number, step in enumerate(self.program.steps):
            device = self._device(step)
            if device is not None and device != current:
                yield f"with torch.cuda.device({device}):" if current is None else f"torch.cuda.set_device({device})"
                current = device
            yield from ("    " * (current is not None) + line for line in self._step(number, step))

    def _device(self, step: Step) -> int | None:
        """The GPU that a kernel runs on."""
        if isinstance(step, Matmul):
            step = step.kernel
        if isinstance(step, Extern):
            return None
        found = {self.program.buffers[name].device for name in step.buffers}
        if len(found) > 1:
            raise NotImplementedError(f"a kernel is about tensors on {', '.join(sorted(map(str, found)))}")
        device = found.pop()
        return device.index or 0 if device.type == "cuda" else None

    def _step(self, number: int, step: Step) -> Iterator[str]:
        if changing := [n for n in self.program.inputs if n in step.written() - self.declared]:
            self.declared.update(changing)
            yield f"runtime.changing({', '.join(changing)})"
        if isinstance(step, Matmul):
            yield from self._launch_matmul(step)
        elif isinstance(step, Extern):
            yield from self._call(step)
        else:
            yield from self._launch(step) if isinstance(step, Kernel) else self._launch_group(step)
        if gone := self.last_use.get(number):
            yield f"del {', '.join(gone)}"

    def _memory(self, step: Kernel | Group) -> Iterator[str]:
        """Memory for the buffers that a step fills: reused or new."""
        for name in step.buffers:
            if name in step.written() - step.changed() and name not in self.program.inputs:
                old = self.plan.reused.get(name)
                yield f"{name} = {old or allocation(self.program.buffers[name])}"

    def _launch_group(self, group: Group) -> Iterator[str]:
        members = [Sized.of(kernel) for kernel in group.kernels]
        if any(sized.arguments for sized in members):
            for kernel in group.kernels:
                yield from self._launch(kernel)
            return
        yield from self._memory(group)
        parameters = {name: f"b{i}" for i, name in enumerate(group.buffers)}
        calls, warps = [], 1
        for kernel, sized in zip(group.kernels, members, strict=True):
            blocks = self.choose(kernel)
            function = self._kernel(kernel, sized, blocks, member=True)
            calls.append((function, [parameters[n] for n in kernel.buffers], blocks, blocks.grid(kernel)))
            warps = max(warps, blocks.warps)
        options = options_of(group.kernels[0], dataclasses.replace(calls[0][2], warps=warps))
        name = self._text(group_source("group", calls, parameters.values()), "group")
        types = {parameters[n]: f"*{POINTERS[m.dtype]}" for n, m in group.buffers.items()}
        launcher = self._launcher_of(name, types, {}, options, self._device(group))
        yield f"{launcher}({sum(count for *_, count in calls)}, {', '.join(group.buffers)})"

    def _launch_matmul(self, step: Matmul) -> Iterator[str]:
        for buffer in step.kernel.written():
            yield f"{buffer} = {allocation(self.program.buffers[buffer])}"
        names = step.parameters()
        types = {n: f"*{POINTERS[NAMES[self.program.buffers[b].dtype]]}" for b, n in names.items()}
        name = self._text(matmul_source(step, "matmul"), "matmul")
        tiles = {"M": step.tiles.m, "N": step.tiles.n, "K": step.tiles.k}
        options = {"num_warps": step.tiles.warps, "num_stages": step.tiles.stages}
        launcher = self._launcher_of(name, types, tiles, options, self._device(step))
        yield f"{launcher}({step.grid()}, {', '.join(names)})"

    def _launch(self, kernel: Kernel) -> Iterator[str]:
        yield from self._memory(kernel)
        sized, blocks = Sized.of(kernel), self.choose(kernel)
        given = ", ".join([*kernel.buffers, *map(str, sized.arguments.values())])
        yield f"{self._launcher(kernel, sized, blocks)}({blocks.grid(kernel)}, {given})"

    def _launcher(self, kernel: Kernel, sized: Sized, blocks: Blocks) -> str:
        """The name of the launcher of a kernel with these types, block sizes and hints."""
        name = self._kernel(kernel, sized, blocks)
        types = {n: f"*{POINTERS[m.dtype]}" for n, m in sized.kernel.buffers.items()}
        types |= {n: "i64" if sized.wide or v > INT32_MAX else "i32" for n, v in sized.arguments.items()}
        return self._launcher_of(name, types, sizes_of(kernel, blocks), options_of(kernel, blocks),
                                 self._device(kernel))

    def _launcher_of(self, name: str, types: dict[str, str], constants: dict[str, int], options: dict[str, Any],
                     device: int | None) -> str:
        parts = [name, str(types), str(constants), str(options)]
        parts += [f"device={device}"] if device else []
        text = f"Launcher({', '.join(parts)})".replace("'", '"')
        return self.launchers.setdefault(text, f"launch_{name}{'x' * self._launched(name)}")

    def _launched(self, name: str) -> int:
        """The number of launchers of a kernel."""
        return sum(text.startswith(f"Launcher({name},") for text in self.launchers)

    def _kernel(self, kernel: Kernel, sized: Sized, blocks: Blocks, member: bool = False) -> str:
        """The name of the function. Kernels that differ only in names of buffers share one."""
        return self._text(source(sized.kernel, blocks, sized.arguments, member, sized.wide).rstrip(), title_of(kernel))

    def _text(self, text: str, title: str) -> str:
        """The name of a function with this text. Its own name and comments do not count."""
        key = without_comments(text)
        if key not in self.kernels:
            self.kernels[key] = self._fresh(title)
            self.texts.append(re.sub(r"(?m)^def \w+", f"def {self.kernels[key]}", text, count=1))
        return self.kernels[key]

    def _fresh(self, name: str) -> str:
        return f"{name}_{len(self.texts)}"

    def _call(self, step: Extern) -> Iterator[str]:
        view = self._view if is_view(step) else self._bare_view
        args = [self._argument(a, view) for a in step.args]
        args += [f"{k}={self._argument(v, view)}" for k, v in step.kwargs.items()]
        old = self.plan.reused.get(step.outputs[0] or "") if step.outputs else None
        if old:
            args.append(f"out={old}")
        call = f"{self._callee(step.target, 'out' if old else None)}({', '.join(args)})"
        if step.note:
            yield f"# {step.note}"
        if step.into:
            yield call
        elif not step.many:
            name = step.outputs[0]
            yield f"{name} = {call}" if name else call
        else:
            yield f"{', '.join(name or '_' for name in step.outputs)}, = {call}"
        if not is_view(step) and not step.into:
            for name in step.written():
                yield from checked(self.program.buffers[name])

    def _callee(self, target: Any, overload: str | None = None) -> str:
        """The name of an operator, or of another overload of it."""
        if isinstance(target, torch._ops.OpOverload):
            packet = str(target).rpartition(".")[0]
            name = f"{packet}.{overload or target._overloadname or 'default'}"
            return self.operators.setdefault(f"torch.ops.{name}", f"torch_ops_{name}".replace(".", "_"))
        return self._object(target)

    def _object(self, value: Any) -> str:
        for i, known in enumerate(self.objects):
            if known is value:
                return f"object_{i}"
        self.objects.append(value)
        return f"object_{len(self.objects) - 1}"

    def _argument(self, value: Any, view: Callable[[View], str]) -> str:
        match value:
            case View():
                return view(value)
            case list():
                return f"[{', '.join(self._argument(v, view) for v in value)}]"
            case tuple():
                return f"({''.join(self._argument(v, view) + ', ' for v in value)})"
            case Size() | Real():
                return str(value)
            case bool() | int() | str() | None | torch.dtype() | torch.layout() | torch.memory_format():
                return str(value) if not isinstance(value, str) else repr(value)
            case float():
                return repr(value) if value - value == 0 else f'float("{value}")'
            case complex():
                return f"complex({self._argument(value.real, view)}, {self._argument(value.imag, view)})"
            case torch.device():
                return f'torch.device("{value}")'
        return self._object(value)

    def _view(self, view: View) -> str:
        buffer = self.program.buffers[view.buffer]
        return view.buffer if view == buffer.view() else new_view(view)

    def _bare_view(self, view: View) -> str:
        """A view that does not outlive the call that reads it, so torch need not know what it is a view of."""
        return self._view(view).replace("runtime.view", "reinterpreted", 1)

    # ---- lifetimes
    def _last_uses(self) -> dict[int, list[str]]:
        """The buffers that are no longer needed after each step."""
        kept = self.program.kept() - frozenset(self.program.inputs) - self.program.constants.keys()
        kept |= {v.buffer for v in _views_of(self.program.outputs)}
        last: dict[str, int] = {}
        made: dict[str, int] = {}       # for memory that is reused under another name
        for i, step in enumerate(self.program.steps):
            for name in (*sorted(step.read()), *sorted(step.written())):
                last[name] = i
                if name in self.plan.reused and name in step.written():
                    last[self.plan.reused[name]] = max(last[self.plan.reused[name]], made.setdefault(name, i))
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
    """Options for the compiler. Positions are checked only in a debug build, without its overflow checks."""
    checked = {"debug": True, "sanitize_overflow": False}
    return {"num_warps": blocks.warps} | (checked if any(s.op == "inside" for s in kernel.body) else {})


def title_of(kernel: Kernel) -> str:
    """A short name, from the operations of the kernel other than moves and sums."""
    telling = ["max", "sum", "prod", "min", "exp", "erf", "tanh", "log", "rsqrt", "sqrt", "sin", "pow"]
    ops = {s.op for s in kernel.body}
    found = [op for op in telling if op in ops][:3]
    return "_".join(["map" if not kernel.reduced else "tile" if kernel.is_tiled else "reduce", *found])


def checked(buffer: Buffer) -> Iterator[str]:
    """Operators may return results with another layout than that of their fake results."""
    if buffer.strides not in ((), (1,)):
        yield f"{buffer.name} = runtime.laid_out({buffer.name}, {buffer.strides})"


def new_view(view: View) -> str:
    return f"runtime.view({view.buffer}, {view.shape}, {view.strides}, {view.offset})"


def allocation(buffer: Buffer) -> str:
    """New memory for a buffer on the current device."""
    if buffer.device.type in ("cpu", "cuda"):
        return f"empty_{buffer.device.type}({buffer.shape}, {buffer.strides}, {buffer.dtype})"
    where = f'dtype={buffer.dtype}, device="{buffer.device}"'
    return f"torch.empty_strided({buffer.shape}, {buffer.strides}, {where})"
