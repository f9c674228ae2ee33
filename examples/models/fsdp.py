"""Train in two processes with FSDP: each process keeps a shard of every weight, and the model is one graph.

FSDP gathers the weights of a block before its ``forward`` and frees them after it, in hooks. A node of the graph runs
each hook, and a backend that compiles gets the operations between two hooks. Python runs the first call, in which FSDP
prepares itself.
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
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    call = sot.to_static(model, backend="eager") if translate else model
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=0.02), []
    torch.manual_seed(rank)
    for _ in range(STEPS):
        x = torch.randn(64, WIDTH)
        loss = (call(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()     # each process gets the averaged gradients of its shards
        optimizer.step()
        found.append(loss.item())
    if translate:
        assert len(sot.translation_of(call).graphs) == 1
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
