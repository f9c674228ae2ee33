"""Kernels of torch's operators compile for GPUs that are not here: one in so many; all of them with `make kernels`."""
from __future__ import annotations

from offline_kernels import compiled, written
from operators import NAMES

EVERY = 24


def test_kernels_of_operators_compile_for_two_kinds_of_gpu(tmp_path):
    files = written(NAMES[::EVERY], tmp_path)
    rows = compiled(files, tmp_path, jobs=1)
    assert len(rows) >= 2 * len(NAMES) / EVERY and {row["arch"] for row in rows} == {80, 90}
    assert [row for row in rows if "failed" in row or row["spilled"]] == []


def test_a_kernel_that_does_not_compile_is_named(tmp_path):
    file = tmp_path / "wrong.py"
    file.write_text('''
import triton
import triton.language as tl
from sot.backends.triton.launching import Launcher


@triton.jit
def wrong(out0, ROWS: tl.constexpr):
    tl.store(out0 + tl.arange(0, ROWS), tl.no_such_function(1))


launch_wrong = Launcher(wrong, {"out0": "*fp32"}, {"ROWS": 16}, {"num_warps": 1})
''')
    rows = compiled([file], tmp_path, jobs=1)
    assert [(row["kernel"], row["arch"]) for row in rows] == [("wrong", 80), ("wrong", 90)]
    assert all("no_such_function" in row["failed"] or "CompilationError" in row["failed"] for row in rows)
