"""Products and what follows them in one kernel: right in the interpreter, and compiled for GPUs that are not here."""
from __future__ import annotations

import offline_kernels
import pytest
import torch
import torch.nn.functional as F
from compiling import Kernels, copied

import sot
from sot.backends.triton import runtime
from sot.backends.triton.source.matmul import CANDIDATES, Matmul, Tiles, candidate, fused
from sot.backends.triton.source.module_source import module
from sot.backends.triton.tuning import ProductTuner
from sot.graph.kernels.program import Program

SMALL = Tiles(16, 32, 16, 4, 2)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path / "cache"))


def program_of(fn, *args) -> Program:
    """What is made of a function, forward."""
    made = Kernels()
    sot.to_static(fn, backend=made)(*args)
    sot.reset()
    return made.made[0].program


def numbers(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def products(program: Program) -> list[Matmul]:
    return [s for s in program.steps if isinstance(s, Matmul)]


CASES = {
    "gelu": lambda x, w, b: F.gelu(x @ w),
    "bias and relu": lambda x, w, b: torch.relu(F.linear(x, w.t(), b) * 1.5),
    "bias, silu and residual": lambda x, w, b: F.silu(torch.addmm(b, x, w)) + b * 2,
    "transposed": lambda x, w, b: (x.t().contiguous().t() @ w.t().contiguous().t()).tanh(),
    "two results": lambda x, w, b: ((x @ w).sigmoid(), (x @ w).exp()),
}


def run(program: Program, args, folder) -> list:
    path = folder / "program.py"
    made = module(program, "test", interpreted=True)
    path.write_text(made.text)
    return runtime.load(path).run(list(copied(args)), made.constants)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_a_product_with_what_follows_is_eagers(name, dtype, tmp_path):
    args = numbers(20, 40, dtype=dtype), numbers(40, 50, dtype=dtype), numbers(50, dtype=dtype)
    plain = program_of(CASES[name], *args)
    whole = fused(plain, lambda step: SMALL)
    assert len(products(whole)) == 1 and len(whole.steps) == len(plain.steps) - 1
    by_shape = {a.shape: a for a in args}
    given = [by_shape[plain.buffers[name].shape] for name in plain.inputs]
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(run(whole, given, tmp_path), run(plain, given, tmp_path), **tolerance)


@pytest.mark.parametrize("f", [
    lambda x, w, b: (x @ w).softmax(-1), lambda x, w, b: ((x @ w).t() + 1).contiguous(), lambda x, w, b: x @ w,
    lambda x, w, b: ((y := x @ w) + 1, y), lambda x, w, b: (x.double() @ w.double()).exp(),
], ids=["reduction", "other order", "nothing", "the product is given out", "other type"])
def test_what_is_not_element_by_element_is_left_alone(f):
    program = program_of(f, numbers(20, 40), numbers(40, 50), numbers(50))
    assert products(fused(program, lambda step: SMALL)) == []


def test_it_is_for_the_measurer_to_say():
    program = program_of(CASES["gelu"], numbers(20, 40), numbers(40, 50), numbers(50))
    assert fused(program, lambda step: None) == program


def test_the_fastest_way_is_taken_and_kept():
    program = program_of(CASES["gelu"], numbers(20, 40), numbers(40, 50), numbers(50))
    asked = []

    def measure(fastest):
        def measured(program, step, tiles):
            asked.append(tiles)
            return 0.5 if tiles == fastest else 1.0
        return measured
    step = next(found for s in program.steps if (found := candidate(program, s)))
    assert ProductTuner(measure(CANDIDATES[2]), "a GPU")(program, step) == CANDIDATES[2]
    assert asked == [None, *CANDIDATES]
    assert ProductTuner(measure(None), "a GPU")(program, step) == CANDIDATES[2] and len(asked) == 1 + len(CANDIDATES)
    assert ProductTuner(measure(None), "another GPU")(program, step) is None, "cuBLAS"


@pytest.mark.slow
def test_the_template_compiles_for_two_kinds_of_gpu_and_spills_nothing(tmp_path):
    files = []
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        args = numbers(256, 512, dtype=dtype), numbers(512, 256, dtype=dtype), numbers(256, dtype=dtype)
        program = fused(program_of(CASES["bias and relu"], args[0], args[1], args[2]), lambda step: CANDIDATES[0])
        assert len(products(program)) == 1
        files.append(tmp_path / f"{str(dtype)[6:]}.py")
        files[-1].write_text(module(program, "product", interpreted=False).text)
    rows = offline_kernels.compiled(files, tmp_path, jobs=1)
    assert len(rows) == 6 and [row for row in rows if "failed" in row or row["spilled"]] == []
