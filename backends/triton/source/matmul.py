"""Matrix products fused with the elementwise kernel that follows, where that was measured to be faster.

Otherwise cuBLAS computes the product, and the following kernel reads it back from memory. ``fused`` makes one
``Matmul``
step of both, from a template: tiles of the result are summed in f32, rounded like the product, and passed to the
statements of the following kernel. ``choose`` decides between the two forms, and on the tiles.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch

from sot.backends.triton.source.expressions import TYPES
from sot.backends.triton.source.kernel_source import Blocks, Writer, axes, is_wide
from sot.graph.kernels import index as ix
from sot.graph.kernels.ir import Kernel, Stmt
from sot.graph.kernels.ops import NAMES
from sot.graph.kernels.program import Extern, Program, View

aten = torch.ops.aten
TARGETS = (aten.mm.default, aten.addmm.default)
TYPES_OF_PRODUCTS = ("f32", "f16", "bf16")


@dataclasses.dataclass(frozen=True)
class Tiles:
    """The tile sizes: ``m`` by ``n`` of the result, summed ``k`` at a time; the number of warps, and of loads in
    flight.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int


CANDIDATES = (Tiles(64, 64, 32, 4, 3), Tiles(128, 64, 32, 4, 3), Tiles(64, 128, 32, 4, 3), Tiles(128, 128, 32, 8, 3),
              Tiles(128, 128, 64, 8, 3), Tiles(128, 256, 32, 8, 3), Tiles(32, 64, 64, 4, 4))


@dataclasses.dataclass(frozen=True)
class Matmul(Extern):
    """A product and the kernel that reads it. ``args`` are all views that are read: left, right, bias, and further
    ones.

    ``product`` is the buffer that is no longer needed.
    """

    kernel: Kernel = dataclasses.field(kw_only=True)
    product: str = dataclasses.field(kw_only=True)
    tiles: Tiles = dataclasses.field(kw_only=True)

    @property
    def factors(self) -> tuple[View, View, View | None]:
        """Left, right, and the term added to their product."""
        views = self.args[0]
        return (views[1], views[2], views[0]) if self.target is aten.addmm.default else (views[0], views[1], None)

    @property
    def sizes(self) -> tuple[int, int, int]:
        left, right, _ = self.factors
        return left.shape[0], right.shape[1], left.shape[1]

    def grid(self) -> int:
        m, n, _ = self.sizes
        return -(-m // self.tiles.m) * -(-n // self.tiles.n)

    def parameters(self) -> dict[str, str]:
        """The names of the buffers in the kernel."""
        read = dict.fromkeys([*(v.buffer for v in self.factors if v is not None),
                              *(name for name in self.kernel.buffers if name != self.product)])
        written = self.kernel.written()
        inputs = [name for name in read if name not in written]
        return {**{name: f"in{i}" for i, name in enumerate(inputs)},
                **{name: f"out{i}" for i, name in enumerate(n for n in read if n in written)}}


Choose = Callable[[Matmul], Tiles | None]


def fused(program: Program, choose: Choose) -> Program:
    """The program with products fused with what follows them, where ``choose`` returns tiles for that.

    Programs that change inputs are left as they are: a product would be computed later than before, next to stores to
    its operands.
    """
    steps = list(program.steps)
    if any(name in program.inputs for step in steps for name in step.written()):
        return program
    for step in program.steps:
        found = candidate(program, step)
        if found is None:
            continue
        tiles = choose(found)
        if tiles is not None:
            at = steps.index(found.kernel)
            steps[at] = dataclasses.replace(found, tiles=tiles)
            steps.remove(step)
    return dataclasses.replace(program, steps=steps)


def candidate(program: Program, step: object) -> Matmul | None:
    """The step that a product and its only reader would become, if the reader is elementwise."""
    if type(step) is not Extern or step.target not in TARGETS or step.kwargs or not all(
            isinstance(a, View) for a in step.args):
        return None
    product = program.buffers[str(step.outputs[0])]
    readers = [s for s in program.steps if product.name in s.read()]
    if product.name in program.kept() or len(readers) != 1 or not isinstance(readers[0], Kernel):
        return None
    kernel = readers[0]
    dtypes = {NAMES.get(v.dtype) for v in step.args}
    if len(dtypes) != 1 or not dtypes <= set(TYPES_OF_PRODUCTS) or not is_elementwise(kernel, product.name):
        return None
    others = [program.buffers[n].view() for n in kernel.buffers if n != product.name and n not in kernel.written()]
    written = tuple(s.buffer for s in kernel.stores)
    return Matmul(step.target, ([*step.args, *others],), {}, written, True, step.note, kernel=kernel,
                  product=product.name, tiles=CANDIDATES[0])


def is_elementwise(kernel: Kernel, product: str) -> bool:
    """Whether the kernel has a row for each element of the product, in order, and reads it only there."""
    if kernel.reduced or kernel.changed() or kernel.row_count != kernel.buffers[product].size:
        return False
    flat, stride = ix.index(0), 1
    for name, size in reversed(kernel.rows):
        flat, stride = flat + ix.index(name) * stride, stride * size
    return all(load.index == flat and not load.args for load in kernel.loads() if load.buffer == product)


# ---- the template ----------------------------------------------------------------------------------------
def source(step: Matmul, name: str) -> str:
    """The kernel of a step."""
    return "\n".join(MatmulWriter(step, name).lines())


class MatmulWriter(Writer):
    def __init__(self, step: Matmul, name: str) -> None:
        self.step, self.names = step, step.parameters()
        kernel = dataclasses.replace(
            step.kernel, name=name,
            body=tuple(dataclasses.replace(s, buffer=self.names.get(s.buffer, s.buffer)) for s in step.kernel.body),
            stores=tuple(dataclasses.replace(s, buffer=self.names[s.buffer]) for s in step.kernel.stores),
            buffers={self.names.get(n, n): memory for n, memory in step.kernel.buffers.items()})
        super().__init__(kernel, Blocks(0, 0, False, step.tiles.warps), (), False, is_wide(kernel))

    def lines(self) -> Iterator[str]:
        sizes = ", ".join(f"{size}: tl.constexpr" for size in ("M", "N", "K"))
        yield "@triton.jit"
        yield f"def {self.kernel.name}({', '.join(self.names.values())}, {sizes}):"
        body = [*self._product(), *axes("p", self.kernel.rows, self._used()),
                *self._straight(self.kernel.body, self.kernel.stores)]
        yield from ("    " + line for line in body)

    def _product(self) -> Iterator[str]:
        (left, right, bias), (m, n, k) = self.step.factors, self.step.sizes
        across = -(-n // self.step.tiles.n)
        if self.step.note:
            yield f"# {self.step.note}"
        yield f"m = (tl.program_id(0) // {across}){self.wide} * M + tl.arange(0, M)[:, None]"
        yield f"n = (tl.program_id(0) % {across}){self.wide} * N + tl.arange(0, N)[None, :]"
        yield "total = tl.zeros([M, N], tl.float32)"
        yield f"for start in range(0, {k}, K):"
        yield "    k = start + tl.arange(0, K)"
        yield f"    left = tl.load({self._at(left, 'm', 'k[None, :]')}, (m < {m}) & (k[None, :] < {k}), other=0)"
        yield f"    right = tl.load({self._at(right, 'k[:, None]', 'n')}, (k[:, None] < {k}) & (n < {n}), other=0)"
        both = "factor(left), factor(right)" if left.dtype is torch.bfloat16 else "left, right"
        yield f'    total = tl.dot({both}, total, input_precision="{precision()}")'
        if bias is not None:
            row, column = (["m", "n"] if len(bias.shape) == 2 else ["", "n"])
            yield f"total += tl.load({self._at(bias, row, column)}, (m < {m}) & (n < {n}), other=0).to(tl.float32)"
        yield f"p = m * {n} + n"
        yield f"p_in = (m < {m}) & (n < {n})"

    def _at(self, view: View, row: str, column: str) -> str:
        strides = (0, *view.strides)[-2:]
        parts = [f"{axis} * {stride}" for axis, stride in zip((row, column), strides, strict=True) if axis]
        return f"{self.names[view.buffer]} + ({' + '.join([*parts, *[str(view.offset)] * bool(view.offset)])})"

    def _expression(self, stmt: Stmt) -> str:
        if stmt.op == "load" and stmt.buffer == self.step.product:      # rounded as in memory
            return "to_bf16(total)" if stmt.dtype == "bf16" else f"total.to({TYPES[stmt.dtype]})"
        return super()._expression(stmt)

    def _one(self) -> str:
        return "[1, 1]"


def precision() -> str:
    """The precision of f32 products: exact, unless the program allows TF32."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
