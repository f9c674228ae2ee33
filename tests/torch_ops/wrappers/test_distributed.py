"""DTensors and functional collectives in two processes over gloo: one graph, with the results of plain PyTorch."""
import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from harness import caught, check

RANKS = 2


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_two_processes(backend, tmp_path):
    programs = Path(__file__).with_name("distributed_programs.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
               "127.0.0.1", "--nproc-per-node", str(RANKS)]
    done = subprocess.run([*command, str(programs), backend, str(tmp_path)], text=True, timeout=300,
                          capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in range(RANKS):
        rows = json.loads((tmp_path / f"rank{rank}").read_text())
        assert rows == {name: [True, 1, []] for name in rows} and len(rows) == 8


@pytest.mark.skipif(not dist.is_available(), reason="needs torch.distributed")
def test_enums_of_reductions():
    def fn(x, op):
        return x * 2 if op == dist.ReduceOp.SUM else x + 1, dist.ReduceOp.SUM == dist.ReduceOp.AVG, op
    check(fn, torch.ones(3), dist.ReduceOp.SUM, graphs=1, breaks=0)
    check(fn, torch.ones(3), dist.ReduceOp.MAX, graphs=1, breaks=0)


@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo")
def test_collectives_that_raise_or_are_asynchronous():
    """In a group of one process: what no node does is Python's, with the program's exceptions."""
    def wrong(x):
        y = x * 2
        return caught(dist.all_reduce, y, dist.ReduceOp.AVG), y

    def later(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        work.wait(datetime.timedelta(seconds=60))
        return y + 1

    def of_autograd(x):
        y = (x.clone().requires_grad_() * 2)
        dist.all_reduce(y)
        return y.detach()

    def strided(x):
        y = (x * 2).view(3, 1).expand(3, 2).t()
        return caught(dist.broadcast, y, 0), y

    def asked(x):
        return x * dist.get_world_size(), dist.get_rank(), dist.is_initialized()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        check(wrong, torch.ones(3))
        for fn in (later, of_autograd, strided):
            check(fn, torch.ones(3), again=False)
        check(asked, torch.ones(3), graphs=1, breaks=0)
    finally:
        dist.destroy_process_group()
