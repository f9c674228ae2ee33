"""Compile with the Triton backend, run in Triton's interpreter, and compare with eager.

The interpreter is switched on by ``conftest.py``, before anything imports Triton.
"""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile

os.environ["SOT_CACHE_DIR"] = tempfile.mkdtemp(prefix="sot-tests-")     # nothing of other runs is found

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

pytest.importorskip("triton", reason="the package triton is not installed")

import triton
from conditioning import check_against_float64

import sot
from sot.backends.triton.compiler import Compiled, Compiler
from sot.backends.triton.runtime import laid_out
from sot.backends.triton.variants import Symbolic
from sot.graph.kernels import ir, reference
from sot.graph.kernels.ir import Kernel
from sot.graph.kernels.program import Extern, Group, Program, View
from sot.graph.kernels.sized import at_values

atexit.register(shutil.rmtree, os.environ["SOT_CACHE_DIR"], ignore_errors=True)


class Kernels(Compiler):
    """The Triton backend in the interpreter; what goes wrong raises. Every kernel it makes is checked."""

    def __init__(self) -> None:
        if isinstance(triton.language.sum, triton.JITFunction):
            raise RuntimeError("Triton's library is not interpreted: set TRITON_INTERPRET=1 before anything imports it")
        super().__init__("cpu", interpreted=True, strict=True)

    def compile_or_raise(self, graph: torch.fx.GraphModule, title: str, symbolic: Symbolic | None = None,
                         ) -> Callable[[list[Any]], Any]:
        run = super().compile_or_raise(graph, title, symbolic)
        for kernel in kernels(self.made[-1].program or NOTHING):
            if symbolic is not None:
                kernel = at_values(kernel, symbolic.facts.values)
            ir.verify(kernel)
            assert str(ir.parse(str(kernel))) == str(kernel)
        return run


NOTHING = Program([], {}, {}, [], ())


def kernels(program: Program) -> list[Kernel]:
    return program.kernels()


def leaves(value: Any) -> list[torch.Tensor]:
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def copied(args: Any) -> Any:
    """The same tensors with memory of their own, laid out the same."""
    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        fresh = value.detach().clone(memory_format=torch.preserve_format)
        return fresh.requires_grad_(value.requires_grad)
    return torch.utils._pytree.tree_map(copy, args)


def outcome(fn: Callable[..., Any], args: tuple, wanted: list[torch.Tensor]) -> tuple[Any, Any]:
    """The result, and the gradients of ``wanted``."""
    torch.manual_seed(0)
    result = fn(*args)
    outputs = [t for t in leaves(result) if t.requires_grad]
    if not outputs or not wanted:
        return result, None
    loss = sum(((t.abs() if t.is_complex() else t) * 0.5).square().sum() for t in outputs)
    return result, torch.autograd.grad(loss, wanted, allow_unused=True)


def check_compiled(fn: Callable[..., Any], *args: Any, parameters: Any = (), exactly: bool = False,
                   **tolerance: Any) -> list[Compiled]:
    """``fn(*args)`` and its gradients with kernels are eager's; what was compiled.

    Arguments:
        parameters: further tensors whose gradients are compared.
        exactly: each of the two is compared with float64, as exactly as the function is conditioned; it computes all
            from its arguments, draws nothing and changes nothing. Otherwise they are compared with each other.
    """
    made = Kernels()
    parameters = list(parameters)
    tolerance = tolerance or {"rtol": 1e-4, "atol": 1e-5}
    mine = copied(args)
    expected = outcome(fn, args, [t for t in (*leaves(args), *parameters) if t.requires_grad])
    got = outcome(sot.to_static(fn, backend=made), mine, [t for t in (*leaves(mine), *parameters) if t.requires_grad])
    if exactly:
        check_against_float64(lambda a: outcome(fn, a, [t for t in leaves(a) if t.requires_grad]), args,
                              [expected, got])
    else:
        torch.testing.assert_close(got, expected, equal_nan=True, **tolerance)
    for ours, eager in zip(leaves(got[0]), leaves(expected[0]), strict=True):
        assert ours.stride() == eager.stride()
        assert ours.dtype == eager.dtype
    sot.reset()
    return made.made


def counts(made: list[Compiled]) -> list[tuple[int, int]]:
    """Kernels and calls of operators, of each graph."""
    return [(m.cost.kernels, m.cost.externs) for m in made]


# ---- the reference interpreter ----------------------------------------------------------------------------
def run_reference(program: Program, inputs: list[torch.Tensor]) -> list[Any]:
    """The program's results, with every kernel evaluated by the NumPy reference."""
    memory: dict[str, Any] = dict(zip(program.inputs, inputs, strict=True)) | program.constants
    for step in program.steps:
        if not isinstance(step, Extern):
            for kernel in step.kernels if isinstance(step, Group) else (step,):
                _run_kernel(kernel, program, memory)
        else:
            args, kwargs = torch.fx.node.map_aggregate((step.args, step.kwargs), lambda v: _tensor(v, memory, program))
            result = step.target(*args, **kwargs)
            if step.into:
                continue
            for name, value in zip(step.outputs, result if step.many else [result], strict=True):
                if name:
                    strides = program.buffers[name].strides
                    memory[name] = value if strides in ((), (1,)) else laid_out(value, strides)
    results = [_tensor(o, memory, program) for o in program.outputs]
    return [torch.ops.aten.alias(value) if i in program.apart else value for i, value in enumerate(results)]


def _tensor(value: Any, memory: dict[str, torch.Tensor], program: Program) -> Any:
    if not isinstance(value, View):
        return value
    base = memory[value.buffer]
    if value == program.buffers[value.buffer].view():
        return base     # an operator may return another size than that of its fake result, if nothing reads it
    return base.as_strided(value.shape, value.strides, base.storage_offset() + value.offset)


def _run_kernel(kernel: Kernel, program: Program, memory: dict[str, torch.Tensor]) -> None:
    flat: dict[str, np.ndarray] = {}
    for name, about in kernel.buffers.items():
        if name not in memory:
            buffer = program.buffers[name]
            memory[name] = torch.empty_strided(buffer.shape, buffer.strides, dtype=buffer.dtype)
        line = memory[name].detach().as_strided((about.size,), (1,))
        flat[name] = (line.float() if line.dtype is torch.bfloat16 else line).numpy().copy()
    reference.run(kernel, flat)
    for name in kernel.written():
        line = memory[name].as_strided((kernel.buffers[name].size,), (1,))
        line.copy_(torch.from_numpy(flat[name]))


def numbers(*shape: int, grad: bool = True) -> torch.Tensor:
    """Random numbers that are the same in each call with this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float32).requires_grad_(
        grad)
