"""Whole programs through kernels: right, few kernels, little memory traffic, and no spilled registers on a GPU."""
from __future__ import annotations

import functools
import os
from pathlib import Path

import offline_kernels
import pytest
import torch
from compiling import check_compiled, copied, counts, kernels, leaves, run_reference
from gpu_programs import COUNTS, INDUCTOR, PROGRAMS

from sot.backends.triton.compiler import Compiled
from sot.backends.triton.source.module_source import module
from sot.graph.kernels.memory import planned

EXPECTED = Path(__file__).parent / "kernel_sources"


@functools.cache
def compiled(name: str) -> list[Compiled]:
    """The graphs of a program, checked against eager once."""
    torch.manual_seed(0)
    fn, args, parameters = PROGRAMS[name]()
    return check_compiled(fn, *args, parameters=parameters, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_and_its_gradients_are_eagers_in_so_many_kernels(name):
    assert counts(compiled(name)) == COUNTS[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_little_more_memory_is_moved_than_inductor_moves(name):
    for made, theirs in zip(compiled(name), INDUCTOR[name], strict=True):
        assert made.cost.bytes <= 1.05 * theirs


@pytest.mark.parametrize("name", PROGRAMS)
def test_memory_is_used_again(name):
    for made in compiled(name):
        plan = planned(made.program)
        assert 0 < made.cost.peak == plan.peak <= plan.without


def test_layer_norm_gelu_multiply_moves_each_byte_once():
    x, weight, bias = torch.randn(128, 64), torch.randn(64), torch.randn(64)
    made, = check_compiled(PROGRAMS["layer norm, GELU, multiply"]()[0], x, weight, bias)
    assert made.cost.bytes == 66_048 == 4 * (2 * x.numel() + 2 * 64)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_interpreter_agrees(name):
    made = compiled(name)[0]
    inputs = [torch.randn(b.shape) if b.dtype.is_floating_point else torch.randint(0, 9, b.shape)
              for b in (made.program.buffers[n] for n in made.program.inputs)]
    inputs = [i.as_strided(i.shape, made.program.buffers[n].strides) if i.dim() else i
              for i, n in zip(inputs, made.program.inputs, strict=True)]
    expected = made.graph(*copied(inputs))
    torch.testing.assert_close(leaves(run_reference(made.program, inputs)), leaves(expected), rtol=1e-3, atol=1e-4,
                               equal_nan=True)


# ---- on a GPU that is not here ----
@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """What each kernel of each program takes of two kinds of GPU."""
    folder = tmp_path_factory.mktemp("modules")
    files = []
    for number, name in enumerate(PROGRAMS):
        for made in compiled(name):
            files.append(folder / f"program{number}_{made.title}.py")
            files[-1].write_text(module(made.program, name, interpreted=False).text)
    return offline_kernels.compiled(files, folder, jobs=1)


@pytest.mark.slow
def test_every_kernel_compiles_for_two_kinds_of_gpu_and_spills_nothing(offline):
    made = sum(len(kernels(m.program)) for name in PROGRAMS for m in compiled(name))
    assert made / 2 < len(offline) / 2 <= made, "equal kernels are one"
    assert [row for row in offline if "failed" in row] == []
    assert {row["arch"] for row in offline} == {80, 90}
    assert [row for row in offline if row["spilled"]] == []


# ---- sources ----
@pytest.mark.parametrize("name", ["layer norm, GELU, multiply", "softmax", "cross-entropy", "rotary embedding"])
def test_the_source_is_as_expected(name):
    """SOT_EXPECT=1 writes what is made now."""
    path = EXPECTED / f"{name.replace(', ', '_').replace(' ', '_')}.txt"
    text = "\n\n".join(module(m.program, f"{name}, {m.title}", interpreted=False).text for m in compiled(name))
    if os.environ.get("SOT_EXPECT"):
        path.write_text(text)
    assert text == path.read_text()
