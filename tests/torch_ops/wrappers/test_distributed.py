"""DTensors and functional collectives in two processes over gloo: one graph, with the results of plain PyTorch."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import check

RANKS = 2


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_two_processes(backend, tmp_path):
    programs = Path(__file__).with_name("distributed_programs.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    done = subprocess.run([*command, str(programs), backend, str(tmp_path)], text=True, timeout=300,
                          capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in range(RANKS):
        rows = json.loads((tmp_path / f"rank{rank}").read_text())
        assert rows == {name: [True, 1, []] for name in rows} and len(rows) == 6


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_enums_of_reductions():
    def fn(x, op):
        return x * 2 if op == dist.ReduceOp.SUM else x + 1, dist.ReduceOp.SUM == dist.ReduceOp.AVG, op
    check(fn, torch.ones(3), dist.ReduceOp.SUM, graphs=1, breaks=0)
    check(fn, torch.ones(3), dist.ReduceOp.MAX, graphs=1, breaks=0)
