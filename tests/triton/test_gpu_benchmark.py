"""The measurements for a GPU go through on the CPU: every kernel and model gives a line, and none has failed."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the package triton is not installed")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


BY_HAND = "\n## How this is measured\n\nwhat stays\n"


def run(folder: Path, *arguments: str) -> str:
    """What the dry run writes to a file that ends with something else."""
    file = folder / "GPU.md"
    file.write_text("# before\n" + BY_HAND)
    environment = os.environ | {"SOT_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, str(BENCHMARK), "--dry-run", "--markdown", str(file), "--kept",
                           str(folder / "gpu.jsonl"), *arguments], env=environment, capture_output=True, text=True,
                          timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    text, heading, rest = file.read_text().partition(BY_HAND)
    assert heading and not rest
    return text


@pytest.mark.slow
def test_a_dry_run_fills_every_table_and_goes_on_where_it_was_stopped(tmp_path):
    text = run(tmp_path, "--only", "bandwidth")
    assert "failed" not in text, text
    for kernel in ("copy", "pointwise chain", "softmax", "layer norm", "RMS norm", "cross-entropy", "Adam"):
        assert f"| {kernel}" in text
    assert "| convolution |" not in text, "nothing is measured that was not asked for"
    bandwidth = (tmp_path / "gpu.jsonl").read_text()
    text = run(tmp_path)
    assert "failed" not in text and "nan" not in text, text
    assert (tmp_path / "gpu.jsonl").read_text().startswith(bandwidth)
    rows = [line for line in text.splitlines() if line.startswith(("| convolution", "| Llama-style block"))]
    assert len(rows) == 2 * 2 * 3 + 1, "two models, two passes, three precisions; and a whole step"
    assert not any("|  |" in row for row in rows)
    assert "Geometric means: sot " in text and "torch.compile's time" in text
    kept = (tmp_path / "gpu.jsonl").read_text()
    assert run(tmp_path, "--minutes", "0") == text and (tmp_path / "gpu.jsonl").read_text() == kept
