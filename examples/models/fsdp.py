"""Train in two processes with FSDP: each process keeps a shard of every weight, and the blocks are captured.

FSDP gathers the weights of a block before its ``forward`` and frees them after it, in hooks that Python runs. Each
block between them is one graph.
"""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import sot

PROCESSES, STEPS, BLOCKS, WIDTH = 2, 8, 3, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def losses(rank: int, translate: bool) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 1))
    mesh = init_device_mesh("cpu", (PROCESSES,))
    for block in list(model)[:BLOCKS]:
        if translate:
            sot.to_static(block, backend="eager")
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=0.02), []
    torch.manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(64, WIDTH)
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()     # each process gets the averaged gradients of its shards
        optimizer.step()
        found.append(loss.item())
    if translate:
        assert [len(sot.translation_of(block).graphs) for block in list(model)[:BLOCKS]] == [1] * BLOCKS
    return found


def work(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=PROCESSES)
    try:
        found = losses(rank, translate=True)
        assert found == losses(rank, translate=False)
        print(f"process {rank}: loss {found[0]:.3f}, then {found[-1]:.3f}")
    finally:
        dist.destroy_process_group()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (port,), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
