"""The measurements for a GPU go through on the CPU: every kernel and model gives a line, and none has failed."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


def test_a_dry_run_fills_every_table(tmp_path):
    file = tmp_path / "GPU.md"
    environment = os.environ | {"SOT_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, str(BENCHMARK), "--dry-run", "--markdown", str(file)], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    text = file.read_text()
    assert "failed" not in text and "nan" not in text, text
    for kernel in ("copy", "pointwise chain", "softmax", "layer norm", "RMS norm", "cross-entropy", "Adam"):
        assert f"| {kernel}" in text
    rows = [line for line in text.splitlines() if line.startswith(("| convolution", "| Llama-style block"))]
    assert len(rows) == 2 * 2 * 3, "models, inference and training, three precisions"
    assert "Geometric means: sot " in text and "torch.compile's time" in text
