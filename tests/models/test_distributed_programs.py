"""Distributed programs over gloo, two processes: the results of both ranks are plain PyTorch's.

DistributedDataParallel in its forms, FSDP of both kinds, functional and in-place collectives.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed

PROGRAMS = Path(__file__).resolve().parents[2] / ".." / "shared" / "scripts" / "distributed.py"
RANKS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS.exists(), reason="the distributed programs lie beside the checkout"),
    pytest.mark.skipif(not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
                       reason="needs gloo"),
]


def results(mode, folder, **environment):
    """(rank, program) -> what it computed and what it raised."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
               "127.0.0.1", "--nproc-per-node", str(RANKS),
               str(PROGRAMS)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=600, env=os.environ | environment | {
        "HARNESS_MODE": mode, "HARNESS_OUT": str(folder), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {}
    for rank in range(RANKS):
        for line in (folder / f"out.{mode}.{rank}").read_text().splitlines():
            row = json.loads(line)
            rows[rank, row["t"]] = row["r"], row["e"]
    return rows


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return results("plain", tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("mode, environment", [("static", {}), ("enable", {"SOT_ENABLE": "1"})])
def test_both_ranks_compute_what_they_compute_without_translation(mode, environment, plain, tmp_path):
    assert results(mode, tmp_path, **environment) == plain
