"""Block sizes by measurement: the fastest is taken, and kept; tests have a clock of their own."""
from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

import torch
from torch._subclasses import FakeTensorMode

from sot.backends.triton import cache, tuning
from sot.backends.triton.source.blocks import chosen
from sot.backends.triton.tuning import LARGEST, Tuner, candidates
from sot.graph.kernels import ir
from sot.graph.kernels.program import Buffer, Program
from sot.graph.kernels.sizes import symbol

MAP = "kernel twice over p0:{n}\nbuffer x f32 {n}\nbuffer y f32 {n}\nv0:f32 = load x[p0]\n" \
      "v1:f32 = add v0 v0\nstore y[p0] v1"
SUM = "kernel total over p0:4096 | r0:{n}\nbuffer x f32 {size}\nbuffer y f32 4096\nv0:f32 = load x[{n}*p0 + r0]\n" \
      "v1:f32 = sum v0\nstore y[p0] v1"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("SOT_CACHE_DIR", str(tmp_path))


def kernels():
    return [ir.parse(MAP.format(n=1 << 20)), *(ir.parse(SUM.format(n=n, size=4096 * n)) for n in (64, 1000, 1 << 17))]


class Clock:
    """Says that a number of elements in a block, and a number of warps, are the fastest."""

    def __init__(self, elements: int = 2048, warps: int = 8) -> None:
        self.elements, self.warps, self.asked = elements, warps, []

    def __call__(self, kernel, blocks):
        self.asked.append(blocks)
        return abs(blocks.rows * max(blocks.columns, 1) - self.elements) + abs(blocks.warps - self.warps) / 100


@pytest.mark.parametrize("kernel", kernels(), ids=["map", "narrow", "wide", "in pieces"])
def test_candidates_are_few_different_and_of_bearable_size(kernel):
    tried = list(candidates(kernel))
    assert tried[0] == chosen(kernel)
    assert 3 <= len(tried) == len(set(tried)) <= 20
    assert all(b.rows * max(b.columns, 1) <= LARGEST and 1 <= b.warps <= 16 for b in tried)
    assert all(b.rows & (b.rows - 1) == 0 and b.warps & (b.warps - 1) == 0 for b in tried), "powers of two"


def test_the_fastest_is_taken_and_kept():
    kernel, clock = kernels()[0], Clock()
    best = Tuner(clock, "a GPU")(kernel)
    assert (best.rows, best.warps) == (2048, 8)
    asked = len(clock.asked)
    assert Tuner(clock, "a GPU")(kernel) == best and len(clock.asked) == asked, "another process asks nothing"
    entry, = cache.entries()
    assert (entry.kind, entry.title) == ("tuning", "twice on a GPU")


def test_another_gpu_and_another_kernel_are_measured_anew():
    clock = Clock()
    Tuner(clock, "a GPU")(kernels()[0])
    asked = len(clock.asked)
    Tuner(clock, "another GPU")(kernels()[0])
    assert len(clock.asked) == 2 * asked
    Tuner(clock, "a GPU")(kernels()[1])
    assert len(clock.asked) > 2 * asked


def test_a_damaged_result_is_measured_again():
    clock = Clock()
    best = Tuner(clock, "a GPU")(kernels()[0])
    path, = cache.folder().glob("*.tuning")
    path.write_text(json.dumps({"rows": 1, "columns": 0, "whole": False, "warps": 1}))
    assert Tuner(clock, "a GPU")(kernels()[0]) == best


def test_what_does_not_run_is_left_out():
    kernel, clock = kernels()[2], Clock(elements=0)

    def measure(kernel, blocks):
        if blocks.rows < chosen(kernel).rows:
            raise RuntimeError("out of resources")
        return clock(kernel, blocks)
    assert Tuner(measure, "a GPU")(kernel).rows == chosen(kernel).rows
    assert Tuner(lambda *_: 1 / 0, "no GPU")(kernel) == chosen(kernel)


def test_a_size_that_varies_is_not_measured():
    kernel, n = ir.parse(MAP.format(n=300)), symbol("s0")
    varying = dataclasses.replace(kernel, rows=tuple((name, n) for name, _ in kernel.rows))
    assert Tuner(lambda *_: 1 / 0, "a GPU")(varying).rows == 1024
    assert list(cache.entries()) == []


def test_inputs_have_memory_while_torch_traces_with_fake_tensors(monkeypatch):
    given = []
    loaded = SimpleNamespace(run=lambda inputs, constants: given.extend(inputs))
    monkeypatch.setattr(tuning.runtime, "load", lambda path: loaded)
    monkeypatch.setattr(tuning, "do_bench", lambda run, return_mode: run() or 1.0)
    buffers = {name: Buffer(name, torch.float32, (8,), (1,), torch.device("cpu")) for name in "xy"}
    program = Program(["x"], {}, buffers, [ir.parse(MAP.format(n=8))], (buffers["y"].view(),))
    with FakeTensorMode():
        assert tuning.timed(program) == 1.0
    assert [type(tensor) for tensor in given] == [torch.Tensor]
    assert given[0].eq(0).all()


def test_a_wide_row_that_is_only_read_is_kept_in_registers():
    """What reads two rows, or stores one, would spill or leave too few loads in flight."""
    scaled = SUM + "\nbuffer z f32 {size}\nv2:f32 = mul v0 v1\nstore z[{n}*p0 + r0] v2"
    stored = ir.parse("\n".join(sorted(scaled.format(n=1 << 15, size=1 << 27).splitlines(), key=rank)))
    assert [chosen(ir.parse(SUM.format(n=1 << n, size=1 << 12 + n))).whole for n in (14, 15, 16)] == [True, True, False]
    assert not chosen(stored).whole


def rank(line: str) -> int:
    """Buffers follow the head, and stores the statements."""
    return ["kernel", "buffer", "v", "store"].index(next(k for k in ("kernel", "buffer", "store", "v")
                                                         if line.startswith(k)))
