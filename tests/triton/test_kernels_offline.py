"""Kernels of torch's operators compile for GPUs that are not here: one in so many; all of them with `make kernels`."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from compiling import check_compiled
from offline_kernels import compiled, written
from operators import NAMES

from sot.backends.triton.offline import accesses

EVERY = 24


@pytest.mark.slow
def test_kernels_of_operators_compile_for_two_kinds_of_gpu(tmp_path):
    files = written(NAMES[::EVERY], tmp_path)
    rows = compiled(files, tmp_path, jobs=1)
    assert len(rows) >= 2 * len(NAMES) / EVERY and {row["arch"] for row in rows} == {80, 90}
    assert [row for row in rows if "failed" in row or row["spilled"]] == []


@pytest.mark.slow
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


PTX = """
    @%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
    ld.global.L1::evict_last.b32 { %r5 }, [ %rd2 + 0 ];
    st.global.v2.b64 [ %rd3 + 0 ], { %rd4, %rd5 };
    mul.wide.s32 %rd6, %r6, 4;
    mul.lo.s64 %rd7, %rd8, %rd9;
    st.shared.v4.b32 [ %r7 ], { %r1, %r2, %r3, %r4 };
"""


def test_wide_accesses_and_places_in_64_bits_are_counted():
    assert accesses(PTX) == {"loads": 2, "wide loads": 1, "stores": 1, "wide stores": 1, "64-bit index operations": 1}


def test_the_time_on_paper_is_launches_and_bytes_or_operations(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "kernels"))
    from paper import DEVICES, Device, predicted
    one = torch.randn(64, 64)
    pointwise, = check_compiled(lambda x: (x.sin() + 1) * 2, one)
    product, = check_compiled(lambda x: torch.mm(x, x), one)
    assert pointwise.program is not None and product.program is not None
    slow = Device(bandwidth=1e6, tf32=1e3, half=1e3, float32=1e3, launch=1.0)
    monkeypatch.setitem(DEVICES, "slow", slow)
    assert predicted(pointwise.program, "slow") == pytest.approx(1 + 2 * 4 * 64 * 64 / 1e6)
    assert predicted(product.program, "slow") == pytest.approx(1 + 2 * 64 ** 3 / 1e3)
    assert predicted(pointwise.program, "B200") < predicted(pointwise.program, "H200") < predicted(
        pointwise.program, "H100")
