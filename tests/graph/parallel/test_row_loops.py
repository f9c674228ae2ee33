"""Sums of columns in kernels that reduce rows: the same results, and memory is read once."""
from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, check_compiled, kernels, leaves, run_reference
from torch.fx.experimental.proxy_tensor import make_fx

import sot
from sot.backends.triton import runtime
from sot.backends.triton.source.blocks import chosen
from sot.backends.triton.source.module_source import module
from sot.backends.triton.tuning import candidates
from sot.graph.kernels import ir, reference
from sot.graph.kernels.ir import InvalidKernel, Kernel
from sot.graph.kernels.parallel import row_loops
from sot.graph.kernels.program import Buffer, Program
from sot.graph.kernels.schedule import cost, schedule
from sot.graph.lowering import lower
from sot.graph.rewrite import decompositions


@pytest.fixture
def few(monkeypatch):
    """Six programs are enough."""
    monkeypatch.setattr(row_loops.with_row_loops, "__defaults__", (6,))


def numbers(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)
    return made.requires_grad_(grad)


def program_of(f, *args: torch.Tensor) -> Program:
    graph = make_fx(lambda *a: leaves(f(*a)), decompositions.table(), tracing_mode="fake")(*args)
    return schedule(lower(graph, args[0].device.type))


def looped_of(program: Program) -> list[Kernel]:
    return [kernel for kernel in kernels(program) if kernel.loop]


def layer_norm(x, w, b):
    return F.layer_norm(x, w.shape, w, b)


def rms_norm(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def scaled_softmax(x, w):
    return x.softmax(-1) * w


NORMS = {"layer norm": (layer_norm, 2), "RMS norm": (rms_norm, 1), "softmax with a scale": (scaled_softmax, 1),
         "GELU of a layer norm": (lambda x, w, b: F.gelu(layer_norm(x, w, b)) * x, 2)}
SHAPES = [(96, 32), (97, 24), (3, 20, 40)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_all_gradients_of_a_norm_come_from_one_pass(name, shape, few):
    f, weights = NORMS[name]
    _, backward = check_compiled(f, numbers(*shape), *(numbers(shape[-1]) for _ in range(weights)))
    assert backward.cost.kernels == 2
    kernel, = looped_of(backward.program)
    assert kernel.loop >= 8 and kernel.row_count == np.prod(shape[:-1])
    assert sum(s.how == "sum" for s in kernel.stores) == weights


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["layer norm", "RMS norm"])
def test_other_types_are_summed_as_before(name, dtype, few):
    f, weights = NORMS[name]
    limit = 1e-9 if dtype is torch.float64 else 4e-2
    _, backward = check_compiled(f, numbers(97, 40, dtype=dtype), *(numbers(40, dtype=dtype) for _ in range(weights)),
                                 rtol=limit, atol=limit)
    kernel, = looped_of(backward.program)
    sums = [kernel.buffers[s.buffer].dtype for s in kernel.stores if s.how == "sum"]
    assert sums == ["f64" if dtype is torch.float64 else "f32"] * weights


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("rows", [1, 7])
def test_few_rows_have_no_loop(name, rows, few):
    f, weights = NORMS[name]
    for made in check_compiled(f, numbers(rows, 32), *(numbers(32) for _ in range(weights))):
        assert looped_of(made.program) == []


def test_the_limits_are_those_of_a_gpu():
    def loops(*shape: int) -> list[int]:
        return [k.loop for k in looped_of(program_of(lambda x: (x.softmax(-1), x.sum(0)),
                                                      torch.empty(*shape, device="meta")))]
    assert loops(8192, 4096) == [32] and loops(1 << 20, 64) == [4096] and loops(8190, 4000) == [32]
    assert loops(500, 4096) == [], "too few rows"
    assert loops(8192, 16384) == [], "too wide for registers"


def test_memory_is_read_once():
    x = torch.empty(8192, 4096, device="meta")
    program = program_of(lambda x: (x.softmax(-1), x.sum(0), (x * 2).sum(0)), x)
    assert [k.row_count for k in kernels(program)] == [8192, 4096]
    assert cost(program).bytes < 2.2 * x.nbytes


def test_the_reference_agrees_about_what_is_stored_for_the_columns_alone(few):
    """Nothing reads the softmax but its own sum, so that it is not stored."""
    x = numbers(97, 12, grad=False)
    program = program_of(lambda x: (x.softmax(-1).sum(0), x.amax(-1)), x)
    kernel, = looped_of(program)
    assert all(memory.size < x.numel() or name in program.inputs for name, memory in kernel.buffers.items())
    torch.testing.assert_close(run_reference(program, [x]), leaves((x.softmax(-1).sum(0), x.amax(-1))))


def test_a_bias_before_the_norm_is_summed_with_its_weight(few):
    """Its gradient is the sum of what the kernel stores, which a matrix product reads."""
    def f(x, matrix, bias, w, b):
        return layer_norm(F.linear(x, matrix, bias), w, b)
    _, backward = check_compiled(f, numbers(97, 20), numbers(16, 20), *(numbers(16) for _ in range(3)),
                                 rtol=1e-3, atol=1e-4)
    kernel, = looped_of(backward.program)
    assert sum(s.how == "sum" for s in kernel.stores) == 3


def test_columns_that_need_the_rows_by_way_of_a_call_stay_apart(few):
    def f(x, m):
        return ((y := x.softmax(-1)), (x * (y @ m)).sum(0))
    x, m = numbers(97, 12, grad=False), numbers(12, 12, grad=False)
    program = program_of(f, x, m)
    assert looped_of(program) == []
    torch.testing.assert_close(run_reference(program, [x, m]), leaves(f(x, m)))


def test_inputs_that_change(few):
    def f(x, w):
        total = x.sum(0)
        x.copy_(x.softmax(-1) * w)
        return total, x.sum(0)
    check_compiled(f, numbers(97, 12, grad=False), numbers(12, grad=False))


@pytest.mark.slow
def test_numbers_of_rows_that_vary(few):
    made = Kernels()
    run = sot.to_static(layer_norm, backend=made)
    w, b = numbers(16), numbers(16)
    for rows in (61, 96, 100, 128, 47, 2):
        x = numbers(rows, 16)
        got, expected = (torch.autograd.grad(f(x, w, b).sin().sum(), (x, w, b)) for f in (run, layer_norm))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    sot.reset()
    assert [m.title for m in made.made[2:]] == ["forward", "backward"], "one module for all after the first"
    assert looped_of(made.made[3].program)


# ---- the kernels themselves ----
TEXT = """
    kernel both over p0:{p} p1:3 by 4 | r0:2 r1:5
    buffer x f32 {n}
    buffer y f32 {p3}
    buffer z f32 {lines}
    v0:f32 = load x[30*p0 + 10*p1 + 5*r0 + r1]
    v1:f32 = max v0
    v2:f32 = mul v0 v1
    store y[3*p0 + p1] v1
    sum z[10*line + r1 + 5*r0] v2"""


def text(p: int) -> str:
    return TEXT.format(p=p, n=30 * p, p3=3 * p, lines=10 * -(-3 * p // 4))


@pytest.mark.parametrize("p", [1, 4, 7])
def test_a_program_has_a_loop_over_rows_of_several_axes(p, tmp_path):
    kernel = ir.parse(text(p))
    ir.verify(kernel)
    assert str(ir.parse(str(kernel))) == str(kernel)
    x = torch.randn(30 * p, generator=torch.Generator().manual_seed(p))
    of = x.view(-1, 10)
    expected = [of.amax(1), torch.stack([part.sum(0) for part in (of * of.amax(1, keepdim=True)).split(4)]).flatten()]
    memory = {"x": x.numpy(), "y": np.empty(3 * p, np.float32), "z": np.empty(kernel.buffers["z"].size, np.float32)}
    reference.run(kernel, memory)
    torch.testing.assert_close([torch.from_numpy(memory[n]) for n in "yz"], expected)
    torch.testing.assert_close(generated(kernel, x, tmp_path), expected)


def generated(kernel: Kernel, x: torch.Tensor, folder) -> list[torch.Tensor]:
    """The results of the kernel's source, for the block sizes that would be chosen."""
    buffers = {name: Buffer(name, torch.float32, (m.size,), (1,), torch.device("cpu"))
               for name, m in kernel.buffers.items()}
    program = Program(["x"], {}, buffers, [kernel], tuple(buffers[n].view() for n in "yz"))
    path = folder / "row_loops.py"
    path.write_text(module(program, "row_loops", interpreted=True).text)
    return runtime.load(path).run([x], ())


@pytest.mark.parametrize(("old", "new"), [("by 4 ", ""), ("10*line + ", ""), ("10*line + ", "10*line + p1 + "),
                                          ("line + r1", "line"), ("by 4", "by 3")])
def test_a_sum_is_a_line_of_all_columns(old, new):
    with pytest.raises(InvalidKernel):
        ir.verify(ir.parse(text(4).replace(old, new)))


def test_blocks_never_leave_the_rows_of_a_program():
    kernel = ir.parse(text(64))
    assert chosen(kernel).grid(kernel) == 48
    assert all(blocks.rows <= 4 for blocks in candidates(kernel))
